"""Durations in figures: their spread, and a duration as people read it. Counts in words."""

from collections.abc import Iterable, Sequence

import msgspec

from nagle_lab.tcp.durations import rank_of


class Spread(msgspec.Struct, frozen=True):
    """Percentiles (nearest rank: values that were observed) and maximum."""

    p50: float
    p95: float
    p99: float
    max: float


def spread(values: Iterable[float]) -> Spread | None:
    """The spread of ``values``, to three decimals; None if there are none."""
    ordered = sorted(values)
    if not ordered:
        return None
    return Spread(*(round(nearest_rank(ordered, percent), 3) for percent in (50, 95, 99, 100)))


def nearest_rank(ordered: Sequence[float], percent: float) -> float:
    """The percentile of one or more values in ascending order: a value that was observed."""
    return ordered[rank_of(percent, len(ordered)) - 1]


def duration_text(ms: float) -> str:
    """A duration as people read it: in ms, from one second on in seconds."""
    return f"{ms / 1e3:,.2f} s" if ms >= 1000 else f"{ms:.0f} ms"


def times_text(count: int) -> str:
    """How often, in words."""
    return "once" if count == 1 else f"{count:,} times"


def plural(noun: str, count: int) -> str:
    """The noun after a count: with an s, unless the count is one."""
    return noun if count == 1 else f"{noun}s"
