"""The timeline: packets in connection order, each with what both half-connections looked like just before it."""

from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

FIN, SYN, RST, PSH, ACK = 0x01, 0x02, 0x04, 0x08, 0x10


@dataclass
class Timeline:
    """Rows of one window, sorted by connection, then by capture order. All columns have one shape, (n,).

    ``start``, ``end`` and ``ack`` are unwrapped sequence numbers (RFC 9293 §3.4): int64, equal to the wire's modulo
    2**32, ``end`` counting SYN and FIN, ``ack`` in the peer's numbering (-1 without the ACK flag). ``window`` is in
    bytes, scaled. ``sent_*`` is the highest ``end`` and ``acked_*`` the highest number acknowledged *before* this
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
    sent_peer: Ints
    acked_own: Ints
    acked_peer: Ints
    exchange: Ints  # number of the exchange a data row belongs to, from 0 on each connection; -1 none
    carried: Bools

    def __len__(self) -> int:
        return len(self.conn)

    def take(self, rows: Ints) -> "Timeline":
        """Those rows, in that order."""
        return Timeline(**{f.name: getattr(self, f.name)[rows] for f in fields(self)})

    @staticmethod
    def join(one: "Timeline", two: "Timeline") -> "Timeline":
        """Rows of ``one`` before rows of ``two``."""
        return Timeline(**{f.name: np.concatenate([getattr(one, f.name), getattr(two, f.name)]) for f in fields(one)})

    # What kind of segment a row is ------------------------------------------------------------------

    @property
    def is_data(self) -> Bools:
        """Rows with payload."""
        return self.length > 0

    @property
    def is_fresh(self) -> Bools:
        """Rows that bring sequence space never sent before in this capture: not retransmissions."""
        return (self.end > self.start) & (self.start >= self.sent_own)

    @property
    def is_pure_ack(self) -> Bools:
        """Rows with the ACK flag and nothing else to say."""
        pure: Bools = ((self.flags & (SYN | FIN | RST | ACK)) == ACK) & (self.length == 0)
        return pure

    @cached_property
    def answers(self) -> tuple[Ints, Ints]:
        """New rows that newly acknowledge the peer's latest segment, and the index of that segment: RTT samples.

        Both shape (samples,). Retransmitted segments give none (Karn's rule, RFC 6298 §3).
        """
        consuming = self.end > self.start
        latest = [self.last_before(consuming & (self.side == side)) for side in (0, 1)]
        theirs = np.where(self.side == 0, latest[1], latest[0])
        acker = np.flatnonzero((theirs >= 0) & ~self.carried & (self.ack > self.acked_peer))
        segment = theirs[acker]
        exact = (self.ack[acker] == self.end[segment]) & self.is_fresh[segment]
        return acker[exact], segment[exact]

    # Neighbours inside a connection -----------------------------------------------------------------

    @cached_property
    def starts(self) -> Ints:
        """Index of the first row of each connection, shape (connections,)."""
        return np.flatnonzero(np.diff(self.conn, prepend=-1))

    @cached_property
    def lasts(self) -> Ints:
        """Index of the last row of each connection, shape (connections,)."""
        return np.append(self.starts[1:], len(self)) - 1

    @cached_property
    def _first(self) -> Ints:
        return np.repeat(self.starts, np.diff(self.starts, append=len(self)))

    def last_until(self, mask: Bools) -> Ints:
        """For each row the index of the latest row up to and with it, in its connection, where ``mask``; else -1."""
        latest = np.maximum.accumulate(np.where(mask, np.arange(len(self)), -1))
        return np.where(latest >= self._first, latest, -1)

    def last_before(self, mask: Bools) -> Ints:
        """As :meth:`last_until`, the row itself excluded."""
        latest = np.concatenate([[-1], self.last_until(mask)[:-1]]).astype(np.int64)
        latest[self.starts] = -1
        return latest
