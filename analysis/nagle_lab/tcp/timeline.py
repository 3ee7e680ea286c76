"""The timeline: packets in connection order, each with what both half-connections looked like just before it.

Most questions are asked of few rows ("what came before this late packet?"), so the helpers take row indices.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nagle_lab.tcp import loops
from nagle_lab.tcp.columns import ACK, FIN, RST, SYN, Bools, Ints, empty_columns, runs
from nagle_lab.tcp.loops import Noticed

LONG = 20_000_000  # ns; half of the shortest delayed-ACK timer (diagnosis.stalls): what took less is nothing


@dataclass(frozen=True)
class Timeline:
    """Rows of one window, grouped by connection, then in capture order. All columns have one shape, (n,).

    ``conn`` is the connection's place in the table of live connections (:mod:`nagle_lab.tcp.connections`). ``start``,
    ``end`` and ``ack`` are unwrapped sequence numbers (RFC 9293 §3.4): int64, equal to the wire's modulo 2**32,
    ``end`` counting SYN and FIN, ``ack`` in the peer's numbering (-1 without the ACK flag). ``window`` is in bytes,
    scaled. ``sent_own`` is the highest ``end``, and ``acked_peer`` the highest ``ack``, that the row's own side sent
    *before* this row. ``carried`` rows were in an earlier window; they are context, and every reader must leave their
    own events alone.
    """

    conn: Ints
    side: NDArray[np.int8]
    frame: Ints
    ts: Ints  # ns since the epoch
    gap: Ints  # ns since the connection's previous packet; 0 for its first
    start: Ints
    end: Ints
    ack: Ints
    length: Ints  # payload bytes
    flags: NDArray[np.uint16]
    window: Ints
    sent_own: Ints
    acked_peer: Ints
    exchange: NDArray[np.int32]  # number of the exchange a data row belongs to, from 0 on each connection; -1 none
    carried: Bools
    stretch: Ints  # only times of one stretch can be compared

    def __len__(self) -> int:
        return len(self.conn)

    @property
    def columns(self) -> list[NDArray[Any]]:
        """All of them, in order."""
        return [getattr(self, name) for name in COLUMNS]

    @classmethod
    def empty(cls, count: int) -> "Timeline":
        """A table of so many rows, with anything in them."""
        return cls(*empty_columns(count, (_DTYPES.get(name, np.int64) for name in COLUMNS)))

    def put(self, at: Ints, rows: "Timeline") -> None:
        """Write ``rows`` (n,) to the rows ``at`` (n,)."""
        for name in COLUMNS:
            getattr(self, name)[at] = getattr(rows, name)

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
    def is_acking(self) -> Bools:
        """Rows with the ACK flag."""
        return np.asarray((self.flags & np.uint16(ACK)) != 0)

    @cached_property
    def is_pure_ack(self) -> Bools:
        """Rows with the ACK flag and nothing else to say."""
        return self.is_pure_ack_at(slice(None))

    def is_pure_ack_at(self, at: Ints | slice) -> Bools:
        """Which of the rows ``at`` are pure ACKs."""
        pure: Bools = ((self.flags[at] & np.uint16(SYN | FIN | RST | ACK)) == ACK) & (self.length[at] == 0)
        return pure

    def is_fresh(self, at: Ints) -> Bools:
        """Which of the rows ``at`` bring sequence space never sent before in this capture: no retransmissions."""
        return (self.end[at] > self.start[at]) & (self.start[at] >= self.sent_own[at])

    @cached_property
    def noticed(self) -> Noticed:
        """What the rows show beside those before them; waits and pauses of at least :data:`LONG`."""
        return loops.notice(self, LONG)

    # Neighbours inside a connection -----------------------------------------------------------------

    @cached_property
    def starts(self) -> Ints:
        """Index of the first row of each connection, shape (connections,)."""
        return runs(self.conn)

    @cached_property
    def lasts(self) -> Ints:
        """Index of the last row of each connection, shape (connections,)."""
        return np.append(self.starts[1:], len(self)) - 1

    @cached_property
    def sizes(self) -> Ints:
        """Rows of each connection, shape (connections,)."""
        return np.diff(self.starts, append=len(self))

    @cached_property
    def group(self) -> Ints:
        """Which of the connections here each row belongs to, (n,): an index of ``starts``."""
        return np.repeat(np.arange(len(self.starts)), self.sizes)

    @cached_property
    def closed_windows(self) -> bool:
        """Whether any row tells of a window of zero."""
        return bool((self.window == 0).any())

    def latest_of_own(self, kind: str, at: Ints) -> Ints:
        """For each row ``at`` the index of the latest earlier row of its connection, side and ``kind``; else -1.

        A kind is "data", "consuming", "acking" or "pure_ack".
        """
        return self._latest_of(kind)[0][at]

    def latest_of_peer(self, kind: str, at: Ints) -> Ints:
        """As :meth:`latest_of_own`, among the rows of the other side."""
        return self._latest_of(kind)[1][at]

    def _latest_of(self, kind: str) -> tuple[Ints, Ints]:
        if kind not in self._latest:
            self._latest[kind] = loops.latest(self.conn, self.side, getattr(self, f"is_{kind}"))
        return self._latest[kind]

    @cached_property
    def _latest(self) -> dict[str, tuple[Ints, Ints]]:
        return {}


COLUMNS = tuple(f.name for f in fields(Timeline))
_DTYPES = {"side": np.int8, "flags": np.uint16, "exchange": np.int32, "carried": np.bool_}  # of others: int64
