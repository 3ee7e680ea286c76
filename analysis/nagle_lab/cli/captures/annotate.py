"""nagle-lab annotate: the capture with the proof as packet comments, and display filters that select it."""

import sys
from collections.abc import Sequence
from pathlib import Path

from nagle_lab.capture.take import oldest_first
from nagle_lab.cli.shared.exports import require_not_read, require_writable
from nagle_lab.diagnosis.analysis import analyze
from nagle_lab.diagnosis.result.result import Result
from nagle_lab.errors import Exit, NagleLabError, counted, tell
from nagle_lab.evidence.annotation import COMMENT_FILTER, annotate, frame_filter
from nagle_lab.evidence.file_names import file_names
from nagle_lab.host.children import ending_by_signals
from nagle_lab.reports.screens.terminal import shown_path
from nagle_lab.runs.run import is_run, judge_run


def command(paths: Sequence[Path], out: Path | None, force: bool, rotated: bool, with_filter: bool) -> Exit:
    """Annotate one capture (or rotated files, or a run's capture nearest the held end); print a display filter."""
    if out is None and not with_filter:
        raise NagleLabError("annotate needs -o OUT.pcapng, --filter, or both")
    if len(paths) > 1 and not rotated:
        raise NagleLabError("annotate takes one FILE, or with --rotated the files of one rotated capture")
    if out and not out.exists():
        require_writable([out])
    require_not_read([out], paths)
    files, result = _analyzed(paths)
    if out:
        with ending_by_signals():  # what is half written does not stay
            annotate(files, result, out, force=force)
        _tell_written(files, result, out)
    if with_filter:
        sys.stdout.write(f"{COMMENT_FILTER if out and result.stalls else _frames(result)}\n")
    return Exit.OK


def _analyzed(paths: Sequence[Path]) -> tuple[Sequence[Path], Result]:
    if len(paths) == 1 and is_run(paths[0]):
        run = judge_run(paths[0])
        return [run.capture(run.best)], run.results[run.best]
    for path in paths:
        if str(path) == "-" or path.is_fifo():
            raise NagleLabError(f"{path}: annotate reads a capture twice: save it to a file first")
    paths = oldest_first(paths)
    return paths, analyze([str(path) for path in paths])


def _tell_written(files: Sequence[Path], result: Result, out: Path) -> None:
    """Print a line on stderr about the file written, and one for each damage of the capture."""
    stalls = len(result.stalls)
    commented = f"{counted(stalls, 'stall')} commented; select {'its' if stalls == 1 else 'their'} frames with"
    about = f"{commented} {COMMENT_FILTER}" if stalls else "no stall in it"
    tell(f"{shown_path(out)}: {file_names(files)}, {result.verdict}, {about}")
    for damage in result.quality.damage:
        tell(damage)


def _frames(result: Result) -> str:
    filter_, selected = frame_filter(result)
    if selected < len(result.stalls):
        tell(
            f"the filter selects the first {selected:,} of {len(result.stalls):,} stalls, as a longer one would not "
            f"fit a command line; to select all, write OUT.pcapng with -o and filter it by {COMMENT_FILTER}"
        )
    return filter_
