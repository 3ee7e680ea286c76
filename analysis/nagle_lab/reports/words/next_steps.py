"""What to do next: where the time went, by cause, and commands to paste."""

import ipaddress
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Literal

from msgspec.structs import replace

from nagle_lab.diagnosis.result.idle_gaps import CAUSES, Cause
from nagle_lab.diagnosis.result.reason import data_may_have_waited, larger_cause
from nagle_lab.diagnosis.result.result import (
    Connection,
    CountAndTime,
    Endpoint,
    EndProcess,
    NamedEnd,
    Result,
    Stall,
    UndecidedEnd,
)
from nagle_lab.diagnosis.result.spread import duration_text
from nagle_lab.diagnosis.result.verdict import Recording, Undecided, Verdict
from nagle_lab.diagnosis.result.which_connections import LOOKED_AT, busiest, is_one_way, stalled_upstreams
from nagle_lab.evidence.software import COMMON, NodelaySetting
from nagle_lab.packet.segment import end_text
from nagle_lab.reports.words.phrases import answers_as
from nagle_lab.tcp.events import IDLE, MS

_STEPS = {
    Cause.NAGLE_ROUND_TRIP: (
        "the sender holds small segments for a round trip: set TCP_NODELAY there, or send in one write"
    ),
    Cause.MSG_MORE: (
        "the program that sends announces more (MSG_MORE) and has no more, so the kernel keeps the end until an ACK: "
        "send the last part of each message without it. TCP_NODELAY does not help there"
    ),
    Cause.DELAYED_ACK: (
        "a program paused, between its writes or before its next request; an ACK came late during that pause, but "
        "TCP held nothing. Look at what the program does then; a proxy waits for its upstream: capture that, too, "
        "with -i any"
    ),
    Cause.SERVER_THINK: (
        "the server replies late, and not because of TCP: profile it, or capture its own connections "
        "(database, upstream) with -i any"
    ),
    Cause.CLIENT_THINK: (
        "the client pauses before it reads a reply, or before its next request: look there, not at the server"
    ),
    Cause.CORK: (
        "if the program that sends sets TCP_CORK, it has to clear it after the last write (nginx: tcp_nopush off); "
        "or look for a timer of 200 ms in it"
    ),
    Cause.LIKELY_CORK: (
        "nearly all late replies took as long as TCP_CORK holds data: if the program that sends them sets that, it "
        "has to clear it after the last write (nginx: tcp_nopush off); or look for a timer of 200 ms in it"
    ),
    Cause.RETRANSMISSION: (
        "packets are lost: look for drops with `ss -ti`, `nstat -az TcpRetransSegs` and `ip -s link` at both ends"
    ),
    Cause.WINDOW: "the receiver does not read fast enough, or its buffer is small: look at `ss -tim` there",
    Cause.ROUND_TRIP: "the path takes that long: keep connections open, and send fewer requests one after the other",
    Cause.UNKNOWN: "none of the known causes: capture at the other end, too",
}

_SERVER_OR_PATH = (
    "the server replies late, or what it sends is late on the path: capture at the server, which tells. If it is the "
    "server, profile it, or capture its own connections (database, upstream) with -i any there"
)

CAPTURED_HOST = "the captured host"  # where an end on a loopback is

_Block = tuple[str, list[str]]  # what lines are for, and the lines to paste

_MANY = 10  # exchanges, in one of which it held data
_WORTH_NAMING = 0.05  # share of all idle time
_MOST = 3


def ends(result: Result, software: NodelaySetting | None = None) -> list[tuple[str, str]]:
    """If nothing was held, the row that says which ends to look at: those of the busiest connection."""
    connection = None if result.stalls else busiest(result)
    if connection is None:
        return []
    named = f", {software.software}" if software else ""
    translated = f" ({said})" if (said := answers_as(connection)) else ""
    between = f"client {connection.client} and server {connection.server}{translated}{named}"
    if result.summary.connections > 1:
        between += f": the busiest connection, {connection.exchanges:,} of {result.summary.exchanges:,} exchanges"
    return [("between", between)]


