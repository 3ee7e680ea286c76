"""Columns of durations, counted into Durations."""

from collections import Counter

from nagle_lab.diagnosis.proof.columns import Column, is_array
from nagle_lab.tcp.arrays import numpy
from nagle_lab.tcp.durations import MOST, Durations

MANY_STEPS = 1 << 20


def add_all(durations: Durations, column: Column) -> None:
    """Count a column of durations (n,), ns."""
    if not is_array(column) or not len(column):
        for duration in column:
            durations.add(duration)
        return
    np = numpy()

    durations.total = min(durations.total + int(column.sum()), MOST)
    steps = np.rint(column / durations.step_ns).astype(np.int64)
    low, high = int(steps.min()), int(steps.max())
    if high - low < MANY_STEPS:  # counting takes less than sorting
        counts = np.bincount(steps - low)
        there = np.flatnonzero(counts)
        steps, counts = there + low, counts[there]
    else:
        steps, counts = np.unique(steps, return_counts=True)
    durations.counts.update(Counter(dict(zip(steps.tolist(), counts.tolist(), strict=True))))
