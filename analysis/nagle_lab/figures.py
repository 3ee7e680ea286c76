"""The figures of a judged run, and the medians of several: what the matrix, its claims and a sweep are made of."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, fields

from nagle_lab.checks import grown
from nagle_lab.runs import Run


@dataclass(frozen=True)
class Figures:
    """Figures of one run; ``lab.measures`` says what each is and its unit. None: there is none.

    Everything counted in packets is of the judged connections, in the capture nearest the held end; requests and
    their times are the load tool's.
    """

    stalled_share: float
    wait_p50_ms: float | None
    wait_p99_ms: float | None
    requests_per_s: float
    mean_ms: float
    p50_ms: float | None
    p99_ms: float | None
    packets_per_request: float | None
    wire_bytes_per_payload_byte: float | None
    delayed_acks: float
    kernel_delayed_acks: float


def figures_of(run: Run) -> Figures:
    """The figures of one run."""
    seen, load = run.captures[run.best], run.witnesses["load"]
    mine, times = seen.judged, load.get("percentiles_ms") or {}
    judged = {c.id for c in seen.connections if seen.port in (None, c.server.port)}
    waits = sorted(stall.wait_ms for stall in seen.result.stalls if stall.connection in judged)
    return Figures(
        stalled_share=mine.stalled_after_first,
        wait_p50_ms=_percentile(waits, 50),
        wait_p99_ms=_percentile(waits, 99),
        requests_per_s=load["requests_per_s"],
        mean_ms=load["mean_ms"],
        p50_ms=times.get("50"),
        p99_ms=times.get("99"),
        packets_per_request=mine.packets / load["complete"] if load["complete"] else None,
        wire_bytes_per_payload_byte=mine.wire_bytes / mine.payload_bytes if mine.payload_bytes else None,
        delayed_acks=sum(
            run.traffic(capture["namespace"], name).delayed_acks for name, capture in run.manifest["captures"].items()
        ),
        kernel_delayed_acks=sum(
            grown(counters, "TcpExt.DelayedACKs") for counters in run.witnesses["counters"].values()
        ),
    )


def medians(several: Sequence[Figures]) -> Figures | None:
    """The median of each figure, over the runs that have it; None of no runs."""
    if not several:
        return None
    found: dict[str, float | None] = {}
    for name in (field.name for field in fields(Figures)):
        values = [value for each in several if (value := getattr(each, name)) is not None]
        found[name] = statistics.median(values) if values else None
    return Figures(**found)  # type: ignore[arg-type]  # what every run has, the medians have


def _percentile(ordered: Sequence[float], percent: int) -> float | None:
    """By nearest rank: a value that was observed."""
    return ordered[max(1, math.ceil(percent / 100 * len(ordered))) - 1] if ordered else None
