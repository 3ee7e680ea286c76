"""The capture's clock: whether time advances from packet to packet, and which packets' times can be compared.

A clock that was set stays set; a stray packet comes alone. So the clock counts as set back only if more than STRAY
packets in a row of one interface are older than each of the more than STRAY packets before them. Any other step back
is packets out of order. Times before, within and after a break belong to different *epochs*, and no wait from one
epoch to another can be known.
"""

from collections import deque

# Capturing in several queues disorders packets by less. It is half of DELAYED (tcp/events.py), so that disorder
# alone makes no ACK count as delayed.
DISORDER = 10_000_000  # ns

STRAY = 8  # packets in a row
MOST_INTERFACES = 1 << 16  # of a section


class Clock:
    """Watches the time of each interface of a capture; packets of several interfaces may be interleaved."""

    def __init__(self) -> None:
        self.set_back: tuple[int, int] | None = None  # the first frame at which it was set back, and by how many ns
        self.epoch = 0  # of the latest packet: the number of breaks so far
        self._interfaces: dict[int, Watched] = {}
        self._last: int | None = None  # time of the last packet, ns
        self._is_first = True  # the next packet is the first of its file
        self._begins_before = False

    def new_file(self) -> None:
        """The following packets are of another file, with its own interfaces."""
        self._interfaces.clear()
        self._is_first = True

    def begins_before(self) -> bool:
        """Whether this file began before the previous one ended; True only once."""
        before, self._begins_before = self._begins_before, False
        return before

    def epoch_of(self, ts: int, interface: int, frame: int) -> int:
        """The epoch of the next packet, captured at ``ts`` ns on an interface: it begins at 0, and each break adds
        one.

        ``interface`` numbers them through all sections of a file: each section has its own clock.
        """
        watched = self._interfaces.get(interface) or self._watch(interface, ts)
        if ts >= watched.high and not watched.behind:  # time advances, as it nearly always does
            watched.high = ts
            watched.ahead.append(ts)
        elif watched.breaks(ts, frame, self):
            self.epoch += 1
        self._last = ts
        return self.epoch

    def _watch(self, interface: int, ts: int) -> "Watched":
        """Watch an interface from its first packet on, captured at ``ts`` ns."""
        if self._is_first:
            self._begins_before = self._last is not None and ts < self._last
            self._is_first = False
        watched = self._interfaces[interface] = Watched()
        if self._last is not None and ts < self._last - DISORDER:
            self.epoch += 1
        if len(self._interfaces) > MOST_INTERFACES:  # the oldest are of sections that are over
            del self._interfaces[next(iter(self._interfaces))]
        return watched

    def note_set_back(self, frame: int, by: int) -> None:
        """Note that the clock was set back by ``by`` ns at that frame; only the first time is kept."""
        self.set_back = min(self.set_back or (frame, by), (frame, by))


class Watched:
    """How far the time of one interface has come. Times in ns."""

    __slots__ = ("_first_behind", "ahead", "behind", "high")

    def __init__(self) -> None:
        self.high = -(1 << 62)  # the latest time
        # Times of the last packets that were not behind it
        self.ahead: deque[int] = deque(maxlen=STRAY + 1)
        self.behind: list[int] = []  # times of the packets since then that are behind
        self._first_behind = 0  # frame of the first of these

    def breaks(self, ts: int, frame: int, clock: Clock) -> bool:
        """Take the next packet, captured at ``ts`` ns; returns whether a new epoch of the clock begins with it."""
        if ts >= self.high - DISORDER:
            ended = bool(self.behind)
            if ended:
                self.behind = []
            self.high = max(self.high, ts)
            self.ahead.append(ts)
            return ended
        began = not self.behind
        if began:
            self._first_behind = frame
        self.behind.append(ts)
        if len(self.behind) > STRAY:  # time continues from here, whichever of the two was astray
            if len(self.ahead) > STRAY and min(self.ahead) - max(self.behind) > DISORDER:
                clock.note_set_back(self._first_behind, self.ahead[-1] - self.behind[0])
            self.high, self.ahead, self.behind = max(self.behind), deque(self.behind, STRAY + 1), []
        return began
