"""Shared by the tests that record on Docker: labs side by side, but for those that need the machine to themselves."""

import fcntl
import os
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from lab.recording import left_on_engine

from nagle_lab.errors import NagleLabError
from nagle_lab.lab.containers.docker import engine_version

LOCKS = Path(__file__).parents[2] / ".cache"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """First what takes long and leaves a processor to others; last what others would disturb.

    That is the one test that is `alone`, and the file that builds all images; then what computes, which is fast; of
    lab and guard the files that are `long`, so that none of them is left over at the end, then the others, those with
    most tests first; then the `quiet` ones.
    """
    order = ("alone", "builds", "", "long", "lab", "guard", "quiet")  # quiet ones wait for the lab's, not the guard's
    tests = Counter(item.path for item in items)

    def turn(item: pytest.Item) -> tuple[int, int]:
        module = item.getparent(pytest.Module)
        kind = next((name for name in order if name and module.get_closest_marker(name)), "")
        if not kind and item.path.parent.name in ("guard", "lab"):
            kind = item.path.parent.name
        return order.index(kind), -tests[item.path] if order.index(kind) > order.index("") else 0

    items.sort(key=turn)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[Any]:
    """Let a test run when all that it may not run beside have ended.

    Ordinary tests run beside each other, and so do `quiet` ones; `alone` runs beside none. Each kind has a lock that
    its tests share; `alone` holds both, and every test waits for the other kind's. What is marked `builds` measures
    nothing, and waits for nobody.
    """
    if item.get_closest_marker("builds"):
        return (yield)
    LOCKS.mkdir(exist_ok=True)
    kind = next((name for name in ("alone", "quiet") if item.get_closest_marker(name)), "")
    with (
        (LOCKS / "tests-turn.lock").open("a") as turn,
        (LOCKS / "tests-lab.lock").open("a") as others,
        (LOCKS / "tests-quiet.lock").open("a") as quiet,
    ):
        fcntl.flock(turn, fcntl.LOCK_EX)  # whoever waits is not overtaken
        fcntl.flock(others, fcntl.LOCK_EX if kind else fcntl.LOCK_SH)
        fcntl.flock(quiet, fcntl.LOCK_SH if kind == "quiet" else fcntl.LOCK_EX)
        if kind == "quiet":
            fcntl.flock(others, fcntl.LOCK_UN)
        if not kind:
            fcntl.flock(quiet, fcntl.LOCK_UN)
        fcntl.flock(turn, fcntl.LOCK_UN)
        return (yield)


@pytest.fixture(scope="session", autouse=True)
def engine() -> str:
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
