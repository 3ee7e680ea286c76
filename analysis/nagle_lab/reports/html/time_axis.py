"""The positions of moments on the time axis of a ladder: one scale, on which the wait of a stall is the longest part.

Any longer gap is broken.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from nagle_lab.evidence.ladder import Ladder

WHOLE = 430.0  # height of a ladder that has a scale of its own, in units of the drawing
_WAIT = 240.0  # least height of the wait in it, …
_WORDS = 130.0  # … and of waits on another ladder's scale: room for their words
_MOST = 1000.0  # a longer wait is broken, and so are lesser gaps if the whole would be longer
_BROKEN = 120.0  # height of a gap that is broken, …
_MARK = 24.0  # … and of the break mark in its middle
_TICK = 70.0  # least distance of two ticks
_BAR = 20.0  # least height of the bar that shows the scale of a broken axis


@dataclass(frozen=True)
class Piece:
    """A stretch of the axis without a break."""

    begin: float  # ns
    end: float
    y: float  # of ``begin``


@dataclass(frozen=True)
class Break:
    """A break mark: where its middle is, and how much time it leaves out."""

    y: float
    ns: float


@dataclass(frozen=True)
class Axis:
    """Pieces of one scale, in units per ns, and a break between each two of them."""

    scale: float
    pieces: Sequence[Piece]

    def y(self, ns: float) -> float:
        """Where the moment ``ns`` is on the axis, in units of the drawing; never inside a break."""
        piece = next(piece for piece in reversed(self.pieces) if piece.begin <= ns or piece is self.pieces[0])
        return piece.y + (ns - piece.begin) * self.scale

    @property
    def bottom(self) -> float:
        """Where the axis ends, in units of the drawing."""
        return self.y(self.pieces[-1].end)

    @property
    def breaks(self) -> list[Break]:
        """Every stretch that the axis leaves out."""
        return [Break(later.y - _MARK / 2, later.begin - earlier.end) for earlier, later in pairwise(self.pieces)]

    def ticks(self) -> Iterator[tuple[float, float]]:
        """Moments to name, ns, and where they are: multiples of :attr:`step` that no break leaves out."""
        for piece in self.pieces:
            first, last = math.ceil(piece.begin / self.step - 1e-9), math.floor(piece.end / self.step + 1e-9)
            for moment in (i * self.step for i in range(first, last + 1)):
                yield moment, piece.y + (moment - piece.begin) * self.scale

    @property
    def step(self) -> float:
        """The time from tick to tick, ns."""
        return _round(_TICK / self.scale)

    @property
    def bar(self) -> float:
        """The ns that the bar beside the axis represents."""
        return _round(_BAR / self.scale)


def scale_of(ladder: Ladder) -> float:
    """Units per ns with which a ladder fills its room, mostly with its wait; 0 if no time passes."""
    last, wait = moments_of(ladder)[-1], _length(wait_of(ladder))
    return max(WHOLE / last if last else 0.0, _WAIT / wait if wait else 0.0)


def common_scale(ladders: Iterable[Ladder]) -> float:
    """The scale on which the longest of several ladders fits, and the words of each wait; 0 if no time passes."""
    several = list(ladders)
    waiting = [ladder for ladder in several if _length(wait_of(ladder))]
    scales = [scale for ladder in waiting or several if (scale := scale_of(ladder))]
    least = max((_WORDS / _length(wait_of(ladder)) for ladder in waiting), default=0.0)
    return max(min(scales, default=0.0), least)


def wait_of(ladder: Ladder) -> tuple[int, int] | None:
    """When the wait of its stall begins and ends, ns since the first row; None without a stall."""
    if not ladder.stall:
        return None
    moments = dict(zip((row.part for row in ladder.rows), moments_of(ladder), strict=True))
    return moments["trigger"], moments[ladder.wait_ends]


def _length(wait: tuple[int, int] | None) -> int:
    return wait[1] - wait[0] if wait else 0


def moments_of(ladder: Ladder) -> list[int]:
    """The time of each row, ns since the first; if a clock was set back, time stands still."""
    return list(accumulate((row.ns for row in ladder.rows), max))


def event_moments(ladder: Ladder) -> list[int]:
    """The moments of rows and of calls that wrote, in order."""
    moments = moments_of(ladder)
    return sorted([*moments, *(call_moment(call.ns, moments) for call in ladder.written)])


def call_moment(ns: int, moments: Sequence[int]) -> int:
    """When a call is drawn: not before the first row, and not after the last."""
    return min(max(ns, moments[0]), moments[-1])


def axis(moments: Sequence[int], scale: float, top: float, wait: tuple[int, int] | None) -> Axis:
    """The axis of moments in order, on a scale of so many units per ns; ``wait``: that of a stall, begin and end."""
    scale = scale or 1.0  # all at one moment: any scale will do
    gaps = [(before, after, (after - before) * scale) for before, after in pairwise(moments)]
    waiting = [wait is not None and wait[0] <= before < after <= wait[1] for before, after, _ in gaps]
    longest = _length(wait) * scale or WHOLE
    drawn = sum(min(gap, longest) for (*_, gap), waits in zip(gaps, waiting, strict=True) if not waits)
    limit = max(longest if drawn <= _MOST else 0.0, _BROKEN)
    pieces, begin, y = [], float(moments[0]), top
    for (before, after, gap), waits in zip(gaps, waiting, strict=True):
        if gap > (_MOST if waits else limit * (1 + 1e-9)):
            around = (_BROKEN - _MARK) / 2 / scale  # to scale, before the mark and after it
            pieces.append(Piece(begin, before + around, y))
            y += (before + around - begin) * scale + _MARK
            begin = after - around
    shows_scale = 0.0 if pieces else begin + _round(_TICK / scale)
    return Axis(scale, [*pieces, Piece(begin, max(float(moments[-1]), shows_scale), y)])


def _round(least: float) -> float:
    """Round up to 1, 2 or 5 × 10ⁿ."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= least * (1 - 1e-9))
