"""nagle-lab verify: our decoding of a capture, cross-checked with tshark."""

from pathlib import Path

from nagle_lab.errors import Exit, NagleLabError
from nagle_lab.evidence.tshark import verify
from nagle_lab.reports.screens.dissection import show_row_comparison
from nagle_lab.reports.screens.terminal import console


def command(path: Path) -> Exit:
    """Compare our decoding with tshark's frame by frame, and print where they differ."""
    with console(stderr=True).status("comparing with tshark"):
        comparison = verify(path)
    if comparison.equal and not comparison.compared:
        raise NagleLabError(f"{path}: no TCP segment in it to compare: name a capture that has some")
    show_row_comparison(path, comparison, console())
    return Exit.OK if comparison.equal else Exit.CONTRADICTED
