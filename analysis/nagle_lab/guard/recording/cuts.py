"""A capture cut into parts at the request of a program in the namespace, for example one part for each test of a
suite.

The request is a file name, as a line on a named pipe in the job's folder; the answer is a line on another: how many
segments were recorded and lost so far, and, if the recording has ended, why.
"""

import os
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from nagle_lab.guard.recording.job import CAPTURE
from nagle_lab.guard.recording.recorder import Recorder

PARTS_VARIABLE = "NAGLE_LAB_PARTS"  # the environment variable that names the job's folder to the command
REQUESTS, ANSWERS = "requests", "answers"


class CutServer(threading.Thread):
    """Cuts the capture when asked to, until it is closed."""

    def __init__(self, recorder: Recorder, folder: Path) -> None:
        super().__init__(name="parts", daemon=True)
        self._recorder, self._folder = recorder, folder
        for name in (REQUESTS, ANSWERS):
            os.mkfifo(folder / name)
            (folder / name).chmod(0o666)  # the command may run as another user; nobody else may enter the folder
        # Opened for reading and writing, so that neither open nor read ends when a client has ended.
        self._requests = os.open(folder / REQUESTS, os.O_RDWR)
        self._answers = os.open(folder / ANSWERS, os.O_RDWR)
        self.start()

    def run(self) -> None:
        """Answer each request after the cut."""
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
    captured: int  # TCP segments so far, in this part and all parts before
    dropped: int
    problem: str  # why recording has ended; empty if it continues


class CutClient:
    """Requests cuts of the capture from inside the namespace, in one thread at a time. Raises OSError.

    Both pipes are opened only once, because a test may replace the functions that open files.
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
