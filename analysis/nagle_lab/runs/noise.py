"""The machine's own noise in a run, and when it makes the run's verdict unsafe.

How late the machine wakes a sleeper is measured during the load, and decides. The captures show how long handshakes
took: the shortest is the path's round trip, the others are only reported.
"""

from dataclasses import dataclass

from nagle_lab.diagnosis.observed.enough import CONCLUSIVE
from nagle_lab.diagnosis.result.idle_gaps import Cause
from nagle_lab.diagnosis.result.spread import nearest_rank
from nagle_lab.diagnosis.result.verdict import ENOUGH_EXCHANGES, Verdict
from nagle_lab.runs.checks import Check
from nagle_lab.runs.manifest import Expected
from nagle_lab.runs.under_test import RunCapture
from nagle_lab.runs.witnesses import Lateness
from nagle_lab.tcp.events import DELAYED, MS

# A machine late by less than the proof allows for does not affect a verdict: no ACK seems late only because it was on
# its way, and if an end pauses as long as an ACK timer, which is twice that, the pause is its own.
DELAYED_MS = DELAYED / MS

# Idle gaps that are not pauses of an end: the stall itself, and the path's time.
_EXPLAINED = (Cause.NAGLE_DELAYED_ACK, Cause.NAGLE_ROUND_TRIP, Cause.ROUND_TRIP)


@dataclass(frozen=True)
class Timers:
    """How late the machine woke a sleeper during the load, µs."""

    p50: float
    p99: float
    max: float


@dataclass(frozen=True)
class Handshakes:
    """From SYN to the ACK of the SYN/ACK, µs, on a capture's connections under test whose SYN was sent once."""

    min: float
    p50: float
    max: float


@dataclass(frozen=True)
class Noise:
    """The noise of one run; None if it was not measured, or no handshake was captured."""

    timer_late_us: Timers | None
    handshake_us: Handshakes | None

    @property
    def late_ms(self) -> float:
        """The most that the machine's timers were late; 0 if that was not measured."""
        return self.timer_late_us.max / 1e3 if self.timer_late_us else 0.0

    @property
    def is_late(self) -> bool:
        """Whether the machine was so late that it may have caused pauses and late ACKs."""
        return self.late_ms >= DELAYED_MS

    @property
    def delays_programs(self) -> bool:
        """Whether programs may have paused, or read so late that their ACKs look delayed.

        A program that computes waits longer for a processor than the sleeper that measures: 40 ms were seen when that
        was 6.5 ms late.
        """
        return self.late_ms >= DELAYED_MS / 4

    def __str__(self) -> str:
        timers, handshakes, parts = self.timer_late_us, self.handshake_us, []
        if timers:
            parts.append(f"timers {_ms(timers.p50)} ms late (p99 {_ms(timers.p99)}, max {_ms(timers.max)})")
        if handshakes:
            parts.append(f"handshake {_ms(handshakes.p50)} ms (max {_ms(handshakes.max)})")
        return ", ".join(parts) or "not measured"


def _ms(us: float) -> str:
    return f"{us / 1e3:.3g}"


def measure_noise(timers: Lateness | None, capture: RunCapture) -> Noise:
    """The noise of a run: how late its ``timers`` were, and the handshakes in that capture of it."""
    late = Timers(timers.p50_us, timers.p99_us, timers.max_us) if timers else None
    took = sorted(c.handshake_us for c in capture.tested if c.handshake_us is not None)
    return Noise(late, Handshakes(took[0], nearest_rank(took, 50), took[-1]) if took else None)


