"""The page of captures and runs."""

from collections.abc import Sequence

from nagle_lab.reports.html.page import page
from nagle_lab.reports.html.shown import Shown


def report_page(parts: Sequence[Shown], unusable: Sequence[tuple[str, str]] = ()) -> str:
    """One capture or run in full, or several, one below the other: a whole document.

    ``unusable`` are the names of others that could not be read, and why.
    """
    names = dict.fromkeys([f"{of.verdict} {of.name}" for of in parts] + [name for name, _ in unusable])
    return page("report.html.j2", title=", ".join(names), parts=parts, unusable=unusable)
