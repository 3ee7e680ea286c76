"""A capture copied as pcapng with comments on packets, which Wireshark shows.

Source: draft-ietf-opsawg-pcapng, §3.5 (opt_comment) and §4. A pcapng file stays as it is, block by block; only blocks
that get a comment are rewritten. A pcap file becomes a section of its own, in the file's byte order.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from struct import pack, unpack_from
from typing import BinaryIO

from nagle_lab.capture import writer
from nagle_lab.capture.capture import open_capture
from nagle_lab.capture.clock import Clock
from nagle_lab.capture.pcap import heads
from nagle_lab.capture.pcapng import (
    BYTE_ORDER_MAGIC,
    COMMENT,
    IF_TSRESOL,
    MAGIC,
    PACKET,
    PACKET_HEADER,
    SECTION,
    packet_blocks,
    packet_head,
)
from nagle_lab.capture.records import Interface, PcapFraming
from nagle_lab.capture.window import Window

LONGEST_COMMENT = 60_000  # bytes; an option's length has 16 bits
SECTION_HEADER = 24  # bytes before its options

Bytes = bytes | bytearray


def copy_commented(
    paths: Sequence[str | Path], to: BinaryIO, about: str, comments: Iterable[tuple[int, str]]
) -> tuple[int, str]:
    """Write the packets of a capture file, or of rotated ones as one, to ``to``; returns the number of frames as
    Wireshark counts them, and the SHA-256 of the stored bytes.

    ``about`` is the comment on the first section. ``comments`` are (frame, text) in order of frames, any number per
    frame; a comment on a frame that can have none (no time of capture) goes to the next frame that can. Memory is
    bounded by the window. As in the analysis, damage ends a file, and a rotated file with nothing in it is left out.
    Raises NagleLabError if the first file cannot be read.
    """
    with open_capture(paths) as capture:
        for _ in capture.read(_Copy(to, about, comments)):
            pass
    return capture.packets, capture.sha256


class _Copy:
    """Takes the records of a capture (:class:`nagle_lab.capture.records.RecordTaker`) and writes them."""

    def __init__(self, to: BinaryIO, about: str, comments: Iterable[tuple[int, str]]) -> None:
        self.frames = 0
        self.clock = Clock()
        self._to, self._about = to, about
        self._comments = iter(comments)
        self._next = next(self._comments, None)
        self._window: Window | None = None  # of the file being copied
        self._copied = 0  # bytes of it

    def pcap(self, window: Window, at: int, framing: PcapFraming) -> int:
        """Write pcap records as enhanced packet blocks."""
        order = framing.order
        if self._is_new(window):  # its header is still in the window
            (snaplen,) = unpack_from(order + "I", window.raw, 16)
            self._begin_section(order)
            resolution = pack(order + "HHB3x", IF_TSRESOL, 1, framing.interface.resolution)
            self._to.write(writer.interface_block(order, framing.interface.link_type, snaplen, resolution))
        per_second = 10**framing.interface.resolution
        for start, seconds, fraction, captured, original in heads(window, at, framing):
            self.frames += 1
            at = start + captured
            ticks = seconds * per_second + fraction
            head = pack(order + "IIIII", 0, ticks >> 32, ticks & 0xFFFFFFFF, captured, original)
            packet = window.raw[start:at] + bytes(-captured % 4)
            self._to.write(writer.block(order, PACKET, head + packet + _comments(order, self._due())))
        return at

    def pcapng(self, window: Window, at: int, order: str, interfaces: Sequence[Interface]) -> int:
        """Write packet blocks, preceded by any other blocks that the reader took since the last call."""
        if self._is_new(window):
            self._copied = 0
        begin = self._copied - window.base
        if window.raw[begin:at].startswith(MAGIC):
            # A section may state its length, which changes: -1 is "not specified".
            self._begin_section(
                order, window.raw[begin + 8 : begin + 16], window.raw[begin + SECTION_HEADER : at - 4]
            )
        else:
            self._to.write(window.raw[begin:at])
        for block in packet_blocks(window, at, order, len(interfaces)):
            self.frames += 1
            at = block.end + 4
            if not (due := self._due()):
                self._to.write(window.raw[block.at : at])
                continue
            captured = packet_head(window, block.at, block.type, order).captured
            options = block.at + PACKET_HEADER + captured + -captured % 4
            old = window.raw[options : block.end]
            body = window.raw[block.at + 8 : options]
            self._to.write(writer.block(order, block.type, body + _comments(order, due, old)))
        self._copied = window.base + at
        return at

    def _is_new(self, window: Window) -> bool:
        """Whether another file begins."""
        before, self._window = self._window, window
        return before is not window

    def _due(self) -> list[str]:
        """The comments up to the present frame that have not been written."""
        texts = []
        while self._next and self._next[0] <= self.frames:
            texts.append(self._next[1])
            self._next = next(self._comments, None)
        return texts

    def _begin_section(self, order: str, head: Bytes = b"", options: Bytes = b"") -> None:
        """Write the header of a section; the first one has the comment on the whole."""
        body = (head or pack(order + "IHH", BYTE_ORDER_MAGIC, 1, 0)) + pack("q", -1)  # -1: its length is not stated
        about, self._about = self._about, ""
        self._to.write(writer.block(order, SECTION, body + _comments(order, [about] if about else [], options)))


def _comments(order: str, texts: Sequence[str], others: Bytes = b"") -> Bytes:
    """Options with those comments before ``others``, which have their own end; no options at all without comments."""
    options = b""
    for text in texts:
        content = text.encode("utf-8", "backslashreplace")[:LONGEST_COMMENT].decode("utf-8", "ignore").encode()
        options += writer.option(order, COMMENT, content)
    return options + (others or bytes(4 if options else 0))
