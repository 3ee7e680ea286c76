"""Executors for tests of the fleet: processes, one of which dies while it reads a marked file."""

import os
import signal
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from nagle_lab.fleet import stretch


def processes() -> ProcessPoolExecutor:
    """Two processes; the one that reads the file FRAGILE dies, FRAGILE_TIMES times."""
    return ProcessPoolExecutor(2, mp_context=get_context("spawn"), initializer=_lay_mine)


class slow(ThreadPoolExecutor):  # noqa: N801 - it is called
    """One slow thread."""

    def __init__(self) -> None:
        super().__init__(1)

    def submit(self, function, *arguments):
        def slowly():
            time.sleep(0.3)
            return function(*arguments)

        return super().submit(slowly)


def _lay_mine() -> None:
    read, marked = stretch._read, os.environ["FRAGILE"]

    def read_or_die(file, known, engine, part):
        if file.path.endswith(marked) and _again():
            os.kill(os.getpid(), signal.SIGKILL)
        return read(file, known, engine, part)

    stretch._read = read_or_die


def _again() -> bool:
    counter = Path(os.environ["FRAGILE_COUNTER"])
    left = int(counter.read_text())
    counter.write_text(str(left - 1))
    return left > 0
