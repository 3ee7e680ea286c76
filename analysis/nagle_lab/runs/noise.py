"""The machine's own noise in a run, and when it makes the run's verdict unsafe.

How late the machine wakes a sleeper is measured beside the load, and decides. How long handshakes took is in the
captures: the shortest is the path's round trip, the others are only stated.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nagle_lab.capture import open_capture
from nagle_lab.diagnosis.result import Connection
from nagle_lab.diagnosis.silences import Cause
from nagle_lab.diagnosis.stalls import LATE, MS, POPULATION
from nagle_lab.diagnosis.verdict import ENOUGH_EXCHANGES, Verdict
from nagle_lab.packet import Tally, decode
from nagle_lab.runs.checks import Check
from nagle_lab.runs.judged import Seen
from nagle_lab.tcp.columns import ACK, SYN, Ints
from nagle_lab.tcp.loops import endpoint_hash

# A machine late by less than the proof allows for (stalls.LATE) has no part in a verdict: no ACK seems late that was
# only on its way, and where an end pauses as long as an ACK timer, which is twice that, the pause is its own.
LATE_MS = LATE / MS

# Silences that are no pause of an end: the stall itself, and what the path takes.
_EXPLAINED = (Cause.NAGLE_DELAYED_ACK, Cause.NAGLE_ROUND_TRIP, Cause.ROUND_TRIP)


@dataclass(frozen=True)
class Timers:
    """How late the machine woke a sleeper during the load, µs."""

    p50: float
    p99: float
    max: float


@dataclass(frozen=True)
class Handshakes:
    """From SYN to the ACK of the SYN/ACK, on the judged connections of one capture whose SYN was sent once, µs."""

    min: float
    p50: float
    max: float


@dataclass(frozen=True)
class Noise:
    """The noise of one run; None where it was not measured, or no handshake was captured."""

    timer_late_us: Timers | None
    handshake_us: Handshakes | None

    @property
    def late_ms(self) -> float:
        """The longest that the machine's timers were late; 0 where that was not measured."""
        return self.timer_late_us.max / 1e3 if self.timer_late_us else 0.0

    @property
    def is_late(self) -> bool:
        """Whether the machine was so late that pauses and late ACKs may be its doing."""
        return self.late_ms >= LATE_MS

    def __str__(self) -> str:
        timers, handshakes, said = self.timer_late_us, self.handshake_us, []
        if timers:
            said.append(f"timers {_ms(timers.p50)} ms late (p99 {_ms(timers.p99)}, max {_ms(timers.max)})")
        if handshakes:
            said.append(f"handshake {_ms(handshakes.p50)} ms (max {_ms(handshakes.max)})")
        return ", ".join(said) or "not measured"


def _ms(us: float) -> str:
    return f"{us / 1e3:.3g}"


def measured(witnesses: dict[str, Any], capture: Path, seen: Seen) -> Noise:
    """The noise of a run: from its witnesses, and from the handshakes in that capture of it."""
    timers = witnesses.get("timers")  # runs recorded before it was measured have none
    judged = [c for c in seen.connections if c.handshake and seen.port in (None, c.server.port)]
    late = Timers(*(timers[f"{which}_us"] for which in ("p50", "p99", "max"))) if timers else None
    return Noise(late, _handshakes(capture, judged) if judged else None)


def _handshakes(capture: Path, connections: Sequence[Connection]) -> Handshakes | None:
    """How long those handshakes took: each from the connection's first packet, the SYN, to its client's first ACK.

    Without those whose SYN was sent again: they took a retransmission timeout.
    """
    way, frame, ts, flags = _columns(capture)
    kind = flags & np.uint16(SYN | ACK)
    begins = np.isin(frame, [c.first_frame for c in connections]) & (kind == SYN)
    kept = np.flatnonzero((kind == SYN) | (kind == ACK))
    kept = kept[np.argsort(way[kept], kind="stable")]  # of one client to one server, in order
    same_way = way[kept][:-1] == way[kept][1:]
    next_one = np.flatnonzero(begins[kept][:-1] & same_way & (kind[kept][1:] == ACK))
    if not len(next_one):
        return None
    took = (ts[kept[next_one + 1]] - ts[kept[next_one]]) / 1e3
    shown = np.percentile(took, [0, 50, 100], method="inverted_cdf")  # by nearest rank, as everywhere
    return Handshakes(*(round(float(us), 1) for us in shown))


