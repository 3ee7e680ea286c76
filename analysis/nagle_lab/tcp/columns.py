"""What everything that works on columns shares: their types, runs of equal values, and the bits of TCP's flags."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Bytes = NDArray[np.uint8]
Sides = NDArray[np.int8]  # 0 or 1: an end of a connection
Columns = dict[str, NDArray[Any]]  # of a table, by name

FIN, SYN, RST, PSH, ACK = 0x01, 0x02, 0x04, 0x08, 0x10


def empty_columns(count: int, dtypes: Iterable[DTypeLike]) -> list[NDArray[Any]]:
    """Columns of so many rows with anything in them, all in one piece of memory: a large one is of huge pages."""
    kinds = [np.dtype(dtype) for dtype in dtypes]
    edges = np.cumsum([0, *(-(-count * kind.itemsize // 64) * 64 for kind in kinds)]).tolist()
    memory = np.empty(edges[-1], np.uint8)
    starts = zip(edges, kinds, strict=False)
    return [memory[start : start + count * kind.itemsize].view(kind) for start, kind in starts]


def runs(grouped: NDArray[Any]) -> Ints:
    """Where each run of equal values begins."""
    return np.concatenate([[0], np.flatnonzero(grouped[1:] != grouped[:-1]) + 1])[: len(grouped)]


def distinct(*parts: Ints) -> Ints:
    """Every value of the parts once, sorted."""
    values = np.sort(np.concatenate(parts))
    return values[runs(values)]


def ranked(values: Ints) -> tuple[Ints, Ints]:
    """Every value once, sorted, and of each of the values (n,) which of them it is."""
    low, among = _close_together(values)
    if not among:
        return np.unique(values, return_inverse=True)
    there = np.zeros(among, np.bool_)
    there[values - low] = True
    return np.flatnonzero(there) + low, (np.cumsum(there) - 1)[values - low]


def counted(values: Ints) -> tuple[Ints, Ints]:
    """Every value once, sorted, and how often it is among the values (n,)."""
    low, among = _close_together(values)
    if not among:
        return np.unique(values, return_counts=True)
    counts = np.bincount(values - low, minlength=among)
    there = np.flatnonzero(counts)
    return there + low, counts[there]


def _close_together(values: Ints) -> tuple[int, int]:
    """The least, and how many numbers it is to the largest; 0 where a table of them all takes longer than sorting."""
    if not len(values):
        return 0, 0
    low, high = int(values.min()), int(values.max())
    return low, high - low + 1 if high - low < 4 * len(values) else 0


def table(dtype: np.dtype[np.void], columns: Columns, which: Bools) -> NDArray[np.void]:
    """Some rows of those columns, as a structured table that has some of them."""
    rows = np.empty(np.count_nonzero(which), dtype)
    for name in dtype.names or ():
        rows[name] = columns[name][which]
    return rows


def opaque(rows: NDArray[np.void]) -> NDArray[np.void]:
    """Rows of a structured table (contiguous) as bytes: NumPy gathers field by field else, eight times slower."""
    return rows.view(f"V{rows.itemsize}")


def picked(rows: NDArray[np.void], which: NDArray[Any]) -> NDArray[np.void]:
    """Some rows of a structured table, a copy."""
    return np.asarray(opaque(np.ascontiguousarray(rows))[which].view(rows.dtype))
