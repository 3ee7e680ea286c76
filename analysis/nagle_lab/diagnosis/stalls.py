"""The proof: which segments Nagle's algorithm held until a delayed ACK arrived.

A stall is three segments of one connection, named by frame:

    trigger   X sends a segment smaller than the MSS; it stays unacknowledged, so Nagle holds X's next small one
              (RFC 896; RFC 9293 §3.7.4; Linux holds only behind a *small* one, tcp_minshall_check)
    late ACK  Y, with nothing to say, acknowledges it only when its delayed-ACK timer fires (RFC 1122 §4.2.3.2)
    release   X sends what it held, at once: no slower than X's TCP reacts at this capture point

:func:`find` collects every such triple with a wide net; :func:`prove` keeps those whose release was caused by the
ACK. They are separate because the second needs what only the whole capture shows: how fast each end's TCP reacts,
whether the sender ever put a small segment behind an unacknowledged small one (then Nagle is off), and how often
its data follows a late ACK by chance.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nagle_lab.tcp.columns import FIN, RST, SYN, Bools, Columns, Ints, Sides
from nagle_lab.tcp.connections import Connections
from nagle_lab.tcp.ledger import Known
from nagle_lab.tcp.loops import endpoint_hash, sort_numbers
from nagle_lab.tcp.timeline import LONG, Timeline

MS = 1_000_000  # ns

# An ACK is late when it took this much longer than its sender's fastest one. The shortest delayed-ACK timer in use
# is 40 ms (Linux, TCP_DELACK_MIN = HZ/25); half of it separates that from network and scheduling noise.
LATE = LONG

# No delayed-ACK timer fires sooner than this: at HZ=100 one of 40 ms may lack the jiffy it began in. What is late and
# came sooner was sent because a program read its data late (tcp_cleanup_rbuf).
SOONEST_TIMER = 30 * MS

# When a lone segment stays unacknowledged, TCP probes for a loss with the next one, held or not (RFC 8985 §7.3);
# Linux not sooner than this (TCP_RTO_MIN). Sent so late behind a small segment, one does not show that Nagle is off.
PROBE = 200 * MS

# No delayed ACK may wait for half a second (RFC 1122 §4.2.3.2): what took longer was not a delayed-ACK timer, but the
# network, the capturing machine, or its clock, which was set.
LATEST = 500 * MS

# A release is caused by the ACK when it follows within the sender's fastest reaction plus this. Measured against
# system-call times: true releases 1-51 µs after the ACK, pauses of the application 1.2 ms and more (docs/proof.md).
RELEASE_MARGIN = 300_000  # ns

# An ACK of a FIN that the zero timer sends leaves with the next jiffy, up to 4 ms later; one sent at once is sooner.
AT_ONCE = 50_000  # ns

# Without a handshake the sender's round trip to the capture point is only bounded from above by what it answered.
UNKNOWN_ROUND_TRIP = 1 * MS

# Data that follows a late ACK later than a release, but within this, is the application's own pause: it tells how
# likely coincidence is.
PAUSE = 40 * MS

# Where a sender's releases show how they spread, one may be at least this much later than its neighbours: twice the
# slowest true release seen at a sender's own capture.
RELEASE_SPREAD = 100_000  # ns
NOTHING = -(1 << 62)  # ns, a margin nobody keeps
NEIGHBOURS = 4  # so many before a release, or after it, tell how late the queues made it: all but the earliest

# What queues between the sender and the capture point are believed to add to a release, at most.
QUEUEING = 5 * MS

# So many triples of one sender show whether its releases follow the ACK or its own clock.
POPULATION = 10


# Trigger, late ACK and release. Times in ns, sizes in bytes; ``side`` is X's, ``conn`` the connection's number.
TRIPLE = np.dtype(
    [
        ("conn", "i8"), ("exchange", "i4"), ("side", "i1"), ("trigger_frame", "i8"), ("ack_frame", "i8"),
        ("release_frame", "i8"), ("trigger_bytes", "i4"), ("released_bytes", "i4"),
        ("wait", "i8"),  # from trigger to late ACK: an upper bound of the hold
        ("release", "i8"),  # from late ACK to release
        ("silence", "i8"),  # from the packet before the late ACK to it
    ]
)  # fmt: skip

# A pure ACK that came late, its sender's side, and the time since the segment it acknowledges in ns.
LATE_ACK = np.dtype([("conn", "i8"), ("wait", "i8"), ("side", "i1")])

Rows = NDArray[np.void]


def find(rows: Timeline, known: Connections) -> Rows:
    """Every trigger → late pure ACK → next data of a window, in order of release: rows of :data:`TRIPLE`.

    Only new rows end a triple, so windows can be of any size. No judgement yet on what caused the release.
    """
    trigger, told, ack, release = rows.noticed.waits
    conn, before, length = rows.conn[release], rows.length[trigger], rows.length[release]
    size, wait = known.facts.size[conn], rows.ts[ack] - rows.ts[trigger]
    control = np.uint16(SYN | FIN | RST)  # a FIN is never held (tcp_nagle_test)
    held = (
        (wait >= LATE)
        & (before % size != 0)  # with segmentation offload one row can be several full segments
        & (length < size)
        & ((rows.flags[trigger] | rows.flags[release]) & control == 0)
        & (rows.stretch[trigger] == rows.stretch[release])
        & rows.is_fresh(trigger)
        & (rows.acked_peer[ack] < rows.end[trigger])  # until this ACK the trigger was outstanding
        & (rows.ack[ack] == rows.sent_own[release])  # and now nothing is
        & _window_had_room(rows, told, trigger, ack, release)
    )
    held = np.flatnonzero(held)
    frame = rows.frame[release[held]]
    if len(held):
        order = sort_numbers(frame - frame.min(), int(np.ptp(frame)) + 1)
        held, frame = held[order], frame[order]
    release, trigger, ack = release[held], trigger[held], ack[held]
    found = np.empty(len(held), TRIPLE)
    found["conn"] = known.facts.id[conn[held]]
    found["side"], found["exchange"] = rows.side[release], rows.exchange[release]
    found["trigger_frame"], found["ack_frame"], found["release_frame"] = rows.frame[trigger], rows.frame[ack], frame
    found["trigger_bytes"], found["released_bytes"], found["wait"] = before[held], length[held], wait[held]
    found["release"], found["silence"] = rows.ts[release] - rows.ts[ack], rows.gap[ack]
    return found


def _window_had_room(rows: Timeline, told: Ints, trigger: Ints, ack: Ints, release: Ints) -> Bools:
    """Whether the receiver's window had room for trigger and release, as ``told`` before them, and never closed."""
    edge = rows.ack[told] + rows.window[told]
    room: Bools = (told < 0) | (edge >= rows.end[trigger] + rows.length[release])
    if rows.closed_windows:
        before = rows.latest_of_own("acking", ack)
        room &= (rows.window[ack] > 0) & ((before < 0) | (rows.window[before] > 0))
    return room


