"""A window sliding over a stream of bytes."""

from nagle_lab.capture.compression import ByteSource

WINDOW_BYTES = 1 << 20
SMALLEST = 64  # holds any file header


class Window:
    """The part of a stream that is in memory: ``raw[:end]`` is its bytes from position ``base`` on."""

    def __init__(self, source: ByteSource, head: bytes = b"", *, size: int) -> None:
        self.base = 0
        self.end = len(head)
        self.at_end = False  # the stream has ended
        self._source = source
        self.raw = bytearray(max(size, SMALLEST))
        self.raw[: self.end] = head
        while self.end < SMALLEST and not self.at_end:
            self._read()

    def slide(self, used: int) -> None:
        """Drop the first ``used`` bytes and read what is available; if ``used`` is 0, the window grows first."""
        kept = self.end - used
        if used:
            self.raw[:kept] = self.raw[used : self.end]
        elif self.end == len(self.raw):
            self.raw = self.raw + bytes(len(self.raw))
        self.base += used
        self.end = kept
        self._read()

    def go_to(self, position: int) -> None:
        """Continue at another position of the stream. It must be a stored file: a pipe or a decompressor has no
        positions.
        """
        self._source.seek(position)  # type: ignore[attr-defined]
        self.base, self.end = position, 0
        self._read()

    def _read(self) -> None:
        with memoryview(self.raw) as view:
            count = self._source.readinto(view[self.end :])
        self.end += count
        self.at_end = not count
