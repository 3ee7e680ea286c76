"""Where captures of tests are kept: in the requested folder, or, if that has no room, beside the recording."""

import re
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path

from nagle_lab.cli.pytest_plugin.recording import read, remove, write


class KeptCaptures:
    """A folder of captures.

    Attributes
    ----------
    problem : why some captures are not in it, and where they are; empty if all are
    """

    def __init__(self, folder: Path, recorded_in: Path) -> None:
        self._folder, self._recorded_in = folder, recorded_in
        self.problem = ""

    def keep(self, capture: Path, name: str = "") -> Path | None:
        """Move a capture into the folder, under a free name; returns its new path, None if it cannot be kept."""
        name = name or capture.name
        try:
            return _moved(capture, self._folder, name)
        except OSError as error:
            problem = f"{self._folder}: {error.strerror}"
        try:
            to = _linked(capture, self._recorded_in, name)
        except OSError:
            self.problem = f"{problem}: some captures could not be kept"
            return None
        if self._folder != self._recorded_in:
            self.problem = f"{problem}: captures that could not be kept there are in {self._recorded_in}"
        return to


def file_name(nodeid: str) -> str:
    """A test's node id as the name of a file."""
    return re.sub(r"[^\w.-]+", "_", nodeid.replace("/", "-"))[-150:].strip("_.-") or "test"


def _free_names(folder: Path, name: str) -> Iterator[Path]:
    """A path in a folder, and alternatives if it exists."""
    yield folder / name
    for number in count(2):
        yield folder / f"{name.removesuffix('.pcapng')}-{number}.pcapng"


def _linked(capture: Path, folder: Path, name: str) -> Path:
    """Move a file within its file system, for which even a full disk has room."""
    for to in _free_names(folder, name):
        with suppress(FileExistsError):
            to.hardlink_to(capture)
            break
    remove(capture)
    return to


def _moved(capture: Path, folder: Path, name: str) -> Path:
    content = read(capture)  # it may be on another file system
    for to in _free_names(folder, name):
        try:
            write(to, content, "x")
            break
        except FileExistsError:
            continue
        except OSError:
            remove(to)
            raise
    remove(capture)
    return to
