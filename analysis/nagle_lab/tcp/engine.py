"""What an engine is: records in, tables of what happened on every connection out."""

from collections.abc import Mapping
from typing import NamedTuple, Protocol, Self

from nagle_lab.capture import records
from nagle_lab.tcp.durations import Durations
from nagle_lab.tcp.tables import Tables

MOSTLY_COPIED = 1 / 3  # of the segments: the capture is of several interfaces that all packets pass, or of both ends
LEFT_OUT = 0.02  # of the segments: with fewer pure ACKs, a filter may have left them out


class EngineTotals(NamedTuple):
    """What an engine has counted so far."""

    connections: int
    segments: int  # copies included
    copies: int  # left out: a packet captured before, on another interface
    pure_acks: int
    first_ts: int | None  # of the first segment, ns; None before there is one
    last_ts: int
    resolution: int  # of the clock that stamped the segments, ns
    durations: Mapping[str, Durations]  # of answered exchanges, by the names of the fields of ``exchange``
    not_decoded: Mapping[int, int]  # packets without a readable TCP segment, by kind (nagle_lab.packet.kinds)

    @property
    def is_copied(self) -> bool:
        """Whether a third of the segments or more are copies of others."""
        return self.copies >= MOSTLY_COPIED * self.segments > 0

    @property
    def is_data_only(self) -> bool:
        """Whether hardly any segment only acknowledges, as if a filter had left these out."""
        return self.pure_acks < LEFT_OUT * self.segments


class Engine(records.RecordTaker, Protocol):
    """Takes the records of a capture, decodes them, follows every connection; a context manager."""

    tables: Tables  # the rows that have left; complete after :meth:`finish`
    lists_exchanges: bool  # whether there is a row for each exchange

    def drain(self) -> None:
        """Move rows that are complete into the tables. Raises NagleLabError where TMPDIR is full."""

    def finish(self) -> None:
        """End the capture and every connection: move all rows into the tables."""

    @property
    def connections(self) -> int:
        """How many connections there were so far."""

    def totals(self) -> EngineTotals:
        """What was counted so far."""

    @property
    def build(self) -> str:
        """The sources and the machine the engine is built for: only engines of the same build can restore a
        snapshot.
        """

    def save(self) -> bytes:
        """The whole state between two files of a capture, except the rows, which are in the tables by then."""

    def restore(self, saved: bytes) -> None:
        """Go on where another engine was saved; call it on a new one, before any record.

        Raises ValueError where ``saved`` is no snapshot of this build.
        """

    def __enter__(self) -> Self: ...
    def __exit__(self, *_: object) -> None: ...
