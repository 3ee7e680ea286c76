"""A test that was judged, for the report of a test runner: plain text."""

import io
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from nagle_lab.diagnosis.result.result import Result
from nagle_lab.errors import printable
from nagle_lab.evidence.examples import written_ladder
from nagle_lab.evidence.ladder import Ladder, ladder_of
from nagle_lab.experiments.writes.traced import NamedWrites
from nagle_lab.reports.screens.terminal import WIDTH, facts, typical, who
from nagle_lab.reports.words.ladder_text import ladder_text
from nagle_lab.reports.words.writes_text import pair_lines


def shown_test(
    sentence: str,
    result: Result | None,
    capture: Path | None,
    *,
    about: Sequence[tuple[str, str]] = (),
    named: NamedWrites | None = None,
) -> str:
    """The verdict, who held and who delayed, the remedy, a ladder, and the capture that was kept.

    If its two writes (``named``) are known, they come first, with the ladder of the traced run.
    """
    screen = _plain()
    writes = named.writes if named else None
    first = pair_lines(writes.groups[0]) if writes and writes.groups else []
    if first:
        screen.print(printable(f"STALL, {' '.join(first)}"), soft_wrap=True)  # pytest's summary has the first line
    screen.print(printable(sentence))
    rows = [*about]
    if result and result.stalls:
        rows += who(result, writes)
    if writes and len(writes.groups) == 1:
        rows = [row for row in rows if row[1] not in first]  # they have already been shown
    if rows:
        screen.print(facts(rows))
    captures = [("capture", capture), ("traced run", named.capture if named else None)]
    for name, path in captures:
        if path:
            screen.print(f"{name:<14}{printable(str(path))}", soft_wrap=True)  # in one piece, to be copied
    if ladder := _ladder(result, capture, named):
        screen.print(*typical(ladder), sep="\n")
    return _text(screen)


def _ladder(result: Result | None, capture: Path | None, named: NamedWrites | None) -> Ladder | None:
    """The ladder of the traced run, with its two calls; otherwise that of the judged run."""
    if named and named.capture and named.result:
        ladder = written_ladder([named.capture], named.result, named.writes)
        if ladder:
            return replace(ladder, run="the traced run")
    if result and result.stalls and capture:
        return ladder_of([capture], result, result.stalls.typical())
    return None


def shown_ladder(result: Result, capture: Path) -> str:
    """The ladder of a typical stall as text; empty if there is none."""
    if not result.stalls:
        return ""
    screen = _plain()
    screen.print(ladder_text(ladder_of([capture], result, result.stalls.typical())))
    return _text(screen)


def _plain() -> Console:
    return Console(
        file=io.StringIO(), width=WIDTH, color_system=None, force_terminal=False, highlight=False, markup=False,
        emoji=False,
    )  # fmt: skip


def _text(screen: Console) -> str:
    assert isinstance(screen.file, io.StringIO)
    lines = (line.rstrip() for line in screen.file.getvalue().splitlines())
    return "\n".join(lines).rstrip()
