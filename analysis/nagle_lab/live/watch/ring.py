"""The last packets, in memory of fixed size: the basis of a live view, and the evidence behind a finding."""

import os
import tempfile
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from struct import pack
from typing import IO

from nagle_lab.capture import pcap
from nagle_lab.capture.kernel_answers import KernelAnswer
from nagle_lab.capture.pcapng import IF_TSOFFSET, IF_TSRESOL, ticks
from nagle_lab.capture.records import Interface, PcapFraming
from nagle_lab.capture.writer import all_options, answer_block, interface_block, section_block

ROOM = 64 << 20  # bytes of records
PIECE_BYTES, PIECE_S = 1 << 18, 1.0  # records that came this close together are dropped together


@dataclass
class _Piece:
    """Complete records that came one after the other."""

    came: float  # time.monotonic() of the first
    first: int  # its frame
    count: int
    records: bytearray
    head: "_PcapHead | _Section"


@dataclass(frozen=True)
class _PcapHead:
    """The beginning of a pcap file of these records."""

    framing: PcapFraming

    def packed(self) -> bytes:
        order, size, interface = self.framing
        magic = pcap.NANOSECOND if interface.resolution == 9 else pcap.MICROSECOND
        magic = pcap.MODIFIED if size == 24 else magic
        return pack(order + "IHHiIII", magic, 2, 4, 0, 0, 1 << 18, interface.link_type)


@dataclass(frozen=True)
class _Section:
    """The beginning of a pcapng section of these blocks; interfaces may still be added to it."""

    order: str
    interfaces: Sequence[Interface]

    def packed(self) -> bytes:
        return section_block(self.order) + b"".join(map(self._described, self.interfaces))

    def said(self, answer: KernelAnswer) -> bytes:
        """The block that Pcapng.add_answer writes, in this section's byte order."""
        return answer_block(self.order, ticks(answer.at, self.interfaces[0]), answer)

    def _described(self, interface: Interface) -> bytes:
        offset = pack(self.order + "q", interface.offset_ns // 10**9)
        options = all_options(self.order, (IF_TSRESOL, bytes([interface.resolution])), (IF_TSOFFSET, offset))
        return interface_block(self.order, interface.link_type, 0, options)


class PacketRing:
    """Keeps the last records of a capture, and drops older ones: a ``RecordSink`` (diagnosis/record_tap.py)."""

    def __init__(self, seconds: float, room: int = ROOM) -> None:
        self.frames = 0  # how many records have come so far
        self.last_came = time.monotonic()
        self._seconds, self._room = seconds, room
        self._pieces: deque[_Piece] = deque()
        self.size = 0  # bytes of the records that are kept

    def pcap(self, records: memoryview, first: int, count: int, framing: PcapFraming) -> None:
        """Keep pcap records; see :class:`nagle_lab.diagnosis.record_tap.RecordSink`."""
        last = self._pieces[-1].head if self._pieces else None
        is_same = isinstance(last, _PcapHead) and last.framing == framing
        self._add(records, first, count, last if is_same and last else _PcapHead(framing))

    def pcapng(
        self, records: memoryview, first: int, count: int, order: str, interfaces: Sequence[Interface]
    ) -> None:
        """Keep packet blocks. The reader has one list of interfaces for each section, and adds to it."""
        last = self._pieces[-1].head if self._pieces else None
        is_same = isinstance(last, _Section) and last.interfaces is interfaces
        self._add(records, first, count, last if is_same and last else _Section(order, interfaces))

    def kernel_answers(self, answers: Sequence[KernelAnswer]) -> None:
        """Keep the kernel's answers together with the last records, and as long as these."""
        if self._pieces and isinstance(self._pieces[-1].head, _Section):
            piece, head = self._pieces[-1], self._pieces[-1].head
            blocks = b"".join(map(head.said, answers))
            piece.records += blocks
            self.size += len(blocks)

    def snapshot(self) -> "Snapshot":
        """A copy of the records that are kept, as a capture."""
        self._forget(time.monotonic())
        return Snapshot(self._content(), self._pieces[0].first if self._pieces else self.frames + 1)

    def _content(self) -> Iterator[bytes | bytearray]:
        before: _PcapHead | _Section | None = None
        for piece in self._pieces:
            if piece.head is not before:
                yield piece.head.packed()
                before = piece.head
            yield piece.records

    def _add(self, records: memoryview, first: int, count: int, head: _PcapHead | _Section) -> None:
        now, last = time.monotonic(), self._pieces[-1] if self._pieces else None
        self.frames = first + count - 1
        self.last_came = now
        self.size += len(records)
        if last and last.head is head and now - last.came < PIECE_S and len(last.records) < PIECE_BYTES:
            last.records += records
            last.count += count
        else:
            self._pieces.append(_Piece(now, first, count, bytearray(records), head))
        self._forget(now)

    def _forget(self, now: float) -> None:
        while self._pieces and (self.size > self._room or now - self._pieces[0].came > self._seconds):
            self.size -= len(self._pieces.popleft().records)


class Snapshot(ExitStack):
    """Records of a moment, as a capture file in memory: at ``path``, until it is closed."""

    def __init__(self, content: Iterator[bytes | bytearray], first: int) -> None:
        super().__init__()
        self.first = first  # the frame of its first record in the whole stream
        file: IO[bytes]
        if hasattr(os, "memfd_create"):
            file = self.enter_context(os.fdopen(os.memfd_create("nagle-lab-watch"), "wb"))
            self.path = Path(f"/proc/self/fd/{file.fileno()}")
        else:
            file = self.enter_context(tempfile.NamedTemporaryFile(prefix="nagle-lab-watch-"))  # noqa: SIM115
            self.path = Path(file.name)
        for part in content:
            file.write(part)
        file.flush()
