"""Durations of exchanges, counted by connection, hour and length; only these counts are kept of their rows."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from nagle_lab.diagnosis.summary import BEGINS, ENDS
from nagle_lab.tcp.tables import Table

HOUR_NS = 3_600_000_000_000
_HOURS, _BINS = 21, 8  # their bits in a key; the connection has the other bits
_BEGINS, _ENDS = np.array(BEGINS, np.int64), np.array(ENDS, np.int64)  # of the bins, µs
Numbers = npt.NDArray[np.int64]
ExchangeCounts = Numbers
"""Rows of a key, the number of exchanges with it, and their total duration, ns: (n, 3)."""
Rows = Any
"""Packed rows of a layout (tcp/layout.py) as a structured array: (n,)."""


def rows_of(table: Table) -> Iterator[Rows]:
    """The rows of a table of the engine, one chunk after the other."""
    for packed in table.chunks():
        yield np.frombuffer(packed, table.layout.dtype)


def counted(exchanges: Table) -> ExchangeCounts:
    """Counts the answered exchanges in these rows (``exchange`` in tcp/engine.h) by connection, hour of request and
    length.
    """
    found = np.empty((0, 3), np.int64)
    for rows in rows_of(exchanges):
        answered = rows[rows["total"] >= 0]
        steps = np.rint(answered["total"] / 1_000).astype(np.int64)  # as Durations rounds
        hour = np.clip(answered["asked"] // HOUR_NS, 0, (1 << _HOURS) - 1)
        length = np.searchsorted(_BEGINS, steps, "right") - 1
        key = (answered["connection"].astype(np.int64) << _HOURS | hour) << _BINS | length
        found = summed(np.concatenate([found, np.stack([key, np.ones_like(key), answered["total"]], 1)]))
    return found


def summed(rows: ExchangeCounts) -> ExchangeCounts:
    """One row for each key, in ascending order."""
    if not len(rows):
        return rows
    rows = rows[np.argsort(rows[:, 0], kind="stable")]
    begins = np.flatnonzero(np.diff(rows[:, 0], prepend=rows[0, 0] - 1))
    return np.concatenate([rows[begins, :1], np.add.reduceat(rows[:, 1:], begins)], 1)


def by_server(rows: ExchangeCounts, server: npt.NDArray[np.int32]) -> ExchangeCounts:
    """Counts by server from counts by connection: ``server`` has each connection's server number; -1 is left out."""
    of = server[rows[:, 0] >> (_HOURS + _BINS)].astype(np.int64)
    key = (of << (_HOURS + _BINS)) | (rows[:, 0] & ((1 << (_HOURS + _BINS)) - 1))
    return summed(np.concatenate([key[:, None], rows[:, 1:]], 1)[of >= 0])


def parts(rows: ExchangeCounts) -> tuple[Numbers, Numbers, Numbers]:
    """The parts of a key: who, the hour since 1970, and the bin."""
    key = rows[:, 0]
    return key >> (_HOURS + _BINS), (key >> _BINS) & ((1 << _HOURS) - 1), key & ((1 << _BINS) - 1)


def edges_ms(bins: Numbers) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """The edges of bins, ms."""
    return _BEGINS[bins] / 1e3, _ENDS[bins] / 1e3
