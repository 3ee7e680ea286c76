"""The rows that leave the engine: in memory while they are few, in a temporary file when they are many.

What an analysis keeps per stall or per finished connection grows with the capture. It grows here, on disk, so that
memory does not.
"""

import mmap
import os
from collections.abc import Iterator, Sequence
from struct import pack_into
from typing import Any

from nagle_lab.errors import NagleLabError
from nagle_lab.tcp.layout import LAYOUTS, Layout

# ruff: noqa: PLC0415  (tempfile is imported only where a file is made: the rows of a small capture fit into memory)

IN_MEMORY = 8 << 20  # bytes of one table
GROWTH = 8 << 20  # bytes of a file, at least
CHUNK = 1 << 16  # rows processed at once
CHUNK_BYTES = 7 << 20  # at most, in bytes


class Table:
    """Rows of one layout, numbered from 0; rows that were never written are all zeros.

    Raises NagleLabError if the disk of temporary files (TMPDIR) is full.
    """

    def __init__(self, layout: Layout, in_memory: int | None = None) -> None:
        self.layout = layout
        self._in_memory = IN_MEMORY if in_memory is None else in_memory
        self._row_bytes = layout.struct.size
        self._full = self._in_memory - self._row_bytes + 1  # so many bytes in memory leave no room for another row
        self._pack = layout.struct.pack
        self._count = 0
        self._memory = bytearray()
        self._file: Any = None
        self._room = 0  # bytes of the file

    def __reduce__(self) -> Any:
        return _table_of, (self.layout, self._in_memory, list(self.chunks()))

    def __len__(self) -> int:
        return self._count

    def add(self, *values: Any) -> None:
        """Add one row: its values in the order of the layout."""
        row = self._pack(*values)
        if self._file is None and len(self._memory) < self._full:
            self._memory += row
            self._count += 1
        else:
            self.append(row)

    def add_named(self, **values: Any) -> None:
        """Add one row by the names of its fields, none of which is a pair; fields not named are 0."""
        self.add(*(self.layout.zeros | values).values())

    def append(self, rows: bytes | memoryview) -> None:
        """Add rows, packed as the layout has it."""
        if self._file is None and len(self._memory) + len(rows) <= self._in_memory:
            self._memory += rows
        else:
            self._write(self._count * self._row_bytes, rows)
        self._count += len(rows) // self._row_bytes

    def put(self, number: int, values: Sequence[Any]) -> None:
        """Write row ``number``, which may be beyond the last one."""
        row, at = self._pack(*values), number * self._row_bytes
        self.reach(number + 1)
        if self._file is None:
            self._memory[at : at + len(row)] = row
        else:
            self._write(at, row)

    def fill_in(self, number: int, name: str, value: int) -> None:
        """Write one field of row ``number``, which must exist."""
        code, offset = self.layout.places[name]
        pack_into(code, self.view(number, number), offset, value)

    def reach(self, count: int) -> None:
        """Make sure that there are at least ``count`` rows; new ones are all zeros."""
        missing = count * self._row_bytes - (len(self._memory) if self._file is None else 0)
        if self._file is None and len(self._memory) + missing <= self._in_memory:
            self._memory += bytes(max(missing, 0))
        else:
            self._to_disk()
            self._reserve(count * self._row_bytes)
        self._count = max(self._count, count)

    def read(self, begin: int, end: int) -> bytes:
        """The packed rows from ``begin`` up to, but without, ``end``."""
        size = self._row_bytes
        if self._file is None:
            return bytes(memoryview(self._memory)[begin * size : end * size])
        content = os.pread(self._file.fileno(), (end - begin) * size, begin * size)
        return content + bytes((end - begin) * size - len(content))

    def keep(self, kept: int, rows: bytes | memoryview) -> int:
        """Write packed rows after the first ``kept`` rows, over rows that were already read.

        Returns how many rows are kept now; :meth:`cut` drops the rest.
        """
        at = kept * self._row_bytes
        if self._file is None:
            self._memory[at : at + len(rows)] = rows
        else:
            self._write(at, rows)
        return kept + len(rows) // self._row_bytes

    def cut(self, count: int) -> None:
        """Drop all rows except the first ``count``."""
        self._count = count
        del self._memory[count * self._row_bytes :]

    def rows(self) -> Iterator[tuple[Any, ...]]:
        """Every row as a tuple: its values in the order of the layout."""
        for packed in self.chunks():
            yield from self.layout.struct.iter_unpack(packed)

    def row(self, number: int) -> tuple[Any, ...]:
        """One row as a tuple: its values in the order of the layout."""
        return self.layout.struct.unpack(self.read(number, number + 1))

    def chunks(self) -> Iterator[bytes]:
        """The packed rows, one chunk after the other: CHUNK rows, or CHUNK_BYTES, at most."""
        rows = max(min(CHUNK, CHUNK_BYTES // self._row_bytes), 1)
        for begin in range(0, self._count, rows):
            yield self.read(begin, min(begin + rows, self._count))

    def view(self, first: int, last: int) -> memoryview:
        """The packed rows from ``first`` to ``last``, to look into at random and to change in place.

        Rows on disk are mapped as long as the view exists; touched pages count as memory.
        """
        begin, end = first * self._row_bytes, (last + 1) * self._row_bytes
        if self._file is None:
            return memoryview(self._memory)[begin:end]
        self._reserve(end)
        offset = begin // mmap.ALLOCATIONGRANULARITY * mmap.ALLOCATIONGRANULARITY
        return memoryview(mmap.mmap(self._file.fileno(), end - offset, offset=offset))[begin - offset :]

    def _write(self, at: int, rows: bytes | bytearray | memoryview) -> None:
        self._to_disk()
        self._reserve(at + len(rows))
        view = memoryview(rows)
        while view:
            written = os.pwrite(self._file.fileno(), view, at)
            view, at = view[written:], at + written

    def _to_disk(self) -> None:
        if self._file is None:
            import tempfile

            self._file = tempfile.TemporaryFile(prefix="nagle-lab-", buffering=0)  # noqa: SIM115 - lives as long as we
            old, self._memory = self._memory, bytearray()
            self._write(0, old)

    def _reserve(self, need: int) -> None:
        """Allocate room on disk now: a mapped file that finds no room later ends in SIGBUS."""
        if need <= self._room:
            return
        need = max(need, self._room + max(self._room // 4, GROWTH))
        try:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(self._file.fileno(), 0, need)
            else:  # macOS
                os.ftruncate(self._file.fileno(), need)
        except OSError as error:
            import tempfile

            raise NagleLabError(
                f"no room for temporary files in {tempfile.gettempdir()} ({error.strerror}): "
                "make some, or name another folder with TMPDIR"
            ) from error
        self._room = need


def _table_of(layout: Layout, in_memory: int, chunks: Sequence[bytes]) -> Table:
    table = Table(layout, in_memory)
    for rows in chunks:
        table.append(rows)
    return table


class Tables:
    """What an engine found, a table for each kind of row that the C headers declare.

    ``in_place``: each connection's row is at its number; otherwise rows are in the order in which connections ended,
    so that a table needs no room for connections that are not in it.
    """

    def __init__(self, *, in_place: bool = True) -> None:
        self.in_place = in_place
        self.candidate = Table(LAYOUTS["candidate"], in_memory=12 << 20)
        self.no_wait = Table(LAYOUTS["no_wait"])
        self.reaction = Table(LAYOUTS["reaction"])
        self.delayed_ack = Table(LAYOUTS["delayed_ack"])
        self.idle_gap = Table(LAYOUTS["idle_gap"])
        self.exchange = Table(LAYOUTS["exchange"])
        self.connection = Table(LAYOUTS["connection"])
        self.segment = Table(LAYOUTS["segment"])

    @property
    def rows(self) -> int:
        """How many rows there are in all tables."""
        return sum(len(table) for _, table in self.by_name())

    def put_connection(self, values: Sequence[Any]) -> None:
        """Add a connection's row, whose first value is its number; ``in_place`` decides where it goes."""
        if self.in_place:
            self.connection.put(values[0], values)
        else:
            self.connection.add(*values)

    def by_name(self) -> Iterator[tuple[str, Table]]:
        """Each table, with the name of its struct in the C headers."""
        return ((name, table) for name, table in vars(self).items() if isinstance(table, Table))
