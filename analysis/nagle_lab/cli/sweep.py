"""nagle-lab sweep: a scenario at every size, and where it begins and ends to stall."""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from nagle_lab.cli.exports import require_writable, write_whole
from nagle_lab.cli.progress import RunsProgress
from nagle_lab.cli.run import parsed_settings
from nagle_lab.errors import Exit, NagleLabError, printable, tell
from nagle_lab.experiments.sweep import Point, Series, asked_range, code_of, doubled, run_through, swept, to_json
from nagle_lab.experiments.trials import attempt, make_run
from nagle_lab.lab.scenario import Scenario
from nagle_lab.lab.scenario_file import find_scenario
from nagle_lab.reports import terminal
from nagle_lab.reports.sweep import show_sweep
from nagle_lab.runs.bursts import bursts_of
from nagle_lab.runs.run import Run

Make = Callable[[Mapping[str, str], Callable[[str], None]], Run]


def run_sweep(
    name: str,
    span: str | None,
    *,
    only: Sequence[str],
    settings: Sequence[str],
    as_json: bool,
    runs: Path,
    html_file: Path | None = None,
) -> Exit:
    """Sweep a scenario over ``span`` (``NAME=LO..HI``; None: its own), the series ``only`` or all; print it."""
    if html_file:
        require_writable(html_file)
    scenario = find_scenario(name)
    parameter, low, high = asked_range(scenario, span)
    found = _series(scenario, only)
    given, interrupted = parsed_settings(settings), False
    try:
        with RunsProgress(terminal.console(stderr=True), len(found) * len(doubled(low, high))) as progress:
            for series in found:
                make = _maker(scenario, series.variant, given, runs)
                trial = partial(_measure, make, series.name, parameter, progress)
                run_through(series, low, high, trial, progress.more)
    except KeyboardInterrupt:
        interrupted = True
    if as_json:
        sys.stdout.write(json.dumps(to_json(name, parameter, low, high, found), ensure_ascii=False) + "\n")
    else:
        show_sweep(scenario.title, parameter, found, terminal.console(at_most=140))
    if html_file:
        from nagle_lab.reports.html.overview import sweep_page  # noqa: PLC0415  (plots take time to import)

        write_whole(html_file, sweep_page(scenario.title, parameter, found))
    if interrupted:
        tell("interrupted")
        return Exit.INTERRUPTED
    return code_of(found)


def _series(scenario: Scenario, only: Sequence[str]) -> list[Series]:
    known = swept(scenario).series
    for name in only:
        if name not in known:
            raise NagleLabError(f"{scenario.name} has no series {name!r}: choose from {', '.join(known)}")
    return [
        Series(name, variant, scenario.variant(variant).expected.port)
        for name, variant in known.items()
        if not only or name in only
    ]


def _maker(scenario: Scenario, variant: str, given: Mapping[str, str], runs: Path) -> Make:
    wanted = scenario.variant(variant)
    return lambda own, stage: make_run(scenario, wanted, {**given, **own}, runs, stage)


def _measure(make: Make, name: str, parameter: str, progress: RunsProgress, size: int) -> Point:
    """Run the series ``name`` at a size."""
    stage = progress.begin(f"{name} {parameter}={size}")
    run, outcome = attempt(lambda: make({parameter: str(size)}, stage))
    point = Point(size, outcome, bursts_of(run) if run else {}, _sizes(run, parameter) if run else {})
    told = f", {point.share:.0%} stalled" if point.verdict else f": {printable(outcome.reason)}"
    progress.end(f"{outcome.name}{told}", notable=point.verdict is None)
    return point


def _sizes(run: Run, parameter: str) -> dict[str, int]:
    """The parameters in bytes that are not swept: what may explain an edge."""
    parameters = run.manifest.parameters.items()
    return {name: int(value) for name, value in parameters if name.endswith("_BYTES") and name != parameter}
