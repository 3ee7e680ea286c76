"""Reading fixed layouts at many byte offsets of a buffer at once."""

from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray


def gather(buffer: NDArray[np.uint8], offsets: NDArray[np.int64], layout: DTypeLike) -> NDArray[Any]:
    """The values of `layout` at `offsets` (n,), which need no alignment: shape (n,), a copy.

    A structured layout is gathered as opaque bytes and then viewed: NumPy would otherwise copy field by field,
    eight times slower.
    """
    layout = np.dtype(layout)
    opaque = np.dtype(f"V{layout.itemsize}") if layout.names else layout
    everywhere = np.ndarray((len(buffer) - layout.itemsize + 1,), opaque, buffer, 0, (1,))
    return everywhere[offsets].view(layout)
