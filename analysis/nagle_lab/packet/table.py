"""The packet table: one row per TCP segment, and the count of everything that did not become a row."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from nagle_lab.tcp.columns import empty_columns

Rows = slice | NDArray[np.int64]


@dataclass(frozen=True)
class Packets:
    """TCP segments in file order, one row each. All columns have one shape, (n,).

    Addresses are 128 bits in two halves; IPv4 is mapped into IPv6 (::ffff:a.b.c.d, RFC 4291 §2.5.5.2). Values are
    those of the innermost IP and TCP headers where one packet carries another.
    """

    frame: NDArray[np.int64]  # 1-based position in the input, as in Wireshark
    ts: NDArray[np.int64]  # ns since 1970-01-01 UTC
    src_hi: NDArray[np.uint64]
    src_lo: NDArray[np.uint64]
    dst_hi: NDArray[np.uint64]
    dst_lo: NDArray[np.uint64]
    sport: NDArray[np.uint16]
    dport: NDArray[np.uint16]
    seq: NDArray[np.uint32]
    ack: NDArray[np.uint32]
    flags: NDArray[np.uint16]  # low 12 bits: reserved, AE, CWR, ECE, URG, ACK, PSH, RST, SYN, FIN
    window: NDArray[np.uint16]  # as on the wire, not scaled
    length: NDArray[np.int32]  # payload bytes on the wire, however few of them were captured
    wire: NDArray[np.uint32]  # bytes of the whole packet on the wire, link layer included where it was captured
    mss: NDArray[np.uint16]  # option; 0 absent
    wscale: NDArray[np.int8]  # option, shift count; -1 absent
    has_ts: NDArray[np.bool_]  # timestamps option
    tsval: NDArray[np.uint32]  # 0 where absent
    tsecr: NDArray[np.uint32]
    sack: NDArray[np.bool_]  # carries SACK blocks
    ip_id: NDArray[np.uint16]  # IPv4 identification: tells a packet seen twice from one sent twice; IPv6: 0
    stretch: NDArray[np.int64]  # only times of one stretch can be compared (:mod:`nagle_lab.capture.clock`)

    def __len__(self) -> int:
        return len(self.frame)

    @property
    def columns(self) -> list[NDArray[Any]]:
        """All of them, in order."""
        return [getattr(self, field.name) for field in fields(self)]

    @classmethod
    def empty(cls, count: int) -> Self:
        """A table of so many rows, with anything in them."""
        return cls(*empty_columns(count, DTYPES))

    def take(self, rows: Rows) -> Self:
        """Some rows, or the same ones in another order."""
        return type(self)(**{field.name: getattr(self, field.name)[rows] for field in fields(self)})

    @classmethod
    def join(cls, tables: Sequence[Self]) -> Self:
        """Several tables (at least one), one after the other."""
        columns = (field.name for field in fields(cls))
        return cls(**{name: np.concatenate([getattr(table, name) for table in tables]) for name in columns})


# Of the columns of Packets.
DTYPES = (
    "i8", "i8", "u8", "u8", "u8", "u8", "u2", "u2", "u4", "u4", "u2", "u2", "i4", "u4", "u2", "i1", "?", "u4", "u4",
    "?", "u2", "i8",
)  # fmt: skip


class Tally:
    """How many packets were not decoded, by what they are."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def add(self, what: str, count: int) -> None:
        """Count more of them."""
        self._counts[what] += count

    @property
    def total(self) -> int:
        """Of all kinds."""
        return self._counts.total()

    def as_dict(self) -> dict[str, int]:
        """{what: count}, most frequent first."""
        return dict(sorted(self._counts.items(), key=lambda item: (-item[1], item[0])))
