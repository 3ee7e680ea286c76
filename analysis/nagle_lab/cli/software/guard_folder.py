"""The folder of a recording under guard: one to keep, or one that goes away again."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nagle_lab.errors import NagleLabError
from nagle_lab.experiments.software.guarded import WITHOUT
from nagle_lab.experiments.writes.traced import STACKED, TRACED
from nagle_lab.guard.recording.job import CAPTURE, OUTCOME
from nagle_lab.guard.tracing.strace_attached import STACKS, THREADS, UNTRACED
from nagle_lab.guard.tracing.strace_command import CALLS

REPORT = "guard.json"
_RUNS = (WITHOUT, TRACED, STACKED)  # folders of further runs
_OURS = {CAPTURE, UNTRACED, OUTCOME, REPORT, STACKS, CALLS, THREADS, *_RUNS}


def recorded_in(keep: Path | None) -> list[Path]:
    """What a recording writes into the folder to keep, and reads there; of its report there is but one."""
    return [keep / name for name in sorted(_OURS - {REPORT})] if keep else []


@contextmanager
def recording_folder(keep: Path | None) -> Iterator[Path]:
    """The folder of a recording; whatever ends the block early, nothing stays of it that is not to be kept."""
    folder = _made(keep)
    try:
        yield folder
    except BaseException:
        forget(folder, keep)
        raise


def _made(keep: Path | None) -> Path:
    """Where the recording goes: a folder of its own, or the one to keep."""
    if keep is None:
        return Path(tempfile.mkdtemp(prefix="nagle-lab-guard-"))
    try:
        keep.mkdir(parents=True, exist_ok=True)
        if others := sorted(path.name for path in keep.iterdir() if path.name not in _OURS):
            raise NagleLabError(
                f"--keep {keep}: holds other files ({others[0]}): name a new folder, or an earlier recording's"
            )
    except OSError as error:
        raise NagleLabError(f"--keep {keep}: {(error.strerror or '').lower()}: name another folder") from None
    if not os.access(keep, os.W_OK | os.X_OK):
        raise NagleLabError(f"--keep {keep}: no permission to write there: name another folder")
    for name in _RUNS:
        shutil.rmtree(keep / name, ignore_errors=True)
    for name in _OURS.difference(_RUNS):
        (keep / name).unlink(missing_ok=True)
    return keep.resolve()


def forget(folder: Path, keep: Path | None) -> None:
    """Remove the folder of a recording, unless it is one to ``keep``."""
    if keep is None:
        shutil.rmtree(folder, ignore_errors=True)
