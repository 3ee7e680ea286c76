"""TCP headers and options. Sources: RFC 9293; RFC 7323 (window scale, timestamps); RFC 2018 (SACK)."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nagle_lab.capture.gather import gather
from nagle_lab.packet import kinds
from nagle_lab.packet.layers import Layers
from nagle_lab.packet.table import Packets, Rows

Ints = NDArray[np.int64]
Bytes = NDArray[np.uint8]

SHORTEST = 20
MOST_OPTIONS = 40  # there is no room for more

# The header and the options of nearly every segment: NOP, NOP, timestamps.
HEADER = np.dtype(
    [
        ("sport", ">u2"), ("dport", ">u2"), ("seq", ">u4"), ("ack", ">u4"), ("offset_flags", ">u2"),
        ("window", ">u2"), ("checksum", ">u2"), ("urgent", ">u2"),
        ("option", ">u4"), ("tsval", ">u4"), ("tsecr", ">u4"),
    ]
)  # fmt: skip
NOP_NOP_TIMESTAMPS = 0x0101080A

END, NOP, MSS, WINDOW_SCALE, SACK, TIMESTAMPS = 0, 1, 2, 3, 5, 8


def segments(layers: Layers) -> Packets:
    """The packet table of all packets in which TCP comes next; notes on the others why they are not in it."""
    rows: Rows = slice(None) if layers.only_kind() == kinds.TCP else layers.rows_of(kinds.TCP)
    rows = layers.with_bytes(rows, SHORTEST)
    head = layers.read(rows, HEADER)
    header = (head["offset_flags"] >> 12).astype(np.int64) * 4
    length = layers.end[rows] - layers.at[rows] - header
    bad = (header < SHORTEST) | (length < 0)
    if bad.any():
        rows = layers.numbers(rows)
        layers.kind[rows[bad]] |= kinds.MALFORMED
        rows, head, header, length = rows[~bad], head[~bad], header[~bad], length[~bad]
    records = layers.records
    options = _Options(layers, rows, head, header)
    return Packets(
        frame=records.frame[rows], ts=records.ts[rows],
        src_hi=layers.src_hi[rows], src_lo=layers.src_lo[rows],
        dst_hi=layers.dst_hi[rows], dst_lo=layers.dst_lo[rows],
        sport=head["sport"].astype(np.uint16), dport=head["dport"].astype(np.uint16),
        seq=head["seq"].astype(np.uint32), ack=head["ack"].astype(np.uint32),
        flags=head["offset_flags"].astype(np.uint16) & np.uint16(0xFFF), window=head["window"].astype(np.uint16),
        length=length.astype(np.int32), wire=records.original[rows].astype(np.uint32),
        mss=options.mss, wscale=options.wscale, has_ts=options.has_ts, tsval=options.tsval, tsecr=options.tsecr,
        sack=options.sack, ip_id=layers.ip_id[rows], stretch=records.stretch[rows],
    )  # fmt: skip


class _Options:
    """The columns that come from options."""

    def __init__(self, layers: Layers, rows: Rows, head: NDArray[Any], header: Ints) -> None:
        count = len(head)
        self.mss = np.zeros(count, np.uint16)
        self.wscale = np.full(count, -1, np.int8)
        self.sack = np.zeros(count, np.bool_)
        start = layers.at[rows]
        end = np.minimum(start + header, layers.captured_end[rows])
        usual = (header == HEADER.itemsize) & (head["option"] == NOP_NOP_TIMESTAMPS) & (end - start == header)
        self.has_ts = usual.copy()
        self.tsval = np.where(usual, head["tsval"], 0).astype(np.uint32)
        self.tsecr = np.where(usual, head["tsecr"], 0).astype(np.uint32)
        other = np.flatnonzero(~usual & (header > SHORTEST))
        self._read(layers.buffer, other, start[other] + SHORTEST, end[other])

    def _read(self, buffer: Bytes, rows: Ints, at: Ints, end: Ints) -> None:
        """The options of `rows` (n,), which lie from `at` to `end` in the buffer: one each per round."""
        for _ in range(MOST_OPTIONS):
            if not len(rows):
                return
            kind = gather(buffer, at, "u1")
            size = np.where(kind == NOP, 1, gather(buffer, at + 1, "u1")).astype(np.int64)
            whole = (at < end) & (at + size <= end) & ((kind == NOP) | (size >= 2)) & (kind != END)
            self._take(buffer, rows, at, np.where(whole, kind, END), size)
            rows, at, end = rows[whole], (at + size)[whole], end[whole]

    def _take(self, buffer: Bytes, rows: Ints, at: Ints, kind: Bytes, size: Ints) -> None:
        """Note one option of each of `rows`."""
        found = (kind == MSS) & (size == 4)
        self.mss[rows[found]] = gather(buffer, at[found] + 2, ">u2")
        found = (kind == WINDOW_SCALE) & (size == 3)
        self.wscale[rows[found]] = np.minimum(gather(buffer, at[found] + 2, "u1"), 127)
        self.sack[rows[(kind == SACK) & (size > 2)]] = True
        found = (kind == TIMESTAMPS) & (size == 10)
        self.has_ts[rows[found]] = True
        self.tsval[rows[found]] = gather(buffer, at[found] + 2, ">u4")
        self.tsecr[rows[found]] = gather(buffer, at[found] + 6, ">u4")
