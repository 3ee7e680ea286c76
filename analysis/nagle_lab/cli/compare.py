"""nagle-lab compare: runs and captures side by side."""

import sys
from collections.abc import Sequence
from pathlib import Path

from nagle_lab.cli.exports import require_writable, write_whole
from nagle_lab.errors import Exit
from nagle_lab.experiments.comparison import compare_opened, opened
from nagle_lab.reports import terminal
from nagle_lab.reports.comparison import markdown, show_comparison


def compare_paths(
    paths: Sequence[Path], as_json: bool, markdown_file: Path | None, html_file: Path | None = None
) -> Exit:
    """Compare run folders and capture files with the first of them, and print it."""
    for file in filter(None, (markdown_file, html_file)):
        require_writable(file)
    sources = [opened(path) for path in paths]
    found = compare_opened(sources)
    if as_json:
        sys.stdout.write(found.to_json())
    else:
        show_comparison(found, terminal.console())
    if markdown_file:
        write_whole(markdown_file, markdown(found))
    if html_file:
        from nagle_lab.reports.html import shown_of  # noqa: PLC0415  (plots take time to import)
        from nagle_lab.reports.html.overview import comparison_page  # noqa: PLC0415

        shown = [shown_of(source, path) for source, path in zip(sources, paths, strict=True)]
        write_whole(html_file, comparison_page(found, shown))
    return found.code
