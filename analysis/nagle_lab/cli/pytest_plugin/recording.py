"""The recording of the session, seen from inside, one file that grows part by part; and the captures kept of it.

A test may have replaced open(), or use a fake file system (pyfakefs). Therefore files are opened as io.FileIO here
and in :mod:`nagle_lab.capture`, below all that.
"""

import io
import re
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
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
    """The session's capture file, with frames numbered as they came."""

    def __init__(self, folder: Path) -> None:
        self.way = read_record(Job, folder / JOB).way  # how the namespace was made
        self.file = folder / SESSION  # the whole recording up to the last take()
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


class KeptCaptures:
    """Where captures of tests are kept: in the requested folder, or, if that has no room, beside the recording."""

    def __init__(self, folder: Path, recorded_in: Path) -> None:
        self._folder, self._recorded_in = folder, recorded_in
        self.problem = ""  # why some captures are not in the folder, and where they are; empty if all are

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
    """A test's node id as the name of a file, in at most 150 bytes: with what is added, a file system takes 255."""
    name = re.sub(r"[^\w.-]+", "_", nodeid.replace("/", "-"))
    return name.encode()[-150:].decode(errors="ignore").strip("_.-") or "test"


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
