"""TCP_NODELAY set on living sockets: which, and what it did, on the screen."""

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from nagle_lab.diagnosis.verdict import Verdict
from nagle_lab.errors import Exit
from nagle_lab.experiments.comparison import comparison
from nagle_lab.experiments.tried import Conclusion, Watched
from nagle_lab.live.diag import LISTEN
from nagle_lab.live.inventory import Found
from nagle_lab.reports.comparison import show_comparison
from nagle_lab.reports.sockets import end, owner

MOST = 20  # sockets that are named one by one
_STYLE = {Exit.OK: "bold green", Exit.CONTRADICTED: "bold red", Exit.INCONCLUSIVE: "bold yellow"}


def names(those: Sequence[Found]) -> list[str]:
    """A line for each socket, and one for those beyond the first twenty."""
    lines = [_name(one) for one in those[:MOST]]
    more = len(those) - MOST
    return [*lines, *([f"and {more:,} more"] if more > 0 else [])]


def _name(one: Found) -> str:
    what = "listens" if one.listed.state == LISTEN else f"↔ {end(one.listed.remote)}"
    return f"{owner(one)}: {end(one.listed.local)} {what}"


def in_a_line(one: Watched) -> str:
    """What was recorded, in a line: the verdict, and why."""
    s, verdict = one.result.summary, one.result.verdict
    counts = f"{s.stalled_exchanges or 'none'} of {s.exchanges:,} exchanges stalled"
    return f"{one.name}: {verdict}, {one.result.reason if verdict is not Verdict.STALL else counts}".rstrip(", ")


def show_tried(before: Watched, after: Watched, conclusion: Conclusion, to: Console) -> None:
    """Both recordings side by side, and what follows."""
    show_comparison(comparison([before.subject, after.subject]), to)
    to.print(
        Text(f"\n{conclusion.sentence[0].upper()}{conclusion.sentence[1:]}", _STYLE.get(conclusion.code, "bold"))
    )
