"""The figures of a run, and the medians of several: what the matrix, its claims and a sweep are made of."""

import math
import statistics
from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields

from nagle_lab.runs.checks import is_own
from nagle_lab.runs.run import Run


@dataclass(frozen=True)
class Figures:
    """Figures of one run; ``lab.measures`` says what each is and its unit. None: there is none.

    Everything counted in packets is of the connections under test, in the capture nearest the held end; requests and
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
    kernel_delayed_acks: float | None


def figures_of(run: Run) -> Figures:
    """The figures of one run."""
    capture, load = run.captures[run.best], run.witnesses.load
    total = capture.under_test
    waits = sorted(stall.wait_ms for stall in capture.tested_stalls())
    ends = {end.ip for c in capture.tested for end in (c.client, c.server)}
    return Figures(
        stalled_share=total.stalled_after_first,
        wait_p50_ms=_percentile(waits, 50),
        wait_p99_ms=_percentile(waits, 99),
        requests_per_s=load.requests_per_s,
        mean_ms=load.mean_ms,
        p50_ms=load.percentiles_ms.get("50"),
        p99_ms=load.percentiles_ms.get("99"),
        packets_per_request=total.packets / load.complete if load.complete else None,
        wire_bytes_per_payload_byte=total.wire_bytes / total.payload_bytes if total.payload_bytes else None,
        delayed_acks=total.delayed_acks,
        kernel_delayed_acks=_kernel_delayed_acks(run, ends),
    )


def _kernel_delayed_acks(run: Run, ends: Collection[str]) -> float | None:
    """Of the network namespaces that have those addresses; None where one of them is not captured."""
    here = run.manifest.captures[run.best].namespace
    homes = {
        ip: {at for at, of in run.manifest.namespaces.items() if is_own(ip, of.addresses, inside=at == here)}
        for ip in ends
    }
    if not all(homes.values()):
        return None
    return sum(run.witnesses.counters[at].grown("TcpExt.DelayedACKs") for at in set().union(*homes.values()))


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
