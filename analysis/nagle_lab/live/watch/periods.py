"""A diagnosis for weeks: an analysis ends before it grows too large, its sums are kept, and a new one begins."""

import time
from collections import deque
from dataclasses import dataclass, field

from nagle_lab.capture import kernel_answers
from nagle_lab.diagnosis.analysis import Analysis
from nagle_lab.diagnosis.result.result import Result
from nagle_lab.diagnosis.result.spread import duration_text
from nagle_lab.diagnosis.result.verdict import ENOUGH_EXCHANGES, MOST_UNRESOLVED, Verdict

LONGEST_S = 3600.0
MOST_CONNECTIONS = 100_000
MOST_ROWS = 4_000_000  # in the tables of an analysis
ENOUGH_ANSWERS = kernel_answers.MOST * 3 // 4  # answers of the kernel; leaves room for one more window
LISTED = 200  # periods; of earlier ones only the sums are kept


@dataclass(frozen=True)
class Period:
    """What is kept of an ended period."""

    began: str  # UTC, of its first packet
    verdict: Verdict
    exchanges: int
    stalled: int
    lost_ms: float


@dataclass
class PeriodSums:
    """The sums of all ended periods."""

    listed: deque[Period] = field(default_factory=lambda: deque(maxlen=LISTED))  # the latest ones
    worst: Result | None = None  # of the period that lost most time to stalls; without stalls, of the latest
    verdicts: dict[Verdict, int] = field(default_factory=lambda: dict.fromkeys(Verdict, 0))  # how many have each
    reasons: dict[Verdict, str] = field(default_factory=dict)  # of the latest period with each verdict
    packets: int = 0
    exchanges: int = 0
    unjudged: int = 0  # exchanges of INCONCLUSIVE periods
    stalled: int = 0
    stalls: int = 0
    lost_ms: float = 0.0

    def add(self, result: Result) -> None:
        """Count an ended period."""
        source, s = result.source, result.summary
        if not source.tcp_packets and self.periods:
            return  # nothing happened
        self.listed.append(
            Period(source.first_time or "", result.verdict, s.exchanges, s.stalled_exchanges, s.lost_ms_total)
        )
        if not self.worst or s.lost_ms_total >= self.worst.summary.lost_ms_total:
            self.worst = result
        self.verdicts[result.verdict] += 1
        self.reasons[result.verdict] = result.reason
        self.packets += source.packets
        self.exchanges += s.exchanges
        self.unjudged += s.exchanges if result.verdict is Verdict.INCONCLUSIVE else 0
        self.stalled += s.stalled_exchanges
        self.stalls += s.stalls
        self.lost_ms += s.lost_ms_total

    @property
    def periods(self) -> int:
        """How many periods there were."""
        return sum(self.verdicts.values())

    def verdict(self) -> tuple[Verdict, str]:
        """The verdict on all periods, CLEAN only if nearly all exchanges were judged; of a single period its own."""
        count, of = self.verdicts, f"of {self.periods} periods"
        if self.periods == 1 and self.worst:
            return self.worst.verdict, self.worst.reason
        if count[Verdict.STALL]:
            return Verdict.STALL, (
                f"{self.stalled:,} of {self.exchanges:,} exchanges waited for a delayed ACK, in "
                f"{count[Verdict.STALL]} {of}: {duration_text(self.lost_ms)} in all"
            )
        if count[Verdict.INVALID]:
            only = count[Verdict.INVALID] == self.periods
            return (
                Verdict.INVALID if only else Verdict.INCONCLUSIVE,
                f"{count[Verdict.INVALID]} {of} cannot be judged: {self.reasons[Verdict.INVALID]}",
            )
        are_few = self.exchanges < ENOUGH_EXCHANGES  # streams without answers have none
        if count[Verdict.INCONCLUSIVE] and (are_few or self.unjudged > MOST_UNRESOLVED * self.exchanges):
            reason = self.reasons[Verdict.INCONCLUSIVE]
            return Verdict.INCONCLUSIVE, f"{count[Verdict.INCONCLUSIVE]} {of} are inconclusive: {reason}"
        if are_few:
            return Verdict.CLEAN, f"none {of} has a stall; of the latest: {self.reasons[Verdict.CLEAN]}"
        return Verdict.CLEAN, f"{self.exchanges:,} answered exchanges in {self.periods} periods, none stalled"


class Periods:
    """Ends the periods of an analysis when they are due."""

    def __init__(self, seconds: float = LONGEST_S) -> None:
        self.sums = PeriodSums()
        self._seconds = seconds
        self._began = time.monotonic()

    def end_if_due(self, analysis: Analysis) -> bool:
        """End the period if it has grown too large or too long; returns whether it ended. Call it between two
        windows.
        """
        is_large = (
            analysis.rows > MOST_ROWS
            or analysis.connections > MOST_CONNECTIONS
            or analysis.kernel_answer_count > ENOUGH_ANSWERS
        )
        if not is_large and time.monotonic() - self._began < self._seconds:
            return False
        self.sums.add(analysis.end_period())
        self._began = time.monotonic()
        return True
