"""Reports as single HTML files that load nothing: here of captures and runs; of many together in ``overview``."""

import logging
from collections.abc import Sequence

# Where it keeps its list of fonts, or cannot, is nobody's concern; it says so as soon as it is imported.
logging.getLogger("matplotlib").setLevel(logging.ERROR)

from nagle_lab.reports.html.capture import body, masthead  # noqa: E402
from nagle_lab.reports.html.markup import tag  # noqa: E402
from nagle_lab.reports.html.page import page  # noqa: E402
from nagle_lab.reports.html.shown import Shown, shown_at, shown_capture, shown_run  # noqa: E402

__all__ = ["Shown", "report_page", "shown_at", "shown_capture", "shown_run"]


def report_page(shown: Sequence[Shown], unusable: Sequence[tuple[str, str]] = ()) -> str:
    """One capture or run in full, or several, one below the other: a whole document.

    ``unusable`` are the names of others that could not be read, and why.
    """
    named = dict.fromkeys([f"{of.verdict} {of.name}" for of in shown] + [name for name, _ in unusable])
    articles = [tag("article", masthead(of), body(of)) for of in shown]
    errors = [
        tag("article", tag("h1", f"unusable: {name}"), tag("p", why, class_="reason")) for name, why in unusable
    ]
    return page(", ".join(named), *articles, *errors)
