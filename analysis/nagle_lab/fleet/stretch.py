"""The unit of work: a stretch of one series, read by an engine that continues where the previous stretch ended.

It leaves two files in the folder ``work`` of the results: the events found, and, written last, the checkpoint from
which the next stretch continues. Their name is derived from what was read, after what, and by which build. If a
checkpoint of that name exists, the stretch is done, whoever did it.
"""

import struct
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from time import monotonic
from typing import IO, Any

import msgspec
import numpy as np
import zstandard

from nagle_lab.capture.capture import Capture, CaptureSoFar, Part
from nagle_lab.capture.kernel_answers import KernelAnswer
from nagle_lab.capture.records import Facts, Position, Trouble, TroubleKind
from nagle_lab.capture.window import WINDOW_BYTES
from nagle_lab.errors import NagleLabError
from nagle_lab.fleet.exchanges import ExchangeCounts, counted
from nagle_lab.fleet.results_folder import Folder
from nagle_lab.fleet.series import File, Series
from nagle_lab.tcp import make_engine
from nagle_lab.tcp.engine import Engine
from nagle_lab.tcp.snapshot import heading, restore, save

LEAST_PART = WINDOW_BYTES  # of a file
FORMAT = 4  # of events and checkpoint
EVENTS = ("candidate", "no_wait", "reaction", "delayed_ack", "idle_gap", "connection")  # tables of the engine
EXCHANGES, FILES = len(EVENTS), len(EVENTS) + 1
_FRAME = struct.Struct("<BI")  # of events: the kind, and the compressed length in bytes


@dataclass(frozen=True)
class Stretch:
    """Some files of a series, or a part of one, and the key of the stretch before it; "" at the beginning."""

    series: str
    key: str
    before: str
    files: tuple[File, ...]
    begin: int  # of a part: it begins at this byte or a little later
    until: int | None  # where it ends; None: the end of the last file

    @property
    def size(self) -> int:
        """The size of the stretch as stored, bytes."""
        if self.until is not None:
            return self.until - self.begin
        return sum(max(file.size, 0) for file in self.files) - self.begin


class FileRead(msgspec.Struct, frozen=True):
    """A file, or a part of it, that was read or could not be read."""

    path: str
    size: int
    first_frame: int  # its first frame, numbered in the series
    packets: int
    problem: str | None
    goes_on: bool  # another part of the same file follows


class StretchDone(msgspec.Struct, frozen=True):
    """How many packets a stretch had, and how long it took."""

    packets: int
    seconds: float


class Checkpoint(msgspec.Struct, frozen=True):
    """What a stretch leaves for the next: what is known about the capture, and the engine's snapshot."""

    names: list[str]
    facts: dict[str, Any]
    engine: bytes
    position: Position | None  # in the last file; None: it was read to its end


def stretches(series: Series, size: int) -> list[Stretch]:
    """The series in pieces of so many bytes, or a little more; larger files are cut.

    Files added later at the end do not change where earlier stretches begin, so that finished work stays valid.
    """
    with make_engine() as engine:
        build = heading(engine)
    found: list[Stretch] = []
    files: list[File] = []

    def add(chosen: Sequence[File], begin: int = 0, until: int | None = None) -> None:
        before = found[-1].key if found else ""
        named = repr((FORMAT, build, before, [(file.path, file.size, file.version) for file in chosen], until))
        key = sha256(named.encode()).hexdigest()[:40]
        found.append(Stretch(series.name, key, before, tuple(chosen), begin, until))

    part = max(size, LEAST_PART)
    for file in series.files:
        if file.size > part:
            if files:
                add(files)
                files = []
            for begin in range(0, file.size, part):
                add([file], begin=begin, until=begin + part if begin + part < file.size else None)
            continue
        files.append(file)
        if sum(one.size for one in files) >= size:
            add(files)
            files = []
    if files:
        add(files)
    return found


def checkpoint_name(key: str) -> str:
    """The file that a stretch writes last."""
    return f"work/{key}.checkpoint"


def events_name(key: str) -> str:
    """The file to which a stretch writes its events."""
    return f"work/{key}.events"


def is_done(stretch: Stretch, work: Collection[str]) -> bool:
    """Whether a stretch has been read, by the names of the files in ``work``."""
    names = (checkpoint_name(stretch.key), events_name(stretch.key))
    return all(name.partition("/")[2] in work for name in names)


