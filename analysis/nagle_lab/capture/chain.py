"""Finding the records of a buffer: a capture is a chain, each record saying where the next one starts.

`walk` follows the chain record by record, or for large buffers in many places at once (lock-step). Both give
the same answer: a lane of the lock-step walk counts only if the proven walk before it lands exactly on its
start, which makes it the serial walk by induction. Where a lane is not reached, the serial walk takes over.
"""

from collections.abc import Callable
from dataclasses import dataclass
from struct import Struct
from typing import Literal

import numpy as np
from numpy.typing import NDArray

ByteOrder = Literal["<", ">"]
Offsets = NDArray[np.int64]
Guess = Callable[[int, int], int]
"""(at, before) → the first offset in [at, before) where a record plausibly starts, or -1. May be wrong."""

LANE_BYTES = 1 << 13  # a lane shorter than this costs more than it saves
LANES = 512
MIN_LANES = 8
STEPS = 32  # per round; lanes that have arrived are taken out between rounds


@dataclass(frozen=True)
class Framing:
    """How the records of one format are chained. All values in bytes."""

    byte_order: ByteOrder
    length_at: int  # where in a record its 32-bit length field is
    uncounted: int  # what the length field leaves out (pcap: the record header; pcapng: nothing)
    shortest: int  # record size; anything shorter is damage
    longest: int  # record size; anything longer is damage

    @property
    def header(self) -> int:
        """How many bytes of a record must be there for its size to be known."""
        return self.length_at + 4


def walk(
    buffer: NDArray[np.uint8], start: int, end: int, framing: Framing, guess: Guess | None = None
) -> tuple[Offsets, int]:
    """Offsets of the complete records from `start` on, and the offset of what follows them.

    Stops at the first record that reaches beyond `end` or whose size is outside the framing's limits.
    `guess` makes the walk fast on large buffers; the answer does not depend on it. The buffer must be
    readable for PADDING bytes beyond `end`.
    """
    lanes = min(LANES, (end - start) // LANE_BYTES)
    if guess is not None and lanes >= MIN_LANES:
        starts = _lane_starts(start, end, guess, lanes)
        if len(starts) > MIN_LANES:
            return walk_lockstep(buffer, starts, end, framing)
    return walk_serial(buffer, start, end, framing)


def walk_serial(buffer: NDArray[np.uint8], start: int, end: int, framing: Framing) -> tuple[Offsets, int]:
    """`walk`, one record at a time."""
    length = Struct(framing.byte_order + "I").unpack_from
    uncounted, shortest, longest = framing.uncounted, framing.shortest, framing.longest
    length_at, last = framing.length_at, end - framing.header
    memory = buffer.data  # reading single numbers from it is faster than from the array
    offsets: list[int] = []
    found = offsets.append
    while start <= last:
        size = length(memory, start + length_at)[0] + uncounted
        if start + size > end or not shortest <= size <= longest:
            break
        found(start)
        start += size
    return np.array(offsets, np.int64), start


def walk_lockstep(buffer: NDArray[np.uint8], starts: Offsets, end: int, framing: Framing) -> tuple[Offsets, int]:
    """`walk` in many places at once.

    `starts` (lanes + 1,), increasing: a true record start, guesses, and where the last lane ends.
    """
    lengths = _length_fields(buffer, framing)
    visited, landing = _advance(starts, lengths, framing)
    missed = np.flatnonzero(landing[:-1] != starts[1:-1])
    proven = int(missed[0]) + 1 if len(missed) else len(landing)
    offsets = np.concatenate([at[here & (lane < proven)] for at, here, lane in visited])
    offsets.sort()
    offsets = offsets[: _first_bad(offsets, end, lengths, framing)]
    if not len(offsets):
        return offsets, int(starts[0])
    follows = int(offsets[-1] + lengths[offsets[-1]]) + framing.uncounted
    if follows == landing[proven - 1]:  # nothing was cut off: what the lanes did not prove is walked serially
        rest, follows = walk_serial(buffer, follows, end, framing)
        offsets = np.concatenate([offsets, rest])
    return offsets, follows


def _lane_starts(start: int, end: int, guess: Guess, lanes: int) -> Offsets:
    """Where each lane starts, then where the last one ends. No lane is much longer than the others."""
    span = (end - start) // lanes
    starts = [start]
    for lane in range(1, lanes):
        at = guess(max(start + lane * span, starts[-1] + 1), start + (lane + 1) * span)
        if at >= 0:
            starts.append(at)
        elif start + (lane + 1) * span - starts[-1] > 4 * span:
            break
    starts.append(end if end - starts[-1] <= 4 * span else starts[-1] + 4 * span)
    return np.array(starts, np.int64)


def _length_fields(buffer: NDArray[np.uint8], framing: Framing) -> NDArray[np.uint32]:
    """The length field of a record at every possible offset: a view with a stride of one byte."""
    return np.ndarray((len(buffer) - framing.header + 1,), framing.byte_order + "u4", buffer, framing.length_at, (1,))


_Visited = list[tuple[NDArray[np.int64], NDArray[np.bool_], NDArray[np.int64]]]


def _advance(starts: Offsets, lengths: NDArray[np.uint32], framing: Framing) -> tuple[_Visited, Offsets]:
    """Walk every lane until it reaches the next one's start.

    Returns per round (offsets (steps, lanes), which are before the lane's end, lane numbers), and per lane
    the first offset at or after its end (far beyond if it left the buffer, or met impossible records).
    """
    outside = len(lengths) - 1  # readable, so that a lane that left may stay there
    limits = starts[1:]
    lane = np.arange(len(limits))
    at = starts[:-1].copy()
    landing = np.full(len(limits), outside)
    visited: _Visited = []
    while len(lane):
        path = np.empty((STEPS + 1, len(lane)), np.int64)
        path[0] = at
        for step in range(1, STEPS + 1):
            at = at + lengths[at]
            at += framing.uncounted
            np.minimum(at, outside, out=at)
            path[step] = at
        here = path[:-1] < limits[lane]
        visited.append((path[:-1], here, lane))
        arrived = at >= limits[lane]
        landed = path[:, arrived]
        landing[lane[arrived]] = np.where(landed >= limits[lane[arrived]], landed, outside).min(axis=0)
        on_the_way = ~arrived & (at - path[0] >= STEPS * framing.shortest)
        lane, at = lane[on_the_way], at[on_the_way]
    return visited, landing


def _first_bad(offsets: Offsets, end: int, lengths: NDArray[np.uint32], framing: Framing) -> int:
    """Index of the first record that is incomplete or has an impossible size; len(offsets) if none."""
    sizes = lengths[offsets].astype(np.int64) + framing.uncounted
    bad = (offsets + sizes > end) | (sizes < framing.shortest) | (sizes > framing.longest)
    bad |= offsets > end - framing.header
    return int(bad.argmax()) if bad.any() else len(offsets)
