"""Findings → result: the columns of a capture turned into the contract's fields."""

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from nagle_lab.capture import Capture
from nagle_lab.diagnosis.distribution import Distribution
from nagle_lab.diagnosis.findings import Ends, Findings
from nagle_lab.diagnosis.result import SCHEMA, Endpoint, Histogram, Quality, Result, Silence, Source, Spread, Summary
from nagle_lab.diagnosis.rows import ConnectionRows, ExchangeRows, StallRows, address
from nagle_lab.diagnosis.silences import Cause
from nagle_lab.diagnosis.verdict import Verdict, decide
from nagle_lab.packet import Tally
from nagle_lab.packet.kinds import link_type_name
from nagle_lab.tcp.columns import distinct


@dataclass(frozen=True)
class Seen:
    """How much of TCP a capture holds: packets, and the times of the first and the last in ns."""

    packets: int
    connections: int
    copies: int  # packets left out because another interface had shown them
    first_ts: int | None
    last_ts: int


def summarize(capture: Capture, tally: Tally, seen: Seen, found: Findings) -> Result:
    """The result of a capture that was read to its end."""
    summary = _summary(seen, found)
    stalls = 0 if capture.set_back else summary.stalls  # a clock that was set proves nothing
    kept = found.exchanges.kept
    verdict, reason = decide(seen.packets, summary.exchanges, stalls, _damage(capture))
    return Result(
        schema=SCHEMA,
        source=_source(capture, seen),
        quality=_quality(capture, tally, seen, found),
        verdict=verdict,
        reason=_stall_reason(found, summary) if verdict is Verdict.STALL else reason,
        summary=summary,
        silences=_silences(found),
        histograms={"wait_ms": _histogram(found.wait), "exchange_ms": _histogram(found.exchanges.total)},
        connections=ConnectionRows(found),
        stalls=StallRows(found),
        exchanges=None if kept is None else ExchangeRows(found, kept, seen.first_ts or 0),
    )


def _damage(capture: Capture) -> list[str]:
    """What is wrong with the input; files by their names without folders, as in ``source``."""
    texts = [str(trouble) for trouble in capture.trouble]
    for name in capture.names:
        texts = [text.replace(name, Path(name).name) for text in texts]
    return texts


def _source(capture: Capture, seen: Seen) -> Source:
    first = seen.first_ts
    return Source(
        file=" ".join(Path(name).name for name in capture.names),
        sha256=capture.sha256,
        format=capture.format,
        link_type=[link_type_name(number) for number in capture.link_types],
        packets=capture.packets,
        tcp_packets=seen.packets,
        first_time=None if first is None else _utc(first),
        duration_s=0.0 if first is None else round((seen.last_ts - first) / 1e9, 6),
    )


def _quality(capture: Capture, tally: Tally, seen: Seen, found: Findings) -> Quality:
    copies = {"TCP seen again on another interface": seen.copies} if seen.copies else {}
    return Quality(
        damage=_damage(capture),
        not_decoded=tally.as_dict() | copies,
        handshakes=found.totals.whole["handshake"],
        rejected=dict(found.rejected),
    )


def _summary(seen: Seen, found: Findings) -> Summary:
    whole, by_role = found.totals.whole, found.totals.by_role
    wait, total = _spread(found.wait), whole["answered"]
    round_trips = {role: _median(shortest, 10) for role, shortest in found.totals.round_trip.items()}
    return Summary(
        connections=seen.connections,
        exchanges=total,
        repeat_exchanges=whole["repeat"],
        stalled_exchanges=whole["stalled"],
        stalls=whole["stalls"],
        stalled_share=round(whole["stalled"] / total, 4) if total else 0.0,
        delayed_acks=sum(by_role["delayed_acks"].values()),
        delayed_acks_by=by_role["delayed_acks"],
        fin_acks_by_timer=by_role["fin_acks"],
        packets_by=by_role["packets"],
        segments_by=by_role["segments"],
        wait_ms=wait,
        release_us=_spread(found.release),
        ack_timer_ms=_median(found.timer, 1e3),
        round_trip_us=round_trips,
        captured_near=_near(*round_trips.values()),
        request_to_ack_ms=_spread(found.exchanges.to_ack),
        request_to_response_ms=_spread(found.exchanges.to_response),
        exchange_ms=_spread(found.exchanges.total),
        wire_bytes=sum(by_role["wire"].values()),
        payload_bytes=sum(by_role["payload"].values()),
        lost_ms_total=round(found.wait.total / 1e6, 3),
        packets_per_exchange=round(seen.packets / total, 2) if total else 0.0,
        held_by=found.held.role,
        delayed_by=found.delayed.role,
        remedy=_remedy(found, wait),
    )


