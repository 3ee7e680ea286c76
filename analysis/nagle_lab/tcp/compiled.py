"""The compiled engine: records, decoding and the machine in one pass over the bytes, called through ctypes.

Its sources stand beside their Python twins: capture/records.c, packet/segment.c, tcp/machine.c; tcp/engine.c has the
functions called from here. Set-up compiles them if there is a C compiler; wheels contain them compiled.
"""

import ctypes
import os
import platform
import sys
from collections.abc import Sequence
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Any, Self
from zlib import crc32

from nagle_lab.capture.records import Interface, PcapFraming
from nagle_lab.capture.window import Window
from nagle_lab.tcp.durations import DURATIONS, Durations
from nagle_lab.tcp.engine import EngineTotals
from nagle_lab.tcp.layout import LAYOUTS, PACKAGE, TABLES
from nagle_lab.tcp.tables import Tables

SOURCES = tuple(
    PACKAGE / name
    for name in (
        "capture/records.c", "packet/segment.c", "tcp/machine.c", "tcp/live.c", "tcp/programs.c", "tcp/tables.c",
        "tcp/engine.c", "capture/records.h", "packet/segment.h", "tcp/connection.h", "tcp/machine.h", "tcp/live.h",
        "tcp/programs.h", "tcp/tables.h", "tcp/engine.h",
    )
)  # fmt: skip
COMPILED = "NAGLE_LAB_COMPILED"  # environment variable: 0 asks for plain Python

NOT_DECODED = len(DURATIONS)
SNAPSHOT = len(TABLES)
_READ = 0x100  # PyBUF_READ
_view = ctypes.pythonapi.PyMemoryView_FromMemory
_view.restype, _view.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int)
_COUNTERS = LAYOUTS["counters"].columns


def checksum() -> int:
    """The CRC-32 of the sources, one after the other."""
    value = 0
    for source in SOURCES:
        value = crc32(source.read_bytes(), value)
    return value


def load(folder: Path) -> ctypes.CDLL | None:
    """The library in that folder; None if there is none for this machine, compiled from the present sources.

    Raises ValueError if its structs are not those of engine.h.
    """
    files = (folder / f"_engine{suffix}" for suffix in (*EXTENSION_SUFFIXES, ".so"))
    found = next((file for file in files if file.exists()), None)
    if found is None or os.environ.get(COMPILED) == "0":
        return None
    try:
        library = ctypes.CDLL(str(found))
        library.nagle_lab_source.restype = ctypes.c_int64
        is_of_these = not SOURCES[0].exists() or library.nagle_lab_source() == checksum()
    except (OSError, AttributeError):  # made for another machine, or from other sources
        return None
    if not is_of_these:
        return None
    _declare(library)
    for which, name in enumerate(LAYOUTS):
        if library.nagle_lab_size_of(which) != LAYOUTS[name].struct.size:
            raise ValueError(f"{found}: its struct {name} is not that of engine.h: compile it again (make setup)")
    return library


def _declare(library: ctypes.CDLL) -> None:
    pointer, number, flag = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int
    for name, result, arguments in (
        ("size_of", number, (flag,)),
        ("new", pointer, (flag,)),
        ("free", None, (pointer,)),
        ("counters", pointer, (pointer,)),
        ("new_file", None, (pointer,)),
        ("epoch", number, (pointer,)),
        ("set_back", number, (pointer, ctypes.POINTER(number))),
        ("begins_before", number, (pointer,)),
        ("collect", None, (pointer, pointer, number)),
        ("pcap", number, (pointer, pointer, number, number, flag, number, pointer)),
        ("pcapng", number, (pointer, pointer, number, number, flag, pointer, number)),
        ("finish", number, (pointer,)),
        ("save", number, (pointer,)),
        ("restore", number, (pointer, ctypes.c_char_p, number)),
        ("rows", pointer, (pointer, flag, ctypes.POINTER(number))),
        ("taken", None, (pointer, flag)),
        ("counts", number, (pointer, flag, pointer, pointer, number)),
        ("place", number, (pointer, number, pointer, number, number)),
    ):
        function = getattr(library, f"nagle_lab_{name}")
        function.restype, function.argtypes = result, arguments


