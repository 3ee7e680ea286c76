"""The pcapng format: sections of blocks, each saying its type and length.

Source: draft-ietf-opsawg-pcapng. Byte order may change from section to section; time-stamp units and link
types from interface to interface.
"""

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from struct import unpack, unpack_from

import numpy as np
from numpy.typing import NDArray

from nagle_lab.capture.clock import MOST_INTERFACES
from nagle_lab.capture.gather import gather
from nagle_lab.capture.records import Facts, Records, StoppedError, TroubleKind
from nagle_lab.capture.window import Window
from nagle_lab.errors import NagleLabError
from nagle_lab.tcp.columns import Ints
from nagle_lab.tcp.loops import ByteOrder, Framing, walk

SECTION, INTERFACE, OBSOLETE_PACKET, SIMPLE_PACKET, STATISTICS, PACKET = 0x0A0D0D0A, 1, 2, 3, 5, 6
MAGIC = SECTION.to_bytes(4, "big")
BYTE_ORDER_MAGIC = 0x1A2B3C4D
BYTE_ORDERS: dict[bytes, ByteOrder] = {b"\x4d\x3c\x2b\x1a": "<", b"\x1a\x2b\x3c\x4d": ">"}
SHORTEST = {SECTION: 28, INTERFACE: 20, OBSOLETE_PACKET: 32, SIMPLE_PACKET: 16, STATISTICS: 24, PACKET: 32}
# No packets, but Wireshark gives them frame numbers: systemd journal, custom, sysdig events.
NUMBERED_TOO = (9, 0xBAD, 0x40000BAD, 0x204, 0x216, 0x221)
PACKET_HEADER = 28  # of both kinds with a time stamp

LONGEST_BLOCK = 1 << 24
MOST_TURNS = 1000  # changes of byte order

END_OF_OPTIONS, IF_TSRESOL, IF_TSOFFSET, ISB_IFDROP = 0, 9, 14, 5
MICROSECONDS = 6  # the resolution where if_tsresol is absent
FARTHEST_OFFSET_S = 1 << 33  # what int64 nanoseconds can say


@dataclass
class _Interface:
    link_type: int
    resolution: int = MICROSECONDS  # if_tsresol: a negative power of ten, with the top bit set of two
    offset_s: int = 0
    dropped: int = 0

    @property
    def unit_ns(self) -> float:
        exponent = self.resolution & 0x7F
        return 1e9 / (2.0 if self.resolution & 0x80 else 10.0) ** exponent


