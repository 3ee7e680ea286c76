"""The one cause of every idle gap of a connection (:func:`cause_of`).

An idle gap is the time between two consecutive packets of a connection, at least ``IDLE`` (tcp/events.py), from its
first data on and without its closing. What ended it shows its cause; if an acknowledgement did, the proof of the
whole capture decides (:func:`recategorized`).
"""

from collections.abc import Mapping
from enum import IntEnum, StrEnum

from nagle_lab.diagnosis.observed.columns import (
    Column,
    counts,
    distinct,
    pick,
    ranks,
    rows_where,
    select,
    tally,
    total,
)
from nagle_lab.diagnosis.observed.enough import HARDLY_ANY
from nagle_lab.diagnosis.observed.observed import NEAR
from nagle_lab.diagnosis.proof.late_acks import LINUX_TIMER, LONGEST_TIMER
from nagle_lab.tcp.events import DELAYED, MS, EndedBy

# TCP_CORK releases a partial segment after 200 ms (tcp(7)), by the probe timer, which is the RTO: 200 ms
# (TCP_RTO_MIN) and a part of the smoothed round trip, which late ACKs raise (tcp_check_probe_timer).
CORK_LEAST, CORK_MOST = 196 * MS, 260 * MS
# A reply that is corked as a whole looks as if the server thought so long. The timer takes 200 ms, usually a jiffy
# for the round trip, and up to another jiffy; a program that sleeps for 200 ms is sooner. So a side that answers this
# late, and is hardly ever late otherwise, probably corks. (On a busy machine one answer or another is later.)
CORKED_LEAST, CORKED_MOSTLY, CORKED_MOST, CORKED_OFTEN = 200 * MS, 201 * MS, 222 * MS, 3


class Cause(StrEnum):
    """Why nothing was on the wire."""

    NAGLE_DELAYED_ACK = "nagle_delayed_ack"  # the stall: held until a late ACK
    NAGLE_ROUND_TRIP = "nagle_round_trip"  # held until an ACK that took the path's round trip
    MSG_MORE = "msg_more"  # the sender announced more, and the kernel kept what it had until a late ACK
    DELAYED_ACK = "delayed_ack"  # a late ACK that nothing waited for
    SERVER_THINK = "server_think"
    CLIENT_THINK = "client_think"
    CORK = "cork"
    LIKELY_CORK = "likely_cork"  # whole replies, each as late as TCP_CORK's timer
    RETRANSMISSION = "retransmission"  # until the RTO or the tail-loss probe (RFC 6298, RFC 8985)
    WINDOW = "window"  # the receiver's window was zero or full
    ROUND_TRIP = "round_trip"  # no longer than the path's round trip
    UNKNOWN = "unknown"


CAUSES = {
    Cause.NAGLE_DELAYED_ACK: "Nagle's algorithm waiting for a delayed ACK",
    Cause.NAGLE_ROUND_TRIP: "Nagle's algorithm waiting for a round trip",
    Cause.MSG_MORE: "MSG_MORE waiting for a delayed ACK",
    Cause.DELAYED_ACK: "delayed ACK that nothing waited for",
    Cause.SERVER_THINK: "server processing",
    Cause.CLIENT_THINK: "client processing",
    Cause.CORK: "TCP_CORK, or a pause of 200 ms",
    Cause.LIKELY_CORK: "probably TCP_CORK",
    Cause.RETRANSMISSION: "retransmission timeout",
    Cause.WINDOW: "zero or full receive window",
    Cause.ROUND_TRIP: "round trip of the path",
    Cause.UNKNOWN: "unknown",
}
"""What each cause of an idle gap is called in what people read."""


CauseTotals = dict[Cause, tuple[int, int]]  # count and ns

Gaps = Mapping[str, Column]
"""Columns (n,) of idle gaps: COLUMNS, and of each gap

    fastest_ack  the fastest ACK of the side that ended it, ns
    syns         whether the handshake of its connection is in the capture
    client       the side, 0 or 1, that is the client of its connection
"""


def cause_of(ended_by: int, took: int, far: int, reply: int, corked: int, by_client: int) -> Cause:
    """The cause of an idle gap.

    Parameters
    ----------
    ended_by : what ended it: an ``EndedBy`` (tcp/events.py)
    took : how much longer it took than the fastest ACK of the end that ended it: a :class:`GapLength`
    far : 1 if that end is far from the capture point, so the path may vary, too; else 0
    reply : 1 if the packet before it came from the other side, else 0
    corked : 1 if it took as long as TCP_CORK holds a segment, and what ended it was small; ALL_CORKED if nearly
        all of that end's late answers did; else 0
    by_client : 1 if the client ended it, else 0
    """
    if ended_by in _BY_THEMSELVES:
        return _BY_THEMSELVES[EndedBy(ended_by)]
    if corked == ALL_CORKED or (ended_by == EndedBy.CONTINUATION and corked):
        return Cause.LIKELY_CORK if corked == ALL_CORKED else Cause.CORK
    if took == GapLength.QUICK and (reply or ended_by in (EndedBy.ACKNOWLEDGEMENT, EndedBy.READING)):
        return Cause.ROUND_TRIP
    if ended_by == EndedBy.ACKNOWLEDGEMENT and took == GapLength.AS_A_TIMER:
        return Cause.DELAYED_ACK
    if ended_by == EndedBy.ACKNOWLEDGEMENT or (ended_by == EndedBy.READING and far) or took == GapLength.NOT_TOLD:
        return Cause.UNKNOWN
    return Cause.CLIENT_THINK if by_client else Cause.SERVER_THINK


