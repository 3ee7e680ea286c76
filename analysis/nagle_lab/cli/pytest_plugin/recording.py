"""The recording of the session, seen from inside: one file that grows part by part.

A test may have replaced open(), or use a fake file system (pyfakefs). Therefore files are opened as io.FileIO here
and in :mod:`nagle_lab.capture`, below all that.
"""

import io
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from nagle_lab.experiments.software.guarded import recording_gap
from nagle_lab.guard.recording.cuts import CutClient
from nagle_lab.guard.recording.job import CAPTURE, JOB, Job, Outcome, read_record
from nagle_lab.host.namespace import segments_sent

SESSION = "session.pcapng"
_SETTLE_S = 1.0  # for packets that were sent and have not arrived yet


@dataclass(frozen=True)
class Moment:
    """A moment of the recording: the counts up to it."""

    at: int = 0  # bytes in the file
    segments: int = 0
    dropped: int = 0


def recorded_so_far(folder: Path) -> list[Path]:
    """The files of a recording that was not ended, in order; together they are one capture."""
    return [path for path in (folder / SESSION, folder / CAPTURE, *folder.glob("part-*.pcapng")) if path.exists()]


class SessionCapture:
    """The session's capture file, with frames numbered as they came.

    Attributes
    ----------
    file : the whole recording up to the last :meth:`take`
    way : how the namespace was made
    """

    def __init__(self, folder: Path) -> None:
        self.way = read_record(Job, folder / JOB).way
        self.file = folder / SESSION
        self._cuts = CutClient(folder)
        self._to = io.BufferedWriter(io.FileIO(str(self.file), "w"))
        self._now, self._problem = Moment(), ""
        self._one_at_a_time = threading.Lock()  # a test may ask in another thread

    def take(self) -> Moment:
        """Add all traffic until now to the file, and return that moment."""
        with self._one_at_a_time:
            part = self._cuts.cut()
            self._problem = part.problem
            at = self._now.at
            if part.captured > self._now.segments:
                content = read(part.path)
                self._to.write(content)
                self._to.flush()
                at += len(content)
            remove(part.path)
            self._now = Moment(at, part.captured, part.dropped)
            return self._now

    def write(self, begin: Moment, end: Moment, to: Path) -> None:
        """Write the traffic between two moments into a separate file."""
        write(to, read(self.file, begin.at, end.at - begin.at), "w")

    def loss(self, begin: Moment, end: Moment) -> str:
        """What is missing between two moments; empty if nothing is."""
        return recording_gap(Outcome(problem=self._problem, dropped=end.dropped - begin.dropped))

    def end(self) -> tuple[Moment, str]:
        """End the recording: its last moment, and what is missing, by the kernel's count of segments sent."""
        sent = segments_sent()
        until = time.monotonic() + _SETTLE_S
        end = self.take()
        while sent is not None and end.segments < sent and time.monotonic() < until:
            time.sleep(0.02)
            end = self.take()
        self._cuts.close()
        self._to.close()
        return end, recording_gap(
            Outcome(problem=self._problem, captured=end.segments, dropped=end.dropped, sent=sent)
        )


def read(path: Path, at: int = 0, size: int = -1) -> bytes:
    """The bytes of a file from ``at`` on, ``size`` at most (-1: all)."""
    with io.BufferedReader(io.FileIO(str(path))) as file:
        file.seek(at)
        return file.read(size)


def write(path: Path, content: bytes, mode: str) -> None:
    """Write a file: mode "w" overwrites, mode "x" raises FileExistsError if it exists."""
    with io.BufferedWriter(io.FileIO(str(path), mode)) as file:
        file.write(content)


def remove(path: Path) -> None:
    """Remove a file; if that fails, it is removed with its folder."""
    with suppress(OSError):
        path.unlink()
