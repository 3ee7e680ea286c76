"""What there is at a path: a run folder, judged, or a capture file, diagnosed."""

from dataclasses import replace
from pathlib import Path

from nagle_lab.diagnosis.analysis import analyze
from nagle_lab.diagnosis.result import Result
from nagle_lab.errors import NagleLabError
from nagle_lab.experiments.attached import writes_beside
from nagle_lab.guard.strace import read_trace
from nagle_lab.runs.manifest import THREADS, TRACE
from nagle_lab.runs.run import Run, is_run, judge


def opened(path: Path) -> Run | Result:
    """The judged run, or the diagnosed capture there; raises NagleLabError where it is neither."""
    if is_run(path):
        return judged(path)
    if path.is_dir():
        raise NagleLabError(f"{path}: not a run folder (no manifest.json); to diagnose a capture, name its file")
    return analyze(path)


def judged(folder: Path) -> Run:
    """The run, with the two writes of each stall where it was traced. Raises NagleLabError."""
    run = judge(folder)
    if not run.manifest.traced:
        return run
    trace = read_trace(run.folder / TRACE, threads=run.folder / THREADS)
    return replace(run, writes=writes_beside([run.capture(run.best)], run.results[run.best], trace, elsewhere=True))
