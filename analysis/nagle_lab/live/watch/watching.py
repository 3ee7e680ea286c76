"""One stream of packets, watched: its last seconds are judged at intervals, and the whole stream at the end."""

import io
import math
import os
import selectors
import signal
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from nagle_lab.diagnosis.analysis import Analysis
from nagle_lab.diagnosis.left_out import Wanted
from nagle_lab.diagnosis.result.result import Connection
from nagle_lab.host.libc import LIBC
from nagle_lab.host.signals import ENDING, LAST_PACKETS_S, handling
from nagle_lab.live.watch.live_findings import Finding, LiveFindings
from nagle_lab.live.watch.metrics import Metrics
from nagle_lab.live.watch.periods import Periods, PeriodSums
from nagle_lab.live.watch.program_names import ProgramNames
from nagle_lab.live.watch.recording import Recording
from nagle_lab.live.watch.ring import PacketRing
from nagle_lab.live.watch.view import View, judge_snapshot

EVERY_S = 2.0  # least time between two views
REST = 4  # the next view comes after at least so many times the time of the last one
SETTLED_S = 5.0  # between its request and counting an exchange: by then it is answered, or never will be


class Spectator(ABC):
    """Shows each view: a terminal, which also takes keys, or lines of text."""

    @abstractmethod
    def show(self, view: View | None, said: list[Finding], watcher: "Watcher") -> None:
        """Show a new view of the last seconds; ``said`` are the findings to report."""

    @abstractmethod
    def note(self, text: str) -> None:
        """Tell the user something that they should know."""

    def redraw(self) -> None:  # noqa: B027 - without a terminal there is nothing to draw
        """Draw again: the terminal may have another size."""

    def key_fd(self) -> int:
        """The file descriptor that keys come from; negative: there are none."""
        return -1

    def keys(self, watcher: "Watcher") -> None:  # noqa: B027 - nor a key
        """Take the keys that were pressed."""


