"""Shared by the tests that record on Docker: labs side by side, but for those that need the machine to themselves."""

import fcntl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from lab.recording import left_on_engine

from nagle_lab.errors import NagleLabError
from nagle_lab.lab.containers.docker import engine_version

LOCKS = Path(__file__).parents[2] / ".cache"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files whose tests all run alone come last: they do not keep others waiting."""
    items.sort(key=lambda item: item.getparent(pytest.Module).get_closest_marker("alone") is not None)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[Any]:
    """Keep all workers off the lab while a test marked `alone` runs, with its fixtures; others share the lab."""
    LOCKS.mkdir(exist_ok=True)
    with (LOCKS / "tests-turn.lock").open("a") as turn, (LOCKS / "tests-lab.lock").open("a") as lab:
        fcntl.flock(turn, fcntl.LOCK_EX)  # whoever waits to be alone is not overtaken
        fcntl.flock(lab, fcntl.LOCK_EX if item.get_closest_marker("alone") else fcntl.LOCK_SH)
        fcntl.flock(turn, fcntl.LOCK_UN)
        return (yield)


@pytest.fixture(scope="session", autouse=True)
def engine() -> str:
    """The engine's version; without an engine these tests fail, because what they promise was not seen."""
    try:
        return engine_version()
    except NagleLabError as error:
        pytest.fail(f"the lab's tests need Docker: {error}", pytrace=False)


@pytest.fixture
def runs_dir(tmp_path: Path) -> Iterator[Path]:
    """A folder for run folders; the engine must hold nothing of theirs when the test is over."""
    yield tmp_path / "runs"
    assert left_on_engine(tmp_path / "runs") == []
