"""Headers within headers: how far each packet of a batch has been taken apart, and what comes next in it.

Every layer is a function that moves some packets past one header and says what kind comes next in each.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from nagle_lab.capture.gather import gather
from nagle_lab.capture.records import Records
from nagle_lab.packet import kinds
from nagle_lab.packet.table import Rows

MOST_LAYERS = 16


class Layers:
    """Where decoding has got to in each packet of a batch. All columns have one shape, (n,)."""

    def __init__(self, records: Records) -> None:
        self.records = records
        self.buffer = records.buffer
        self.kind = records.link_type.astype(np.int32) | kinds.LINK_TYPE  # what comes next
        self.at = records.offset.copy()  # where it begins in the buffer
        self.captured_end = records.offset + records.captured
        self.wire_end = records.offset + records.original
        self.end = self.wire_end.copy()  # of the innermost IP packet on the wire, by its length field
        count = len(records)
        self.src_hi, self.src_lo, self.dst_hi, self.dst_lo = np.zeros((4, count), np.uint64)
        self.ip_id = np.zeros(count, np.uint16)

    def rows_of(self, kind: int) -> NDArray[np.int64]:
        """The packets in which `kind` comes next."""
        return np.flatnonzero(self.kind == kind)

    def only_kind(self) -> int | None:
        """What comes next in all packets, if that is the same."""
        alike = len(self.kind) and (self.kind == self.kind[0]).all()
        return int(self.kind[0]) if alike else None

    def numbers(self, rows: Rows) -> NDArray[np.int64]:
        """`rows` as row numbers."""
        return np.arange(len(self.kind))[rows] if isinstance(rows, slice) else rows

    def with_bytes(self, rows: Rows, count: int) -> Rows:
        """Those of `rows` with `count` more bytes captured; decoding of the others ends."""
        missing = self.at[rows] + count > self.captured_end[rows]
        if not missing.any():
            return rows
        rows = self.numbers(rows)
        short = rows[missing]
        cut = self.captured_end[short] < self.wire_end[short]
        self.kind[short] |= np.where(cut, kinds.CUT, kinds.INCOMPLETE)
        return rows[~missing]

    def read(self, rows: Rows, layout: DTypeLike, skip: int = 0) -> NDArray[Any]:
        """The next bytes of `rows` from `skip` on; the caller has made sure that they were captured."""
        return gather(self.buffer, self.at[rows] + skip, layout)


Layer = Callable[[Layers, Rows], None]


def always(kind: int, header: int = 0) -> Layer:
    """A layer of fixed length with only one thing ever in it."""

    def layer(layers: Layers, rows: Rows) -> None:
        rows = layers.with_bytes(rows, header)
        layers.kind[rows] = kind
        layers.at[rows] += header

    return layer


def peel(layers: Layers, known: dict[int, Layer]) -> None:
    """Take off all headers that are `known`, from the outermost in."""
    for _ in range(MOST_LAYERS):
        if not _peel_once(layers, known):
            return
    layers.kind[np.isin(layers.kind, list(known))] |= kinds.OPAQUE


def _peel_once(layers: Layers, known: dict[int, Layer]) -> bool:
    """Take off at least one header from every packet that has one; whether there was any."""
    only = layers.only_kind()
    if only is not None:
        if only in known:
            known[only](layers, slice(None))
        return only in known
    moved = False
    for kind, layer in known.items():
        if len(rows := layers.rows_of(kind)):
            layer(layers, rows)
            moved = True
    return moved
