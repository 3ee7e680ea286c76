"""nagle-lab run: one variant of a scenario, recorded and judged."""

from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console

from nagle_lab.cli.exports import Exports, Wanted
from nagle_lab.cli.report import report
from nagle_lab.errors import Exit, NagleLabError
from nagle_lab.experiments.trials import make_run
from nagle_lab.lab.scenario_file import find_scenario
from nagle_lab.reports import terminal


def run(
    scenario: str, variant: str, settings: Sequence[str], runs: Path, as_json: bool, *, files: Wanted | None = None
) -> Exit:
    """Run a variant once, print what came out, and write the files wanted."""
    chosen = find_scenario(scenario)
    wanted = chosen.variant(variant)
    screen = terminal.console(stderr=True)
    with Exports(files or Wanted()) as exports:
        with screen.status("starting") as status:
            judged = make_run(chosen, wanted, parsed_settings(settings), runs, _progress(screen, status.update))
        return report(judged, as_json, exports)


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
