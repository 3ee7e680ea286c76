"""nagle-lab run: one variant of a scenario, recorded and judged."""

from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console

from nagle_lab.commands.report import report
from nagle_lab.errors import Exit, NagleLabError
from nagle_lab.lab import find_scenario
from nagle_lab.reports import terminal
from nagle_lab.trials import make_run


def run(scenario: str, variant: str, settings: Sequence[str], runs: Path, as_json: bool) -> Exit:
    """Run a variant once, and print what came out."""
    chosen = find_scenario(scenario)
    wanted = chosen.variant(variant)
    screen = terminal.console(stderr=True)
    with screen.status("starting") as status:
        judged = make_run(chosen, wanted, parsed_settings(settings), runs, _progress(screen, status.update))
    return report(judged, as_json)


def parsed_settings(pairs: Sequence[str]) -> dict[str, str]:
    """The values of ``--set NAME=VALUE``, by name."""
    settings = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise NagleLabError(f"--set {pair}: not NAME=VALUE")
        settings[name] = value
    return settings


def _progress(screen: Console, update: Callable[[str], None]) -> Callable[[str], None]:
    """On a terminal the current stage, overwritten; elsewhere (a CI log) a line per stage."""
    return update if screen.is_terminal else (lambda stage: screen.print(f"… {stage}"))
