"""A sweep on the screen: a table for each series, and where it begins and ends to stall."""

from collections.abc import Iterator, Sequence

from rich import box
from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from nagle_lab.diagnosis.verdict import Verdict
from nagle_lab.errors import printable
from nagle_lab.experiments.sweep import Edge, Point, Series, explanation
from nagle_lab.reports.figures import NONE, number, share
from nagle_lab.reports.terminal import STYLE
from nagle_lab.runs.figures import Figures


def show_sweep(title: str, parameter: str, found: Sequence[Series], to: Console) -> None:
    """Every series that has been run."""
    to.print(Text(title, "bold"))
    for series in found:
        if series.points:
            heading = Text.assemble(
                (series.name, "bold"), f": variant {series.variant}, judged on its connections to port {series.port}"
            )
            to.print("", heading, _table(parameter, series), "", *_edges(parameter, series), sep="\n")


def _table(parameter: str, series: Series) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False, show_edge=False)
    for heading in (parameter, "stalled", "requests/s", "median ms"):
        table.add_column(heading, justify="right")
    table.add_column("verdict")
    for point in shown_points(series):
        figures = point.outcome.figures
        cells = [share(point.share), number(figures.requests_per_s), median(figures)] if figures else [NONE] * 3
        verdict = Text(point.outcome.name, STYLE.get(point.outcome.name, "bold magenta"))
        table.add_row(str(point.size), *cells, verdict)
    return table


def median(figures: Figures) -> str:
    """Of the requests' times, ms."""
    return "< 1" if figures.p50_ms == 0 else number(figures.p50_ms)  # ab tells whole milliseconds


def shown_points(series: Series) -> list[Point]:
    """The doubling sizes, both sides of each edge, and what does not tell; not the steps of the search between."""
    edges = {point.size for edge in series.edges for point in (edge.below, edge.above)}
    doubling = series.points[: series.doubled]
    steps = [point for point in series.points[series.doubled :] if point.size in edges or point.verdict is None]
    return sorted([*doubling, *steps], key=lambda point: point.size)


def _edges(parameter: str, series: Series) -> Iterator[RenderableType]:
    for headline, lines in edges_in_words(parameter, series):
        yield Text(headline)
        yield from (Padding(Text(printable(line)), (0, 0, 0, 2)) for line in lines)


def edges_in_words(parameter: str, series: Series) -> Iterator[tuple[str, list[str]]]:
    """Each edge, and what explains or blurs it; or that there is none."""
    if not series.edges:
        told = {point.verdict for point in series.points} - {None}
        low, high = series.points[0].size, max(point.size for point in series.points)
        always = "stalls at every size" if told == {Verdict.STALL} else "no stall at any size"
        yield (f"{always} measured, {low} to {high}" if told else "no run tells"), []
    for edge in series.edges:
        blurs = [f"NOT SHARP: {line}" for line in edge.blurs]
        yield _headline(parameter, edge), [*explanation(edge, parameter), *blurs]


def _headline(parameter: str, edge: Edge) -> str:
    if edge.below.verdict is Verdict.CLEAN:
        return f"begins to stall at {parameter}={edge.above.size} (last clean: {edge.below.size})"
    return f"ends to stall at {parameter}={edge.above.size}, the first clean size (last stalled: {edge.below.size})"
