"""The screen: Wireshark's view of a stall, and how our packet table and tshark's compare."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text

from nagle_lab.errors import NagleLabError, counted, printable
from nagle_lab.evidence.tshark import RowComparison, SegmentRow
from nagle_lab.reports.screens.terminal import WIDTH, facts


def show_frames(parts: Mapping[int, str], frames: Iterable[tuple[int, Sequence[str]]], screen: Console) -> None:
    """Print what tshark says about the frames of a stall; ``parts`` says what each of them is."""
    for frame, lines in frames:
        screen.print(Text(f"\nFrame {frame}, {parts[frame]}", "bold"))
        for line in map(printable, lines):
            screen.print(Text(line if len(line) <= WIDTH else line[: WIDTH - 1] + "…"))


def show_no_frames(error: NagleLabError, screen: Console) -> None:
    """Print why tshark's view is missing."""
    screen.print(Text(f"\nWithout Wireshark's view of the three frames: {printable(str(error))}", "dim"))


def show_row_comparison(path: Path, comparison: RowComparison, screen: Console) -> None:
    """Print how our packet table and tshark's agree on a capture."""
    equal = " EQUAL " if comparison.equal else " DIFFERENT "
    screen.print(Text.assemble((equal, "bold reverse"), "  ", printable(path.name)))
    counts = ", ".join(f"{column} {n:,}" for column, n in comparison.columns.most_common())
    rows = [
        (
            "compared",
            f"{counted(comparison.compared, 'TCP segment')}, {len(SegmentRow._fields)} columns each, "
            f"with {comparison.tshark}",
        ),
        ("different", counted(comparison.differing, "frame") + (f": {counts}" if counts else "")),
        *(("by definition", f"{n:,} × {why}") for why, n in comparison.explained.most_common()),
        *(("note", note) for note in comparison.notes),
    ]
    screen.print(facts(rows))
    if comparison.first:
        screen.print(Text("\nThe first differences", "bold"), *map(Text, map(printable, comparison.first)), sep="\n")
