"""Connections → exchanges: a burst of data one way and the burst that answers it, and the gaps in between.

The client's side asks (by handshake, else the side that sent data first). A new exchange begins with the first data
the asking side sends after the answering side has sent some.
"""

import numpy as np
from numpy.typing import NDArray

from nagle_lab.diagnosis.distribution import Distribution
from nagle_lab.tcp import loops
from nagle_lab.tcp.columns import Bools, Ints
from nagle_lab.tcp.connections import Connections
from nagle_lab.tcp.loops import NEVER, NO_EXCHANGES, Ended, Exchanges
from nagle_lab.tcp.shelf import Shelf
from nagle_lab.tcp.timeline import Timeline

_MICROSECOND = 1_000  # ns


# Every answered exchange, times in ns; -1 where the capture does not show it.
EXCHANGE = np.dtype(
    [("conn", "i8"), ("exchange", "i4"), ("asked", "i8"), ("to_ack", "i8"), ("to_response", "i8"), ("total", "i8")]
)


def nothing(places: int) -> Exchanges:
    """So many connections without an exchange."""
    return Exchanges._make(np.full(places, value, dtype) for value, dtype in zip(NO_EXCHANGES, _DTYPES, strict=True))


_DTYPES = ("i4", "?", "i4", "i4", "?", "i8", "i8", "i8", "i8", "i8")


class ExchangeLog:
    """Follows the exchanges of a capture, window by window; the gaps of all of them, in µs.

    ``to_ack`` is from the request's last segment to its acknowledgement, ``to_response`` to the first segment of the
    answer, ``total`` from the request's first segment to the answer's last. ``kept``, if
    there is to be one, has each exchange: rows of :data:`EXCHANGE`.
    """

    def __init__(self, keep: bool = True) -> None:
        self.to_ack, self.to_response, self.total = (Distribution(_MICROSECOND) for _ in range(3))
        self.kept = Shelf(EXCHANGE) if keep else None
        self._now = nothing(64)

    def follow(self, rows: Timeline, connections: Connections) -> None:
        """Take the next window; numbers the exchange of every new data row in ``rows.exchange``."""
        self._reach(connections.places)
        client = connections.client_side(rows.conn[rows.starts])
        self._count(loops.exchanges(rows, client, self._now), connections)

    def close(
        self, places: Ints, connections: Connections
    ) -> tuple[NDArray[np.int32], NDArray[np.int32], Bools, NDArray[np.int32]]:
        """End the exchanges of those connections (n,): those answered, those repeated, greeted, the one left open."""
        self._reach(connections.places)
        last = Exchanges._make(column[places] for column in self._now)
        full = (last.asked < NEVER) & (last.answered < NEVER)
        self._count(Ended(places[full], last.number[full], *(times[full] for times in last[-5:])), connections)
        for name in Exchanges._fields:
            getattr(self._now, name)[places] = getattr(NO_EXCHANGES, name)
        return (
            last.full + full,
            last.repeat + (full & (last.number > 0)),
            last.greeted | ((last.number == 0) & (last.asked == NEVER)),
            np.where(full, np.int32(-1), last.number),
        )

    def _reach(self, places: int) -> None:
        have = len(self._now.number)
        if places > have:
            now, more = self._now, nothing(places - have)
            self._now = Exchanges._make(
                np.concatenate([getattr(now, name), getattr(more, name)]) for name in Exchanges._fields
            )

    def _count(self, ended: Ended, connections: Connections) -> None:
        gaps = [
            self._gaps(self.to_ack, ended.asked_last, ended.acked),
            self._gaps(self.to_response, ended.asked_last, ended.answered),  # asked again meanwhile: neither
            self._gaps(self.total, ended.asked, ended.answered_last),
        ]
        if self.kept is not None:
            rows = np.empty(len(ended.place), EXCHANGE)
            rows["conn"], rows["exchange"] = connections.facts.id[ended.place], ended.number
            rows["asked"], rows["to_ack"], rows["to_response"], rows["total"] = ended.asked, *gaps
            self.kept.append(rows)

    @staticmethod
    def _gaps(gaps: Distribution, begin: Ints, end: Ints) -> Ints:
        """The gaps (n,) in ns; -1 where the capture does not show one end, or the clock was set back."""
        gap = np.where(end >= begin, end - begin, -1)
        known = gap >= 0
        gaps.add(gap if known.all() else gap[known])
        return gap
