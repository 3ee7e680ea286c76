"""The reason of a verdict, with what the summary adds to it: what else took time, and how much."""

from collections.abc import Mapping

from nagle_lab.diagnosis.observed.enough import REPEATED
from nagle_lab.diagnosis.proof.outcomes import Ground, Obstacle, Rejected
from nagle_lab.diagnosis.result.idle_gaps import CAUSES, Cause
from nagle_lab.diagnosis.result.result import CountAndTime, Result, Summary
from nagle_lab.diagnosis.result.spread import duration_text, times_text
from nagle_lab.diagnosis.result.verdict import Verdict
from nagle_lab.tcp.events import IDLE, MS

Obstacles = Mapping[Obstacle, int]  # undecided candidates, by reason
OPEN_SHARE = 0.1  # of the late ACKs


def reason_of(
    verdict: Verdict, reason: str, summary: Summary, idle_gaps: Mapping[Cause, CountAndTime], obstacles: Obstacles
) -> str:
    """The rule's reason, with what the summary adds to it."""
    if verdict is Verdict.STALL:
        return _stall_reason(summary) + _what_took_more(summary, idle_gaps, obstacles)
    held = summary.round_trip_holds.count
    if verdict is Verdict.CLEAN and held:
        return f"{reason}; but Nagle's algorithm held data for a round trip, {times_text(held)}"
    return reason + (_still_slow(summary, idle_gaps) if verdict is Verdict.CLEAN else "")


def _stall_reason(summary: Summary) -> str:
    assert summary.wait_ms
    held, delayed = summary.who_held, summary.who_delayed
    if summary.is_mutual:
        held, delayed = f"{held} each", "the other"
    late = f"; of these it was held for {summary.hold_ms} ms: it was written late" if _is_late(summary) else ""
    few = "; seen so seldom, it is likely, not certain: capture more exchanges" if _is_thin(summary) else ""
    exchanges = f"{summary.stalled_exchanges:,} of {summary.exchanges:,} exchanges"
    return stall_text(exchanges, held, delayed, summary.wait_ms.p50) + late + few


def stall_text(exchanges: str, held: str, delayed: str, wait_ms: float) -> str:
    """What stalled, in a sentence: which exchanges, the ends that held and delayed, and the median wait."""
    return (
        f"{exchanges} waited for a delayed ACK: {held} held a small segment until {delayed} acknowledged the one "
        f"before it, {wait_ms:.1f} ms later (median)"
    )


def _is_late(summary: Summary) -> bool:
    """Whether the one end that held wrote its data so late that it was held for less than half of the wait."""
    hold, wait = summary.hold_ms, summary.wait_ms
    return hold is not None and wait is not None and 2 * hold.high < wait.p50 and len(summary.held_ends) == 1


_OTHER_CAUSE = "but another cause took more time"

# A client may pause between exchanges as it likes, and nobody can shorten the path.
_NOT_BESIDE = (Cause.NAGLE_DELAYED_ACK, Cause.CLIENT_THINK, Cause.ROUND_TRIP)


def larger_cause(lost_ms: float, idle_gaps: Mapping[Cause, CountAndTime]) -> Cause | None:
    """What took more time than the stalls, which took ``lost_ms``; None if nothing did."""
    others = {cause: gaps.total_ms for cause, gaps in idle_gaps.items() if cause not in _NOT_BESIDE}
    largest = max(others, key=lambda cause: others[cause], default=None)
    return largest if largest and others[largest] > lost_ms else None


def may_have_waited(idle_gaps: Mapping[Cause, CountAndTime], obstacles: Obstacles) -> bool:
    """Whether data may have waited for many late ACKs without a proved stall, because many candidates are
    undecided.
    """
    late = idle_gaps.get(Cause.DELAYED_ACK)
    return late is not None and sum(obstacles.values()) > OPEN_SHARE * late.count


def data_may_have_waited(result: Result) -> bool:
    """Whether data may have waited for late ACKs without a proved stall."""
    unresolved = result.quality.unresolved
    is_unsure = result.verdict is Verdict.INCONCLUSIVE and bool(unresolved)
    return is_unsure or may_have_waited(result.idle_gaps, unresolved) or _was_path_slow_for_some(result)


def _was_path_slow_for_some(result: Result) -> bool:
    """Whether a part of what was released, away from the end that held, came too late to be counted: the path may
    have delayed it, or the program wrote it then.
    """
    summary, later = result.summary, result.quality.rejected.get(Rejected.LATER_RELEASE, 0)
    is_away = summary.captured_near not in (None, "both", summary.held_by)
    late = result.idle_gaps.get(Cause.DELAYED_ACK)
    return is_away and late is not None and OPEN_SHARE * late.count < later <= summary.stalls


def while_traced(reason: str) -> str:
    """The ``reason`` of a traced run: what took more time than the stalls may be strace itself."""
    return reason.replace(_OTHER_CAUSE, f"{_OTHER_CAUSE} while it was traced")


def _what_took_more(summary: Summary, idle_gaps: Mapping[Cause, CountAndTime], obstacles: Obstacles) -> str:
    cause = larger_cause(summary.lost_ms_total, idle_gaps)
    if not cause or summary.servers:  # a larger cause at one server would hide the stalls of another
        return ""
    times = f"{duration_text(idle_gaps[cause].total_ms)}, beside {duration_text(summary.lost_ms_total)} of the stalls"
    is_pause = cause is Cause.DELAYED_ACK and not summary.relays
    if is_pause and may_have_waited(idle_gaps, obstacles):
        return f"; whether data waited for other late ACKs, too ({times}), cannot be told of all of them"
    return f"; {_OTHER_CAUSE} ({times}): {CAUSES[cause]}"


def _still_slow(summary: Summary, idle_gaps: Mapping[Cause, CountAndTime]) -> str:
    """How long exchanges took that did not stall, if that is long and not only because of pauses or the path."""
    if not summary.exchange_ms or summary.exchange_ms.p50 < IDLE / MS or not larger_cause(0, idle_gaps):
        return ""
    return f"; not this stall, but they took {summary.exchange_ms.p50:.0f} ms each (median)"


def _is_thin(summary: Summary) -> bool:
    """Whether there are only one or two prompt releases."""
    return summary.grounds.keys() == {Ground.PROMPTNESS} and summary.stalls < REPEATED
