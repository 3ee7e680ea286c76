"""NumPy, imported only for large populations: importing it takes longer than judging small ones."""

import os
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

BLAS_THREADS = "OPENBLAS_NUM_THREADS"


@cache
def has_numpy() -> bool:
    """Whether NumPy is installed."""
    return find_spec("numpy") is not None


@cache
def numpy() -> Any:
    """The module NumPy, imported at the first call.

    Its linear algebra gets no threads: nothing here uses them, and they cost processor time even while they wait.
    """
    before = os.environ.get(BLAS_THREADS)
    os.environ.setdefault(BLAS_THREADS, "1")
    try:
        return import_module("numpy")
    finally:
        if before is None:  # programs that we start must not inherit it
            del os.environ[BLAS_THREADS]
