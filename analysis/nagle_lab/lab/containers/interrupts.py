"""Ctrl-C and SIGTERM, taken only where the lab waits, so that it always knows what it has started."""

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from nagle_lab.host.signals import handling

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class _State:
    received = False
    waiting = False


def _on_signal(_number: int, _frame: FrameType | None) -> None:
    _State.received = True
    if _State.waiting:
        _State.waiting = False
        raise KeyboardInterrupt


@contextmanager
def deferred() -> Iterator[None]:
    """Within the block, signals raise KeyboardInterrupt inside ``interruptible()`` and at the block's end only.

    Outside the main thread, where Python delivers no signals, the block changes nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    _State.received = False
    with handling(dict.fromkeys(_SIGNALS, _on_signal)):
        yield
    if _State.received:
        raise KeyboardInterrupt


@contextmanager
def interruptible() -> Iterator[None]:
    """Within the block a signal, also one that came earlier, raises KeyboardInterrupt."""
    _State.waiting = True
    try:
        if _State.received:
            raise KeyboardInterrupt
        yield
    finally:
        _State.waiting = False


def pause(seconds: float) -> None:
    """Sleep; a signal raises KeyboardInterrupt."""
    with interruptible():
        time.sleep(seconds)
