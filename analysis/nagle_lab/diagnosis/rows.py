"""Connections, stalls and exchanges of a result: sequences whose rows are made when asked for.

A capture of millions of packets can hold hundreds of thousands of them; a view that shows three makes three.
"""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from functools import cached_property, lru_cache
from operator import itemgetter
from typing import Any, Generic, TypeVar, overload

from nagle_lab.diagnosis.ends import ROLES
from nagle_lab.diagnosis.findings import Findings
from nagle_lab.diagnosis.observed.columns import Columns, listed
from nagle_lab.diagnosis.observed.connection_columns import answers_as, socket_address
from nagle_lab.diagnosis.result.result import Connection, Endpoint, Exchange, SentTotals, Stall, Stalls
from nagle_lab.tcp.durations import ms_of, rounded
from nagle_lab.tcp.layout import LAYOUTS
from nagle_lab.tcp.tables import Table

Row = TypeVar("Row")
_ROWS_AT_ONCE = 1 << 12

_AT = LAYOUTS["connection"].columns  # the place of each in a row
# What each side sent, in the order of SentTotals's fields.
_SENT = tuple(
    itemgetter(*(_AT[name, side] for name in (
        "packets", "segments", "wire", "payload", "delayed_acks", "fin_acks", "acks_before_timer", "not_held"
    )))
    for side in (0, 1)
)  # fmt: skip


