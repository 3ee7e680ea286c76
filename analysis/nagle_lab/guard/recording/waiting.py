"""Whether data waits in sockets behind a small segment, asked of the kernel while it is recorded.

Packets show when data left. The kernel says whether it had been written before: so a program that waits is told from
one that is kept waiting, however busy the machine.
"""

import time
from collections.abc import Sequence

from nagle_lab.capture.waiting import MOST, Waiting
from nagle_lab.errors import NagleLabError
from nagle_lab.guard.recording.diag import OPEN_STATES, tcp_sockets

LEAST_S = 0.008  # from one answer to the next
SHARE = 0.05  # of a processor, at most, that asking may take
LONGEST_S = 0.005  # an answer that took longer says too little of when: see diagnosis/proof/shown.py
AT_ONCE = 20  # sockets of one answer


class Asked:
    """Asks the kernel for the sockets of this network namespace, now and then."""

    def __init__(self, ports: Sequence[int] = ()) -> None:
        self._ports = frozenset(ports)
        self._next = 0.0
        self._left = MOST

    def waiting(self) -> list[Waiting]:
        """Of those whose last segment is small and not acknowledged, what waits in the first few; none in the others.

        Those in which something waits come first. Nothing where it was asked just before, or does not say.
        """
        began, used = time.monotonic(), time.thread_time()
        if began < self._next or not self._left:
            return []
        try:
            sockets = tcp_sockets(states=OPEN_STATES)
        except (OSError, NagleLabError):
            self._next = float("inf")
            return []
        now, took = time.time_ns(), time.monotonic() - began
        self._next = began + max(LEAST_S, (time.thread_time() - used) / SHARE)
        if took > LONGEST_S:
            return []
        of_small = [one for one in sockets if one.waits_for_small and self._is_wanted(one.local[1], one.remote[1])]
        of_small.sort(key=lambda one: one.unsent == 0)
        first = of_small[: min(AT_ONCE, self._left)]
        self._left -= len(first)
        return [Waiting(now, one.local, one.remote, one.unsent) for one in first]

    def _is_wanted(self, *ports: int) -> bool:
        return not self._ports or not self._ports.isdisjoint(ports)
