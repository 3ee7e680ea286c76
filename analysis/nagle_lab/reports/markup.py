"""Text from packets and files made harmless for Markdown, and tables of it."""

import html
import re
from collections.abc import Iterator, Sequence

from nagle_lab.errors import printable

_SPECIAL = re.compile(r"([\\`*_{}\[\]#|~])")


def escaped(text: str) -> str:
    """Text that Markdown shows as it is: no markup, no HTML, no mention, no line break."""
    harmless = _SPECIAL.sub(r"\\\1", html.escape(printable(text), quote=False))
    return harmless.replace("@", "@\u200b")  # a mention is made of the page's text, whatever escapes it


def heading_line(headings: Sequence[str], words: int) -> Iterator[str]:
    """The first two lines of a table; columns after the first ``words`` are figures."""
    yield table_line(headings)
    yield table_line(["---" if i < words else "---:" for i in range(len(headings))])


def table_line(cells: Sequence[str]) -> str:
    """One row, of cells that are Markdown."""
    return "| " + " | ".join(cells) + " |"
