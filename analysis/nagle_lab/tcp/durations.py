"""How often each duration occurred: percentiles of any number of them, in the memory of the distinct ones."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

DURATIONS = ("to_ack", "to_response", "total")  # of an exchange (engine.h), in the order of the C side: machine.h
MOST = 1 << 62  # ns; limit of a total, whatever a damaged capture contains


class Durations:
    """Durations, counted in steps of ``step_ns`` ns, rounded to the nearest (ties to even)."""

    def __init__(self, step_ns: int = 1_000, counts: Mapping[int, int] | None = None, total: int = 0) -> None:
        self.step_ns = step_ns
        self.counts: Counter[int] = Counter(counts or {})  # how many have each length, in steps
        self.total = total  # the sum of all durations, ns, MOST at most

    def add(self, duration: int) -> None:
        """Count one more duration, ns."""
        total, steps = self.total + duration, rounded(duration, self.step_ns)
        self.total = total if total < MOST else MOST
        self.counts[steps] = self.counts.get(steps, 0) + 1

    def __len__(self) -> int:
        return self.counts.total()

    def percentiles(self, percents: Sequence[float]) -> list[int] | None:
        """Percentiles (nearest rank, so values that were observed), in steps; None if there are no durations."""
        ordered = sorted(self.counts.items())
        if not ordered:
            return None
        count = self.counts.total()
        return [_at_rank(ordered, rank_of(percent, count)) for percent in percents]


def rank_of(percent: float, count: int) -> int:
    """The rank, from 1, of that percentile among ``count`` ordered values: the nearest rank, rounded up."""
    rank = percent / 100 * count
    return max(1, math.ceil(rank - 1e-9))  # 7 / 100 * 100 is 7.000000000000001


def _at_rank(ordered: Iterable[tuple[int, int]], rank: int) -> int:
    for steps, count in ordered:
        rank -= count
        if rank <= 0:
            return steps
    raise ValueError("fewer durations than their rank")


def ms_of(ns: Any) -> Any:
    """A number or column in ns as milliseconds, rounded to the microsecond (ties to even), as durations are
    counted.
    """
    us, rest = ns // 1_000, ns % 1_000
    return (us + ((rest > 500) | ((rest == 500) & (us % 2 == 1)))) / 1e3


def rounded(duration: int, step: int) -> int:
    """A duration as the nearest number of steps, ties to even; both in the same unit."""
    steps, rest = divmod(duration, step)
    if 2 * rest < step:
        return steps
    return steps + (2 * rest > step or steps % 2 == 1)
