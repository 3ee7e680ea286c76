"""The pcapng format: sections of blocks, each saying its type and length.

Source: draft-ietf-opsawg-pcapng. Byte order may change from section to section; time-stamp units and link
types from interface to interface.
"""

from collections.abc import Iterator
from struct import Struct, unpack, unpack_from
from typing import NamedTuple

from nagle_lab.capture.clock import MOST_INTERFACES
from nagle_lab.capture.kernel_answers import MOST as MOST_ANSWERS
from nagle_lab.capture.kernel_answers import read as read_answer
from nagle_lab.capture.records import Facts, Interface, Position, RecordTaker, Section, StoppedError, TroubleKind
from nagle_lab.capture.window import Window
from nagle_lab.errors import NagleLabError

SECTION, INTERFACE, OBSOLETE_PACKET, SIMPLE_PACKET, STATISTICS, PACKET = 0x0A0D0D0A, 1, 2, 3, 5, 6
MAGIC = SECTION.to_bytes(4, "big")
BYTE_ORDER_MAGIC = 0x1A2B3C4D
BYTE_ORDERS = {b"\x4d\x3c\x2b\x1a": "<", b"\x1a\x2b\x3c\x4d": ">"}
SHORTEST = {SECTION: 28, INTERFACE: 20, OBSOLETE_PACKET: 32, SIMPLE_PACKET: 16, STATISTICS: 24, PACKET: 32}
# Not packets, but Wireshark gives them frame numbers: systemd journal, custom, sysdig events.
NUMBERED_TOO = (9, 0xBAD, 0x40000BAD, 0x204, 0x216, 0x221)
PACKET_HEADER = 28  # of both kinds with a time stamp

SHORTEST_BLOCK, LONGEST_BLOCK = 12, 1 << 24
MOST_ORDER_CHANGES = 1000  # changes of byte order

END_OF_OPTIONS, COMMENT, IF_NAME, IF_TSRESOL, IF_TSOFFSET, EPB_FLAGS, ISB_IFDROP = 0, 1, 2, 9, 14, 2, 5
MICROSECONDS = 6  # the resolution where if_tsresol is absent
FARTHEST_OFFSET_S = 1 << 31
FARTHEST_NS = 1 << 62  # so that the difference of two times also fits into an int64


