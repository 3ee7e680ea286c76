"""Findings → result: what a capture shows, in the contract's fields."""

import math
from bisect import bisect_right
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from msgspec.structs import replace

from nagle_lab.capture.capture import CaptureSoFar
from nagle_lab.diagnosis.ends import End, Ends
from nagle_lab.diagnosis.findings import Findings
from nagle_lab.diagnosis.result.idle_gaps import Cause
from nagle_lab.diagnosis.result.reason import reason_of
from nagle_lab.diagnosis.result.remedy import remedy
from nagle_lab.diagnosis.result.result import (
    SCHEMA,
    CapturedNear,
    CountAndTime,
    Histogram,
    NamedEnd,
    Quality,
    Range,
    Relay,
    Result,
    Role,
    Source,
    Summary,
    UndecidedEnd,
)
from nagle_lab.diagnosis.result.spread import Spread
from nagle_lab.diagnosis.result.verdict import VerdictInput, decide
from nagle_lab.diagnosis.rows import ConnectionRows, ExchangeRows, StallRows, end_of
from nagle_lab.packet.kinds import CUT, REASON, kind_name, link_type_name
from nagle_lab.tcp.durations import Durations
from nagle_lab.tcp.engine import EngineTotals
from nagle_lab.tcp.tables import Table


def summarize(capture: CaptureSoFar, totals: EngineTotals, findings: Findings, exchanges: Table | None) -> Result:
    """The result of a capture, by what a finished engine counted and found; ``exchanges`` lists the exchanges."""
    durations = _judged_durations(totals, findings)
    summary = _summary(totals, findings, durations)
    quality, idle_gaps = _quality(capture, totals, findings), _idle_gaps(findings)
    verdict, reason, undecided = decide(
        VerdictInput(
            totals.segments,
            summary.exchanges,
            summary.stalls,
            quality.damage,
            set_back=capture.set_back,
            one_way=1 - findings.sums.both_ways / totals.connections if totals.connections else 0.0,
            astray_share=findings.astray.share,
            swapped_without_timestamps=findings.astray.swapped_without_timestamps,
            unresolved=findings.obstacles,
            mostly_open=findings.sums.mostly_open,
            asked=findings.asked,
            late_without_stall=findings.late_without_stall,
            chances=findings.rejected.total() + findings.sums.not_held,
            left_out=findings.unwanted.connections if findings.unwanted.connections == totals.connections else 0,
            servers=findings.servers.evidence(),
            cut_off=sum(count for kind, count in totals.not_decoded.items() if kind & REASON == CUT),
            is_of_both_ends=findings.is_of_both_ends or summary.captured_near == "both",
            is_data_only=totals.is_data_only,
            sent_late=findings.sent_late,
        )
    )
    return Result(
        schema=SCHEMA,
        source=_source(capture, totals),
        quality=quality,
        verdict=verdict,
        reason=reason_of(verdict, reason, summary, idle_gaps, findings.obstacles),
        summary=summary,
        idle_gaps=idle_gaps,
        histograms={"wait_ms": _histogram(findings.wait), "exchange_ms": _histogram(durations["total"])},
        connections=ConnectionRows(findings.connections),
        stalls=StallRows(findings),
        exchanges=None if exchanges is None else ExchangeRows(findings, exchanges, totals.first_ts or 0),
        undecided=undecided,
    )


def _damage(capture: CaptureSoFar) -> list[str]:
    """What is wrong with the input; files by their names without folders, as in ``source``."""
    texts = [str(trouble) for trouble in capture.trouble]
    for name in capture.names:
        texts = [text.replace(name, Path(name).name) for text in texts]
    return texts


def _source(capture: CaptureSoFar, totals: EngineTotals) -> Source:
    first = totals.first_ts
    return Source(
        file=" ".join(Path(name).name for name in capture.names),
        sha256=capture.sha256,
        format=capture.format,
        link_type=[link_type_name(number) for number in capture.link_types],
        packets=capture.packets,
        tcp_packets=totals.segments,
        first_time=None if first is None else _utc(first),
        duration_s=0.0 if first is None else round((totals.last_ts - first) / 1e9, 6),
    )


