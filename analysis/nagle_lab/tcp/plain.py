"""The engine in plain Python: records, decoding and the machine, one packet after the other."""

import io
import pickle
from collections import Counter, deque
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, Self
from zlib import crc32

from nagle_lab.capture import clock, pcap, pcapng, take
from nagle_lab.capture.clock import Clock, Watched
from nagle_lab.capture.records import Interface, PcapFraming
from nagle_lab.capture.take import Taker
from nagle_lab.capture.window import Window
from nagle_lab.packet import headers, ip, kinds, link, segment
from nagle_lab.packet.segment import Kernel, Segment, decode
from nagle_lab.tcp import connection, durations, events, learned, machine, waited
from nagle_lab.tcp.connection import Acknowledgement, Connection, Half, Samples, Sent
from nagle_lab.tcp.durations import Durations
from nagle_lab.tcp.engine import EngineTotals
from nagle_lab.tcp.events import EndedBy
from nagle_lab.tcp.layout import HEADERS
from nagle_lab.tcp.machine import Machine

SOURCES = (
    machine, waited, learned, connection, events, durations,
    segment, headers, ip, kinds, link, take, pcap, pcapng, clock,
)  # fmt: skip
# The types in a snapshot, besides numbers, bytes, tuples and dicts: no others are created.
_TYPES = (
    Acknowledgement, Clock, Connection, Counter, Durations, EndedBy, Half, Kernel, Samples, Segment, Sent, Watched,
    deque,
)  # fmt: skip
MADE_OF = {made.__name__: made for made in _TYPES}


class PlainEngine(Taker):
    """See :class:`nagle_lab.tcp.engine.Engine`."""

    def __init__(self, *, exchanges: bool = True, in_place: bool = True) -> None:
        super().__init__(self._take_record)
        self._segments: list[Segment] = []  # of one window, to be followed together
        self.machine = Machine(exchanges=exchanges, in_place=in_place)
        self.tables = self.machine.tables
        self.lists_exchanges = exchanges
        self._not_decoded: Counter[int] = Counter()

    def _take_record(
        self, buffer: bytearray, at: int, captured: int, original: int, link_type: int, frame: int, ts: int,
        epoch: int, interface: int,
    ) -> None:  # fmt: skip
        segment = decode(buffer, at, captured, original, link_type, frame, ts, epoch, interface)
        if isinstance(segment, int):
            self._not_decoded[segment] += 1
        else:
            self._segments.append(segment)

    def pcap(self, window: Window, at: int, framing: PcapFraming) -> int:
        """Take pcap records; see :class:`nagle_lab.capture.records.RecordTaker`."""
        at = super().pcap(window, at, framing)
        self._follow()
        return at

    def pcapng(self, window: Window, at: int, order: str, interfaces: Sequence[Interface]) -> int:
        """Take packet blocks; see :class:`nagle_lab.capture.records.RecordTaker`."""
        at = super().pcapng(window, at, order, interfaces)
        self._follow()
        return at

    def _follow(self) -> None:
        self.machine.follow(self._segments)
        self._segments.clear()

    def drain(self) -> None:
        """Nothing to do: rows are added to the tables as they are found."""

    def finish(self) -> None:
        """The capture is over."""
        self.machine.finish()

    @property
    def connections(self) -> int:
        """How many connections there were so far."""
        return self.machine.connections

    def totals(self) -> EngineTotals:
        """What was counted so far."""
        m = self.machine
        return EngineTotals(
            m.connections, m.segments, m.copies, m.pure_acks,
            m.first_ts, m.last_ts, m.resolution, m.durations, self._not_decoded,
        )  # fmt: skip

    @property
    def build(self) -> str:
        """The sources and the machine it is built for: see :class:`nagle_lab.tcp.engine.Engine`."""
        return f"plain Python {_checksum():08x}"

    def save(self) -> bytes:
        """The whole state between two records, except the rows."""
        return pickle.dumps((self.frames, self.clock, self._not_decoded, self.machine.state))

    def restore(self, saved: bytes) -> None:
        """Continue from the saved state of another engine: see :class:`nagle_lab.tcp.engine.Engine`."""
        try:
            self.frames, self.clock, self._not_decoded, state = _Unpickler(io.BytesIO(saved)).load()
            vars(self.machine).update(state)
        except _NO_SNAPSHOT as error:
            raise ValueError(str(error) or type(error).__name__) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass


# What pickle raises for bytes that it did not write.
_NO_SNAPSHOT = (pickle.UnpicklingError, EOFError, TypeError, AttributeError, IndexError, KeyError)


@cache
def _checksum() -> int:
    """The CRC-32 of all sources that decide what is in a snapshot."""
    files = (*(Path(str(module.__file__)) for module in SOURCES), *HEADERS)
    return crc32(b"".join(file.read_bytes() for file in files))


class _Unpickler(pickle.Unpickler):
    """Creates the types that a snapshot contains, and no others."""

    def find_class(self, module: str, name: str) -> Any:
        made = MADE_OF.get(name)
        if made is None or made.__module__ != module:
            raise ValueError(f"this is no snapshot: it asks for {module}.{name}")
        return made
