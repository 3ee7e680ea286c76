"""The result of a run: ``result.json`` and ``--json`` (docs/result.md). Its JSON Schema follows from these types."""

from typing import Literal, Self

from nagle_lab.diagnosis.result.result import Quality, Source, Summary
from nagle_lab.diagnosis.result.verdict import Verdict
from nagle_lab.diagnosis.result.writes import Writes
from nagle_lab.runs.checks import Check
from nagle_lab.runs.manifest import Expected, ServerRecord
from nagle_lab.runs.noise import Noise
from nagle_lab.runs.record import StrictRecord
from nagle_lab.runs.under_test import RunCapture, Totals
from nagle_lab.runs.witnesses import Load

RESULT = "result.json"
SCHEMA: Literal["nagle-lab-run/1"] = "nagle-lab-run/1"


class CaptureResult(StrictRecord):
    """The whole capture, and the sums over its connections under test and over the others."""

    source: Source
    quality: Quality
    verdict: Verdict
    reason: str
    summary: Summary
    under_test: Totals
    others: Totals

    @classmethod
    def of(cls, capture: RunCapture) -> Self:
        """The part of the result about one capture."""
        r = capture.result
        return cls(r.source, r.quality, r.verdict, r.reason, r.summary, capture.under_test, capture.others)


class RunResult(StrictRecord, omit_defaults=True):
    """What one run of the lab shows."""

    schema: Literal["nagle-lab-run/1"]
    scenario: str
    variant: str
    lab: str  # which of the scenario's labs it ran in
    server: ServerRecord
    parameters: dict[str, str]
    expected: Expected
    verdict: Verdict
    reason: str
    as_expected: bool
    contradictions: list[str]
    noise: Noise
    checks: list[Check]
    load: Load
    captures: dict[str, CaptureResult]
    writes: Writes | None = None  # the two writes of each stall in a traced run; otherwise absent
