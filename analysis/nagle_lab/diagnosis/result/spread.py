"""How durations are spread, in figures."""

import msgspec


class Spread(msgspec.Struct, frozen=True):
    """Percentiles (nearest rank: values that were observed) and maximum."""

    p50: float
    p95: float
    p99: float
    max: float
