"""The plots of a report: a connection over time, distributions, causes, variants, and the cliff of a sweep."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from nagle_lab.diagnosis.result import Histogram, Silence, Spread
from nagle_lab.evidence.excerpt import Step
from nagle_lab.reports.figures import number
from nagle_lab.reports.html.ladder import said_of
from nagle_lab.reports.html.markup import Html, lines
from nagle_lab.reports.html.plot import (
    ACKS,
    CLEAN,
    DATA,
    GRID,
    HOLD,
    INK,
    LATE,
    MUTED,
    OTHER,
    RELEASE,
    STALL,
    Plot,
    Sheet,
    short,
)
from nagle_lab.reports.html.shown import Stretch

# ----------------------------------------------------------------------------------- time and sequence


def time_sequence(stretch: Stretch) -> Html:
    """The held side's data over time, the acknowledgements of it, holds and late ACKs."""
    held = stretch.stalls[0].held_by.role if stretch.stalls else "server"
    return Plot("Time-sequence plot", (520, 420), lambda sheet: _time_sequence(sheet, stretch, held)).svg()


def _time_sequence(sheet: Sheet, stretch: Stretch, held: str) -> None:
    ax, steps, origin = sheet.axes[0], stretch.steps, stretch.steps[0].ts
    ms = [(step.ts - origin) / 1e6 for step in steps]
    numbers = _unwrapped(stretch, held)
    marked: dict[int, str] = {}
    for stall in stretch.stalls:
        marked |= {stall.trigger_frame: "trigger", stall.ack_frame: "late ACK", stall.release_frame: "release"}
    at = {step.frame: (time, of) for step, time, of in zip(steps, ms, numbers, strict=True)}
    for stall in stretch.stalls:
        (begin, _), (end, of) = at[stall.trigger_frame], at[stall.release_frame]
        if stall.held_by.role == held and of:
            ax.fill_between([begin, end], *of, facecolor=HOLD, alpha=0.45, lw=0)
    width, size = (7.0, 11.0) if sheet.wide else (5.0, 7.0)
    acked = [(t, n[0]) for step, t, n in zip(steps, ms, numbers, strict=True) if not _from(step, held) and n]
    ax.step([t for t, _ in acked], [n for _, n in acked], where="post", color=ACKS, lw=2)
    for step, time, of in zip(steps, ms, numbers, strict=True):
        if of is None:
            continue
        what = marked.get(step.frame, "")
        mine = _from(step, held)
        if mine and step.length:
            drawn = ax.plot([time, time], of, color=DATA, lw=width, solid_capstyle="butt", zorder=3)[0]
            said = f"{held}'s bytes {of[0]} to {of[1]}"
        elif not mine:
            late = what == "late ACK"
            drawn = ax.plot(time, of[0], marker="D" if late else "|", color=LATE if late else ACKS,
                            ms=size, mew=2 if not late else 1, zorder=5 if late else 4)[0]  # fmt: skip
            said = f"acknowledges {of[0]} of the {held}'s bytes"
        else:
            continue
        if what == "release" and mine:
            ax.plot(time, of[1], marker="^", color=RELEASE, ms=size, zorder=4, clip_on=False)
        sheet.mark(drawn, lines(*said_of(step, time, what, said)), step.frame)
    _key(sheet, held)
    ax.set_xlabel("ms")
    ax.set_ylabel(f"{held}'s bytes")
    ax.xaxis.set_major_locator(MaxNLocator(10 if sheet.wide else 5))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))


def _key(sheet: Sheet, held: str) -> None:
    ax, size = sheet.axes[0], 10 if sheet.wide else 7
    other = "client" if held == "server" else "server"
    ax.plot([], [], color=DATA, lw=6, label=f"data of the {held}")
    ax.plot([], [], color=ACKS, lw=2, marker="|", ms=size, label=f"acknowledged by the {other}")
    ax.plot([], [], color=LATE, lw=0, marker="D", ms=size, label="late ACK")
    ax.plot([], [], color=RELEASE, lw=0, marker="^", ms=size, label="release")
    ax.fill_between([], [], color=HOLD, alpha=0.45, lw=0, label="held (Nagle)")
    ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=5 if sheet.wide else 2, handlelength=1.2,
              columnspacing=1.2, fontsize="small")  # fmt: skip


def _from(step: Step, held: str) -> bool:
    return step.from_client == (held == "client")


