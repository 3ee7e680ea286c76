"""Address pairs → small numbers, a whole window of packets at once; numbers given back are given out again."""

import numpy as np
from numpy.typing import NDArray

from nagle_lab.tcp.columns import Ints
from nagle_lab.tcp.loops import EMPTY, find_keys

_DELETED = EMPTY - 1


class KeyTable:
    """64-bit keys → numbers: open addressing, all probes of a window at once."""

    def __init__(self) -> None:
        self._keys = np.zeros(256, np.uint64)
        self._numbers = np.full(256, EMPTY, np.int64)
        self._slot = np.zeros(64, np.int64)  # of each number
        self._free = np.empty(0, np.int64)  # numbers given back
        self._used = 0  # slots that are not empty
        self.size = 0  # numbers are below this

    def numbers(self, keys: NDArray[np.uint64]) -> Ints:
        """The number of each key (n,), new ones made on the way, in order of appearance."""
        found = find_keys(keys, self._keys, self._numbers)
        missing = np.flatnonzero(found < 0)
        if len(missing):
            fresh, at, inverse = np.unique(keys[missing], return_index=True, return_inverse=True)
            rank = np.empty(len(fresh), np.int64)
            rank[np.argsort(at)] = np.arange(len(fresh))
            numbers = self._new(len(fresh))[rank]
            self._insert(fresh, numbers)
            found[missing] = numbers[inverse]
        return found

    def drop(self, numbers: Ints) -> None:
        """Forget the keys of those numbers."""
        self._numbers[self._slot[numbers]] = _DELETED
        self._free = np.concatenate([self._free, numbers])

    def _new(self, count: int) -> Ints:
        again, self._free = self._free[:count], self._free[count:]
        fresh = np.arange(self.size, self.size + count - len(again))
        self.size += len(fresh)
        if self.size > len(self._slot):
            self._slot = np.concatenate([self._slot, np.zeros(self.size, np.int64)])
        return np.concatenate([again, fresh])

    def _insert(self, keys: NDArray[np.uint64], numbers: Ints) -> None:
        self._used += len(keys)
        if 2 * self._used > len(self._keys):
            live = self._numbers >= 0
            keys, numbers = np.concatenate([self._keys[live], keys]), np.concatenate([self._numbers[live], numbers])
            self._used = len(keys)
            size = max(256, 1 << int(3 * self._used).bit_length())
            self._keys, self._numbers = np.zeros(size, np.uint64), np.full(size, EMPTY, np.int64)
        mask = len(self._keys) - 1
        slot = (keys & np.uint64(mask)).astype(np.int64)
        while len(keys):
            free = np.flatnonzero(self._numbers[slot] < 0)
            self._numbers[slot[free]] = numbers[free]  # two keys at one slot: the last one wins, the other moves on
            self._keys[slot[free]] = keys[free]
            placed = self._numbers[slot] == numbers
            self._slot[numbers[placed]] = slot[placed]
            on = ~placed
            keys, numbers, slot = keys[on], numbers[on], (slot[on] + 1) & mask
