"""A test, or a part of it, judged on the connections that were opened in it."""

from dataclasses import dataclass, field, replace
from pathlib import Path

from nagle_lab.diagnosis.result.could_stall import Missing, what_is_missing
from nagle_lab.diagnosis.result.result import Result, Stall
from nagle_lab.diagnosis.result.verdict import Verdict
from nagle_lab.experiments.software.guarded import Selection, judge_recording


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
        reason = "this test opened no connection to judge; connections opened before it are judged with the session"
    return JudgedPart(result.verdict, reason, capture, result, missing)
