"""Figures and names as tables show them: on the screen, in Markdown and in reports."""

from typing import TYPE_CHECKING

from nagle_lab.diagnosis.result.idle_gaps import CAUSES, Cause
from nagle_lab.tcp.events import IDLE, MS

if TYPE_CHECKING:  # a diagnosis needs no runs
    from nagle_lab.diagnosis.result.spread import Spread
    from nagle_lab.runs.figures import Figures

NONE = "–"
IDLE_GAPS = f"Idle gaps of {IDLE // MS} ms and more"
_SHORT_CAUSES = {
    Cause.NAGLE_DELAYED_ACK: "Nagle × delayed ACK",
    Cause.NAGLE_ROUND_TRIP: "Nagle × round trip",
    Cause.WINDOW: "window closed",
    Cause.ROUND_TRIP: "round trip",
}


def share(value: float, decimals: int = 0) -> str:
    """A share, 0 to 1, in percent; a small share never reads 0%, and one below 1 never 100%."""
    percent = f"{value:.{decimals}%}"
    if percent == f"{0:.{decimals}%}" and value > 0:
        return f"{max(value, 0.001):.1%}"
    if percent == f"{1:.{decimals}%}" and value < 1:
        return f"{min(value, 0.999):.1%}"
    return percent


def number(value: float | None) -> str:
    """A number to three figures, with more only before the decimal point: 0.0812, 4.75, 43.9, 9,513."""
    if value is None:
        return NONE
    if value == 0 or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}" if abs(value) >= 0.1 else f"{value:.3g}"


def thousands(value: float) -> str:
    """A count as text: 9,513."""
    return f"{value:,.0f}"


def middle_and_tail(spread: "Spread | None") -> str:
    """Median and 99th percentile of a spread, in its unit."""
    return f"{number(spread.p50)} / {number(spread.p99)}" if spread else NONE


def percentiles(spread: "Spread", *which: str) -> str:
    """The named percentiles of a spread, ms: "p50 43.20, p99 44.10 ms"."""
    return ", ".join(f"{name} {getattr(spread, name):.2f}" for name in which) + " ms"


def request_time(ms: float | None) -> str:
    """Time of a request, ms, as the load tool saw it: ab prints whole milliseconds."""
    return "< 1" if ms == 0 else number(ms)


def cause_name(cause: Cause, *, is_open: bool = False) -> str:
    """The cause of an idle gap, in few words; ``is_open``: it is not known if data waited for some late ACKs."""
    if is_open and cause is Cause.DELAYED_ACK:
        return "delayed ACK, perhaps with data waiting"
    return _SHORT_CAUSES.get(cause) or CAUSES[cause]


def wait(figures: "Figures") -> str:
    """Median and 99th percentile of the wait, ms."""
    if figures.wait_p50_ms is None or figures.wait_p99_ms is None:
        return NONE
    decimals = 1 if figures.wait_p99_ms < 100 else 0
    return f"{figures.wait_p50_ms:.{decimals}f} / {figures.wait_p99_ms:.{decimals}f}"


def ratio(value: float | None) -> str:
    """A ratio to two decimals."""
    return NONE if value is None else f"{value:.2f}"


def delayed_acks(figures: "Figures") -> str:
    """How many delayed ACKs the capture shows, and how many the kernels counted."""
    kernel = NONE if figures.kernel_delayed_acks is None else f"{figures.kernel_delayed_acks:.0f}"
    return f"{figures.delayed_acks:.0f}/{kernel}"


def shortened(name: str, width: int) -> str:
    """A name in ``width`` columns; a longer one keeps both ends: containers of a project differ at the end."""
    if len(name) <= width:
        return name
    last = width // 2
    return f"{name[: width - 1 - last]}…{name[-last:]}"
