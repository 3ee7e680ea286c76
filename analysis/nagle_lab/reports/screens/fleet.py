"""The screen of a fleet: series and their files, their results, and answers as tables."""

import shlex
from collections import Counter
from collections.abc import Sequence
from datetime import date, datetime
from typing import Any

from rich.console import Console
from rich.text import Text

from nagle_lab.diagnosis.result.json_text import json_text
from nagle_lab.diagnosis.result.spread import duration_text
from nagle_lab.errors import printable
from nagle_lab.fleet.ask import Answer, ReadyQuestion
from nagle_lab.fleet.judge import JudgedSeries
from nagle_lab.fleet.schema import TABLES, columns_of
from nagle_lab.fleet.series import Series
from nagle_lab.reports.screens.terminal import ruled_table
from nagle_lab.reports.words.numbers import NONE, thousands

MOST = 10  # lines of one kind


def show_series(series: Sequence[Series], screen: Console) -> None:
    """Print every series with its files, as they would be read."""
    for each in series:
        count = "1 file" if len(each.files) == 1 else f"{len(each.files):,} files"
        screen.print(Text.assemble((printable(each.name), "bold"), f": {count}, {size(each.size)}"))
        for file in each.files:
            missing = f"  ({file.version.partition(':')[0] or 'missing'})" if file.size < 0 else ""
            screen.print(Text(f"    {printable(file.path)}{missing}"), soft_wrap=True)


def asked_with(question: str, out: str) -> str:
    """What to type to ask the results in ``out`` that question."""
    return f"nagle-lab fleet ask {question} --out {shlex.quote(out)}"


def resumed_with(sources: Sequence[str], out: str) -> str:
    """What to type to go on with a run over these sources, whose results are in ``out``."""
    return shlex.join(["nagle-lab", "fleet", *sources, "--out", out, "--resume"])


def show_outcome(judged: Sequence[JudgedSeries], out: str, screen: Console) -> None:
    """Print how many series have which verdict, those that lost most, and the problems, or how many there are.

    ``out`` is where the results are.
    """
    counts = Counter(str(each.verdict or "FAILED") for each in judged)
    packets = sum(each.packets for each in judged)
    verdicts = ", ".join(f"{count:,} {verdict}" for verdict, count in sorted(counts.items()))
    screen.print(Text(f"{len(judged):,} series, {packets:,} packets: {verdicts}", "bold"))
    stalled = sorted((each for each in judged if each.stalls), key=lambda each: (-each.lost_ms, each.series))
    if stalled:
        table = ruled_table("series", "stalls", "stalled", "of exchanges", "time lost", words=1)
        for each in stalled[:MOST]:
            figures = (each.stalls, each.stalled, each.exchanges)
            table.add_row(Text(printable(each.series)), *map(thousands, figures), duration_text(each.lost_ms))
        screen.print(table)
        _more(len(stalled), asked_with("worst-hosts", out), screen)
    others = [
        f"{each.series}: {each.verdict or 'FAILED'}: {_with_paths(each)}"
        for each in judged
        if each.verdict is None or not each.verdict.is_conclusive
    ]
    told = "\n".join(others)
    problems = [problem for each in judged for problem in each.problems if problem not in told]
    with_others = "Other files with a problem" if others else "Files with a problem"
    for heading, lines, question in (
        ("Neither STALL nor CLEAN", others, "verdicts"),
        (with_others, problems, "unusable"),
    ):
        if lines:
            screen.print(Text(f"{heading}: {len(lines):,}", "bold"))
            for line in lines[:MOST]:
                screen.print(Text(f"  {printable(line)}"), soft_wrap=True)  # paths to copy
            _more(len(lines), asked_with(question, out), screen)


def _with_paths(judged: JudgedSeries) -> str:
    """The reason, with the whole path of each file in it that has a problem."""
    reason = judged.reason
    for problem in judged.problems:
        reason = reason.replace(problem.rpartition("/")[2], problem) if problem not in reason else reason
    return reason


def _more(count: int, command: str, screen: Console) -> None:
    if count > MOST:
        screen.print(Text(f"  … and {count - MOST:,} more: {command}", "dim"), soft_wrap=True)  # to copy


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
    """Print an answer as a table, in which nothing is cut or folded.

    If it is too wide, its widest column comes last and may run over the edge, so that paths stay whole. If that is
    not enough, each row is a list of names and values.
    """
    if not answer.rows:
        screen.print(Text("nothing", "dim"))
        return
    cells = [[cell(*pair) for pair in zip(answer.columns, row, strict=True)] for row in answer.rows]
    widths = [max(map(len, column)) for column in zip(answer.columns, *cells, strict=True)]
    order, room = list(range(len(widths))), screen.width - len(_GAP) * (len(widths) - 1)
    if sum(widths) > room:
        order.append(order.pop(widths.index(max(widths))))
    if sum(widths[at] for at in order[:-1]) > room:
        _show_records(answer.columns, cells, screen)
        return
    is_number = [any(isinstance(row[at], int | float) for row in answer.rows) for at in range(len(widths))]
    for row in (answer.columns, ["─" * width for width in widths], *cells):
        line = (row[at].rjust(widths[at]) if is_number[at] else row[at].ljust(widths[at]) for at in order)
        screen.print(Text(_GAP.join(line).rstrip()), soft_wrap=True)


_GAP = "  "  # between two columns of a table


def _show_records(columns: Sequence[str], cells: Sequence[Sequence[str]], screen: Console) -> None:
    """Print each row as names and values, a line each."""
    width = max(map(len, columns))
    for number, row in enumerate(cells, 1):
        screen.print(Text(f"row {number} of {len(cells):,}", "bold"))
        for name, value in zip(columns, row, strict=True):
            screen.print(Text.assemble((f"  {name:<{width}}  ", "dim"), value), soft_wrap=True)


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
    return "".join(json_text(row) + "\n" for row in answer.named())


def size(count: float) -> str:
    """A number of bytes as text: 1.2 GB."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}" if unit != "B" else f"{count:.0f} B"
        count /= 1000
    return f"{count:,.1f} TB"