def _unwrapped(stretch: Stretch, held: str) -> list[tuple[int, int] | None]:
    """First and last byte of the held side's segments, and what others acknowledge, from the first one shown on."""
    base: int | None = None
    found: list[tuple[int, int] | None] = []
    for step in stretch.steps:
        mine = _from(step, held)
        if not mine and "ACK" not in step.flags:
            found.append(None)
            continue
        value = step.seq if mine else step.ack
        if base is None:
            base = value + int("SYN" in step.flags and mine)
        begin = (value - base + (1 << 31)) % (1 << 32) - (1 << 31)
        found.append((max(begin, 0), max(begin, 0) + step.length) if mine else (max(begin, 0), max(begin, 0)))
    return found


# ------------------------------------------------------------------------------------------ distributions


@dataclass(frozen=True)
class Durations:
    """A histogram to draw, its percentiles, and how to call it."""

    name: str
    histogram: Histogram
    spread: Spread
    stalled: bool = False


def distributions(several: Sequence[Durations], label: str) -> Html:
    """Histograms one below the other, on one logarithmic axis of time."""
    n = len(several)
    return Plot(label, (90 + 190 * n, 80 + 150 * n), lambda sheet: _distributions(sheet, several), n).svg()


def _distributions(sheet: Sheet, several: Sequence[Durations]) -> None:
    for ax, durations in zip(sheet.axes, several, strict=True):
        for low, high, count in durations.histogram.bins:
            left = low or high / 2  # the axis is logarithmic
            share = count / durations.histogram.count
            colour = STALL if durations.stalled else DATA
            bar = ax.bar(left, 100 * share, width=high - left, align="edge", facecolor=colour, edgecolor=colour)[0]
            ax.plot([left, high], [0, 0], color=colour, lw=5, solid_capstyle="butt", clip_on=False, zorder=3)
            sheet.mark(
                bar, lines(f"{low:g} to {high:g} ms", f"{count:,} of {durations.histogram.count:,}", f"{share:.2%}")
            )
        spread = durations.spread
        for value, dashes in ((spread.p50, "-"), (spread.p99, ":")):
            ax.axvline(max(value, 0.001), color=INK, lw=1.5, ls=dashes)
        name, middle, tail = short(durations.name, 48 if sheet.wide else 30), number(spread.p50), number(spread.p99)
        said = f"median {middle} ms, 99th percentile {tail} ms" if sheet.wide else f"{middle} / {tail} ms"
        ax.set_title(f"{name}: {said}", loc="left", fontsize="medium")
        ax.set_ylabel("%")
        ax.set_ylim(bottom=0)
        ax.yaxis.set_major_locator(MaxNLocator(4))
        _decades(sheet, ax)
    low, high = sheet.axes[-1].get_xlim()
    sheet.axes[-1].set_xlim(low / 1.2, high * 1.2)
    sheet.axes[-1].set_xlabel("ms (logarithmic)")


def _decades(sheet: Sheet, ax: Axes) -> None:
    """A logarithmic axis of x, with as many labels as it has room for."""
    ax.set_xscale("log")
    low, high = ax.get_xlim()
    if high / low > (1e4 if sheet.wide else 1e3):
        labelled: tuple[int, ...] = (1,)
    else:
        labelled = (1, 2, 3, 4, 5, 6, 8) if high / low < (15 if sheet.wide else 4) else (1, 2, 5)
    ax.xaxis.set_major_locator(LogLocator(10, labelled, numticks=20))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


# ---------------------------------------------------------------------------------------------- silences

CAUSES = {
    "nagle_delayed_ack": "Nagle × delayed ACK",
    "nagle_round_trip": "Nagle × round trip",
    "delayed_ack": "delayed ACK alone",
    "server_think": "server was thinking",
    "client_think": "client was thinking",
    "cork": "cork",
    "retransmission": "retransmission",
    "window": "window closed",
    "round_trip": "round trip",
    "unknown": "unknown",
}


def silences(found: Mapping[str, Silence]) -> Html:
    """Where the time of the silences went, a bar for each cause."""
    ordered = sorted(found.items(), key=lambda item: item[1].total_ms)
    heights = (90 + 46 * len(ordered), 80 + 48 * len(ordered))
    return Plot("Silences of 20 ms and more, by cause", heights, lambda sheet: _silences(sheet, ordered)).svg()


