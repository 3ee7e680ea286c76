"""Waiting for another process."""

import fcntl
import struct
import termios
import time
from collections.abc import Callable
from typing import IO, Any


def within(seconds: float, condition: Callable[[], object]) -> bool:
    """Return whether the condition becomes true within that time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def unread(pipe: IO[Any]) -> int:
    """How many unread bytes there are in a pipe, given either end."""
    (count,) = struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)))
    return int(count)
