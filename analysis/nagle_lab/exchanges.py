"""Connections → exchanges: a burst of data one way and the burst that answers it, and the gaps in between.

The client's side asks (by handshake, else the side that sent data first). A new exchange begins with the first data
the asking side sends after the answering side has sent some.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nagle_lab.columns import Bytes, Ints, runs
from nagle_lab.connections import Connections
from nagle_lab.distribution import Distribution
from nagle_lab.loops import ACKNOWLEDGES, ANSWERS, ASKS, NEVER, TOGETHER, UNSEEN, Times, pieces
from nagle_lab.shelf import Shelf
from nagle_lab.timeline import Timeline

_MICROSECOND = 1_000  # ns


# Every answered exchange, times in ns; -1 where the capture does not show it.
EXCHANGE = np.dtype(
    [("conn", "i8"), ("exchange", "i4"), ("asked", "i8"), ("to_ack", "i8"), ("to_response", "i8"), ("total", "i8")]
)


@dataclass
class _Open:
    """The open exchange of each live connection, by place (places,)."""

    number: NDArray[np.int32]  # -1 none yet
    asking: NDArray[np.bool_]  # the connection's last data came from the asking side
    answered: NDArray[np.int32]  # exchanges before it that have request and answer
    repeat: NDArray[np.int32]  # those of them that follow another
    greeted: NDArray[np.bool_]
    times: Times


def _nothing(places: int) -> _Open:
    return _Open(
        number=np.full(places, -1, np.int32),
        asking=np.zeros(places, np.bool_),
        answered=np.zeros(places, np.int32),
        repeat=np.zeros(places, np.int32),
        greeted=np.zeros(places, np.bool_),
        times=Times(*(np.full(places, unseen) for unseen in UNSEEN)),
    )


class ExchangeLog:
    """Follows the exchanges of a capture, window by window; the gaps of all of them, in µs.

    ``to_ack`` is from the request's last segment to its acknowledgement, ``to_response`` to the first segment of the
    answer, ``total`` from the request's first segment to the answer's last. ``kept``, if
    there is to be one, has each exchange, in the order in which they ended: rows of :data:`EXCHANGE`.
    """

    def __init__(self, keep: bool = True) -> None:
        self.to_ack, self.to_response, self.total = (Distribution(_MICROSECOND) for _ in range(3))
        self.kept = Shelf(EXCHANGE) if keep else None
        self._open = _nothing(64)
        self._numbers_of = np.empty(0, np.int64)  # of the connections, by place

    def follow(self, rows: Timeline, connections: Connections) -> None:
        """Take the next window; numbers the exchange of every new data row in ``rows.exchange``."""
        self._reach(connections.places)
        self._numbers_of = connections.facts.id
        data = np.flatnonzero(rows.is_data & (rows.end > rows.sent_own) & ~rows.carried)
        client = connections.client_side(rows.conn[rows.starts])
        asks = rows.side[data] == client[rows.group[data]]
        rows.exchange[data] = self._numbers(rows.conn[data], asks)
        # The rows that say something about an exchange: its data, and acknowledgements of its requests.
        acker, segment = rows.answers
        of_request = np.flatnonzero(
            (rows.side[segment] == client[rows.group[segment]]) & (rows.exchange[segment] >= 0)
        )
        number, says = np.empty(len(rows), np.int32), np.zeros(len(rows), np.uint8)
        number[acker[of_request]] = rows.exchange[segment[of_request]]
        says[acker[of_request]] = ACKNOWLEDGES
        number[data] = rows.exchange[data]
        says[data] |= np.where(asks, np.uint8(ASKS), np.uint8(ANSWERS))
        at = np.flatnonzero(says)
        self._collect(rows.conn[at], number[at], rows.ts[at], says[at])

    def close(self, places: Ints) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.bool_], Ints]:
        """End the exchanges of those connections (n,): those answered, those repeated, greeted, the one left open."""
        self._reach(int(places.max(initial=-1)) + 1)
        o = self._open
        some = places[o.number[places] >= 0]
        full = self._finish(some, o.number[some], Times(*(t[some] for t in o.times)))
        left_open = o.number[places].astype(np.int64)
        left_open[np.isin(places, some[full])] = -1
        closed = (o.answered[places], o.repeat[places], o.greeted[places], left_open)
        blank = _nothing(1)
        for name in ("number", "asking", "answered", "repeat", "greeted"):
            getattr(o, name)[places] = getattr(blank, name)[0]
        for times, unseen in zip(o.times, UNSEEN, strict=True):
            times[places] = unseen
        return closed

    def _reach(self, places: int) -> None:
        have = len(self._open.number)
        if places <= have:
            return
        o, more = self._open, _nothing(places - have)
        for name in ("number", "asking", "answered", "repeat", "greeted"):
            setattr(o, name, np.concatenate([getattr(o, name), getattr(more, name)]))
        o.times = Times(*(np.concatenate(both) for both in zip(o.times, more.times, strict=True)))

    def _numbers(self, conn: Ints, asks: NDArray[np.bool_]) -> Ints:
        o, starts = self._open, runs(conn)
        places = conn[starts]
        asked_before = np.concatenate([[False], asks[:-1]])
        asked_before[starts] = o.asking[places] & (o.number[places] >= 0)
        begins = asks & ~asked_before
        begins[starts] |= o.number[places] < 0  # a server that speaks first: its exchange has no request
        begun = np.cumsum(begins)
        sizes = np.diff(starts, append=len(conn))
        number: Ints = begun + np.repeat(o.number[places] - begun[starts] + begins[starts], sizes)
        o.asking[places] = asks[starts + sizes - 1]
        return number

    def _collect(self, conn: Ints, number: NDArray[np.int32], ts: Ints, says: Bytes) -> None:
        """Put rows (n,) in timeline order together, one piece per exchange; ``says`` (n,) what each does in it."""
        if not len(conn):
            return
        edges, times = pieces(conn, number, ts, says)
        place, number = conn[edges], number[edges]
        first = runs(place)
        last = np.append(first[1:], len(place)) - 1
        self._go_on(place, number, times, first)
        before = np.ones(len(place), np.bool_)
        before[last] = False  # each connection's last exchange stays open
        done = np.flatnonzero(before)
        self._finish(place[done], number[done], Times(*(t[done] for t in times)))
        o = self._open
        o.number[place[last]] = number[last]
        for kept, fresh in zip(o.times, times, strict=True):
            kept[place[last]] = fresh[last]

    def _go_on(self, place: Ints, number: NDArray[np.int32], times: Times, first: Ints) -> None:
        """Each connection's ``first`` piece goes on with its open exchange, or ends it."""
        o = self._open
        same = o.number[place[first]] == number[first]
        goes_on, ends = first[same], place[first[~same]]
        for together, kept, fresh in zip(TOGETHER, o.times, times, strict=True):
            fresh[goes_on] = together(fresh[goes_on], kept[place[goes_on]])
        ends = ends[o.number[ends] >= 0]
        self._finish(ends, o.number[ends], Times(*(t[ends] for t in o.times)))

    def _finish(self, place: Ints, number: NDArray[np.int32], times: Times) -> Ints:
        """Count finished exchanges (n,), and return the indices of those that have request and answer."""
        asked, asked_last, acked, answered, answered_last = times
        full = np.flatnonzero((asked < NEVER) & (answered < NEVER))
        o, again = self._open, full[number[full] > 0]
        o.answered += np.bincount(place[full], minlength=len(o.answered)).astype(np.int32)
        o.repeat += np.bincount(place[again], minlength=len(o.repeat)).astype(np.int32)
        o.greeted[place[(number == 0) & (asked == NEVER)]] = True
        asked, asked_last, acked, answered, answered_last = (t[full] for t in times)
        gaps = [
            self._count(self.to_ack, asked_last, acked),
            self._count(self.to_response, asked_last, answered),  # asked again meanwhile: neither
            self._count(self.total, asked, answered_last),
        ]
        if self.kept is not None:
            rows = np.empty(len(full), EXCHANGE)
            rows["conn"], rows["exchange"], rows["asked"] = self._numbers_of[place[full]], number[full], asked
            rows["to_ack"], rows["to_response"], rows["total"] = gaps
            self.kept.append(rows)
        return full

    @staticmethod
    def _count(gaps: Distribution, begin: Ints, end: Ints) -> Ints:
        """The gaps (n,) in ns; -1 where the capture does not show one end, or the clock was set back."""
        gap = np.where(end >= begin, end - begin, -1)
        gaps.add(gap[gap >= 0])
        return gap
