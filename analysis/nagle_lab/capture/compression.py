"""gzip and zstd, decompressed as the bytes stream past: in bounded steps, up to the last byte before damage."""

import zlib
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any, Protocol

try:
    import zstandard

    _ZSTD_ERROR: type[Exception] = zstandard.ZstdError

    def _zstd_decompressor() -> Any:
        return zstandard.ZstdDecompressor().decompressobj()

except ModuleNotFoundError:  # in a browser, where Python has its own (PEP 784)
    _zstd = import_module("compression.zstd")
    _ZSTD_ERROR, _zstd_decompressor = _zstd.ZstdError, _zstd.ZstdDecompressor

GZIP_MAGIC = b"\x1f\x8b"
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_ZSTD_SKIPPABLE = b"\x2a\x4d\x18"  # after 0x50…0x5f; RFC 8878 §3.1.2

CHUNK = 1 << 16  # compressed bytes asked for at a time
STEP = 1 << 18  # decompressed bytes made at a time

ENDS_EARLY = "ends early"


class ByteSource(Protocol):
    """Where bytes come from: a stored file, or a decompressor over one."""

    def readinto(self, view: memoryview) -> int:
        """Fill `view` from its start; returns the count, 0 at the end."""


class DamagedStreamError(Exception):
    """Compressed bytes end too early or are invalid; the message says which, as the end of a sentence."""


class Decompressed:
    """A ByteSource of decompressed bytes. Damage ends it; `problem` then describes the damage (empty: none)."""

    def __init__(self, stored: ByteSource, decompress: "Callable[[_Input], Iterator[bytes]]", head: bytes) -> None:
        self.problem = ""
        self._output = decompress(_Input(stored, head))
        self._ready = memoryview(b"")

    def readinto(self, view: memoryview) -> int:
        """Fill `view` from its start; returns the count, 0 at the end."""
        while not self._ready:
            try:
                self._ready = memoryview(next(self._output))
            except StopIteration:
                return 0
            except DamagedStreamError as error:
                self.problem = str(error)
                return 0
        count = min(len(view), len(self._ready))
        view[:count] = self._ready[:count]
        self._ready = self._ready[count:]
        return count


class _Input:
    """Reads compressed bytes in pieces of any size."""

    def __init__(self, stored: ByteSource, head: bytes) -> None:
        self._stored = stored
        self._held = head
        self._taken = 0  # of the bytes in memory

    def peek(self, count: int) -> bytes:
        """The next `count` bytes without taking them; fewer at the end."""
        while len(self._held) - self._taken < count:
            chunk = bytearray(CHUNK)
            got = self._stored.readinto(memoryview(chunk))
            if not got:
                break
            self._held = self._held[self._taken :] + bytes(chunk[:got])
            self._taken = 0
        return self._held[self._taken : self._taken + count]

    def take(self, count: int) -> bytes:
        """Exactly the next `count` bytes."""
        piece = self.peek(count)
        if len(piece) < count:
            raise DamagedStreamError(ENDS_EARLY)
        self._taken += count
        return piece

    def take_some(self) -> bytes:
        """All bytes that are in memory; at least one, unless at the end."""
        self.peek(1)
        piece, self._held, self._taken = self._held[self._taken :], b"", 0
        return piece

    def give_back(self, piece: bytes) -> None:
        """Undo taking `piece`, the end of what was taken last."""
        self._held, self._taken = piece + self._held[self._taken :], 0


def _gunzip(pieces: _Input) -> Iterator[bytes]:
    """Decompress gzip (RFC 1952): members one after the other; zeros after the last one are padding."""
    while head := pieces.peek(len(GZIP_MAGIC)):
        if head != GZIP_MAGIC:
            if head.strip(b"\0"):
                raise DamagedStreamError(ENDS_EARLY if head == GZIP_MAGIC[:1] else "is followed by something else")
            pieces.take(len(head))
            continue
        inflater = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
        while not inflater.eof:
            piece = inflater.unconsumed_tail or pieces.take_some()
            yield from _inflate(inflater, piece)
            if not piece and not inflater.eof:
                raise DamagedStreamError(ENDS_EARLY)
        pieces.give_back(inflater.unused_data)


def _inflate(inflater: "zlib._Decompress", piece: bytes) -> Iterator[bytes]:
    """Decompress one step; if it fails, first yield the bytes before the damage, found by asking for less and
    less.
    """
    before = inflater.copy()
    try:
        yield inflater.decompress(piece, STEP)
        return
    except zlib.error:
        pass
    step = STEP
    while step := step // 2:
        trial = before.copy()
        try:
            good = trial.decompress(piece, step)
        except zlib.error:
            continue
        yield good
        before, piece = trial, trial.unconsumed_tail
    raise DamagedStreamError("is damaged")


def _unzstd(pieces: _Input) -> Iterator[bytes]:
    """Decompress zstd (RFC 8878): frames one after the other, block by block, so a step makes 128 KiB at most."""
    while magic := pieces.peek(4):
        if magic[1:] == _ZSTD_SKIPPABLE and magic[0] >> 4 == 5:
            left = int.from_bytes(pieces.take(8)[4:], "little")
            while left:
                left -= len(pieces.take(min(left, CHUNK)))
        elif magic == ZSTD_MAGIC:
            yield from _zstd_frame(pieces)
        else:
            raise DamagedStreamError(ENDS_EARLY if len(magic) < 4 else "is followed by something else")


def _zstd_frame(pieces: _Input) -> Iterator[bytes]:
    decompress = _zstd_decompressor().decompress
    try:
        descriptor = (pieces.peek(5) + b"\0")[4]
        checksum = 4 if descriptor & 4 else 0
        yield decompress(pieces.take(_zstd_header(descriptor)))
        last = False
        while not last:
            block = int.from_bytes(pieces.peek(3), "little")
            last, rle = bool(block & 1), block >> 1 & 3 == 1
            yield decompress(pieces.take(3 + (1 if rle else block >> 3)))
        yield decompress(pieces.take(checksum)) if checksum else b""
    except _ZSTD_ERROR as error:
        if "too much memory" in str(error):
            raise DamagedStreamError("needs too much memory: decompress it first with zstd -d --long=31") from error
        raise DamagedStreamError("is damaged") from error


def _zstd_header(descriptor: int) -> int:
    """How many bytes a frame's header has, including its magic number (RFC 8878 §3.1.1.1)."""
    single_segment = descriptor >> 5 & 1
    window, dictionary = 1 - single_segment, (0, 1, 2, 4)[descriptor & 3]
    content_size = (single_segment, 2, 4, 8)[descriptor >> 6]
    return 5 + window + dictionary + content_size


BY_MAGIC = {GZIP_MAGIC: _gunzip, ZSTD_MAGIC: _unzstd}  # what a compressed file begins with