class PcapngReader:
    """Reads one pcapng file through a window; raises NagleLabError for a header that cannot be used."""

    def __init__(self, window: Window, facts: Facts, name: str) -> None:
        if window.end < SHORTEST[SECTION]:
            raise NagleLabError(f"{name}: ends within the file header: nothing to analyse, record it again")
        order = BYTE_ORDERS.get(bytes(window.raw[8:12]))
        if order is None:
            raise NagleLabError(f"{name}: damaged in the file header (no byte-order magic): record it again")
        major, minor = unpack_from(order + "HH", window.raw, 12)
        if major != 1:
            raise NagleLabError(f"{name}: pcapng version {major}.{minor} is not 1.x: convert it with editcap")
        self._window, self._facts = window, facts
        self._order = order
        self._turns = 0
        self._interfaces: list[Interface] = []  # of the current section
        self._dropped: list[int] = []  # for each interface
        self._forgotten = 0  # interfaces of earlier sections
        self.reached: int | None = None  # the byte where reading ended before the file did
        self.section: Section | None = None  # and how far it had been read then

    def go_to(self, position: Position) -> None:
        """Begin at a position that another reader of the same file has reached; call it before :meth:`read`."""
        assert position.section
        self._order, self._turns, interfaces, dropped, self._forgotten = position.section
        self._interfaces, self._dropped = [*interfaces], [*dropped]
        self._window.go_to(position.at)

    def read(self, taker: RecordTaker, until: int | None = None) -> Iterator[None]:
        """Let the taker take all packets; yields after each window, raises StoppedError where the file is cut or
        damaged.

        Ends with the first window that reaches byte ``until``; ``reached`` is then the position.
        """
        window, at = self._window, 0
        try:
            while True:
                at = self._take_window(taker, at)
                yield
                if window.at_end:
                    break
                if until is not None and window.base + at >= until:
                    self.reached = window.base + at
                    self.section = Section(self._order, self._turns, self._interfaces, self._dropped, self._forgotten)
                    break
                window.slide(at)
                at = 0
            if at < window.end and self.reached is None:
                what = "the file ends in the middle of a block"
                raise StoppedError(TroubleKind.TRUNCATED, window.base + at, what)
        finally:
            self._end_section()

    def _take_window(self, taker: RecordTaker, at: int) -> int:
        """Take the blocks in the window; returns the position of the first that is not complete."""
        while True:
            at = taker.pcapng(self._window, at, self._order, self._interfaces)
            self._change_byte_order(at)
            block = next(blocks(self._window, at, self._order), None)
            if block is None:
                if fault := self._impossible_length(at):
                    raise self._damage(at, fault)
                return at
            if fault := block_fault(self._window, block, self._order, len(self._interfaces)):
                raise self._damage(at, fault)
            self._take_other(taker, block)
            at += block.length

    def _take_other(self, taker: RecordTaker, block: "Block") -> None:
        """Take a block that is no ordinary packet."""
        if block.type == SECTION:
            self._end_section()
        elif block.type == INTERFACE:
            self._add_interface(block)
        elif block.type == STATISTICS:
            self._take_statistics(block)
        elif block.type == SIMPLE_PACKET:
            taker.frames += 1
            self._facts.untimed += 1
        elif block.type in NUMBERED_TOO:
            taker.frames += 1

    def _add_interface(self, block: "Block") -> None:
        (link_type,) = unpack_from(self._order + "H", self._window.raw, block.at + 8)
        resolution, offset_s = MICROSECONDS, 0
        for code, value in options(self._window.raw, self._order, block.at + 16, block.end):
            if code == IF_TSRESOL and len(value) == 1:
                resolution = value[0]
            elif code == IF_TSOFFSET and len(value) == 8:
                offset_s = max(-FARTHEST_OFFSET_S, min(FARTHEST_OFFSET_S, unpack(self._order + "q", value)[0]))
        number = self._forgotten + len(self._interfaces)
        self._interfaces.append(Interface(number, offset_s * 1_000_000_000, link_type, resolution))
        self._dropped.append(0)
        self._facts.link_types[link_type] = None

    def _take_statistics(self, block: "Block") -> None:
        """Read an interface statistics block: packets lost since the capture began, data that waited in a socket."""
        number, high, low = unpack_from(self._order + "III", self._window.raw, block.at + 8)
        if number >= len(self._interfaces):
            return
        facts = self._facts
        for code, value in options(self._window.raw, self._order, block.at + 20, block.end):
            if code == ISB_IFDROP and len(value) == 8:
                (dropped,) = unpack(self._order + "Q", value)
                facts.dropped += dropped - self._dropped[number]
                self._dropped[number] = dropped
            elif code == COMMENT and len(facts.kernel_answers) < MOST_ANSWERS:
                at = nanoseconds(high << 32 | low, self._interfaces[number])
                if answer := read_answer(value.decode(errors="replace"), at):
                    facts.kernel_answers.append(answer)

    def _end_section(self) -> None:
        """Forget the interfaces of a section that is over."""
        self._forgotten += len(self._interfaces)
        self._interfaces, self._dropped = [], []

    def _change_byte_order(self, at: int) -> None:
        """Change the byte order where a section of the other one begins there."""
        raw = self._window.raw
        if at + 12 > self._window.end or raw[at : at + len(MAGIC)] != MAGIC:
            return
        order = BYTE_ORDERS.get(bytes(raw[at + 8 : at + 12]))
        if order in (None, self._order):
            return
        self._turns += 1
        if self._turns > MOST_ORDER_CHANGES:
            raise self._damage(at, "the byte order changes too often")
        self._order = order

    def _impossible_length(self, at: int) -> str:
        raw, end = self._window.raw, self._window.end
        if at + 8 > end or (raw[at : at + len(MAGIC)] == MAGIC and at + 12 > end):
            return ""  # too few bytes to decide
        (length,) = unpack_from(self._order + "I", raw, at + 4)
        return "" if SHORTEST_BLOCK <= length <= LONGEST_BLOCK else f"a block says it is {length:,} bytes long"

    def _damage(self, at: int, what: str) -> StoppedError:
        return StoppedError(TroubleKind.DAMAGED, self._window.base + at, what)


