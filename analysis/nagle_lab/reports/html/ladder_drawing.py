"""The ladder diagram as SVG: client left, server right, time downwards and to scale.

Segments that lie closer than rows can be drawn are set apart; a thin line leads from each to its moment on the time
axis. Here is where things are; how they are drawn is in the template and the style sheet.
"""

import math
from collections.abc import Sequence
from itertools import accumulate

from markupsafe import Markup

from nagle_lab.evidence.ladder import Ladder
from nagle_lab.reports.html.template import render

_TOP, _ROW = 108, 48  # the first row, and the least distance of two, in units of the drawing
_LEAST, _MOST = 430, 1400  # height of the whole time
_ROOM = 170  # for the words in the wait
_MICROSECOND, _MILLISECOND, _SECOND = 10**3, 10**6, 10**9  # ns


def ladder_drawing(ladder: Ladder) -> Markup:
    """The rows of a ladder, those of its stall marked."""
    moments = list(accumulate((row.ns for row in ladder.rows), max))  # a clock set back: time stands still
    scale = _scale(ladder, moments)
    exact = _exact(moments, scale)
    rows = apart(exact, _ROW)
    unit, ns = _unit(moments[-1])
    decimals = 1 if ns == _MICROSECOND else 3
    drawn = render(
        "ladder.svg.j2",
        ladder=ladder,
        rows=[
            {"row": row, "y": y, "exact": at, "time": f"{row.ns / ns:.{decimals}f}"}
            for row, y, at in zip(ladder.rows, rows, exact, strict=True)
        ],
        parts={row.part: (y, at) for row, y, at in zip(ladder.rows, rows, exact, strict=True)},
        bottom=_TOP + scale,
        height=math.ceil(max(rows[-1], exact[-1]) + 34),
        unit=unit,
        ticks=[(f"{tick:g}", y) for tick, y in _ticks(moments[-1] / ns, scale)],
    )
    return Markup(drawn)


def _scale(ladder: Ladder, moments: Sequence[int]) -> int:
    """Height of the whole time: so much that the wait has room, however many rows come before it."""
    for scale in range(_LEAST, _MOST, 50):
        rows = apart(_exact(moments, scale), _ROW)
        at = {row.part: y for row, y in zip(ladder.rows, rows, strict=True)}
        if ladder.stall is None or at[ladder.wait_ends] - at["trigger"] >= _ROOM:
            return scale
    return _MOST


def _exact(moments: Sequence[int], scale: int) -> list[float]:
    """Where each moment is on the time axis."""
    return [_TOP + scale * ns / max(1, moments[-1]) for ns in moments]


def apart(exact: Sequence[float], least: float) -> list[float]:
    """The places nearest to ``exact`` (least squares), none above the first, that are at least so far apart."""
    blocks: list[tuple[float, int]] = []  # mean and size, of places less the distances before each: they only grow
    for i, y in enumerate(exact):
        mean, size = y - i * least, 1
        while blocks and blocks[-1][0] >= mean:
            before, more = blocks.pop()
            mean, size = (mean * size + before * more) / (size + more), size + more
        blocks.append((mean, size))
    placed = [max(mean, exact[0]) for mean, size in blocks for _ in range(size)]
    return [y + i * least for i, y in enumerate(placed)]


def _unit(span: int) -> tuple[str, int]:
    """The unit in which so many ns take few digits, and its ns."""
    if span < _MILLISECOND:
        return "µs", _MICROSECOND
    return ("ms", _MILLISECOND) if span < _SECOND else ("s", _SECOND)


def _ticks(span: float, scale: int) -> list[tuple[float, float]]:
    """What stands at the time axis, and where: steps of 1, 2 or 5 × 10ⁿ, about five of them."""
    if not span:
        return [(0.0, _TOP)]
    power = 10.0 ** math.floor(math.log10(span / 5))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= span / 5 * (1 - 1e-9))
    return [(step * i, _TOP + scale * step * i / span) for i in range(math.floor(span / step + 1e-9) + 1)]
