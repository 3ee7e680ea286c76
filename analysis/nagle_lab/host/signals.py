"""Handlers of signals for the time of a block."""

import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)  # with which people and systems end programs

LAST_PACKETS_S = 2.0  # after Ctrl-C, for the writer of a pipe that is read to send what it still has

Handler = Callable[[int, FrameType | None], object]


@contextmanager
def handling(handlers: Mapping[signal.Signals, Handler]) -> Iterator[None]:
    """Within the block signals go to their handlers; those that are ignored stay ignored.

    SIGINT is ignored in a shell's background job, and SIGHUP in a program that nohup started.
    """
    before = {number: signal.getsignal(number) for number in handlers}
    taken = [number for number, old in before.items() if old is not signal.SIG_IGN]
    try:
        for number in taken:
            signal.signal(number, handlers[number])
        yield
    finally:
        for number in taken:
            signal.signal(number, before[number] or signal.SIG_DFL)
