"""In the namespace: each test is judged at its end, on the connections it opened; the session on all others."""

import os
import shutil
import time
from collections import Counter
from collections.abc import Generator
from dataclasses import asdict
from pathlib import Path
from typing import NoReturn

import pytest

from nagle_lab.cli.pytest_plugin import AGAIN, JUDGE
from nagle_lab.cli.pytest_plugin.again import Again, order_of
from nagle_lab.cli.pytest_plugin.expected import ExpectedOfTest, expected_of, options_of
from nagle_lab.cli.pytest_plugin.parts import JudgedPart, Span, Spans, judge_part
from nagle_lab.cli.pytest_plugin.recording import KeptCaptures, Moment, SessionCapture, file_name, remove
from nagle_lab.cli.pytest_plugin.session_summary import SINGLE_WRITES, Session, SessionSummary
from nagle_lab.diagnosis.result.could_stall import Missing
from nagle_lab.diagnosis.result.verdict import Verdict
from nagle_lab.errors import NagleLabError
from nagle_lab.experiments.software.guarded import Selection, judge_recording
from nagle_lab.experiments.writes.traced import NamedWrites, no_writes
from nagle_lab.reports.words.writes_text import pair_lines

_EXPECTED = pytest.StashKey[ExpectedOfTest]()
_NOTHING = "no TCP segment passed"


def register(config: pytest.Config, folder: str) -> None:
    """Judge this session, which is recorded in that folder. Raises pytest.UsageError."""
    judge_ = config.stash[JUDGE] = Judge(config, Path(folder))
    if not hasattr(config, "workerinput"):  # a worker's reporter is the process that hands out tests
        config.pluginmanager.register(SessionSummary(config), "nagle-lab-summary")
    config.pluginmanager.register(judge_, "nagle-lab-judge")  # after it: the last one registered is called first


class SoFar:
    """The fixture ``nagle``: judges this test's traffic so far."""

    def __init__(self, of: "Judge") -> None:
        self._judge = of

    def result(self) -> JudgedPart:
        """Judge this test's traffic until now."""
        return self._judge.now()


