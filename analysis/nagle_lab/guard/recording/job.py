"""The task of a program in a namespace, and its outcome: two files, because it may take sudo or Docker to get there.

The task is a job, which runs a command there, or a request to record running software.
"""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TypeVar

import msgspec

from nagle_lab.errors import Exit, NagleLabError, disk_full

JOB, OUTCOME, CAPTURE = "job.json", "outcome.json", "capture.pcapng"
REQUEST, READY = "request.json", "ready"  # for recording running software
RESERVE = "reserve"  # keeps room for the outcome, in case the disk is full by then
RESERVED = bytes(1 << 12)
TEMPORARY = "nagle-lab-"  # how the names of temporary folders begin
PART = ".part"  # how a file's name ends while it is written

T = TypeVar("T")


class NamespaceState(StrEnum):
    """Which network namespace the program inside starts in."""

    TO_MAKE = "to_make"  # not yet in a namespace of its own
    THERE = "there"  # in one, as root
    PASTA = "pasta"  # in one with a user namespace that has no user except root


class Job(msgspec.Struct, frozen=True):
    """A command, and where and as whom it runs."""

    command: list[str]
    cwd: str
    environment: dict[str, str]
    uid: int
    gid: int
    groups: list[int]
    limit_s: float | None
    without_nodelay: bool  # whether the command runs without the option
    output: str  # a file for what the command prints; empty: it prints where we do
    parts: bool  # whether the capture is cut into parts on request (see cuts.CutClient)
    programs: str  # a folder for copies of programs whose files are gone at the end; empty: no copies
    under_strace: bool  # whether the command is strace with one: what that leaves running ends with it
    namespace: NamespaceState = NamespaceState.TO_MAKE
    way: str = ""  # how the namespace was made, in the screen's words


@dataclass(frozen=True)
class Target:
    """The running software to record: one of these, or if none is set, all interfaces of this network namespace."""

    pid: int | None = None
    container: str = ""
    service: str = ""  # of Docker Compose
    interface: str = ""
    ports: list[int] = field(default_factory=list)  # the only ones recorded; empty: all

    def __str__(self) -> str:
        named = {
            "process": self.pid, "container": self.container, "service": self.service, "interface": self.interface
        }  # fmt: skip
        return next((f"{kind} {name}" for kind, name in named.items() if name), "all interfaces")


class Request(msgspec.Struct, frozen=True):
    """What to record of a target that was found."""

    pid: int | None = None  # a process whose network namespace to record; None: this one
    interface: str = ""  # only this one
    ports: list[int] = []
    seconds: float | None = None  # None: until SIGINT or SIGTERM
    uid: int = 0  # the owner of the files
    gid: int = 0
    trace: bool = False  # whether strace attaches to the process and those it started, or to all of the container


class Outcome(msgspec.Struct, frozen=True):
    """How the command ended, and what was recorded meanwhile."""

    status: int | None = None  # as in a shell: its exit code, or 128 plus the signal; None: it never ran
    timed_out: bool = False
    interrupted: bool = False  # whether a signal such as Ctrl-C's came meanwhile
    started: bool = False  # whether the command began
    problem: str = ""  # why it never ran, or why the recording is not complete
    try_another_way: bool = True  # whether the namespace was the problem, so that another way may work
    captured: int = 0  # TCP segments
    dropped: int = 0  # segments that the kernel could not hand over
    sent: int | None = None  # TCP segments that the kernel of the namespace sent, by its own count; None: not known
    took_s: float = 0.0
    ended_by_us: list[str] = []  # processes that still ran when the command had ended
    not_traced: str = ""  # why strace could not attach, and what to do
    io_uring: bool = False  # whether a traced process also writes without system calls
    programs: dict[str, str] = {}  # paths of programs whose files are gone → copies

    @property
    def signal(self) -> int | None:
        """The number of the signal that ended the command; None if none did."""
        return self.status - 128 if self.status is not None and self.status > 128 else None

    @property
    def failure(self) -> str:
        """How the command failed, in words; empty where it did not."""
        if self.timed_out:
            return "the command was ended by --time-limit"
        if self.status == Exit.INTERRUPTED:
            return "the command was interrupted"
        return f"the command failed with exit code {self.status}" if self.status else ""


def no_room(error: OSError, what: str, folder: Path) -> str:
    """A line that says where to make room for ``what`` in a recording's folder; empty if the disk is not full.

    A temporary folder will be gone by then, so the line names its parent.
    """
    lasting = next((one.parent for one in (folder, *folder.parents) if one.name.startswith(TEMPORARY)), folder)
    return disk_full(error, what, lasting)


@contextmanager
def room_needed(folder: Path) -> Iterator[None]:
    """Raise NagleLabError if the block finds the disk full while it writes to a recording's folder."""
    try:
        yield
    except OSError as error:
        if line := no_room(error, "the recording", folder):
            raise NagleLabError(line) from None
        raise


def as_text(record: Job | Request | Outcome) -> str:
    """It as JSON in ASCII: what is not UTF-8 (surrogates, PEP 383) is escaped, which msgspec's JSON does not do."""
    return json.dumps(msgspec.to_builtins(record))


def from_text(kind: type[T], text: str) -> T:
    """What :func:`as_text` wrote, as a ``kind``. Raises ValueError."""
    return msgspec.convert(json.loads(text), kind)


def write_record(record: Job | Request | Outcome, path: Path) -> None:
    """Write it whole or not at all. Only its owner may read a job, because its environment may contain secrets."""
    part = path.with_suffix(PART)
    mode = 0o600 if isinstance(record, Job) else 0o666
    part.unlink(missing_ok=True)  # left by a run that was killed
    try:
        with open(part, "x", encoding="utf-8", opener=partial(os.open, mode=mode)) as stream:
            stream.write(as_text(record))
        part.replace(path)
    except OSError:
        part.unlink(missing_ok=True)
        raise


def read_record(kind: type[T], path: Path) -> T:
    """A job, a request or an outcome, according to ``kind``. Raises OSError, ValueError."""
    return from_text(kind, path.read_text())
