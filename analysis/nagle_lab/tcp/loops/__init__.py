"""The loops over every packet: compiled where set-up found a C compiler, else by NumPy, with the same result.

Everything else in the analysis works on what these leave. ``tests/unit/test_loops.py`` holds both against each other;
NAGLE_LAB_COMPILED=0 asks for NumPy.
"""

from nagle_lab.tcp.loops.compiled import LIBRARY
from nagle_lab.tcp.loops.plain import EMPTY, endpoint_hash
from nagle_lab.tcp.loops.shapes import (
    KINDS,
    NEVER,
    NO_EXCHANGES,
    ByteOrder,
    Ended,
    Exchanges,
    Framing,
    Grouped,
    Halves,
    Noticed,
)

if LIBRARY is None:
    from nagle_lab.tcp.loops.plain import (
        by_pair,
        exchanges,
        find_keys,
        hash_pairs,
        latest,
        lower,
        notice,
        sort_numbers,
        unwrap,
        usual_segments,
        walk,
    )
else:
    from nagle_lab.tcp.loops.compiled import (
        by_pair,
        exchanges,
        find_keys,
        hash_pairs,
        latest,
        lower,
        notice,
        sort_numbers,
        unwrap,
        usual_segments,
        walk,
    )

COMPILED = LIBRARY is not None

__all__ = [
    "COMPILED", "EMPTY", "KINDS", "NEVER", "NO_EXCHANGES", "ByteOrder", "Ended", "Exchanges", "Framing", "Grouped",
    "Halves", "Noticed", "by_pair", "endpoint_hash", "exchanges", "find_keys", "hash_pairs",
    "latest", "lower", "notice", "sort_numbers", "unwrap", "usual_segments", "walk",
]  # fmt: skip
