"""A window sliding over a stream of bytes."""

import numpy as np
from numpy.typing import NDArray

from nagle_lab.capture.compression import Source
from nagle_lab.capture.records import PADDING

WINDOW_BYTES = 6 << 20
FIRST_BYTES = 1 << 20  # the first are smaller, so that the analysis has something to begin with
SMALLEST = 64  # holds any file header


class Window:
    """The part of a stream that is in memory: `raw[:end]` is its bytes from position `base` on."""

    def __init__(self, source: Source, head: bytes = b"", size: int = WINDOW_BYTES) -> None:
        self.base = 0
        self.end = len(head)
        self.at_end = False  # no more to come
        self._source = source
        self._most = max(size, SMALLEST)
        self._size = min(self._most, FIRST_BYTES)
        self.raw = _room(self._size)
        self.raw[: self.end] = head
        self._fill()

    @property
    def buffer(self) -> NDArray[np.uint8]:
        """The bytes as an array that may be read PADDING bytes beyond `end`."""
        return np.frombuffer(self.raw, np.uint8)

    def slide(self, used: int) -> None:
        """Drop the first `used` bytes and read on. If none could be used, the window grows instead."""
        kept, before = self.end - used, self.raw
        if used == 0:
            self._most = max(self._most, 2 * self._size)
        self._size = min(2 * self._size, self._most)
        if len(before) < self._size + PADDING:
            self.raw = _room(self._size)
        self.raw[:kept] = before[used : self.end]
        self.base += used
        self.end = kept
        self._fill()

    def _fill(self) -> None:
        while self.end < self._size:
            count = self._source.readinto(self.raw[self.end : self._size])
            if not count:
                self.at_end = True
                break
            self.end += count
        self.raw[self.end : self.end + PADDING] = bytes(PADDING)


def _room(size: int) -> memoryview:
    return np.empty(size + PADDING, np.uint8).data  # not zeroed, and a large one is of huge pages
