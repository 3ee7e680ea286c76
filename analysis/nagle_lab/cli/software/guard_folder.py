"""The folder of a guarded recording: a folder to keep, or a temporary one."""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from nagle_lab.errors import NagleLabError, disk_full, tell
from nagle_lab.experiments.software.guarded import WITHOUT
from nagle_lab.experiments.writes.traced import STACKED, TRACED
from nagle_lab.guard.recording.job import CAPTURE, JOB, OUTCOME, PART, READY, REQUEST, RESERVE, TEMPORARY
from nagle_lab.guard.tracing.strace_attached import STACKS, THREADS, UNTRACED
from nagle_lab.guard.tracing.strace_command import CALLS

REPORT = "guard.json"
_EARLIER = "earlier"  # folder of the previous recording, until there is a new one
_HEADERS = 256  # bytes of a capture without packets, at most
_RECORDED = {CAPTURE, UNTRACED, OUTCOME, REPORT, STACKS, CALLS, THREADS, WITHOUT, TRACED, STACKED}
# Files that a killed run may have left
_LEFT = {JOB, REQUEST, READY, RESERVE, *(Path(name).with_suffix(PART).name for name in (JOB, REQUEST, OUTCOME))}


def recorded_in(keep: Path | None) -> list[Path]:
    """The files that a recording writes to the kept folder and reads there, without its report."""
    return [keep / name for name in sorted((_RECORDED | _LEFT) - {REPORT})] if keep else []


@dataclass
class RecordingFolder:
    """The folder of a recording; an earlier one in it is set aside until there is a new one."""

    path: Path
    is_named: bool  # by the user, to keep it
    is_wanted: bool = False  # the recording is kept, even if it cannot be shown

    @property
    def has_packets(self) -> bool:
        """Whether the capture contains more than headers."""
        capture = self.path / CAPTURE
        return capture.exists() and capture.stat().st_size > _HEADERS

    def keep(self) -> None:
        """Keep the recording, replacing an earlier one."""
        shutil.rmtree(self.path / _EARLIER, ignore_errors=True)

    def forget(self) -> None:
        """Remove the recording; in a named folder, put an earlier recording back."""
        if not self.is_named:
            shutil.rmtree(self.path, ignore_errors=True)
            return
        _remove(self.path, _RECORDED | _LEFT)
        if (self.path / _EARLIER).is_dir():
            for path in (self.path / _EARLIER).iterdir():
                path.rename(self.path / path.name)
            (self.path / _EARLIER).rmdir()


@contextmanager
def recording_folder(keep: Path | None) -> Iterator[RecordingFolder]:
    """The folder of a recording; if the block ends early for any reason, only a wanted recording stays.

    In a named folder, packets also stay, with the previous recording beside them.
    """
    with _locked(keep) if keep else nullcontext():
        folder = _named(keep) if keep else RecordingFolder(Path(tempfile.mkdtemp(prefix=f"{TEMPORARY}guard-")), False)
        try:
            yield folder
        except BaseException:
            if folder.is_wanted:
                folder.keep()
                tell(f"the capture is {folder.path / CAPTURE}")
            elif folder.is_named and folder.has_packets:
                tell(f"what was recorded until then is {folder.path / CAPTURE}")
            else:
                folder.forget()
            raise


@contextmanager
def _locked(keep: Path) -> Iterator[None]:
    """Make the folder to keep, and lock it: a second run would put its capture where this one reads its own."""
    try:
        keep.mkdir(parents=True, exist_ok=True)
        folder = os.open(keep, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise _refused(keep, error) from None
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(folder)
        problem = "another guard is recording there: wait until it has ended, or name another folder"
        raise NagleLabError(f"--keep {keep}: {problem}") from None
    except OSError:  # a file system that locks no folders, such as NFS
        pass
    try:
        yield
    finally:
        os.close(folder)


def _refused(keep: Path, error: OSError) -> NagleLabError:
    problem = disk_full(error, "the recording", keep) or f"{(error.strerror or '').lower()}: name another folder"
    return NagleLabError(f"--keep {keep}: {problem}")


def _named(keep: Path) -> RecordingFolder:
    """The folder to keep, in which an earlier recording is set aside."""
    try:
        there = sorted(path.name for path in keep.iterdir())
    except OSError as error:
        raise _refused(keep, error) from None
    if others := [name for name in there if name not in _RECORDED | _LEFT | {_EARLIER}]:
        raise NagleLabError(
            f"--keep {keep}: holds other files ({others[0]}): name a new folder, or an earlier recording's"
        )
    if not os.access(keep, os.W_OK | os.X_OK):
        raise NagleLabError(f"--keep {keep}: no permission to write there: name another folder")
    _remove(keep, _LEFT)
    if _EARLIER in there:  # the later run was killed
        _remove(keep, _RECORDED)
    elif recorded := _RECORDED.intersection(there):
        (keep / _EARLIER).mkdir()
        for name in recorded:
            (keep / name).rename(keep / _EARLIER / name)
    return RecordingFolder(keep.resolve(), is_named=True)


def _remove(folder: Path, names: set[str]) -> None:
    for name in names:
        if (folder / name).is_dir():
            shutil.rmtree(folder / name, ignore_errors=True)
        else:
            (folder / name).unlink(missing_ok=True)
