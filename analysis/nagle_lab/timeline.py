"""The timeline: packets in connection order, each with what both half-connections looked like just before it.

Most questions are asked of few rows ("what came before this late packet?"), so the helpers take row indices; masks
over all rows are kept once computed.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

# A row in so many is few: looking each up is then cheaper than filling in all (measured).
_FEW = 10

FIN, SYN, RST, PSH, ACK = 0x01, 0x02, 0x04, 0x08, 0x10


@dataclass
class Timeline:
    """Rows of one window, sorted by connection, then by capture order. All columns have one shape, (n,).

    ``start``, ``end`` and ``ack`` are unwrapped sequence numbers (RFC 9293 §3.4): int64, equal to the wire's modulo
    2**32, ``end`` counting SYN and FIN, ``ack`` in the peer's numbering (-1 without the ACK flag). ``window`` is in
    bytes, scaled. ``sent_own`` is the highest ``end`` and ``acked_*`` the highest number acknowledged *before* this
    row, of the row's own half-connection or of its peer's. ``carried`` rows were in an earlier window; they are
    context, and every reader must leave their own events alone.
    """

    conn: Ints
    side: NDArray[np.int8]
    frame: Ints
    ts: Ints  # ns since the epoch
    start: Ints
    end: Ints
    ack: Ints
    length: Ints  # payload bytes
    flags: NDArray[np.uint16]
    window: Ints
    sent_own: Ints
    acked_own: Ints
    acked_peer: Ints
    exchange: Ints  # number of the exchange a data row belongs to, from 0 on each connection; -1 none
    carried: Bools

    def __len__(self) -> int:
        return len(self.conn)

    def take(self, rows: Ints) -> "Timeline":
        """Those rows, in that order."""
        return Timeline(**{name: getattr(self, name)[rows] for name in COLUMNS})

    @staticmethod
    def join(parts: "Sequence[Timeline]") -> "Timeline":
        """Rows of each part before those of the next."""
        return Timeline(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in COLUMNS})

    # What kind of segment a row is ------------------------------------------------------------------

    @cached_property
    def is_data(self) -> Bools:
        """Rows with payload."""
        return self.length > 0

    @cached_property
    def is_consuming(self) -> Bools:
        """Rows that take sequence space: payload, SYN or FIN."""
        return self.end > self.start

    @cached_property
    def is_fresh(self) -> Bools:
        """Rows that bring sequence space never sent before in this capture: not retransmissions."""
        return self.is_consuming & (self.start >= self.sent_own)

    @cached_property
    def is_pure_ack(self) -> Bools:
        """Rows with the ACK flag and nothing else to say."""
        pure: Bools = ((self.flags & np.uint16(SYN | FIN | RST | ACK)) == ACK) & ~self.is_data
        return pure

    @cached_property
    def answers(self) -> tuple[Ints, Ints]:
        """New rows that newly acknowledge the peer's latest segment, and the index of that segment: RTT samples.

        Both shape (samples,). Retransmitted segments give none (Karn's rule, RFC 6298 §3).
        """
        acker = np.flatnonzero(~self.carried & (self.ack > self.acked_peer))
        segment = self.latest_of_peer(self.is_consuming, acker)
        acker, segment = acker[segment >= 0], segment[segment >= 0]
        exact = np.flatnonzero((self.ack[acker] == self.end[segment]) & self.is_fresh[segment])
        return acker[exact], segment[exact]

    # Neighbours inside a connection -----------------------------------------------------------------

    @cached_property
    def starts(self) -> Ints:
        """Index of the first row of each connection, shape (connections,)."""
        return np.concatenate([[0], np.flatnonzero(self.conn[1:] != self.conn[:-1]) + 1])[: len(self)]

    @cached_property
    def lasts(self) -> Ints:
        """Index of the last row of each connection, shape (connections,)."""
        return np.append(self.starts[1:], len(self)) - 1

    @cached_property
    def _first(self) -> Ints:
        return self.spread(self.starts)

    @cached_property
    def sizes(self) -> Ints:
        """Rows of each connection, shape (connections,)."""
        return np.diff(self.starts, append=len(self))

    def spread(self, values: NDArray[Any]) -> NDArray[Any]:
        """Values of connections (connections,) as values of rows (n,)."""
        return np.repeat(values, self.sizes)

    def latest(self, mask: Bools, at: Ints) -> Ints:
        """For each row of ``at`` the index of the latest earlier row, in its connection, where ``mask``; else -1."""
        where = np.concatenate([[-1], np.flatnonzero(mask)])
        if _FEW * len(at) < len(self):
            before = where[np.searchsorted(where, at) - 1]
        else:
            before = np.repeat(where, np.diff(where, append=len(self) - 1))[at]
        return np.where(before >= self._first[at], before, -1)

    def last_of_each(self, mask: Bools) -> Ints:
        """The index of the last row of each connection where ``mask``, shape (connections,); -1 none."""
        where = np.concatenate([[-1], np.flatnonzero(mask)])
        last = where[np.searchsorted(where, self.lasts, side="right") - 1]
        return np.where(last >= self.starts, last, -1)

    def latest_of_own(self, mask: Bools, at: Ints) -> Ints:
        """As :meth:`latest`, among the rows of the same side."""
        return self._latest_of_side(mask, at, self.side[at])

    def latest_of_peer(self, mask: Bools, at: Ints) -> Ints:
        """As :meth:`latest`, among the rows of the other side."""
        return self._latest_of_side(mask, at, 1 - self.side[at])

    def _latest_of_side(self, mask: Bools, at: Ints, side: NDArray[np.int8]) -> Ints:
        found = np.empty(len(at), np.int64)
        for s in (0, 1):
            asked = np.flatnonzero(side == s)
            found[asked] = self.latest(mask & (self.side == s), at[asked])
        return found


COLUMNS = tuple(field.name for field in fields(Timeline))


def narrow(types: dict[str, type[np.generic]], **columns: NDArray[Any]) -> dict[str, NDArray[Any]]:
    """The columns in those types: what is kept until the end of the file takes as few bytes as hold it."""
    return {name: column.astype(types[name]) for name, column in columns.items()}


def joined(types: dict[str, type[np.generic]], parts: Sequence[object]) -> dict[str, NDArray[Any]]:
    """The columns of all parts, each in one piece."""
    return {
        name: np.concatenate([np.empty(0, dtype), *(getattr(part, name) for part in parts)])
        for name, dtype in types.items()
    }
