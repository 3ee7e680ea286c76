"""The workshop on paper: its parts, their minutes, the questions and the right answers."""

from rich.console import Console
from rich.table import Table
from rich.text import Text

from nagle_lab.demo.script import MYSTERIES, Question, Workshop


def show_outline(told: Workshop, to: Console) -> None:
    """For whoever leads the workshop: the right answers are in it."""
    for incident in told.incidents:
        scenario = incident.scenario
        _heading(f"{incident.number}. {scenario.name}", incident.minutes, to)
        _question(scenario.stalled, incident.stalled, to)
        _question(scenario.fixed, incident.fixed, to)
    if told.mysteries:
        _heading(MYSTERIES, told.mystery_minutes, to)
    for number, mystery in enumerate(told.mysteries, 1):
        text = mystery.question.choices[mystery.question.right - 1].text
        _line(f"{number}. {mystery.capture.parent.name}", f"{mystery.question.right}  {text}", to)
    _heading("in all", told.minutes, to)


def _heading(name: str, minutes: int, to: Console) -> None:
    to.print(Text(f"{name:<66}{minutes:>4} min", "bold"))


def _question(variant: str, question: Question, to: Console) -> None:
    _line(variant, question.asks, to)
    _line("", f"{question.right}  {question.choices[question.right - 1].text}", to)


def _line(name: str, text: str, to: Console) -> None:
    table = Table.grid(padding=(0, 1))
    table.add_column(width=26)
    table.add_column(overflow="fold")
    table.add_row(f"   {name}", text)
    to.print(table)
