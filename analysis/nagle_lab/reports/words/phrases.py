"""A result in words that the screen, Markdown and HTML share."""

from collections import Counter
from collections.abc import Iterable
from itertools import islice

from nagle_lab.diagnosis.proof.outcomes import Ground, Obstacle
from nagle_lab.diagnosis.result.result import Connection, Result, Server, Stall, Summary
from nagle_lab.diagnosis.result.spread import plural, times_text
from nagle_lab.diagnosis.result.verdict import Verdict
from nagle_lab.diagnosis.result.which_connections import LOOKED_AT
from nagle_lab.reports.words.numbers import share

GROUNDS = {
    Ground.SEEN_WAITING: "asked before the ACK came, the kernel said that the data waited in the socket",
    Ground.REPETITION_AT_SENDER: ("each time the data left right after the ACK, sooner than a program wakes up"),
    Ground.REPETITION_NEARBY: (
        "each time the data came as soon after the ACK as a kernel close by sends it; a program that itself waits "
        "for the ACK, or passes on what another connection held, may be as quick; `nagle-lab watch` at the sender "
        "asks the kernel"
    ),
    Ground.PROMPTNESS: "once or twice the data left right after the ACK, sooner than a program wakes up",
    Ground.REPETITION_ON_PATH: (
        "each time the data came one round trip after the ACK, as it would from a program that itself waits "
        "for the ACK, or passes on what another connection held, or over a path that keeps data until the other end "
        "sends; `nagle-lab watch` at the sender asks the kernel"
    ),
    Ground.TIMESTAMPS: (
        "the capture lacks the ACK, but the TCP timestamp of the released data shows that it had arrived"
    ),
    Ground.DATA_ACKS: ("the ACK came on data, and the held data left as soon after it as after ACKs that came alone"),
    Ground.MERGED_WRITES: "several writes left as one segment once the other end's data carried the ACK",
}


_MOST_PORTS = 5


def server_ports(result: Result) -> str:
    """Which ports the servers have, if none was asked for; at most five."""
    ports = Counter(one.server.port for one in islice(result.connections, LOOKED_AT))
    return f"the servers have {', '.join(str(port) for port, _ in ports.most_common(_MOST_PORTS))}"


def answers_as(connection: Connection) -> str:
    """The server's translated address in a connection's segments; otherwise empty."""
    return f"answers as {connection.answers_as}" if connection.answers_as else ""


def _said_of(ground: Ground, beside: Iterable[Ground] = ()) -> str:
    """How sure a ground is; a stall proved by its likeness to other stalls is no surer than these."""
    is_certain = ground.is_certain and (ground is not Ground.TIMESTAMPS or all(one.is_certain for one in beside))
    return f"{'certain' if is_certain else 'likely'}: {GROUNDS[ground]}"


def how_sure(result: Result) -> str:
    """How sure the proof of the stalls is, and on what evidence; empty without stalls."""
    grounds = result.summary.grounds
    if len(grounds) == 1:
        return _said_of(next(iter(grounds)))
    return "; ".join(f"{count} × {_said_of(ground, grounds)}" for ground, count in grounds.items())


def is_at_sender(result: Result, stall: Stall) -> bool:
    """Whether the capture shows held data as it leaves, and not as it passes later."""
    return result.summary.captured_near in (stall.held_by.role, "both")


def exchanges(result: Result) -> str:
    """How many exchanges there are, how many stalled if it is known, and in how many a stall would have been seen."""
    s = result.summary
    is_known = s.stalled_exchanges or result.verdict is Verdict.CLEAN
    stalled = f", stalled {s.stalled_exchanges:,} ({_share_stalled(s, 1)})" if is_known else ""
    seen = "" if s.decided_exchanges == s.exchanges else f"; in {s.decided_exchanges:,} a stall would have been seen"
    return f"{s.exchanges:,}{stalled}{seen}"


