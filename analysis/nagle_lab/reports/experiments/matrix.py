"""The matrix and its claims: tables on the screen, and as a page of Markdown."""

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table
from rich.text import Text

from nagle_lab.diagnosis.result.verdict import Verdict
from nagle_lab.errors import printable
from nagle_lab.experiments.matrix import ClaimResult, Matrix, Reproduction, VariantRow, claims_of
from nagle_lab.reports.files.markdown import table as markdown_table
from nagle_lab.reports.screens.terminal import STYLE, ruled_table
from nagle_lab.reports.words.numbers import NONE, delayed_acks, number, ratio, share, wait

_HEADINGS = (
    ("variant", ""),
    ("verdict", ""),
    ("as ex-", "pected"),
    ("stalled", "share"),
    ("wait, ms", "p50 / p99"),
    ("requests", "per s"),
    ("packets", "/ req."),
    ("wire B", "/ byte"),
    ("delayed ACKs", "seen/kernel"),
)
_NARROW = 100  # on screens up to this width every column counts
_WORDS = 2  # columns of words; those after them are figures
_RATE = "per s"  # the words of such a measure say so
_MARKS = {
    Reproduction.REPRODUCED: "bold green",
    Reproduction.PARTLY: "bold yellow",
    Reproduction.NOT: "bold red",
    Reproduction.UNKNOWN: "dim",
}
COLUMNS = (
    "variant", "verdict", "as expected", "stalled", "wait, ms (p50 / p99)", "requests per s", "packets per request",
    "wire bytes per byte", "delayed ACKs (seen / kernel)",
)  # fmt: skip
PREAMBLE = (
    "*Stalled*: of the exchanges that follow another on their connection. *Wait*: from a stall's trigger to the late "
    "ACK. *Requests per s* is what the load tool saw. *Packets*, *wire bytes*, *delayed ACKs*: on the "
    "connections under test, of both ends: per request, per byte of payload, and in all. Beside the last stands what "
    "the kernels at both ends count; – where one is not captured."
)


def show_matrix(matrix: Matrix, screen: Console) -> None:
    """Print a table for each scenario, with its claims, and finally what is not as expected."""
    for scenario, rows in matrix.by_scenario():
        screen.print(
            "", Text.assemble((scenario.name, "bold"), f": {scenario.title}"), _table(rows, screen.width), sep="\n"
        )
        if results := claims_of(scenario, rows):
            screen.print("", _claims(results), sep="\n")
    screen.print(Text(f"\n{summary(matrix)}", "bold"))
    for line in unexpected(matrix):
        screen.print(Text(printable(line)))


def _table(rows: Sequence[VariantRow], width: int) -> Table:
    table = ruled_table(*map("\n".join, _HEADINGS), words=_WORDS)
    table.padding = (0, int(width > _NARROW), 0, int(width > _NARROW))
    for column in table.columns[:_WORDS]:
        column.no_wrap = True
    for row in rows:
        name, verdicts, *figures = cells(row)
        style = "bold red" if row.as_expected < len(row.outcomes) else ""
        verdict = Text(verdicts, STYLE.get(verdicts, "bold magenta"))  # of runs that differ: magenta
        table.add_row(name, verdict, Text(figures[0], style), *figures[1:])
    return table


def cells(row: VariantRow) -> list[str]:
    """The cells of a row of the matrix, one for each of :data:`COLUMNS`."""
    figures = row.figures
    words = [row.variant.name, row.verdicts, _as_expected(row)]
    if figures is None:
        return words + [NONE] * (len(_HEADINGS) - len(words))
    return [
        *words,
        share(figures.stalled_share),
        wait(figures),
        number(figures.requests_per_s),
        ratio(figures.packets_per_request),
        ratio(figures.wire_bytes_per_payload_byte),
        delayed_acks(figures),
    ]


def _as_expected(row: VariantRow) -> str:
    """How many of the runs are as expected; for a single run yes or no, or neither if it is INCONCLUSIVE."""
    if len(row.outcomes) > 1:
        return f"{row.as_expected}/{len(row.outcomes)}"
    only = row.outcomes[0]
    return "yes" if only.as_expected else NONE if only.verdict is Verdict.INCONCLUSIVE else "NO"


