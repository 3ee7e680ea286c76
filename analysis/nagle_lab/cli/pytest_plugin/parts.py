"""The parts of a session: tests, each judged on the connections opened in it, and stalls for which none failed."""

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from nagle_lab.cli.pytest_plugin.expected import ANY, STALL, ExpectedOfTest
from nagle_lab.diagnosis.result.could_stall import Missing, what_is_missing
from nagle_lab.diagnosis.result.result import Result, Stall
from nagle_lab.diagnosis.result.verdict import Verdict
from nagle_lab.experiments.software.guarded import Selection, judge_recording

_NONE_OPENED = (
    "this test opened no connection to judge; those opened before it, maybe by a fixture of its class or of the "
    "session, are judged with the session: give the test one of its own"
)


@dataclass(frozen=True)
class JudgedPart:
    """A test, or a part of it, judged: what the fixture's ``result()`` returns."""

    verdict: Verdict
    reason: str
    capture: Path | None = None  # None: no traffic
    result: Result | None = None  # as from nagle_lab.analyze, on the connections judged
    missing: Missing | None = field(default=None, repr=False)

    @property
    def exchanges(self) -> int:
        """How many requests were answered."""
        return self.result.summary.exchanges if self.result else 0

    @property
    def stalled(self) -> int:
        """How many of these exchanges waited for a delayed ACK."""
        return self.result.summary.stalled_exchanges if self.result else 0

    @property
    def stalls(self) -> list[Stall]:
        """Every stall, with its frames in the capture."""
        return list(self.result.stalls) if self.result else []

    def ladder(self) -> str:
        """The ladder of a typical stall as text; empty if there is none."""
        from nagle_lab.reports.screens.guarded_test import shown_ladder  # noqa: PLC0415 - rich, and only of stalls

        return shown_ladder(self.result, self.capture) if self.result and self.capture else ""


def judge_part(capture: Path, loss: str, selection: Selection) -> JudgedPart:
    """A test's capture, on the connections that were opened in it."""
    name = str(capture)  # a test's own file system has its own Paths
    result = judge_recording(name, loss, selection, sha256=False)
    inherited = frozenset(one.ends for one in selection.of(result) if not one.handshake)
    if inherited:
        selection = replace(selection, without=inherited)
        result = judge_recording(name, loss, selection, sha256=False)
    missing = what_is_missing(result, selection.of(result))
    reason = result.reason
    if inherited and missing is Missing.CONNECTIONS and result.verdict is Verdict.INCONCLUSIVE:
        reason = _NONE_OPENED
    return JudgedPart(result.verdict, reason, capture, result, missing)


@dataclass(frozen=True)
class Span:
    """The segments after the previous span, up to ``end``: those of a test, or (``test`` is empty) between tests."""

    end: int
    test: str = ""
    expected: ExpectedOfTest | None = None
    verdict: Verdict | None = None


class Spans:
    """The spans of a session, one after the other."""

    def __init__(self) -> None:
        self._spans: list[Span] = []

    def __bool__(self) -> bool:
        return bool(self._spans)

    def add(self, span: Span) -> None:
        """Add the next span, unless it has no traffic."""
        if span.end > (self._spans[-1].end if self._spans else 0):
            self._spans.append(span)

    def uncovered(self, result: Result) -> Iterator[tuple[str, Stall]]:
        """The stalls for which no test failed and that no test allows, each with its test."""
        ends = [span.end for span in self._spans]
        for stall in result.stalls:
            connection = result.connections[stall.connection]
            span = self._spans[bisect_left(ends, stall.release_frame)]
            if span.expected is None:
                yield "", stall
                continue
            opened_here = self._spans[bisect_left(ends, connection.first_frame)] is span
            is_said = span.verdict is Verdict.STALL and opened_here and connection.handshake
            is_judged = span.expected.selection.wants(*connection.ends)
            if not is_said and is_judged and span.expected.expect not in (ANY, STALL):
                yield span.test, stall
