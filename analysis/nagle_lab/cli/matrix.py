"""nagle-lab matrix: every scenario × variant, and one table of what came out for each scenario."""

import json
import os
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from nagle_lab.cli.exports import require_writable, write_whole
from nagle_lab.cli.progress import RunsProgress
from nagle_lab.errors import Exit, printable, tell
from nagle_lab.experiments.matrix import Matrix, Row, fill, plan
from nagle_lab.experiments.trials import Outcome, attempt, make_run
from nagle_lab.lab.scenario import Scenario
from nagle_lab.lab.scenario_file import find_scenario, scenarios
from nagle_lab.reports import terminal
from nagle_lab.reports.junit import junit, suites_of_matrix
from nagle_lab.reports.matrix import markdown, show_matrix
from nagle_lab.runs.run import Run


def run_matrix(
    names: Sequence[str],
    repeat: int,
    json_file: Path | None,
    markdown_file: Path | None,
    runs: Path,
    *,
    junit_file: Path | None = None,
    html_file: Path | None = None,
) -> Exit:
    """Run the scenarios ``names``, all where it is empty; print, and write the files asked for."""
    for file in filter(None, (json_file, markdown_file, junit_file, html_file)):
        require_writable(file)
    matrix = plan(chosen(names), repeat)
    started, interrupted = time.monotonic(), False
    matrix.about = {"started": datetime.now(UTC).isoformat(timespec="seconds"), "cpus": os.cpu_count()}
    try:
        with RunsProgress(terminal.console(stderr=True), matrix.planned) as progress:
            fill(matrix, lambda row: _carry_out(row, runs, progress, matrix.about))
    except KeyboardInterrupt:
        interrupted = True
    matrix.about["took_s"] = round(time.monotonic() - started)
    _deliver(matrix, json_file, markdown_file, junit_file)
    if html_file:
        from nagle_lab.reports.html.overview import matrix_page  # noqa: PLC0415  (plots take time to import)

        write_whole(html_file, matrix_page(matrix))
    if interrupted:
        tell(f"interrupted after {matrix.done} of {matrix.planned} runs")
        return Exit.INTERRUPTED
    return matrix.code


def chosen(names: Sequence[str]) -> list[Scenario]:
    """The scenarios of those names; all where there is none."""
    return [find_scenario(name) for name in dict.fromkeys(names)] if names else list(scenarios().values())


def _carry_out(row: Row, runs: Path, progress: RunsProgress, about: dict[str, Any]) -> Outcome:
    stage = progress.begin(f"{row.scenario.name} {row.variant.name}")
    began = time.monotonic()
    run, outcome = attempt(lambda: make_run(row.scenario, row.variant, {}, runs, stage))
    if run is not None:
        about.setdefault("versions", _versions(run))
    ending = "as expected" if outcome.as_expected else printable(outcome.reason)
    progress.end(f"{outcome.name}, {ending}, {time.monotonic() - began:.1f} s", notable=not outcome.as_expected)
    return outcome


def _versions(run: Run) -> dict[str, str | None]:
    """What is the same in every run of a matrix."""
    versions = run.manifest.versions
    return {name: getattr(versions, name) for name in ("nagle_lab", "git_revision", "kernel", "docker", "compose")}


def _deliver(matrix: Matrix, json_file: Path | None, markdown_file: Path | None, junit_file: Path | None) -> None:
    show_matrix(matrix, terminal.console(at_most=140))
    if json_file:
        write_whole(json_file, json.dumps(matrix.to_json(), indent=1, ensure_ascii=False) + "\n")
    if markdown_file:
        write_whole(markdown_file, markdown(matrix))
    if junit_file:
        write_whole(junit_file, junit(suites_of_matrix(matrix)))
