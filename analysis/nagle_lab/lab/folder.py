"""A run's folder: hidden and locked during the run, then renamed according to its outcome.

``.<name>.lock`` is held locked (flock) by the run, ``.<name>.partial`` is being written, ``<name>`` is a complete
run, ``<name>.failed`` holds what a failed run recorded.
"""

import errno
import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Self

from nagle_lab.errors import NagleLabError, disk_full

_PCAP_HEADER_BYTES = 24
_RESERVE = ".reserve"
_RESERVE_BYTES = 1 << 16  # room for the manifest of a run that filled the disk


class RunFolder:
    """The folder of a live run; ``path`` is where its files currently are."""

    def __init__(self, runs_dir: Path, what: str, name: str, lock: IO[str]) -> None:
        self._runs_dir, self._what, self._name, self._lock = runs_dir, what, name, lock
        self.lock_path = _hidden(runs_dir, name, "lock")
        self.path = _hidden(runs_dir, name, "partial")

    @classmethod
    def create(cls, runs_dir: Path, what: str) -> Self:
        """A new folder for a run of ``what``; NagleLabError if ``runs_dir`` cannot be written to."""
        try:
            runs_dir.mkdir(parents=True, exist_ok=True)
            folder = cls._new(runs_dir, what)
            try:
                with (folder.path / _RESERVE).open("wb") as reserve:
                    os.posix_fallocate(reserve.fileno(), 0, _RESERVE_BYTES)
            except OSError:
                folder.discard()
                raise
        except OSError as error:
            raise disk_problem(error, "the run folder", runs_dir) from error
        return folder

    @classmethod
    def _new(cls, runs_dir: Path, what: str) -> Self:
        while True:
            now = datetime.now(UTC)
            name = f"{now:%Y%m%dT%H%M%S}.{now.microsecond // 1000:03}Z-{what}"
            if (runs_dir / name).exists() or (runs_dir / f"{name}.failed").exists():
                continue  # a run that began and ended within this millisecond
            with suppress(FileExistsError):  # two runs in one millisecond
                folder = cls(runs_dir, what, name, _new_lock(_hidden(runs_dir, name, "lock")))
                folder.path.mkdir()
                return folder

    def free_reserve(self) -> None:
        """Give back the space held for the manifest."""
        (self.path / _RESERVE).unlink(missing_ok=True)

    def complete(self) -> Path:
        """Give the folder its final name, point ``latest-…`` at it if links are possible, and return it."""
        self.free_reserve()
        self.path = self.path.rename(self._runs_dir / self._name)
        new, latest = _hidden(self._runs_dir, self._name, "latest"), self._runs_dir / f"latest-{self._what}"
        try:
            new.symlink_to(self._name, target_is_directory=True)
            new.replace(latest)
        except OSError:  # then there is no link: an older run is not the latest
            for link in (new, latest):
                with suppress(OSError):
                    link.unlink()
        self._unlock()
        return self.path

    def fail(self) -> Path:
        """Keep the folder as that of a failed run, and return it."""
        self.path = self.path.rename(self._runs_dir / f"{self._name}.failed")
        self._unlock()
        return self.path

    def discard(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self.path)
        self._unlock()

    def _unlock(self) -> None:
        self.lock_path.unlink(missing_ok=True)
        self._lock.close()


def disk_problem(error: OSError, what: str, runs_dir: Path) -> NagleLabError:
    """The error that says why ``what`` cannot be written under ``runs_dir``."""
    if full := disk_full(error, what, runs_dir):
        return NagleLabError(full)
    to_do = "name another folder with --runs"
    if error.errno in (errno.EACCES, errno.EPERM):
        to_do = f"give your account write access, or {to_do}"
    return NagleLabError(f"cannot write {what} in {runs_dir}: {(error.strerror or str(error)).lower()}: {to_do}")


def require_runs_folder(runs_dir: Path) -> None:
    """Raise NagleLabError unless run folders can be made there: checked once before several runs, not in each."""
    try:
        runs_dir.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=".", dir=runs_dir):
            pass
    except OSError as error:
        raise disk_problem(error, "run folders", runs_dir) from error


def anything_recorded(folder: Path) -> bool:
    """Whether a capture in the folder holds more than its file header."""
    return any(capture.stat().st_size > _PCAP_HEADER_BYTES for capture in folder.glob("*.pcap"))


@contextmanager
def claimed(lock_path: Path) -> Iterator[bool]:
    """Yield whether the run with the lock ``lock_path`` is over; several processes may find so at once and clean up
    together.

    A lock that we may not open counts as held.
    """
    with ExitStack() as stack:
        try:
            fcntl.flock(stack.enter_context(lock_path.open()), fcntl.LOCK_SH | fcntl.LOCK_NB)
        except FileNotFoundError:
            pass
        except OSError:
            yield False
            return
        yield True


def clean_up_abandoned(runs_dir: Path) -> None:
    """Clean up after killed runs: a partial folder is kept as failed if anything was recorded in it.

    Everything else is removed: empty partial folders, half-written files, links not yet in place, locks. What another
    user left stays, if we may not remove it.
    """
    for lock_path in runs_dir.glob(".*.lock"):
        name = lock_path.stem.removeprefix(".")
        with claimed(lock_path) as over, suppress(FileNotFoundError, PermissionError):
            if not over:
                continue
            _hidden(runs_dir, name, "latest").unlink(missing_ok=True)
            partial = _hidden(runs_dir, name, "partial")
            if anything_recorded(partial):
                for file in (partial / _RESERVE, *partial.glob(".*.part")):
                    file.unlink(missing_ok=True)
                partial.rename(runs_dir / f"{name}.failed")
            elif partial.exists():  # otherwise the run was killed before making it, or after giving it its final name
                shutil.rmtree(partial)
            lock_path.unlink()


def _hidden(runs_dir: Path, name: str, kind: str) -> Path:
    return runs_dir / f".{name}.{kind}"


def _new_lock(path: Path) -> IO[str]:
    """Create and lock that file; FileExistsError if another run has it, or swept it away before it was locked."""
    lock = path.open("x")
    fcntl.flock(lock, fcntl.LOCK_EX)
    if not path.exists():
        lock.close()
        raise FileExistsError(path)
    return lock
