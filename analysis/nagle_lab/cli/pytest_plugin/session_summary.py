"""The verdicts of all tests, printed once: at the end, by the process that reports."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from nagle_lab.diagnosis.result.verdict import Verdict


@dataclass(frozen=True)
class Session:
    """The recording of one process that ran tests."""

    way: str
    segments: int
    dropped: int
    loss: str  # what is missing; empty if nothing is
    stalls: str = ""  # text about stalls for which no test failed; empty if there are none
    not_kept: str = ""  # why captures are not in the requested folder, and where they are


_INCONCLUSIVE = (
    "in these tests no stall was possible, or none can be proved; "
    "that fails only a test whose marker expects a verdict"
)


SINGLE_WRITES = "nagle.single_writes"  # the property of a test that passes because its marker has one_write=True


class SessionSummary:
    """Counts verdicts, and fails the session for stalls for which no test failed."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self.sessions: list[Session] = []
        self._verdicts: Counter[str] = Counter()
        self._inconclusive_failed = 0
        self._kept: set[Path] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count a test's verdict; a subtest, whose report has a ``context``, has none of its own."""
        if report.when == "call" and not hasattr(report, "context"):
            properties = dict(report.user_properties)
            verdict = str(properties.get("nagle.verdict", ""))
            self._verdicts[SINGLE_WRITES if SINGLE_WRITES in properties else verdict] += 1
            self._inconclusive_failed += report.failed and verdict == Verdict.INCONCLUSIVE

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Take a worker's recording. A killed worker has none; its test has failed because of that."""
        output = getattr(node, "workeroutput", None)
        if output is None:
            return
        nothing = Session("nowhere", 0, 0, f"worker {node.gateway.id} recorded nothing")
        self.sessions.append(Session(**output["nagle"]) if output.get("nagle") else nothing)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Report a stall that belongs to no test as a test of its own, so that it is counted and in every report."""
        for nodeid, text in self._failures():
            place = (nodeid.partition("::")[0], None, nodeid.partition("::")[2])
            report = pytest.TestReport(nodeid, place, {}, "failed", text, "call")
            session.testscollected += 1  # otherwise 101% of the tests would have run
            self._config.hook.pytest_runtest_logreport(report=report)
            self._verdicts[""] -= 1  # it is not a test
            if remembers := self._config.pluginmanager.getplugin("lfplugin"):
                remembers.lastfailed.pop(nodeid, None)  # nobody can run it again
            if session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
                session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(
        self, terminalreporter: "pytest.TerminalReporter", exitstatus: "int | pytest.ExitCode"
    ) -> None:  # fmt: skip
        """Print the summary, a section of its own; nothing if pytest was called wrongly and ran no test."""
        if exitstatus == pytest.ExitCode.USAGE_ERROR:
            return
        terminalreporter.section("nagle")
        if not self.sessions:
            terminalreporter.line("the workers stopped before they reported what they recorded")
            return
        ways = ", ".join(sorted({one.way for one in self.sessions}))
        segments, dropped = (sum(getattr(one, name) for one in self.sessions) for name in ("segments", "dropped"))
        places = f"{len(self.sessions)} namespaces, each " if len(self.sessions) > 1 else ""
        terminalreporter.line(f"ran in {places}{ways}; {segments:,} TCP segments recorded, {dropped:,} lost")
        counts = [f"{self._verdicts[verdict]} {verdict}" for verdict in Verdict if self._verdicts[verdict]]
        if self._verdicts[SINGLE_WRITES]:
            counts.append(f"{self._verdicts[SINGLE_WRITES]} in single writes, as marked")
        if self._verdicts[""] > 0:
            counts.append(f"{self._verdicts['']} without TCP")
        terminalreporter.line("tests: " + (", ".join(counts) or "none"))
        if self._verdicts[Verdict.INCONCLUSIVE]:
            terminalreporter.line(f"INCONCLUSIVE: {self._inconclusive_failed} failed; {_INCONCLUSIVE}")
        for problem in dict.fromkeys(one.not_kept for one in self.sessions if one.not_kept):
            terminalreporter.line(problem)

    def _failures(self) -> Iterator[tuple[str, str]]:
        for number, one in enumerate(self.sessions, 1):
            which = f"[{number}]" if len(self.sessions) > 1 else ""
            if one.loss:
                yield f"nagle::recording{which}", f"INVALID: {one.loss}"
            if one.stalls:
                yield f"nagle::session{which}", one.stalls
