"""What to do next: where the time went, by cause, and commands to paste."""

import ipaddress
from collections.abc import Iterator

from nagle_lab.diagnosis.idle import Cause
from nagle_lab.diagnosis.result import NamedEnd, Result, Silence
from nagle_lab.evidence.software import COMMON, Setting

CAUSES = {
    Cause.NAGLE_DELAYED_ACK: "Nagle's algorithm waiting for a delayed ACK",
    Cause.NAGLE_ROUND_TRIP: "Nagle's algorithm waiting for a round trip",
    Cause.DELAYED_ACK: "delayed ACK that nothing waited for",
    Cause.SERVER_THINK: "server processing",
    Cause.CLIENT_THINK: "client processing",
    Cause.CORK: "TCP_CORK",
    Cause.RETRANSMISSION: "retransmission timeout",
    Cause.WINDOW: "zero or full receive window",
    Cause.ROUND_TRIP: "round trip of the path",
    Cause.UNKNOWN: "unknown",
}
"""What each cause of an idle gap is called in what people read."""

_STEPS = {
    Cause.NAGLE_ROUND_TRIP: (
        "the sender holds small segments for a round trip: set TCP_NODELAY there, or send in one write"
    ),
    Cause.DELAYED_ACK: (
        "the program paused between its writes, and the ACK of the first was late meanwhile: harmless. "
        "Look at what the program does between the two writes"
    ),
    Cause.SERVER_THINK: (
        "the server replies late, and not because of TCP: profile it, or capture its own connections "
        "(database, upstream) with -i any"
    ),
    Cause.CLIENT_THINK: "the client pauses between a reply and its next request: look there, not at the server",
    Cause.CORK: "the sender sets TCP_CORK (nginx: tcp_nopush) and leaves it set: clear it after the last write",
    Cause.RETRANSMISSION: (
        "packets are lost: look for drops with `ss -ti`, `nstat -az TcpRetransSegs` and `ip -s link` at both ends"
    ),
    Cause.WINDOW: "the receiver does not read fast enough, or its buffer is small: look at `ss -tim` there",
    Cause.ROUND_TRIP: "the path is that long: keep connections open, and send fewer requests one after the other",
    Cause.UNKNOWN: "none of the known causes: capture at the other end, too",
}

_MANY = 10  # Nagle's algorithm is the first to look at where it held data in one exchange of so many
_WORTH_NAMING = 0.05  # share of all idle time
_MOST = 3


def idle_gaps(result: Result) -> list[tuple[str, str]]:
    """Rows that say where the time went, by cause, the longest in all first, and what to do where it is no stall."""
    causes = _by_time(result)
    if [cause for cause, *_ in causes] == [Cause.NAGLE_DELAYED_ACK]:
        return []  # the stalls, of which all else tells
    rows = [("" if row else "idle gaps", _gaps(*found)) for row, found in enumerate(causes)]
    if not result.stalls:
        rows += [("next", step) for step in _next(result, [cause for cause, *_ in causes])]
    return rows


def _next(result: Result, causes: list[Cause]) -> Iterator[str]:
    """What to do about the first cause that something can be done about."""
    if _MANY * result.summary.round_trips.count > result.summary.exchanges:
        yield f"{CAUSES[Cause.NAGLE_ROUND_TRIP]}: {_STEPS[Cause.NAGLE_ROUND_TRIP]}"
    elif causes:
        first = next((cause for cause in causes if cause is not Cause.ROUND_TRIP), causes[0])
        yield f"{CAUSES[first]}: {_STEPS[first]}"
    elif result.summary.exchanges:
        yield "there is no idle gap of 20 ms or more: if it is slow all the same, the wait is on another connection"


def _by_time(result: Result) -> list[tuple[Cause, Silence, float]]:
    """The causes that are worth naming, each with its share of all idle time."""
    total = sum(gaps.total_ms for gaps in result.silences.values())
    most_first = sorted(result.silences.items(), key=lambda item: -item[1].total_ms)
    shares = [(cause, gaps, gaps.total_ms / total) for cause, gaps in most_first if total]
    return [found for found in shares if found[2] >= _WORTH_NAMING][:_MOST]


def _gaps(cause: Cause, gaps: Silence, share: float) -> str:
    return f"{gaps.count:,} × {CAUSES[cause]}: {_duration(gaps.total_ms)}, {share:.0%} of all idle time"


def _duration(ms: float) -> str:
    return f"{ms / 1e3:,.2f} s" if ms >= 1000 else f"{ms:.0f} ms"


def commands(result: Result, software: Setting | None) -> list[tuple[str, list[str]]]:
    """What to do about the stalls, and the lines to paste for it; none without a stall."""
    s = result.summary
    if not s.held_ends or not s.delayed_ends:
        return []
    held, delayed = s.held_ends[0], s.delayed_ends[0]
    if software:
        setting = (f"TCP_NODELAY in {software.software}, which the capture shows there", [software.setting])
    else:
        width = max(len(each.software) for each in COMMON)
        setting = (
            "The capture does not show which software that is. TCP_NODELAY in some",
            [f"{each.software:{width}}  {each.setting}" for each in COMMON],
        )
    return [
        (f"Which program holds? On {held.ip}, as root", [_find(held, delayed)]),
        setting,
        (f"Or let {delayed.ip} acknowledge at once what {held.ip} sends: there, as root", _quick_acks(held)),
    ]


def _find(held: NamedEnd, delayed: NamedEnd) -> str:
    """The command that names the process at the held end."""
    if held.role == "server" and held.port is not None:
        return f"ss -tlnp 'sport = :{held.port}'"
    if delayed.port is not None:
        return f"ss -tnp dst {_bracketed(delayed.ip)}:{delayed.port}"
    return f"ss -tnp dst {_bracketed(delayed.ip)}"


def _quick_acks(held: NamedEnd) -> list[str]:
    """The command that gives the route to the held end the option ``quickack`` (ip-route(8)), and its undoing."""
    address = ipaddress.ip_address(held.ip)
    ip = "ip" if address.version == 4 else "ip -6"
    if address.is_loopback:
        change = f"{ip} route change local {held.ip} dev lo table local proto kernel scope host src {held.ip}"
        return [f"{change} quickack 1", f"{change}   # undoes it"]
    way = f"$({ip} route get {held.ip} | sed -n '1s/^[^ ]* \\(.*\\) src .*/\\1/p')"
    return [f"{ip} route add {held.ip} {way} quickack 1", f"{ip} route del {held.ip}   # undoes it"]


def _bracketed(ip: str) -> str:
    return f"[{ip}]" if ":" in ip else ip