def stalled_exchanges(result: Result) -> tuple[str, str]:
    """How many exchanges stalled, and of how many; "?" if it is not known whether any did."""
    s = result.summary
    seen = f"in {s.decided_exchanges:,} a stall would have been seen"
    of = f"of {s.exchanges:,} {plural('exchange', s.exchanges)}"
    if not s.stalled_exchanges and result.verdict is not Verdict.CLEAN:
        return "?", f"{of}; {seen}" if s.exchanges else "no exchange to judge"
    more = "" if s.decided_exchanges == s.exchanges else f"; {seen}"
    return f"{s.stalled_exchanges:,}", f"{_share_stalled(s)} {of}{more}"


def _share_stalled(s: Summary, decimals: int = 0) -> str:
    """In percent, by the counts: rounded as in the result, few of very many exchanges are none, and most are all."""
    return share(s.stalled_exchanges / max(s.exchanges, 1), decimals)


def findings(result: Result) -> list[tuple[str, str]]:
    """Names and sentences of the findings besides the verdict: hold, round trips, relays, unresolved candidates."""
    rows = [
        ("hold", _hold(result.summary)),
        ("round trips", _round_trips(result.summary)),
        ("relayed", _relays(result)),
        ("cannot tell", _unresolved(result)),
    ]
    return [(name, sentence) for name, sentence in rows if sentence]


def servers(s: Summary) -> list[tuple[str, str]]:
    """The findings for each server with stalls or unresolved candidates, then all others; nothing for only one."""
    if not s.servers:
        return []
    others = s.exchanges - sum(server.exchanges for server in s.servers)
    stalled = s.stalled_exchanges - sum(server.stalled_exchanges for server in s.servers)
    found = [(str(server), _on_its_connections(server)) for server in s.servers]
    return [*found, ("all others", _stalled_of(stalled, others))] if others else found


def _on_its_connections(server: Server) -> str:
    holders = [role for role, count in server.stalls_by.items() if count]
    if not holders:
        return f"undecided {times_text(server.unresolved)} in {server.exchanges:,} exchanges"
    left_open = f"; undecided {times_text(server.unresolved)}" if server.unresolved else ""
    return f"{_stalled_of(server.stalled_exchanges, server.exchanges)}, held by {' and '.join(holders)}{left_open}"


def _stalled_of(stalled: int, exchanges: int) -> str:
    return f"{stalled:,} of {exchanges:,} {plural('exchange', exchanges)} stalled"


_WRITTEN_LATE = 0.9  # of the wait: what was held for less was written late, by more than measuring it explains


def _hold(s: Summary) -> str:
    """How much of the wait the data was held, if the capture narrows that down."""
    hold, wait = s.hold_ms, s.wait_ms
    if not hold or not wait or hold.high >= wait.p50 - 0.05 or len(s.held_ends) > 1:
        return ""
    late = "; the program wrote it late" if hold.high < _WRITTEN_LATE * wait.p50 else ""
    return f"of the median wait, {wait.p50:.1f} ms, the kernel held the data for {hold} ms{late}"


def _round_trips(s: Summary) -> str:
    """What Nagle's algorithm costs without any delayed ACK."""
    if not s.round_trip_holds.count:
        return ""
    each = s.round_trip_holds.total_ms / s.round_trip_holds.count
    held_by = [role for role, count in s.round_trip_holds_by.items() if count]
    whose = f"the {held_by[0]}'s data" if len(held_by) == 1 else "data of both ends"
    where = f"the {held_by[0]}" if len(held_by) == 1 else "both"
    return (
        f"{times_text(s.round_trip_holds.count)} Nagle's algorithm held {whose} until an ACK that was not delayed: "
        f"one round trip each, about {each:.1f} ms; TCP_NODELAY at {where} saves that"
    )


