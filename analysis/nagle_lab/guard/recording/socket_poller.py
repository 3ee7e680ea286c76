"""Asking the kernel, while packets are recorded, whether data waits in sockets behind a small segment.

Packets show when data left. The kernel says whether it had been written before. That distinguishes a program that
waits from one whose data is held, however busy the machine is.
"""

import time
from collections.abc import Iterator, Sequence

from nagle_lab.capture.kernel_answers import SLOWEST_NS, KernelAnswer
from nagle_lab.errors import NagleLabError
from nagle_lab.host.sock_diag import ListedSocket, busy_sockets

LEAST_S = 0.008  # from one question to the next
SHARE = 0.03  # the most that asking may take of a processor
AT_A_TIME_S = 0.003  # time for a long answer, the rest of which waits, because packets must not
LONGEST_S = SLOWEST_NS / 1e9
SILENT_MS = 4  # a kernel tick: so soon after the last segment, data may just be leaving
SOCKETS_AT_ONCE = 20  # in one answer
AT_FIRST, PER_S = 100_000, 200  # sockets in all answers: so many at first, and so many more a second


class SocketPoller:
    """Asks the kernel at intervals for the sockets of this network namespace."""

    def __init__(self, ports: Sequence[int] = ()) -> None:
        self._ports = frozenset(ports)
        self._parts: Iterator[list[ListedSocket]] | None = None  # of an answer that is not complete
        self._next = 0.0
        self._left, self._counted_at = float(AT_FIRST), time.monotonic()

    def answers(self) -> list[KernelAnswer]:
        """Ask the kernel what waits in sockets whose last segment is small and not acknowledged; returns answers for
        some sockets.

        Data that waits for room in a window does not wait for that acknowledgement, so there nothing counts as
        waiting.

        Sockets with waiting data come first. Nothing is returned if the kernel was asked just before, or gives no
        answer. With very many sockets, each call answers for some of them.
        """
        began, used = time.monotonic(), time.thread_time()
        self._left = min(self._left + PER_S * (began - self._counted_at), AT_FIRST)
        self._counted_at = began
        if began < self._next or self._left < 1:
            return []
        try:
            sockets = self._take(began + AT_A_TIME_S)
        except (OSError, NagleLabError):
            self._next = float("inf")
            return []
        now, took = time.time_ns(), time.monotonic() - began
        self._next = began + max(LEAST_S, (time.thread_time() - used) / SHARE)
        if took > LONGEST_S:
            return []
        first = sorted(filter(self._is_wanted, sockets), key=lambda one: one.held == 0)
        first = first[: min(SOCKETS_AT_ONCE, int(self._left))]
        self._left -= len(first)
        return [KernelAnswer(now, one.local, one.remote, one.held) for one in first]

    def _take(self, until: float) -> list[ListedSocket]:
        """The sockets in the kernel's answer, or in the part of it that arrives in time."""
        is_old = self._parts is not None  # the kernel made the next part when the previous one was taken
        parts = self._parts = self._parts or busy_sockets()
        found: list[ListedSocket] = []
        for part in parts:
            found += [] if is_old else part
            is_old = False
            if time.monotonic() >= until:
                return found
        self._parts = None
        return found

    def _is_wanted(self, listed: ListedSocket) -> bool:
        if not listed.is_behind_small or not listed.info or listed.info.silent_ms < SILENT_MS:
            return False
        return not self._ports or not self._ports.isdisjoint((listed.local[1], listed.remote[1]))
