"""The content of a path: a judged run folder with the packets to show, or a diagnosed capture file."""

from dataclasses import replace
from pathlib import Path

from nagle_lab.diagnosis.analysis import analyze
from nagle_lab.diagnosis.result.result import Result
from nagle_lab.errors import NagleLabError
from nagle_lab.evidence.examples import Examples, examples, written_ladder
from nagle_lab.experiments.writes.running_program import writes_beside
from nagle_lab.experiments.writes.stall_writes import compared
from nagle_lab.guard.recording.job import CAPTURE
from nagle_lab.guard.tracing.strace_output import read_trace
from nagle_lab.runs.manifest import THREADS, TRACE
from nagle_lab.runs.run import Run, is_run, judge_run


def opened(path: Path) -> Run | Result:
    """The judged run or diagnosed capture at a path; raises NagleLabError if it is neither."""
    if is_run(path):
        return judged(path)
    if (path / CAPTURE).is_file():
        raise NagleLabError(f"{path}: a recording of guard, not a run folder: name its capture, {path / CAPTURE}")
    if path.is_dir():
        raise NagleLabError(f"{path}: not a run folder (no manifest.json); to diagnose a capture, name its file")
    return analyze(path)


def judged(folder: Path) -> Run:
    """The run, with the two writes of each stall if it was traced. Raises NagleLabError."""
    run = judge_run(folder)
    if not run.manifest.traced:
        return run
    trace = read_trace(run.folder / TRACE, threads=run.folder / THREADS)
    writes = writes_beside([run.capture(run.best)], run.results[run.best], trace, elsewhere=True)
    if before := run.witnesses.untraced:
        writes = compared(writes, before.exchanges, before.stalled_exchanges)
    return replace(run, writes=writes)


def examples_of_run(run: Run, *, typical_only: bool = False) -> Examples:
    """Read the capture nearest the held end once more; without a stall, for an exchange on the port under test."""
    files, result = [run.capture(run.best)], run.results[run.best]
    found = examples(files, result, run.manifest.expected.port, typical_only=typical_only)
    return replace(found, written=written_ladder(files, result, run.writes)) if run.writes else found
