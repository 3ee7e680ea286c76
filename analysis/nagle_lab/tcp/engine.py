"""Records in, tables of what happened out: the engine that follows every connection of a capture."""

from collections import Counter
from collections.abc import Mapping
from typing import Protocol, Self

from nagle_lab.capture import records
from nagle_lab.capture.take import Taker
from nagle_lab.packet.segment import decode
from nagle_lab.tcp import native
from nagle_lab.tcp.durations import Durations
from nagle_lab.tcp.machine import Machine
from nagle_lab.tcp.tables import Tables


class Engine(records.Taker, Protocol):
    """Takes the records of a capture, decodes them, follows every connection; a context manager.

    Attributes
    ----------
    tables : the rows that have left; complete after :meth:`finish`
    connections, segments, copies, first_ts, last_ts, durations : as of :class:`nagle_lab.tcp.machine.Machine`
    not_decoded : packets without a TCP segment that can be read, by what they are (:mod:`nagle_lab.packet.kinds`)
    lists_exchanges : whether there is a row for each exchange
    """

    tables: Tables
    lists_exchanges: bool

    @property
    def connections(self) -> int:
        """How many there were."""

    @property
    def segments(self) -> int:
        """How many were followed, copies included."""

    @property
    def copies(self) -> int:
        """How many of them were left out."""

    @property
    def first_ts(self) -> int | None:
        """Time of the first segment, ns."""

    @property
    def last_ts(self) -> int:
        """Time of the last segment, ns."""

    @property
    def durations(self) -> Mapping[str, Durations]:
        """Of all answered exchanges, by the names of the fields of ``exchange``."""

    @property
    def not_decoded(self) -> Mapping[int, int]:
        """Packets without a TCP segment that can be read, by what they are."""

    def drain(self) -> None:
        """Have what was found leave to the tables."""

    def finish(self) -> None:
        """The capture is over."""

    def __enter__(self) -> Self: ...
    def __exit__(self, *_: object) -> None: ...


class PlainEngine(Taker):
    """In plain Python."""

    def __init__(self, *, exchanges: bool = True) -> None:
        super().__init__(self._take_record)
        self.machine = Machine(exchanges=exchanges)
        self.tables = self.machine.tables
        self.lists_exchanges = exchanges
        self.not_decoded: Counter[int] = Counter()

    def _take_record(
        self, buffer: bytearray, at: int, captured: int, original: int, link_type: int, frame: int, ts: int,
        epoch: int, interface: int,
    ) -> None:  # fmt: skip
        segment = decode(buffer, at, captured, original, link_type, frame, ts, epoch, interface)
        if isinstance(segment, int):
            self.not_decoded[segment] += 1
        else:
            self.machine.follow(segment)

    @property
    def connections(self) -> int:
        """How many there were."""
        return self.machine.connections

    @property
    def segments(self) -> int:
        """How many were followed, copies included."""
        return self.machine.segments

    @property
    def copies(self) -> int:
        """How many of them were left out."""
        return self.machine.copies

    @property
    def first_ts(self) -> int | None:
        """Time of the first segment, ns."""
        return self.machine.first_ts

    @property
    def last_ts(self) -> int:
        """Time of the last segment, ns."""
        return self.machine.last_ts

    @property
    def durations(self) -> Mapping[str, Durations]:
        """Of all answered exchanges."""
        return self.machine.durations

    def drain(self) -> None:
        """Nothing to do: every row has left at once."""

    def finish(self) -> None:
        """The capture is over."""
        self.machine.finish()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass


def engine(*, exchanges: bool = True) -> Engine:
    """An engine: the compiled one where there is one; NAGLE_LAB_COMPILED=0 asks for plain Python."""
    if native.LIBRARY is not None:
        return native.CompiledEngine(native.LIBRARY, exchanges=exchanges)
    return PlainEngine(exchanges=exchanges)
