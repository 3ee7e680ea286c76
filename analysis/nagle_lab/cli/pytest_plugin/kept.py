"""Where captures of tests are kept: in the folder asked for, or, if that has no room, beside the recording."""

import re
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
        """Move a capture into the folder, under a name that is free: its new path; None where it cannot be kept."""
        name = name or capture.name
        try:
            return _moved(capture, self._folder, name)
        except OSError as error:
            self.problem = f"{self._folder}: {error.strerror}"
        with suppress(OSError):
            to = self._recorded_in / name
            capture.rename(to)  # a full disk has room for that
            self.problem += f": captures that could not be kept there are in {self._recorded_in}"
            return to
        return None


def file_name(nodeid: str) -> str:
    """A test's node id as the name of a file."""
    return re.sub(r"[^\w.-]+", "_", nodeid.replace("/", "-"))[-150:].strip("_.-") or "test"


def _moved(capture: Path, folder: Path, name: str) -> Path:
    content = read(capture)  # it may be on another file system
    stem = name.removesuffix(".pcapng")
    for number in count(1):
        to = folder / (name if number == 1 else f"{stem}-{number}.pcapng")
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
