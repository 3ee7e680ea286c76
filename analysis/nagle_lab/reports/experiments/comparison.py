"""Runs and captures side by side: on the screen, and as Markdown."""

import re
import string
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from nagle_lab.diagnosis.result.verdict import Verdict
from nagle_lab.errors import printable
from nagle_lab.experiments.comparison import QUANTITIES, Comparison, Difference, Gain, Quantity, Subject
from nagle_lab.reports.files.markdown import escaped, table
from nagle_lab.reports.screens.terminal import STYLE, ruled_table
from nagle_lab.reports.words.numbers import NONE, number, ratio, request_time, share, thousands

BESIDE = 3  # subjects beside the first in one table of the screen
_MOST = 24  # differences on the screen; a page has all
_TWO_DECIMALS = {"packets_per_request", "wire_bytes_per_payload_byte"}
_REQUEST_TIMES = {"request_p50_ms", "request_p99_ms"}
_COUNTS = {"delayed_acks", "kernel_delayed_acks"}
_IN_A_SENTENCE = {  # figure → what follows its gain
    "stalled_share": "",
    "exchange_p50_ms": " exchanges",
    "requests_per_s": " requests/s",
    "packets_per_request": " packets per request",
}


def show_comparison(comparison: Comparison, screen: Console) -> None:
    """Print verdicts, figures, gains over the first, and what differs; many subjects take several tables."""
    subjects, names = comparison.subjects, names_of(comparison)
    for at in range(1, len(subjects), BESIDE):
        columns = [0, *range(at, min(at + BESIDE, len(subjects)))]
        rows = [row.cells() for row in figure_rows(comparison, columns)]
        heads = _heads([names[i] for i in columns], rows, screen.width, columns)
        for i, head in zip(columns, heads, strict=True):
            screen.print(_heading(subjects[i], head if head in tuple(LETTERS) else ""))
            if why := _why_without_figures(subjects[i]):
                screen.print(Padding(Text(printable(why)), (0, 0, 0, 2)))
        words = [""] if len(columns) == 2 else []
        figures = ruled_table("", *heads, *words, words=1)
        for column in figures.columns[: 1 + len(columns)]:
            column.no_wrap = True
        if words:
            figures.columns[-1].justify, figures.columns[-1].style = "left", "cyan"
        for row in rows:
            figures.add_row(*map(Text, row))
        screen.print("", figures, "", sep="\n")
    if gained := list(sentences(comparison)):
        screen.print(*(Text(printable(line), "bold") for line in gained), "", sep="\n")
    screen.print(Text("What differs", "bold"))
    if comparison.differences:
        rows = difference_rows(comparison)[:_MOST]
        differences = ruled_table("", *_heads(names, rows, screen.width, range(len(names))))
        differences.columns[0].style = "dim"
        for cells in rows:
            differences.add_row(*(Text(printable(cell)) for cell in cells))
        screen.print(differences)
    else:
        screen.print(Text("nothing that was recorded of the set-up", "dim"))
    if len(comparison.differences) > _MOST:
        screen.print(Text(f"… and {len(comparison.differences) - _MOST} more: --json has them all", "dim"))
    if comparison.not_compared:
        sections = ", ".join(comparison.not_compared)
        screen.print(Text(f"not compared, because only run folders have them: {sections}", "dim"))


LETTERS = string.ascii_uppercase
_WORDS = 20  # columns, at least, of the gain in words
_GAP = 3  # columns between two columns of a table


def _heads(names: Sequence[str], rows: Sequence[Sequence[str]], width: int, numbers: Iterable[int]) -> list[str]:
    """The column heads for these names, in lines; letters instead if a name does not fit without cutting a word.

    ``rows`` begin with their own name, and may end in words; ``numbers`` are those of the subjects.
    """
    first = max((len(row[0]) for row in rows), default=0)
    words = _WORDS if rows and len(rows[0]) > 1 + len(names) else 0
    room = (width - first - words - _GAP * (len(names) + bool(words))) // len(names)
    heads = [_in_lines(printable(name), room) for name in names]
    letters = [LETTERS[number % len(LETTERS)] for number in numbers]
    return letters if None in heads else [head for head in heads if head]


def _in_lines(name: str, most: int) -> str | None:
    """A name in lines of at most so many columns, broken after folders or words; None if that is impossible.

    Paths are divided where their folders end.
    """
    parts = [name] if " / " in name else re.findall(r"[^/]*/|[^/]+", name)
    lines: list[str] = []
    for part in parts:
        line = ""
        for piece in re.findall(r"[^-._ ]*[-._ ]|[^-._ ]+", part):
            if line and len(line + piece.rstrip()) > most:
                lines.append(line)
                line = ""
            line += piece
        lines.append(line)
    return "\n".join(lines) if all(len(line.rstrip()) <= most for line in lines) else None


