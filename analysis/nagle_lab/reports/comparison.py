"""Runs and captures side by side: on the screen, and as Markdown."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from nagle_lab.errors import printable
from nagle_lab.experiments.comparison import QUANTITIES, Comparison, Difference, Gain, Quantity, Subject
from nagle_lab.reports.markdown import escaped, table
from nagle_lab.reports.numbers import NONE, number, ratio, share, thousands
from nagle_lab.reports.terminal import STYLE

BESIDE = 3  # subjects beside the first in one table of the screen
_MOST = 24  # differences on the screen; a page has them all
_TWO_DECIMALS = {"packets_per_request", "wire_bytes_per_payload_byte"}
_COUNTS = {"delayed_acks", "kernel_delayed_acks"}
_IN_A_SENTENCE = {  # figure → what follows its gain
    "stalled_share": "",
    "exchange_p50_ms": " exchanges",
    "requests_per_s": " requests/s",
    "packets_per_request": " packets per request",
}


def show_comparison(found: Comparison, to: Console) -> None:
    """Verdicts, figures, gains over the first, and what differs; several tables where there are many."""
    for at in range(1, len(found.subjects), BESIDE):
        chosen = [0, *range(at, min(at + BESIDE, len(found.subjects)))]
        to.print(*_sources(found, chosen), "", _table(found, chosen), "", sep="\n")
    for line in sentences(found):
        to.print(Text(printable(line), "bold"))
    to.print(Text("\nWhat differs", "bold"))
    to.print(_differences(found) if found.differences else Text("nothing that was recorded", "dim"))
    if len(found.differences) > _MOST:
        to.print(Text(f"… and {len(found.differences) - _MOST} more: --json has them all", "dim"))
    if found.not_compared:
        to.print(Text(f"not compared, for only a run folder tells: {', '.join(found.not_compared)}", "dim"))


def sentences(found: Comparison) -> Iterator[str]:
    """The gain of each subject over the first in one sentence, in words that claim nothing for equal figures."""
    for subject, gains in zip(found.subjects[1:], found.gains, strict=True):
        said = [f"{gains[name].words}{what}" for name, what in _IN_A_SENTENCE.items() if gains[name].notable]
        if said:
            yield f"{name_of(found, subject)} against {name_of(found, found.subjects[0])}: {', '.join(said)}"


def markdown(found: Comparison, level: int = 2) -> str:
    """The same as Markdown, its heading at that level."""
    return "\n".join(_page(found, level)) + "\n"


def name_of(found: Comparison, subject: Subject) -> str:
    """What to call it: its variant where all are of one scenario, its source where names are not unique."""
    names = [each.name for each in found.subjects]
    if names.count(subject.name) > 1:
        return subject.source
    scenarios = {name.partition(" / ")[0] for name in names}
    return subject.name.partition(" / ")[2] or subject.name if len(scenarios) == 1 else subject.name


@dataclass(frozen=True)
class FigureRow:
    """A figure of several subjects; ``gains`` of those after the first over it."""

    name: str
    values: list[str]
    gains: list[Gain]

    def cells(self) -> list[str]:
        """The row of a table: with the gain in words at its end, or of more than two subjects each with its own."""
        if len(self.gains) == 1:
            return [self.name, *self.values, self.gains[0].words]
        short = ["", *(f" ({gain.short})" if gain.short else "" for gain in self.gains)]
        return [self.name, *(value + gain for value, gain in zip(self.values, short, strict=True))]


def figure_rows(found: Comparison, chosen: Sequence[int]) -> Iterator[FigureRow]:
    """Every figure that any of the ``chosen`` subjects has; the first of all is among them, in front."""
    for quantity in QUANTITIES:
        figures = [found.subjects[i].figures[quantity.name] for i in chosen]
        if any(figure is not None for figure in figures):
            name = f"{quantity.words}, {quantity.unit}" if quantity.unit == "ms" else quantity.words
            gains = [found.gains[i - 1][quantity.name] for i in chosen[1:]]
            yield FigureRow(name, [_value(quantity, figure) for figure in figures], gains)


def difference_rows(found: Comparison) -> Iterator[list[str]]:
    """What differs, and its value for each subject."""
    for difference in found.differences:
        yield [_fact(difference), *(NONE if value is None else value for value in difference.values)]


def _value(quantity: Quantity, value: float | None) -> str:
    """A figure as it stands in tables; its unit is in the row's name."""
    if value is None:
        return NONE
    if quantity.name == "stalled_share":
        return share(value)
    if quantity.name in _COUNTS:
        return thousands(value)
    return ratio(value) if quantity.name in _TWO_DECIMALS else number(value)


def _sources(found: Comparison, chosen: Sequence[int]) -> Iterator[Text]:
    for i in chosen:
        subject = found.subjects[i]
        verdict = Text(f" {subject.verdict} ", f"{STYLE[subject.verdict]} reverse")
        said = "" if subject.as_expected is not False else ", NOT as expected"
        where = f"  {printable(subject.source)}" if subject.is_run else ""
        yield Text.assemble(verdict, "  ", (printable(subject.name), "bold"), (where, "dim"), said)


def _table(found: Comparison, chosen: Sequence[int]) -> Table:
    made = Table(box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False, show_edge=False)
    made.add_column("", no_wrap=True)
    for i in chosen:
        made.add_column(printable(name_of(found, found.subjects[i])), justify="right", overflow="fold")
    if len(chosen) == 2:
        made.add_column("", overflow="fold", style="cyan")
    for row in figure_rows(found, chosen):
        made.add_row(*map(Text, row.cells()))
    return made


def _differences(found: Comparison) -> Table:
    made = Table(box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False, show_edge=False)
    made.add_column("", overflow="fold", style="dim")
    for subject in found.subjects:
        made.add_column(printable(name_of(found, subject)), overflow="fold")
    for row in islice(difference_rows(found), _MOST):
        made.add_row(*(Text(printable(cell)) for cell in row))
    return made


def _fact(difference: Difference) -> str:
    section, name = difference.section, difference.name
    return name if name in (section, "in effect") and section != "setting" else f"{section}: {name}"


def _page(found: Comparison, level: int) -> Iterator[str]:
    names = [escaped(name_of(found, subject)) for subject in found.subjects]
    yield from (f"{'#' * level} {' · '.join(names)}", "")
    yield from (f"- **{escaped(line)}**" for line in sentences(found))
    yield ""
    alone = [""] if len(names) == 2 else []
    verdicts = ["verdict", *(f"**{subject.verdict}**" for subject in found.subjects), *alone]
    figures = (row.cells() for row in figure_rows(found, range(len(names))))
    yield from table(["", *names, *alone], [verdicts, *figures], words=[0])
    yield ""
    if found.differences:
        rows = ([escaped(cell) for cell in row] for row in difference_rows(found))
        yield from table(["what differs", *names], rows)
    else:
        yield "Nothing that was recorded differs."
    yield ""
    sources = ", ".join(escaped(subject.source) for subject in found.subjects)
    yield f"Runs and captures: {sources}."