def idle_gaps(result: Result, *, slow: bool = True) -> list[tuple[str, str]]:
    """Rows that say where the time went, by cause, the longest total first, and what to do if it is not a stall.

    ``slow``: whether the reader looks because it is slow; in a guarded test, pauses do not matter.
    """
    causes = _by_time(result)
    if [cause for cause, *_ in causes] == [Cause.NAGLE_DELAYED_ACK]:
        return []  # the stalls, which everything else describes
    if is_one_way(result):  # what the missing direction did meanwhile is not known
        return [("next", _both_directions(result))] if slow and result.connections else []
    is_open = data_may_have_waited(result)
    rows = [("" if row else "idle gaps", _gaps(*found, is_open)) for row, found in enumerate(causes)]
    if result.verdict is Verdict.CLEAN and slow:
        rows += [("next", step) for step in _next(result, [cause for cause, *_ in causes])]
    if result.stalls and slow and (step := _besides(result)):
        rows.append(("next", step))
    return rows


def _besides(result: Result) -> str:
    """What to do about a cause that took longer than the stalls; empty without one, or if their remedy covers it."""
    cause = larger_cause(result.summary.lost_ms_total, result.idle_gaps)
    is_late_ack = cause is Cause.DELAYED_ACK
    if (
        cause is None
        or cause is Cause.NAGLE_ROUND_TRIP
        or (is_late_ack and (result.summary.relays or data_may_have_waited(result)))
    ):
        return ""
    if cause is Cause.SERVER_THINK and (upstreams := stalled_upstreams(result)):
        named = upstreams[0] if len(upstreams) == 1 else f"{upstreams[0]} and others"
        return (
            f"the other servers may have waited for their own connections to {named}, whose stalls are in this "
            "capture: remove those first, then look again"
        )
    return f"the remedy below does not remove the larger delay: {_step(cause, result)}"


def _step(cause: Cause, result: Result) -> str:
    """What to do about a cause; away from the server, its own time and that of the path look the same."""
    if cause is Cause.SERVER_THINK and result.summary.captured_near in ("client", "neither"):
        return _SERVER_OR_PATH
    return _STEPS[cause]


def _both_directions(result: Result) -> str:
    direction, end = _one_direction(result)
    first = islice(result.connections, LOOKED_AT)
    has_data = any(sent.payload_bytes for one in first for sent in one.sent.values())
    unanswered = "" if has_data else "perhaps nobody answers, or a firewall drops them; otherwise "
    return (
        f"only packets {direction} {end} are in it: {unanswered}set the mirror port to both directions, "
        f"or capture on {_host(end)} itself"
    )


def _one_direction(result: Result) -> tuple[Literal["from", "to"], Endpoint]:
    """The end that all packets come from, or else the one that they go to, if the first connections share it.

    If they share none, it is the sending end of the connection with the most packets.
    """
    first = list(islice(result.connections, LOOKED_AT))
    most = max(first, key=lambda connection: connection.packets)
    sender, receiver = (most.server, most.client) if most.sent["server"].packets else (most.client, most.server)
    shared = [end for end in (sender, receiver) if all(end.ip in (one.client.ip, one.server.ip) for one in first)]
    return ("to", receiver) if shared == [receiver] else ("from", sender)


def _next(result: Result, causes: list[Cause]) -> Iterator[str]:
    """What to do next: about many holds for a round trip, otherwise about the first cause that can be fixed."""
    if _is_held_often(result):
        yield f"{CAUSES[Cause.NAGLE_ROUND_TRIP]}: {_STEPS[Cause.NAGLE_ROUND_TRIP]}"
    elif first := _first(causes):
        yield f"{CAUSES[first]}: {_step(first, result)}"
    elif result.summary.exchanges:
        none = f"there is no idle gap of {IDLE // MS} ms or more"
        yield f"{none}: if it is slow all the same, the wait is on another connection"


