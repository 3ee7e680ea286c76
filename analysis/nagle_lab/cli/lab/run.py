"""nagle-lab run: one variant of a scenario, recorded and judged."""

from collections.abc import Sequence
from pathlib import Path

from nagle_lab.cli.shared.exports import Exports
from nagle_lab.cli.shared.report import report
from nagle_lab.cli.shared.values import parsed_settings
from nagle_lab.errors import Exit, tell
from nagle_lab.experiments.trials import make_run
from nagle_lab.lab.folder import require_runs_folder
from nagle_lab.lab.scenarios.parameters import refuse_misspelled
from nagle_lab.lab.scenarios.scenario_file import find_scenario
from nagle_lab.reports.screens.terminal import console


def command(
    scenario: str,
    variant: str,
    settings: Sequence[str],
    runs: Path,
    as_json: bool,
    trace: bool,
    **files: Path | None,
) -> Exit:
    """Run a variant once, print the result, and write the requested files.

    On a terminal the stages of the run overwrite each other; elsewhere (a CI log) each has its line.
    """
    of = find_scenario(scenario)
    chosen = of.variant(variant)
    refuse_misspelled([of])
    require_runs_folder(runs)
    screen = console(stderr=True)
    with Exports(files) as exports:
        with screen.status("starting") as status:
            progress = status.update if screen.is_terminal else lambda stage: screen.print(f"… {stage}")
            made = make_run(of, chosen, parsed_settings(settings), runs, progress, trace=trace)
        if trace and not made.manifest.traced:
            tell(f"--trace: there was nothing to trace, because without strace the run is {made.verdict}")
        return report(made, as_json, exports)