def _quality(capture: CaptureSoFar, totals: EngineTotals, findings: Findings) -> Quality:
    copies = {"TCP seen again on another interface": totals.copies} if totals.copies else {}
    not_decoded: dict[str, int] = {}
    for kind, count in totals.not_decoded.items():
        not_decoded[kind_name(kind)] = not_decoded.get(kind_name(kind), 0) + count
    most_first = sorted(not_decoded.items(), key=lambda item: (-item[1], item[0]))
    return Quality(
        damage=_damage(capture),
        not_decoded=dict(most_first) | copies,
        handshakes=findings.sums.whole["syns"] + findings.unwanted.handshakes,
        refused=findings.sums.refused,
        rejected=dict(findings.rejected),
        unresolved=dict(findings.obstacles),
        kernel_asked={obstacle: count for obstacle, count in findings.asked.items() if count},
        clock_resolution_us=findings.resolution / 1e3,
        astray_share=round(findings.astray.share, 4),
    )


def _summary(totals: EngineTotals, findings: Findings, durations: Mapping[str, Durations]) -> Summary:
    whole, by_role = findings.sums.whole, findings.sums.by_role
    wait, total = _spread(findings.wait), whole["exchanges"]
    held_ends, delayed_ends = (_named_ends(findings, ends) for ends in (findings.held, findings.delayed))
    round_trips = {role: _median(shortest, 10) for role, shortest in findings.sums.round_trip.items()}
    summary = Summary(
        connections=totals.connections,
        exchanges=total,
        repeat_exchanges=whole["repeat_exchanges"],
        decided_exchanges=max(total - findings.unresolved_exchanges - findings.sent_late, 0),
        stalled_exchanges=whole["stalled_exchanges"],
        stalls=whole["stalls"],
        behind_full=findings.behind_full,
        stalled_share=round(whole["stalled_exchanges"] / total, 4) if total else 0.0,
        delayed_acks=sum(by_role["delayed_acks"].values()),
        delayed_acks_by=by_role["delayed_acks"],
        fin_acks_by=by_role["fin_acks"],
        packets_by=by_role["packets"],
        segments_by=by_role["segments"],
        wait_ms=wait,
        hold_ms=_usual_hold(findings),
        release_us=_spread(findings.release),
        round_trip_holds=CountAndTime(len(findings.round_trips), round(findings.round_trips.total / 1e6, 3)),
        grounds=dict(findings.grounds),
        ack_timer_ms=_median(findings.ack_timer, 1e3),
        round_trip_holds_by=dict(findings.waited_by),
        round_trip_us=round_trips,
        captured_near=_captured_near(*round_trips.values()),
        request_to_ack_ms=_spread(durations["to_ack"]),
        request_to_response_ms=_spread(durations["to_response"]),
        exchange_ms=_spread(durations["total"]),
        wire_bytes=sum(by_role["wire"].values()),
        payload_bytes=sum(by_role["payload"].values()),
        lost_ms_total=round(findings.wait.total / 1e6, 3),
        packets_per_exchange=round(totals.segments / total, 2) if total else 0.0,
        held_by=findings.held.role,
        delayed_by=findings.delayed.role,
        held_ends=held_ends,
        delayed_ends=delayed_ends,
        held_ends_by=findings.held.by_role,
        delayed_ends_by=findings.delayed.by_role,
        undecided_ends=_undecided_ends(findings),
        servers=findings.servers.listed(),
        relays=_relays(findings),
        remedy=None,
    )
    return replace(summary, remedy=remedy(summary))