def read_stretch(stretch: Stretch, out: Folder) -> StretchDone:
    """Read a stretch; its packets stay here, in a worker.

    Raises NagleLabError if its predecessor's checkpoint is of another build, or damaged.
    """
    began, reads = monotonic(), []
    with make_engine(in_place=False) as engine:
        known, position = resumed(engine, stretch.before, out)
        first = engine.frames
        if stretch.begin and position is None:  # the previous part turned out to be the whole file
            reads.append(FileRead(stretch.files[0].path, 0, first + 1, 0, None, stretch.until is not None))
        else:
            for file in stretch.files:
                known, read, position = _read(file, known, engine, Part(position, stretch.until))
                reads.append(read)
        with out.writing(events_name(stretch.key)) as events:
            _write(events, engine, counted(engine.tables.exchange), reads)
        facts = vars(known.facts) | {"trouble": [(trouble.kind, str(trouble)) for trouble in known.trouble]}
        checkpoint = msgspec.msgpack.encode(Checkpoint(known.names, facts, save(engine), position))
        out.write(checkpoint_name(stretch.key), checkpoint)
        return StretchDone(engine.frames - first, monotonic() - began)


def resumed(engine: Engine, key: str, out: Folder) -> tuple[CaptureSoFar, Position | None]:
    """The state after the stretch of that key, and the position in its last file; "" is before the first stretch.

    Brings the new engine into that state.
    """
    if not key:
        return CaptureSoFar([]), None
    name = checkpoint_name(key)
    try:
        checkpoint = msgspec.msgpack.decode(out.read(name), type=Checkpoint)
    except msgspec.DecodeError as error:
        raise NagleLabError(f"{name}: damaged ({error}): remove it and go on with --resume") from error
    restore(engine, checkpoint.engine, name)
    trouble = [Trouble(TroubleKind(kind), text) for kind, text in checkpoint.facts["trouble"]]
    answers = msgspec.convert(checkpoint.facts["kernel_answers"], list[KernelAnswer])
    facts = Facts(**checkpoint.facts | {"trouble": trouble, "kernel_answers": answers})
    return CaptureSoFar(checkpoint.names, facts), checkpoint.position


def _read(
    file: File, known: CaptureSoFar, engine: Engine, part: Part
) -> tuple[CaptureSoFar, FileRead, Position | None]:
    """Read one file, or a part of it; an unreadable file is only left out, like a rotated one."""
    before, trouble, reached = engine.frames, len(known.trouble), None
    window = _window(file, part)
    try:
        if file.size < 0:
            raise NagleLabError(f"{file.path}: {file.version or 'no such file: check the path'}")
        with Capture([file.path], window, sha256=False, after=known, part=part) as capture:
            for _ in capture.read_files(engine):
                engine.drain()
        known, reached = CaptureSoFar(capture.names, capture.facts), capture.reached
    except NagleLabError as error:
        if not part.begin:
            known.names.append(file.path)
        known.facts.warn(TroubleKind.DAMAGED, str(error))
    problem = "; ".join(known.trouble[trouble:]) or None
    size = 0 if part.begin else max(file.size, 0)
    read = FileRead(file.path, size, before + 1, engine.frames - before, problem, part.until is not None)
    return known, read, reached


def _window(file: File, part: Part) -> int:
    """How many bytes of a file to read at a time: no more than a part has. A whole one may be compressed, and have
    more than its size says.
    """
    if part.begin is None and part.until is None:
        return WINDOW_BYTES
    left = (part.until or file.size) - (part.begin.at if part.begin else 0)
    return min(WINDOW_BYTES, max(left, 1))


def _write(file: IO[bytes], engine: Engine, exchanges: ExchangeCounts, reads: Sequence[FileRead]) -> None:
    """What was found, in frames of bounded size."""
    compress = zstandard.ZstdCompressor(write_checksum=True).compress

    def frame(which: int, content: bytes) -> None:
        packed = compress(content)
        file.write(_FRAME.pack(which, len(packed)) + packed)

    for which, name in enumerate(EVENTS):
        table = getattr(engine.tables, name)
        for packed in table.chunks():
            frame(which, packed)
    frame(EXCHANGES, exchanges.tobytes())
    frame(FILES, msgspec.msgpack.encode(reads))


def events_of(key: str, out: Folder, wanted: Collection[int]) -> Iterator[tuple[int, bytes]]:
    """What a stretch found, frame by frame: which of EVENTS, EXCHANGES or FILES, if it is wanted, and its content.

    Raises NagleLabError where that is damaged.
    """
    name = events_name(key)
    decompress = zstandard.ZstdDecompressor().decompress
    with out.reading(name) as file:
        while head := file.read(_FRAME.size):
            try:
                which, size = _FRAME.unpack(head)
                content = file.read(size)
                if which in wanted:
                    yield which, decompress(content)
            except (struct.error, zstandard.ZstdError) as error:
                raise NagleLabError(
                    f"{name}: damaged ({error}): remove work/{key}.* and go on with --resume"
                ) from error


def as_counts(content: bytes) -> ExchangeCounts:
    """The rows of an EXCHANGES frame."""
    return np.frombuffer(content, np.int64).reshape(-1, 3)


def as_reads(content: bytes) -> list[FileRead]:
    """The rows of a FILES frame."""
    return msgspec.msgpack.decode(content, type=list[FileRead])
