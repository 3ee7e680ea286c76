"""The templates of the pages: every value in them is text, except markup that reports/html makes itself."""

import re
from base64 import b64encode
from collections.abc import Iterable
from hashlib import sha256
from importlib.resources import files
from inspect import isfunction

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from nagle_lab import __version__
from nagle_lab.diagnosis.result.reason import data_may_have_waited
from nagle_lab.diagnosis.result.remedy import remedy
from nagle_lab.diagnosis.result.spread import duration_text
from nagle_lab.diagnosis.result.writes import here
from nagle_lab.errors import printable
from nagle_lab.reports.words import next_steps, numbers, phrases, writes_text

_CODE = re.compile(r"`([^`\n]+)`")


def hash_of(text: str) -> str:
    """The SHA-256 of a script or style, in base64, as a Content-Security-Policy has it."""
    return b64encode(sha256(text.encode()).digest()).decode()


def text(value: object) -> Markup:
    """Text without markup; control characters are shown as in a terminal report, ``\\x1b``."""
    return escape(_printable(value))


def with_code(value: object) -> Markup:
    """Text in which words between `backquotes` are code."""
    return Markup(_CODE.sub(r"<code>\1</code>", str(text(value))))


def attribute_lines(lines: Iterable[str]) -> Markup:
    """Lines of text as the value of an attribute."""
    return Markup("&#10;").join(text(line) for line in lines)


def render(template: str, /, **values: object) -> str:
    """Fill in a template. Raises UndefinedError if it uses an undefined value."""
    return ENVIRONMENT.get_template(template).render(**values)


def _printable(value: object) -> object:
    """A value as a page shows it, before markup in it is escaped."""
    if isinstance(value, Markup):
        return value
    return printable(f"{value:.6g}" if isinstance(value, float) else str(value))


def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader("nagle_lab.reports.html", "."),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_printable,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    modules = (next_steps, numbers, phrases, writes_text)
    words = [f for of in modules for f in vars(of).values() if isfunction(f) and f.__module__ == of.__name__]
    others = (attribute_lines, data_may_have_waited, duration_text, remedy, with_code)
    made.filters |= {f.__name__: f for f in words} | {f.__name__: f for f in others}
    style, script = ((files(__package__) / f"report.{kind}").read_text(encoding="utf-8") for kind in ("css", "js"))
    made.globals |= {
        "version": __version__,
        "here": here,
        "style": Markup(style),
        "script": Markup(script),
        "script_hash": hash_of(script),
    }
    return made


ENVIRONMENT = _environment()
