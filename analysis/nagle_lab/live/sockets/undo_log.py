"""The sockets on which we set TCP_NODELAY: written down before the change, so that it can be undone later.

The file lasts until the next boot, as sockets do: /run/nagle-lab/nodelay.json for root, otherwise below
XDG_RUNTIME_DIR or the folder for temporary files.
"""

import fcntl
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from nagle_lab.capture.stored import write_whole
from nagle_lab.errors import NagleLabError, os_problem

FILE = "nodelay.json"
BOOT = Path("/proc/sys/kernel/random/boot_id")


class Entry(msgspec.Struct, frozen=True):
    """A socket as it was when TCP_NODELAY was set on it, or on its listener."""

    namespace: int  # inode of its network namespace
    cookie: int
    had: bool  # TCP_NODELAY was set before
    listens_on: int = 0  # its port; 0: it is a connection
    passes_on: bool = False  # connections it accepted before had no TCP_NODELAY, so later ones have it from us


class Changes(msgspec.Struct):
    """All sockets on which TCP_NODELAY was set by us."""

    boot: str
    entries: list[Entry] = []


def folder() -> Path:
    """The folder of the file; root's is the same for each of its sessions."""
    if os.geteuid() == 0:
        return Path("/run/nagle-lab")
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    return Path(runtime) / "nagle-lab" if runtime else Path(tempfile.gettempdir()) / f"nagle-lab-{os.geteuid()}"


@contextmanager
def changes(where: Path | None = None) -> Iterator[Changes]:
    """The list, to be changed within the block; it is locked meanwhile, and written at the end.

    Raises NagleLabError if it cannot be written.
    """
    where = where or folder()
    try:
        where.mkdir(mode=0o700, parents=True, exist_ok=True)
        if (found := where.stat()).st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o022:
            raise NagleLabError(f"{where}: others may write there: remove it, and run this again")
        lock = os.open(where / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise NagleLabError(
            f"{where}: {(error.strerror or '').lower()}: what is changed could not be undone; make it writable"
        ) from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        of_boot = _read(where / FILE)
        yield of_boot
        try:
            _write(of_boot, where / FILE)
        except OSError as error:
            raise os_problem(error) from error
    finally:
        os.close(lock)


def _read(file: Path) -> Changes:
    boot = BOOT.read_text().strip()
    try:
        read = msgspec.json.decode(file.read_bytes(), type=Changes)
    except (OSError, msgspec.MsgspecError):
        return Changes(boot)
    return read if read.boot == boot else Changes(boot)


def _write(of_boot: Changes, file: Path) -> None:
    if not of_boot.entries:
        file.unlink(missing_ok=True)
        return
    write_whole(file, msgspec.json.encode(of_boot))