def _claims(results: Sequence[ClaimResult]) -> Table:
    table = ruled_table("published", "ours", "", "why")
    for column, ratio_ in zip(table.columns, (5, 5, None, 6), strict=True):
        column.ratio, column.no_wrap = ratio_, ratio_ is None
    for claim in map(claim_in_words, results):
        ours = Text.assemble((claim.figure, "bold"), f"\n{claim.what}\n{claim.asked}")
        table.add_row(claim.published, ours, Text(claim.mark, _MARKS[claim.mark]), claim.why, end_section=True)
    return table


@dataclass(frozen=True)
class ClaimInWords:
    """A published figure; ours, and what it is; the range that reproduces it; how far ours does; and why."""

    published: str
    figure: str
    what: str
    asked: str
    mark: Reproduction
    why: str


def claim_in_words(result: ClaimResult) -> ClaimInWords:
    """The cells of a claim in tables, in words."""
    claim, measure = result.claim, result.measure
    asked = f"reproduced: {_span(claim.reproduced)}" + (f", partly: {_span(claim.partly)}" if claim.partly else "")
    figure, what = _figure(result.of, measure.unit), f"{measure.words}, {claim.of}"
    if claim.against is not None:
        against = _figure(result.against, measure.unit)
        figure, what = number(result.figure), f"{measure.words}: {figure} {claim.of}, {against} {claim.against}"
    return ClaimInWords(claim.published, figure, what, asked, result.mark, " ".join(claim.why.split()))


def _span(span: tuple[float, float]) -> str:
    return f"{span[0]:g} to {span[1]:g}"


def _figure(value: float | None, unit: str) -> str:
    if value is None:
        return NONE
    return number(value) if unit in ("", _RATE) else f"{number(value)} {unit}"


def heading(matrix: Matrix) -> str:
    """What was run: the scenarios by name, each with every variant."""
    *names, last = dict.fromkeys(row.scenario.name for row in matrix.rows)
    return f"Matrix: every variant of {', '.join(names)}{' and ' if names else ''}{last}"


def summary(matrix: Matrix) -> str:
    """How many runs are as expected, and how long they took together."""
    missing = f", {matrix.planned - matrix.done} not made" if matrix.done < matrix.planned else ""
    minutes, seconds = divmod(matrix.made.took_s, 60)
    took = f"{minutes} min {seconds} s" if minutes else f"{seconds} s"
    return f"{matrix.as_expected} of {matrix.done} runs as expected{missing}, in {took}"


def unexpected(matrix: Matrix) -> list[str]:
    """A line for everything that is not as expected."""
    return [f"{row.scenario.name} {row.variant.name}: {reason}" for row in matrix.rows for reason in row.reasons]


def machine(matrix: Matrix) -> str:
    """When the matrix ran, and on which machine: kernel, processors, versions."""
    made, versions = matrix.made, matrix.made.versions
    repeat = f" Figures are medians of {matrix.repeat} runs." if matrix.repeat > 1 else ""
    kernel = f"Linux {versions.kernel}, " if versions.kernel else ""
    docker = f"Docker {versions.docker}, " if versions.docker else ""
    return f"{made.started[:10]}, {kernel}{docker}{made.cpus} CPUs.{repeat}"


def markdown(matrix: Matrix) -> str:
    """The matrix as a page of Markdown, with the tables of :func:`show_matrix`."""
    options = f" --repeat {matrix.repeat}" if matrix.repeat > 1 else ""
    written = f"Written by `nagle-lab matrix{options}`, never by hand. {machine(matrix)}"
    lines = [f"# {heading(matrix)}", "", written, "", PREAMBLE]
    for scenario, rows in matrix.by_scenario():
        lines += ["", f"## {scenario.name}", "", scenario.title, ""]
        lines += markdown_table(COLUMNS, (map(_cell, cells(row)) for row in rows), range(_WORDS))
        if results := claims_of(scenario, rows):
            lines += ["", *markdown_table(["published", "ours", "", "why"], map(_claim_cells, results))]
    lines += ["", f"**{summary(matrix)}.**"]
    if surprises := unexpected(matrix):
        lines += ["", *(f"- {printable(line)}" for line in surprises)]
    return "\n".join(lines) + "\n"


def _claim_cells(result: ClaimResult) -> list[str]:
    claim = claim_in_words(result)
    ours = f"**{claim.figure}** ({claim.what}; {claim.asked})"
    return [_cell(cell) for cell in (claim.published, ours, f"**{claim.mark}**", claim.why)]


def _cell(words: str) -> str:
    return words.replace("|", "\\|")