def _relays(result: Result) -> str:
    """Which server to look at instead; the most frequent pair of them."""
    pairs: Counter[tuple[str, str]] = Counter()
    for relay in result.summary.relays:
        relayed, source = (result.connections[number].server for number in (relay.connection, relay.source))
        pairs[str(relayed), str(source)] += relay.times
    if not pairs:
        return ""
    ((server, behind), count), *_ = pairs.most_common(1)
    others = "others to the same server" if behind == server else f"those to {behind}"
    return (
        f"{times_text(count)} data followed a late ACK on connections to {server} only because it was passed on from "
        f"{others}: fix that first, then record again: what passes it on may hold data, too"
    )


_MOST_CONNECTIONS, _TOO_MANY = 5, 1_000  # the most to name; and to examine, because a row of more would be useless


def stalled_connections(result: Result) -> str:
    """Which connections have the stalls, if others with as much traffic have none; otherwise empty."""
    if result.summary.connections > _TOO_MANY:
        return ""
    stalled = [one for one in result.connections if one.stalls]
    others = sum(1 for one in result.connections if not one.stalls and one.repeat_exchanges)
    if not stalled or not others:
        return ""
    most = sorted(stalled, key=lambda one: -one.stalls)[:_MOST_CONNECTIONS]
    named = ", ".join(f"{one.client} (connection {one.id})" for one in most)
    more = f" and {len(stalled) - len(most)} more" if len(stalled) > len(most) else ""
    return f"{len(stalled)} of {len(result.connections)} connections: {named}{more}"


OBSTACLES = {
    Obstacle.LIKE_A_PROGRAM: "a program's own pause, or a hold on a busy machine",
    Obstacle.OWN_PACE: "a program that waits for something else, or a hold",
    Obstacle.NAGLE_OFF_ELSEWHERE: "the same ends wait for no ACK on other connections, or at other times",
    Obstacle.CONNECTIONS_DIFFER: "it seems held on some connections; what happens on the others is not certain",
    Obstacle.ROUND_TRIP_UNKNOWN: "the round trip to the sender is not known",
    Obstacle.WINDOW_UNKNOWN: "a full window, or a hold: no SYN shows how the window is scaled",
    Obstacle.NO_HANDSHAKE: "no handshake shows whether the path or a delayed-ACK timer took so long",
    Obstacle.PATH_VARIES: "the path or a busy host may have delayed the ACK as much",
    Obstacle.COARSE_CLOCK: "the capture's clock is too coarse",
    Obstacle.COINCIDENCE: "it may be chance",
    Obstacle.CAPTURE_INCOMPLETE: "ACKs are missing in the capture, or out of order",
    Obstacle.ACK_ON_DATA: "the ACK came with data: an answer, or a release",
}
"""Why candidates are undecided, in few words."""


def _unresolved(result: Result) -> str:
    """What is unresolved, and whose data it concerns."""
    often = [f"{times_text(count)}: {OBSTACLES[obstacle]}" for obstacle, count in result.quality.unresolved.items()]
    ends = result.summary.undecided_ends
    which = f"the {ends[0].role} ({ends[0]}) sent after" if len(ends) == 1 else "followed"
    return f"whether data that {which} a late ACK was held, {'; '.join(often)}" if often else ""


_MOST_PROCESSES = 5


def processes(result: Result) -> list[tuple[str, str]]:
    """Rows: which process is at which end, if the capture says so."""
    found = result.processes or []
    rows = [str(one) for one in found[:_MOST_PROCESSES]]
    if len(found) > _MOST_PROCESSES:
        rows.append(f"and {len(found) - _MOST_PROCESSES} more, which --json has")
    return [("" if i else "process", row) for i, row in enumerate(rows)]


def only_processes(result: Result) -> dict[str, str]:
    """Role → the name and number of the process in that role, if there is only one."""
    by_role: dict[str, set[str]] = {}
    for one in result.processes or []:
        if one.role:
            by_role.setdefault(one.role, set()).add(f"{one.command} {one.pid}")
    return {role: next(iter(names)) for role, names in by_role.items() if len(names) == 1}
