"""The engine in plain Python: records, decoding and the machine, one packet after the other."""

from collections import Counter
from typing import Self

from nagle_lab.capture.take import Taker
from nagle_lab.packet.segment import decode
from nagle_lab.tcp.engine import Counted
from nagle_lab.tcp.machine import Machine


class PlainEngine(Taker):
    """See :class:`nagle_lab.tcp.engine.Engine`."""

    def __init__(self, *, exchanges: bool = True) -> None:
        super().__init__(self._take_record)
        self.machine = Machine(exchanges=exchanges)
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
            self.machine.follow(segment)

    def drain(self) -> None:
        """Nothing to do: rows are added to the tables as they are found."""

    def finish(self) -> None:
        """The capture is over."""
        self.machine.finish()

    def totals(self) -> Counted:
        """What was counted."""
        m = self.machine
        return Counted(
            m.connections, m.segments, m.copies, m.first_ts, m.last_ts, m.step, m.durations, self._not_decoded
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass
