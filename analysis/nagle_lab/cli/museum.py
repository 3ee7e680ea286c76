"""nagle-lab museum: released software that stalls, run again."""

from collections.abc import Sequence
from pathlib import Path

from nagle_lab.cli.exports import require_writable, write_whole
from nagle_lab.cli.progress import RunsProgress
from nagle_lab.errors import Exit, tell, worst
from nagle_lab.experiments.museum import CACHE, exhibits, show
from nagle_lab.reports.museum import list_exhibits, museum_page, show_museum, summary_line
from nagle_lab.reports.terminal import console


def command(names: Sequence[str], quick: bool, list_only: bool, markdown: Path | None, cache: Path | None) -> Exit:
    """Install and run the exhibits, print the table, and write the page if asked to."""
    require_writable({"markdown": markdown})
    every = [exhibit for exhibit in exhibits(names) if exhibit.quick or not quick]
    if list_only:
        list_exhibits(every, console(at_most=140))
        return Exit.OK
    shown = []
    with RunsProgress(console(stderr=True), len(every)) as progress:
        for exhibit in every:
            progress.begin(exhibit.name)
            shown.append(show(exhibit, cache or CACHE))
            code = shown[-1].code
            progress.end("as expected" if code is Exit.OK else shown[-1].problem, notable=code is not Exit.OK)
    show_museum(shown, console(at_most=140))
    tell(summary_line(shown))
    if markdown:
        write_whole(markdown, museum_page(shown))
    return worst(one.code for one in shown)
