"""Connections → exchanges: a burst of data one way and the burst that answers it, and the gaps in between.

The client's side asks (by handshake, else the side that sent data first). A new exchange begins with the first data
the asking side sends after the answering side has sent some.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nagle_lab.connections import Connections
from nagle_lab.timeline import Ints, Timeline

_NEVER = np.iinfo(np.int64).max
_KEY = np.int64(1) << 32


@dataclass(frozen=True)
class Exchanges:
    """Answered exchanges, one row each; times in ns.

    ``key`` (n,) int64 is ``connection * 2**32 + number``. ``to_ack`` (n,) is from the request's last segment to its
    acknowledgement, ``to_response`` to the first segment of the answer, ``total`` from the request's first segment
    to the answer's last; float32, NaN where the capture does not show it.
    """

    key: Ints
    to_ack: NDArray[np.float32]
    to_response: NDArray[np.float32]
    total: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.key)

    @property
    def conn(self) -> Ints:
        """Connection of each, (n,)."""
        return self.key // _KEY

    @property
    def repeat(self) -> NDArray[np.bool_]:
        """Those that follow another on their connection, (n,): only they can meet an interactive receiver."""
        return self.key % _KEY > 0


def key_of(conn: Ints, number: Ints) -> Ints:
    """One number per exchange, as in :class:`Exchanges`."""
    return conn * _KEY + number


@dataclass(frozen=True)
class _Parts:
    """Pieces of exchanges, several may share a key: times in ns, ``_NEVER`` or -1 where a piece says nothing."""

    key: Ints
    asked: Ints  # first segment of the request
    asked_last: Ints
    acked: Ints  # acknowledgement of the request's latest segment
    answered: Ints  # first segment of the answer
    answered_last: Ints

    _REDUCE = (np.minimum, np.maximum, np.maximum, np.minimum, np.maximum)

    def columns(self) -> tuple[Ints, ...]:
        return self.asked, self.asked_last, self.acked, self.answered, self.answered_last

    def merged(self) -> "_Parts":
        """One row per key, in key order."""
        if not len(self.key):
            return self
        order = np.argsort(self.key, kind="stable")
        key = self.key[order]
        starts = np.flatnonzero(np.diff(key, prepend=-1))
        merged = (f.reduceat(c[order], starts) for f, c in zip(self._REDUCE, self.columns(), strict=True))
        return _Parts(key[starts], *merged)

    def where(self, mask: NDArray[np.bool_]) -> "_Parts":
        return _Parts(self.key[mask], *(c[mask] for c in self.columns()))

    @staticmethod
    def join(parts: "list[_Parts]") -> "_Parts":
        return _Parts(
            np.concatenate([p.key for p in parts]),
            *(np.concatenate(c) for c in zip(*(p.columns() for p in parts), strict=True)),
        )


class ExchangeLog:
    """Collects the exchanges of a capture, window by window."""

    def __init__(self) -> None:
        self._number = np.full(64, -1, np.int64)  # per connection: its open exchange
        self._asking = np.zeros(64, np.bool_)  # per connection: its last data came from the asking side
        none = np.empty(0, np.int64)
        self._open = _Parts(none, none, none, none, none, none)
        self._done: list[Exchanges] = []

    def follow(self, rows: Timeline, connections: Connections) -> None:
        """Take the next window; numbers the exchange of every new data row in ``rows.exchange``."""
        while len(self._number) < connections.count:
            self._number = np.concatenate([self._number, np.full_like(self._number, -1)])
            self._asking = np.concatenate([self._asking, np.zeros_like(self._asking)])
        data = np.flatnonzero(rows.is_data & ~rows.carried & (rows.end > rows.sent_own))
        client = rows.spread(connections.client_side(rows.conn[rows.starts]))
        asks = rows.side[data] == client[data]
        rows.exchange[data] = self._numbers(rows.conn[data], asks)
        parts = [self._open, _segments(rows, data, asks), _acknowledgements(rows, client)]
        merged = _Parts.join(parts).merged()
        is_open = merged.key == key_of(merged.key // _KEY, self._number[merged.key // _KEY])
        self._finish(merged.where(~is_open))
        self._open = merged.where(is_open)

    def _numbers(self, conn: Ints, asks: NDArray[np.bool_]) -> Ints:
        first = np.diff(conn, prepend=-1) != 0
        asked_before = np.concatenate([[False], asks[:-1]])
        asked_before[first] = self._asking[conn[first]] & (self._number[conn[first]] >= 0)
        greets = first & (self._number[conn] < 0)  # a server that speaks first: its exchange has no request
        begun = np.cumsum((asks & ~asked_before) | greets)
        starts = np.flatnonzero(first)
        base = self._number[conn[starts]] - np.concatenate([[0], begun])[starts]
        number: Ints = begun + np.repeat(base, np.diff(starts, append=len(conn)))
        self._number[conn] = number  # duplicates: the last row of each connection wins
        self._asking[conn] = asks
        return number

    def _finish(self, parts: _Parts) -> None:
        p = parts.where((parts.answered < _NEVER) & (parts.asked < _NEVER))
        columns = (
            np.where(p.acked >= p.asked_last, p.acked - p.asked_last, np.nan),
            np.where(p.answered >= p.asked_last, p.answered - p.asked_last, np.nan),  # else asked again meanwhile,
            np.where(p.answered_last >= p.asked, p.answered_last - p.asked, np.nan),  # or the clock was set back
        )
        self._done.append(Exchanges(p.key, *(c.astype(np.float32) for c in columns)))

    def exchanges(self) -> Exchanges:
        """All answered exchanges, in connection order; call once, at the end."""
        self._finish(self._open)
        key = np.concatenate([e.key for e in self._done])
        order = np.argsort(key, kind="stable")  # merges the sorted runs of the windows
        return Exchanges(
            key[order],
            *(
                np.concatenate([getattr(e, name) for e in self._done])[order]
                for name in ("to_ack", "to_response", "total")
            ),
        )


def _segments(rows: Timeline, data: Ints, asks: NDArray[np.bool_]) -> _Parts:
    """What the data rows say: one piece per row; what came before the first request belongs to no exchange."""
    counted = rows.exchange[data] >= 0
    data, asks = data[counted], asks[counted]
    ts = rows.ts[data]
    return _Parts(
        key=key_of(rows.conn[data], rows.exchange[data]),
        asked=np.where(asks, ts, _NEVER),
        asked_last=np.where(asks, ts, -1),
        acked=np.full(len(data), -1),
        answered=np.where(asks, _NEVER, ts),
        answered_last=np.where(asks, -1, ts),
    ).merged()


def _acknowledgements(rows: Timeline, client: NDArray[np.int8]) -> _Parts:
    """What the acknowledgements of requests say: each is of its side's latest segment, so of the open exchange."""
    acker, segment = rows.answers
    asks = np.flatnonzero((rows.side[segment] == client[segment]) & (rows.exchange[segment] >= 0))
    acker, segment = acker[asks], segment[asks]
    n = len(acker)
    never, nothing = np.full(n, _NEVER), np.full(n, -1)
    return _Parts(key_of(rows.conn[segment], rows.exchange[segment]), never, nothing, rows.ts[acker], never, nothing)
