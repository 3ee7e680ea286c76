"""How often each duration occurred: percentiles of any number of them, in the memory of the distinct ones."""

import numpy as np
from numpy.typing import NDArray

from nagle_lab.tcp.columns import Ints, counted, ranked

_BUFFERED = 1 << 17


class Distribution:
    """Durations in ns, counted in steps of ``step_ns``."""

    def __init__(self, step_ns: int) -> None:
        self._step = step_ns
        self._steps = np.empty(0, np.int64)  # distinct, sorted
        self._counts = np.empty(0, np.int64)
        self._new: list[Ints] = []
        self._buffered = 0
        self.total = 0  # of all durations, ns

    def add(self, durations: Ints) -> None:
        """Count more of them."""
        self.total += int(durations.sum())
        self._new.append(np.rint(durations / self._step).astype(np.int64))
        self._buffered += len(durations)
        if self._buffered > _BUFFERED:
            self._merge()

    def percentiles(self, percents: list[float]) -> NDArray[np.int64] | None:
        """Those percentiles in steps, by nearest rank: values that were observed. None where there are none."""
        self._merge()
        if not len(self._steps):
            return None
        ranks = np.cumsum(self._counts)
        wanted = np.maximum(1, np.ceil(np.array(percents) / 100 * ranks[-1] - 1e-9))
        found: NDArray[np.int64] = self._steps[np.searchsorted(ranks, wanted)]
        return found

    def bins(self, edges: Ints) -> Ints:
        """How many of them, in steps, lie in each bin, from its edge up to the next: shape (edges - 1,)."""
        self._merge()
        place = np.searchsorted(edges, self._steps, "right") - 1
        return np.bincount(place, self._counts, len(edges) - 1).astype(np.int64)

    def _merge(self) -> None:
        if not self._buffered:
            return
        fresh, counts = counted(np.concatenate(self._new))
        self._new.clear()
        self._buffered = 0
        steps, place = ranked(np.concatenate([self._steps, fresh]))
        both = np.concatenate([self._counts, counts])
        self._steps, self._counts = steps, np.bincount(place, both, len(steps)).astype(np.int64)
