"""Waiting for what another process does."""

import time
from collections.abc import Callable


def within(seconds: float, condition: Callable[[], object]) -> bool:
    """Return whether the condition comes true within that time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True
