"""Pages about many runs: a matrix with its claims, a sweep with its cliff, several runs or captures side by side."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from nagle_lab.evidence.ladder import Ladder
from nagle_lab.experiments.comparison import Comparison
from nagle_lab.experiments.matrix import Matrix, VariantRow, claims_of
from nagle_lab.experiments.sweep import SweepSeries
from nagle_lab.reports.experiments import comparison as side_by_side
from nagle_lab.reports.experiments import matrix as tables
from nagle_lab.reports.experiments import sweep as sizes
from nagle_lab.reports.html import charts
from nagle_lab.reports.html.page import page
from nagle_lab.reports.html.shown import Shown
from nagle_lab.reports.html.time_axis import common_scale


def comparison_page(comparison: Comparison, parts: Sequence[Shown]) -> str:
    """Several runs or captures side by side, a whole document; ``parts`` are those compared, in the same order."""
    parts = [replace(of, name=subject.name) for of, subject in zip(parts, comparison.subjects, strict=True)]
    return page(
        "comparison.html.j2",
        title=" against ".join(dict.fromkeys(of.name for of in parts)),
        comparison=comparison,
        names=side_by_side.names_of(comparison),
        figures=list(side_by_side.figure_rows(comparison, range(len(parts)))),
        differences=side_by_side.difference_rows(comparison),
        parts=parts,
        scale=common_scale(_ladders(parts)),
    )


def matrix_page(matrix: Matrix) -> str:
    """Every scenario and variant that was run, with the claims about them: a whole document."""
    return page(
        "matrix.html.j2",
        title=f"nagle-lab: {tables.heading(matrix)}",
        heading=tables.heading(matrix),
        summary=tables.summary(matrix),
        machine=tables.machine(matrix),
        unexpected=tables.unexpected(matrix),
        preamble=tables.PREAMBLE.replace("*", ""),
        columns=tables.COLUMNS,
        scenarios=[
            (
                scenario,
                [(row, tables.cells(row)) for row in rows],
                _bars(rows),
                [tables.claim_in_words(result) for result in claims_of(scenario, rows)],
            )
            for scenario, rows in matrix.by_scenario()
        ],
    )


def sweep_page(name: str, parameter: str, several: Sequence[SweepSeries]) -> str:
    """A sweep of ``parameter``, called ``name``: a whole document."""
    return page(
        "sweep.html.j2",
        title=f"nagle-lab sweep: {name}",
        name=name,
        parameter=parameter,
        several=[
            (
                series,
                _sizes(series),
                [(edge.below.size, edge.above.size) for edge in series.edges],
                list(sizes.edges_in_words(parameter, series)),
                [sizes.cells(point) for point in series.to_show()],
            )
            for series in several
            if series.points
        ],
    )


def _ladders(parts: Iterable[Shown]) -> Iterator[Ladder]:
    for of in parts:
        yield from (ladder for _, ladder in of.examples.stalls)
        if of.examples.exchange:
            yield of.examples.exchange


def _bars(rows: Iterable[VariantRow]) -> list[charts.Bar]:
    return [
        charts.Bar(row.variant.name, row.verdicts, figures.mean_ms)
        for row in rows
        if (figures := row.figures) and figures.mean_ms > 0
    ]


def _sizes(series: SweepSeries) -> list[charts.SizePoint]:
    conclusive = sorted((point for point in series.points if point.verdict), key=lambda point: point.size)
    return [charts.SizePoint(point.size, point.outcome.name, point.share) for point in conclusive]
