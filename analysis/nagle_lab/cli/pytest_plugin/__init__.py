"""The pytest plugin: ``pytest --nagle`` puts each test under the proof.

Without --nagle only this module is imported: options, the marker's line, the fixture. With --nagle, pytest starts
itself again in a network namespace (start.py), where each test is judged (judge.py) on the connections that it
opened, and the session on all others (parts.py); the workers of pytest-xdist get a namespace each (xdist.py). With
--nagle-trace a test that stalls runs once more (again.py). The summary comes at the end (session_summary.py).
"""

import argparse
import os
from collections.abc import Generator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from nagle_lab.cli.pytest_plugin.judge import Judge, SoFar  # noqa: F401 - in quotes below

# Where this pytest is recorded; empty if it is not. Removed for programs that a test starts, maybe another pytest.
PARTS = os.environ.pop("NAGLE_LAB_PARTS", "")  # nagle_lab.guard.recording.cuts.PARTS_VARIABLE, without importing it
# The test that this pytest must run, traced: again.py. Also removed for others.
AGAIN = os.environ.pop("NAGLE_LAB_AGAIN", "")
JUDGE = pytest.StashKey["Judge"]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options that begin with --nagle."""
    group = parser.getgroup("nagle-lab", "TCP's Nagle × delayed-ACK stall")
    group.addoption(
        "--nagle",
        action="store_true",
        help="run in a network namespace, record each test's TCP, and fail those that stall",
    )
    group.addoption(
        "--nagle-trace",
        action="store_true",
        help="run each test that stalls once more, under strace, and name its two writes",
    )
    group.addoption(
        "--nagle-keep",
        metavar="DIR",
        type=_folder,
        help="keep every test's capture in DIR (default: only those of failures)",
    )
    group.addoption(
        "--nagle-port",
        metavar="PORT",
        type=int,
        action="append",
        default=[],
        help="judge only connections to this port",
    )
    group.addoption(
        "--nagle-allow",
        metavar="ADDRESS:PORT",
        action="append",
        default=[],
        help="ignore this server; :PORT means any address",
    )


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> Generator[None, object, object]:
    """Start pytest again in a namespace before any plugin has begun anything, unless its workers will do that."""
    options = early_config.known_args_namespace
    if _needs_namespace(options) and not (getattr(options, "numprocesses", None) or getattr(options, "tx", None)):
        from nagle_lab.cli.pytest_plugin.start import start_again  # noqa: PLC0415 - only with --nagle

        start_again(options.nagle_keep)
    return (yield)


def pytest_cmdline_main(config: pytest.Config) -> int | None:
    """Let pytest-xdist's workers start in namespaces of their own; this process is in none."""
    if not _needs_namespace(config.option):
        return None
    if config.getoption("dist", "no") != "no" and config.getoption("tx", None):
        from nagle_lab.cli.pytest_plugin import xdist  # noqa: PLC0415 - only with --nagle

        return xdist.prepare(config)
    from nagle_lab.cli.pytest_plugin.start import start_again  # noqa: PLC0415 - only with --nagle

    config.pluginmanager.getplugin("capturemanager").suspend_global_capture(in_=True)
    start_again(config.option.nagle_keep)
    return None


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Register the marker, also without --nagle."""
    _require_nagle(config)
    if AGAIN:
        config.option.xmlpath = None  # that file is the session's
    config.addinivalue_line(
        "markers",
        'nagle(expect=, one_write=, port=, ports=, allow=): with --nagle, what is expected of the test ("clean", '
        '"stall" or "any"), and of which of its connections. See docs/pytest.md of nagle-lab.',
    )
    if PARTS and config.option.nagle:
        from nagle_lab.cli.pytest_plugin.judge import register  # noqa: PLC0415 - only with --nagle

        register(config, PARTS)


@pytest.fixture
def nagle(request: pytest.FixtureRequest) -> "SoFar":
    """What passed so far in this test, judged: ``nagle.result()``. Without --nagle the test is skipped."""
    judge = request.config.stash.get(JUDGE, None)
    if judge is None:
        pytest.skip("the fixture nagle needs pytest --nagle")
    return judge.so_far()


def _folder(name: str) -> str:
    if not name:  # of a variable that is not set: it would be the working directory
        raise argparse.ArgumentTypeError("the name is empty: name a folder")
    return name


def _require_nagle(config: pytest.Config) -> None:
    """Refuse options without --nagle, which do nothing; in a configuration file they wait for a run with it."""
    given = (word.partition("=")[0] for word in config.invocation_params.args)
    alone = [word for word in given if word.startswith("--nagle-")]
    if alone and not config.option.nagle:
        raise pytest.UsageError(f"{alone[0]} does nothing without --nagle: add --nagle, or leave out {alone[0]}")


def _needs_namespace(options: object) -> bool:
    not_run = any(getattr(options, name, False) for name in ("help", "version", "collectonly"))
    return bool(getattr(options, "nagle", False)) and not PARTS and not not_run
