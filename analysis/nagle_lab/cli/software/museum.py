"""nagle-lab museum: released software that stalls, run again."""

from collections.abc import Sequence
from pathlib import Path

from nagle_lab.cli.shared.exports import require_outputs, write_export
from nagle_lab.cli.shared.progress import RunsProgress
from nagle_lab.errors import Exit, tell, worst
from nagle_lab.experiments.software.museum import Exhibit, exhibits, run_exhibit
from nagle_lab.experiments.writes.museum_writes import trace as trace_writes
from nagle_lab.reports.experiments.museum import list_exhibits, museum_page, show_museum, summary_line
from nagle_lab.reports.experiments.museum_writes import show_traced, traced_line, traced_page
from nagle_lab.reports.screens.terminal import console


def command(names: Sequence[str], quick: bool, list_only: bool, trace: bool, markdown: Path | None) -> Exit:
    """Install and run the exhibits, print the table, and write the page if requested."""
    require_outputs([markdown])
    every = [exhibit for exhibit in exhibits(names) if exhibit.quick or not quick]
    if list_only:
        list_exhibits(every, console(at_most=140))
        return Exit.OK
    if trace:
        return _trace(every, markdown)
    shown = []
    with RunsProgress(len(every)) as progress:
        for exhibit in every:
            progress.begin(exhibit.name)
            shown.append(run_exhibit(exhibit))
            code = shown[-1].code
            progress.end("as expected" if code is Exit.OK else shown[-1].problem, notable=code is not Exit.OK)
    show_museum(shown, console(at_most=140))
    tell(summary_line(shown))
    if markdown:
        write_export(markdown, museum_page(shown))
    return worst(one.code for one in shown)


def _trace(every: Sequence[Exhibit], markdown: Path | None) -> Exit:
    """Trace the bad halves, and compare the two writes of each with its exhibit."""
    traced = []
    known = [exhibit for exhibit in every if exhibit.writes]
    with RunsProgress(len(known)) as progress:
        for exhibit in known:
            progress.begin(exhibit.name)
            traced.append(trace_writes(exhibit))
            right = traced[-1].code is Exit.OK
            progress.end("both right" if right else traced[-1].problem or "not right", notable=not right)
    show_traced(traced, console(at_most=140))
    tell(traced_line(traced))
    if markdown:
        write_export(markdown, traced_page(traced, [exhibit.name for exhibit in every if not exhibit.writes]))
    return worst(one.code for one in traced)
