"""--nagle-trace: a test that stalls runs once more, alone and under strace, so that its two writes can be named.

The verdict remains that of the run without strace. The same command line is started again, in a namespace inside this
one; an order in its environment says which test to run, and where its capture and its trace go.
"""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest

from nagle_lab.diagnosis.result.result import Result
from nagle_lab.errors import NagleLabError, last_line
from nagle_lab.experiments.software.guarded import Selection, judge_recording
from nagle_lab.experiments.writes.traced import NamedWrites, longest_s, no_writes, writes_of_traced
from nagle_lab.guard.tracing import hooking, strace_command
from nagle_lab.guard.tracing.calls import Trace
from nagle_lab.guard.tracing.strace_output import read_trace

ORDER = "NAGLE_LAB_AGAIN"  # the environment variable with the order, as JSON
_OUTPUT = "output.txt"
_MOST = 10  # tests traced per process: each repeats the session's start and collection
_AT_LEAST_S = 120.0  # time limit: the session's start and collection come on top of the test's time


class Order(msgspec.Struct, frozen=True):
    """The task of a pytest that was started to trace one test."""

    test: str  # its node id
    folder: str  # where the capture and the trace go
    stacks: bool  # whether with native stacks, and the hook of native code instead of the others
    limit_s: float


def order_of(text: str) -> Order:
    """The order in the environment."""
    return msgspec.json.decode(text, type=Order)


def ordered(text: str, command: list[str]) -> tuple[list[str], dict[str, str], float]:
    """The command under strace, its extra environment, and how many seconds it may take."""
    order = order_of(text)
    environment = {ORDER: text, **hooking.loading(os.environ, stacks=order.stacks)}
    file = Path(order.folder) / strace_command.CALLS
    return strace_command.traced(command, file, stacks=order.stacks), environment, order.limit_s


class Again:
    """Traces tests of this session; created before any test can change the environment or the folder."""

    def __init__(self, config: pytest.Config) -> None:
        self._command = _command_line(config)
        self._cwd = Path.cwd()
        own = ("PYTEST_XDIST", "PYTEST_CURRENT_TEST", "NAGLE_LAB_")
        self._environment = {name: value for name, value in os.environ.items() if not name.startswith(own)}
        self._count = 0

    def writes_of(self, test: str, first: Result, selection: Selection, folder: Path, took_s: float) -> NamedWrites:
        """Run a test again; ``first`` is its result without tracing, ``folder`` is made for this."""
        self._count += 1
        if self._count > _MOST:
            return NamedWrites(no_writes(first, f"{_MOST} tests of this session were traced, and no more are"))
        if why := strace_command.why_no_command():
            return NamedWrites(no_writes(first, why))
        limit_s = longest_s(took_s, _AT_LEAST_S)
        try:
            capture, trace = self._run(Order(test, str(folder / "hooks"), stacks=False, limit_s=limit_s))
            result = judge_recording(str(capture), "", selection, sha256=False)
            again = Order(test, str(folder / "stacks"), stacks=True, limit_s=limit_s)
            writes = writes_of_traced(first, capture, result, trace, lambda: (self._run(again)[1], ""))
        except NagleLabError as error:
            return NamedWrites(no_writes(first, f"the traced run failed: {error}"))
        return NamedWrites(writes, capture, result)

    def _run(self, order: Order) -> tuple[Path, Trace]:
        """Run the test under strace: its capture and its trace. Raises NagleLabError."""
        folder = Path(order.folder)
        try:
            folder.mkdir(parents=True)
            environment = {**self._environment, ORDER: msgspec.json.encode(order).decode()}
            with (folder / _OUTPUT).open("wb") as output:
                subprocess.run(
                    self._command, cwd=self._cwd, env=environment, stdin=subprocess.DEVNULL, stdout=output,
                    stderr=subprocess.STDOUT, check=False, timeout=order.limit_s + 60,
                )  # fmt: skip
            captures = [path for path in folder.glob("*.pcapng") if not path.name.startswith("session")]
            if len(captures) != 1:
                said = last_line((folder / _OUTPUT).read_text(errors="replace"), "it said nothing")
                raise NagleLabError(f"it recorded nothing ({said})")
            return captures[0], read_trace(folder / strace_command.CALLS)
        except subprocess.TimeoutExpired:
            raise NagleLabError(f"it did not end in {order.limit_s:.0f} s") from None
        except OSError as error:
            raise NagleLabError(f"{error.filename or folder}: {error.strerror}") from None


def _command_line(config: pytest.Config) -> list[str]:
    """The command line of this session, for one process: without pytest-xdist's workers."""
    from_main: Mapping[str, list[str]] = getattr(config, "workerinput", {})
    if argv := from_main.get("mainargv"):
        start = ["-m", "pytest"] if argv[0].endswith("__main__.py") else [argv[0]]
        command = [sys.executable, *start, *argv[1:]]
    else:
        command = [sys.executable, *sys.orig_argv[1:]]
    alone = ["-n0"] if from_main or config.pluginmanager.hasplugin("xdist") else []
    return [*command, *alone, *(["--no-cov"] if config.pluginmanager.hasplugin("_cov") else [])]
