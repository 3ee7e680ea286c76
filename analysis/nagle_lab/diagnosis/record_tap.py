"""Records on their way to an engine: it may be replaced between two of them, and somebody may look on."""

from collections.abc import Sequence
from typing import Protocol

from nagle_lab.capture.records import ClockState, Interface, PcapFraming
from nagle_lab.capture.waiting import Waiting
from nagle_lab.capture.window import Window
from nagle_lab.tcp.engine import Engine


class RecordSink(Protocol):
    """Who is given the bytes of all records; ``first`` is the frame of the first of them."""

    def pcap(self, records: memoryview, first: int, count: int, framing: PcapFraming) -> None:
        """Complete pcap records."""

    def pcapng(
        self, records: memoryview, first: int, count: int, order: str, interfaces: Sequence[Interface]
    ) -> None:
        """Complete packet blocks of interfaces that were described."""

    def waiting(self, answers: Sequence[Waiting]) -> None:
        """What the kernel said meanwhile of data that waits in sockets."""


class RecordTap:
    """See :class:`nagle_lab.capture.records.RecordTaker`."""

    def __init__(self, engine: Engine, seen: RecordSink | None) -> None:
        self.engine = engine
        self._seen = seen

    @property
    def frames(self) -> int:
        """So far, in the whole input."""
        return self.engine.frames

    @frames.setter
    def frames(self, count: int) -> None:
        self.engine.frames = count

    @property
    def clock(self) -> ClockState:
        """Whether the times of the records go on; the engine's, even of one that comes later."""
        return _Clock(self)

    def pcap(self, window: Window, at: int, framing: PcapFraming) -> int:
        """Pass pcap records on."""
        if self._seen is None:
            return self.engine.pcap(window, at, framing)
        before = self.frames
        end = self.engine.pcap(window, at, framing)
        if end > at:
            with memoryview(window.raw) as raw:
                self._seen.pcap(raw[at:end], before + 1, self.frames - before, framing)
        return end

    def pcapng(self, window: Window, at: int, order: str, interfaces: Sequence[Interface]) -> int:
        """Pass packet blocks on."""
        if self._seen is None:
            return self.engine.pcapng(window, at, order, interfaces)
        before = self.frames
        end = self.engine.pcapng(window, at, order, interfaces)
        if end > at:
            with memoryview(window.raw) as raw:
                self._seen.pcapng(raw[at:end], before + 1, self.frames - before, order, interfaces)
        return end


class _Clock:
    """See :class:`nagle_lab.capture.records.ClockState`."""

    def __init__(self, of: RecordTap) -> None:
        self._of = of

    @property
    def set_back(self) -> tuple[int, int] | None:
        return self._of.engine.clock.set_back

    @property
    def epoch(self) -> int:
        return self._of.engine.clock.epoch

    def new_file(self) -> None:
        self._of.engine.clock.new_file()

    def begins_before(self) -> bool:
        return self._of.engine.clock.begins_before()
