"""JUnit XML, as CI systems read it: a case per run or capture.

A failure is a verdict that contradicts the expectation, an error a run or file that is INVALID or unusable, or a
command that failed, and skipped is INCONCLUSIVE, with its reason. The form satisfies the JUnit schema of Apache Ant's
tasks (the strictest in use) and Jenkins' junit-10; tests/support/junit.xsd states the same rules.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from nagle_lab.errors import Exit, printable
from nagle_lab.reports.words.reported import ReportedCapture
from nagle_lab.reports.words.writes_text import pair_lines
from nagle_lab.runs.run import Run

if TYPE_CHECKING:  # a diagnosis needs no lab
    from nagle_lab.experiments.matrix import Matrix

NO_TIME = "1970-01-01T00:00:00"  # for a suite without a time: the schema requires one
_KINDS = {Exit.CONTRADICTED: "failure", Exit.UNUSABLE: "error", Exit.INCONCLUSIVE: "skipped"}


@dataclass(frozen=True)
class Case:
    """One run or capture, and how it ended."""

    name: str
    code: Exit
    verdict: str  # or "error"
    reason: str  # why it is not as expected, or the reason of its verdict
    took_s: float = 0.0
    failure: str = ""  # how the command that was guarded failed; empty where it did not

    @property
    def kind(self) -> str | None:
        """The element that says how it ended; None where it passed. What a command did not get to might stall."""
        return "error" if self.failure and self.code is not Exit.CONTRADICTED else _KINDS.get(self.code)

    @property
    def said(self) -> str:
        """The verdict and its reason, behind the failure of the command, which the reason may begin with."""
        reason = self.reason.removeprefix(f"{self.failure}; ")
        return "; ".join(filter(None, (self.failure, f"{self.verdict}: {reason}")))


@dataclass(frozen=True)
class Suite:
    """Cases that belong together: a scenario, the captures of one call, or what was guarded."""

    name: str
    cases: Sequence[Case]
    started: str = ""  # ISO 8601
    properties: dict[str, str] = field(default_factory=dict)
    output: Sequence[str] = ()  # lines for system-out


def case_of_capture(of: ReportedCapture) -> Case:
    """A capture, compared with what is expected of it; with the two writes of its stalls if they are known."""
    reason = f"{of.against}: {of.result.reason}" if of.against else of.result.reason
    if of.writes and of.writes.groups:
        reason += f". Writes: {' '.join(pair_lines(of.writes.groups[0]))}"
    return Case(of.name, of.code, of.result.verdict, reason, of.took_s, of.failure)


def suite_of_run(run: Run, code: Exit, contradictions: Sequence[str]) -> Suite:
    """A run, with what ran and how every witness compares; ``contradictions``: how it is not as expected."""
    m = run.manifest
    reason = "; ".join([*contradictions, run.reason])
    took = sum(m.timings_s.values())
    output = [f"{'agrees' if check.ok else 'DISAGREES'}: {check.name}: {check.detail}" for check in run.checks]
    properties = {"run": run.folder.name, "expected": run.expected, **m.parameters}
    properties |= {f"version.{name}": version for name, version in m.versions.stated().items()}
    return Suite(m.scenario, [Case(m.variant, code, run.verdict, reason, took)], m.started, properties, output)


def suites_of_matrix(matrix: "Matrix") -> list[Suite]:
    """A suite per scenario, and in it a case per run of a variant."""
    suites = []
    for scenario, rows in matrix.by_scenario():
        cases = [
            Case(
                f"{row.variant.name} #{number}" if matrix.repeat > 1 else row.variant.name,
                outcome.code,
                outcome.name,
                outcome.reason or "as expected",
            )
            for row in rows
            for number, outcome in enumerate(row.outcomes, 1)
        ]
        suites.append(Suite(scenario.name, cases, matrix.made.started))
    return suites


def junit(suites: Iterable[Suite]) -> str:
    """The XML document; the same text for the same suites."""
    root = Element("testsuites")
    for number, suite in enumerate(suites):
        _suite(root, suite, number)
    indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{tostring(root, encoding="unicode")}\n'


def _suite(root: Element, suite: Suite, number: int) -> None:
    kinds = [case.kind for case in suite.cases]
    into = _element(
        root,
        "testsuite",
        name=_token(suite.name),
        package="nagle-lab",
        id=number,
        timestamp=_time(suite.started),
        hostname="localhost",
        tests=len(kinds),
        failures=kinds.count("failure"),
        errors=kinds.count("error"),
        skipped=kinds.count("skipped"),
        time=f"{sum(case.took_s for case in suite.cases):.3f}",
    )
    properties = _element(into, "properties")
    for name, value in suite.properties.items():
        _element(properties, "property", name=_token(name), value=value)
    for case, kind in zip(suite.cases, kinds, strict=True):
        classname = _token(f"nagle-lab.{suite.name}")
        made = _element(into, "testcase", name=_token(case.name), classname=classname, time=f"{case.took_s:.3f}")
        if kind:
            is_of_command = kind == "error" and case.code is not Exit.UNUSABLE
            about = {} if kind == "skipped" else {"type": "command failed" if is_of_command else case.verdict}
            _element(made, kind, message=case.said, **about)
    output = [*(f"{case.name}: {case.said}" for case in suite.cases), *suite.output]
    _element(into, "system-out").text = "\n".join(map(printable, output))
    _element(into, "system-err")


def _element(parent: Element, tag: str, /, **attributes: object) -> Element:
    return SubElement(parent, tag, {name: printable(str(value)) for name, value in attributes.items()})


def _token(text: str) -> str:
    """Spaces as xs:token has them; never empty."""
    return " ".join(text.split()) or "-"


def _time(started: str) -> str:
    """A time to the second, in UTC but without a zone, as the schema requires."""
    return started[:19] if re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", started[:19]) else NO_TIME
