"""The ladder diagram as SVG: client left, server right, time downwards and to scale.

The axis is to scale, so that a wait is as long as it looks. Arrows that would overlap are moved down, one below the
other. Labels need still more room: they have a column of their own, and a thin line leads from the exact moment on
the axis to the label, and from there to the arrow. This module computes positions; the template and the style sheet
draw.
"""

import math
from collections.abc import Sequence

from markupsafe import Markup

from nagle_lab.evidence.ladder import Ladder
from nagle_lab.reports.html.template import render
from nagle_lab.reports.html.time_axis import Axis, axis, call_moment, event_moments, moments_of, scale_of, wait_of

_TOP, _ARROW, _LABEL = 108, 18, 48  # the first row; least distances of arrows and of labels; in units of the drawing
_LETTERS = 15  # the size of letters in report.css
_NARROW_ONES, _NARROW, _WIDE = frozenset("iIjl.,:;'|!()[]/ tfr-1"), 0.22, 0.45  # least widths of letters, em
_MICROSECOND, _MILLISECOND, _SECOND = 10**3, 10**6, 10**9  # ns


def ladder_drawing(ladder: Ladder, scale: float = 0.0) -> Markup:
    """The rows of a ladder, with those of its stall marked; ``scale``: units per ns, by default one that fits."""
    moments, written, wait = moments_of(ladder), ladder.written, wait_of(ladder)
    time = axis(event_moments(ladder), scale or scale_of(ladder), _TOP, wait)
    exact = [time.y(ns) for ns in [*moments, *(call_moment(one.ns, moments) for one in written)]]
    at = moved_down(exact, _ARROW)
    labels = _labels(at, time)
    rows, calls = slice(len(moments)), slice(len(moments), len(exact))
    (unit, ns), (tick_unit, tick) = _unit(moments[-1]), _unit(time.pieces[-1].end)
    bottom = math.ceil(max(*labels, *at, time.bottom) + 34)
    bar = time.bar * time.scale if time.breaks else 0.0
    decimals = 1 if ns == _MICROSECOND else 3
    of_ticks = max(0, -math.floor(math.log10(time.step / tick) + 1e-9))  # as many as tell one from the next
    drawn = render(
        "ladder.svg.j2",
        ladder=ladder,
        rows=[
            {"row": row, "exact": moment, "y": y, "label": label, "time": f"{row.ns / ns:.{decimals}f} {unit}"}
            for row, moment, y, label in zip(ladder.rows, exact[rows], at[rows], labels[rows], strict=True)
        ],
        calls=[
            {"of": one, "exact": moment, "y": y, "label": label, "time": f"{one.ns / ns:.{decimals}f} {unit}"}
            for one, moment, y, label in zip(written, exact[calls], at[calls], labels[calls], strict=True)
        ],
        parts={row.part: y for row, y in zip(ladder.rows, at[rows], strict=True)},
        wait=[time.y(ns) for ns in wait] if wait else [],
        later=_later(ladder),
        breaks=[
            {"y": each.y, "label": label, "ns": round(each.ns), "time": span_text(each.ns)}
            for each, label in zip(time.breaks, labels[len(exact) :], strict=True)
        ],
        bottom=time.bottom,
        lowest=max(*at, time.bottom),
        height=math.ceil(bottom + bar + 8) if bar else bottom,
        bar={"y": bottom, "height": bar, "time": span_text(time.bar)},
        unit=tick_unit,
        fitted=_fitted,
        ticks=[(f"{moment / tick:.{of_ticks}f}", y) for moment, y in time.ticks()],
    )
    return Markup(drawn)


def _fitted(text: str, most: float, size: float = 1.0) -> Markup:
    """Attributes of a text that is squeezed if it is wider than ``most`` units; its letters are ``size`` em high.

    Only a browser knows the exact width: there report.js squeezes texts that are too long, and no shorter ones, which
    would be stretched. Without scripts, only texts that are surely too long are squeezed.
    """
    em = sum(_NARROW if letter in _NARROW_ONES else _WIDE for letter in text)
    attributes = f' data-most="{most:g}"'
    if em * size * _LETTERS > most:
        attributes += f' textLength="{most:g}" lengthAdjust="spacingAndGlyphs"'
    return Markup(attributes)


def _later(ladder: Ladder) -> str:
    """How long after the late ACK the release comes, in two figures; empty if the capture lacks that ACK."""
    if not ladder.stall or ladder.stall.ack_frame is None:
        return ""
    return span_text(float(f"{ladder.stall.release_us:.2g}") * _MICROSECOND)


def moved_down(exact: Sequence[float], least: float) -> list[float]:
    """Each place, moved down if necessary, so that it is at least ``least`` below the one above it."""
    placed, lowest = list(exact), -math.inf
    for i in sorted(range(len(exact)), key=exact.__getitem__):
        placed[i] = lowest = max(exact[i], lowest + least)
    return placed


def _labels(arrows: Sequence[float], time: Axis) -> list[float]:
    """The places of the labels of arrows, then of breaks: all in one column, in order of their moments."""
    at = [*arrows, *(each.y for each in time.breaks)]
    order = sorted(range(len(at)), key=at.__getitem__)
    placed = dict(zip(order, apart([at[i] for i in order], _LABEL), strict=True))
    return [placed[i] for i in range(len(at))]


def apart(exact: Sequence[float], least: float) -> list[float]:
    """The places nearest to ``exact`` (least squares) that are at least so far apart, none above the first."""
    blocks: list[tuple[float, int]] = []  # mean, size; of places less the distances before each: growing
    for i, y in enumerate(exact):
        mean, size = y - i * least, 1
        while blocks and blocks[-1][0] >= mean:
            before, more = blocks.pop()
            mean, size = (mean * size + before * more) / (size + more), size + more
        blocks.append((mean, size))
    placed = [max(mean, exact[0]) for mean, size in blocks for _ in range(size)]
    return [y + i * least for i, y in enumerate(placed)]


def span_text(ns: float) -> str:
    """A duration with its unit, in at most three figures: 43.2 ms, 635 µs, 10 µs."""
    unit, one = _unit(ns)
    return f"{ns / one:.3g} {unit}" if ns < 999.5 * one else f"{ns / one:,.0f} {unit}"


def _unit(span: float) -> tuple[str, int]:
    """The unit in which so many ns take few digits, and its length in ns."""
    if span < _MILLISECOND:
        return "µs", _MICROSECOND
    return ("ms", _MILLISECOND) if span < _SECOND else ("s", _SECOND)
