"""Every long silence inside an exchange, and its one cause.

A silence is the time between two consecutive packets of a connection, at least :data:`MINIMUM`, from its first data
on and without its closing. What ends a silence tells its cause; where an acknowledgement does, that takes the proof
of the whole capture, so :func:`find` collects and :func:`causes` decides.
"""

from enum import StrEnum
from itertools import product

import numpy as np
from numpy.typing import NDArray

from nagle_lab.diagnosis.stalls import LATE, LATEST, MS, is_late
from nagle_lab.tcp.columns import FIN, RST, SYN, Bools, Columns, Ints, Sides
from nagle_lab.tcp.connections import Connections
from nagle_lab.tcp.timeline import LONG, Timeline

MINIMUM = LONG

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


SILENCE = np.dtype(
    [
        ("conn", "i8"), ("gap", "i8"),  # ns
        ("side", "i1"),  # of the packet that ended it
        ("ended_by", "i1"),  # one of the codes below
        ("small", "?"),  # the packet that ended it was smaller than the MSS
        ("reply", "?"),  # the packet before it came from the other side
    ]
)  # fmt: skip
ACKNOWLEDGEMENT, ANSWER, CONTINUATION, AGAIN, OPENING, OTHER = _CODES = range(6)

Rows = NDArray[np.void]
Totals = dict[Cause, tuple[int, int]]  # count and ns


def find(rows: Timeline, known: Connections) -> Columns:
    """The silences that end in the window's new rows: columns of :data:`SILENCE`, and what is known of them so far.

    ``reaction`` is the fastest of its side until now, ns; ``client`` the client's side, -1 if it is not certain.
    """
    at, own, peer, told = rows.noticed.pauses
    closing = (rows.flags[at] & np.uint16(SYN | FIN | RST) != 0) & (rows.length[at] == 0)
    at, own, peer, told = (column[~closing] for column in (at, own, peer, told))
    code = np.full(len(at), OTHER)
    code[rows.is_pure_ack_at(at) & (rows.ack[at] > rows.acked_peer[at])] = ACKNOWLEDGEMENT
    if rows.closed_windows:
        code[_opens(rows, at)] = OPENING
    data = np.flatnonzero(rows.length[at] > 0)
    code[data] = _ended_by_data(rows, at[data], own[data], peer[data], told[data])
    place, side = rows.conn[at], rows.side[at]
    return {
        "conn": known.facts.id[place],
        "gap": rows.gap[at],
        "reaction": known.facts.reaction[place, side],
        "client": known.sure_client_side(place),
        "side": side,
        "ended_by": code,
        "small": rows.length[at] % known.facts.size[place] != 0,
        "reply": side != rows.side[at - 1],
    }


def _ended_by_data(rows: Timeline, at: Ints, own: Ints, peer: Ints, told: Ints) -> Ints:
    """What the rows ``at`` (n,) are, with those before them: :class:`nagle_lab.tcp.loops.shapes.Pauses`."""
    code = np.where(own > peer, CONTINUATION, ANSWER)
    code[rows.start[at] < rows.sent_own[at]] = AGAIN
    edge = rows.ack[told] + rows.window[told]
    was_full = (told >= 0) & (own >= 0) & (rows.sent_own[at] >= edge)  # no room for one more byte
    code[was_full] = OPENING
    return code


def _opens(rows: Timeline, at: Ints) -> Bools:
    """Acknowledgements whose sender's window was closed before: window updates and answers to probes."""
    told = rows.latest_of_own("acking", at)
    return np.asarray((told >= 0) & (rows.window[told] == 0) & (rows.length[at] == 0))


def _cause(ended_by: int, slow: int, reply: bool, corked: bool, client: bool) -> Cause:
    """Of a silence: what ended it, how slow its end was, and whether that replied, corked, and is the client."""
    if ended_by in (AGAIN, OPENING, OTHER):
        return {AGAIN: Cause.RETRANSMISSION, OPENING: Cause.WINDOW, OTHER: Cause.UNKNOWN}[ended_by]
    if ended_by == CONTINUATION and corked:
        return Cause.CORK
    if not slow and (reply or ended_by == ACKNOWLEDGEMENT):
        return Cause.ROUND_TRIP
    if ended_by == ACKNOWLEDGEMENT:
        return Cause.DELAYED_ACK if slow == AS_A_TIMER else Cause.UNKNOWN
    return Cause.CLIENT_THINK if client else Cause.SERVER_THINK


QUICK, AS_A_TIMER, SLOWER = _PACES = range(3)  # like the path, like a delayed-ACK timer, or slower still
_BOTH = (False, True)
_CAUSES = [_cause(*of) for of in product(_CODES, _PACES, _BOTH, _BOTH, _BOTH)]


def causes(found: Rows | Columns, reaction: Ints, client: Sides) -> Totals:
    """Count and total ns by cause, of silences (n,). Who ended them reacts within ``reaction`` (n,) ns at best.

    Those that a stall or a round trip under Nagle explains are not told apart yet: see :func:`explained`.
    """
    gap = np.ascontiguousarray(found["gap"])
    corked = (gap >= CORK_LEAST) & (gap <= CORK_MOST) & found["small"]
    longer = gap - reaction
    number = 3 * found["ended_by"].astype(np.int64) + (longer >= LATE) + (longer >= LATEST)
    for told in (found["reply"], corked, client == found["side"]):
        number = 2 * number + told  # in the list of causes
    counts, totals = np.bincount(number), np.zeros(len(_CAUSES), np.int64)
    np.add.at(totals, number, gap)
    by_cause: Totals = {}
    for i in np.flatnonzero(counts).tolist():
        add(by_cause, {_CAUSES[i]: (int(counts[i]), int(totals[i]))})
    return by_cause


def add(totals: Totals, more: Totals) -> None:
    """Add ``more`` to ``totals``."""
    for cause, (count, ns) in more.items():
        before = totals.get(cause, (0, 0))
        totals[cause] = (before[0] + count, before[1] + ns)


def explained(gap: Ints, reaction: Ints, cause: Cause) -> Totals:
    """What to add when a silence before a triple's ACK has a ``cause`` of its own: it counted as another before.

    ``gap`` (n,) are those silences and ``reaction`` (n,) the fastest of the side that acknowledged, ns.
    """
    long = gap >= MINIMUM
    late = is_late(gap, reaction)
    totals: Totals = {cause: (int(long.sum()), int(gap[long].sum()))}
    for of, before in ((long & late, Cause.DELAYED_ACK), (long & ~late, Cause.ROUND_TRIP)):
        add(totals, {before: (-int(of.sum()), -int(gap[of].sum()))})
    return totals
