"""What a report shows: a capture, or a run by its capture nearest the held end, with packets chosen from it."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nagle_lab.diagnosis.result import Result
from nagle_lab.evidence.examples import Examples, examples
from nagle_lab.experiments.comparison import opened
from nagle_lab.runs.run import Run


@dataclass(frozen=True)
class Shown:
    """One capture or run; ``examples`` are empty where the capture came through a pipe."""

    name: str
    verdict: str
    reason: str
    result: Result
    examples: Examples
    run: Run | None = None


def shown_capture(result: Result, files: Sequence[Path]) -> Shown:
    """One diagnosed capture, of ``files``; none where it cannot be read again."""
    return Shown(result.source.file, result.verdict, result.reason, result, examples(files, result))


def shown_run(run: Run) -> Shown:
    """One judged run."""
    name = f"{run.manifest['scenario']} / {run.manifest['variant']}"
    result = run.results[run.best]
    packets = examples([run.capture(run.best)], result, run.manifest["expected"]["port"])
    return Shown(name, run.verdict, run.reason, result, packets, run)


def shown_of(source: Run | Result, path: Path) -> Shown:
    """What was judged or diagnosed of the run folder or capture file there."""
    return shown_run(source) if isinstance(source, Run) else shown_capture(source, [path])


def shown_at(path: Path) -> Shown:
    """The run folder or capture file there; raises NagleLabError where it is neither."""
    return shown_of(opened(path), path)
