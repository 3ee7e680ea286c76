"""Markup that is escaped by construction: what is not :class:`Html` already becomes text."""

from html import escape

from nagle_lab.errors import printable


class Html(str):
    """Markup, to be taken as it is."""

    __slots__ = ()


Child = Html | str | int | None


def text(value: object) -> Html:
    """Text: nothing in it is markup, and control characters are shown as a terminal report shows them, ``\\x1b``."""
    return Html(escape(printable(str(value))))


def tag(name: str, /, *children: Child, **attributes: object) -> Html:
    """An element. ``data_tip`` becomes ``data-tip``, ``class_`` becomes ``class``; None and False are left out."""
    pairs = [(key.rstrip("_").replace("_", "-"), value) for key, value in attributes.items()]
    opened = "".join(
        f" {key}" if value is True else f' {key}="{_as_is(value)}"'
        for key, value in pairs
        if value is not None and value is not False
    )
    inside = each(*children)
    return Html(f"<{name}{opened}>" if name in _VOID else f"<{name}{opened}>{inside}</{name}>")


def each(*children: Child) -> Html:
    """Several, one behind the other."""
    return Html("".join(_as_is(child) for child in children if child is not None))


def lines(*parts: str) -> Html:
    """Lines of text, as an attribute can hold them."""
    return Html("&#10;".join(text(part) for part in parts if part))


def _as_is(value: object) -> str:
    if isinstance(value, Html):
        return value
    return text(f"{value:.6g}" if isinstance(value, float) else value)


_VOID = ("meta", "br", "hr")