def small_behind_small(rows: Timeline, known: Connections) -> Ints:
    """New rows where a small segment was sent behind an unacknowledged small one: that sender's Nagle is off."""
    sent, own = rows.noticed.behind
    size = known.facts.size[rows.conn[sent]]
    least = known.facts.small[rows.conn[sent], rows.side[sent]]
    # With segmentation offload a row can be several full segments and a small one.
    tail = np.where(least == size, rows.length[own] % size, rows.length[own])
    both = (rows.length[sent] < least) & (tail > 0) & (tail < least) & (rows.flags[sent] & np.uint16(FIN) == 0)
    return np.asarray(sent[both & (rows.ts[sent] - rows.ts[own] < PROBE)])


def late_acks(rows: Timeline, known: Connections) -> Columns:
    """Every new pure ACK that took at least :data:`LATE`; :func:`is_late` judges them.

    Columns of :data:`LATE_ACK`, and ``reaction``, the fastest of its side until now, in ns.
    """
    acker, _, wait = rows.noticed.answers
    late = np.flatnonzero(wait >= LATE)
    late = late[rows.is_pure_ack_at(acker[late])]
    acker = acker[late]
    place, side = rows.conn[acker], rows.side[acker]
    conn, reaction = known.facts.id[place], known.facts.reaction[place, side]
    return {"conn": conn, "wait": wait[late], "reaction": reaction, "side": side}


