"""The plots of a report: a connection over time, distributions, causes, variants, and the cliff of a sweep."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from nagle_lab.diagnosis.result.idle_gaps import Cause
from nagle_lab.diagnosis.result.result import CountAndTime, Histogram
from nagle_lab.diagnosis.result.spread import Spread, duration_text
from nagle_lab.evidence.sequence import Point, TimeSequence
from nagle_lab.reports.html.plot import Ink, Plot, plot, short
from nagle_lab.reports.html.shown import Shown
from nagle_lab.reports.words.numbers import IDLE_GAPS, cause_name, number, share, thousands

_SIZE = 8  # of marks
_TOPS = (1, 2, 5, 10, 20, 40, 60, 80, 100, 101)  # percent: possible ends of an axis; rounding may exceed 100
_FOOT = 0.03  # of an axis: the least height of a bar
_LEAST_SPAN = 12  # of an axis of time: the least ratio of its end to its beginning
_COLOUR_OF = {"STALL": Ink.STALL, "CLEAN": Ink.CLEAN}


def time_sequence_plot(sequence: TimeSequence) -> Markup:
    """The held side's data over time, the acknowledgements of it, holds and late ACKs."""
    with plot("Time-sequence plot", 440) as drawing:
        ax = drawing.axes[0]
        for hold in sequence.holds:
            ax.fill_between([hold.from_ms, hold.to_ms], hold.begin, hold.end, facecolor=Ink.HOLD, alpha=0.45, lw=0)
        acked = [point for point in sequence.points if not point.sent]
        ax.step([p.ms for p in acked], [p.end for p in acked], where="post", color=Ink.ACKS, lw=2)
        for point in sequence.points:
            _point(drawing, point)
        _key(ax, sequence.held)
        ax.set_xlabel("ms")
        ax.set_ylabel(f"{sequence.held}'s bytes")
        ax.xaxis.set_major_locator(MaxNLocator(6))
        ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    return drawing.svg


def _point(drawing: Plot, point: Point) -> None:
    ax, late = drawing.axes[0], point.part == "late ACK"
    if point.sent:
        mark = ax.plot(
            [point.ms] * 2, [point.begin, point.end], color=Ink.DATA, lw=6, solid_capstyle="butt", zorder=3
        )
        if point.part == "release":
            ax.plot(point.ms, point.end, marker="^", color=Ink.RELEASE, ms=_SIZE, zorder=4, clip_on=False)
    elif late:
        mark = ax.plot(point.ms, point.end, marker="D", color=Ink.LATE, ms=_SIZE, mew=1, zorder=5)
    else:
        mark = ax.plot(point.ms, point.end, marker="|", color=Ink.ACKS, ms=_SIZE, mew=2, zorder=4)
    drawing.mark(mark[0], point.words, point.frame)


def _key(ax: Axes, held: str) -> None:
    other = "client" if held == "server" else "server"
    ax.plot([], [], color=Ink.DATA, lw=6, label=f"data of the {held}")
    ax.plot([], [], color=Ink.ACKS, lw=2, marker="|", ms=_SIZE, label=f"acknowledged by the {other}")
    ax.plot([], [], color=Ink.LATE, lw=0, marker="D", ms=_SIZE, label="late ACK")
    ax.plot([], [], color=Ink.RELEASE, lw=0, marker="^", ms=_SIZE, label="release")
    ax.fill_between([], [], color=Ink.HOLD, alpha=0.45, lw=0, label="held (Nagle)")
    ax.legend(loc="lower center", bbox_to_anchor=(0.45, 1.0), ncols=2, handlelength=1.2, columnspacing=1.2)


@dataclass(frozen=True)
class Distribution:
    """A histogram to draw, its percentiles, and its name."""

    name: str
    histogram: Histogram
    spread: Spread
    stalled: bool = False