class _Rows(Sequence[Row], Generic[Row]):
    """A sequence of the objects that ``_read`` makes from the rows of a table."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def __len__(self) -> int:
        return len(self._table)

    @overload
    def __getitem__(self, at: int) -> Row: ...
    @overload
    def __getitem__(self, at: slice) -> list[Row]: ...
    def __getitem__(self, at: int | slice) -> Row | list[Row]:
        if isinstance(at, slice):
            begin, end, step = at.indices(len(self))
            if step != 1:
                return [self[i] for i in range(begin, end, step)]
            return list(self._read(begin, max(begin, end)))
        if not -len(self) <= at < len(self):
            raise IndexError(at)
        at %= len(self)
        return next(self._read(at, at + 1))

    def __iter__(self) -> Iterator[Row]:
        for begin in range(0, len(self), _ROWS_AT_ONCE):
            yield from self._read(begin, min(begin + _ROWS_AT_ONCE, len(self)))

    @abstractmethod
    def _read(self, begin: int, end: int) -> Iterator[Row]:
        """The rows from ``begin`` up to ``end``."""


class ConnectionRows(_Rows[Connection]):
    """Every connection, in order of appearance."""

    def _read(self, begin: int, end: int) -> Iterator[Connection]:
        return map(_connection, self._table.layout.struct.iter_unpack(self._table.read(begin, end)))


def _connection(row: tuple[Any, ...]) -> Connection:
    client = row[_AT["client"]]
    server = 1 - client
    answers = answers_as(row)
    first_stalled, handshake = row[_AT["first_stalled"]], row[_AT["handshake"]]
    return Connection(
        id=row[_AT["number"]],
        client=_endpoint(row, client),
        server=_endpoint(row, server),
        first_frame=row[_AT["first_frame"]],
        packets=row[_AT["packets", 0]] + row[_AT["packets", 1]],
        handshake=bool(row[_AT["syns"]]),
        full_segment_bytes=row[_AT["least_full_segment"]],
        exchanges=row[_AT["exchanges"]],
        repeat_exchanges=row[_AT["repeat_exchanges"]],
        stalled_exchanges=row[_AT["stalled_exchanges"]],
        stalls=row[_AT["stalls"]],
        second_writes=row[_AT["followed"]],
        unresolved=row[_AT["unresolved"]],
        late_without_stall=row[_AT["late_without_stall"]],
        first_stalled_exchange=first_stalled + 1 if first_stalled >= 0 else None,
        sent={"client": SentTotals(*_SENT[client](row)), "server": SentTotals(*_SENT[server](row))},
        lost_ms=ms_of(row[_AT["held"]]),
        round_trip_holds_ms=ms_of(row[_AT["round_trips"]]),
        handshake_us=round(handshake / 1e3, 1) if row[_AT["syns"]] and handshake >= 0 else None,
        answers_as=Endpoint(*answers, ROLES[1]) if answers else None,
        judged=not row[_AT["left_out"]],
    )


class StallRows(_Rows[Stall], Stalls):
    """Every proved stall, in order of release."""

    def __init__(self, findings: Findings) -> None:
        super().__init__(findings.stalls)
        self._findings = findings
        self._ends = lru_cache(_ROWS_AT_ONCE)(self._ends_of)

    def __reduce__(self) -> tuple[type["StallRows"], tuple[Findings]]:
        return StallRows, (self._findings,)  # a cache cannot be pickled

    def typical(self) -> Stall:
        """The first stall whose wait is the median one, to the microsecond; with its ACK, if there is one."""
        percentiles = self._findings.wait.percentiles([50])
        assert percentiles is not None, "there is no stall"
        columns = LAYOUTS["candidate"].columns
        wait, ack = columns["trigger_to_ack"], columns["ack_frame"]
        without_ack = None
        for number, row in enumerate(self._table.rows()):
            if rounded(row[wait], 1_000) == percentiles[0]:
                if row[ack]:
                    return self[number]
                without_ack = number if without_ack is None else without_ack
        assert without_ack is not None, "the median was observed"
        return self[without_ack]

    def _read(self, begin: int, end: int) -> Iterator[Stall]:
        rows = Columns(self._table.layout, self._table.read(begin, end))
        connection = listed(rows["connection"])
        ends = list(map(self._ends, connection, listed(rows["side"])))
        return map(
            Stall,
            connection,
            listed(rows["exchange"] + 1),
            [held_by for held_by, _ in ends],
            [delayed_by for _, delayed_by in ends],
            listed(rows["trigger_frame"]),
            [ack or None for ack in listed(rows["ack_frame"])],
            listed(rows["release_frame"]),
            listed(ms_of(rows["trigger_to_ack"])),
            listed(rows["ack_to_release"] / 1000.0),
            listed(rows["trigger_bytes"]),
            listed(rows["released_bytes"]),
        )

    def _ends_of(self, connection: int, side: int) -> tuple[Endpoint, Endpoint]:
        return end_of(self._findings, connection, side), end_of(self._findings, connection, 1 - side)


class ExchangeRows(_Rows[Exchange]):
    """Every answered exchange, in the order in which they ended; ``first_ts`` is the first TCP packet's time, ns."""

    def __init__(self, findings: Findings, exchanges: Table, first_ts: int) -> None:
        super().__init__(exchanges)
        self._stalls, self._first_ts = findings.stalls, first_ts

    @cached_property
    def _stalled(self) -> set[tuple[int, int]]:
        """Connection and number of each exchange with a stall; collected when the first exchange is read."""
        columns = LAYOUTS["candidate"].columns
        connection, exchange = columns["connection"], columns["exchange"]
        return {(row[connection], row[exchange]) for row in self._stalls.rows()}

    def _read(self, begin: int, end: int) -> Iterator[Exchange]:
        return map(self._exchange, self._table.layout.struct.iter_unpack(self._table.read(begin, end)))

    def _exchange(self, row: tuple[Any, ...]) -> Exchange:
        connection, asked, *gaps, number = row
        to_ack, to_response, total = (None if gap < 0 else ms_of(gap) for gap in gaps)
        seconds = round((asked - self._first_ts) / 1e9, 6)
        stalled = (connection, number) in self._stalled
        return Exchange(connection, number + 1, seconds, to_ack, to_response, total, stalled)


def end_of(findings: Findings, connection: int, side: int) -> Endpoint:
    """The end of a connection that is its ``side``, 0 or 1."""
    return _endpoint(findings.connections.row(connection), side)


def _endpoint(row: tuple[Any, ...], side: int) -> Endpoint:
    return Endpoint(*socket_address(row, side), ROLES[side != row[_AT["client"]]])
