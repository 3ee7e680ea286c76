"""A capture cut into parts on request of what runs in the namespace: one for each test of a suite, say.

The request is a file name, as a line on a named pipe in the job's folder; the answer is a line on another: how many
segments were recorded and lost so far, and why the recording has ended, if it has.
"""

import os
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from nagle_lab.guard.recording.job import CAPTURE
from nagle_lab.guard.recording.recorder import Recorder

PARTS_VARIABLE = "NAGLE_LAB_PARTS"  # the environment variable that tells the command the job's folder
REQUESTS, ANSWERS = "requests", "answers"


class CutServer(threading.Thread):
    """Cuts the capture when asked to, until it is closed."""

    def __init__(self, recorder: Recorder, folder: Path) -> None:
        super().__init__(name="parts", daemon=True)
        self._recorder, self._folder = recorder, folder
        for name in (REQUESTS, ANSWERS):
            os.mkfifo(folder / name)
            (folder / name).chmod(0o666)  # the command may be another user's; the folder is closed to all others
        # Opened for both, so that neither open nor read ends when one who asked has ended.
        self._requests = os.open(folder / REQUESTS, os.O_RDWR)
        self._answers = os.open(folder / ANSWERS, os.O_RDWR)
        self.start()

    def run(self) -> None:
        """Answer each request when it is done."""
        recorder = self._recorder
        with os.fdopen(self._requests, "rb", buffering=0, closefd=False) as requests:
            for line in iter(requests.readline, b"\n"):
                recorder.cut(self._folder / line.decode().rstrip("\n"))
                os.write(self._answers, f"{recorder.captured} {recorder.dropped} {recorder.problem}\n".encode())

    def close(self) -> None:
        """Take no more requests."""
        with suppress(OSError):
            os.write(self._requests, b"\n")
        self.join(5)


@dataclass(frozen=True)
class RecordedPart:
    """A part of the recording, from one cut to the next."""

    path: Path
    captured: int  # TCP segments so far, in this part and those before
    dropped: int
    problem: str  # why nothing more is recorded; empty where something is


class CutClient:
    """Has the capture cut, from inside the namespace, by one thread at a time. Raises OSError.

    Both pipes are opened once: a test may put its own in place of what opens files.
    """

    def __init__(self, folder: Path) -> None:
        self._folder, self._number, self._name = folder, 0, CAPTURE
        self._requests = (folder / REQUESTS).open("wb", buffering=0)
        self._answers = (folder / ANSWERS).open("rb", buffering=0)

    def cut(self) -> RecordedPart:
        """End the part that is being recorded, and begin the next one."""
        self._number += 1
        done, self._name = self._folder / self._name, f"part-{self._number}.pcapng"
        self._requests.write(f"{self._name}\n".encode())
        captured, dropped, problem = self._answers.readline().decode().rstrip("\n").split(" ", 2)
        return RecordedPart(done, int(captured), int(dropped), problem)

    def close(self) -> None:
        """Cut no more."""
        self._requests.close()
        self._answers.close()
