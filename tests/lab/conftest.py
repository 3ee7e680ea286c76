"""Shared by the tests that record on Docker: labs side by side, but for those that need the machine to themselves."""

import fcntl
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import chain
from pathlib import Path
from typing import Any, TextIO

import pytest
from lab.recording import left_on_engine

from nagle_lab.errors import NagleLabError
from nagle_lab.lab.containers.docker import engine_version
from support.repository import REPOSITORY
from support.turns import by_turns, unit_of

LOCKS = REPOSITORY / ".cache"
QUIET_AT_ONCE = 3


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """First what is `alone` and what `builds`; then what waits and what computes, by turns; last what is `quiet`.

    The guard and the lab wait for most of their time, and the other tests compute: side by side they leave no
    processor idle. Four files that compute come before them, so that the test that is alone is over by then. What is
    marked `long` begins before the others of its kind, so that nothing of it is left over at the end.
    """
    units: dict[str, list[pytest.Item]] = {}
    for item in items:
        units.setdefault(unit_of(item.nodeid), []).append(item)
    kinds: dict[str, list[list[pytest.Item]]] = {
        kind: [] for kind in ("alone", "builds", "quiet", "guard", "lab", "computing")
    }
    for unit in units.values():
        folder = unit[0].path.parent.name
        kind = folder if folder in kinds else "computing"
        kinds[next((name for name in kinds if unit[0].get_closest_marker(name)), kind)].append(unit)
    for of_kind in kinds.values():
        of_kind.sort(key=lambda unit: (not unit[0].get_closest_marker("long"), -len(unit)))
    first, computing = kinds["computing"][:4], kinds["computing"][4:]
    both = by_turns(by_turns(kinds["guard"], kinds["lab"]), computing)
    items[:] = chain(*kinds["alone"], *kinds["builds"], *first, *both, *kinds["quiet"])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[Any]:
    """Let a test run when all that it may not run beside have ended.

    Workers of xdist ask this for every test, not only for those of this folder. Beside what is `alone` runs none of
    guard and lab but what `builds`, which measures nothing. What is `quiet` begins when every worker has come to such
    a test, or to its end; a few run at a time.
    """
    LOCKS.mkdir(exist_ok=True)
    if item.get_closest_marker("quiet"):
        OTHERS.close()
        with (LOCKS / "tests-others.lock").open("a") as others:
            fcntl.flock(others, fcntl.LOCK_EX)
        with one_of(QUIET_AT_ONCE):
            return (yield)
    OTHERS.enter()
    if item.path.parent.name not in ("lab", "guard") or item.get_closest_marker("builds"):
        return (yield)
    with (LOCKS / "tests-lab.lock").open("a") as lab:
        fcntl.flock(lab, fcntl.LOCK_EX if item.get_closest_marker("alone") else fcntl.LOCK_SH)
        return (yield)


def pytest_sessionfinish() -> None:
    OTHERS.close()


class Others:
    """A lock that each worker shares from its first test on until it comes to one that is `quiet`."""

    def __init__(self) -> None:
        self._file: TextIO | None = None

    def enter(self) -> None:
        if self._file is None:
            self._file = (LOCKS / "tests-others.lock").open("a")
            fcntl.flock(self._file, fcntl.LOCK_SH)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


OTHERS = Others()


@contextmanager
def one_of(places: int) -> Iterator[None]:
    """Have one of so many places, once there is one."""
    with ExitStack() as opened:
        files = [opened.enter_context((LOCKS / f"tests-quiet-{n}.lock").open("a")) for n in range(places)]
        while not any(map(taken, files)):
            time.sleep(0.1)
        yield


def taken(file: TextIO) -> bool:
    """Whether the lock is ours now."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@pytest.fixture(scope="session", autouse=True)
def docker_answers() -> str:
    """The engine's version; without an engine these tests fail, because what they promise was not seen."""
    try:
        return engine_version()
    except NagleLabError as error:
        pytest.fail(f"the lab's tests need Docker: {error}", pytrace=False)


@pytest.fixture(scope="session", autouse=True)
def quick_compose_v1(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Compose v1, where a run would use it, in half the time: it is asked for its version once.

    A Python program, it takes a third of a second of a processor to start, twice for each run, and half of that is to
    load the distutils of setuptools, where Python still has its own.
    """
    found, said = shutil.which("docker-compose"), ""
    quick = os.environ | {"SETUPTOOLS_USE_DISTUTILS": "stdlib"}
    if found and subprocess.run(["docker", "compose", "version"], capture_output=True, check=False).returncode != 0:
        asked = subprocess.run([found, "version", "--short"], env=quick, capture_output=True, text=True, check=False)
        said = asked.stdout.strip() if asked.returncode == 0 else ""
    with pytest.MonkeyPatch.context() as patched:
        if found and said:
            place = tmp_path_factory.mktemp("compose")
            (place / "docker-compose").write_text(
                f'#!/bin/sh\n[ "$*" != "version --short" ] || exec echo {said}\n'
                f'SETUPTOOLS_USE_DISTUTILS=stdlib exec {found} "$@"\n'
            )
            (place / "docker-compose").chmod(0o755)
            patched.setenv("PATH", f"{place}:{os.environ['PATH']}")
        yield


@pytest.fixture
def runs_dir(tmp_path: Path) -> Iterator[Path]:
    """A folder for run folders; the engine must hold nothing of theirs when the test is over."""
    yield tmp_path / "runs"
    assert left_on_engine(tmp_path / "runs") == []
