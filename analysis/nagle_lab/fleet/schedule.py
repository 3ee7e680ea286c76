"""The schedule of a fleet: series and their stretches, on all workers; if a worker dies, the others continue."""

import errno
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, wait
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import Any, Protocol

import msgspec

from nagle_lab.capture.stored import first_line
from nagle_lab.errors import NagleLabError
from nagle_lab.fleet import plan
from nagle_lab.fleet.judge import JudgedSeries, judge_series, judged_name, skipped
from nagle_lab.fleet.results_folder import Folder
from nagle_lab.fleet.series import Series
from nagle_lab.fleet.store import forget_others, partition, store_failed
from nagle_lab.fleet.stretch import Stretch, StretchDone, is_done, read_stretch, stretches
from nagle_lab.fleet.workers import Workers

MOST_TRIES = 3


class Progress(Protocol):
    """Receives the progress of the work."""

    def begin(self, series: int, size: int) -> None:
        """So many series are to be read, and bytes."""

    def stretch(self, size: int, done: StretchDone) -> None:
        """A stretch of so many bytes is done."""

    def series(self, judged: JudgedSeries) -> None:
        """Note that a series is judged."""


@dataclass
class Chain:
    """A series and its progress: its stretches follow each other, and then it is judged.

    The order of waiting chains: those that failed first, then those with more left to read.
    """

    series: Series
    stretches: list[Stretch]
    at: int = 0  # number of the next stretch
    tries: int = 0  # failed tries of this stretch

    def __lt__(self, other: "Chain") -> bool:
        return (self.tries, self.left) > (other.tries, other.left)

    @property
    def left(self) -> int:
        """How many bytes are still to be read."""
        return sum(stretch.size for stretch in self.stretches[self.at :])

    def submit(self, executor: Executor, out: Folder) -> "Future[Any]":
        """Submit the next stretch, or the judging; if the executor refuses, returns a future with its error."""
        try:
            if self.at < len(self.stretches):
                return executor.submit(read_stretch, self.stretches[self.at], out)
            return executor.submit(judge_series, self.series, self.stretches, out)
        except Exception as error:  # it broke, or its cluster has gone
            refused: Future[Any] = Future()
            refused.set_exception(error)
            return refused


def run(
    series: Sequence[Series],
    out: Folder,
    workers: Workers,
    progress: Progress,
    *,
    size: int,
    sources: Sequence[str] = (),
) -> list[JudgedSeries]:
    """Read and judge all series, in stretches of so many bytes; work that is already done is not repeated.

    If a worker dies, only what it was doing is tried again, alone. A series whose stretch fails MOST_TRIES times is
    given up, and reported as failed. Until the end, the store says that it is not whole, and which ``sources``
    it is of. Returns the result of each series, in order of their names.
    """
    chains = [Chain(each, stretches(each, size)) for each in series]
    plan.begin(sources, {partition(chain.series.name): _done_name(chain) for chain in chains}, out)
    forget_others(series, out)
    results, waiting = _judged_before(chains, out)
    progress.begin(len(waiting), sum(chain.left for chain in waiting))
    heapify(waiting)
    running: dict[Future[Any], Chain] = {}
    executor = workers.make()
    try:
        while waiting or running:
            while waiting and len(running) < _most_running(waiting, running, workers):
                chain = heappop(waiting)
                running[chain.submit(executor, out)] = chain
            finished, _ = wait(running, return_when=FIRST_COMPLETED)
            is_broken = any(isinstance(future.exception(), BrokenExecutor) for future in finished)
            for future in list(running) if is_broken else finished:
                chain = running.pop(future)
                judged = _advance(chain, future, out, progress)
                if judged is None:
                    heappush(waiting, chain)
                else:
                    results.append(judged)
                    progress.series(judged)
            if is_broken:
                executor.shutdown(wait=False)
                executor = workers.make()
    finally:
        for future in running:  # some executors have no other way to drop them
            future.cancel()
        executor.shutdown(wait=False)
    plan.end(out)
    return sorted(results, key=lambda judged: judged.series)


def _most_running(waiting: Sequence[Chain], running: Mapping["Future[Any]", Chain], workers: Workers) -> int:
    """How many chains may run at once: one that failed runs alone, to show what killed a worker."""
    has_failed = any(chain.tries for chain in (waiting[0], *running.values()))
    return 1 if has_failed else workers.count


def _judged_before(chains: Sequence[Chain], out: Folder) -> tuple[list[JudgedSeries], list[Chain]]:
    """The results of series that are already judged, and the other series, which continue with their next stretch."""
    there, stored = out.names("work"), out.names("series")
    results, others = [], []
    for chain in chains:
        done = [is_done(stretch, there) for stretch in chain.stretches]
        chain.at = done.index(False) if False in done else len(done)
        if _done_name(chain) in there and partition(chain.series.name) in stored:
            results.append(msgspec.json.decode(out.read(judged_name(chain.stretches)), type=JudgedSeries))
        else:
            others.append(chain)
    return results, others


def _done_name(chain: Chain) -> str:
    """The name in ``work`` of the file that says that the series is done."""
    return judged_name(chain.stretches).partition("/")[2]


def _advance(chain: Chain, future: "Future[Any]", out: Folder, progress: Progress) -> JudgedSeries | None:
    """Take the result of a step; returns the result of the series, None if it continues."""
    try:
        done = future.result()
    except NagleLabError as error:
        return _failed(chain, str(error), out)
    except Exception as error:  # whatever happened to a worker; another may succeed
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise  # nor would the others
        chain.tries += 1
        if chain.tries < MOST_TRIES:
            return None
        files = chain.stretches[chain.at].files if chain.at < len(chain.stretches) else chain.series.files
        where = f"{files[0].path}{' …' * (len(files) > 1)}"
        return _failed(chain, f"{where}: given up after {MOST_TRIES} tries: {first_line(error)}", out)
    chain.tries = 0
    if isinstance(done, JudgedSeries):
        return done
    progress.stretch(chain.stretches[chain.at].size, done)
    chain.at += 1
    return None


def _failed(chain: Chain, reason: str, out: Folder) -> JudgedSeries:
    store_failed(chain.series, reason, out)
    return JudgedSeries(chain.series.name, None, reason, problems=[reason, *skipped(chain.series)])


def has_begun(out: Folder) -> bool:
    """Whether there are results already, of this run or of an earlier one."""
    return bool(out.names("work"))
