"""Rows put aside until the end of the file: in memory while they are few, in a temporary file when they are many.

What an analysis keeps per stall or per finished connection grows with the capture; this is where it grows, so that
memory does not.
"""

import mmap
import os
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nagle_lab.errors import NagleLabError
from nagle_lab.tcp.columns import Ints, opaque, picked

IN_MEMORY = 2 << 20  # bytes of one shelf
SMALL = 1 << 20  # bytes that may well be copied
GROWTH = 8 << 20  # bytes of a file, at least
CHUNK = 1 << 16  # rows looked at at once


class Shelf:
    """Rows of one structured dtype, numbered from 0; rows never put are all zeros.

    Raises NagleLabError where the disk of temporary files (TMPDIR) is full.
    """

    def __init__(self, dtype: np.dtype[np.void], in_memory: int = IN_MEMORY) -> None:
        self.dtype = dtype
        self._count = 0
        self._in_memory = in_memory
        self._memory = np.zeros(0, dtype)
        self._file: Any = None
        self._room = 0  # bytes of it

    def __len__(self) -> int:
        return self._count

    def append(self, rows: NDArray[np.void]) -> None:
        """Add rows (n,) after the last one."""
        if len(rows):
            self._reserve(self._count + len(rows))
            self._write(self._count - len(rows), rows)

    def put(self, at: Ints, rows: NDArray[np.void]) -> None:
        """Write ``rows[i]`` to number ``at[i]``; numbers beyond the last one add rows."""
        if not len(at):
            return
        self._reserve(max(self._count, int(at.max()) + 1))
        if self._file is None:
            opaque(self._memory)[at] = opaque(rows)
            return
        with _Mapped(self._file, self.dtype, at) as (view, index):
            opaque(view)[index] = opaque(rows)
            del view

    def take(self, at: Ints) -> NDArray[np.void]:
        """The rows with those numbers, a copy."""
        if self._file is None or not len(at):
            return picked(self._memory, at) if self._file is None else np.zeros(0, self.dtype)
        with _Mapped(self._file, self.dtype, at) as (view, index):
            rows = picked(view, index)
            del view
        return rows

    def keep(self, chosen: Callable[[NDArray[np.void]], NDArray[np.void]]) -> None:
        """Keep only what ``chosen`` returns of each chunk of rows, numbered anew in order. None is added after it."""
        kept = 0
        for rows in self.chunks():
            some = chosen(rows)
            self._write(kept, some)  # never beyond the chunk, for the rest is still to be read
            kept += len(some)
        self._count = kept

    def chunks(self, rows: int = CHUNK) -> Iterator[NDArray[np.void]]:
        """All rows, so many at a time, in order."""
        for begin in range(0, self._count, rows):
            yield self._read(begin, min(begin + rows, self._count))

    def _read(self, begin: int, end: int) -> NDArray[np.void]:
        if self._file is None:
            return self._memory[begin:end]
        size = self.dtype.itemsize
        content = os.pread(self._file.fileno(), (end - begin) * size, begin * size)
        return np.frombuffer(content, self.dtype)

    def _write(self, begin: int, rows: NDArray[np.void]) -> None:
        if self._file is None:
            opaque(self._memory)[begin : begin + len(rows)] = opaque(np.ascontiguousarray(rows))
            return
        content, offset = np.ascontiguousarray(rows).view(np.uint8).data, begin * self.dtype.itemsize
        while content:
            written = os.pwrite(self._file.fileno(), content, offset)
            content, offset = content[written:], offset + written

    def _reserve(self, count: int) -> None:
        """Make room for so many rows; on disk really, for a mapped file that finds none later ends in SIGBUS."""
        size = self.dtype.itemsize
        self._count = count
        if self._file is None and count <= len(self._memory):
            return
        if self._file is None and count * size <= self._in_memory:
            room = max(count, 2 * len(self._memory))  # soon all there may be: what is not written to takes no memory
            more = np.zeros(room if room * size < SMALL else self._in_memory // size, self.dtype)
            opaque(more)[: len(self._memory)] = opaque(self._memory)
            self._memory = more
            return
        if self._file is None:
            self._file = tempfile.TemporaryFile(prefix="nagle-lab-", buffering=0)  # noqa: SIM115 - lives as long as we
            old, self._memory = self._memory, np.zeros(0, self.dtype)
            self._extend(count * size)
            self._write(0, old[: min(len(old), count)])
        else:
            self._extend(count * size)

    def _extend(self, need: int) -> None:
        have = self._room
        if need <= have:
            return
        need = max(need, have + max(have // 4, GROWTH))
        try:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(self._file.fileno(), 0, need)
            else:  # macOS
                os.ftruncate(self._file.fileno(), need)
        except OSError as error:
            raise NagleLabError(
                f"no room for temporary files in {tempfile.gettempdir()} ({error.strerror}): "
                "make some, or name another folder with TMPDIR"
            ) from error
        self._room = need


class _Mapped:
    """The part of a file that holds those rows, mapped while they are looked at; and their numbers in that part."""

    def __init__(self, file: Any, dtype: np.dtype[np.void], at: Ints) -> None:
        size, first, last = dtype.itemsize, int(at.min()), int(at.max())
        begin = first * size // mmap.ALLOCATIONGRANULARITY * mmap.ALLOCATIONGRANULARITY
        self._map = mmap.mmap(file.fileno(), (last + 1) * size - begin, offset=begin)
        self._view = np.frombuffer(self._map, dtype, last + 1 - first, first * size - begin)
        self._index = at - first

    def __enter__(self) -> tuple[NDArray[np.void], Ints]:
        return self._view, self._index

    def __exit__(self, *_: object) -> None:
        del self._view
        # Not closed by hand: the caller's own view ends with its block, and with the last view the map goes.
