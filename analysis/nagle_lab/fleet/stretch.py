"""The unit of work: a stretch of one series, read by an engine that goes on where the stretch before it ended.

It leaves two files in the folder ``work`` of the results: what was found (events), and, written last, what the next
stretch goes on from (the carry). Their name is made of what was read, after what, by which build: where there is a
carry of that name the stretch is done, whoever did it.
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

from nagle_lab.capture.capture import Capture, CaptureSoFar
from nagle_lab.capture.records import Facts, Trouble, TroubleKind
from nagle_lab.errors import NagleLabError
from nagle_lab.fleet.exchanges import Counts, counted
from nagle_lab.fleet.folder import Folder
from nagle_lab.fleet.series import File, Series
from nagle_lab.tcp import make_engine
from nagle_lab.tcp.engine import Engine
from nagle_lab.tcp.snapshot import heading, restore, save

FORMAT = 1  # of events and carry
EVENTS = ("candidate", "unheld", "reaction", "late_ack", "idle_gap", "connection")  # tables of the engine
EXCHANGES, FILES = len(EVENTS), len(EVENTS) + 1
_FRAME = struct.Struct("<BI")  # of events: what it is, and bytes of it, compressed


@dataclass(frozen=True)
class Stretch:
    """Some files of a series, and by its key what it goes on from; "" at the beginning."""

    series: str
    key: str
    before: str
    files: tuple[File, ...]

    @property
    def size(self) -> int:
        """Bytes stored."""
        return sum(max(file.size, 0) for file in self.files)


class Read(msgspec.Struct, frozen=True):
    """A file that was read, or could not be."""

    path: str
    size: int
    first_frame: int  # of the series: the first in it
    packets: int
    problem: str | None


class Done(msgspec.Struct, frozen=True):
    """What a stretch was."""

    packets: int
    seconds: float


class Carry(msgspec.Struct, frozen=True):
    """What a stretch leaves to the next: what is known of the capture, and the engine's snapshot."""

    names: list[str]
    facts: dict[str, Any]
    engine: bytes


def stretches(series: Series, size: int) -> list[Stretch]:
    """The series in pieces of so many bytes, or little more; a file is never divided.

    They begin where they would if files had not been added at the end since, so that what was done stays done.
    """
    with make_engine() as engine:
        build = heading(engine)
    found: list[Stretch] = []
    files: list[File] = []
    for file in series.files:
        files.append(file)
        if sum(one.size for one in files) >= size:
            found.append(_stretch(series.name, build, found, files))
            files = []
    return [*found, _stretch(series.name, build, found, files)] if files else found


def _stretch(series: str, build: str, before: Sequence[Stretch], files: Sequence[File]) -> Stretch:
    after = before[-1].key if before else ""
    named = repr((FORMAT, build, after, [(file.path, file.size, file.version) for file in files]))
    return Stretch(series, sha256(named.encode()).hexdigest()[:40], after, tuple(files))


def carry_name(key: str) -> str:
    """The file that a stretch writes last."""
    return f"work/{key}.carry"


def follow(stretch: Stretch, out: Folder) -> Done:
    """Read a stretch; its packets stay here, in a worker.

    Raises NagleLabError where what it goes on from is of another build, or damaged.
    """
    began, reads = monotonic(), []
    with make_engine(in_place=False) as engine:
        known = resumed(engine, stretch.before, out)
        first = engine.frames
        for file in stretch.files:
            known, read = _read(file, known, engine)
            reads.append(read)
        with out.writing(f"work/{stretch.key}.events") as events:
            _write(events, engine, counted(engine.tables.exchange), reads)
        facts = vars(known.facts) | {"trouble": [(trouble.kind, str(trouble)) for trouble in known.trouble]}
        carry = msgspec.msgpack.encode(Carry(known.names, facts, save(engine)))
        out.write(carry_name(stretch.key), carry)
        return Done(engine.frames - first, monotonic() - began)


def resumed(engine: Engine, key: str, out: Folder) -> CaptureSoFar:
    """What is known after the stretch of that key, and a new engine where it was then; "" is before all of them."""
    if not key:
        return CaptureSoFar([])
    name = carry_name(key)
    try:
        carry = msgspec.msgpack.decode(out.read(name), type=Carry)
    except msgspec.DecodeError as error:
        raise NagleLabError(f"{name}: damaged ({error}): remove it and go on with --resume") from error
    restore(engine, carry.engine, name)
    trouble = [Trouble(TroubleKind(kind), text) for kind, text in carry.facts["trouble"]]
    return CaptureSoFar(carry.names, Facts(**carry.facts | {"trouble": trouble}))


def _read(file: File, known: CaptureSoFar, engine: Engine) -> tuple[CaptureSoFar, Read]:
    """Read one file; one that cannot be read costs only itself, as a rotated one does."""
    before, trouble = engine.frames, len(known.trouble)
    try:
        if file.size < 0:
            raise NagleLabError(f"{file.path}: no such file: check the path")
        with Capture([file.path], sha256=False, after=known) as capture:
            for _ in capture.read_files(engine):
                engine.drain()
        known = CaptureSoFar(capture.names, capture.facts)
    except NagleLabError as error:
        known.names.append(file.path)
        known.facts.warn(TroubleKind.DAMAGED, str(error))
    problem = "; ".join(known.trouble[trouble:]) or None
    return known, Read(file.path, max(file.size, 0), before + 1, engine.frames - before, problem)


# Events ------------------------------------------------------------------------------------------------


def _write(to: IO[bytes], engine: Engine, exchanges: Counts, reads: Sequence[Read]) -> None:
    """What was found, in frames of bounded size."""
    compress = zstandard.ZstdCompressor(write_checksum=True).compress

    def frame(which: int, content: bytes) -> None:
        packed = compress(content)
        to.write(_FRAME.pack(which, len(packed)) + packed)

    for which, name in enumerate(EVENTS):
        table = getattr(engine.tables, name)
        for begin, end in table.chunks():
            frame(which, table.read(begin, end))
    frame(EXCHANGES, exchanges.tobytes())
    frame(FILES, msgspec.msgpack.encode(reads))


def events_of(key: str, out: Folder, wanted: Collection[int]) -> Iterator[tuple[int, bytes]]:
    """What a stretch found, frame by frame: which of EVENTS, EXCHANGES or FILES, if it is wanted, and its content.

    Raises NagleLabError where that is damaged.
    """
    name = f"work/{key}.events"
    decompress = zstandard.ZstdDecompressor().decompress
    with out.fs.open(out.at(name), "rb") as file:
        while head := file.read(_FRAME.size):
            try:
                which, size = _FRAME.unpack(head)
                content = file.read(size)
                if which in wanted:
                    yield which, decompress(content)
            except (struct.error, zstandard.ZstdError) as error:
                raise NagleLabError(f"{name}: damaged ({error}): start over without --resume") from error


def as_counts(content: bytes) -> Counts:
    """The rows of an EXCHANGES frame."""
    return np.frombuffer(content, np.int64).reshape(-1, 3)


def as_reads(content: bytes) -> list[Read]:
    """The rows of a FILES frame."""
    return msgspec.msgpack.decode(content, type=list[Read])