class Watcher:
    """Follows the packets that come through ``fd``, of a recording, or of somebody else's pipe."""

    def __init__(
        self, source: Recording | int, name: str, spectator: Spectator, names: ProgramNames, *,
        window_s: float, seconds: float | None, only: Wanted | None, period_s: float, metrics: Metrics | None,
    ) -> None:  # fmt: skip
        self._recording = source if isinstance(source, Recording) else None
        self._fd = source.fd if isinstance(source, Recording) else source
        self._name, self._spectator, self._names, self._only = name, spectator, names, only
        self._window_s, self._metrics = window_s, metrics
        self.findings = LiveFindings()  # so far, as counted live
        self._unseen = 0  # programs already reported as such
        self._counted = (0, 0)  # packets and losses already in the metrics
        self._until = None if seconds is None else time.monotonic() + seconds
        self._stop_waiting_at: float | None = None  # when to stop waiting
        self._interrupted = False
        self._next_look = 0.0
        self._dropped: deque[tuple[float, int]] = deque()
        self._analysis: Analysis | None = None
        self._periods = Periods(period_s)
        self.sums = self._periods.sums  # the final ones, of the ended periods
        self.ring = PacketRing(window_s)  # the last packets

    @property
    def dropped(self) -> int:
        """Packets that the recorder says it lost so far."""
        return self._analysis.dropped if self._analysis else 0

    def run(self) -> PeriodSums:
        """Run until the stream ends, or is ended. Raises NagleLabError if it is not a capture."""
        with _signals(lambda *_: self.end()) as self._wake:
            self._selector = selectors.PollSelector()  # takes files, too
            self._selector.register(self._fd, selectors.EVENT_READ)
            self._selector.register(self._wake, selectors.EVENT_READ)
            if (keys := self._spectator.key_fd()) >= 0:
                self._selector.register(keys, selectors.EVENT_READ)
            stream = _Stream(self._fd, self._name, self._wait)
            self._analysis = Analysis(stream, exchanges=False, sha256=False, only=self._only, onlooker=self.ring)
            for _ in self._analysis:
                if self._periods.end_if_due(self._analysis):
                    _give_back()
            if self._interrupted:
                self._analysis.note_interrupted()
            if self._recording:
                self._recording.stop()
            self._judge_window(time.monotonic(), is_last=True)
        self.sums.add(self._analysis.result())
        return self.sums

    def end(self) -> None:
        """Stop after reading what is in the pipe; called again, stop at once."""
        if self._stop_waiting_at is not None:
            self._stop_waiting_at = 0.0
            return
        self._interrupted = True
        if self._recording:
            self._recording.stop()
            self._stop_waiting_at = math.inf  # its pipe ends after everything that it recorded
        else:
            self._stop_waiting_at = time.monotonic() + LAST_PACKETS_S

    def _wait(self) -> bool:
        """Wait until there is something to read, and do all other work meanwhile; False if there is nothing more to
        wait for.
        """
        while True:
            self._do_what_is_due()
            now = time.monotonic()
            if self._stop_waiting_at is not None and now >= self._stop_waiting_at:
                return False
            due = min(at for at in (self._next_look, self._stop_waiting_at, self._until) if at is not None)
            ready = {key.fd for key, _ in self._selector.select(max(due - now, 0.0))}
            if self._wake in ready:
                os.read(self._wake, 1 << 10)
                self._spectator.redraw()
            if self._spectator.key_fd() in ready:
                self._spectator.keys(self)
            if self._fd in ready:
                return True

    def _do_what_is_due(self) -> None:
        now = time.monotonic()
        if self._until is not None and now >= self._until:
            self._until = None
            self.end()
        if self._recording and self._stop_waiting_at is None and (text := self._recording.changes()):
            self._names.follow(self._recording.pid)
            self._spectator.note(text)
        for text in self._names.unseen[self._unseen :]:
            self._unseen += 1
            self._spectator.note(text)
        if now >= self._next_look:
            self._judge_window(now)

    def _judge_window(self, now: float, *, is_last: bool = False) -> None:
        self._dropped.append((now, self.dropped))
        while now - self._dropped[0][0] > self._window_s:
            self._dropped.popleft()
        lost = self._dropped[-1][1] - self._dropped[0][1]
        snapshot = self.ring.snapshot()
        view = judge_snapshot(snapshot, self._names, lost, self._wanted, exchanges=self._metrics is not None)
        said = self.findings.take(view) if view else self.findings.end_all()
        if self._metrics:
            self._count(self._metrics, view, 0.0 if is_last else self._settled_s(now))
        if view is None:
            snapshot.close()
        self._spectator.show(view, said, self)
        _give_back()
        took = time.monotonic() - now
        self._next_look = time.monotonic() + max(EVERY_S, REST * took)

    def _count(self, metrics: Metrics, view: View | None, settled_s: float) -> None:
        before, self._counted = self._counted, (self.ring.frames, self.dropped)
        metrics.count(*(now - then for now, then in zip(self._counted, before, strict=True)))
        if view:
            metrics.take(view, self.findings.new, self._names, settled_s)

    def _settled_s(self, now: float) -> float:
        """How long before the last packet an exchange must have begun to be counted; 0 if none has come for long."""
        return max(min(SETTLED_S, self._window_s / 4) - (now - self.ring.last_came), 0.0)

    def _wanted(self, connection: Connection) -> bool:
        return self._only is None or self._only(*connection.ends)


def _give_back() -> None:
    """Give freed memory back to the system: glibc keeps it in pieces, more and more with each view."""
    with suppress(AttributeError):  # another C library
        LIBC.malloc_trim(0)


class _Stream(io.FileIO):
    """A pipe that is read when ``wait`` returns True, and ends when it returns False."""

    def __init__(self, fd: int, name: str, wait: Callable[[], bool]) -> None:
        super().__init__(fd, closefd=False)
        self.name = name
        self._wait = wait

    def readinto(self, buffer: Any) -> int:
        return (super().readinto(buffer) or 0) if self._wait() else 0


@contextmanager
def _signals(handler: Callable[..., None]) -> Iterator[int]:
    """Signals that end a program go to ``handler``, unless ignored; a descriptor reports each, and a change of the
    terminal's size.
    """
    wake, woken = os.pipe()
    os.set_blocking(wake, False)
    os.set_blocking(woken, False)
    old_fd = signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
    try:
        with handling({**dict.fromkeys(ENDING, handler), signal.SIGWINCH: lambda *_: None}):
            yield wake
    finally:
        signal.set_wakeup_fd(old_fd)
        os.close(wake)
        os.close(woken)