class CompiledEngine:
    """See :class:`nagle_lab.tcp.engine.Engine`."""

    def __init__(self, library: ctypes.CDLL, *, exchanges: bool = True, in_place: bool = True) -> None:
        self._library = library
        self._engine = library.nagle_lab_new(exchanges)
        if not self._engine:
            raise MemoryError("there is no memory for the analysis")
        size = LAYOUTS["counters"].struct.size
        memory = (ctypes.c_char * size).from_address(library.nagle_lab_counters(self._engine))
        self._counters = memoryview(memory).cast("B").cast("q")
        self._interfaces: tuple[Sequence[Interface], int, bytes] = ((), 0, b"")
        self.tables = Tables(in_place=in_place)
        self.lists_exchanges = exchanges
        self.clock = _Clock(library, self._engine)

    # Records ----------------------------------------------------------------------------------------

    @property
    def frames(self) -> int:
        """The number of records so far, in the whole input."""
        return self.counter("frames")

    @frames.setter
    def frames(self, count: int) -> None:
        self._counters[_COUNTERS["frames"]] = count

    def pcap(self, window: Window, at: int, framing: PcapFraming) -> int:
        """Take pcap records; see :class:`nagle_lab.capture.records.RecordTaker`."""
        interface = LAYOUTS["interface_"].struct.pack(*framing.interface)
        big_endian = framing.order == ">"
        with _Pointer(window) as buffer:
            return self._require_memory(
                self._library.nagle_lab_pcap(
                    self._engine, buffer, at, window.end, big_endian, framing.header, interface
                )
            )

    def pcapng(self, window: Window, at: int, order: str, interfaces: Sequence[Interface]) -> int:
        """Take packet blocks; see :class:`nagle_lab.capture.records.RecordTaker`."""
        of, count, packed = self._interfaces
        if of is not interfaces or count != len(interfaces):
            pack = LAYOUTS["interface_"].struct.pack
            packed = b"".join(pack(*interface) for interface in interfaces)
            self._interfaces = (interfaces, len(interfaces), packed)
        with _Pointer(window) as buffer:
            return self._require_memory(
                self._library.nagle_lab_pcapng(
                    self._engine, buffer, at, window.end, order == ">", packed, len(interfaces)
                )
            )

    @staticmethod
    def _require_memory(at: int) -> int:
        if at < 0:
            raise MemoryError("there is no memory for so many connections")
        return at

    # What was found ---------------------------------------------------------------------------------

    def collect(self, ends: tuple[bytes, int, bytes, int] | None, first_frame: int) -> None:
        """From now on collect segments as rows of ``segment``, and follow no connection.

        ``ends`` are address (16 bytes) and port of both ends of the connection wanted, in either order; None: all.
        Frames count from 1; ``first_frame`` is the first one wanted.
        """
        packed = None
        if ends is not None:
            src, sport, dst, dport = ends
            packed = src + dst + sport.to_bytes(2, sys.byteorder) + dport.to_bytes(2, sys.byteorder)
        self._library.nagle_lab_collect(self._engine, packed, first_frame)

    def drain(self) -> None:
        """Move the finished rows into the tables."""
        for which, name in enumerate(TABLES):
            rows = self._rows(which)
            if not len(rows):
                continue
            if name == "connection" and self.tables.in_place:
                self._place(rows)
            else:
                getattr(self.tables, name).append(rows)
            self._library.nagle_lab_taken(self._engine, which)

    def finish(self) -> None:
        """The capture is over."""
        self._require_memory(self._library.nagle_lab_finish(self._engine))
        self.drain()

    def _rows(self, which: int) -> memoryview:
        """The packed rows of a table in place: valid until they are taken or the engine continues."""
        size = ctypes.c_int64()
        rows = self._library.nagle_lab_rows(self._engine, which, ctypes.byref(size))
        return _view(rows, size.value, _READ) if size.value else memoryview(b"")

    def _place(self, rows: memoryview) -> None:
        """Put rows of connections at their numbers; connections end in any order."""
        layout = LAYOUTS["connection"]
        size, count = layout.struct.size, len(rows) // layout.struct.size
        numbers = rows.cast("q")[layout.places["number"][1] // 8 :: size // 8]
        first, last = min(numbers), max(numbers)
        table = self.tables.connection
        table.reach(last + 1)
        view = table.view(first, last)
        target = (ctypes.c_char * len(view)).from_buffer(view)
        self._require_memory(self._library.nagle_lab_place(bytes(rows), count, target, first, last))

    def counter(self, name: str) -> int:
        """The value of one field of ``counters`` in engine.h."""
        return self._counters[_COUNTERS[name]]

    @property
    def connections(self) -> int:
        """How many connections there were so far."""
        return self.counter("connections")

    def totals(self) -> EngineTotals:
        """What was counted so far."""
        durations = {
            name: Durations(counts=self._counts(which), total=self._counters[_COUNTERS["total", which]])
            for which, name in enumerate(DURATIONS)
        }
        segments = self.counter("segments")
        return EngineTotals(
            self.counter("connections"), segments, self.counter("copies"), self.counter("pure_acks"),
            self.counter("first_ts") if segments else None, self.counter("last_ts"), self.counter("resolution"),
            durations, self._counts(NOT_DECODED),
        )  # fmt: skip

    def _counts(self, which: int) -> dict[int, int]:
        room = self._library.nagle_lab_counts(self._engine, which, None, None, 0)
        numbers = ctypes.c_int64 * room
        keys, counts = numbers(), numbers()
        self._library.nagle_lab_counts(self._engine, which, keys, counts, room)
        return dict(zip(keys, counts, strict=True))

    # Snapshots --------------------------------------------------------------------------------------

    @property
    def build(self) -> str:
        """The sources and the machine it is built for: see :class:`nagle_lab.tcp.engine.Engine`."""
        sources = self._library.nagle_lab_source() & 0xFFFFFFFF
        return f"compiled {sources:08x} {platform.machine()} {sys.byteorder}"

    def save(self) -> bytes:
        """The whole state between two files, except the rows, which are in the tables by then."""
        self.drain()
        self._require_memory(self._library.nagle_lab_save(self._engine))
        saved = bytes(self._rows(SNAPSHOT))
        self._library.nagle_lab_taken(self._engine, SNAPSHOT)
        return saved

    def restore(self, saved: bytes) -> None:
        """Continue from the saved state of another engine: see :class:`nagle_lab.tcp.engine.Engine`."""
        if self._library.nagle_lab_restore(self._engine, saved, len(saved)):
            raise ValueError("this is no snapshot of this build, or there is no memory for it")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        counted = self._counters.tobytes()  # what was counted can still be asked for
        self._counters.release()
        self._counters = memoryview(counted).cast("q")
        self._library.nagle_lab_free(self._engine)
        self._engine = None


class _Clock:
    """What the engine's clock says; see :class:`nagle_lab.capture.clock.Clock`."""

    def __init__(self, library: ctypes.CDLL, engine: int) -> None:
        self._library, self._engine = library, engine

    @property
    def set_back(self) -> tuple[int, int] | None:
        by = ctypes.c_int64()
        frame = self._library.nagle_lab_set_back(self._engine, ctypes.byref(by))
        return (frame, by.value) if frame else None

    @property
    def epoch(self) -> int:
        epoch: int = self._library.nagle_lab_epoch(self._engine)
        return epoch

    def new_file(self) -> None:
        self._library.nagle_lab_new_file(self._engine)

    def begins_before(self) -> bool:
        return bool(self._library.nagle_lab_begins_before(self._engine))


class _Pointer:
    """The address of a window's bytes, which do not move meanwhile."""

    def __init__(self, window: Window) -> None:
        self._bytes = (ctypes.c_char * len(window.raw)).from_buffer(window.raw)

    def __enter__(self) -> Any:
        return ctypes.addressof(self._bytes)

    def __exit__(self, *_: object) -> None:
        del self._bytes


LIBRARY = load(Path(__file__).parent)
