"""Where moments are on the time axis of a ladder: one scale, broken where nothing happens for too long to draw."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from nagle_lab.evidence.ladder import Ladder

WHOLE = 430.0  # height of a ladder that has a scale of its own, in units of the drawing
_TOLD_APART = 14.0  # least distance of two arrows, …
_AT_ONCE = 1000  # … unless they are less than so many ns apart
_GAPS = (640.0, 320.0, 120.0)  # a gap higher than this is broken: the first that keeps the drawing below _MOST
_MOST = 1400.0
_BROKEN = 120.0  # height of a gap that is broken: room for the words of a wait, …
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
        """ns that a bar beside the axis shows the height of."""
        return _round(_BAR / self.scale)


def scale_of(ladder: Ladder) -> float:
    """Units per ns with which a ladder fills its room, or its arrows can be told apart; 0 where no time passes."""
    moments = event_moments(ladder)
    if not moments[-1]:
        return 0.0
    shortest = min((gap for a, b in pairwise(moments) if (gap := b - a) >= _AT_ONCE), default=moments[-1])
    return max(WHOLE / moments[-1], _TOLD_APART / shortest)


def common_scale(ladders: Iterable[Ladder]) -> float:
    """The one scale on which the shortest of several can be read; 0 where no time passes in any."""
    return max(map(scale_of, ladders), default=0.0)


def moments_of(ladder: Ladder) -> list[int]:
    """When each row is, ns since the first; where a clock was set back, time stands still."""
    moments: list[int] = []
    for row in ladder.rows:
        moments.append(max(row.ns, moments[-1] if moments else 0))
    return moments


def event_moments(ladder: Ladder) -> list[int]:
    """In order the moments of rows, and of calls that wrote."""
    moments = moments_of(ladder)
    return sorted([*moments, *(call_moment(call.ns, moments) for call in ladder.written)])


def call_moment(ns: int, moments: Sequence[int]) -> int:
    """When a call is drawn: not before the first row, and not after the last."""
    return min(max(ns, moments[0]), moments[-1])


def axis(moments: Sequence[int], scale: float, top: float) -> Axis:
    """The axis of moments in order, on a scale of so many units per ns."""
    scale = scale or 1.0  # all at one moment: any scale will do
    gaps = [(b - a) * scale for a, b in pairwise(moments)]
    longest = next((most for most in _GAPS if sum(_drawn(gap, most) for gap in gaps) <= _MOST), _GAPS[-1])
    pieces, begin, y = [], float(moments[0]), top
    for (before, after), gap in zip(pairwise(moments), gaps, strict=True):
        if gap > longest:
            around = (_BROKEN - _MARK) / 2 / scale  # to scale, before the mark and after it
            pieces.append(Piece(begin, before + around, y))
            y += (before + around - begin) * scale + _MARK
            begin = after - around
    return Axis(scale, [*pieces, Piece(begin, float(moments[-1]), y)])


def _round(least: float) -> float:
    """Round up to 1, 2 or 5 × 10ⁿ."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= least * (1 - 1e-9))


def _drawn(gap: float, longest: float) -> float:
    return gap if gap <= longest else _BROKEN
