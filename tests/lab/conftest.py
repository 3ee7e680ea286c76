"""Shared by the tests that record on Docker."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from lab.recording import left_on_engine

from nagle_lab.errors import NagleLabError
from nagle_lab.lab.docker import engine_version


@pytest.fixture(scope="session", autouse=True)
def engine() -> str:
    """The engine's version; without an engine these tests fail, because what they promise was not seen."""
    try:
        return engine_version()
    except NagleLabError as error:
        pytest.exit(f"the lab's tests need Docker: {error}", returncode=2)


@pytest.fixture
def runs_dir(tmp_path: Path) -> Iterator[Path]:
    """A folder for run folders; the engine must hold nothing of theirs when the test is over."""
    yield tmp_path / "runs"
    assert left_on_engine(tmp_path / "runs") == []
