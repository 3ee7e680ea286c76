"""The figures of a run, and the medians of several runs, for the matrix, its claims and sweeps."""

import statistics
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, get_type_hints

from nagle_lab.diagnosis.result.spread import nearest_rank
from nagle_lab.runs.checks import is_own

if TYPE_CHECKING:
    from nagle_lab.runs.run import Run


@dataclass(frozen=True)
class Measure:
    """The words for a figure, and its unit."""

    words: str
    unit: str = ""


@dataclass(frozen=True)
class Figures:
    """Figures of one run, each with its measure; None: there is none.

    Everything counted in packets is of the connections under test, in the capture nearest the held end; requests and
    their times are the load tool's; the kernels' counters are those of the namespaces at both ends. Shares: 0 to 1.
    """

    stalled_share: Annotated[float, Measure("stalled exchanges, of those after a connection's first")]
    wait_p50_ms: Annotated[float | None, Measure("median wait for the late ACK", "ms")]
    wait_p99_ms: Annotated[float | None, Measure("99th percentile of the wait for the late ACK", "ms")]
    requests_per_s: Annotated[float, Measure("requests per second", "per s")]
    mean_ms: Annotated[float, Measure("mean time of a request", "ms")]
    p50_ms: Annotated[float | None, Measure("median time of a request", "ms")]
    p99_ms: Annotated[float | None, Measure("99th percentile of the time of a request", "ms")]
    packets_per_request: Annotated[float | None, Measure("packets per request")]
    wire_bytes_per_payload_byte: Annotated[float | None, Measure("bytes on the wire per byte of payload")]
    delayed_acks: Annotated[float, Measure("delayed ACKs in the capture")]
    kernel_delayed_acks: Annotated[float | None, Measure("delayed ACKs in the kernels' counters")]


MEASURES: dict[str, Measure] = {
    name: hint.__metadata__[0] for name, hint in get_type_hints(Figures, include_extras=True).items()
}


def figures_of(run: "Run") -> Figures:
    """The figures of one run."""
    capture, load = run.captures[run.best], run.witnesses.load
    total = capture.under_test
    waits = sorted(stall.wait_ms for stall in capture.tested_stalls())
    ends = {end.ip for c in capture.tested for end in (c.client, c.server)}
    return Figures(
        stalled_share=total.stalled_after_first,
        wait_p50_ms=nearest_rank(waits, 50) if waits else None,
        wait_p99_ms=nearest_rank(waits, 99) if waits else None,
        requests_per_s=load.requests_per_s,
        mean_ms=load.mean_ms,
        p50_ms=load.percentiles_ms.get("50"),
        p99_ms=load.percentiles_ms.get("99"),
        packets_per_request=total.packets / load.complete if load.complete else None,
        wire_bytes_per_payload_byte=total.wire_bytes_per_payload_byte,
        delayed_acks=total.delayed_acks,
        kernel_delayed_acks=_kernel_delayed_acks(run, ends),
    )


def _kernel_delayed_acks(run: "Run", ends: Collection[str]) -> float | None:
    """Of the network namespaces that have those addresses; None where one of them is not captured."""
    here = run.manifest.captures[run.best].namespace
    homes = {
        ip: {at for at, of in run.manifest.namespaces.items() if is_own(ip, of.addresses, inside=at == here)}
        for ip in ends
    }
    if not all(homes.values()):
        return None
    return sum(run.witnesses.counters[at].delayed_acks for at in set().union(*homes.values()))


def medians(several: Sequence[Figures]) -> Figures | None:
    """The median of each figure, over the runs that have it; None without runs."""
    if not several:
        return None
    middle: dict[str, float | None] = {}
    for name in asdict(several[0]):
        values = [value for each in several if (value := getattr(each, name)) is not None]
        middle[name] = statistics.median(values) if values else None
    return Figures(**middle)  # type: ignore[arg-type]  # the medians have what every run has
