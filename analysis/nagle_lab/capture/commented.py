"""A capture copied as pcapng with comments on packets, which Wireshark shows.

Source: draft-ietf-opsawg-pcapng, §3.5 (opt_comment) and §4. What is pcapng stays as it is, block by block; only the
blocks that get a comment are written anew. What is pcap becomes a section of its own, in the file's byte order.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from struct import pack, unpack_from
from typing import BinaryIO

import numpy as np

from nagle_lab.capture import pcap
from nagle_lab.capture.capture import COMPRESSIONS, MAGIC_BYTES
from nagle_lab.capture.compression import Decompressed, Source
from nagle_lab.capture.pcap import PcapReader
from nagle_lab.capture.pcapng import (
    BYTE_ORDER_MAGIC,
    BYTE_ORDERS,
    IF_TSRESOL,
    INTERFACE,
    LONGEST_BLOCK,
    MAGIC,
    NUMBERED_TOO,
    OBSOLETE_PACKET,
    PACKET,
    PACKET_HEADER,
    SECTION,
    SHORTEST,
    SIMPLE_PACKET,
)
from nagle_lab.capture.records import Facts, Records, StoppedError
from nagle_lab.capture.stored import Checksum, Stored
from nagle_lab.capture.window import WINDOW_BYTES, Window
from nagle_lab.errors import NagleLabError
from nagle_lab.tcp.loops import ByteOrder

COMMENT = 1  # opt_comment
LONGEST_COMMENT = 60_000  # bytes; an option's length has 16 bits
SECTION_HEADER = 24  # bytes before its options
FRAMES = {PACKET, OBSOLETE_PACKET, SIMPLE_PACKET, *NUMBERED_TOO}  # what Wireshark numbers
TIMED = (PACKET, OBSOLETE_PACKET)  # what can have a comment, and what the analysis sees
_HEADER = ("type", "length", "interface", "high", "low", "captured", "original")


@dataclass(frozen=True)
class Copied:
    """What was read: frames as Wireshark counts them, and the SHA-256 of the stored bytes."""

    packets: int
    sha256: str


def copy_commented(
    paths: Sequence[str | Path], to: BinaryIO, about: str, comments: Iterable[tuple[int, str]]
) -> Copied:
    """Write the packets of a capture file, or of rotated ones as one, to ``to``.

    ``about`` is the comment on the first section. ``comments`` are (frame, text) in order of frames, any number per
    frame; one on a frame that can have none (no time of capture) goes to the next that can. Memory is bounded by the
    window. As in the analysis, damage ends a file, and a rotated file with nothing in it is left out.

    Raises
    ------
    NagleLabError
        The first file cannot be read.
    """
    copy = _Copy(to, about, comments)
    for number, path in enumerate(paths):
        try:
            copy.file(str(path))
        except NagleLabError:
            if not number:
                raise
    return Copied(copy.facts.packets, copy.checksum.hexdigest())


class _Copy:
    """Files copied one after the other."""

    def __init__(self, to: BinaryIO, about: str, comments: Iterable[tuple[int, str]]) -> None:
        self.facts, self.checksum = Facts(), Checksum()
        self._to, self._about = to, about
        self._comments = iter(comments)
        self._next = next(self._comments, None)

    def file(self, path: str) -> None:
        """Copy one file."""
        stored = Stored(path, self.checksum)
        try:
            window = Window(_decompressed(stored), size=WINDOW_BYTES)
            order, magic = pcap.MAGICS.get(bytes(window.raw[:4]), ("<", 0))
            if magic:
                self._pcap(window, stored.name, order, 1 if magic == pcap.NANOSECOND else 1000)
            elif window.raw[: len(MAGIC)] == MAGIC:
                self._pcapng(window)
            else:
                raise NagleLabError(f"{path}: not a capture: give a pcap or pcapng file")
            stored.drain()
        finally:
            stored.close()

    def _due(self, frame: int) -> list[str]:
        """The comments up to that frame that have not been written."""
        texts = []
        while self._next and self._next[0] <= frame:
            texts.append(self._next[1])
            self._next = next(self._comments, None)
        return texts

    def _section_comment(self, order: ByteOrder) -> bytes:
        """Of the first section; empty for those after it."""
        about, self._about = self._about, ""
        return _comments(order, [about] if about else [])

    # -- pcap ------------------------------------------------------------------------------------

    def _pcap(self, window: Window, name: str, order: ByteOrder, unit_ns: int) -> None:
        reader = PcapReader(window, self.facts, name)
        snaplen, link_type = unpack_from(order + "II", window.raw, 16)
        section = pack(order + "IHHq", BYTE_ORDER_MAGIC, 1, 0, -1)
        self._to.write(_block(order, SECTION, section, self._section_comment(order)))
        resolution = pack(order + "HHB3x", IF_TSRESOL, 1, 9 if unit_ns == 1 else 6)
        self._to.write(_block(order, INTERFACE, pack(order + "HHI", link_type & 0xFFFF, 0, snaplen), resolution))
        try:
            for records in reader:
                self._to.write(self._packets(records, order, unit_ns))
        except StoppedError:
            pass  # the result of the analysis tells of it

    def _packets(self, records: Records, order: ByteOrder, unit_ns: int) -> bytearray:
        """The records as enhanced packet blocks."""
        options = self._options(order, records)
        ticks, count = records.ts // unit_ns, len(records)
        padded = records.captured + -records.captured % 4
        lengths = SHORTEST[PACKET] + padded
        for row, option in options.items():
            lengths[row] += len(option)
        starts = np.cumsum(lengths) - lengths
        head = np.zeros(count, [(name, order + "u4") for name in _HEADER])
        columns = (PACKET, lengths, 0, ticks >> 32, ticks & 0xFFFFFFFF, records.captured, records.original)
        for name, column in zip(_HEADER, columns, strict=True):
            head[name] = column
        heads, size = head.tobytes(), PACKET_HEADER
        out = bytearray(int(lengths.sum()))
        source = memoryview(records.buffer)  # type: ignore[arg-type]  # an array is a buffer
        rows = zip(starts.tolist(), lengths.tolist(), records.offset.tolist(), records.captured.tolist(), strict=True)
        for row, (at, length, offset, captured) in enumerate(rows):
            out[at : at + size] = heads[row * size : row * size + size]
            out[at + size : at + size + captured] = source[offset : offset + captured]
            out[at + length - 4 : at + length] = heads[row * size + 4 : row * size + 8]
        for row, option in options.items():
            end = int(starts[row] + lengths[row]) - 4
            out[end - len(option) : end] = option
        return out

    def _options(self, order: ByteOrder, records: Records) -> dict[int, bytes]:
        """The comments on these records, by row."""
        found: dict[int, bytes] = {}
        first, last = int(records.frame[0]), int(records.frame[-1])
        while self._next and self._next[0] <= last:
            frame = max(first, self._next[0])
            found[frame - first] = _comments(order, self._due(frame))
        return found

    # -- pcapng ----------------------------------------------------------------------------------

    def _pcapng(self, window: Window) -> None:
        blocks, done = _Blocks(window), 0
        while True:
            for at, kind, length in blocks:
                if new := self._anew(blocks, at, kind, length):
                    self._to.write(window.raw[done:at])
                    self._to.write(new)
                    done = at + length
            self._to.write(window.raw[done : blocks.at])
            if blocks.stopped or window.at_end:
                return
            blocks.slide()
            done = 0

    def _anew(self, blocks: "_Blocks", at: int, kind: int, length: int) -> bytes:
        """A block with what is added to it; empty where it stays as it is."""
        raw, order = blocks.window.raw, blocks.order
        self.facts.packets += kind in FRAMES
        if kind == SECTION:  # it may say its length, which changes: −1 is "not said"
            body = bytes(raw[at + 8 : at + 16]) + pack("q", -1)
            old, added = bytes(raw[at + SECTION_HEADER : at + length - 4]), self._section_comment(order)
        elif kind in TIMED and self._next and self._next[0] <= self.facts.packets:
            captured = unpack_from(order + "I", raw, at + 20)[0]
            options = at + PACKET_HEADER + captured + -captured % 4
            body, old = bytes(raw[at + 8 : options]), bytes(raw[options : at + length - 4])
            added = _comments(order, self._due(self.facts.packets))
        else:
            return b""
        # Ours first, without an end of options where others follow.
        return _block(order, kind, body, added[: -4 if old else None] + old if added else old)


class _Blocks:
    """The complete and sound blocks of a window, with what is needed to tell that; ``at`` is behind the last one."""

    def __init__(self, window: Window) -> None:
        self.window = window
        self.order: ByteOrder = "<"
        self.at = 0
        self.stopped = False  # at damage
        self._interfaces = 0  # of the section

    def slide(self) -> None:
        """Read on."""
        self.window.slide(self.at)
        self.at = 0

    def __iter__(self) -> Iterator[tuple[int, int, int]]:
        """Offset, type and length of each."""
        raw, end = self.window.raw, self.window.end
        while self.at + 12 <= end:
            if raw[self.at : self.at + len(MAGIC)] == MAGIC:
                self.order = BYTE_ORDERS.get(bytes(raw[self.at + 8 : self.at + 12]), self.order)
            kind, length = unpack_from(self.order + "II", raw, self.at)
            if length < 12 or length > LONGEST_BLOCK:
                self.stopped = True
            if self.stopped or self.at + length > end:
                return
            if not self._sound(kind, length):
                self.stopped = True
                return
            yield self.at, kind, length
            self.at += length

    def _sound(self, kind: int, length: int) -> bool:
        """As the reader for the analysis sees it; see PcapngReader."""
        raw, at, order = self.window.raw, self.at, self.order
        if length & 3 or length < SHORTEST.get(kind, 12):
            return False
        if unpack_from(order + "I", raw, at + length - 4)[0] != length:
            return False
        if kind == SECTION:
            self._interfaces = 0
            return bool(unpack_from(order + "IH", raw, at + 8) == (BYTE_ORDER_MAGIC, 1))
        self._interfaces += kind == INTERFACE
        if kind not in TIMED:
            return True
        interface = unpack_from(order + ("H" if kind == OBSOLETE_PACKET else "I"), raw, at + 8)[0]
        captured = unpack_from(order + "I", raw, at + 20)[0]
        return bool(interface < self._interfaces and captured + SHORTEST[PACKET] <= length)


def _decompressed(stored: Stored) -> Source:
    """The file's bytes, decompressed where its first ones say so."""
    head = bytearray(MAGIC_BYTES)
    have = 0
    while have < MAGIC_BYTES and (count := stored.readinto(memoryview(head)[have:])):
        have += count
    head = head[:have]
    for magic, compression in COMPRESSIONS.items():
        if head.startswith(magic):
            return Decompressed(stored, compression, bytes(head))
    return _After(bytes(head), stored)


class _After:
    """A Source: some bytes, then those of another."""

    def __init__(self, head: bytes, rest: Source) -> None:
        self._head, self._rest = head, rest

    def readinto(self, view: memoryview) -> int:
        """Fill `view` from its start; returns the count, 0 at the end."""
        if not self._head:
            return self._rest.readinto(view)
        count = min(len(view), len(self._head))
        view[:count] = self._head[:count]
        self._head = self._head[count:]
        return count


def _block(order: ByteOrder, kind: int, body: bytes, options: bytes) -> bytes:
    length = 12 + len(body) + len(options)
    return pack(order + "II", kind, length) + body + options + pack(order + "I", length)


def _comments(order: ByteOrder, texts: Sequence[str]) -> bytes:
    """Options with those comments, and the end of options; empty for none."""
    options = b""
    for text in texts:
        content = text.encode("utf-8", "backslashreplace")[:LONGEST_COMMENT].decode("utf-8", "ignore").encode()
        options += pack(order + "HH", COMMENT, len(content)) + content + bytes(-len(content) % 4)
    return options and options + bytes(4)