def _heading(subject: Subject, letter: str) -> Text:
    verdict = Text(f" {subject.verdict} ", f"{STYLE[subject.verdict]} reverse")
    unexpected = ", NOT as expected" if subject.as_expected is False else ""
    where = f"  {printable(subject.source)}" if subject.is_run else ""
    label, name = f"  {letter}: " if letter else "  ", (printable(subject.name), "bold")
    return Text.assemble(verdict, label, name, (where, "dim"), unexpected)


def _why_without_figures(subject: Subject) -> str:
    """Why a verdict tells neither way, and what to do then; empty for STALL and CLEAN."""
    return "" if Verdict(subject.verdict).is_conclusive else subject.reason


def sentences(comparison: Comparison) -> Iterator[str]:
    """The gain of each subject over the first, in one sentence that claims nothing for equal figures."""
    first, *names = names_of(comparison)
    for name, gains in zip(names, comparison.gains, strict=True):
        changes = [f"{gains[figure].words}{what}" for figure, what in _IN_A_SENTENCE.items() if gains[figure].notable]
        if changes:
            yield f"{name} against {first}: {', '.join(changes)}"


def names_of(comparison: Comparison) -> list[str]:
    """A name for each subject: its variant if all are of one scenario, its source if names are not unique."""
    names = [subject.name for subject in comparison.subjects]
    one_scenario = len({name.partition(" / ")[0] for name in names}) == 1
    return [
        subject.source
        if names.count(subject.name) > 1
        else (subject.name.partition(" / ")[2] if one_scenario else "") or subject.name
        for subject in comparison.subjects
    ]


@dataclass(frozen=True)
class FigureRow:
    """A figure of several subjects; ``gains`` of those after the first over it."""

    name: str
    values: list[str]
    gains: list[Gain]

    def cells(self) -> list[str]:
        """The cells of a row: two subjects and the gain in words; or more subjects, each with its gain."""
        if len(self.gains) == 1:
            return [self.name, *self.values, self.gains[0].words]
        short = ["", *(f" ({gain.short})" if gain.short else "" for gain in self.gains)]
        return [self.name, *(value + gain for value, gain in zip(self.values, short, strict=True))]


def figure_rows(comparison: Comparison, columns: Sequence[int]) -> Iterator[FigureRow]:
    """Every figure that any of the subjects in ``columns`` has; the first subject is always the first of these."""
    for quantity in QUANTITIES:
        figures = [comparison.subjects[i].figures[quantity.name] for i in columns]
        if any(figure is not None for figure in figures):
            name = f"{quantity.words}, {quantity.unit}" if quantity.unit == "ms" else quantity.words
            gains = [comparison.gains[i - 1][quantity.name] for i in columns[1:]]
            yield FigureRow(name, [_value(quantity, figure) for figure in figures], gains)


def difference_rows(comparison: Comparison) -> list[list[str]]:
    """A row for each setting that differs: its name, then its value for each subject."""
    return [
        [_fact(difference), *(NONE if value is None else value for value in difference.values)]
        for difference in comparison.differences
    ]


def _value(quantity: Quantity, value: float | None) -> str:
    """A figure as tables show it; its unit is in the row's name."""
    if value is None:
        return NONE
    if quantity.name == "stalled_share":
        return share(value)
    if quantity.name in _COUNTS:
        return thousands(value)
    if quantity.name in _REQUEST_TIMES:
        return request_time(value)
    return ratio(value) if quantity.name in _TWO_DECIMALS else number(value)


def _fact(difference: Difference) -> str:
    section, name = difference.section, difference.name
    return name if name in (section, "in effect") and section != "setting" else f"{section}: {name}"


def markdown(comparison: Comparison) -> str:
    """The comparison as a page of Markdown: verdicts, figures, gains, what differs."""
    names, subjects = [*map(escaped, names_of(comparison))], comparison.subjects
    words = [""] if len(names) == 2 else []
    verdicts = ["verdict", *(f"**{subject.verdict}**" for subject in subjects), *words]
    figures = (row.cells() for row in figure_rows(comparison, range(len(names))))
    lines = [f"## {' · '.join(names)}", ""]
    lines += [f"- **{escaped(line)}**" for line in sentences(comparison)]
    reasons = zip(names, map(_why_without_figures, subjects), strict=True)
    lines += [f"- {name}: {escaped(why)}" for name, why in reasons if why]
    lines += ["", *table(["", *names, *words], [verdicts, *figures], words=[0]), ""]
    if comparison.differences:
        rows = ([escaped(cell) for cell in row] for row in difference_rows(comparison))
        lines += table(["what differs", *names], rows)
    else:
        lines.append("Nothing that was recorded differs.")
    sources = ", ".join(escaped(subject.source) for subject in subjects)
    return "\n".join([*lines, "", f"Runs and captures: {sources}."]) + "\n"
