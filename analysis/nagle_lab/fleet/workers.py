"""The workers that read stretches: processes of this machine, a Dask cluster, or any concurrent.futures.Executor."""

import os
import signal
import sys
from collections.abc import Callable
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from multiprocessing import get_context
from typing import Any

from nagle_lab.capture.stored import first_line
from nagle_lab.errors import NagleLabError
from nagle_lab.fleet.results_folder import extra
from nagle_lab.host.children import end_with_parent


@dataclass
class Workers:
    """``make`` makes an executor, and a new one if that broke; ``count`` stretches are read at once."""

    make: Callable[[], Executor]
    count: int


def workers_of(on: str | None, count: int | None) -> Workers:
    """The workers that ``--on`` names; None: processes here, one for each processor.

    Raises NagleLabError if there is no such executor, or the scheduler does not answer.
    """
    if on is None:
        here, spawn = count or _processors(), get_context("spawn")
        return Workers(lambda: ProcessPoolExecutor(here, spawn, initializer=_set_up_worker), here)
    if on.startswith("dask://"):
        return _dask(on, count)
    module, _, name = on.partition(":")
    try:
        make = getattr(import_module(module), name)
        executor = make()
    except Exception as error:  # it is the user's code
        todo = "--on takes dask://HOST:PORT, or MODULE:CALLABLE that gives an Executor"
        raise NagleLabError(f"{on}: {first_line(error)}: {todo}") from error
    if not isinstance(executor, Executor):
        raise NagleLabError(f"{on}: it gave {type(executor).__name__}, not a concurrent.futures.Executor")
    made = [executor]
    count = count or getattr(executor, "_max_workers", None) or _processors()
    return Workers(lambda: made.pop() if made else make(), count)


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _set_up_worker() -> None:
    """Set up a worker process: it ignores the terminal's signals, and ends with the process that started it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.platform == "linux":
        end_with_parent()


def _dask(on: str, count: int | None) -> Workers:
    distributed = extra("distributed")
    try:
        client = distributed.Client(on.removeprefix("dask://"), timeout=10, set_as_default=False)
    except (OSError, ValueError) as error:
        raise NagleLabError(f"{on}: no scheduler answers there: {first_line(error)}") from error
    threads = sum(client.nthreads().values())
    if not threads:
        raise NagleLabError(
            f"{on}: the scheduler has no workers: start some (dask worker {on.removeprefix('dask://')})"
        )
    return Workers(lambda: _Closing(client), count or threads)


class _Closing(Executor):
    """Dask's executor, whose shutdown leaves the cluster alone and closes the client."""

    def __init__(self, client: Any) -> None:
        self._client, self._executor = client, client.get_executor(pure=False)

    def submit(self, *arguments: Any, **named: Any) -> Any:
        """See :class:`concurrent.futures.Executor`."""
        return self._executor.submit(*arguments, **named)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: ARG002 - Dask always does
        """Drop what is not done, and close the client."""
        with suppress(Exception):  # the cluster may have gone
            self._executor.shutdown(wait=wait)
            self._client.close()