def noise_check(noise: Noise, capture: RunCapture, verdict: Verdict, expected: Expected) -> Check | None:
    """Whether noise leaves the verdict safe; None where the machine's timers were not measured.

    ``capture`` is the one to show. Only a machine that was measured late makes a verdict unsafe. It can only hide
    stalls: an exchange in which an end pauses as long as an ACK timer does not stall, and proves nothing. A stall is
    proved by its frames, whatever the machine did meanwhile. The exception: where CLEAN is expected, fewer than
    :data:`CONCLUSIVE` stalls are unsafe.
    """
    if noise.timer_late_us is None:
        return None
    unsafe = _unsafe(noise, capture, verdict, expected)
    detail = f"{unsafe} ({noise})" if unsafe else str(noise)
    return Check("noise", not unsafe, detail, Verdict.INCONCLUSIVE)


def _unsafe(noise: Noise, capture: RunCapture, verdict: Verdict, expected: Expected) -> str:
    """Why the verdict is unsafe; empty: it is safe."""
    total, wanted = capture.under_test, expected.min_share_after_first or 0.0
    if verdict is Verdict.STALL and noise.delays_programs and (share := total.stalled_after_first) < wanted:
        conclusive = total.stalled_exchanges + _undisturbed(noise, capture)
        if conclusive and wanted <= total.stalled_exchanges / conclusive:
            paused = total.repeat_exchanges - conclusive
            return f"only {share:.1%} stalled, but in {paused} exchanges an end paused for {DELAYED_MS:g} ms"
    if not noise.is_late:
        return ""
    if verdict is Verdict.CLEAN and (count := _undisturbed(noise, capture)) < ENOUGH_EXCHANGES:
        return (
            f"{count} exchanges without a pause of {DELAYED_MS:g} ms, but {ENOUGH_EXCHANGES} are needed to say CLEAN"
        )
    if verdict is Verdict.STALL and expected.verdict == Verdict.CLEAN and total.stalls < CONCLUSIVE:
        # Fewer stalls are judged one by one: an ACK so long on its way, or a pause that ends after an ACK, can look
        # like one.
        return f"{total.stalls} stalls where none is expected, on a machine that was {noise.late_ms:.0f} ms late"
    return ""


def _undisturbed(noise: Noise, capture: RunCapture) -> int:
    """At least so many exchanges did not stall although no end paused; first ones count only if there are no others.

    A pause as long as the ACK timer takes the stall away: of the server between its writes (the ACK is out before
    there is anything to hold), or of the client before it asks (Linux acknowledges at once what comes after that: the
    connection is no longer interactive, tcp_event_data_sent). A connection's first exchange does not stall.
    """
    total = capture.under_test
    pauses = sum(idle_gap.count for cause, idle_gap in capture.result.idle_gaps.items() if cause not in _EXPLAINED)
    unstalled = total.repeat_exchanges - total.stalled_exchanges if total.repeat_exchanges else total.exchanges
    if not pauses:  # saves a large run the search through every exchange
        return unstalled
    first, repeated = _quick(noise, capture)
    return max(repeated if total.repeat_exchanges else first, unstalled - pauses)


def _quick(noise: Noise, capture: RunCapture) -> tuple[int, int]:
    """How many exchanges under test without a stall were too quick for a pause: a connection's first, and later ones.

    The capture's idle gaps include those of its other connections; this count does not.
    """
    # Nagle's algorithm alone costs a second round trip, and is no stall.
    longest = DELAYED_MS + 2 * (noise.handshake_us.min / 1e3 if noise.handshake_us else 0.0)
    tested, ended = {c.id for c in capture.tested}, dict[int, float]()
    counts = [0, 0]
    assert capture.result.exchanges is not None, "a run's are listed"
    for exchange in sorted(capture.result.exchanges, key=lambda e: (e.connection, e.exchange)):
        if exchange.connection not in tested or exchange.exchange_ms is None:
            continue
        asked_ms = exchange.asked_s * 1e3
        waited = asked_ms - ended.get(exchange.connection, asked_ms)
        ended[exchange.connection] = asked_ms + exchange.exchange_ms
        if not exchange.stalled and exchange.exchange_ms < longest and waited < longest:
            counts[exchange.exchange > 1] += 1
    return counts[0], counts[1]
