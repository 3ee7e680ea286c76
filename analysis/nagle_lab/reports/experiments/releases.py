"""Release after release: a table, and where the verdict changes."""

from collections.abc import Sequence, Set
from typing import Any

from rich.console import Console
from rich.text import Text

from nagle_lab.diagnosis.result.verdict import Verdict
from nagle_lab.errors import printable
from nagle_lab.experiments.software.releases import ReleaseSpan, TriedRelease, flips
from nagle_lab.reports.screens.terminal import STYLE, ruled_table
from nagle_lab.reports.words.numbers import NONE, share


def show_releases(span: ReleaseSpan, tried: Sequence[TriedRelease], screen: Console) -> None:
    """Print every release in order, and each change of the verdict."""
    table = ruled_table(span.name, "verdict", "stalled", "held by", "", words=2)
    for column in table.columns[3:]:
        column.justify = "left"
    for one in tried:
        verdict = one.verdict or NONE
        table.add_row(one.version, Text(verdict, STYLE.get(verdict, "")), *_figures(one))
    screen.print(table, Text(""), sep="\n")
    changes = flips(tried)
    for before, after in changes:
        are_neighbours = tried.index(after) - tried.index(before) == 1
        between = "" if are_neighbours else " (the releases between are undecided)"
        screen.print(
            Text(f"{after.version}: {before.verdict} → {after.verdict}, after {before.version}{between}", "bold")
        )
    if not changes:
        screen.print(Text(_without_change({one.verdict for one in tried})))


def _without_change(verdicts: Set[Verdict | None]) -> str:
    """What to say if nothing changes between STALL and no STALL; None is the verdict of a release without one."""
    known = verdicts - {None}
    if not known:
        return "None of them could be tried."
    if len(known) > 1:
        return "No change between STALL and CLEAN was seen, but not all of them are decided."
    return f"The verdict is the same in all of them{' that could be tried' if None in verdicts else ''}."


def _figures(release: TriedRelease) -> list[str]:
    if release.result is None or release.verdict is None:
        return [NONE, NONE, printable(release.problem)]
    s = release.result.summary
    reason = "" if release.verdict.is_conclusive else printable(release.result.reason)
    return [share(s.stalled_share), s.held_by or NONE, reason]


def releases_json(span: ReleaseSpan, command: Sequence[str], tried: Sequence[TriedRelease]) -> dict[str, Any]:
    """The releases and changes as the JSON object of ``bisect --json``."""
    return {
        "schema": "nagle-lab-bisect/1",
        "package": f"{span.ecosystem}:{span.name}",
        "command": list(command),
        "releases": [
            {
                "version": one.version,
                "verdict": one.verdict,
                "problem": one.problem,
                "reason": one.result.reason if one.result else "",
                "stalled_share": one.result.summary.stalled_share if one.result else None,
                "held_by": one.result.summary.held_by if one.result else None,
            }
            for one in tried
        ],
        "changes": [
            {"version": after.version, "after": before.version, "from": before.verdict, "to": after.verdict}
            for before, after in flips(tried)
        ],
    }
