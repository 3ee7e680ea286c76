"""Connections and stalls of a result: sequences whose rows are made when asked for.

A capture of millions of packets can hold hundreds of thousands of them; a view that shows three makes three.
"""

import ipaddress
from collections.abc import Iterator, Sequence
from typing import Generic, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from nagle_lab.diagnosis.findings import ROLES, Findings
from nagle_lab.diagnosis.result import Connection, Endpoint, Exchange, Sent, Stall, Stalls
from nagle_lab.tcp.columns import Ints
from nagle_lab.tcp.shelf import Shelf

Row = TypeVar("Row")
_AT_ONCE = 1 << 12
# In the order of Sent's fields.
_SENT = ("packets", "segments", "wire", "payload", "delayed_acks", "fin_acks", "early_acks")


class _Rows(Sequence[Row], Generic[Row]):
    """A sequence of what ``_of`` makes of the rows of a shelf."""

    def __init__(self, shelf: Shelf, found: Findings) -> None:
        self._shelf, self._found = shelf, found

    def __len__(self) -> int:
        return len(self._shelf)

    @overload
    def __getitem__(self, at: int) -> Row: ...
    @overload
    def __getitem__(self, at: slice) -> list[Row]: ...
    def __getitem__(self, at: int | slice) -> Row | list[Row]:
        if isinstance(at, slice):
            return list(self._of(np.arange(*at.indices(len(self)))))
        if not -len(self) <= at < len(self):
            raise IndexError(at)
        return next(self._of(np.array([at % len(self)])))

    def __iter__(self) -> Iterator[Row]:
        for begin in range(0, len(self), _AT_ONCE):
            yield from self._of(np.arange(begin, min(begin + _AT_ONCE, len(self))))

    def _of(self, at: Ints) -> Iterator[Row]:
        raise NotImplementedError


class ConnectionRows(_Rows[Connection]):
    """Every connection, in order of appearance."""

    def __init__(self, found: Findings) -> None:
        super().__init__(found.ledger, found)

    def _of(self, at: Ints) -> Iterator[Connection]:
        for number, entry in zip(at.tolist(), self._shelf.take(at), strict=True):
            client = int(entry["client"])
            yield Connection(
                id=number,
                client=endpoint(entry, client),
                server=endpoint(entry, 1 - client),
                first_frame=int(entry["first_frame"]),
                packets=int(entry["packets"].sum()),
                handshake=bool(entry["handshake"]),
                mss=int(entry["size"]),
                exchanges=int(entry["answered"]),
                stalled_exchanges=int(entry["stalled"]),
                stalls=int(entry["stalls"]),
                first_stalled_exchange=int(entry["first_stalled"]) + 1 if entry["first_stalled"] >= 0 else None,
                sent={role: _sent(entry, side) for role, side in zip(ROLES, (client, 1 - client), strict=True)},
            )


class StallRows(_Rows[Stall], Stalls):
    """Every proved stall, in order of release."""

    def __init__(self, found: Findings) -> None:
        super().__init__(found.stalls, found)

    def typical(self) -> Stall:
        """The first stall whose wait is the median one, to the microsecond: the one to show."""
        percentiles = self._found.wait.percentiles([50])
        assert percentiles is not None, "there is no stall"
        begin = 0
        for rows in self._shelf.chunks():
            at = np.flatnonzero(np.rint(rows["wait"] / 1e3) == percentiles[0])
            if len(at):
                return self[begin + int(at[0])]
            begin += len(rows)
        raise AssertionError("the median was observed")

    def _of(self, at: Ints) -> Iterator[Stall]:
        rows = self._shelf.take(at)
        known = self._found.ledger.of(rows["conn"])
        ends = [[endpoint(entry, side) for side in (0, 1)] for entry in known.entries]
        for which, row in zip(known.of.tolist(), rows.tolist(), strict=True):
            conn, exchange, side, trigger, ack, released, trigger_bytes, released_bytes, wait, release, _ = row
            yield Stall(
                connection=conn,
                exchange=exchange + 1,
                held_by=ends[which][side],
                delayed_by=ends[which][1 - side],
                trigger_frame=trigger,
                ack_frame=ack,
                release_frame=released,
                wait_ms=round(wait / 1e6, 3),
                release_us=round(release / 1e3, 3),
                trigger_bytes=trigger_bytes,
                released_bytes=released_bytes,
            )


class ExchangeRows(_Rows[Exchange]):
    """Every answered exchange, in the order in which they ended; ``first_ts`` is the first packet's time, ns."""

    def __init__(self, found: Findings, kept: Shelf, first_ts: int) -> None:
        super().__init__(kept, found)
        self._first_ts = first_ts
        self._stalled = np.concatenate([np.empty(0, np.int64), *(_keys(rows) for rows in found.stalls.chunks())])

    def _of(self, at: Ints) -> Iterator[Exchange]:
        rows = self._shelf.take(at)
        stalled = np.isin(_keys(rows), self._stalled)
        for row, has_stalled in zip(rows.tolist(), stalled.tolist(), strict=True):
            conn, number, asked, *gaps = row
            to_ack, to_response, total = (None if gap < 0 else round(gap / 1e6, 3) for gap in gaps)
            seconds = round((asked - self._first_ts) / 1e9, 6)
            yield Exchange(conn, number + 1, seconds, to_ack, to_response, total, has_stalled)


def _keys(rows: NDArray[np.void]) -> Ints:
    """One number per exchange of rows that name one."""
    return np.asarray((rows["conn"] << 32) + rows["exchange"])


def _sent(entry: np.void, side: int) -> Sent:
    return Sent(*(int(entry[name][side]) for name in _SENT))


def endpoint(entry: np.void, side: int) -> Endpoint:
    """One end of a connection, from its ledger entry."""
    role = ROLES[int(side != entry["client"])]
    return Endpoint(address(int(entry["hi"][side]), int(entry["lo"][side])), int(entry["port"][side]), role)


def address(hi: int, lo: int) -> str:
    """An address from its two halves; IPv4 comes mapped into IPv6."""
    v6 = ipaddress.IPv6Address(hi << 64 | lo)
    return str(v6.ipv4_mapped or v6)
