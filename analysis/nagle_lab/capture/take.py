"""Records taken one by one, in plain Python: the specification, and the code that runs without a C compiler."""

from collections.abc import Callable, Iterator, Sequence
from math import inf
from pathlib import Path
from typing import NamedTuple

from nagle_lab.capture.capture import Capture, open_capture
from nagle_lab.capture.clock import Clock
from nagle_lab.capture.pcap import heads
from nagle_lab.capture.pcapng import PACKET_HEADER as PCAPNG_HEADER
from nagle_lab.capture.pcapng import nanoseconds, packet_blocks, packet_head
from nagle_lab.capture.records import Interface, PcapFraming
from nagle_lab.capture.window import Window
from nagle_lab.errors import NagleLabError


class Record(NamedTuple):
    """One record of a capture."""

    buffer: bytearray  # that contains it
    at: int  # where its link layer begins in the buffer
    captured: int  # bytes
    original: int  # bytes on the wire
    link_type: int  # LINKTYPE_…
    frame: int
    ts: int  # ns since 1970
    epoch: int  # of the clock
    interface: int

    @property
    def data(self) -> bytes:
        """What was captured, from the link layer on."""
        return bytes(self.buffer[self.at : self.at + self.captured])


Take = Callable[[bytearray, int, int, int, int, int, int, int, int], object]
"""Takes the fields of one :class:`Record`, in their order: creating a Record each time would take a third longer."""


def records(capture: Capture) -> Iterator[Record]:
    """Every record of an open capture, in file order; each stays in the buffer until the next one is asked for."""
    taken: list[Record] = []
    for _window in capture.read(Taker(lambda *record: taken.append(Record(*record)))):
        yield from taken
        taken.clear()


def oldest_first(paths: Sequence[Path]) -> Sequence[Path]:
    """The files of one rotated capture by the time of their first packets: a ring (tcpdump -W) begins anywhere.

    Files without packets come last: they say so themselves when they are read. As given if some are no plain files.
    """
    if not all(path.is_file() for path in paths):
        return paths
    began = {path: first_time(path) for path in paths}
    return sorted(paths, key=lambda path: inf if (ns := began[path]) is None else ns)


def first_time(path: str | Path) -> int | None:
    """When the first packet of a capture file was captured, ns since 1970; None if it has none, or is unreadable."""
    try:
        with open_capture(path, window_bytes=1 << 12, sha256=False) as capture:
            return next((record.ts for record in records(capture)), None)
    except NagleLabError:
        return None


class Taker:
    """Hands each record of a capture to ``take``."""

    def __init__(self, take: Take) -> None:
        self.frames = 0
        self.clock = Clock()
        self._take = take

    def pcap(self, window: Window, at: int, framing: PcapFraming) -> int:
        """Take pcap records; see :class:`nagle_lab.capture.records.RecordTaker`."""
        number, link_type = framing.interface.number, framing.interface.link_type
        unit_ns = 1 if framing.interface.resolution == 9 else 1000
        raw, take, epoch_of, frame = window.raw, self._take, self.clock.epoch_of, self.frames
        for start, seconds, fraction, captured, original in heads(window, at, framing):
            frame += 1
            ts = seconds * 1_000_000_000 + fraction * unit_ns
            take(raw, start, captured, original, link_type, frame, ts, epoch_of(ts, number, frame), number)
            at = start + captured
        self.frames = frame
        return at

    def pcapng(self, window: Window, at: int, order: str, interfaces: Sequence[Interface]) -> int:
        """Take packet blocks; see :class:`nagle_lab.capture.records.RecordTaker`."""
        for block in packet_blocks(window, at, order, len(interfaces)):
            packet = packet_head(window, block.at, block.type, order)
            interface = interfaces[packet.interface]
            ts = nanoseconds(packet.ticks, interface)
            self.frames += 1
            self._take(
                window.raw, block.at + PCAPNG_HEADER, packet.captured, packet.original, interface.link_type,
                self.frames, ts, self.clock.epoch_of(ts, interface.number, self.frames), interface.number,
            )  # fmt: skip
            at = block.end + 4
        return at
