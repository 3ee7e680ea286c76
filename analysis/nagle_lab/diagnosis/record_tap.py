"""A tap on the way from a capture to the engine: an onlooker gets its records, too; the engine may be replaced."""

from collections.abc import Sequence
from typing import Protocol

from nagle_lab.capture.kernel_answers import KernelAnswer
from nagle_lab.capture.records import ClockState, Interface, PcapFraming
from nagle_lab.capture.window import Window
from nagle_lab.tcp.engine import Engine


class RecordSink(Protocol):
    """Receives the bytes of all records; ``first`` is the frame of the first of them."""

    def pcap(self, records: memoryview, first: int, count: int, framing: PcapFraming) -> None:
        """Take complete pcap records."""

    def pcapng(
        self, records: memoryview, first: int, count: int, order: str, interfaces: Sequence[Interface]
    ) -> None:
        """Take complete packet blocks, and the interfaces described so far."""

    def kernel_answers(self, answers: Sequence[KernelAnswer]) -> None:
        """Take what the kernel said meanwhile about data that waits in sockets."""


class RecordTap:
    """Passes records on (:class:`nagle_lab.capture.records.RecordTaker`), and to an ``onlooker``, if there is one."""

    def __init__(self, engine: Engine, onlooker: RecordSink | None) -> None:
        self.engine = engine
        self._onlooker = onlooker

    @property
    def frames(self) -> int:
        """How many records there were so far, in the whole input."""
        return self.engine.frames

    @frames.setter
    def frames(self, count: int) -> None:
        self.engine.frames = count

    @property
    def clock(self) -> ClockState:
        """Whether the times of the records advance: ask again after each window, because the engine may be
        replaced.
        """
        return self.engine.clock

    def pcap(self, window: Window, at: int, framing: PcapFraming) -> int:
        """Pass pcap records on to the engine, and to the onlooker."""
        before, end = self.frames, self.engine.pcap(window, at, framing)
        if self._onlooker is not None and end > at:
            with memoryview(window.raw) as raw:
                self._onlooker.pcap(raw[at:end], before + 1, self.frames - before, framing)
        return end

    def pcapng(self, window: Window, at: int, order: str, interfaces: Sequence[Interface]) -> int:
        """Pass packet blocks on to the engine, and to the onlooker."""
        before, end = self.frames, self.engine.pcapng(window, at, order, interfaces)
        if self._onlooker is not None and end > at:
            with memoryview(window.raw) as raw:
                self._onlooker.pcapng(raw[at:end], before + 1, self.frames - before, order, interfaces)
        return end