def durations_of(several: Sequence[Shown]) -> list[Distribution]:
    """The exchange times of each capture; for a single one also its waits."""
    drawn = []
    for of in several:
        summary, histograms = of.result.summary, of.result.histograms
        name = of.name if len(several) > 1 else "exchanges"
        if summary.exchange_ms:
            drawn.append(Distribution(name, histograms["exchange_ms"], summary.exchange_ms))
        if summary.wait_ms and len(several) == 1:
            waits = histograms["wait_ms"]
            drawn.append(Distribution("waits for a late ACK", waits, summary.wait_ms, stalled=True))
    return drawn


def distribution_plot(several: Sequence[Distribution], label: str) -> Markup:
    """Histograms one below the other, on one logarithmic axis of time."""
    with plot(label, 80 + 150 * len(several), len(several)) as drawing:
        for ax, durations in zip(drawing.axes, several, strict=True):
            _distribution(drawing, ax, durations)
        lowest = drawing.axes[-1]  # they share one axis of time
        low, high = lowest.get_xlim()
        wider = max(1.2, (_LEAST_SPAN * low / high) ** 0.5)
        lowest.set_xlim(low / wider, high * wider)
        _decades(lowest)
        lowest.set_xlabel("ms (logarithmic)")
    return drawing.svg


def _distribution(drawing: Plot, ax: Axes, durations: Distribution) -> None:
    of, spread, colour = durations.histogram, durations.spread, Ink.STALL if durations.stalled else Ink.DATA
    most = max(100 * count / of.count for *_, count in of.bins)
    top = next(top for top in _TOPS if most <= top)
    for low, high, count in of.bins:
        left = low or high / 2  # a logarithmic axis has no 0, for times below a microsecond
        part = count / of.count
        seen = max(100 * part, _FOOT * top)  # so that even a single one can be seen
        bar = ax.bar(left, seen, width=high - left, align="edge", facecolor=colour, lw=0)[0]
        drawing.mark(
            bar,
            [
                f"{low:g} to {high:g} ms" if low else f"less than {high:g} ms",
                f"{count:,} of {of.count:,}",
                f"{part:.2%}",
            ],
        )
    for value, dashes in ((spread.p50, "-"), (spread.p99, ":")):
        ax.axvline(max(value, 0.001), color=Ink.INK, lw=1.5, ls=dashes)
    ax.set_title(f"{short(durations.name, 36)}: {number(spread.p50)} / {number(spread.p99)} ms", loc="left")
    ax.set_ylabel("%")
    ax.set_ylim(0, top)
    ax.set_yticks([0, top / 2, top])
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    _decades(ax)


def _decades(ax: Axes) -> None:
    """A logarithmic x axis, with as many labels as fit."""
    ax.set_xscale("log")
    low, high = ax.get_xlim()
    labelled = (1,) if high / low > 3e3 else (1, 2, 3, 4, 5, 6, 8) if high / low < 6 else (1, 2, 5)
    ax.xaxis.set_major_locator(LogLocator(10, labelled, numticks=20))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def cause_plot(causes: Mapping[Cause, CountAndTime], *, is_open: bool = False) -> Markup:
    """Where the time of the idle gaps went, a bar for each cause; ``is_open``: see :func:`cause_name`."""
    ordered = sorted(causes.items(), key=lambda item: item[1].total_ms)
    total = sum(gap.total_ms for _, gap in ordered) or 1.0
    with plot(f"{IDLE_GAPS}, by cause", 80 + 46 * len(ordered)) as drawing:
        ax = drawing.axes[0]
        for at, (cause, gap) in enumerate(ordered):
            name = cause_name(cause, is_open=is_open)
            words = f"{thousands(gap.count)} ×, {duration_text(gap.total_ms)}, {share(gap.total_ms / total)}"
            colour = Ink.STALL if cause == Cause.NAGLE_DELAYED_ACK else Ink.OTHER
            _bar(drawing, at, (0, gap.total_ms / 1e3), colour, [name, words])
        _rows(ax, len(ordered))
        ax.set_xlim(left=0)
        ax.set_xlabel("seconds in idle gaps")
        ax.xaxis.set_major_locator(MaxNLocator(5))
    return drawing.svg


