"""The screen: Wireshark's view of a stall, and how our packet table and tshark's compare."""

from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.text import Text

from nagle_lab.diagnosis.result import Stall
from nagle_lab.errors import NagleLabError, printable
from nagle_lab.evidence.tshark import Comparison, Row, detail
from nagle_lab.reports.terminal import WIDTH, facts


def dissections(path: Path, stall: Stall) -> Iterator[Text]:
    """What tshark says of the three frames of a stall; one line where it is missing or cannot read the file."""
    frames = {stall.trigger_frame: "trigger", stall.ack_frame: "late ACK", stall.release_frame: "release"}
    try:
        for frame, lines in detail(path, list(frames)):
            yield Text(f"\nFrame {frame}, {frames[frame]}", "bold")
            yield from (Text(_fit(printable(line))) for line in lines)
    except NagleLabError as problem:
        yield Text(f"\nWithout Wireshark's view of the three frames: {printable(str(problem))}", "dim")


def show_comparison(path: Path, found: Comparison, to: Console) -> None:
    """How our packet table and tshark's agree on a capture."""
    title = Text.assemble((" EQUAL " if found.equal else " DIFFERENT ", "bold reverse"), "  ", printable(path.name))
    to.print(title)
    counts = ", ".join(f"{column} {n:,}" for column, n in found.columns.most_common())
    rows = [
        ("compared", f"{found.compared:,} TCP segments, {len(Row._fields)} columns each, with {found.tshark}"),
        ("different", f"{found.differing:,} frames" + (f": {counts}" if counts else "")),
        *(("by definition", f"{n:,} × {why}") for why, n in found.explained.most_common()),
        *(("note", note) for note in found.notes),
    ]
    to.print(facts(rows))
    if found.first:
        to.print(Text("\nThe first differences", "bold"), *map(Text, map(printable, found.first)), sep="\n")


def _fit(line: str) -> str:
    return line if len(line) <= WIDTH else line[: WIDTH - 1] + "…"
