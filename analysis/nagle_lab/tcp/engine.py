"""Records in, tables of what happened out: the engine that follows every connection of a capture."""

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple, Protocol, Self

from nagle_lab.capture import records
from nagle_lab.capture.take import Taker
from nagle_lab.packet.segment import decode
from nagle_lab.tcp.durations import Durations
from nagle_lab.tcp.machine import Machine
from nagle_lab.tcp.tables import Tables


class Totals(NamedTuple):
    """What an engine has counted so far."""

    connections: int
    segments: int  # copies included
    copies: int  # left out: the same packet, captured on another interface
    first_ts: int | None  # of the first segment, ns; None before there is one
    last_ts: int
    durations: Mapping[str, Durations]  # of answered exchanges, by the names of the fields of ``exchange``
    not_decoded: Mapping[int, int]  # packets without a readable TCP segment, by kind (nagle_lab.packet.kinds)


class Engine(records.Taker, Protocol):
    """Takes the records of a capture, decodes them, follows every connection; a context manager.

    Attributes
    ----------
    tables : the rows that have left; complete after :meth:`finish`
    lists_exchanges : whether there is a row for each exchange
    """

    tables: Tables
    lists_exchanges: bool

    def drain(self) -> None:
        """Have what was found leave to the tables."""

    def finish(self) -> None:
        """The capture is over."""

    def totals(self) -> Totals:
        """What was counted."""

    def __enter__(self) -> Self: ...
    def __exit__(self, *_: object) -> None: ...


class PlainEngine(Taker):
    """In plain Python."""

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
        """Nothing to do: every row has left at once."""

    def finish(self) -> None:
        """The capture is over."""
        self.machine.finish()

    def totals(self) -> Totals:
        """What was counted."""
        m = self.machine
        return Totals(m.connections, m.segments, m.copies, m.first_ts, m.last_ts, m.durations, self._not_decoded)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass


def engine(*, exchanges: bool = True) -> Engine:
    """An engine: the compiled one where there is one; NAGLE_LAB_COMPILED=0 asks for plain Python."""
    from nagle_lab.tcp import native  # noqa: PLC0415 - it needs the above

    if native.LIBRARY is not None:
        return native.CompiledEngine(native.LIBRARY, exchanges=exchanges)
    return PlainEngine(exchanges=exchanges)
