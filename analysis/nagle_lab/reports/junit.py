"""JUnit XML, as CI systems read it: a case per run or capture.

A failure is a verdict that contradicts the expectation, an error a run or file that is INVALID or unusable, and
skipped is INCONCLUSIVE, with its reason. The form satisfies the JUnit schema of Apache Ant's tasks (the strictest in
use) and Jenkins' junit-10; tests/support/junit.xsd states the same rules.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape, quoteattr

from nagle_lab.diagnosis.result import Result
from nagle_lab.errors import Exit, printable
from nagle_lab.runs.run import Run

if TYPE_CHECKING:  # a diagnosis needs no lab
    from nagle_lab.experiments.matrix import Matrix

NO_TIME = "1970-01-01T00:00:00"  # the schema demands a time; results of files must not depend on the clock
_KINDS = {Exit.CONTRADICTED: "failure", Exit.UNUSABLE: "error", Exit.INCONCLUSIVE: "skipped"}


@dataclass(frozen=True)
class Case:
    """One run or capture, and how it ended."""

    name: str
    code: Exit
    verdict: str  # or "error"
    reason: str  # why it is not as expected; else what was found
    took_s: float = 0.0


@dataclass(frozen=True)
class Suite:
    """Cases that belong together: a scenario, or the captures of one call."""

    name: str
    cases: Sequence[Case]
    started: str = ""  # ISO 8601
    properties: dict[str, str] = field(default_factory=dict)
    said: Sequence[str] = ()  # lines for system-out


def case_of_capture(result: Result, code: Exit, expected: str | None) -> Case:
    """A capture, held against ``expected`` or nothing."""
    against = f"expected {expected}, found {result.verdict}: " if code is Exit.CONTRADICTED else ""
    return Case(result.source.file, code, result.verdict, f"{against}{result.reason}")


def suite_of_run(run: Run, code: Exit, unlike: Sequence[str]) -> Suite:
    """A run, with what ran and what every witness said; ``unlike`` is how it differs from what was expected."""
    m = run.manifest
    reason = "; ".join([*unlike, run.reason])
    took = sum(m["timings_s"].values())
    said = [f"{'agrees' if check.ok else 'DISAGREES'}: {check.name}: {check.detail}" for check in run.checks]
    properties = {"run": run.folder.name, "expected": run.expected, **m["parameters"]}
    properties |= {f"version.{name}": str(value) for name, value in m["versions"].items() if value}
    return Suite(m["scenario"], [Case(m["variant"], code, run.verdict, reason, took)], m["started"], properties, said)


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
        suites.append(Suite(scenario.name, cases, str(matrix.about.get("started", ""))))
    return suites


def junit(suites: Iterable[Suite]) -> str:
    """The XML document; the same text for the same suites."""
    parts = ['<?xml version="1.0" encoding="UTF-8"?>\n<testsuites>\n']
    for number, suite in enumerate(suites):
        parts += _suite(suite, number)
    return "".join([*parts, "</testsuites>\n"])


def _suite(suite: Suite, number: int) -> Iterable[str]:
    kinds = [_KINDS.get(case.code) for case in suite.cases]
    counts = {name: kinds.count(kind) for name, kind in (("failures", "failure"), ("errors", "error"))}
    attributes = {
        "name": _token(suite.name),
        "package": "nagle-lab",
        "id": str(number),
        "timestamp": _time(suite.started),
        "hostname": "localhost",
        "tests": str(len(kinds)),
        **{name: str(count) for name, count in counts.items()},
        "skipped": str(kinds.count("skipped")),
        "time": _seconds(sum(case.took_s for case in suite.cases)),
    }
    yield f"  <testsuite{_attributes(attributes)}>\n    <properties>\n"
    for name, value in suite.properties.items():
        yield f"      <property{_attributes({'name': _token(name), 'value': value})}/>\n"
    yield "    </properties>\n"
    for case in suite.cases:
        yield from _case(case, suite)
    said = [*(f"{case.name}: {case.verdict}: {case.reason}" for case in suite.cases), *suite.said]
    lines = "\n".join(escape(printable(line)) for line in said)
    yield f"    <system-out>{lines}</system-out>\n    <system-err/>\n"
    yield "  </testsuite>\n"


def _case(case: Case, suite: Suite) -> Iterable[str]:
    attributes = {
        "name": _token(case.name),
        "classname": _token(f"nagle-lab.{suite.name}"),
        "time": _seconds(case.took_s),
    }
    kind = _KINDS.get(case.code)
    if kind is None:
        yield f"    <testcase{_attributes(attributes)}/>\n"
        return
    about = {"message": f"{case.verdict}: {case.reason}"}
    about |= {} if kind == "skipped" else {"type": case.verdict}
    yield f"    <testcase{_attributes(attributes)}>\n      <{kind}{_attributes(about)}/>\n    </testcase>\n"


def _attributes(values: dict[str, str]) -> str:
    return "".join(f" {name}={quoteattr(printable(value))}" for name, value in values.items())


def _token(text: str) -> str:
    """Spaces as xs:token has them; never empty."""
    return " ".join(text.split()) or "-"


def _time(started: str) -> str:
    """To the second, UTC without saying so, as the schema wants it."""
    return started[:19] if re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", started[:19]) else NO_TIME


def _seconds(value: float) -> str:
    return f"{value:.3f}"