def _silences(found: Findings) -> dict[str, Silence]:
    by_cause = ((cause, *found.silences.get(cause, (0, 0))) for cause in Cause)
    return {cause.value: Silence(count, round(ns / 1e6, 3)) for cause, count, ns in by_cause if count}


def _stall_reason(found: Findings, summary: Summary) -> str:
    assert summary.wait_ms
    held, delayed = _named(found.held), _named(found.delayed)
    return (
        f"{summary.stalled_exchanges} of {summary.exchanges} exchanges waited for a delayed ACK: "
        f"{held} held a small segment until {delayed} acknowledged the one before it, "
        f"{summary.wait_ms.p50:.1f} ms later (median)"
    )


def _named(ends: Ends) -> str:
    """ "the server (10.0.0.2:80)" for one end, "the client" for many, else "both ends"."""
    if ends.role == "both":
        return "both ends"
    if ends.only is None:
        return f"the {ends.role}"
    hi, lo, port = ends.only
    return f"the {ends.role} ({Endpoint(address(hi, lo), port, str(ends.role))})"


def _remedy(found: Findings, wait: Spread | None) -> str | None:
    if not wait:
        return None
    held, delayed = _named(found.held), _named(found.delayed)
    return (
        f"Set TCP_NODELAY on {held}, or write there at once what belongs together; or let {delayed} acknowledge "
        f"at once (TCP_QUICKACK, `ip route … quickack 1`). Saves up to {wait.p50:.1f} ms per stalled exchange."
    )


# An end that answers sooner than this is at the capture point, or a switch away.
_NEAR_US = 500.0


def _near(client_us: float | None, server_us: float | None) -> str | None:
    """Which end the capture was taken at: its handshake packets come and go sooner than the other's."""
    if client_us is None or server_us is None:
        return None
    if max(client_us, server_us) < _NEAR_US:
        return "both"
    if min(client_us, server_us) < max(_NEAR_US, max(client_us, server_us) / 8):
        return "client" if client_us < server_us else "server"
    return "neither"


def _median(durations: Distribution, steps: float) -> float | None:
    """The median in units of so many of the distribution's steps."""
    percentiles = durations.percentiles([50])
    return None if percentiles is None else round(float(percentiles[0]) / steps, 3)


def _spread(durations: Distribution) -> Spread | None:
    """Percentiles in thousands of the distribution's steps: ms of µs, or µs of ns."""
    percentiles = durations.percentiles([50, 95, 99, 100])
    return None if percentiles is None else Spread(*(round(value / 1e3, 3) for value in percentiles.tolist()))


# Edges of the bins of a histogram, µs: 20 for a power of ten, and the last bin has no end.
_EDGES = distinct(np.append(0, np.ceil(10 ** (np.arange(240) / 20) - 1e-9)).astype(np.int64))


def _histogram(durations: Distribution) -> Histogram:
    """Of a distribution that counts in µs."""
    counts = durations.bins(np.append(_EDGES, np.iinfo(np.int64).max))
    edges = [*(_EDGES / 1e3).tolist(), float(_EDGES[-1]) / 1e2]
    bins = [(edges[i], edges[i + 1], int(counts[i])) for i in np.flatnonzero(counts)]
    return Histogram(int(counts.sum()), round(durations.total / 1e6, 3), bins)


def _utc(ns: int) -> str:
    return f"{datetime.fromtimestamp(ns // 10**9, UTC):%Y-%m-%dT%H:%M:%S}.{ns % 10**9:09d}Z"