@dataclass(frozen=True)
class Bar:
    """A bar of :func:`variant_plot`: a variant's figure and verdict."""

    name: str
    verdict: str
    value: float


def variant_plot(bars: Sequence[Bar], label: str, unit: str) -> Markup:
    """A figure of several variants, on a logarithmic axis, each with its verdict."""
    least, most = min(bar.value for bar in bars) / 2, max(bar.value for bar in bars)
    with plot(label, 80 + 46 * len(bars)) as drawing:
        for at, bar in enumerate(reversed(bars)):
            words = f"{number(bar.value)} {unit}, {short(bar.verdict, 30)}"
            colour = _COLOUR_OF.get(bar.verdict, Ink.OTHER)
            _bar(drawing, at, (least, bar.value), colour, [bar.name, words])
        ax = drawing.axes[0]
        _rows(ax, len(bars))
        ax.set_xscale("log")
        ax.set_xlim(least, most * 1.2)
        _decades(ax)
        ax.set_xlabel(f"{unit} (logarithmic)")
    return drawing.svg


def _bar(drawing: Plot, at: int, span: tuple[float, float], colour: str, words: Sequence[str]) -> None:
    """A bar from one value to another, and above it what it is."""
    ax, (left, right) = drawing.axes[0], span
    drawing.mark(ax.barh(at, right - left, left=left, height=0.4, facecolor=colour, lw=0)[0], words)
    ax.annotate(
        f"{short(words[0], 40)}: {words[1]}", (left, at + 0.22), (3, 2), textcoords="offset points", va="bottom"
    )


def _rows(ax: Axes, count: int) -> None:
    ax.set_yticks([])
    ax.set_ylim(-0.5, count - 0.1)
    ax.grid(axis="y", visible=False)


@dataclass(frozen=True)
class SizePoint:
    """One size of a sweep."""

    size: int
    verdict: str
    share: float  # of stalled exchanges, 0 to 1


def cliff_plot(points: Sequence[SizePoint], edges: Sequence[tuple[int, int]], parameter: str) -> Markup:
    """The stalled share over the size; each edge, the two sizes it lies between, is marked."""
    with plot(f"Sweep of {parameter}", 400) as drawing:
        ax = drawing.axes[0]
        ax.plot([p.size for p in points], [100 * p.share for p in points], color=Ink.MUTED, lw=1.5, zorder=2)
        for p in points:
            marker, colour = ("s", Ink.STALL) if p.verdict == "STALL" else ("o", Ink.CLEAN)
            drawn = ax.plot(
                p.size, 100 * p.share, marker=marker, ms=_SIZE, lw=0, color=colour, zorder=3, clip_on=False
            )
            drawing.mark(drawn[0], [f"{parameter}={p.size}", p.verdict, f"{share(p.share)} stalled"])
        for turn, (below, above) in enumerate(edges):
            ax.axvline((below * above) ** 0.5, color=Ink.INK, lw=1.5, ls="--")
            box = {"facecolor": Ink.GRID, "edgecolor": "none", "pad": 4}
            ax.text((below * above) ** 0.5, 50 + 14 * (turn % 2), f"{below} | {above}", ha="center", bbox=box)
        if points[-1].size > _DOUBLINGS * points[0].size:
            ax.set_xscale("log", base=2)
            ax.xaxis.set_major_locator(LogLocator(2, numticks=6))
        else:
            ax.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
        ax.set_ylim(-4, 104)
        ax.set_xlabel(short(parameter))
        ax.set_ylabel("stalled, %")
    return drawing.svg


_DOUBLINGS = 8  # a span of so many doublings or more gets a logarithmic axis