def _silences(sheet: Sheet, ordered: Sequence[tuple[str, Silence]]) -> None:
    ax, total = sheet.axes[0], sum(silence.total_ms for _, silence in ordered) or 1.0
    for at, (cause, silence) in enumerate(ordered):
        stalled = cause == "nagle_delayed_ack"
        bar = ax.barh(at, silence.total_ms / 1e3, height=0.5, facecolor=STALL if stalled else OTHER, lw=0)[0]
        told = f"{silence.count:,} ×, {number(silence.total_ms / 1e3)} s, {silence.total_ms / total:.0%}"
        sheet.mark(bar, lines(CAUSES.get(cause, cause), told))
        if sheet.wide:
            ax.annotate(told, (silence.total_ms / 1e3, at), (8, 0), textcoords="offset points", va="center")
        else:
            ax.annotate(f"{CAUSES.get(cause, cause)}: {told}", (0, at + 0.3), (2, 2), textcoords="offset points",
                        va="bottom", fontsize="small")  # fmt: skip
    ax.set_yticks(range(len(ordered)), [CAUSES.get(cause, cause) if sheet.wide else "" for cause, _ in ordered])
    ax.set_ylim(-0.6, len(ordered) - (0.4 if sheet.wide else 0.1))
    ax.margins(x=0.45 if sheet.wide else 0.05)
    ax.set_xlim(left=0)
    ax.set_xlabel("seconds of silence")
    ax.xaxis.set_major_locator(MaxNLocator(5))
    ax.grid(axis="y", visible=False)


# ------------------------------------------------------------------------------------- runs and sizes


@dataclass(frozen=True)
class Bar:
    """A variant's figure."""

    name: str
    verdict: str
    value: float


def variants(bars: Sequence[Bar], label: str, unit: str) -> Html:
    """A figure of several variants, on a logarithmic axis, each with its verdict."""
    ordered = list(reversed(bars))
    heights = (90 + 40 * len(bars), 80 + 46 * len(bars))
    return Plot(label, heights, lambda sheet: _variants(sheet, ordered, unit)).svg()


def _variants(sheet: Sheet, ordered: Sequence[Bar], unit: str) -> None:
    ax = sheet.axes[0]
    least = min(bar.value for bar in ordered) / 2
    for at, bar in enumerate(ordered):
        colour = {"STALL": STALL, "CLEAN": CLEAN}.get(bar.verdict, OTHER)
        drawn = ax.barh(at, bar.value - least, left=least, height=0.5, facecolor=colour, lw=0)[0]
        told = f"{number(bar.value)} {unit}, {short(bar.verdict, 30)}"
        sheet.mark(drawn, lines(bar.name, told))
        if sheet.wide:
            ax.annotate(told, (bar.value, at), (8, 0), textcoords="offset points", va="center", fontsize="small")
        else:
            ax.text(least, at + 0.32, f"{short(bar.name, 30)}: {told}", va="bottom", fontsize="small")
    ax.set_yticks(range(len(ordered)), [short(bar.name, 30) if sheet.wide else "" for bar in ordered])
    ax.set_ylim(-0.6, len(ordered) - (0.4 if sheet.wide else 0.1))
    most = max(bar.value for bar in ordered)
    ax.set_xscale("log")
    ax.set_xlim(least, most * (most / least) ** 0.35 if sheet.wide else most * 1.2)
    _decades(sheet, ax)
    ax.set_xlabel(f"{unit} (logarithmic)")
    ax.grid(axis="y", visible=False)


@dataclass(frozen=True)
class SizePoint:
    """One size of a sweep."""

    size: int
    verdict: str
    share: float  # 0 to 1
    tip: Html


def cliff(points: Sequence[SizePoint], edges: Sequence[tuple[int, int]], parameter: str) -> Html:
    """The stalled share over the size; each edge, the two sizes it lies between, is marked."""
    return Plot(f"Sweep of {parameter}", (430, 360), lambda sheet: _cliff(sheet, points, edges, parameter)).svg()


_DOUBLINGS = 8  # from so large a span of sizes on, a logarithmic axis


def _cliff(sheet: Sheet, points: Sequence[SizePoint], edges: Sequence[tuple[int, int]], parameter: str) -> None:
    ax, size = sheet.axes[0], 11 if sheet.wide else 7
    ax.plot([p.size for p in points], [100 * p.share for p in points], color=MUTED, lw=1.5, zorder=2)
    for point in points:
        stalls = point.verdict == "STALL"
        drawn = ax.plot(point.size, 100 * point.share, marker="s" if stalls else "o", ms=size, lw=0,
                        color=STALL if stalls else CLEAN, zorder=3, clip_on=False)[0]  # fmt: skip
        sheet.mark(drawn, point.tip)
    for turn, (below, above) in enumerate(edges):
        ax.axvline((below * above) ** 0.5, color=INK, lw=1.5, ls="--")
        box = {"facecolor": GRID, "edgecolor": "none", "pad": 4}
        ax.text((below * above) ** 0.5, 50 + 14 * (turn % 2), f"{below} | {above}", ha="center", bbox=box)
    if max(p.size for p in points) > _DOUBLINGS * min(p.size for p in points):
        ax.set_xscale("log", base=2)
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    if not sheet.wide:
        ax.tick_params(axis="x", rotation=45)
    ax.set_ylim(-4, 104)
    ax.set_xlabel(short(parameter))
    ax.set_ylabel("stalled, %")
