"""Address pairs → dense ids, a whole window of packets at once."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from nagle_lab.timeline import Ints


def pair_hash(a: NDArray[np.uint64], b: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """One 64-bit number for a pair of endpoints, the same in both directions."""
    return _mix(a + b) ^ (a ^ b)


def _mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """A 64-bit finalizer: spreads every input bit over the whole word."""
    x = (x ^ (x >> np.uint64(32))) * np.uint64(0x9FB21C651E98DF25)
    return x ^ (x >> np.uint64(29))


def endpoint_hash(hi: NDArray[np.uint64], lo: NDArray[np.uint64], port: NDArray[np.uint16]) -> NDArray[np.uint64]:
    """One 64-bit number for an endpoint."""
    return _mix(lo ^ (hi * np.uint64(0xC2B2AE3D27D4EB4F)) ^ (port.astype(np.uint64) << np.uint64(48)) ^ port)


class KeyTable:
    """64-bit keys → dense ids in order of first appearance: open addressing, all probes of a window at once."""

    def __init__(self) -> None:
        self._keys = np.zeros(256, np.uint64)
        self._ids = np.full(256, -1, np.int64)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def ids(self, keys: NDArray[np.uint64]) -> Ints:
        """The id of each key (n,), new ones made on the way."""
        found = self._find(keys)
        missing = np.flatnonzero(found < 0)
        if len(missing):
            fresh, at, inverse = np.unique(keys[missing], return_index=True, return_inverse=True)
            rank = np.empty(len(fresh), np.int64)
            rank[np.argsort(at)] = np.arange(len(fresh))
            self._insert(fresh, self._count + rank)
            found[missing] = self._count - len(fresh) + rank[inverse]
        return found

    def _find(self, keys: NDArray[np.uint64]) -> Ints:
        found = np.full(len(keys), -1, np.int64)
        for rows, slot in self._probes(keys):
            hit = (self._keys[slot] == keys[rows]) & (self._ids[slot] >= 0)
            found[rows[hit]] = self._ids[slot[hit]]
        return found

    def _probes(self, keys: NDArray[np.uint64]) -> Iterator[tuple[Ints, Ints]]:
        """Rows still looking and the slot each looks at, until every row met its key or an empty slot."""
        mask = np.uint64(len(self._keys) - 1)
        rows = np.arange(len(keys))
        slot = (keys & mask).astype(np.int64)
        while len(rows):
            yield rows, slot
            on = (self._ids[slot] >= 0) & (self._keys[slot] != keys[rows])
            rows, slot = rows[on], (slot[on] + 1) & np.int64(mask)

    def _insert(self, keys: NDArray[np.uint64], ids: Ints) -> None:
        self._count += len(keys)
        if 2 * self._count > len(self._keys):
            used = self._ids >= 0
            keys, ids = np.concatenate([self._keys[used], keys]), np.concatenate([self._ids[used], ids])
            size = 1 << int(4 * self._count).bit_length()
            self._keys, self._ids = np.zeros(size, np.uint64), np.full(size, -1, np.int64)
        mask = len(self._keys) - 1
        slot = (keys & np.uint64(mask)).astype(np.int64)
        while len(keys):
            free = np.flatnonzero(self._ids[slot] < 0)
            self._ids[slot[free]] = ids[free]  # two keys at one slot: the last one wins, the other moves on
            self._keys[slot[free]] = keys[free]
            on = self._ids[slot] != ids
            keys, ids, slot = keys[on], ids[on], (slot[on] + 1) & mask
