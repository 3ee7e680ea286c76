"""The loops of loops.c, called through ctypes: for arguments and results see the same names in plain.py.

Meanwhile the interpreter is free for other threads. C trusts its callers with lengths and dtypes: what is handed over
is either made here or a table whose dtypes its class states.
"""

import ctypes
import os
from collections.abc import Sequence
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from nagle_lab.tcp.columns import Bools, Bytes, Ints, Sides
from nagle_lab.tcp.loops.shapes import (
    Answers,
    Behind,
    Ended,
    Exchanges,
    Framing,
    Grouped,
    Halves,
    Noticed,
    Pauses,
    Table,
    Waits,
)

Hashes = NDArray[np.uint64]

WITHOUT = "NAGLE_LAB_COMPILED"  # 0 asks for NumPy


def load(folder: Path) -> ctypes.CDLL | None:
    """The library in there; None where there is none, or none of this machine and of the loops.c beside it."""
    files = (folder / f"_loops{suffix}" for suffix in EXTENSION_SUFFIXES)
    found = next((file for file in files if file.exists()), None)
    if found is None or os.environ.get(WITHOUT) == "0":
        return None
    try:
        library = ctypes.CDLL(str(found))
        library.source.restype = ctypes.c_int64
        source = folder / "loops.c"
        fits = not source.exists() or library.source() == crc32(source.read_bytes())
    except (OSError, AttributeError):  # made for another machine, or before it was asked for its source
        return None
    return library if fits else None


LIBRARY = load(Path(__file__).parent)


def walk(buffer: Bytes, start: int, end: int, framing: Framing) -> tuple[Ints, int]:
    """See :func:`nagle_lab.tcp.loops.plain.walk`."""
    offsets, follows = np.empty(max(0, end - start) // framing.shortest + 1, np.int64), np.empty(1, np.int64)
    order, *sizes = framing
    count = _call("walk", buffer, start, end, int(order == ">"), *sizes, offsets, follows)
    return offsets[:count].copy(), int(follows[0])


def usual_segments(records: Table, segments: Table) -> tuple[Ints, Ints]:
    """See :func:`nagle_lab.tcp.loops.plain.usual_segments`."""
    usual, unusual = np.empty((2, len(records)), np.int64)
    count = _call("usual_segments", records, len(records), segments, usual, unusual)
    return usual[:count], unusual[: len(records) - count]


def hash_pairs(packets: Table) -> tuple[Hashes, Hashes]:
    """See :func:`nagle_lab.tcp.loops.plain.hash_pairs`."""
    sender, pair = np.empty((2, len(packets)), np.uint64)
    _call("hash_pairs", packets, len(packets), sender, pair)
    return sender, pair


def find_keys(keys: Hashes, table: Hashes, numbers: Ints) -> Ints:
    """See :func:`nagle_lab.tcp.loops.plain.find_keys`."""
    found = np.empty(len(keys), np.int64)
    _call("find_keys", keys, len(keys), table, numbers, len(table) - 1, found)
    return found


def sort_numbers(numbers: Ints, below: int) -> Ints:
    """See :func:`nagle_lab.tcp.loops.plain.sort_numbers`."""
    if below > 16 * len(numbers):  # counting would take longer than comparing
        return np.argsort(numbers, kind="stable")
    order = np.empty(len(numbers), np.int64)
    if _call("sort_numbers", numbers, len(numbers), below, np.zeros(below + 1, np.int64), order) < 0:
        raise IndexError(f"numbers that are not below {below}")
    return order


def by_pair(packets: Table, sender: Hashes, pair: Ints, order: Ints) -> tuple[Ints, Ints, Ints]:
    """See :func:`nagle_lab.tcp.loops.plain.by_pair`."""
    order, counts = order.copy(), np.empty(2, np.int64)
    starts, syns = np.empty((2, len(order)), np.int64)
    left = _call("by_pair", packets, sender, pair, len(order), order, starts, syns, counts)
    groups, found = counts.tolist()
    return order[:left], starts[:groups], syns[:found]


def unwrap(packets: Table, by: Grouped, halves: Halves, rows: Table) -> None:
    """See :func:`nagle_lab.tcp.loops.plain.unwrap`."""
    _call("unwrap", packets, by, len(by.place), halves, rows)


def latest(conn: Ints, side: Sides, of_kind: Bools) -> tuple[Ints, Ints]:
    """See :func:`nagle_lab.tcp.loops.plain.latest`."""
    own, peer = np.empty((2, len(conn)), np.int64)
    _call("latest", conn, side, of_kind, len(conn), own, peer)
    return own, peer


def notice(rows: Table, least_ns: int) -> Noticed:
    """See :func:`nagle_lab.tcp.loops.plain.notice`."""
    columns, context = np.empty((13, len(rows)), np.int64), np.zeros(len(rows), np.bool_)
    counts = np.empty(4, np.int64)
    _call("notice", rows, len(rows), least_ns, (*columns, context), counts)
    answers, waits, pauses, behind = counts.tolist()
    return Noticed(
        Answers(*columns[0:3, :answers]),
        Waits(*columns[3:7, :waits]),
        Pauses(*columns[7:11, :pauses]),
        Behind(*columns[11:13, :behind]),
        context,
    )


def lower(rows: Table, acker: Ints, wait: Ints, fastest: Ints) -> None:
    """See :func:`nagle_lab.tcp.loops.plain.lower`."""
    _call("lower", rows, acker, wait, len(acker), fastest)


def exchanges(rows: Table, client: Sides, now: Exchanges) -> Ended:
    """See :func:`nagle_lab.tcp.loops.plain.exchanges`."""
    n = len(rows)
    number, (place, *times) = np.empty(n, np.int32), np.empty((len(Ended._fields) - 1, n), np.int64)
    ended = Ended(place, number, *times)
    acker, segment, _ = rows.noticed.answers
    count = _call("exchanges", rows, n, client, acker, segment, len(acker), now, ended)
    return Ended._make(column[:count] for column in ended)


def _call(name: str, *arguments: Any) -> int:
    function = getattr(LIBRARY, name)
    function.restype = ctypes.c_int64
    return int(function(*map(_argument, arguments)))


def _argument(value: Any) -> Any:
    """A column as a pointer, columns as an array of pointers, a number as 64 bits; a table keeps its array."""
    if isinstance(value, np.ndarray):
        return ctypes.c_void_p(_address(value))
    if isinstance(value, int):
        return ctypes.c_int64(value)
    if isinstance(value, tuple):
        return _pointers(value)
    if "pointers" not in vars(value):
        vars(value)["pointers"] = _pointers(value.columns)
    return vars(value)["pointers"]


def _pointers(columns: Sequence[NDArray[Any]]) -> Any:
    return (ctypes.c_void_p * len(columns))(*map(_address, columns))


def _address(column: NDArray[Any]) -> int:
    if not column.flags.c_contiguous:
        raise ValueError("a column with gaps")
    if not column.size or not column.flags.writeable:
        return column.ctypes.data
    return ctypes.addressof(ctypes.c_char.from_buffer(column.data))  # four times as fast