def _is_held_often(result: Result) -> bool:
    """Whether Nagle's algorithm alone held data so often that this comes first."""
    return _MANY * result.summary.round_trip_holds.count > result.summary.exchanges


def _first(causes: list[Cause]) -> Cause | None:
    """The first cause about which something can be done."""
    return next((cause for cause in causes if cause is not Cause.ROUND_TRIP), causes[0] if causes else None)


def _by_time(result: Result) -> list[tuple[Cause, CountAndTime, float]]:
    """The causes that are worth naming, each with its share of all idle time."""
    total = sum(gaps.total_ms for gaps in result.idle_gaps.values())
    most_first = sorted(result.idle_gaps.items(), key=lambda item: -item[1].total_ms)
    shares = [(cause, gaps, gaps.total_ms / total) for cause, gaps in most_first if total]
    return [found for found in shares if found[2] >= _WORTH_NAMING][:_MOST]


def _gaps(cause: Cause, gaps: CountAndTime, share: float, is_open: bool) -> str:
    """``is_open``: whether it is not known if data waited for some late ACKs."""
    name = (
        "delayed ACK, perhaps with data waiting for it" if is_open and cause is Cause.DELAYED_ACK else CAUSES[cause]
    )
    return f"{gaps.count:,} × {name}: {duration_text(gaps.total_ms)}, {share:.0%} of all idle time"


IN_THE_CAPTURE = "which its packets name (a relay may only have passed the name on)"
NOT_IN_THE_CAPTURE = "the capture does not show"
PIPE_READ_ONCE = "is not known, because a pipe cannot be read twice"


def commands(
    result: Result,
    software: NodelaySetting | None,
    *,
    running: bool = True,
    here: bool = False,
    known_by: str = IN_THE_CAPTURE,
    unknown: str = NOT_IN_THE_CAPTURE,
) -> list[tuple[str, list[str]]]:
    """What to do about the stalls, or about the first cause of idle gaps, and the lines to paste for it.

    Text that is not for a shell is a comment, and so are lines that undo another line, so all of it can be pasted at
    once. ``running``: whether the captured program may still run; of a guarded command only the code can be changed.
    ``here``: it runs on this host, with the processes that the result names. ``known_by``: how the software is known;
    ``unknown``: why it is not.
    """
    s = result.summary
    if not s.held_ends or not s.delayed_ends:
        if not running:
            return []
        if result.undecided and result.undecided.record is Recording.ASKING_THE_KERNEL:
            return _ask_the_sender(result, result.undecided)
        if result.undecided and result.undecided.record is Recording.AT_BOTH_ENDS:
            return _record_at_both_ends(result, result.undecided)
        return _record_both(result) if is_one_way(result) else _commands_without_stall(result)
    if not running:
        return [setting_of(software, known_by, unknown)]
    pairs = list(_held_and_delayed(result))
    looked_at, acknowledged = zip(*(_of_pair(result, *pair, here=here) for pair in pairs), strict=True)
    return [*_distinct(looked_at), setting_of(software, known_by, unknown), *_distinct(acknowledged)]


_MOST_HELD = 2  # ends with lines of their own
_FIRST_STALLS = 10_000  # among which the stalls of the second end are looked for


def _held_and_delayed(result: Result) -> Iterator[tuple[NamedEnd, NamedEnd]]:
    """The ends that held most often, each with an end that delayed its ACK then."""
    first, *others = result.summary.held_ends[:_MOST_HELD]
    yield first, _end_that_delays(result, next(stall for stall in result.stalls if _is_at(stall.held_by, first)))
    for held in others:
        stalls = islice(result.stalls, _FIRST_STALLS)
        if stall := next((stall for stall in stalls if _is_at(stall.held_by, held)), None):
            yield held, _end_that_delays(result, stall)


