"""The comments on packets of a pcapng file, with the interface and direction that the block names.

Source: draft-ietf-opsawg-pcapng, §3.5 (opt_comment), §4.2 (if_name) and §4.3 (epb_flags).
"""

from collections.abc import Callable, Sequence
from struct import unpack

from nagle_lab.capture.clock import Clock
from nagle_lab.capture.pcapng import (
    COMMENT,
    EPB_FLAGS,
    IF_NAME,
    INTERFACE,
    PACKET_HEADER,
    SECTION,
    blocks,
    options,
    packet_blocks,
    packet_head,
)
from nagle_lab.capture.records import Interface, PcapFraming
from nagle_lab.capture.window import Window

INBOUND, OUTBOUND = 1, 2

Comments = Callable[[bytearray, int, int, int, int, list[str], int, str], None]
"""Takes one packet: the buffer it is in, where its link layer begins, how many bytes of it were captured and were on
the wire, its LINKTYPE_… number, its comments, its direction (0: not said), and the name of its interface."""


class CommentTaker:
    """Hands every packet of pcapng sections to ``take`` (:class:`nagle_lab.capture.records.RecordTaker`)."""

    def __init__(self, take: Comments) -> None:
        self.frames = 0
        self.clock = Clock()
        self._take = take
        self._window: Window | None = None
        self._seen = 0  # bytes of the file
        self._names: list[str] = []  # of the section's interfaces

    def pcap(self, window: Window, at: int, framing: PcapFraming) -> int:
        """Skip pcap records, which have no comments."""
        del framing, at
        return window.end

    def pcapng(self, window: Window, at: int, order: str, interfaces: Sequence[Interface]) -> int:
        """Take packet blocks; interfaces' names are read from the other blocks since the last call."""
        if self._window is not window:
            self._window, self._seen = window, 0
        for block in blocks(window, max(self._seen - window.base, 0), order):
            if block.at >= at:
                break
            if block.type == SECTION:
                self._names = []
            elif block.type == INTERFACE:
                found = dict(options(window.raw, order, block.at + 16, block.end))
                self._names.append(found.get(IF_NAME, b"").decode(errors="replace"))
        for block in packet_blocks(window, at, order, len(interfaces)):
            self.frames += 1
            at = block.end + 4
            packet = packet_head(window, block.at, block.type, order)
            begin = block.at + PACKET_HEADER
            said = list(options(window.raw, order, begin + packet.captured + -packet.captured % 4, block.end))
            flags = next((unpack(order + "I", v)[0] for code, v in said if code == EPB_FLAGS and len(v) == 4), 0)
            self._take(
                window.raw, begin, packet.captured, packet.original, interfaces[packet.interface].link_type,
                [value.decode(errors="replace") for code, value in said if code == COMMENT], flags & 3,
                self._names[packet.interface] if packet.interface < len(self._names) else "",
            )  # fmt: skip
        self._seen = window.base + at
        return at