def _judged_durations(totals: EngineTotals, findings: Findings) -> Mapping[str, Durations]:
    """How long exchanges took, by name. They are counted over all connections, so empty if some are not judged."""
    if findings.unwanted.connections:
        return {name: Durations(1) for name in totals.durations}
    return totals.durations


def _idle_gaps(findings: Findings) -> dict[Cause, CountAndTime]:
    by_cause = ((cause, *findings.idle.get(cause, (0, 0))) for cause in Cause)
    return {cause: CountAndTime(count, round(ns / 1e6, 3)) for cause, count, ns in by_cause if count}


_MOST_NAMED = 10


def _named_ends(findings: Findings, ends: Ends) -> list[NamedEnd]:
    """The ends with the most stalls, those first."""
    return [NamedEnd(*_place(findings, end), end.times) for end in ends.most_first()[:_MOST_NAMED]]


def _undecided_ends(findings: Findings) -> list[UndecidedEnd]:
    """The ends with the most left open, those first."""
    ends = findings.undecided.most_first()[:_MOST_NAMED]
    return [UndecidedEnd(*_place(findings, end), dict(sorted(end.unresolved.items()))) for end in ends]


def _place(findings: Findings, end: End) -> tuple[str, int | None, Role]:
    """Its address, its port if it had only one, and its role."""
    endpoint = end_of(findings, end.connection, end.side)
    return endpoint.ip, endpoint.port if len(end.ports) == 1 else None, end.role


def _relays(findings: Findings) -> list[Relay]:
    most = sorted(findings.relays.items(), key=lambda item: (-item[1], item[0]))[:_MOST_NAMED]
    return [Relay(*passed, times) for passed, times in most]


def _usual_hold(findings: Findings) -> Range | None:
    """The hold in the median stall, ms: of the same stalls as the median wait."""
    low, high = _median(findings.held_at_least, 1e3), _median(findings.held_at_most, 1e3)
    return None if low is None or high is None else Range(low, high)


# An end that answers sooner than this is at the capture point, or a switch away.
_AT_AN_END_US = 500.0


def _captured_near(client_us: float | None, server_us: float | None) -> CapturedNear | None:
    """Which end the capture was taken at, by the round trips of handshakes to each end."""
    if client_us is None or server_us is None:
        return None
    if max(client_us, server_us) < _AT_AN_END_US:
        return "both"
    if min(client_us, server_us) < max(_AT_AN_END_US, max(client_us, server_us) / 8):
        return "client" if client_us < server_us else "server"
    return "neither"


def _median(durations: Durations, steps: float) -> float | None:
    """The median, in units of so many steps of the durations."""
    percentiles = durations.percentiles([50])
    return None if percentiles is None else round(percentiles[0] / steps, 3)


def _spread(durations: Durations) -> Spread | None:
    """Percentiles in thousands of the durations' steps: ms of µs, or µs of ns."""
    percentiles = durations.percentiles([50, 95, 99, 100])
    return None if percentiles is None else Spread(*(round(value / 1e3, 3) for value in percentiles))


# Where the bins of a histogram begin, and where they end, µs: 20 per power of ten. The last has no end: ten times its
# begin stands for it.
BEGINS = sorted({0, *(math.ceil(10 ** (place / 20) - 1e-9) for place in range(240))})
ENDS = [*BEGINS[1:], BEGINS[-1] * 10]


def _histogram(durations: Durations) -> Histogram:
    """The histogram of durations counted in µs."""
    counts = dict.fromkeys(range(len(BEGINS)), 0)
    for steps, count in durations.counts.items():
        counts[bisect_right(BEGINS, steps) - 1] += count
    bins = [(BEGINS[place] / 1e3, ENDS[place] / 1e3, count) for place, count in counts.items() if count]
    return Histogram(len(durations), round(durations.total / 1e6, 3), bins)


def _utc(ns: int) -> str:
    return f"{datetime.fromtimestamp(ns // 10**9, UTC):%Y-%m-%dT%H:%M:%S}.{ns % 10**9:09d}Z"
