"""Plots, drawn by Matplotlib as SVG whose colours are the page's: they follow its light and dark.

Each is drawn twice, for a wide screen and for a phone; the style sheet shows one. What can be pointed at is a *mark*:
a group with the text of its tip.
"""

import io
import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import matplotlib as mpl
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from nagle_lab.errors import printable
from nagle_lab.reports.html.markup import Html, each, text

# Stand-ins that Matplotlib knows how to draw, each for a colour of the style sheet.
INK, MUTED, GRID, DATA, ACKS, HOLD, LATE, RELEASE, STALL, CLEAN, OTHER = (f"#0000{n:02x}" for n in range(0xA0, 0xAB))
_NAMES = ("ink", "muted", "grid", "data", "acks", "hold", "late", "release", "stall", "clean", "other")
_COLOURS = {f"#0000{0xA0 + n:02x}": f"var(--{name})" for n, name in enumerate(_NAMES)}
_STYLE: dict[str, Any] = {
    "svg.fonttype": "none",
    "svg.image_inline": True,
    "path.simplify": False,
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "text.color": INK,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "grid.color": GRID,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.facecolor": "none",
    "figure.facecolor": "none",
    "hatch.color": HOLD,
    "legend.frameon": False,
    "text.parse_math": False,
    "axes.unicode_minus": False,
}
WIDE, NARROW = 960, 380


@dataclass
class Sheet:
    """One drawing in the making: its axes, how wide it is, and the tips of its marks."""

    figure: Figure
    axes: Sequence[Axes]
    wide: bool
    tips: dict[str, Html] = field(default_factory=dict)

    def mark(self, artist: Artist, tip: Html, frame: int | None = None) -> None:
        """Let a reader point at the artist and read ``tip``."""
        name = f"mark{len(self.tips)}"
        artist.set_gid(name)
        of_frame = f' data-frame="{frame}"' if frame is not None else ""
        said = tip.replace("&#10;", ", ")
        self.tips[name] = Html(f'class="mark" tabindex="0" role="img"{of_frame} data-tip="{tip}" aria-label="{said}"')


@dataclass(frozen=True)
class Plot:
    """What to draw: a ``label`` that says what it shows, heights in px (wide, narrow), and the number of panels."""

    label: str
    heights: tuple[int, int]
    draw: Callable[[Sheet], None]
    panels: int = 1

    def svg(self) -> Html:
        """For wide screens and for phones."""
        return each(self._drawn(wide=True), self._drawn(wide=False))

    def _drawn(self, *, wide: bool) -> Html:
        width, height, size = (WIDE, self.heights[0], 17) if wide else (NARROW, self.heights[1], 12)
        own = {"font.size": size, "svg.hashsalt": re.sub(r"\W", "", self.label) + str(width)}
        with mpl.rc_context(mpl.rcParamsDefault), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # letters its font lacks: the reader's browser has others
            mpl.rcParams.update(_STYLE | own)  # type: ignore[arg-type]  # it lists every name it knows
            figure = Figure(figsize=(width / 72, height / 72), dpi=72, layout="constrained")
            axes = figure.subplots(self.panels, 1, squeeze=False, sharex=True)[:, 0]
            sheet = Sheet(figure, list(axes), wide)
            self.draw(sheet)
            out = io.StringIO()
            figure.savefig(out, format="svg", metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
        return _page_part(out.getvalue(), sheet, self.label)


def short(words: str, most: int = 48) -> str:
    """Words from outside, as they may be drawn: Matplotlib takes control characters, and any length, as they are."""
    shown = printable(words)
    return shown if len(shown) <= most else f"{shown[: most - 1]}…"


def _page_part(svg: str, sheet: Sheet, label: str) -> Html:
    """Matplotlib's document as an element of the page: without what a page has, and with its colours and tips."""
    kind = "wide" if sheet.wide else "narrow"
    body = svg[svg.index("<svg") :]
    body = body[body.index(">") + 1 :]
    body = re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.DOTALL)
    body = re.sub(r'<g id="(mark\d+)">', lambda found: f"<g {sheet.tips[found[1]]}>", body)
    body = re.sub(
        r' id="(?:figure|axes|patch|line2d|text|matplotlib\.axis|xtick|ytick|legend|[A-Za-z]+Collection)_\d+"',
        "",
        body,
    )
    body = re.sub(r"<!--.*?-->\s*", "", body, flags=re.DOTALL)
    body = re.sub(r"#0000a[0-9a]", lambda found: _COLOURS[found[0]], body)
    body = re.sub(r" ?font-family: [^;\"]*;", "", body)  # the page's own
    width, height = (72 * inches for inches in sheet.figure.get_size_inches())
    opened = f'<svg class="chart {kind}" viewBox="0 0 {width:g} {height:g}" role="group" aria-label="{text(label)}">'
    return Html(opened + re.sub(r"\n\s*", "\n", body.strip()))
