"""Connections, stalls and exchanges of a result: sequences whose rows are made when asked for.

A capture of millions of packets can hold hundreds of thousands of them; a view that shows three makes three.
"""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, Generic, TypeVar, overload

from nagle_lab.diagnosis.findings import ROLES, Findings
from nagle_lab.diagnosis.result import Connection, Endpoint, Exchange, Sent, Stall, Stalls
from nagle_lab.packet.segment import address_text
from nagle_lab.tcp.layout import LAYOUTS
from nagle_lab.tcp.tables import Table

Row = TypeVar("Row")
_AT_ONCE = 1 << 12  # rows

_COLUMNS = LAYOUTS["connection"].columns
# In the order of Sent's fields.
_SENT = ("packets", "segments", "wire", "payload", "delayed_acks", "fin_acks", "early_acks", "nagle_off")


class _Rows(Sequence[Row], Generic[Row]):
    """A sequence of what ``_make`` makes of the rows of a table."""

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
        for begin in range(0, len(self), _AT_ONCE):
            yield from self._read(begin, min(begin + _AT_ONCE, len(self)))

    def _read(self, begin: int, end: int) -> Iterator[Row]:
        return map(self._make, self._table.layout.struct.iter_unpack(self._table.read(begin, end)))

    @abstractmethod
    def _make(self, row: tuple[Any, ...]) -> Row:
        """What a row of the table, unpacked, says."""


class ConnectionRows(_Rows[Connection]):
    """Every connection, in order of appearance."""

    def _make(self, row: tuple[Any, ...]) -> Connection:
        of = {name: row[place] for name, place in _COLUMNS.items()}
        client = of["client"]
        server = 1 - client
        first_stalled = of["first_stalled"]
        return Connection(
            id=of["number"],
            client=_endpoint(of, client),
            server=_endpoint(of, server),
            first_frame=of["first_frame"],
            packets=of["packets", 0] + of["packets", 1],
            handshake=bool(of["syns"]),
            mss=of["full_size"],
            exchanges=of["answered"],
            repeat_exchanges=of["repeat"],
            stalled_exchanges=of["stalled"],
            stalls=of["stalls"],
            followed=of["followed"],
            unresolved=of["unresolved"],
            first_stalled_exchange=first_stalled + 1 if first_stalled >= 0 else None,
            sent={
                role: Sent(*(of[name, side] for name in _SENT))
                for role, side in zip(ROLES, (client, server), strict=True)
            },
            held_ms=round(of["held"] / 1e6, 3),
            round_trips_ms=round(of["round_trips"] / 1e6, 3),
            handshake_us=round(of["handshake"] / 1e3, 1) if of["syns"] and of["handshake"] >= 0 else None,
        )


class StallRows(_Rows[Stall], Stalls):
    """Every proved stall, in order of release."""

    def __init__(self, findings: Findings) -> None:
        super().__init__(findings.stalls)
        self._findings = findings
        self._ends = lru_cache(_AT_ONCE)(self._ends_of)

    def typical(self) -> Stall:
        """The first stall whose wait is the median one, to the microsecond; with its ACK, if there is one."""
        percentiles = self._findings.wait.percentiles([50])
        assert percentiles is not None, "there is no stall"
        columns = LAYOUTS["candidate"].columns
        wait, ack = columns["wait"], columns["ack_frame"]
        without_ack = None
        for row in self._table.rows():
            if round(row[wait] / 1e3) == percentiles[0]:
                if row[ack]:
                    return self._make(row)
                without_ack = without_ack or row
        assert without_ack, "the median was observed"
        return self._make(without_ack)

    def _make(self, row: tuple[Any, ...]) -> Stall:
        (
            connection,
            trigger,
            ack,
            released,
            _,
            wait,
            release,
            *_,
            exchange,
            trigger_bytes,
            released_bytes,
            side,
            _,
            _,
            _,
        ) = row
        held_by, delayed_by = self._ends(connection, side)
        return Stall(
            connection, exchange + 1, held_by, delayed_by, trigger, ack or None, released, round(wait / 1e6, 3),
            round(release / 1e3, 3), trigger_bytes, released_bytes,
        )  # fmt: skip

    def _ends_of(self, connection: int, side: int) -> tuple[Endpoint, Endpoint]:
        return end_of(self._findings, connection, side), end_of(self._findings, connection, 1 - side)


class ExchangeRows(_Rows[Exchange]):
    """Every answered exchange, in the order in which they ended; ``first_ts`` is the first packet's time, ns."""

    def __init__(self, findings: Findings, exchanges: Table, first_ts: int) -> None:
        super().__init__(exchanges)
        self._first_ts = first_ts
        columns = LAYOUTS["candidate"].columns
        connection, exchange = columns["connection"], columns["exchange"]
        self._stalled = {(row[connection], row[exchange]) for row in findings.stalls.rows()}

    def _make(self, row: tuple[Any, ...]) -> Exchange:
        connection, asked, *gaps, number = row
        to_ack, to_response, total = (None if gap < 0 else round(gap / 1e6, 3) for gap in gaps)
        seconds = round((asked - self._first_ts) / 1e9, 6)
        stalled = (connection, number) in self._stalled
        return Exchange(connection, number + 1, seconds, to_ack, to_response, total, stalled)


def end_of(findings: Findings, connection: int, side: int) -> Endpoint:
    """One end of a connection."""
    row = findings.connections.row(connection)
    return _endpoint({name: row[place] for name, place in _COLUMNS.items()}, side)


def _endpoint(of: dict[Any, Any], side: int) -> Endpoint:
    address = of["address"][16 * side : 16 * side + 16]
    return Endpoint(address_text(address), of["port", side], ROLES[side != of["client"]])