def fin_acks_by_timer(rows: Timeline) -> Ints:
    """New pure ACKs of a bare FIN that were not sent at once, but sooner than a late one: indices of rows.

    Linux sends it from the delayed-ACK timer too, and counts it among TcpExtDelayedACKs; until data has come on the
    connection that timer is set to zero (tcp_send_delayed_ack, icsk_ack.ato), so it holds nothing back.
    """
    acker, segment, wait = rows.noticed.answers
    of_fin = np.flatnonzero(rows.flags[segment] & np.uint16(FIN))
    acker, segment, wait = acker[of_fin], segment[of_fin], wait[of_fin]
    by_timer = (wait >= AT_ONCE) & (wait < LATE) & (rows.length[segment] == 0)
    return np.asarray(acker[by_timer & rows.is_pure_ack_at(acker)])


def is_late(wait: Ints, reaction: Ints) -> Bools:
    """Whether ACKs took longer than their sender's fastest, its ``reaction``, by what a delayed-ACK timer adds.

    At this capture point; at least :data:`LATE`, and less than :data:`LATEST`.
    """
    longer = wait - reaction
    return (longer >= LATE) & (longer < LATEST)


def is_before_timer(wait: Ints, reaction: Ints) -> Bools:
    """Which late ACKs came sooner than a delayed-ACK timer can fire: something else sent them."""
    return np.asarray(wait - reaction < SOONEST_TIMER)


def is_settled(wait: Ints, reaction: Ints) -> Bools:
    """Of which waits the two above say the same however much faster than this ``reaction`` their sender turns out."""
    settled = np.ones(len(wait), np.bool_)
    for edge in (LATE, SOONEST_TIMER, LATEST):
        settled &= (wait < edge) | (wait - reaction >= edge)
    return settled


@dataclass(frozen=True)
class Proof:
    """What :func:`prove` decided of triples (n,): which are stalls, and why the others are none."""

    stalls: Bools
    round_trips: Bools  # held until an ACK that came after a round trip, not from a timer
    nagle_off: int  # the sender is seen not to wait for ACKs: Nagle is off
    not_late: int  # the ACK took a round trip, or longer than any delayed-ACK timer
    later_release: int  # the data came later than the ACK explains: the application's own pause
    coincidence: int  # close to the ACK, but not more often than chance puts it there