_BY_THEMSELVES = {
    EndedBy.RETRANSMISSION: Cause.RETRANSMISSION,
    EndedBy.WINDOW: Cause.WINDOW,
    EndedBy.OTHER: Cause.UNKNOWN,
}
ALL_CORKED = 2
COLUMNS = ("side", "gap", "ended_by", "small", "reply")  # of idle_gap: what a cause follows from


class GapLength(IntEnum):
    """How much longer a gap took than the fastest ACK of the end that ended it."""

    QUICK = 0  # like the path
    AS_A_TIMER = 1  # like a delayed-ACK timer
    SLOWER = 2
    NOT_TOLD = 3  # like the fastest, which may itself have been delayed: no handshake shows the path


def _arguments(gaps: Gaps, all_corked: Column) -> tuple[Column, ...]:
    """The arguments of :func:`cause_of` for each gap, columns (n,)."""
    gap, fastest_ack = gaps["gap"], gaps["fastest_ack"]
    longer = gap - fastest_ack
    took = (longer >= DELAYED) * 1 + (longer >= LONGEST_TIMER)
    by_ack = (gaps["ended_by"] == EndedBy.ACKNOWLEDGEMENT) & (fastest_ack >= LINUX_TIMER) & (gaps["syns"] == 0)
    took = select(by_ack & (took == GapLength.QUICK), int(GapLength.NOT_TOLD), took)
    corked = (gap >= CORK_LEAST) & (gap <= CORK_MOST) & (gaps["small"] > 0)
    corked = select(all_corked, ALL_CORKED, corked * 1)
    is_far, by_client = (fastest_ack >= NEAR) * 1, (gaps["side"] == gaps["client"]) * 1
    return gaps["ended_by"], took, is_far, gaps["reply"], corked, by_client


def _all_corked(gaps: Gaps) -> Column:
    """Which gaps ended with a small answer as late as TCP_CORK's timer, like nearly all of that end's late ones."""
    connections = distinct(gaps["connection"])
    of = ranks(gaps["connection"], connections)
    keys = 2 * of + gaps["side"]
    answers = gaps["ended_by"] == EndedBy.ANSWER
    timed = answers & (gaps["gap"] >= CORKED_LEAST) & (gaps["gap"] <= CORKED_MOST) & (gaps["small"] > 0)
    mostly = timed & (gaps["gap"] >= CORKED_MOSTLY)
    many = 2 * len(connections)
    late, as_late, later = (
        pick(counts(pick(keys, rows_where(some)), many), keys) for some in (answers, timed, mostly)
    )
    return timed & (later >= CORKED_OFTEN) & (late - as_late <= HARDLY_ANY * late) & (2 * later > late)


def totals_by_cause(gaps: Gaps) -> CauseTotals:
    """How many idle gaps have each cause, and for how many ns in all.

    Those that a stall or a hold for a round trip explains are counted as something else until :func:`recategorized`.
    ``gaps`` must also have their ``connection``.
    """
    return _by_cause(gaps, _all_corked(gaps))


def _by_cause(gaps: Gaps, all_corked: Column) -> CauseTotals:
    totals: CauseTotals = {}
    for arguments, (count, ns) in tally(_arguments(gaps, all_corked), gaps["gap"]).items():
        add_totals(totals, {cause_of(*arguments): (count, ns)})
    return totals


def add_totals(totals: CauseTotals, more: CauseTotals) -> None:
    """Add ``more`` to ``totals``, in place."""
    for cause, (count, ns) in more.items():
        count_before, ns_before = totals.get(cause, (0, 0))
        totals[cause] = (count_before + count, ns_before + ns)


def recategorized(gaps: Gaps, cause: Cause) -> CauseTotals:
    """What to add to the totals so that idle gaps that the proof explains count under ``cause``, not as before.

    None of these gaps is taken to be one of TCP_CORK's.
    """
    gap = gaps["gap"]
    totals: CauseTotals = {cause: (len(gap), total(gap))}
    before = _by_cause(gaps, gap < 0)
    add_totals(totals, {other: (-count, -ns) for other, (count, ns) in before.items()})
    return totals
