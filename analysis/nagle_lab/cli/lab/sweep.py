"""nagle-lab sweep: a scenario at every size, and where it starts and stops stalling."""

import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from nagle_lab.cli.shared.exports import require_outputs, write_wanted
from nagle_lab.cli.shared.progress import RunsProgress
from nagle_lab.cli.shared.values import parsed_settings
from nagle_lab.diagnosis.result.json_text import json_text
from nagle_lab.errors import Exit, NagleLabError, printable, tell
from nagle_lab.experiments import sweep
from nagle_lab.experiments.trials import attempt, make_run
from nagle_lab.lab.folder import require_runs_folder
from nagle_lab.lab.scenarios.parameters import refuse_misspelled, resolve
from nagle_lab.lab.scenarios.scenario import Scenario
from nagle_lab.lab.scenarios.scenario_file import find_scenario
from nagle_lab.reports.experiments.sweep import show_sweep
from nagle_lab.reports.screens.terminal import console
from nagle_lab.runs.run import Run


def command(
    scenario: str,
    span: str | None,
    *,
    only: Sequence[str],
    settings: Sequence[str],
    as_json: bool,
    runs: Path,
    **files: Path | None,
) -> Exit:
    """Sweep a scenario over ``span`` (``NAME=LO..HI``; None: its own), the series ``only`` or all; print it."""
    require_outputs(files.values())
    swept = find_scenario(scenario)
    parameter, low, high = sweep.asked_range(swept, span)
    several = _series(swept, only)
    refuse_misspelled([swept])
    require_runs_folder(runs)
    given, interrupted = parsed_settings(settings), False
    for series in several:  # so that a mistake gives one line, not one per run
        resolve(swept, swept.variant(series.variant), {**given, parameter: str(low)})
    try:
        with RunsProgress(len(several) * len(sweep.doubled(low, high))) as progress:
            for series in several:
                measure = partial(_measure, swept, series, given, runs, parameter, progress)
                sweep.run_through(series, low, high, measure, progress.more)
    except KeyboardInterrupt:
        interrupted = True
    try:
        write_wanted(files, html=lambda: _page(swept.title, parameter, several))
    finally:  # though a file cannot be written
        if as_json:
            sys.stdout.write(json_text(sweep.to_json(scenario, parameter, low, high, several)) + "\n")
        else:
            show_sweep(swept.title, parameter, several, console(at_most=140))
    if interrupted:
        tell("interrupted")
        return Exit.INTERRUPTED
    return sweep.code_of(several)


def _page(title: str, parameter: str, several: Sequence[sweep.SweepSeries]) -> str:
    from nagle_lab.reports.html.overview import sweep_page  # noqa: PLC0415  (plots take time to import)

    return sweep_page(title, parameter, several)


def _series(scenario: Scenario, only: Sequence[str]) -> list[sweep.SweepSeries]:
    variants = sweep.swept(scenario).series
    for name in only:
        if name not in variants:
            raise NagleLabError(f"{scenario.name} has no series {name!r}: choose from {', '.join(variants)}")
    return [
        sweep.SweepSeries(name, variant, scenario.variant(variant).expected.port)
        for name, variant in variants.items()
        if not only or name in only
    ]


def _measure(
    scenario: Scenario,
    series: sweep.SweepSeries,
    given: Mapping[str, str],
    runs: Path,
    parameter: str,
    progress: RunsProgress,
    size: int,
) -> sweep.SweepPoint:
    stage = progress.begin(f"{series.name} {parameter}={size}")
    variant, settings = scenario.variant(series.variant), {**given, parameter: str(size)}
    run, outcome = attempt(lambda: make_run(scenario, variant, settings, runs, stage))
    point = sweep.SweepPoint(
        size, outcome, sweep.bursts_of(run) if run else {}, _sizes(run, parameter) if run else {}
    )
    ending = f", {point.share:.0%} stalled" if point.verdict else f": {printable(outcome.reason)}"
    progress.end(f"{outcome.name}{ending}", notable=point.verdict is None)
    return point


def _sizes(run: Run, parameter: str) -> dict[str, int]:
    """The parameters in bytes that are not swept, which may explain an edge."""
    parameters = run.manifest.parameters.items()
    return {name: int(value) for name, value in parameters if name.endswith("_BYTES") and name != parameter}