def options(raw: bytearray, order: str, at: int, end: int) -> Iterator[tuple[int, bytes]]:
    """The options of a block between ``at`` and ``end``: code and value, up to the first that does not fit."""
    while at + 4 <= end:
        code, size = unpack_from(order + "HH", raw, at)
        at += 4
        if code == END_OF_OPTIONS or at + size > end:
            return
        yield code, bytes(raw[at : at + size])
        at += size + -size % 4


class Block(NamedTuple):
    """A complete block: where it begins in the window, its type, and its length in bytes."""

    at: int
    type: int
    length: int

    @property
    def end(self) -> int:
        """Where its trailing length begins in the window."""
        return self.at + self.length - 4


def blocks(window: Window, at: int, order: str) -> Iterator[Block]:
    """The complete blocks in the window from ``at`` on, up to one of an impossible length."""
    head_at = Struct(order + "II").unpack_from
    while at + 8 <= window.end:
        kind, length = head_at(window.raw, at)
        if not SHORTEST_BLOCK <= length <= LONGEST_BLOCK or at + length > window.end:
            return
        yield Block(at, kind, length)
        at += length


class PacketHead(NamedTuple):
    """The fields before the packet in an enhanced or obsolete packet block."""

    interface: int  # of the section
    ticks: int  # its time, in the unit of the interface
    captured: int  # bytes
    original: int


def packet_head(window: Window, at: int, kind: int, order: str) -> PacketHead:
    """Read the head of the packet block of type ``kind`` at ``at`` in the window."""
    interface, high, low, captured, original = unpack_from(order + "IIIII", window.raw, at + 8)
    if kind == OBSOLETE_PACKET:  # its interface id has 16 bits, then come 16 bits of drop count
        interface = interface & 0xFFFF if order == "<" else interface >> 16
    return PacketHead(interface, high << 32 | low, captured, original)


def block_fault(window: Window, block: Block, order: str, interfaces: int) -> str:
    """What is wrong with a complete block, "" if nothing; ``interfaces`` is the number that its section has
    described.
    """
    (trailer,) = unpack_from(order + "I", window.raw, block.end)
    if trailer != block.length or block.length & 3:
        return "a block's two lengths differ"
    if block.length < SHORTEST.get(block.type, SHORTEST_BLOCK):
        return "a block is too short for its type"
    if block.type == SECTION:
        magic, version = unpack_from(order + "IH", window.raw, block.at + 8)
        if magic != BYTE_ORDER_MAGIC or version != 1:
            return "a section header is not one of pcapng 1.x"
    if block.type in (PACKET, OBSOLETE_PACKET):
        return _packet_fault(packet_head(window, block.at, block.type, order), block.length, interfaces)
    if block.type == INTERFACE and interfaces >= MOST_INTERFACES:
        return "a section has too many interfaces"
    return ""


def packet_blocks(window: Window, at: int, order: str, interfaces: int) -> Iterator[Block]:
    """Yield blocks from ``at`` on until one is incomplete, not a packet, or has a :func:`block_fault`."""
    for block in blocks(window, at, order):
        if block.type not in (PACKET, OBSOLETE_PACKET) or block_fault(window, block, order, interfaces):
            return
        yield block


def _packet_fault(packet: PacketHead, length: int, interfaces: int) -> str:
    if packet.captured + SHORTEST[PACKET] > length:
        return "a packet is longer than its block"
    return "a packet names an interface never described" if packet.interface >= interfaces else ""


def nanoseconds(ticks: int, interface: Interface) -> int:
    """The time of ``ticks`` of an interface in ns since 1970, rounded down, at most FARTHEST_NS."""
    exponent = interface.resolution & 0x7F
    if interface.resolution & 0x80:
        ns = ticks * 10**9 >> exponent
    elif exponent <= 9:
        ns = ticks * 10 ** (9 - exponent)
    else:
        ns = ticks // 10 ** (exponent - 9)
    return max(-FARTHEST_NS, min(ns + interface.offset_ns, FARTHEST_NS))


def ticks(ns: int, interface: Interface) -> int:
    """The time stamp of an interface at ``ns`` since 1970: the last one that is not later and fits into 64 bits."""
    per_s: int = (2 if interface.resolution & 0x80 else 10) ** (interface.resolution & 0x7F)
    return max(0, min((ns - interface.offset_ns) * per_s // 10**9, (1 << 64) - 1))