class Judge:
    """The plugin in the process that runs tests."""

    def __init__(self, config: pytest.Config, folder: Path) -> None:
        self._config, self._folder = config, folder
        self._options = options_of(config)
        self._keep_all = config.option.nagle_keep is not None
        # At the end only kept captures remain in the parent folder.
        kept = Path(config.option.nagle_keep).absolute() if self._keep_all else folder.parent
        self._again: Again | None = None
        self._only = ""  # the test for which this pytest was started
        if AGAIN:
            order = order_of(AGAIN)
            self._only, self._keep_all, kept = order.test, True, Path(order.folder)
        elif config.option.nagle_trace:
            self._again = Again(config)
        try:
            kept.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise pytest.UsageError(f"--nagle-keep {kept}: {error.strerror}: name another folder") from None
        self._kept = KeptCaptures(kept, folder.parent)
        self._recording = SessionCapture(folder)
        self._spans = Spans()
        self._begin, self._since = Moment(), time.monotonic()
        self._running: tuple[str, ExpectedOfTest] = ("", ExpectedOfTest("", False, self._options, False))

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Report wrong markers before any test has run; a worker reports them in their tests."""
        if self._only:
            items[:] = [item for item in items if item.nodeid == self._only]
        wrong = []
        if not hasattr(self._config, "workerinput"):
            for item in items:
                try:
                    item.stash[_EXPECTED] = expected_of(item, self._options)
                except pytest.UsageError as error:
                    wrong.append(str(error))
        if wrong:
            raise pytest.UsageError(*wrong)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, object, object]:
        """Begin a test: traffic since the previous test belongs to neither."""
        self._begin, self._since = self._recording.take(), time.monotonic()
        self._spans.add(Span(self._begin.segments))
        outcome = yield
        wrong = ""
        try:
            expected = item.stash.get(_EXPECTED, None) or expected_of(item, self._options)
            self._running = (item.nodeid, expected)
        except pytest.UsageError as error:
            wrong = str(error)
        if wrong:
            _fail(wrong)
        return outcome

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, object, object]:
        """Run a test, and judge it at its end, however it ends."""
        try:
            outcome = yield
        except (KeyboardInterrupt, SystemExit, pytest.exit.Exception):
            raise
        except BaseException as error:
            self._end(item, failed=not isinstance(error, pytest.skip.Exception))
            raise
        if text := self._end(item):
            _fail(text)
        return outcome

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        """Judge the connections on which no test was judged."""
        end, loss = self._recording.end()
        self._spans.add(Span(end.segments))
        left_over = self._left_over()
        session = Session(self._recording.way, end.segments, end.dropped, loss, left_over, self._kept.problem)
        summary = self._config.pluginmanager.getplugin("nagle-lab-summary")
        if summary:
            summary.sessions.append(session)
        else:
            self._config.workeroutput["nagle"] = asdict(session)  # type: ignore[attr-defined]

    def so_far(self) -> SoFar:
        """The fixture of the running test."""
        return SoFar(self)

    def now(self) -> JudgedPart:
        """Judge the running test up to now."""
        nodeid, expected = self._running
        return self._judge(nodeid, expected.selection, self._recording.take())

    def _judge(self, nodeid: str, selection: Selection, end: Moment) -> JudgedPart:
        begin = self._begin
        loss = self._recording.loss(begin, end)
        if begin.segments == end.segments:
            return JudgedPart(
                Verdict.INVALID if loss else Verdict.INCONCLUSIVE, loss or _NOTHING, missing=Missing.TRAFFIC
            )
        capture = self._folder / f"{file_name(nodeid)}.pcapng"
        try:
            self._recording.write(begin, end, capture)
            return judge_part(capture, loss, selection)
        except Exception as error:  # a test may have replaced anything that this uses
            return JudgedPart(Verdict.INVALID, f"the recording cannot be judged: {type(error).__name__}: {error}")

    def _end(self, item: pytest.Item, *, failed: bool = False) -> str:
        """Why a test fails because of its verdict; for one that has ``failed`` already, a section of its report."""
        (nodeid, expected), end = self._running, self._recording.take()
        judged = self._judge(nodeid, expected.selection, end)
        self._spans.add(Span(end.segments, nodeid, expected, judged.verdict))
        complaint = expected.complaint(judged.verdict, judged.reason, judged.result, judged.missing)
        _add_properties(item, judged, always=expected.marked or bool(complaint))
        if expected.allows(judged.verdict, judged.result, judged.missing):
            item.user_properties.append((SINGLE_WRITES, "as marked"))
        path = None
        if judged.capture:
            path = self._keep(judged.capture, bool(complaint) or failed)
        if not complaint and not (failed and path):
            return ""
        named = self._named(nodeid, expected.selection, judged)
        if named and named.writes.groups:
            item.user_properties.append(("nagle.writes", " ".join(pair_lines(named.writes.groups[0]))))
        from nagle_lab.reports.screens.guarded_test import shown_test  # noqa: PLC0415 - rich, and only of failures

        said = complaint or f"{judged.verdict}: {judged.reason}"
        text = shown_test(said, judged.result, path, named=named)
        if failed:
            item.add_report_section("call", "nagle", text)
        return text

    def _named(self, nodeid: str, selection: Selection, judged: JudgedPart) -> NamedWrites | None:
        """The two writes of a test that stalled, from a separate run."""
        if not self._again or judged.verdict is not Verdict.STALL or not judged.result:
            return None
        folder = self._folder / f"traced-{file_name(nodeid)}"
        took_s = time.monotonic() - self._since
        try:
            found = self._again.writes_of(nodeid, judged.result, selection, folder, took_s)
            if not found.capture or not found.result:
                return NamedWrites(found.writes)
            name = f"{found.capture.name.removesuffix('.pcapng')}-traced.pcapng"
            return NamedWrites(found.writes, self._kept.keep(found.capture, name), found.result)
        except Exception as error:  # a test may have replaced anything that this uses
            return NamedWrites(no_writes(judged.result, f"it cannot be traced: {type(error).__name__}: {error}"))
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _keep(self, capture: Path, for_evidence: bool) -> Path | None:
        """Keep a test's capture; returns its new path, None if it is not kept."""
        if not for_evidence and not self._keep_all:
            remove(capture)
            return None
        return self._kept.keep(capture)

    def _left_over(self) -> str:
        """What to say about stalls for which no test failed, after their capture is kept; empty if there are none."""
        capture = self._recording.file
        if not self._spans:
            return ""
        try:
            result = judge_recording(capture, "", self._options, sha256=False)
            found = list(self._spans.uncovered(result))
            if not found:
                if self._keep_all:
                    self._kept.keep(capture, self._session_name())
                return ""
            only = Selection(only=frozenset(result.connections[stall.connection].ends for _, stall in found))
            alone = judge_recording(capture, "", only, sha256=False)
            kept = self._kept.keep(capture, self._session_name())
        except (NagleLabError, OSError) as error:
            return f"INVALID: the session's recording cannot be judged: {error}"
        from nagle_lab.reports.screens.guarded_test import shown_test  # noqa: PLC0415 - rich, and only of failures

        tests = Counter(f"in {test}" if test else "between tests" for test, _ in found)
        where = [f"{stalls} {test}" for test, stalls in tests.most_common(_MOST_NAMED)]
        more = [f"and in {len(tests) - _MOST_NAMED} more"] if len(tests) > _MOST_NAMED else []
        said = (
            f"STALL on connections that outlived the test that opened them, or too rare in any one test to prove: "
            f"{alone.reason}"
        )
        return shown_test(said, alone, kept, about=[("stalls", ", ".join([*where, *more]))])

    def _session_name(self) -> str:
        return "-".join(["session", *filter(None, [os.environ.get("PYTEST_XDIST_WORKER", "")])]) + ".pcapng"


_MOST_NAMED = 10


def _add_properties(item: pytest.Item, judged: JudgedPart, *, always: bool) -> None:
    """Add properties for its reports, used by JUnit XML and the summary; without traffic only if that matters."""
    item.user_properties[:] = [one for one in item.user_properties if not one[0].startswith("nagle.")]  # run again
    if judged.capture or always:
        item.user_properties += [
            ("nagle.verdict", str(judged.verdict)),
            ("nagle.reason", judged.reason),
            ("nagle.exchanges", judged.exchanges),
            ("nagle.stalled", judged.stalled),
        ]


def _fail(text: str) -> NoReturn:
    __tracebackhide__ = True
    pytest.fail(text, pytrace=False)
