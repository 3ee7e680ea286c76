"""Every long silence inside an exchange, and its one cause.

A silence is the time between two consecutive packets of a connection, at least :data:`MINIMUM`, from its first data
on and without its closing. What ends a silence tells its cause; where an acknowledgement does, that takes the proof
of the whole capture, so :func:`find` collects and :func:`causes` decides.
"""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from nagle_lab.connections import Connections
from nagle_lab.stalls import MS, Proof, is_late
from nagle_lab.timeline import ACK, FIN, RST, SYN, Bools, Ints, Timeline, joined, narrow

MINIMUM = 20 * MS

# TCP_CORK lets a partial segment go after 200 ms (tcp(7)): from the probe timer, which is the RTO, so 200 ms
# (TCP_RTO_MIN) and some of the smoothed round trip, which late ACKs feed (tcp_check_probe_timer).
CORK_LEAST, CORK_MOST = 196 * MS, 260 * MS


class Cause(StrEnum):
    """Why nothing was on the wire."""

    NAGLE_DELAYED_ACK = "nagle_delayed_ack"  # the stall: held until a late ACK
    NAGLE_ROUND_TRIP = "nagle_round_trip"  # held until an ACK that took the path's round trip
    DELAYED_ACK = "delayed_ack"  # a late ACK that nothing waited for
    SERVER_THINK = "server_think"
    CLIENT_THINK = "client_think"
    CORK = "cork"
    RETRANSMISSION = "retransmission"  # until the RTO or the tail-loss probe (RFC 6298, RFC 8985)
    WINDOW = "window"  # the receiver's window was zero or full
    ROUND_TRIP = "round_trip"  # no longer than the path's round trip
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Silences:
    """Silences, one row each, (n,), times in ns; ``ended_by`` is one of the codes below."""

    conn: Ints
    side: Ints  # of the packet that ended it
    gap: Ints
    frame: Ints  # of the packet that ended it
    ended_by: Ints
    small: Ints  # 1 when the packet that ended it was smaller than the MSS
    reply: Ints  # 1 when the packet before it came from the other side

    def __len__(self) -> int:
        return len(self.conn)

    @staticmethod
    def join(parts: "list[Silences]") -> "Silences":
        """All rows of all parts."""
        return Silences(**joined(_TYPES, parts))


_TYPES: dict[str, type[np.generic]] = {
    "conn": np.int32, "side": np.int8, "gap": np.int64, "frame": np.uint32, "ended_by": np.int8, "small": np.int8,
    "reply": np.int8,
}  # fmt: skip
ACKNOWLEDGEMENT, ANSWER, CONTINUATION, AGAIN, OPENING, OTHER = range(6)


def find(rows: Timeline, segment_size: Ints) -> Silences:
    """The silences that end in the window's new rows; ``segment_size`` is (n,), bytes."""
    gap = np.diff(rows.ts, prepend=rows.ts[:1])
    gap[rows.starts] = 0
    at = np.flatnonzero((gap >= MINIMUM) & ~rows.carried)
    if not len(at):
        return Silences.join([])
    has_ack = (rows.flags & np.uint16(ACK)) != 0
    own, peer = rows.latest_of_own(rows.is_data, at), rows.latest_of_peer(rows.is_data, at)
    own_window, peer_window = rows.latest_of_own(has_ack, at), rows.latest_of_peer(has_ack, at)
    code = np.full(len(at), OTHER)
    is_data = rows.length[at] > 0
    code[is_data & (own > peer)] = CONTINUATION
    code[is_data & (peer > own)] = ANSWER
    code[rows.is_pure_ack[at] & (rows.ack[at] > rows.acked_peer[at])] = ACKNOWLEDGEMENT
    code[is_data & (rows.start[at] < rows.sent_own[at])] = AGAIN
    code[_opens(rows, at, own_window) | _was_full(rows, at, own, peer_window)] = OPENING
    closing = (rows.flags[at] & (SYN | FIN | RST) != 0) & (rows.length[at] == 0)
    counted = (np.maximum(own, peer) >= 0) & ~closing
    at, code = at[counted], code[counted]
    columns = narrow(
        _TYPES,
        conn=rows.conn[at],
        side=rows.side[at],
        gap=gap[at],
        frame=rows.frame[at],
        ended_by=code,
        small=rows.length[at] % segment_size[at] != 0,
        reply=rows.side[at] != rows.side[at - 1],
    )
    return Silences(**columns)


def _opens(rows: Timeline, at: Ints, own_window: Ints) -> Bools:
    """Acknowledgements whose sender's window was closed before: window updates and answers to probes."""
    closed = (own_window >= 0) & (rows.window[np.maximum(own_window, 0)] == 0)
    return np.asarray(closed & (rows.length[at] == 0))


def _was_full(rows: Timeline, at: Ints, own: Ints, peer_window: Ints) -> Bools:
    """Data of a sender whose peer's window had no room for one more byte."""
    known = (peer_window >= 0) & (own >= 0)
    edge = rows.ack[np.maximum(peer_window, 0)] + rows.window[np.maximum(peer_window, 0)]
    return np.asarray(known & (rows.length[at] > 0) & (rows.sent_own[at] >= edge))


def causes(found: Silences, proof: Proof, connections: Connections) -> dict[Cause, tuple[int, int]]:
    """Count and total ns by cause, for the causes that occur."""
    cause = _cause_of(found, proof, connections)
    counts = np.bincount(cause, minlength=len(Cause))
    totals = np.bincount(cause, weights=found.gap, minlength=len(Cause))
    return {c: (int(counts[i]), int(totals[i])) for i, c in enumerate(Cause) if counts[i]}


def _cause_of(found: Silences, proof: Proof, connections: Connections) -> NDArray[np.int64]:
    """Index into :class:`Cause` of each silence, (n,)."""
    number = {c: i for i, c in enumerate(Cause)}
    client = connections.client_side()[found.conn] == found.side
    late = is_late(found.conn, found.side, found.gap, connections)
    think = np.where(client, number[Cause.CLIENT_THINK], number[Cause.SERVER_THINK])
    ack = np.where(late, number[Cause.DELAYED_ACK], number[Cause.ROUND_TRIP])
    ack = np.where(np.isin(found.frame, proof.round_trips), number[Cause.NAGLE_ROUND_TRIP], ack)
    ack = np.where(np.isin(found.frame, proof.stalls.ack_frame), number[Cause.NAGLE_DELAYED_ACK], ack)
    paused = late | (found.reply == 0)
    corked = (found.gap >= CORK_LEAST) & (found.gap <= CORK_MOST) & (found.small == 1)
    by_code = {
        ACKNOWLEDGEMENT: ack,
        ANSWER: np.where(paused, think, number[Cause.ROUND_TRIP]),
        CONTINUATION: np.where(corked, number[Cause.CORK], np.where(paused, think, number[Cause.ROUND_TRIP])),
        AGAIN: np.full(len(found), number[Cause.RETRANSMISSION]),
        OPENING: np.full(len(found), number[Cause.WINDOW]),
        OTHER: np.full(len(found), number[Cause.UNKNOWN]),
    }
    return np.choose(found.ended_by, [by_code[code] for code in range(6)])