def _columns(capture: Path) -> tuple[NDArray[np.uint64], Ints, Ints, NDArray[np.uint16]]:
    """Of every TCP packet of a capture: which sender to which receiver (a hash), frame, time in ns, flags; (n,)."""
    with open_capture(capture, sha256=False) as records:
        packets = [decode(batch, Tally()) for batch in records]
    columns = [
        (
            endpoint_hash(p.src_hi, p.src_lo, p.sport) + np.uint64(3) * endpoint_hash(p.dst_hi, p.dst_lo, p.dport),
            p.frame,
            p.ts,
            p.flags,
        )
        for p in packets
    ]
    way, frame, ts, flags = (np.concatenate(column) for column in zip(*columns, strict=True))
    return way, frame, ts, flags


def check(noise: Noise, seen: Seen, verdict: Verdict, expected: dict[str, Any]) -> Check | None:
    """Whether noise leaves the verdict safe; None where the machine's timers were not measured.

    ``seen`` is the capture to show. Only a machine measured late makes one unsafe. What it takes away are stalls: an
    exchange in which an end pauses as long as an ACK timer has none, and tells nothing. A stall is proved by its
    frames, whatever the machine did meanwhile. The exception: where CLEAN is expected, fewer than :data:`POPULATION`
    stalls are unsafe.
    """
    if noise.timer_late_us is None:
        return None
    unsafe = _unsafe(noise, seen, verdict, expected)
    detail = f"{unsafe} ({noise})" if unsafe else str(noise)
    return Check("noise", not unsafe, detail, Verdict.INCONCLUSIVE)


def _unsafe(noise: Noise, seen: Seen, verdict: Verdict, expected: dict[str, Any]) -> str:
    """Why the verdict is unsafe; empty: it is safe."""
    if not noise.is_late:
        return ""
    mine, wanted = seen.judged, expected.get("min_share_after_first") or 0.0
    if verdict is Verdict.CLEAN and (told := _undisturbed(noise, seen)) < ENOUGH_EXCHANGES:
        return f"{told} exchanges without a pause of {LATE_MS:g} ms, but {ENOUGH_EXCHANGES} are needed to say CLEAN"
    if verdict is not Verdict.STALL:
        return ""
    if expected["verdict"] == Verdict.CLEAN and mine.stalls < POPULATION:
        # Fewer are judged one by one: an ACK so long on its way, or a pause that ends behind one, can pass for it.
        return f"{mine.stalls} stalls where none is expected, on a machine that was {noise.late_ms:.0f} ms late"
    if (share := mine.stalled_after_first) < wanted:
        told = mine.stalled_exchanges + _undisturbed(noise, seen)
        if told and wanted <= mine.stalled_exchanges / told:
            paused = mine.repeat_exchanges - told
            return f"only {share:.1%} stalled, but in {paused} exchanges an end paused for {LATE_MS:g} ms"
    return ""


def _undisturbed(noise: Noise, seen: Seen) -> int:
    """At least so many judged exchanges did not stall although no end paused; first ones only if there are no others.

    A pause as long as the ACK timer takes the stall away: of the server between its writes (the ACK is out before
    there is anything to hold), or of the client before it asks (Linux acknowledges at once what comes after that: the
    connection is no longer interactive, tcp_event_data_sent). A connection's first exchange never stalls.
    """
    mine = seen.judged
    pauses = sum(silence.count for cause, silence in seen.result.silences.items() if cause not in _EXPLAINED)
    unstalled = mine.repeat_exchanges - mine.stalled_exchanges if mine.repeat_exchanges else mine.exchanges
    if not pauses:  # spares a busy run the look at every exchange
        return unstalled
    first, repeated = _quick(noise, seen)
    return max(repeated if mine.repeat_exchanges else first, unstalled - pauses)


def _quick(noise: Noise, seen: Seen) -> tuple[int, int]:
    """Judged exchanges without a stall, too quick for a pause: first ones of a connection, and later ones.

    The capture's silences are also those of connections that are not judged; this tells the judged ones apart.
    """
    # Nagle's algorithm alone costs a second round trip, and is no stall.
    longest = LATE_MS + 2 * (noise.handshake_us.min / 1e3 if noise.handshake_us else 0.0)
    judged, ended = {c.id for c in seen.connections if seen.port in (None, c.server.port)}, dict[int, float]()
    counts = [0, 0]
    assert seen.result.exchanges is not None, "a run's are listed"
    for exchange in sorted(seen.result.exchanges, key=lambda e: (e.connection, e.exchange)):
        if exchange.connection not in judged or exchange.exchange_ms is None:
            continue
        asked_ms = exchange.asked_s * 1e3
        waited = asked_ms - ended.get(exchange.connection, asked_ms)
        ended[exchange.connection] = asked_ms + exchange.exchange_ms
        if not exchange.stalled and exchange.exchange_ms < longest and waited < longest:
            counts[exchange.exchange > 1] += 1
    return counts[0], counts[1]
