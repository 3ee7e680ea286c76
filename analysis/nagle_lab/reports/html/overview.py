"""Pages about many runs: a matrix with its claims, a sweep with its cliff, several runs or captures side by side."""

from collections.abc import Iterator, Sequence

from nagle_lab.experiments.claims import ClaimResult
from nagle_lab.experiments.comparison import QUANTITIES, Comparison
from nagle_lab.experiments.matrix import Matrix, Row, claims_of
from nagle_lab.experiments.sweep import Point, Series
from nagle_lab.reports.figures import NONE, number, share
from nagle_lab.reports.html import charts
from nagle_lab.reports.html.capture import durations, masthead, over_time, stalls
from nagle_lab.reports.html.markup import Child, Html, each, lines, tag
from nagle_lab.reports.html.page import figure, page, section, table, verdict
from nagle_lab.reports.html.shown import Shown
from nagle_lab.reports.matrix import COLUMNS, PREAMBLE, cells, machine, one_line, ours, summary, unexpected
from nagle_lab.reports.sweep import edges_in_words, median, shown_points

_WORDS = 2


def matrix_page(matrix: Matrix) -> str:
    """Every scenario and variant that was run, with the claims held against them: a whole document."""
    return page("nagle-lab matrix", *_matrix_parts(matrix))


def sweep_page(title: str, parameter: str, found: Sequence[Series]) -> str:
    """A sweep of ``parameter``, called ``title``: a whole document."""
    return page(f"nagle-lab sweep: {title}", *_sweep_parts(title, parameter, found))


def comparison_page(found: Comparison, shown: Sequence[Shown]) -> str:
    """Several runs or captures side by side; ``shown`` are those compared, in the same order: a whole document."""
    title = " against ".join(dict.fromkeys(of.name for of in shown))
    articles = (tag("article", masthead(of, "h2"), stalls(of), over_time(of)) for of in shown)
    return page(title, *_comparison_parts(found), durations(list(shown)), *articles)


def _matrix_parts(matrix: Matrix) -> Iterator[Child]:
    """Every scenario's table, picture and claims."""
    surprises = list(unexpected(matrix))
    yield tag(
        "header",
        tag("h1", "The matrix: every scenario and variant, run"),
        tag("p", f"{summary(matrix)}.", class_="reason"),
        tag("p", machine(matrix), class_="note"),
        tag("ul", *(tag("li", line, class_="unexpected") for line in surprises)) if surprises else None,
        tag("p", PREAMBLE.replace("*", ""), class_="note"),
    )
    for scenario, rows in matrix.by_scenario():
        claims = claims_of(scenario, rows)
        yield section(
            f"{scenario.name}: {scenario.title}",
            _times(scenario.name, rows),
            table(
                [" ".join(filter(None, heading)) for heading in COLUMNS],
                [_cells(row) for row in rows],
                _WORDS,
                grid=True,
            ),
            _claims(claims) if claims else None,
        )


def _cells(row: Row) -> list[Child]:
    name, _, *others = cells(row)
    names = [outcome.name for outcome in row.outcomes]
    told = [
        each(f"{names.count(one)} × " if len(set(names)) > 1 else None, verdict(one, small=True), " ")
        for one in dict.fromkeys(names)
    ]
    return [name, each(*told), *others]


def _times(name: str, rows: Sequence[Row]) -> Html | None:
    bars = [
        charts.Bar(row.variant.name, row.verdicts, row.figures.mean_ms)
        for row in rows
        if row.figures and row.figures.mean_ms > 0
    ]
    if not bars:
        return None
    drawn = charts.variants(bars, f"Mean time of a request, {name}", "ms")
    return figure("Mean time of a request, as the load tool saw it.", drawn)


def _claims(results: Sequence[ClaimResult]) -> Html:
    rows: list[list[Child]] = []
    for result in results:
        value, what, asked = ours(result)
        mark = tag("b", result.mark, class_=f"mark-{result.mark.split()[0]}")
        said = each(tag("b", value), tag("br"), tag("span", f"{what}; {asked}", class_="note"))
        rows.append([result.claim.published, said, mark, one_line(result.claim.why)])
    return each(tag("h3", "Published, and ours"), table(["published", "ours", "", "why"], rows, 4))


def _sweep_parts(title: str, parameter: str, found: Sequence[Series]) -> Iterator[Child]:
    """Every series with its cliff."""
    yield tag(
        "header", tag("h1", f"At which size it stalls: {title}"), tag("p", f"Swept: {parameter}.", class_="note")
    )
    for series in (one for one in found if one.points):
        told = [point for point in series.points if point.verdict]
        points = [
            charts.SizePoint(
                p.size,
                p.outcome.name,
                p.share,
                lines(f"{parameter}={p.size}", p.outcome.name, f"{share(p.share)} stalled"),
            )
            for p in sorted(told, key=lambda p: p.size)
        ]
        edges = [(edge.below.size, edge.above.size) for edge in series.edges]
        caption = (
            "■ stalls, ● does not; a dashed line: the two sizes next to each other at which the verdict changes."
        )
        words = [
            each(tag("p", tag("b", headline)), tag("ul", *(tag("li", line) for line in said)) if said else None)
            for headline, said in edges_in_words(parameter, series)
        ]
        yield section(
            f"{series.name}: variant {series.variant}",
            figure(caption, charts.cliff(points, edges, parameter)) if points else None,
            *words,
            table(
                [parameter, "verdict", "stalled", "requests/s", "median ms"],
                [_size(p) for p in shown_points(series)],
                2,
                grid=True,
            ),
            note=f"Judged on the connections to port {series.port}.",
        )


def _size(point: Point) -> list[Child]:
    figures = point.outcome.figures
    told = [share(point.share), number(figures.requests_per_s), median(figures)] if figures else [NONE] * 3
    return [str(point.size), verdict(point.outcome.name, small=True), *told]


def _comparison_parts(found: Comparison) -> Iterator[Child]:
    """What is the same and what is not: verdicts, figures and gains, then configuration and environment."""
    first, *others = found.subjects
    names = [subject.name for subject in found.subjects]
    yield tag(
        "header",
        tag("h1", " against ".join(dict.fromkeys(names))),
        *(
            tag("p", verdict(s.verdict), " ", tag("b", s.name), f" ({s.source}): {s.reason}", class_="reason")
            for s in found.subjects
        ),
    )
    rows: list[list[Child]] = []
    for q in QUANTITIES:
        values = [subject.figures[q.name] for subject in found.subjects]
        if any(value is not None for value in values):
            shown = [share(v) if v is not None and q.name == "stalled_share" else number(v) for v in values]
            gains = [tag("span", gains[q.name].words, class_="note") for gains in found.gains]
            told: list[Child] = [f"{q.words}, {q.unit}".rstrip(", "), shown[0]]
            for value, gain in zip(shown[1:], gains, strict=True):
                told.append(each(value, tag("br"), gain))
            rows.append(told)
    yield section("Side by side", table(["", first.name, *(s.name for s in others)], rows))
    differ: list[list[Child]] = [
        [f"{d.section}: {d.name}", *(NONE if value is None else value for value in d.values)]
        for d in found.differences
    ]
    left = f"Not compared, because not all tell of it: {', '.join(found.not_compared)}." if found.not_compared else ""
    yield section(
        "What differs between them",
        table(["", *names], differ, 99) if differ else tag("p", "Nothing that was recorded."),
        note=left,
    )
