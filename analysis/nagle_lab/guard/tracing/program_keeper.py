"""Programs whose files may be gone before their lines are looked up: `go test` deletes the one that it builds."""

import os
import shutil
import threading
from contextlib import suppress
from pathlib import Path

from nagle_lab.host import children
from nagle_lab.host.proc import undeleted

_EVERY_S = 0.02  # half of the shortest hold
_MOST = 64


class ProgramKeeper(threading.Thread):
    """Opens the file of every program below this process that has a socket, from now on until it is stopped.

    An open file can still be read when its name is gone, and costs nothing.
    """

    def __init__(self) -> None:
        super().__init__(name="programs", daemon=True)
        self._ending = threading.Event()
        self._open: dict[str, int] = {}  # by path
        self.start()

    def run(self) -> None:
        """Look for programs at intervals."""
        while not self._ending.wait(_EVERY_S):
            for pid in children.descendants(os.getpid()):
                with suppress(OSError):  # it has ended, or is another user's
                    self._see(Path(f"/proc/{pid}"))

    def _see(self, process: Path) -> None:
        path = undeleted(str((process / "exe").readlink()))
        if path not in self._open and len(self._open) < _MOST and _has_socket(process):
            self._open[path] = os.open(process / "exe", os.O_RDONLY | os.O_CLOEXEC)

    def copy_gone(self, folder: Path) -> dict[str, str]:
        """Stop, and copy the files that are gone to an existing folder: the path that each had → its copy."""
        self._ending.set()
        self.join()
        copies = {}
        for number, (path, file) in enumerate(self._open.items()):
            with os.fdopen(file, "rb") as opened:
                copy = folder / str(number)
                if _is_copied_if_gone(Path(path), opened.fileno(), copy):
                    copies[path] = str(copy)
        return copies


def _has_socket(process: Path) -> bool:
    for file in (process / "fd").iterdir():
        with suppress(OSError):  # closed meanwhile
            if str(file.readlink()).startswith("socket:"):
                return True
    return False


def _is_copied_if_gone(path: Path, file: int, to: Path) -> bool:
    """Copy what is open, if its path is gone; False where it is not, or there is no room for a copy."""
    try:
        if path.exists():
            return False
        shutil.copyfile(f"/proc/self/fd/{file}", to)
    except OSError:
        to.unlink(missing_ok=True)
        return False
    return True
