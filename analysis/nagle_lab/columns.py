"""What everything that works on columns shares: their types, runs of equal values, and the bits of TCP's flags."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Bytes = NDArray[np.uint8]
Sides = NDArray[np.int8]  # 0 or 1: an end of a connection

FIN, SYN, RST, PSH, ACK = 0x01, 0x02, 0x04, 0x08, 0x10


def runs(grouped: NDArray[Any]) -> Ints:
    """Where each run of equal values begins."""
    return np.concatenate([[0], np.flatnonzero(grouped[1:] != grouped[:-1]) + 1])[: len(grouped)]


def distinct(*parts: Ints) -> Ints:
    """Every value of the parts once, sorted."""
    values = np.sort(np.concatenate(parts))
    return values[runs(values)]
