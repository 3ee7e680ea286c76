"""What a report shows: a capture, or a run by its capture nearest the held end, with packets chosen from it."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nagle_lab.diagnosis.result.result import Result
from nagle_lab.diagnosis.result.writes import Writes
from nagle_lab.evidence.examples import Examples, examples
from nagle_lab.experiments.opened import examples_of_run
from nagle_lab.reports.html.source import SourceLines
from nagle_lab.reports.words.writes_text import MOST_GROUPS
from nagle_lab.runs.run import Run


@dataclass(frozen=True)
class Shown:
    """One capture or run; ``examples`` are empty if the capture came through a pipe."""

    name: str
    verdict: str
    reason: str
    result: Result
    examples: Examples
    run: Run | None = None
    writes: Writes | None = None  # the two writes of each stall, if they are known
    sources: Sequence[Sequence[SourceLines]] = ()  # for each pair of writes the lines around both
    slow: bool = True  # whether the reader looks because it is slow, which is not so for a guarded command
    failure: str = ""  # how that command failed; empty if it did not
    to_paste: Sequence[tuple[str, Sequence[str]]] | None = None  # None: the commands that the result suggests


def shown_capture(
    result: Result,
    packets: Examples,
    writes: Writes | None = None,
    sources: Sequence[Sequence[SourceLines]] = (),
    *,
    slow: bool = True,
    title: str = "",
    failure: str = "",
    to_paste: Sequence[tuple[str, Sequence[str]]] | None = None,
) -> Shown:
    """What to show of a diagnosed capture; ``sources`` are the lines of code of each pair of writes.

    ``title`` replaces the file's name as a heading; ``failure`` says how the command failed, if it did.
    ``to_paste`` are the lines to paste; None: those that the result suggests.
    """
    name, verdict, reason = title or result.source.file, result.verdict, result.reason.removeprefix(f"{failure}; ")
    return Shown(name, verdict, reason, result, packets, None, writes, sources, slow, failure, to_paste)


def shown_run(run: Run, packets: Examples) -> Shown:
    """What to show of a judged run."""
    name = f"{run.manifest.scenario} / {run.manifest.variant}"
    writes = run.writes
    none = [()] * min(len(writes.groups), MOST_GROUPS) if writes else ()  # its sources are in a container
    return Shown(name, run.verdict, run.reason, run.results[run.best], packets, run, writes, none)


def shown_of(source: Run | Result, path: Path) -> Shown:
    """What to show of the run or capture at ``path``, which is already judged; reads its packets."""
    if isinstance(source, Run):
        return shown_run(source, examples_of_run(source))
    return shown_capture(source, examples([path], source))
