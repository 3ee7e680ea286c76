"""pytest-xdist: each worker runs in a namespace of its own, and the process that hands out tests in none."""

import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from nagle_lab.cli.pytest_plugin.expected import options_of
from nagle_lab.cli.pytest_plugin.session_summary import SessionSummary
from nagle_lab.cli.pytest_plugin.start import folder_for_captures, forget, require_linux
from nagle_lab.errors import Exit, NagleLabError, last_line, printable, tell

_NO_RERUNS = (
    "--nagle: the workers of pytest-rerunfailures talk to the main process over TCP, which they cannot do from a "
    "namespace: add -p no:rerunfailures, or leave out -n"
)


def prepare(config: pytest.Config) -> int | None:
    """Let the workers start in namespaces; if that is not possible, says why and returns an exit code.

    Raises pytest.UsageError for wrong options, and for a plugin whose workers could not reach this process.
    """
    if config.pluginmanager.hasplugin("rerunfailures"):
        raise pytest.UsageError(_NO_RERUNS)
    try:
        require_linux()
        from nagle_lab.guard.recording.launchers import program  # noqa: PLC0415 - Linux only

        options_of(config)  # raises pytest.UsageError once, and not in each worker
        base = folder_for_captures()
    except NagleLabError as error:
        tell(f"--nagle: {error}")
        return error.exit_code
    stand_in = program("stand_in", str(base))
    done = subprocess.run([*stand_in, "true"], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if done.returncode:
        forget(base)
        said = last_line(done.stderr, f"it ended with {done.returncode}")
        print(f"nagle-lab: --nagle: {printable(said.removeprefix('nagle-lab: '))}", file=sys.stderr)
        return Exit.UNUSABLE
    config.pluginmanager.register(ControllerPlugin(stand_in, base), "nagle-lab-workers")
    config.pluginmanager.register(SessionSummary(config), "nagle-lab-summary")
    return None


class ControllerPlugin:
    """The plugin in pytest-xdist's controller, the process that hands out tests."""

    def __init__(self, stand_in: list[str], base: Path) -> None:
        self._stand_in, self._base = stand_in, base

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_setupnodes(self, specs: list[Any]) -> None:
        """Make execnet start each worker's interpreter through a program that puts it in a namespace."""
        for spec in specs:
            if not spec.popen:
                raise pytest.UsageError(f"--nagle: the worker {spec} is on another machine: leave out --nagle")
            interpreter = shlex.split(spec.python) if spec.python else [sys.executable]
            spec.python = shlex.join([*self._stand_in, *interpreter])

    @pytest.hookimpl(trylast=True)
    def pytest_unconfigure(self) -> None:
        """Remove everything except the kept captures."""
        forget(self._base)
