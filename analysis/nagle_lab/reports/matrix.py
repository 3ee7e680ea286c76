"""The matrix and its claims: tables on the screen, and as a page of Markdown."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from nagle_lab.diagnosis.verdict import Verdict
from nagle_lab.errors import printable
from nagle_lab.experiments.claims import ClaimResult, Mark
from nagle_lab.experiments.matrix import Matrix, Row, claims_of
from nagle_lab.reports.markdown import table
from nagle_lab.reports.numbers import NONE, delayed_acks, number, ratio, share, wait
from nagle_lab.reports.terminal import STYLE

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
_NARROW = 100  # up to this many columns of the screen every one counts
_WORDS = 2  # columns of words; those after them are figures
_MARKS = {Mark.REPRODUCED: "bold green", Mark.PARTLY: "bold yellow", Mark.NOT: "bold red", Mark.UNKNOWN: "dim"}


def show_matrix(matrix: Matrix, to: Console) -> None:
    """A table for each scenario, with its claims, and at last what is not as expected."""
    for scenario, rows in matrix.by_scenario():
        to.print("", Text.assemble((scenario.name, "bold"), f": {scenario.title}"), _table(rows, to.width), sep="\n")
        if results := claims_of(scenario, rows):
            to.print("", _claims(results), sep="\n")
    to.print(Text(f"\n{summary(matrix)}", "bold"))
    for line in unexpected(matrix):
        to.print(Text(printable(line)))


def markdown(matrix: Matrix) -> str:
    """A page of the same tables."""
    return "\n".join(_page(matrix)) + "\n"


def _table(rows: Sequence[Row], width: int) -> Table:
    made = Table(box=box.SIMPLE_HEAD, padding=(0, int(width > _NARROW)), pad_edge=False, show_edge=False)
    for i, heading in enumerate(_HEADINGS):
        words = i < _WORDS
        made.add_column("\n".join(heading), justify="left" if words else "right", overflow="fold", no_wrap=words)
    for row in rows:
        name, verdicts, *figures = cells(row)
        style = "bold red" if row.as_expected < len(row.outcomes) else ""
        made.add_row(name, _verdict(row, verdicts), Text(figures[0], style), *figures[1:])
    return made


def _verdict(row: Row, verdicts: str) -> Text:
    names = {outcome.name for outcome in row.outcomes}
    return Text(verdicts, STYLE.get(names.pop(), "bold magenta") if len(names) == 1 else "bold magenta")


def cells(row: Row) -> list[str]:
    """A row under :data:`COLUMNS`."""
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


def _as_expected(row: Row) -> str:
    """How many of the runs; of a single one yes or no, and neither where it does not tell."""
    if len(row.outcomes) > 1:
        return f"{row.as_expected}/{len(row.outcomes)}"
    only = row.outcomes[0]
    return "yes" if only.as_expected else NONE if only.verdict is Verdict.INCONCLUSIVE else "NO"


def _claims(results: Sequence[ClaimResult]) -> Table:
    made = Table(box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False, show_edge=False)
    for heading, width in (("published", 5), ("ours", 5), ("", None), ("why", 6)):
        made.add_column(heading, ratio=width, no_wrap=not heading, overflow="fold")
    for claim in map(claim_in_words, results):
        ours = Text.assemble((claim.figure, "bold"), f"\n{claim.what}\n{claim.asked}")
        made.add_row(claim.published, ours, Text(claim.mark, _MARKS[claim.mark]), claim.why, end_section=True)
    return made


@dataclass(frozen=True)
class ClaimInWords:
    """A published figure, ours and what it is, which would count as reproduced, how far ours does, and why."""

    published: str
    figure: str
    what: str
    asked: str
    mark: Mark
    why: str


def claim_in_words(result: ClaimResult) -> ClaimInWords:
    """How a claim stands in tables."""
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
    return f"{number(value)} {unit}".rstrip() if value is not None else NONE


def summary(matrix: Matrix) -> str:
    """How many runs are as expected, and how long all took."""
    done, fine = matrix.done, sum(row.as_expected for row in matrix.rows)
    missing = f", {matrix.planned - done} not made" if done < matrix.planned else ""
    minutes, seconds = divmod(matrix.about.get("took_s", 0), 60)
    took = f"{minutes} min {seconds} s" if minutes else f"{seconds} s"
    return f"{fine} of {done} runs as expected{missing}, in {took}"


def unexpected(matrix: Matrix) -> Iterator[str]:
    """A line for everything that is not as expected."""
    for row in matrix.rows:
        for reason in row.reasons:
            yield f"{row.scenario.name} {row.variant.name}: {reason}"


def _page(matrix: Matrix) -> Iterator[str]:
    yield from ("# The matrix: every scenario and variant, run", "")
    yield f"Written by `nagle-lab matrix{_options(matrix)}`, never by hand. {machine(matrix)}"
    yield ""
    yield PREAMBLE
    for scenario, rows in matrix.by_scenario():
        yield from ("", f"## {scenario.name}", "", scenario.title, "")
        yield from table(COLUMNS, ([_cell(cell) for cell in cells(row)] for row in rows), range(_WORDS))
        if results := claims_of(scenario, rows):
            yield ""
            yield from table(["published", "ours", "", "why"], map(_claim_line, results))
    surprises = list(unexpected(matrix))
    yield from ("", f"**{summary(matrix)}.**")
    if surprises:
        yield ""
        yield from (f"- {printable(line)}" for line in surprises)


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


def _options(matrix: Matrix) -> str:
    return f" --repeat {matrix.repeat}" if matrix.repeat > 1 else ""


def machine(matrix: Matrix) -> str:
    """When and on what it ran."""
    about, versions = matrix.about, matrix.about.get("versions", {})
    repeat = f" Figures are medians of {matrix.repeat} runs." if matrix.repeat > 1 else ""
    kernel = f"Linux {versions['kernel']}, " if versions.get("kernel") else ""
    docker = f"Docker {versions['docker']}, " if versions.get("docker") else ""
    return f"{str(about.get('started', ''))[:10]}, {kernel}{docker}{about.get('cpus')} CPUs.{repeat}"


def _claim_line(result: ClaimResult) -> list[str]:
    claim = claim_in_words(result)
    ours = f"**{claim.figure}** ({claim.what}; {claim.asked})"
    return [_cell(cell) for cell in (claim.published, ours, f"**{claim.mark}**", claim.why)]


def _cell(words: str) -> str:
    return words.replace("|", "\\|")
