"""The loops over every packet: compiled where set-up found a C compiler, else by NumPy, with the same result.

Everything else in the analysis works on what these leave. ``tests/unit/test_loops.py`` holds both against each other;
NAGLE_LAB_COMPILED=0 asks for NumPy.
"""

from nagle_lab.loops.compiled import LIBRARY
from nagle_lab.loops.plain import EMPTY, endpoint_hash
from nagle_lab.loops.shapes import KINDS, NEVER, NO_EXCHANGES, ByteOrder, Ended, Exchanges, Framing, Grouped, Halves

if LIBRARY is None:
    from nagle_lab.loops.plain import (
        answers,
        behind,
        by_pair,
        context,
        exchanges,
        find_keys,
        hash_pairs,
        latest,
        lower,
        pauses,
        sort_numbers,
        unwrap,
        usual_segments,
        waits,
        walk,
    )
else:
    from nagle_lab.loops.compiled import (
        answers,
        behind,
        by_pair,
        context,
        exchanges,
        find_keys,
        hash_pairs,
        latest,
        lower,
        pauses,
        sort_numbers,
        unwrap,
        usual_segments,
        waits,
        walk,
    )

COMPILED = LIBRARY is not None

__all__ = [
    "COMPILED", "EMPTY", "KINDS", "NEVER", "NO_EXCHANGES", "ByteOrder", "Ended", "Exchanges", "Framing", "Grouped",
    "Halves", "answers", "behind", "by_pair", "context", "endpoint_hash", "exchanges", "find_keys", "hash_pairs",
    "latest", "lower", "pauses", "sort_numbers", "unwrap", "usual_segments", "waits", "walk",
]  # fmt: skip
