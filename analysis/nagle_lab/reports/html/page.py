"""The page around a report: one file that loads nothing, with style, script, and a policy that forbids the rest."""

from base64 import b64encode
from hashlib import sha256
from importlib.resources import files

from nagle_lab import __version__
from nagle_lab.reports.html.markup import Child, Html, each, tag

_SIGNS = {"STALL": "■", "CLEAN": "✓", "INCONCLUSIVE": "?", "INVALID": "✕"}


def page(title: str, *parts: Child) -> str:
    """A whole document, ending in a newline."""
    assets = files("nagle_lab.reports.html")
    style, script = ((assets / name).read_text(encoding="utf-8") for name in ("report.css", "report.js"))
    allowed = b64encode(sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{allowed}'"
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", title),
        tag("style", Html(style)),
    )
    foot = tag(
        "footer",
        f"nagle-lab {__version__}. Point at a segment, tap it, or go from one to the next with the arrow keys.",
    )
    tip = tag("div", id="tip", role="status", hidden=True)
    body = tag("body", tag("main", *parts), foot, tip, tag("script", Html(script)))
    return f"<!DOCTYPE html>\n{tag('html', head, body, lang='en')}\n"


def verdict(name: str, *, small: bool = False) -> Html:
    """A verdict with its sign, so that it is not told by colour alone."""
    return tag(
        "span", f"{_SIGNS.get(name, '!')} {name}", class_=f"verdict {name.lower()}" + (" small" if small else "")
    )


def section(heading: str, *parts: Child, note: str = "") -> Html:
    """A section with its heading, and a note below it."""
    return tag("section", tag("h2", heading), tag("p", note, class_="note") if note else None, *parts)


def figure(caption: str, drawing: Html) -> Html:
    """A drawing and what it shows."""
    return tag("figure", drawing, tag("figcaption", caption))


def tiles(pairs: list[tuple[str, str, str]]) -> Html:
    """Figures at a glance: name, figure, and what there is to know of it."""
    return tag(
        "dl",
        *(
            tag("div", tag("dt", name), tag("dd", value), tag("dd", more, class_="note"))
            for name, value, more in pairs
        ),
        class_="tiles",
    )


def facts(pairs: list[tuple[str, str]]) -> Html:
    """Names and values, one below the other."""
    return tag(
        "table",
        tag("tbody", *(tag("tr", tag("th", k, scope="row"), tag("td", v)) for k, v in pairs if v)),
        class_="facts",
    )


def table(headings: list[str], rows: list[list[Child]], words: int = 1, *, grid: bool = False) -> Html:
    """A table whose first ``words`` columns are words and whose others are figures; it scrolls where it is too wide.

    The first column of a ``grid`` is not broken into lines.
    """

    def cells(row: list[Child], name: str) -> Html:
        return each(*(tag(name, cell, class_=None if i < words else "figure") for i, cell in enumerate(row)))

    head = tag("thead", tag("tr", cells([*headings], "th")))
    body = tag("tbody", *(tag("tr", cells(row, "td")) for row in rows))
    return tag(
        "div",
        tag("table", head, body, class_="grid" if grid else None),
        class_="scroll",
        tabindex=0,
        role="region",
        aria_label="table",
    )


def folded(summary: str, *parts: Child) -> Html:
    """What is there for who wants it."""
    return tag("details", tag("summary", summary), *parts)
