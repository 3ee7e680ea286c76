"""A sweep on the screen: a table for each series, and where it starts and stops stalling."""

from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from nagle_lab.diagnosis.result.verdict import Verdict
from nagle_lab.errors import printable
from nagle_lab.experiments.sweep import Edge, SweepPoint, SweepSeries, explanation
from nagle_lab.reports.screens.terminal import STYLE, ruled_table
from nagle_lab.reports.words.numbers import NONE, number, request_time, share


def show_sweep(title: str, parameter: str, several: Sequence[SweepSeries], screen: Console) -> None:
    """Print every series that has been run, and its edges."""
    screen.print(Text(title, "bold"))
    for series in several:
        if not series.points:
            continue
        about = f": variant {series.variant}, judged on its connections to port {series.port}"
        screen.print("", Text.assemble((series.name, "bold"), about), _table(parameter, series), "", sep="\n")
        for headline, lines in edges_in_words(parameter, series):
            screen.print(Text(headline), *(Padding(Text(printable(line)), (0, 0, 0, 2)) for line in lines), sep="\n")


def _table(parameter: str, series: SweepSeries) -> Table:
    table = ruled_table(parameter, "stalled", "requests/s", "median ms", "verdict", words=0)
    table.columns[-1].justify = "left"
    for point in series.to_show():
        size, verdict, *figures = cells(point)
        table.add_row(size, *figures, Text(verdict, STYLE.get(verdict, "bold magenta")))
    return table


def cells(point: SweepPoint) -> list[str]:
    """The cells of a size: its verdict, stalled share, requests per second, and their median time."""
    figures = point.outcome.figures
    measured = [NONE] * 3
    if figures:
        measured = [share(point.share), number(figures.requests_per_s), request_time(figures.p50_ms)]
    return [str(point.size), point.outcome.name, *measured]


def edges_in_words(parameter: str, series: SweepSeries) -> Iterator[tuple[str, list[str]]]:
    """Each edge of a series in words, and what explains or blurs it; or that there is none."""
    verdicts = {point.verdict for point in series.points} - {None}
    unlocated = list(series.unlocated())
    if not series.edges and not unlocated:
        low, high = series.points[0].size, max(point.size for point in series.points)
        always = "stalls at every size" if verdicts == {Verdict.STALL} else "no stall at any size"
        yield (f"{always} measured, {low} to {high}" if verdicts else "no run tells"), []
    for edge in series.edges:
        blurs = [f"NOT SHARP: {line}" for line in edge.blurs]
        yield _headline(parameter, edge), [*explanation(edge, parameter), *blurs]
    for below, above in unlocated:
        change = "starts to stall" if below.verdict is Verdict.CLEAN else "stops stalling"
        yield f"{change} between {parameter}={below.size} and {above.size}: interrupted while locating where", []


def _headline(parameter: str, edge: Edge) -> str:
    if edge.below.verdict is Verdict.CLEAN:
        return f"starts to stall at {parameter}={edge.above.size} (last clean: {edge.below.size})"
    return f"stops stalling at {parameter}={edge.above.size}, the first clean size (last stalled: {edge.below.size})"
