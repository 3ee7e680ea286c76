"""The workshop on paper: its parts, their minutes, the questions and the right answers."""

from rich.console import Console
from rich.table import Table
from rich.text import Text

from nagle_lab.cli.workshop.script import MYSTERIES, Workshop


def show_outline(script: Workshop, screen: Console) -> None:
    """For whoever leads the workshop: the right answers are in it."""
    for incident in script.incidents:
        scenario = incident.scenario
        _heading(f"{incident.number}. {scenario.name}", incident.minutes, screen)
        screen.print(Text(f"   {incident.simulated}"))
        for variant, question in ((scenario.stalled, incident.stalled), (scenario.fixed, incident.fixed)):
            _line(variant, question.asks, screen)
            _line("", f"{question.right}  {question.answer}", screen)
    if script.mysteries:
        _heading(MYSTERIES, script.mystery_minutes, screen)
    for number, mystery in enumerate(script.mysteries, 1):
        _line(
            f"{number}. {mystery.capture.parent.name}", f"{mystery.question.right}  {mystery.question.answer}", screen
        )
    _heading("in all", script.minutes, screen)


def _heading(name: str, minutes: int, screen: Console) -> None:
    screen.print(Text(f"{name:<66}{minutes:>4} min", "bold"))


def _line(name: str, text: str, screen: Console) -> None:
    table = Table.grid(padding=(0, 1))
    table.add_column(width=26)
    table.add_column(overflow="fold")
    table.add_row(f"   {name}", text)
    screen.print(table)
