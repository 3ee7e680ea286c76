"""nagle-lab compare: runs and captures side by side."""

import sys
from collections.abc import Sequence
from pathlib import Path

from nagle_lab.capture.stored import STDIN
from nagle_lab.cli.shared.exports import require_outputs, write_wanted
from nagle_lab.diagnosis.result.result import Result
from nagle_lab.errors import Exit, NagleLabError
from nagle_lab.experiments.comparison import Comparison, compare
from nagle_lab.experiments.opened import opened
from nagle_lab.reports.experiments.comparison import markdown, show_comparison
from nagle_lab.reports.screens.terminal import console
from nagle_lab.runs.run import Run


def command(paths: Sequence[Path], as_json: bool, **files: Path | None) -> Exit:
    """Compare run folders and capture files with the first one, and print the comparison."""
    require_outputs(files.values(), paths)
    for path in paths:
        if files["html"] and (str(path) == STDIN or path.is_fifo()):
            raise NagleLabError(f"{path}: --html reads a capture twice: save it to a file first")
    sources = [opened(path) for path in paths]
    comparison = compare(sources, paths)
    write_wanted(files, markdown=lambda: markdown(comparison), html=lambda: _page(comparison, sources, paths))
    if as_json:
        sys.stdout.write(comparison.to_json())
    else:
        show_comparison(comparison, console())
    return comparison.code


def _page(comparison: Comparison, sources: Sequence[Run | Result], paths: Sequence[Path]) -> str:
    from nagle_lab.reports.html.overview import comparison_page  # noqa: PLC0415  (plots take time to import)
    from nagle_lab.reports.html.shown import shown_of  # noqa: PLC0415

    return comparison_page(comparison, [shown_of(*each) for each in zip(sources, paths, strict=True)])
