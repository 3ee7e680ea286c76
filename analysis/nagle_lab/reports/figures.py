"""Figures as they stand in tables, on the screen and in Markdown."""

from nagle_lab.runs.figures import Figures

NONE = "–"


def share(value: float) -> str:
    """A share, 0 to 1, in percent; a little is never shown as nothing, nor nearly all as all."""
    percent = f"{value:.0%}"
    return f"{value:.1%}" if (percent == "0%" and value > 0) or (percent == "100%" and value < 1) else percent


def number(value: float | None) -> str:
    """Three figures, more only before the decimal point: 0.0812, 4.75, 43.9, 9,513."""
    if value is None:
        return NONE
    if value == 0 or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}" if abs(value) >= 0.1 else f"{value:.3g}"


def wait(figures: Figures) -> str:
    """Median and 99th percentile of the wait, ms."""
    if figures.wait_p50_ms is None or figures.wait_p99_ms is None:
        return NONE
    decimals = 1 if figures.wait_p99_ms < 100 else 0
    return f"{figures.wait_p50_ms:.{decimals}f} / {figures.wait_p99_ms:.{decimals}f}"


def ratio(value: float | None) -> str:
    """Two decimals."""
    return NONE if value is None else f"{value:.2f}"


def delayed_acks(figures: Figures) -> str:
    """In the capture and in the kernels."""
    kernel = NONE if figures.kernel_delayed_acks is None else f"{figures.kernel_delayed_acks:.0f}"
    return f"{figures.delayed_acks:.0f}/{kernel}"
