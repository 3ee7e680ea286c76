"""Plots, drawn by Matplotlib as SVG whose colours and sizes of letters are the style sheet's.

So one drawing suits light and dark, screen and paper, desk and phone. An element with a tip is a *mark*: a group with
the text of its tip.
"""

import io
import re
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Any

import matplotlib as mpl
from markupsafe import Markup
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from nagle_lab.errors import printable
from nagle_lab.reports.html.template import attribute_lines, text


class Ink(StrEnum):
    """Placeholder colours that Matplotlib can draw, each for the colour of that name in the style sheet."""

    INK = "#0000a0"
    MUTED = "#0000a1"
    GRID = "#0000a2"
    DATA = "#0000a3"
    ACKS = "#0000a4"
    HOLD = "#0000a5"
    LATE = "#0000a6"
    RELEASE = "#0000a7"
    STALL = "#0000a8"
    CLEAN = "#0000a9"
    OTHER = "#0000aa"


WIDTH = 600  # units of the drawing
_LETTERS = 18  # the largest size in the style sheet, so that there is room for it
_STYLE: dict[str, Any] = {
    "svg.fonttype": "none",
    "svg.image_inline": True,
    "path.simplify": False,
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": _LETTERS,
    "axes.titlesize": "medium",
    "legend.fontsize": "medium",
    "text.color": Ink.INK,
    "axes.edgecolor": Ink.MUTED,
    "axes.labelcolor": Ink.INK,
    "xtick.color": Ink.MUTED,
    "ytick.color": Ink.MUTED,
    "xtick.labelcolor": Ink.INK,
    "ytick.labelcolor": Ink.INK,
    "grid.color": Ink.GRID,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.facecolor": "none",
    "figure.facecolor": "none",
    "hatch.color": Ink.HOLD,
    "legend.frameon": False,
    "text.parse_math": False,
    "axes.unicode_minus": False,
}
_IDS = r' id="(?:figure|axes|patch|line2d|text|matplotlib\.axis|xtick|ytick|legend|[A-Za-z]+Collection)_\d+"'


class Plot:
    """One drawing: its axes, one per panel; ``svg`` when it is finished."""

    def __init__(self, label: str, height: int, panels: int) -> None:
        self.svg = Markup()
        self._label, self._height = label, height
        self._figure = Figure(figsize=(WIDTH / 72, height / 72), dpi=72, layout="constrained")
        self.axes: list[Axes] = list(self._figure.subplots(panels, 1, squeeze=False, sharex=True)[:, 0])
        self._marks: dict[str, Markup] = {}

    def mark(self, artist: Artist, lines: Iterable[str], frame: int | None = None) -> None:
        """Give the artist a tip with these lines."""
        name, tip = f"mark{len(self._marks)}", list(lines)
        artist.set_gid(name)
        self._marks[name] = Markup('<g class="mark" tabindex="0" role="img"{} data-tip="{}" aria-label="{}">').format(
            Markup(' data-frame="{}"').format(frame) if frame is not None else "",
            attribute_lines(tip),
            text(", ".join(tip)),
        )

    def finish(self) -> None:
        """Turn Matplotlib's document into an element of the page, without a document's parts, and with its marks."""
        out = io.StringIO()
        self._figure.savefig(out, format="svg", metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
        body = re.sub(r"^.*?<svg[^>]*>|<metadata>.*?</metadata>|<!--.*?-->\s*", "", out.getvalue(), flags=re.DOTALL)
        body = re.sub(r"<[^>]*>", lambda tag: _in_our_style(tag[0]), body)
        body = re.sub(r'<g id="(mark\d+)">', lambda match: self._marks[match[1]], body)
        opened = Markup('<svg class="chart" viewBox="0 0 {} {}" role="group" aria-label="{}">')
        self.svg = opened.format(WIDTH, self._height, text(self._label)) + Markup(
            re.sub(r"\n\s*", "\n", body.strip())
        )


def _in_our_style(tag: str) -> str:
    """A tag with the style sheet's colours and letters; texts between tags may look like either."""
    tag = re.sub(rf"{_IDS}| ?font-(?:family|size): [^;\"]*;", "", tag)
    return re.sub(r"#0000a[0-9a]", lambda match: f"var(--{Ink(match[0]).name.lower()})", tag)


@contextmanager
def plot(label: str, height: int, panels: int = 1) -> Iterator[Plot]:
    """Draw on the axes that the block is given; ``label`` says what; ``height`` is in units of the drawing."""
    with mpl.rc_context(mpl.rcParamsDefault), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # letters its font lacks: the reader's browser has others
        mpl.rcParams.update(_STYLE | {"svg.hashsalt": re.sub(r"\W", "", label)})  # type: ignore[arg-type]
        drawn = Plot(label, height, panels)
        yield drawn
        drawn.finish()


def short(words: str, most: int = 48) -> str:
    """Words from outside, shortened and printable: Matplotlib draws any length, and control characters."""
    text_ = printable(words)
    return text_ if len(text_) <= most else f"{text_[: most - 1]}…"