def _of_pair(result: Result, held: NamedEnd, delayed: NamedEnd, *, here: bool) -> tuple[_Block, _Block]:
    """What to paste where data was held, and where its ACK was delayed."""
    translated = _translated(result)
    sender = _as_asked(translated, held)
    holder, delayer = (_process_at(result, end) if here else None for end in (held, delayed))
    look_at = _look_at(held, _as_asked(translated, delayed), is_certain=result.summary.is_certain)
    acknowledge = _reach(sender, delayed, delayer), _quick_acks(sender, delayed, delayer)
    return _try(holder) if holder else look_at, acknowledge


def _distinct(blocks: Sequence[_Block]) -> list[_Block]:
    """The blocks, none of them twice."""
    return [block for at, block in enumerate(blocks) if block not in blocks[:at]]


def _translated(result: Result) -> list[Connection]:
    """Those of the first LOOKED_AT connections whose server's address is translated on the way."""
    return [one for one in islice(result.connections, LOOKED_AT) if one.answers_as]


def _as_asked(translated: Sequence[Connection], end: NamedEnd) -> NamedEnd:
    """The end as its peer's kernel knows it, if it is a server whose address is translated there."""
    asked = next((one.answers_as for one in translated if _is_at(one.server, end)), None)
    return replace(end, ip=asked.ip, port=asked.port) if asked else end


def _end_that_delays(result: Result, stall: Stall) -> NamedEnd:
    """The end that delayed the ACK in that stall; another one may delay more often."""
    delayed = stall.delayed_by
    named = (end for end in result.summary.delayed_ends if _is_at(delayed, end))
    return next(named, NamedEnd(delayed.ip, delayed.port if delayed.role == "server" else None, delayed.role, 1))


def _is_at(endpoint: Endpoint, end: NamedEnd | UndecidedEnd) -> bool:
    return (endpoint.role, endpoint.ip) == (end.role, end.ip) and end.port in (None, endpoint.port)


def _process_at(result: Result, end: NamedEnd) -> EndProcess | None:
    """The process at that end; of several the one with the most stalls, which comes first."""
    at = ((one, (one.ip, one.port)) for one in result.processes or [] if one.role == end.role)
    return next((one for one, place in at if place in ((end.ip, end.port), (end.ip, None))), None)


def _try(holder: EndProcess) -> tuple[str, list[str]]:
    """Show the sockets of the process that holds; the change, which a person must decide on, is a comment."""
    return (
        f"In a shell on this host, as root, to see what {holder.command} {holder.pid} holds now",
        [
            f"nagle-lab sockets --pid {holder.pid}",
            f"# to try TCP_NODELAY on it, for 30 s: nagle-lab nodelay --pid {holder.pid} on --for 30s",
        ],
    )


def _look_at(held: NamedEnd, delayed: NamedEnd, *, is_certain: bool) -> tuple[str, list[str]]:
    """Which program holds; and whether it really does, if that is not certain from outside."""
    there, find = _there(held), _find(held, delayed)
    if is_certain:
        return f"{there}, to see which program holds", [find]
    port = held.port if held.role == "server" else delayed.port
    return f"{there}, to see which program holds, and to ask its kernel whether it does", [find, _watch(port)]


def _watch(port: int | None) -> str:
    return f"nagle-lab watch{f' --port {port}' if port else ''} --seconds 60"


_NO_SHELL = "#   "  # how a line begins that is not for a shell


def setting_of(
    software: NodelaySetting | None, known_by: str = IN_THE_CAPTURE, unknown: str = NOT_IN_THE_CAPTURE
) -> tuple[str, list[str]]:
    """How TCP_NODELAY is set in the software that was seen, and how that is known; otherwise in common software."""
    if software:
        return f"In its source or configuration: TCP_NODELAY in {software.software}, {known_by}", [
            f"{_NO_SHELL}{software.setting}"
        ]
    width = max(len(each.software) for each in COMMON)
    return (
        f"In its source or configuration: TCP_NODELAY. Which software it is, {unknown}; in some it is",
        [f"{_NO_SHELL}{each.software:{width}}  {each.setting}" for each in COMMON],
    )


