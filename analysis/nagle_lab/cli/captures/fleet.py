"""nagle-lab fleet: the captures of many hosts, on any number of workers, and questions to the results."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.progress import TextColumn, TimeElapsedColumn, TimeRemainingColumn

from nagle_lab.capture.stored import is_remote
from nagle_lab.cli.shared.exports import require_outputs, write_export
from nagle_lab.cli.shared.progress import ProgressBar
from nagle_lab.diagnosis.result.spread import plural
from nagle_lab.diagnosis.result.verdict import Verdict, exit_code
from nagle_lab.errors import Exit, NagleLabError, disk_full, tell, worst
from nagle_lab.fleet.ask import Store, questions, sql_of
from nagle_lab.fleet.judge import JudgedSeries
from nagle_lab.fleet.overview import overview
from nagle_lab.fleet.plan import unfinished
from nagle_lab.fleet.results_folder import Folder, extra, url_of
from nagle_lab.fleet.schedule import has_begun, run
from nagle_lab.fleet.series import Series, series_of
from nagle_lab.fleet.stretch import StretchDone
from nagle_lab.fleet.workers import workers_of
from nagle_lab.reports.html.fleet import fleet_page
from nagle_lab.reports.screens.fleet import (
    answer_json,
    asked_with,
    resumed_with,
    show_answer,
    show_outcome,
    show_questions,
    show_schema,
    show_series,
    size,
)
from nagle_lab.reports.screens.terminal import console

PAGE = "overview.html"


def command(
    sources: Sequence[str],
    out: str | None,
    on: str | None,
    workers: int | None,
    resume: bool,
    stretch_mb: int,
    list_only: bool,
    expect: str | None,
) -> Exit:
    """Read the series in ``sources`` and store the results; the worst series decides the exit code."""
    expected = Verdict(expect.upper()) if expect else None
    series = series_of(sources)
    if list_only:
        show_series(series, console())
        return Exit.OK
    if not out:
        raise NagleLabError("no place for the results: add --out DIR, a folder or URL that every worker can write to")
    for needed in ("pyarrow", "duckdb"):
        extra(needed)
    folder = Folder(out)
    if has_begun(folder) and not resume:
        raise NagleLabError(f"{out}: already has results: add --resume to go on with them, or name another folder")
    if not has_begun(folder):
        _require_apart(series, folder)
    _say_what_goes(folder, series)
    with _telling_to_resume(sources, folder), _Progress() as progress:
        at_work, stretch = workers_of(on, workers), stretch_mb * 10**6
        judged = run(series, folder, at_work, progress, size=stretch, sources=sources)
    show_outcome(judged, folder.url, console())
    page(folder)
    return worst(_code(each, expected) for each in judged)


@contextmanager
def _telling_to_resume(sources: Sequence[str], out: Folder) -> Iterator[None]:
    """Turns the error of a full disk into one that names the command that goes on."""
    try:
        yield
    except OSError as error:
        if full := disk_full(error, "the results", Path(out.path)):
            raise NagleLabError(f"{full}, then go on with {resumed_with(sources, out.url)}") from error
        raise


def _require_apart(series: Sequence[Series], out: Folder) -> None:
    """Raise NagleLabError if the results would be stored in a folder that captures are read from."""
    within = f"{url_of(out.path, out.url, out.fs)}/"
    if any(file.path.startswith(within) for each in series for file in each.files):
        raise NagleLabError(f"{out.url}: contains captures that are to be read: name another folder for the results")


def _say_what_goes(folder: Folder, series: Sequence[Series]) -> None:
    """Say which results go because their files are not among the sources; NagleLabError if all would."""
    try:
        read = {path for (path,) in Store(folder).ask("SELECT file FROM files").rows}
    except NagleLabError:  # nothing is there yet
        return
    gone = sorted(read - {file.path for each in series for file in each.files})
    if not gone:
        return
    which = f"{len(gone):,} {plural('file', len(gone))} not among the sources now, such as {gone[0]}"
    if len(gone) == len(read):
        todo = "--resume would remove them: name another folder"
        raise NagleLabError(f"{folder.url}: all its results are of {which}: {todo}")
    tell(f"{folder.url}: results of {which}: they are removed, for results are of the sources of the latest run")


def _code(judged: JudgedSeries, expected: Verdict | None) -> Exit:
    code = Exit.UNUSABLE if judged.verdict is None else exit_code(judged.verdict, expected)
    if code is Exit.CONTRADICTED:
        tell(f"{judged.series}: expected {expected}, found {judged.verdict}")
    return code


def page(folder: Folder) -> None:
    """Write the overview page into the store, and say what to type next."""
    folder.write(PAGE, _page(Store(folder), folder).encode("utf-8", "backslashreplace"))
    screen = console()
    screen.print(f"overview: {folder.url.rstrip('/')}/{PAGE}", soft_wrap=True)
    screen.print(f"questions: {asked_with('worst-services', folder.url)}", soft_wrap=True)


def _page(store: Store, folder: Folder) -> str:
    """The overview of the results in that folder, as HTML."""
    return fleet_page(overview(store), folder.path.rpartition("/")[2])


def ask(question: str | None, out: str | None, as_json: bool, html: Path | None) -> Exit:
    """Answer a question, ready-made or SQL; without one, list the ready-made questions."""
    screen = console(at_most=400)
    if question is None and html is None:
        show_questions(questions(), screen)
        return Exit.OK
    if question == "schema":
        show_schema(screen)
        return Exit.OK
    sql = sql_of(question) if question else None
    if not out:
        raise NagleLabError("which results? Add --out DIR, the folder or URL that nagle-lab fleet wrote to")
    folder = Folder(out)
    require_outputs([html], [] if is_remote(out) else [Path(folder.path)])
    _tell_if_unfinished(folder)
    store = Store(folder)
    if html:
        write_export(html, _page(store, folder))
    if sql:
        answer = store.ask(sql)
        if as_json:
            sys.stdout.write(answer_json(answer))
        else:
            show_answer(answer, screen)
    return Exit.OK


def _tell_if_unfinished(folder: Folder) -> None:
    """Say how much of its run a store holds, and how to go on with it, unless the run has ended."""
    if left := unfinished(folder):
        command = resumed_with(left.sources, folder.url)
        tell(f"{left.judged:,} of {left.series:,} series were judged: finish it with {command}")


class _Progress(ProgressBar):
    """Shows on a terminal how much is read: see :class:`nagle_lab.fleet.schedule.Progress`."""

    def __init__(self) -> None:
        super().__init__(None, TextColumn("{task.percentage:>3.0f}%"), TimeElapsedColumn(), TimeRemainingColumn())
        self._series = self._done = self._packets = self._size = 0

    def begin(self, series: int, size: int) -> None:
        """Note how many series and bytes are to be read."""
        self._series = series
        self._bar.update(self._task, total=size)
        self._say()

    def stretch(self, size: int, done: StretchDone) -> None:
        """A stretch of so many bytes is done."""
        self._packets += done.packets
        self._size += size
        self._bar.update(self._task, advance=size)
        self._say()

    def series(self, judged: JudgedSeries) -> None:
        """Note that a series is judged; if it could not be finished, the reason stays on the screen."""
        self._done += 1
        self._say()
        if judged.verdict is None:
            tell(f"{judged.series}: {judged.reason}")

    def _say(self) -> None:
        elapsed = self._bar.tasks[0].elapsed or 0.0
        rate = f" ({self._packets / elapsed:,.0f}/s)" if elapsed else ""
        text = f"{self._done:,}/{self._series:,} series, {self._packets:,} packets{rate}, {size(self._size)}"
        self._bar.update(self._task, description=text)
