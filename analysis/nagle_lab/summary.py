"""Findings → result: the columns of a capture turned into the contract's fields."""

from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from nagle_lab.capture import Capture
from nagle_lab.findings import ROLES, Findings
from nagle_lab.packets import Tally
from nagle_lab.packets.kinds import link_type_name
from nagle_lab.result import SCHEMA, Quality, Result, Silence, Source, Spread, Summary
from nagle_lab.rows import ConnectionRows, StallRows, only_endpoint
from nagle_lab.silences import causes
from nagle_lab.timeline import Ints
from nagle_lab.verdict import Verdict, decide


def summarize(capture: Capture, tally: Tally, found: Findings) -> Result:
    """The result of a capture that was read to its end."""
    summary = _summary(found)
    verdict, reason = decide(found.tcp_packets, summary.exchanges, summary.stalls, _damage(capture))
    return Result(
        schema=SCHEMA,
        source=_source(capture, found),
        quality=_quality(capture, tally, found),
        verdict=verdict,
        reason=_stall_reason(found, summary) if verdict is Verdict.STALL else reason,
        summary=summary,
        silences=_silences(found),
        connections=ConnectionRows(found),
        stalls=StallRows(found),
    )


def _damage(capture: Capture) -> list[str]:
    """What is wrong with the input; files by their names without folders, as in ``source``."""
    texts = [str(trouble) for trouble in capture.trouble]
    for name in capture.names:
        texts = [text.replace(name, Path(name).name) for text in texts]
    return texts


def _source(capture: Capture, found: Findings) -> Source:
    first = found.first_ts
    return Source(
        file=" ".join(Path(name).name for name in capture.names),
        sha256=capture.sha256,
        format=capture.format,
        link_type=[link_type_name(number) for number in capture.link_types],
        packets=capture.packets,
        tcp_packets=found.tcp_packets,
        first_time=None if first is None else _utc(first),
        duration_s=0.0 if first is None else round((found.last_ts - first) / 1e9, 6),
    )


def _quality(capture: Capture, tally: Tally, found: Findings) -> Quality:
    p = found.proof
    return Quality(
        damage=_damage(capture),
        not_decoded=tally.as_dict() | _copies(found),
        handshakes=int(found.connections.handshakes().sum()),
        rejected={
            "nagle_off": p.nagle_off,
            "not_late": p.not_late,
            "later_release": p.later_release,
            "coincidence": p.coincidence,
        },
    )


def _summary(found: Findings) -> Summary:
    proved, exchanges = found.proof.stalls, found.exchanges
    wait = _spread(proved.wait, 1e6)
    total = len(found.counted)
    delayed_acks, facts = found.by_role(found.delayed_acks), found.connections.facts
    return Summary(
        connections=found.connections.count,
        exchanges=total,
        repeat_exchanges=int((found.counted % (1 << 32) > 0).sum()),
        stalled_exchanges=len(found.stalled),
        stalls=len(proved),
        stalled_share=round(len(found.stalled) / total, 4) if total else 0.0,
        delayed_acks=sum(delayed_acks.values()),
        delayed_acks_by=delayed_acks,
        fin_acks_by_timer=found.by_role(found.fin_acks),
        packets_by=found.by_role(facts.packets),
        segments_by=found.by_role(facts.segments),
        wait_ms=wait,
        release_us=_spread(proved.release, 1e3),
        request_to_ack_ms=_spread(exchanges.to_ack, 1e6),
        request_to_response_ms=_spread(exchanges.to_response, 1e6),
        exchange_ms=_spread(exchanges.total, 1e6),
        wire_bytes=int(facts.wire.sum()),
        payload_bytes=int(facts.payload.sum()),
        lost_ms_total=round(float(proved.wait.sum()) / 1e6, 3),
        packets_per_exchange=round(found.tcp_packets / total, 2) if total else 0.0,
        held_by=_role(found, proved.conn, proved.side),
        delayed_by=_role(found, proved.conn, 1 - proved.side),
        remedy=_remedy(found, wait),
    )


def _copies(found: Findings) -> dict[str, int]:
    copies = found.connections.copies
    return {"TCP seen again on another interface": copies} if copies else {}


def _silences(found: Findings) -> dict[str, Silence]:
    by_cause = causes(found.silences, found.proof, found.connections)
    return {cause.value: Silence(count, round(ns / 1e6, 3)) for cause, (count, ns) in by_cause.items()}


def _stall_reason(found: Findings, summary: Summary) -> str:
    assert summary.wait_ms
    held, delayed = _ends(found)
    return (
        f"{summary.stalled_exchanges} of {summary.exchanges} exchanges waited for a delayed ACK: "
        f"{held} held a small segment until {delayed} acknowledged the one before it, "
        f"{summary.wait_ms.p50:.1f} ms later (median)"
    )


def _ends(found: Findings) -> tuple[str, str]:
    """Who held and who delayed: "the server (10.0.0.2:80)" for one end, "the client" for many, else "both ends"."""
    conn, side = found.proof.stalls.conn, found.proof.stalls.side
    named = []
    for s in (side, 1 - side):
        role, only = _role(found, conn, s), only_endpoint(found, conn, s)
        named.append("both ends" if role == "both" else f"the {role} ({only})" if only else f"the {role}")
    return named[0], named[1]


def _role(found: Findings, conn: Ints, side: Ints) -> str | None:
    """The role all of those sides have; "both" when they differ; None when there is none."""
    is_server = side != found.client[conn]
    if not len(conn):
        return None
    return ROLES[int(is_server[0])] if (is_server == is_server[0]).all() else "both"


def _remedy(found: Findings, wait: Spread | None) -> str | None:
    if not wait:
        return None
    held, delayed = _ends(found)
    return (
        f"Set TCP_NODELAY on {held}, or write there at once what belongs together; or let {delayed} acknowledge "
        f"at once (TCP_QUICKACK, `ip route … quickack 1`). Saves up to {wait.p50:.1f} ms per stalled exchange."
    )


def _spread(values: Ints | NDArray[np.float32], unit_ns: float) -> Spread | None:
    seen = values[~np.isnan(values)] if values.dtype.kind == "f" else values
    if not len(seen):
        return None
    at = np.percentile(seen, [50, 95, 99, 100], method="inverted_cdf") / unit_ns
    return Spread(*(round(float(v), 3) for v in at))


def _utc(ns: int) -> str:
    return f"{datetime.fromtimestamp(ns // 10**9, UTC):%Y-%m-%dT%H:%M:%S}.{ns % 10**9:09d}Z"