def lines_to_copy(lines: Sequence[str]) -> list[str]:
    """The lines of a block as a page shows them: what is for another place than a shell is no comment of a shell."""
    if all(line.startswith(_NO_SHELL) for line in lines):
        return [line.removeprefix(_NO_SHELL) for line in lines]
    return list(lines)


def _commands_without_stall(result: Result) -> list[tuple[str, list[str]]]:
    """Commands for a gap that a program causes: which program it is, and what it is waiting for."""
    first, connection = _first([cause for cause, *_ in _by_time(result)]), busiest(result)
    if result.verdict is not Verdict.CLEAN or connection is None or _is_held_often(result):
        return []
    server, client, asked = connection.server, connection.client, connection.answers_as or connection.server
    if first is Cause.SERVER_THINK:
        return [
            (f"{_there(server)}, to see which program replies late", [_find(server, client)]),
            ("There, while it is slow, to record what it waits for: all connections", [_tcpdump("all", "tcp")]),
        ]
    if first in (Cause.CORK, Cause.LIKELY_CORK):
        corked = f"nagle-lab sockets --port {server.port}"
        return [(f"{_there(server)}, while it is slow, to see which program corks", [corked])]
    if first is Cause.CLIENT_THINK:
        return [(f"{_there(client)}, to see which program pauses", [_find(client, asked)])]
    late = [role for role, count in result.summary.delayed_acks_by.items() if count]
    if first in (Cause.DELAYED_ACK, Cause.MSG_MORE) and len(late) == 1:  # the other end is the one that sends late
        sending, waiting = (server, client) if late == ["client"] else (client, asked)
        does = "pauses between its writes" if first is Cause.DELAYED_ACK else "sends with MSG_MORE"
        return [(f"{_there(sending)}, to see which program {does}", [_find(sending, waiting)])]
    return []


def _record_both(result: Result) -> list[tuple[str, list[str]]]:
    """If one direction is missing: record where both directions pass."""
    if not result.connections:
        return []
    _, end = _one_direction(result)
    capture = _tcpdump("both", f"'tcp{f' port {end.port}' if end.role == 'server' else ''}'")
    return [(f"In a shell on {_host(end)}, as root, while it is slow, to record both directions", [capture])]


def _ask_the_sender(result: Result, undecided: Undecided) -> list[tuple[str, list[str]]]:
    """If packets do not show what was held: ask the kernel of the end that sent the data."""
    most = _most_undecided(result, undecided)
    ends = [
        end for end in result.summary.undecided_ends if any(_is_at(one, end) for one in (most.client, most.server))
    ]
    sender: UndecidedEnd | Endpoint = max(
        ends, key=lambda end: end.unresolved.get(undecided.obstacle, 0), default=most.server
    )
    there = f"In a shell on {_host(sender)}, as root, while it is slow"
    return [
        (
            f"{there}, to ask its kernel what waits in the {sender.role}'s sockets",
            [_watch(most.server.port), "# if it runs in a container, also: --container NAME"],
        ),
        ("Or there, without nagle-lab: all connections, which show what a relay passes on", [_tcpdump("all", "tcp")]),
    ]


def _most_undecided(result: Result, undecided: Undecided) -> Connection:
    """The connection with the most unresolved candidates, to the server that is named, if any."""
    named = [one for one in result.connections if str(one.server) == undecided.server]
    return max(named or result.connections, key=lambda connection: connection.unresolved)


def _record_at_both_ends(result: Result, undecided: Undecided) -> list[tuple[str, list[str]]]:
    """If the path hides what was held: record at both ends of the connection with the most unresolved candidates."""
    most = _most_undecided(result, undecided)
    client, server = most.client, most.server
    if _is_one_host(client, server):
        return []
    only, both = f"'tcp port {server.port}'", "nagle-lab analyze --same-traffic /tmp/client.pcap /tmp/server.pcap"
    return [
        (f"In a shell on {_host(client)}, as root, while it is slow", [_tcpdump("client", only)]),
        (f"At the same time, in a shell on {_host(server)}, as root", [_tcpdump("server", only)]),
        ("Then, with both files on one host", [both]),
    ]


