"""Findings → result: the columns of a capture turned into the contract's fields."""

import ipaddress
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from nagle_lab.capture import Capture
from nagle_lab.findings import ROLES, Findings
from nagle_lab.packets import Tally
from nagle_lab.packets.kinds import link_type_name
from nagle_lab.result import SCHEMA, Connection, Endpoint, Quality, Result, Source, Spread, Stall, Summary
from nagle_lab.stalls import Triples
from nagle_lab.timeline import Ints
from nagle_lab.verdict import Verdict, decide


def summarize(capture: Capture, tally: Tally, found: Findings) -> Result:
    """The result of a capture that was read to its end."""
    stalls = _stalls(found)
    summary = _summary(found, stalls)
    verdict, reason = decide(found.tcp_packets, summary.exchanges, summary.stalls, _damage(capture))
    return Result(
        schema=SCHEMA,
        source=_source(capture, found),
        quality=_quality(capture, tally, found),
        verdict=verdict,
        reason=_stall_reason(summary, stalls) if verdict is Verdict.STALL else reason,
        summary=summary,
        connections=_connections(found),
        stalls=stalls,
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
        not_decoded=tally.as_dict(),
        handshakes=int(found.connections.handshakes().sum()),
        rejected={
            "nagle_off": p.nagle_off,
            "not_late": p.not_late,
            "later_release": p.later_release,
            "coincidence": p.coincidence,
        },
    )


def _summary(found: Findings, stalls: list[Stall]) -> Summary:
    proved, exchanges = found.proof.stalls, found.exchanges
    total = len(found.counted)
    delayed_acks = found.delayed_acks()
    return Summary(
        connections=found.connections.count,
        exchanges=total,
        repeat_exchanges=int((found.counted % (1 << 32) > 0).sum()),
        stalled_exchanges=len(found.stalled),
        stalls=len(stalls),
        stalled_share=round(len(found.stalled) / total, 4) if total else 0.0,
        delayed_acks=sum(delayed_acks.values()),
        delayed_acks_by=delayed_acks,
        packets_by=found.packets_sent(),
        segments_by=found.segments_sent(),
        wait_ms=_spread(proved.wait, 1e6),
        release_us=_spread(proved.release, 1e3),
        request_to_ack_ms=_spread(exchanges.to_ack, 1e6),
        request_to_response_ms=_spread(exchanges.to_response, 1e6),
        exchange_ms=_spread(exchanges.total, 1e6),
        lost_ms_total=round(float(proved.wait.sum()) / 1e6, 3),
        packets_per_exchange=round(found.tcp_packets / total, 2) if total else 0.0,
        held_by=_one({s.held_by.role for s in stalls}),
        delayed_by=_one({s.delayed_by.role for s in stalls}),
        remedy=_remedy(stalls),
    )


def _stall_reason(summary: Summary, stalls: list[Stall]) -> str:
    assert summary.wait_ms
    return (
        f"{summary.stalled_exchanges} of {summary.exchanges} exchanges waited for a delayed ACK: "
        f"{_ends({s.held_by for s in stalls})} held a small segment until {_ends({s.delayed_by for s in stalls})} "
        f"acknowledged the one before it, {summary.wait_ms.p50:.1f} ms later (median)"
    )


def _ends(ends: set[Endpoint]) -> str:
    """ "the server (10.0.0.2:80)" for one end, "the client" for many of one role, else "both ends"."""
    role = _one({e.role for e in ends})
    named = f"the {role} ({next(iter(ends))})" if len(ends) == 1 else f"the {role}"
    return named if role in ROLES else "both ends"


def _one(values: set[str]) -> str | None:
    """The value all agree on; "both" when they do not; None when there is none."""
    return next(iter(values)) if len(values) == 1 else ("both" if values else None)


def _remedy(stalls: list[Stall]) -> str | None:
    if not stalls:
        return None
    per_exchange = sorted(s.wait_ms for s in stalls)[len(stalls) // 2]
    held = _ends({s.held_by for s in stalls})
    delayed = _ends({s.delayed_by for s in stalls})
    return (
        f"Set TCP_NODELAY on {held}, or write there at once what belongs together; or let {delayed} acknowledge "
        f"at once (TCP_QUICKACK, `ip route … quickack 1`). Saves up to {per_exchange:.1f} ms per stalled exchange."
    )


def _spread(values: Ints | NDArray[np.float32], unit_ns: float) -> Spread | None:
    seen = values[~np.isnan(values)] if values.dtype.kind == "f" else values
    if not len(seen):
        return None
    at = np.percentile(seen, [50, 95, 99, 100], method="inverted_cdf") / unit_ns
    return Spread(*(round(float(v), 3) for v in at))


def _connections(found: Findings) -> list[Connection]:
    f, n = found.connections.facts, found.connections.count
    conn = found.counted >> 32
    exchanges = np.bincount(conn, minlength=n)
    stalled_conn = found.stalled >> 32
    stalled = np.bincount(stalled_conn, minlength=n)
    stalls = np.bincount(found.proof.stalls.conn, minlength=n)
    first = np.full(n, -1)
    first[stalled_conn[::-1]] = (found.stalled & 0xFFFFFFFF)[::-1]  # reversed: the earliest is written last
    size, handshake = found.connections.segment_size(), found.connections.handshakes()
    return [
        Connection(
            id=i,
            client=_endpoint(found, i, int(found.client[i])),
            server=_endpoint(found, i, 1 - int(found.client[i])),
            first_frame=int(f.first_frame[i]),
            packets=int(f.packets[i]),
            handshake=bool(handshake[i]),
            mss=int(size[i]),
            exchanges=int(exchanges[i]),
            stalled_exchanges=int(stalled[i]),
            stalls=int(stalls[i]),
            first_stalled_exchange=int(first[i]) + 1 if first[i] >= 0 else None,
        )
        for i in range(n)
    ]


def _stalls(found: Findings) -> list[Stall]:
    return [
        Stall(
            connection=conn,
            exchange=exchange + 1,
            held_by=_endpoint(found, conn, side),
            delayed_by=_endpoint(found, conn, 1 - side),
            trigger_frame=trigger,
            ack_frame=ack,
            release_frame=release,
            wait_ms=round(wait / 1e6, 3),
            release_us=round(gap / 1e3, 3),
            trigger_bytes=size,
            released_bytes=released,
        )
        for conn, side, exchange, trigger, ack, release, wait, gap, size, released in _rows(found.proof.stalls)
    ]


def _endpoint(found: Findings, conn: int, side: int) -> Endpoint:
    f = found.connections.facts
    ip = _address(int(f.hi[conn, side]), int(f.lo[conn, side]))
    return Endpoint(ip, int(f.port[conn, side]), ROLES[int(side != found.client[conn])])


def _rows(t: Triples) -> Iterable[tuple[int, ...]]:
    columns = (
        t.conn, t.side, t.exchange, t.trigger_frame, t.ack_frame, t.release_frame, t.wait, t.release,
        t.trigger_bytes, t.released_bytes,
    )  # fmt: skip
    return zip(*(c.tolist() for c in columns), strict=True)


def _address(hi: int, lo: int) -> str:
    v6 = ipaddress.IPv6Address(hi << 64 | lo)
    return str(v6.ipv4_mapped or v6)


def _utc(ns: int) -> str:
    return f"{datetime.fromtimestamp(ns // 10**9, UTC):%Y-%m-%dT%H:%M:%S}.{ns % 10**9:09d}Z"
