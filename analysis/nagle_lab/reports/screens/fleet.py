"""The screen of a fleet: series and their files, what they came to, and answers as tables."""

from collections import Counter
from collections.abc import Sequence
from datetime import date, datetime
from typing import Any

import msgspec
from rich.console import Console
from rich.text import Text

from nagle_lab.errors import printable
from nagle_lab.fleet.ask import Answer, ReadyQuestion
from nagle_lab.fleet.judge import JudgedSeries
from nagle_lab.fleet.schema import TABLES, columns_of
from nagle_lab.fleet.series import Series
from nagle_lab.reports.screens.terminal import ruled_table
from nagle_lab.reports.words.numbers import NONE, seconds, thousands

MOST = 10  # lines of one kind


def show_series(series: Sequence[Series], screen: Console) -> None:
    """Print every series with its files, as they would be read."""
    for each in series:
        count = "1 file" if len(each.files) == 1 else f"{len(each.files):,} files"
        screen.print(Text.assemble((printable(each.name), "bold"), f": {count}, {size(each.size)}"))
        for file in each.files:
            missing = "  (missing)" if file.size < 0 else ""
            screen.print(Text(f"    {printable(file.path)}{missing}"), soft_wrap=True)


def show_outcome(judged: Sequence[JudgedSeries], screen: Console) -> None:
    """What the series came to: how many of which verdict, those that lost most, and every problem, or how many."""
    counts = Counter(str(each.verdict or "FAILED") for each in judged)
    packets = sum(each.packets for each in judged)
    verdicts = ", ".join(f"{count:,} {verdict}" for verdict, count in sorted(counts.items()))
    screen.print(Text(f"{len(judged):,} series, {packets:,} packets: {verdicts}", "bold"))
    stalled = sorted((each for each in judged if each.stalls), key=lambda each: (-each.lost_ms, each.series))
    if stalled:
        table = ruled_table("series", "stalls", "stalled", "of exchanges", "time lost", words=1)
        for each in stalled[:MOST]:
            figures = (each.stalls, each.stalled, each.exchanges)
            table.add_row(Text(printable(each.series)), *map(thousands, figures), seconds(each.lost_ms))
        screen.print(table)
        _more(len(stalled), screen)
    others = [
        f"{each.series}: {each.verdict or 'FAILED'}: {each.reason}"
        for each in judged
        if each.verdict is None or not each.verdict.is_conclusive
    ]
    problems = [problem for each in judged for problem in each.problems]
    for heading, lines in (("Without a verdict", others), ("Files with a problem", problems)):
        if lines:
            screen.print(Text(f"{heading}: {len(lines):,}", "bold"))
            for line in lines[:MOST]:
                screen.print(Text(f"  {printable(line)}"), soft_wrap=True)  # paths to copy
            _more(len(lines), screen)


def _more(count: int, screen: Console) -> None:
    if count > MOST:
        screen.print(Text(f"  … and {count - MOST:,} more: see the store", "dim"))


def show_questions(questions: Sequence[ReadyQuestion], screen: Console) -> None:
    """Print the ready questions."""
    table = ruled_table("question", "what it asks")
    for question in questions:
        table.add_row(question.name, question.title)
    screen.print(table)


def show_schema(screen: Console) -> None:
    """Print every table and column of a store."""
    for name, about in TABLES.items():
        screen.print(Text.assemble((name, "bold"), f": {about.meaning}"))
        table = ruled_table("column", "type", "")
        for column in columns_of(name):
            table.add_row(column.name, column.kind, Text(column.meaning))
        screen.print(table, "")


def show_answer(answer: Answer, screen: Console) -> None:
    """Print an answer as a table; columns of numbers are aligned to the right."""
    numbers = [any(isinstance(row[at], int | float) for row in answer.rows) for at in range(len(answer.columns))]
    table = ruled_table(*answer.columns)
    for column, is_number in zip(table.columns, numbers, strict=True):
        column.justify = "right" if is_number else "left"
    for row in answer.rows:
        table.add_row(*(Text(cell(*pair)) for pair in zip(answer.columns, row, strict=True)))
    screen.print(table if answer.rows else Text("nothing", "dim"))


def cell(column: str, value: Any) -> str:
    """A value as text in a table; ports and frames are names, not quantities."""
    if value is None:
        return NONE
    if isinstance(value, datetime):
        return format(value, "%Y-%m-%d %H:%M:%S")
    if isinstance(value, date):
        return value.isoformat()
    is_count = isinstance(value, int | float) and not column.endswith(("port", "frame"))
    return f"{value:,}" if is_count else printable(str(value))


def answer_json(answer: Answer) -> str:
    """An answer as JSON: a line for each row."""
    return "".join(msgspec.json.encode(row).decode() + "\n" for row in answer.named())


def size(count: float) -> str:
    """A number of bytes as text: 1.2 GB."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}" if unit != "B" else f"{count:.0f} B"
        count /= 1000
    return f"{count:,.1f} TB"
