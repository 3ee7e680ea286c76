"""How durations are spread, in figures."""

import math
from collections.abc import Iterable, Sequence

import msgspec


class Spread(msgspec.Struct, frozen=True):
    """Percentiles (nearest rank: values that were observed) and maximum."""

    p50: float
    p95: float
    p99: float
    max: float


def spread(values: Iterable[float]) -> Spread | None:
    """Of those values, to three decimals; None where there are none."""
    ordered = sorted(values)
    if not ordered:
        return None
    return Spread(*(round(nearest_rank(ordered, percent), 3) for percent in (50, 95, 99, 100)))


def nearest_rank(ordered: Sequence[float], percent: float) -> float:
    """That percentile of values in ascending order, of which there is at least one: one that was observed."""
    return ordered[max(1, math.ceil(percent / 100 * len(ordered) - 1e-9)) - 1]