def _tcpdump(file: str, only: str) -> str:
    return f"tcpdump -i any -s 128 -B 16384 -n -c 200000 -w /tmp/{file}.pcap {only}"


def _there(end: NamedEnd | Endpoint) -> str:
    """Where and when to look for a program: a server keeps listening, a client's connections may soon close."""
    return f"In a shell on {_host(end)}, as root" + (", while it runs" if end.role == "client" else "")


def _host(end: NamedEnd | UndecidedEnd | Endpoint) -> str:
    return CAPTURED_HOST if ipaddress.ip_address(end.ip).is_loopback else end.ip


def _find(held: NamedEnd | Endpoint, delayed: NamedEnd | Endpoint) -> str:
    """The command that names the process at the held end."""
    if held.role == "server" and held.port is not None:
        return f"ss -tlnp 'sport = :{held.port}'"
    if delayed.port is not None:
        return f"ss -tnp dst {end_text(delayed.ip, delayed.port)}"
    return f"ss -tnp dst {f'[{delayed.ip}]' if ':' in delayed.ip else delayed.ip}"


def _reach(held: NamedEnd, delayed: NamedEnd, delayer: EndProcess | None) -> str:
    """What the command below changes, and for whom: a route affects more than one connection."""
    where = f"Or in a shell on {'this host' if delayer else _host(delayed)}, as root: acknowledge at once what"
    if _is_one_host(held, delayed):
        return (
            f"{where} is sent over {held.ip}. This changes the local route there, for every program that uses it: "
            "for testing only"
        )
    return f"{where} {held.ip} sends. It acts on all connections between the two, of every program"


_WITHOUT_LINUX = (
    f"{_NO_SHELL}FreeBSD and macOS, instead: sysctl net.inet.tcp.delayed_ack=0",
    f"{_NO_SHELL}Windows, instead: TcpAckFrequency=1 in the registry",
)


def _is_one_host(one: NamedEnd | Endpoint, other: NamedEnd | Endpoint) -> bool:
    """Whether their packets leave through no device: by 127.0.0.1, or an address of that host."""
    return one.ip == other.ip or any(ipaddress.ip_address(end.ip).is_loopback for end in (one, other))


def _quick_acks(held: NamedEnd, delayed: NamedEnd, delayer: EndProcess | None) -> list[str]:
    """The command that gives the route to the held end the option ``quickack`` (ip-route(8)), and its undoing.

    It runs in the network namespace of ``delayer``, if that process is known.
    """
    inside = f"nsenter -t {delayer.pid} -n " if delayer else ""
    is_ipv4 = ipaddress.ip_address(held.ip).version == 4
    ip = inside + ("ip" if is_ipv4 else "ip -6")
    if not _is_one_host(held, delayed):
        source = "" if is_ipv4 else "from :: "  # with which the route could not be deleted by its address alone
        way = f"$({ip} route get {held.ip} | sed -n '1s/^[^ ]* {source}\\(.*\\) src .*/\\1/p')"
        lines = [f"{ip} route add {held.ip} {way} quickack 1", f"# to undo it: {ip} route del {held.ip}"]
        return lines if delayer else [*lines, *_WITHOUT_LINUX]
    if is_ipv4:  # the last one that matches is the most specific
        route = f"{ip} route show table local match {held.ip} | tail -1"
        return [
            f"{ip} route replace table local $({route}) quickack 1",
            f"# to undo it: {ip} route replace table local $({route} | sed s/quickack.*//)",
        ]
    route = f"local {held.ip} table local"
    new = f"{ip} route del {route}; {ip} route add {route} dev lo proto kernel"
    return [f"{new} quickack 1", f"# to undo it: {new}"]