@dataclass(frozen=True)
class _Blocks:
    """Complete blocks of one byte order, in file order; columns of one row per block.

    `first` and `known` delimit the section's interfaces so far, as indexes into a list of all interfaces.
    """

    offset: Ints
    type: NDArray[np.uint32]
    length: NDArray[np.int64]
    timed: NDArray[np.bool_]  # packets with a time stamp
    first: NDArray[np.int64]
    known: NDArray[np.int64]
    interface: NDArray[np.int64]  # index of the interface (packets, statistics)
    ticks: NDArray[np.uint64]  # time (packets), in the unit of the interface
    captured: NDArray[np.int64]  # bytes (packets)
    original: NDArray[np.int64]


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
        self._order: ByteOrder = order
        self._turns = 0
        self._interfaces: list[_Interface] = []  # of the current section
        self._forgotten = 0  # interfaces of those before

    def __iter__(self) -> Iterator[Records]:
        """Batches of records; raises StoppedError where the file is cut or damaged."""
        window = self._window
        try:
            while True:
                follows = yield from self._window_full()
                if window.at_end:
                    break
                window.slide(follows)
            if follows < window.end:
                what = "the file ends in the middle of a block"
                raise StoppedError(TroubleKind.TRUNCATED, window.base + follows, what)
        finally:
            self._forget(len(self._interfaces))

    def _window_full(self) -> Generator[Records, None, int]:
        """The records in the window; returns the offset of the first block that is not complete."""
        window, start = self._window, 0
        while True:
            framing = Framing(self._order, 4, 0, 12, LONGEST_BLOCK)
            offsets, follows = walk(window.buffer, start, window.end, framing)
            blocks = self._blocks(offsets)
            sound, fault = self._sound(blocks)
            if sound < len(offsets):
                follows = int(offsets[sound])
            yield from self._records(blocks, sound)
            if self._turns_at(follows):
                start = follows
                continue
            if fault := fault or self._impossible_length(follows):
                raise self._damage(follows, fault)
            return follows

    def _blocks(self, offsets: Ints) -> _Blocks:
        names = ("type", "length", "interface", "high", "low", "captured", "original")
        head = gather(self._window.buffer, offsets, [(name, self._order + "u4") for name in names])
        kind, interface = head["type"].astype(np.uint32), head["interface"].astype(np.int64)
        captured, original = head["captured"].astype(np.int64), head["original"].astype(np.int64)
        ticks = head["high"].astype(np.uint64) << np.uint64(32) | head["low"]
        obsolete = kind == OBSOLETE_PACKET  # its interface id has 16 bits, then come 16 bits of drop count
        if obsolete.any():
            interface = np.where(obsolete, interface & 0xFFFF if self._order == "<" else interface >> 16, interface)
        known = len(self._interfaces) + np.cumsum(kind == INTERFACE)
        first = np.maximum.accumulate(np.where(kind == SECTION, known, 0))
        return _Blocks(
            offsets, kind, head["length"].astype(np.int64), obsolete | (kind == PACKET), first, known,
            first + interface, ticks, captured, original,
        )  # fmt: skip

    def _sound(self, blocks: _Blocks) -> tuple[int, str]:
        """How many blocks are as they should be, and what is wrong with the one after them (empty: none)."""
        buffer, order, kind, length = self._window.buffer, self._order, blocks.type, blocks.length
        trailer = gather(buffer, blocks.offset + np.maximum(length, 4) - 4, order + "u4")
        shortest = np.full(len(kind), 12)
        for special, size in SHORTEST.items():
            shortest[kind == special] = size
        faults = {
            "a block's two lengths differ": (trailer != length) | (length & 3 != 0),
            "a block is too short for its type": length < shortest,
            "a section header is not one of pcapng 1.x": self._strange_sections(blocks),
            "a packet is longer than its block": blocks.timed & (blocks.captured + SHORTEST[PACKET] > length),
            "a packet names an interface never described": blocks.timed & (blocks.interface >= blocks.known),
            "a section has too many interfaces": blocks.known - blocks.first > MOST_INTERFACES,
        }
        faulty = np.logical_or.reduce(list(faults.values()))
        if not faulty.any():
            return len(kind), ""
        at = int(faulty.argmax())
        return at, next(fault for fault, where in faults.items() if where[at])

    def _records(self, blocks: _Blocks, sound: int) -> Iterator[Records]:
        """The packets of the first `sound` blocks; learns their interfaces."""
        for row in np.flatnonzero(blocks.type[:sound] == INTERFACE):
            self._learn(int(blocks.offset[row]), int(blocks.length[row]))
        for row in np.flatnonzero(blocks.type[:sound] == STATISTICS):
            if blocks.interface[row] < blocks.known[row]:
                interface = self._interfaces[blocks.interface[row]]
                interface.dropped = self._dropped(int(blocks.offset[row]), int(blocks.length[row]))
        timed, kind = blocks.timed[:sound], blocks.type[:sound]
        rows: slice | Ints = slice(sound)
        is_frame = timed
        if not timed.all():
            rows = np.flatnonzero(timed)
            is_frame = timed | (kind == SIMPLE_PACKET) | np.isin(kind, NUMBERED_TOO)
            self._facts.untimed += int((kind == SIMPLE_PACKET).sum())
        if timed.any():
            interface_of = blocks.interface[rows]
            link_type = np.array([interface.link_type for interface in self._interfaces], np.uint16)
            ts, frame = self._times(blocks.ticks[rows], interface_of), self._facts.packets + np.cumsum(is_frame)[rows]
            yield Records(
                buffer=self._window.buffer,
                offset=blocks.offset[rows] + PACKET_HEADER,
                captured=blocks.captured[rows],
                original=blocks.original[rows],
                ts=ts,
                frame=frame,
                link_type=link_type[interface_of],
                stretch=self._facts.clock.stretches(ts, self._forgotten + interface_of, frame),
            )
        self._facts.packets += int(is_frame.sum())
        if sound:
            self._forget(int(blocks.first[sound - 1]))

    def _strange_sections(self, blocks: _Blocks) -> NDArray[np.bool_]:
        """Section headers of the other byte order, of none, or of a version to come."""
        strange = np.zeros(len(blocks.type), np.bool_)
        rows = np.flatnonzero(blocks.type == SECTION)
        magic = gather(self._window.buffer, blocks.offset[rows] + 8, self._order + "u4")
        version = gather(self._window.buffer, blocks.offset[rows] + 12, self._order + "u2")
        strange[rows] = (magic != BYTE_ORDER_MAGIC) | (version != 1)
        return strange

    def _times(self, ticks: NDArray[np.uint64], interface_of: NDArray[np.int64]) -> NDArray[np.int64]:
        """Nanoseconds since 1970."""
        clocks = [(interface.resolution, interface.offset_s * 1_000_000_000) for interface in self._interfaces]
        if len(set(clocks)) == 1:
            resolution, offset = clocks[0]
            ts = nanoseconds(ticks, resolution)
            ts += offset
            return ts
        resolutions, offsets = np.array(clocks, np.int64)[interface_of].T
        ts = np.empty(len(ticks), np.int64)
        for resolution in range(256):
            rows = resolutions == resolution
            ts[rows] = nanoseconds(ticks[rows], resolution)
        ts += offsets
        return ts

    def _learn(self, at: int, length: int) -> None:
        """One interface description block."""
        link_type, _, snaplen = unpack_from(self._order + "HHI", self._window.raw, at + 8)
        interface = _Interface(link_type)
        for code, value in self._options(at + 16, at + length - 4):
            if code == IF_TSRESOL and len(value) == 1:
                interface.resolution = value[0]
            elif code == IF_TSOFFSET and len(value) == 8:
                offset_s = unpack(self._order + "q", value)[0]
                interface.offset_s = max(-FARTHEST_OFFSET_S, min(FARTHEST_OFFSET_S, offset_s))
        self._interfaces.append(interface)
        self._facts.add_interface(link_type, interface.unit_ns, snaplen)

    def _dropped(self, at: int, length: int) -> int:
        """What an interface statistics block says was lost since the capture began."""
        for code, value in self._options(at + 20, at + length - 4):
            if code == ISB_IFDROP and len(value) == 8:
                return int(unpack(self._order + "Q", value)[0])
        return 0

    def _options(self, at: int, end: int) -> Iterator[tuple[int, bytes]]:
        while at + 4 <= end:
            code, size = unpack_from(self._order + "HH", self._window.raw, at)
            at += 4
            if code == END_OF_OPTIONS or at + size > end:
                return
            yield code, bytes(self._window.raw[at : at + size])
            at += size + -size % 4

    def _forget(self, count: int) -> None:
        """Let go of the interfaces of sections that are over."""
        self._facts.dropped += sum(interface.dropped for interface in self._interfaces[:count])
        del self._interfaces[:count]
        self._forgotten += count

    def _turns_at(self, at: int) -> bool:
        """Whether a section of the other byte order begins there; if so, that is the order from now on."""
        raw = self._window.raw
        order = BYTE_ORDERS.get(bytes(raw[at + 8 : at + 12])) if self._is_section(at) else None
        if order in (None, self._order):
            return False
        self._turns += 1
        if self._turns > MOST_TURNS:
            raise self._damage(at, "the byte order changes too often")
        self._order = order
        return True

    def _is_section(self, at: int) -> bool:
        return at + 12 <= self._window.end and self._window.raw[at : at + len(MAGIC)] == MAGIC

    def _impossible_length(self, at: int) -> str:
        raw, end = self._window.raw, self._window.end
        if at + 8 > end or (raw[at : at + len(MAGIC)] == MAGIC and at + 12 > end):
            return ""  # too little of it is there to tell
        length = unpack_from(self._order + "I", raw, at + 4)[0]
        return "" if 12 <= length <= LONGEST_BLOCK else f"a block says it is {length:,} bytes long"

    def _damage(self, at: int, what: str) -> StoppedError:
        return StoppedError(TroubleKind.DAMAGED, self._window.base + at, what)


def nanoseconds(ticks: NDArray[np.uint64], resolution: int) -> NDArray[np.int64]:
    """Time stamps in units of if_tsresol as nanoseconds, rounded down."""
    exponent = resolution & 0x7F
    if resolution & 0x80:
        excess = max(0, exponent - 34)  # finer than int64 arithmetic can take, and than anyone needs
        ticks, exponent = ticks >> np.uint64(min(excess, 63)), exponent - excess
        rest = ticks & np.uint64((1 << exponent) - 1)
        ns = (ticks >> np.uint64(exponent)) * np.uint64(10**9) + (rest * np.uint64(10**9) >> np.uint64(exponent))
    elif exponent <= 9:
        ns = ticks * np.uint64(10 ** (9 - exponent))
    else:
        ns = ticks // np.uint64(10 ** min(exponent - 9, 19))
    return ns.view(np.int64)
