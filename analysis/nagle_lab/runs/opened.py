"""What there is at a path: a run folder, judged, or a capture file, diagnosed."""

from pathlib import Path

from nagle_lab.diagnosis.analysis import analyze
from nagle_lab.diagnosis.result import Result
from nagle_lab.errors import NagleLabError
from nagle_lab.runs.run import Run, is_run, judge


def opened(path: Path) -> Run | Result:
    """The judged run, or the diagnosed capture there; raises NagleLabError where it is neither."""
    if is_run(path):
        return judge(path)
    if path.is_dir():
        raise NagleLabError(f"{path}: not a run folder (no manifest.json); to diagnose a capture, name its file")
    return analyze(path)
