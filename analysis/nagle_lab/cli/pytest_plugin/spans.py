"""Which segments of a session belong to which test, and for which stalls no test failed."""

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass

from nagle_lab.cli.pytest_plugin.expected import ANY, STALL, ExpectedOfTest
from nagle_lab.diagnosis.result.result import Result, Stall
from nagle_lab.diagnosis.result.verdict import Verdict


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
