"""nagle-lab matrix: every scenario × variant, and one table of the outcomes per scenario."""

import json
import os
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from nagle_lab.cli.shared.exports import require_outputs, write_wanted
from nagle_lab.cli.shared.progress import RunsProgress
from nagle_lab.errors import Exit, printable, tell
from nagle_lab.experiments.matrix import Made, Matrix, VariantRow, fill, plan
from nagle_lab.experiments.trials import TrialOutcome, attempt, make_run
from nagle_lab.lab.folder import require_runs_folder
from nagle_lab.lab.scenarios.parameters import refuse_misspelled
from nagle_lab.lab.scenarios.scenario import Scenario
from nagle_lab.lab.scenarios.scenario_file import find_scenario
from nagle_lab.lab.scenarios.scenario_file import scenarios as all_scenarios
from nagle_lab.reports.experiments.matrix import markdown, show_matrix
from nagle_lab.reports.files.junit import junit, suites_of_matrix
from nagle_lab.reports.screens.terminal import console
from nagle_lab.runs.manifest import Versions


def command(scenarios: Sequence[str], repeat: int, runs: Path, **files: Path | None) -> Exit:
    """Run the named scenarios, by default all; print the tables, and write the requested files."""
    require_outputs(files.values())
    several = named_scenarios(scenarios)
    refuse_misspelled(several)
    require_runs_folder(runs)
    matrix = plan(several, repeat)
    started, interrupted = time.monotonic(), False
    matrix.made = Made(datetime.now(UTC).isoformat(timespec="seconds"), os.cpu_count())
    try:
        with RunsProgress(matrix.planned) as progress:
            fill(matrix, lambda row: _carry_out(row, runs, progress, matrix.made))
    except KeyboardInterrupt:
        interrupted = True
    matrix.made.took_s = round(time.monotonic() - started)
    try:
        write_wanted(
            files,
            json=lambda: json.dumps(matrix.to_json(), indent=1, ensure_ascii=False) + "\n",
            markdown=lambda: markdown(matrix),
            junit=lambda: junit(suites_of_matrix(matrix)),
            html=lambda: _page(matrix),
        )
    finally:  # though a file cannot be written
        show_matrix(matrix, console(at_most=140))
    if interrupted:
        tell(f"interrupted after {matrix.done} of {matrix.planned} runs")
        return Exit.INTERRUPTED
    return matrix.code


def named_scenarios(names: Sequence[str]) -> list[Scenario]:
    """The scenarios called ``names``; every one if there are none. Raises NagleLabError for an unknown name."""
    return [find_scenario(name) for name in dict.fromkeys(names)] if names else list(all_scenarios().values())


def _page(matrix: Matrix) -> str:
    from nagle_lab.reports.html.overview import matrix_page  # noqa: PLC0415  (plots take time to import)

    return matrix_page(matrix)


def _carry_out(row: VariantRow, runs: Path, progress: RunsProgress, made: Made) -> TrialOutcome:
    stage = progress.begin(f"{row.scenario.name} {row.variant.name}")
    began = time.monotonic()
    run, outcome = attempt(lambda: make_run(row.scenario, row.variant, {}, runs, stage))
    if run is not None and made.versions == Versions():
        made.versions = run.manifest.versions
    ending = "as expected" if outcome.as_expected else printable(outcome.reason)
    progress.end(f"{outcome.name}, {ending}, {time.monotonic() - began:.1f} s", notable=not outcome.as_expected)
    return outcome
