"""Executors for tests of the fleet: processes of which one dies as it reads a file that is marked so."""

import os
import signal
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from nagle_lab.fleet import stretch


def processes() -> ProcessPoolExecutor:
    """Two of them; one that reads the file that FRAGILE names dies, and FRAGILE_TIMES says how often one does."""
    return ProcessPoolExecutor(2, mp_context=get_context("spawn"), initializer=_lay_mine)


def _lay_mine() -> None:
    read, marked = stretch._read, os.environ["FRAGILE"]

    def read_or_die(file, known, engine):
        if file.path.endswith(marked) and _again():
            os.kill(os.getpid(), signal.SIGKILL)
        return read(file, known, engine)

    stretch._read = read_or_die


def _again() -> bool:
    counter = Path(os.environ["FRAGILE_COUNTER"])
    left = int(counter.read_text())
    counter.write_text(str(left - 1))
    return left > 0
