"""Whether time goes on from packet to packet, and which packets' times can be compared.

A clock that was set stays set, a stray packet is alone: time was set back where more than STRAY packets in a row of
one interface all seem older than the more than STRAY that they follow. Whatever else goes back is packets out of
order. The times before, within and after are of different stretches, and no wait from one to another can be known.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

# Capturing in several queues puts packets out of order by less; and no ACK seems late that is so little off, half of
# what tells a late one (stalls.LATE).
DISORDER = 10_000_000  # ns

STRAY = 8  # packets in a row
MOST_INTERFACES = 1 << 16  # of a section

Ints = NDArray[np.int64]


class Clock:
    """Watches the time of each interface of a capture; those of several may come interleaved."""

    def __init__(self) -> None:
        self.set_back: tuple[int, int] | None = None  # the first frame at which it was, and by how many ns
        self.breaks = 0  # how often a stretch ended
        self._levels: dict[int, _Level] = {}
        self._last: int | None = None  # time of the last packet, ns

    def new_file(self) -> None:
        """The packets that follow are another file's, with interfaces of its own."""
        self._levels.clear()

    def stretches(self, ts: Ints, interface: Ints, frame: Ints) -> Ints:
        """The stretch of time of each of the next packets (n,), numbered from 0 on; ``ts`` in ns.

        ``interface`` numbers them through all sections of a file: each section has its own clock.
        """
        broken = np.zeros(len(ts), np.int64)
        for number, rows in _each(interface):
            if (level := self._levels.get(number)) is None:
                level = self._levels[number] = _Level()
                broken[rows[0]] = self._goes_back(ts, int(rows[0]))
            broken[rows[level.follow(ts[rows], frame[rows])]] = 1
            # Known only some packets after the break, which may be in another window.
            self.set_back = min(filter(None, (self.set_back, level.set_back)), default=None)
        if len(self._levels) > MOST_INTERFACES:  # older ones are of sections that are over
            since = max(self._levels) - MOST_INTERFACES
            self._levels = {number: level for number, level in self._levels.items() if number > since}
        self._last = int(ts[-1])
        stretches = self.breaks + np.cumsum(broken)
        self.breaks = int(stretches[-1])
        return stretches

    def _goes_back(self, ts: Ints, at: int) -> bool:
        before = int(ts[at - 1]) if at else self._last
        return before is not None and int(ts[at]) < before - DISORDER


def _each(interface: Ints) -> list[tuple[int, Ints]]:
    """Every interface, and the rows that are its."""
    if (interface == interface[0]).all():
        return [(int(interface[0]), np.arange(len(interface)))]
    order = np.argsort(interface, kind="stable")
    parts = np.split(order, np.flatnonzero(np.diff(interface[order])) + 1)
    return [(int(interface[rows[0]]), rows) for rows in parts]


@dataclass
class _Level:
    """How far the time of one interface has come."""

    set_back: tuple[int, int] | None = None
    high: int = -(1 << 62)  # the latest time
    before: list[int] = field(default_factory=list)  # times of the last packets that were not behind it
    behind: list[int] = field(default_factory=list)  # of those that followed and are
    frame: int = 0  # of the first of these

    def follow(self, times: Ints, frame: Ints) -> list[int]:
        """Where among the next packets (n,) a stretch begins."""
        if len(times) > STRAY and not self.behind:
            high = np.maximum(np.maximum.accumulate(times), self.high)
            if (high - times <= DISORDER).all():
                self.high, self.before = int(high[-1]), times[-STRAY - 1 :].tolist()
                return []
        return [at for at, time in enumerate(times.tolist()) if self._breaks(time, int(frame[at]))]

    def _breaks(self, time: int, frame: int) -> bool:
        """Take the next packet; whether a stretch begins with it."""
        if time >= self.high - DISORDER:
            breaks = bool(self.behind)
            self.high, self.before, self.behind = max(time, self.high), [*self.before, time][-STRAY - 1 :], []
            return breaks
        breaks = not self.behind
        self.frame = frame if breaks else self.frame
        self.behind.append(time)
        if len(self.behind) > STRAY:  # time goes on from here, whichever of the two was astray
            if len(self.before) > STRAY and min(self.before) - max(self.behind) > DISORDER:
                self.set_back = self.set_back or (self.frame, self.before[-1] - self.behind[0])
            self.high, self.before, self.behind = max(self.behind), self.behind, []
        return breaks
