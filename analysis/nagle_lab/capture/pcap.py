"""The pcap format: a file header, then records of a small header and a packet.

Source: draft-ietf-opsawg-pcap; the "modified" variant (longer record headers) from libpcap's sf-pcap.c.
"""

from collections.abc import Iterator
from struct import unpack_from
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nagle_lab.capture.gather import gather
from nagle_lab.capture.records import Facts, Records, StoppedError, TroubleKind
from nagle_lab.capture.window import Window
from nagle_lab.errors import NagleLabError
from nagle_lab.tcp.columns import Ints
from nagle_lab.tcp.loops import ByteOrder, Framing, walk

MICROSECOND, NANOSECOND, MODIFIED = 0xA1B2C3D4, 0xA1B23C4D, 0xA1B2CD34
MAGICS: dict[bytes, tuple[ByteOrder, int]] = {
    magic.to_bytes(4, "little" if order == "<" else "big"): (order, magic)
    for magic in (MICROSECOND, NANOSECOND, MODIFIED)
    for order in ("<", ">")
}
FILE_HEADER = 24
LONGEST_PACKET = 1 << 20  # captured bytes; libpcap's MAXIMUM_SNAPLEN is 262,144


class PcapReader:
    """Reads one pcap file through a window; raises NagleLabError for a header that cannot be used."""

    def __init__(self, window: Window, facts: Facts, name: str) -> None:
        if window.end < FILE_HEADER:
            raise NagleLabError(f"{name}: ends within the file header: nothing to analyse, record it again")
        head = window.buffer[:FILE_HEADER].tobytes()
        order, magic = MAGICS[head[:4]]
        major, minor, _, _, snaplen, link_type = unpack_from(order + "HHiIII", head, 4)
        if (major, minor) != (2, 4):
            raise NagleLabError(f"{name}: pcap version {major}.{minor} is not 2.4: convert it with editcap")
        self._window, self._facts = window, facts
        self._unit_ns = 1 if magic == NANOSECOND else 1000
        self._link_type = link_type & 0xFFFF  # the rest tells of a frame check sequence
        header = 24 if magic == MODIFIED else 16
        self._framing = Framing(order, 8, header, header, header + LONGEST_PACKET)
        self._layout = np.dtype([(name, order + "u4") for name in ("seconds", "fraction", "captured", "original")])
        facts.add_interface(self._link_type, self._unit_ns, snaplen)

    def __iter__(self) -> Iterator[Records]:
        """Batches of records; raises StoppedError where the file is cut or damaged."""
        window, start = self._window, FILE_HEADER
        while True:
            offsets, follows = walk(window.buffer, start, window.end, self._framing)
            heads = gather(window.buffer, offsets, self._layout)
            blank = np.flatnonzero((heads["captured"] == 0) & (heads["original"] == 0))
            if len(blank):  # no packet has no bytes: whatever this is, the chain is broken
                follows = int(offsets[blank[0]])
                offsets, heads = offsets[: blank[0]], heads[: blank[0]]
            if len(offsets):
                yield self._records(offsets, heads)
            if len(blank) or self._impossible_length(follows):
                raise self._damage(follows)
            if window.at_end:
                break
            window.slide(follows)
            start = 0
        if follows < window.end:
            what = "the file ends in the middle of the record"
            raise StoppedError(TroubleKind.TRUNCATED, window.base + follows, what)

    def _records(self, offsets: Ints, heads: NDArray[Any]) -> Records:
        count, first = len(offsets), self._facts.packets + 1
        self._facts.packets += count
        seconds, fraction = heads["seconds"].astype(np.int64), heads["fraction"].astype(np.int64)
        ts, frame = seconds * 1_000_000_000 + fraction * self._unit_ns, np.arange(first, first + count)
        return Records(
            buffer=self._window.buffer,
            offset=offsets + self._framing.uncounted,
            captured=heads["captured"].astype(np.int64),
            original=heads["original"].astype(np.int64),
            ts=ts,
            frame=frame,
            link_type=np.full(count, self._link_type, np.uint16),
            stretch=self._facts.clock.stretches(ts, np.zeros(count, np.int64), frame),
        )

    def _impossible_length(self, offset: int) -> bool:
        if offset + self._framing.header > self._window.end:
            return False  # too little of it is there to tell
        captured: int = unpack_from(self._framing.byte_order + "I", self._window.raw, offset + 8)[0]
        return captured > LONGEST_PACKET

    def _damage(self, offset: int) -> StoppedError:
        buffer, position = self._window.buffer, self._window.base + offset
        if buffer[offset : offset + 4].tobytes() in MAGICS:
            what = "another capture file begins (give joined files one by one)"
        elif not buffer[offset : offset + 16].any():
            what = "there are zeros instead of a record"
        else:
            what = "there is something else than a record"
        return StoppedError(TroubleKind.DAMAGED, position, what)
