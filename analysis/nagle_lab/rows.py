"""Connections and stalls of a result: sequences whose rows are made from columns when asked for.

A capture of millions of packets can hold hundreds of thousands of them; a view that shows three makes three.
"""

import ipaddress
from collections.abc import Sequence
from typing import Generic, TypeVar, overload

import numpy as np

from nagle_lab.findings import ROLES, Findings
from nagle_lab.result import Connection, Endpoint, Sent, Stall, Stalls
from nagle_lab.timeline import Ints

Row = TypeVar("Row")


class _Rows(Sequence[Row], Generic[Row]):
    """A sequence, from ``__len__`` and ``_row``."""

    def __init__(self, found: Findings) -> None:
        self._found = found

    @overload
    def __getitem__(self, at: int) -> Row: ...
    @overload
    def __getitem__(self, at: slice) -> list[Row]: ...
    def __getitem__(self, at: int | slice) -> Row | list[Row]:
        if isinstance(at, slice):
            return [self._row(i) for i in range(*at.indices(len(self)))]
        if not -len(self) <= at < len(self):
            raise IndexError(at)
        return self._row(at % len(self))

    def _row(self, at: int) -> Row:
        raise NotImplementedError


class ConnectionRows(_Rows[Connection]):
    """Every connection, in order of appearance."""

    def __init__(self, found: Findings) -> None:
        super().__init__(found)
        count, stalled_conn = len(self), found.stalled >> 32
        self._size = found.connections.segment_size()
        self._handshake = found.connections.handshakes()
        self._exchanges = np.bincount(found.counted >> 32, minlength=count)
        self._stalled = np.bincount(stalled_conn, minlength=count)
        self._stalls = np.bincount(found.proof.stalls.conn, minlength=count)
        self.first_stalled = np.full(count, -1)  # number of the first stalled exchange, from 0; -1 none
        self.first_stalled[stalled_conn[::-1]] = (found.stalled & 0xFFFFFFFF)[::-1]  # the earliest is written last

    def __len__(self) -> int:
        return self._found.connections.count

    def _row(self, at: int) -> Connection:
        facts, client, first = self._found.connections.facts, int(self._found.client[at]), int(self.first_stalled[at])
        return Connection(
            id=at,
            client=endpoint(self._found, at, client),
            server=endpoint(self._found, at, 1 - client),
            first_frame=int(facts.first_frame[at]),
            packets=int(facts.packets[at].sum()),
            handshake=bool(self._handshake[at]),
            mss=int(self._size[at]),
            exchanges=int(self._exchanges[at]),
            stalled_exchanges=int(self._stalled[at]),
            stalls=int(self._stalls[at]),
            first_stalled_exchange=first + 1 if first >= 0 else None,
            sent=dict(zip(ROLES, (self._sent(at, side) for side in (client, 1 - client)), strict=True)),
        )

    def _sent(self, conn: int, side: int) -> Sent:
        facts, found = self._found.connections.facts, self._found
        columns = (facts.packets, facts.segments, facts.wire, facts.payload, found.delayed_acks, found.fin_acks)
        return Sent(*(int(column[conn, side]) for column in columns))


class StallRows(_Rows[Stall], Stalls):
    """Every proved stall, in order of its late ACK."""

    def __len__(self) -> int:
        return len(self._found.proof.stalls)

    def typical(self) -> Stall:
        """The stall whose wait is the median one: the one to show."""
        stalls = self._found.proof.stalls
        return self[int(np.lexsort((stalls.trigger_frame, stalls.wait))[len(self) // 2])]

    def _row(self, at: int) -> Stall:
        t = self._found.proof.stalls
        conn, side = int(t.conn[at]), int(t.side[at])
        return Stall(
            connection=conn,
            exchange=int(t.exchange[at]) + 1,
            held_by=endpoint(self._found, conn, side),
            delayed_by=endpoint(self._found, conn, 1 - side),
            trigger_frame=int(t.trigger_frame[at]),
            ack_frame=int(t.ack_frame[at]),
            release_frame=int(t.release_frame[at]),
            wait_ms=round(int(t.wait[at]) / 1e6, 3),
            release_us=round(int(t.release[at]) / 1e3, 3),
            trigger_bytes=int(t.trigger_bytes[at]),
            released_bytes=int(t.released_bytes[at]),
        )


def endpoint(found: Findings, conn: int, side: int) -> Endpoint:
    """One end of a connection."""
    facts = found.connections.facts
    v6 = ipaddress.IPv6Address(int(facts.hi[conn, side]) << 64 | int(facts.lo[conn, side]))
    role = ROLES[int(side != found.client[conn])]
    return Endpoint(str(v6.ipv4_mapped or v6), int(facts.port[conn, side]), role)


def only_endpoint(found: Findings, conn: Ints, side: Ints) -> Endpoint | None:
    """The end all of those (n,) are, None when they are several or none."""
    facts = found.connections.facts
    if not len(conn):
        return None
    columns = (facts.hi[conn, side], facts.lo[conn, side], facts.port[conn, side])
    same = all((column == column[0]).all() for column in columns)
    return endpoint(found, int(conn[0]), int(side[0])) if same else None