def prove(side: Sides, wait: Ints, release: Ints, known: Known) -> Proof:
    """Keep the triples whose release the ACK caused: columns (n,) of :data:`TRIPLE`, and what the ledger says."""
    handshake, own, peer = known.column("handshake"), known.side("reaction", side), known.side("reaction", 1 - side)
    off = (known.side("nagle_off", side) > 0) | _sends_before_acks(side, release, known, handshake, own)
    late, round_trip_ack = is_late(wait, peer), wait - peer < LATE
    # From the capture point to the sender and back: its fastest reaction, when a handshake shows it.
    round_trip = np.where(handshake, own, np.minimum(own, UNKNOWN_ROUND_TRIP))
    excess, early = release - round_trip, np.maximum(RELEASE_MARGIN, round_trip // 8)
    early = np.where(handshake, early, round_trip)  # without one it may be anything less
    judged, prompt, chance = late & ~off, np.zeros(len(side), np.bool_), np.zeros(len(side), np.bool_)
    for rows in _by_sender(np.flatnonzero(judged), side, known):
        after, least = excess[rows], early[rows]
        margin = _margins(wait[rows] + release[rows], after)
        prompt[rows] = caused = (after <= margin) & (after >= -least)
        width = int(np.median(margin) + least.max())
        chance[rows] = caused & _is_chance(int(caused.sum()), after - margin, width)
    return Proof(
        stalls=prompt & ~chance,
        round_trips=round_trip_ack & ~off & (excess <= RELEASE_MARGIN),
        nagle_off=int(off.sum()),
        not_late=int((~late & ~off).sum()),
        later_release=int((judged & ~prompt).sum()),
        coincidence=int(chance.sum()),
    )


def _sends_before_acks(side: Sides, release: Ints, known: Known, handshake: Bools, reaction: Ints) -> Bools:
    """Triples of half-connections whose data was seen to pass sooner after an ACK than an answer to it could.

    It was sent before the ACK arrived, behind an unacknowledged small segment: that sender's Nagle is off.
    """
    half, seen = 2 * known.of + side, np.zeros(2 * len(known.numbers), np.bool_)
    seen[half[handshake & (reaction > RELEASE_MARGIN) & (2 * release < reaction)]] = True
    return np.asarray(seen[half])


def _margins(since_trigger: Ints, excess: Ints) -> Ints:
    """How much slower than its fastest reaction a sender's releases may be, (n,) ns; in order of their ACKs.

    Away from the sender, queues add to a release what they add to its neighbours. So many releases are compared, each
    with the next: those an ACK caused keep their distance from the ACK while the time since the trigger varies with
    the timer; those the application timed keep their distance from the trigger instead, and none is a release. Where
    they follow the ACK, each may be as late as its neighbours are, and vary as much as they do.
    """
    strict = np.full(len(excess), RELEASE_MARGIN)
    near = np.flatnonzero(excess <= PAUSE)
    if len(near) < POPULATION:
        return strict
    from_ack, from_trigger = excess[near], since_trigger[near]
    steps: Ints = abs(np.diff(from_ack))  # between two releases
    step_from_ack, step_from_trigger = np.median(steps), np.median(abs(np.diff(from_trigger)))
    if 2 * step_from_trigger < step_from_ack:  # what an ACK releases varies with the ACK and more, never less
        return np.full(len(excess), NOTHING)
    if 2 * step_from_ack > step_from_trigger and 2 * _spread(from_ack) > _spread(from_trigger):
        return strict
    runs = _all_but_earliest(np.pad(from_ack, NEIGHBOURS, "reflect"))
    queued = np.maximum(runs[: len(near)], runs[NEIGHBOURS : NEIGHBOURS + len(near)])  # before it, and after it
    middle = np.median(from_ack)
    spread = np.clip(2 * middle, RELEASE_SPREAD, RELEASE_MARGIN)
    most = QUEUEING if middle > RELEASE_SPREAD else RELEASE_MARGIN  # no queue, no widening
    small_step = _percentile(steps, 25)  # even where pauses are many
    strict[near] = np.clip(queued + max(6 * small_step, spread), RELEASE_SPREAD, most)
    return strict


def _all_but_earliest(padded: Ints) -> Ints:
    """The least but one of each time (n + NEIGHBOURS,) and the NEIGHBOURS that follow it, (n,)."""
    n = len(padded) - NEIGHBOURS
    least, next_least = padded[:n], np.full(n, np.iinfo(np.int64).max)
    for begin in range(1, NEIGHBOURS + 1):
        time = padded[begin : begin + n]
        next_least = np.minimum(next_least, np.maximum(least, time))
        least = np.minimum(least, time)
    return next_least


def _spread(times: Ints) -> float:
    """The range of the middle half."""
    return _percentile(times, 75) - _percentile(times, 25)


def _percentile(times: Ints, percent: int) -> float:
    """As np.percentile, which imports masked arrays: that takes longer than analysing a small capture."""
    place, part = divmod((len(times) - 1) * percent, 100)
    around = [place, place + (part > 0)]
    low, high = np.partition(times, around)[around]
    return float(low + (high - low) * part / 100)


def _is_chance(prompt: int, beyond: Ints, width: int) -> bool:
    """Whether one sender's ``prompt`` releases are no more than pauses ending anywhere would put next to an ACK.

    Under Nagle the ACK itself causes the release, so releases pile up right behind it; an application's pauses end
    evenly over the milliseconds that follow. ``beyond`` (n,) is how much later than allowed each came; prompt ones,
    within ``width`` (all ns), count when they exceed by three standard deviations what the later ones predict.
    """
    expected = max(width * ((beyond > 0) & (beyond <= span)).sum() / span for span in (10 * width, PAUSE))
    return bool(prompt <= expected + 3 * expected**0.5)


def _by_sender(rows: Ints, side: Sides, known: Known) -> Iterator[Ints]:
    """The ``rows`` of each program that sent triggers, in order.

    A program is one address, with its port where it is the server.
    """
    ends, is_server = known.entries, known.entries["client"][:, np.newaxis] != np.arange(2)
    port = np.where(is_server, ends["port"], np.uint16(0))
    programs, program = np.unique(endpoint_hash(ends["hi"], ends["lo"], port), return_inverse=True)
    program = program.reshape(-1)[2 * known.of[rows] + side[rows]]
    order = sort_numbers(program, len(programs))
    if len(rows):
        yield from np.split(rows[order], np.flatnonzero(np.diff(program[order])) + 1)
