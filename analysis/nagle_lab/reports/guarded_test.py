"""A test that was judged, for the report of a test runner: plain text."""

import io
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from nagle_lab.diagnosis.result import Result
from nagle_lab.errors import printable
from nagle_lab.evidence.examples import examples
from nagle_lab.reports.ladder_text import ladder_text
from nagle_lab.reports.terminal import WIDTH, facts, typical, who


def shown_test(
    sentence: str, result: Result | None, capture: Path | None, *, about: Sequence[tuple[str, str]] = ()
) -> str:
    """What is said of it, who held and who delayed, the remedy, a ladder, and the capture that was kept."""
    screen = _plain()
    screen.print(printable(sentence), soft_wrap=True)
    rows = [*about]
    if result and result.stalls:
        rows += who(result)
    if rows:
        screen.print(facts(rows))
    if capture:
        screen.print(f"{'capture':<14}{printable(str(capture))}", soft_wrap=True)  # in one piece, to be copied
    if result and result.stalls and capture:
        ladder = examples([capture], result, typical_only=True).typical
        if ladder:
            screen.print(*typical(ladder), sep="\n")
    return _text(screen)


def shown_ladder(result: Result, capture: Path) -> str:
    """The ladder of a typical stall; empty where there is none."""
    ladder = examples([capture], result, typical_only=True).typical if result.stalls else None
    if not ladder:
        return ""
    screen = _plain()
    screen.print(ladder_text(ladder))
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
