"""What reading a capture yields: batches of records, and what a person must know about the input."""

from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nagle_lab.capture.clock import Clock

PADDING = 128
"""Bytes of a buffer that may be read beyond the end of any record (their content means nothing)."""


@dataclass(frozen=True)
class Records:
    """One batch of captured packets: a window of the input and, per packet, where it lies in there.

    All columns have one row per packet, in file order. A batch is valid until the next one is asked for,
    because the window under it is used again.
    """

    buffer: NDArray[np.uint8]
    offset: NDArray[np.int64]  # of the packet's link layer in `buffer`
    captured: NDArray[np.int64]  # bytes
    original: NDArray[np.int64]  # bytes on the wire
    ts: NDArray[np.int64]  # ns since 1970-01-01 UTC
    frame: NDArray[np.int64]  # 1-based position in the whole input, as in Wireshark
    link_type: NDArray[np.uint16]  # LINKTYPE_… number
    stretch: NDArray[np.int64]  # only times of one stretch can be compared (:mod:`nagle_lab.capture.clock`)

    def __len__(self) -> int:
        return len(self.offset)

    @property
    def columns(self) -> list[NDArray[Any]]:
        """The buffer, then all columns in order."""
        return [getattr(self, field.name) for field in fields(self)]

    def take(self, rows: NDArray[np.int64]) -> "Records":
        """Some rows of the same buffer."""
        return Records(self.buffer, *(column[rows] for column in self.columns[1:]))


class TroubleKind(StrEnum):
    """Why a result is partial, or not to be taken at face value."""

    TRUNCATED = "truncated"  # the input ends in the middle of a record
    DAMAGED = "damaged"  # bytes that cannot be what they should be; nothing after them was read
    CHANGED = "changed"  # the file changed while it was read
    UNORDERED = "unordered"  # rotated files given out of order, or many packets
    SET_BACK = "set back"  # the clock was, between two packets of one interface
    UNTIMED = "untimed"  # packets without a time of capture
    LOST = "lost"  # packets the capturing program says it dropped


class Trouble(str):
    """One thing a person must know about the input: a sentence that names the file, and its `kind`."""

    __slots__ = ("kind",)

    kind: TroubleKind

    def __new__(cls, kind: TroubleKind, text: str) -> "Trouble":
        """A sentence of that kind."""
        trouble = super().__new__(cls, text)
        trouble.kind = kind
        return trouble


class StoppedError(Exception):
    """Why the records of a file end before the file does. Raised after all good ones were yielded."""

    def __init__(self, kind: TroubleKind, position: int, what: str) -> None:
        super().__init__(what)
        self.kind = kind
        self.position = position  # byte of the (decompressed) file
        self.what = what  # is the matter there, as half a sentence


@dataclass
class Facts:
    """What reading found out about the input; complete once all records have been read."""

    formats: dict[str, None] = field(default_factory=dict)  # "pcap", "pcapng", in order of appearance
    compressions: dict[str, None] = field(default_factory=dict)  # "gzip", "zstd", likewise
    link_types: dict[int, None] = field(default_factory=dict)  # LINKTYPE_… numbers, likewise
    resolution_ns: float = 0  # coarsest unit of the time stamps: 1 nanosecond, 1000 microsecond, …
    snaplen: int = 0  # largest one stated, bytes; 0 is "no limit"
    packets: int = 0  # frames in the input, as Wireshark counts them; some may not be yielded
    untimed: int = 0  # of these, without a time of capture and so not yielded
    clock: Clock = field(default_factory=Clock)
    dropped: int = 0  # packets the capturing program says it lost
    trouble: list[Trouble] = field(default_factory=list)

    def add_interface(self, link_type: int, resolution_ns: float, snaplen: int) -> None:
        """Note one interface (a pcap file is one)."""
        self.link_types[link_type] = None
        self.resolution_ns = max(self.resolution_ns, resolution_ns)
        self.snaplen = max(self.snaplen, snaplen)

    def warn(self, kind: TroubleKind, text: str) -> None:
        """Note trouble."""
        self.trouble.append(Trouble(kind, text))
