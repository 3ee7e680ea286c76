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
from dataclasses import dataclass, fields
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nagle_lab.connections import NO_REACTION, Connections
from nagle_lab.keytable import endpoint_hash
from nagle_lab.timeline import FIN, RST, SYN, Bools, Ints, Timeline

MS = 1_000_000  # ns

# An ACK is late when it took this much longer than its sender's fastest one. The shortest delayed-ACK timer in use
# is 40 ms (Linux, TCP_DELACK_MIN = HZ/25); half of it separates that from network and scheduling noise.
LATE = 20 * MS

# A release is caused by the ACK when it follows within the sender's fastest reaction plus this. Measured against
# system-call times: true releases 1-51 µs after the ACK, pauses of the application 1.2 ms and more (docs/proof.md).
RELEASE_MARGIN = 300_000  # ns

# Without a handshake the sender's round trip to the capture point is only bounded from above by what it answered.
UNKNOWN_ROUND_TRIP = 1 * MS

# Data that follows a late ACK later than a release, but within this, is the application's own pause: it tells how
# likely coincidence is.
PAUSE = 40 * MS

# What queues between the sender and the capture point are believed to add to a release, at most.
QUEUEING = 5 * MS

# So many triples of one sender show whether its releases follow the ACK or its own clock.
POPULATION = 10


@dataclass(frozen=True)
class Triples:
    """Trigger, late ACK and release, one row each, (n,). Times in ns, sizes in bytes, ``side`` is X's."""

    conn: Ints
    side: Ints
    exchange: Ints
    trigger_frame: Ints
    ack_frame: Ints
    release_frame: Ints
    wait: Ints  # from trigger to late ACK: an upper bound of the hold
    release: Ints  # from late ACK to release
    trigger_bytes: Ints
    released_bytes: Ints

    def __len__(self) -> int:
        return len(self.conn)

    def where(self, rows: Bools | Ints) -> "Triples":
        """Those rows."""
        return Triples(**{f.name: getattr(self, f.name)[rows] for f in fields(self)})

    @staticmethod
    def join(parts: "list[Triples]") -> "Triples":
        """All rows of all parts, in order of the late ACK."""
        none = np.empty(0, np.int64)
        whole = Triples(
            **{f.name: np.concatenate([none, *(getattr(p, f.name) for p in parts)]) for f in fields(Triples)}
        )
        return whole.where(np.argsort(whole.ack_frame, kind="stable"))


def find(rows: Timeline, segment_size: Ints) -> Triples:
    """Every trigger → late pure ACK → next data of a window; ``segment_size`` (n,) in bytes.

    Only new rows end a triple, so windows can be of any size. No judgement yet on what caused the release.
    """
    data = np.flatnonzero(rows.is_data)
    conn, side, ts = rows.conn[data], rows.side[data], rows.ts[data]
    # Data after data of the same side: between the two, only acknowledgements.
    after = np.flatnonzero((np.diff(ts) >= LATE) & (np.diff(conn) == 0) & (np.diff(side) == 0)) + 1
    release, trigger = data[after], data[after - 1]
    ack = rows.latest_of_peer(rows.is_pure_ack, release)
    at = np.flatnonzero(rows.is_fresh[release] & ~rows.carried[release] & (ack > trigger))
    release, trigger, ack = release[at], trigger[at], ack[at]
    size = segment_size[release]
    control = np.uint16(SYN | FIN | RST)  # a FIN is never held (tcp_nagle_test)
    held = (
        (rows.ts[ack] - rows.ts[trigger] >= LATE)
        & (rows.length[trigger] % size != 0)  # with segmentation offload one row can be several full segments
        & (rows.length[release] < size)
        & ((rows.flags[trigger] | rows.flags[release]) & control == 0)
        & rows.is_fresh[trigger]
        & (rows.acked_peer[ack] < rows.end[trigger])  # until this ACK the trigger was outstanding
        & (rows.ack[ack] == rows.sent_own[release])  # and now nothing is
        & (rows.window[ack] >= rows.length[release])  # the receiver's window did not hold it
    )
    release, trigger, ack = release[held], trigger[held], ack[held]
    return Triples(
        conn=rows.conn[release],
        side=rows.side[release].astype(np.int64),
        exchange=rows.exchange[release],
        trigger_frame=rows.frame[trigger],
        ack_frame=rows.frame[ack],
        release_frame=rows.frame[release],
        wait=rows.ts[ack] - rows.ts[trigger],
        release=rows.ts[release] - rows.ts[ack],
        trigger_bytes=rows.length[trigger],
        released_bytes=rows.length[release],
    )


def small_behind_small(rows: Timeline, segment_size: Ints) -> Ints:
    """New rows where a small segment was sent behind an unacknowledged small one: that sender's Nagle is off."""
    pending = rows.is_data & (rows.acked_own < rows.sent_own) & rows.is_fresh & ~rows.carried
    sent = np.flatnonzero(pending & (rows.flags & np.uint16(FIN) == 0))
    sent = sent[rows.length[sent] < segment_size[sent]]
    own = rows.latest_of_own(rows.is_data, sent)
    sent, own = sent[own >= 0], own[own >= 0]
    small = rows.length[own] % segment_size[sent] != 0
    return sent[small & rows.is_fresh[own] & (rows.acked_own[sent] < rows.end[own])]


class LateAcks(NamedTuple):
    """Pure ACKs that came late: connection, side of their sender, time since the segment they acknowledge in ns."""

    conn: Ints
    side: Ints
    wait: Ints

    @staticmethod
    def join(parts: "list[LateAcks]") -> "LateAcks":
        """All rows of all parts."""
        none = LateAcks(*np.empty((3, 0), np.int64))
        return LateAcks(*(np.concatenate(column) for column in zip(none, *parts, strict=True)))


def late_acks(rows: Timeline) -> LateAcks:
    """Every new pure ACK that took at least :data:`LATE`; :func:`is_late` judges them when all is known."""
    acker, segment = rows.answers
    wait = rows.ts[acker] - rows.ts[segment]
    late = (wait >= LATE) & rows.is_pure_ack[acker]
    return LateAcks(rows.conn[acker[late]], rows.side[acker[late]].astype(np.int64), wait[late])


def late_fin_acks(rows: Timeline) -> LateAcks:
    """Every new pure ACK of a bare FIN that was not sent at once, but sooner than a late one.

    Linux sends it from the delayed-ACK timer too, and counts it among TcpExtDelayedACKs; until data has come on the
    connection that timer is set to zero (tcp_send_delayed_ack, icsk_ack.ato), so it holds nothing back.
    """
    acker, segment = rows.answers
    wait = rows.ts[acker] - rows.ts[segment]
    bare_fin = (rows.flags[segment] & FIN != 0) & (rows.length[segment] == 0)
    by_timer = bare_fin & rows.is_pure_ack[acker] & (wait >= RELEASE_MARGIN) & (wait < LATE)
    return LateAcks(rows.conn[acker[by_timer]], rows.side[acker[by_timer]].astype(np.int64), wait[by_timer])


def is_late(conn: Ints, side: Ints, wait: Ints, connections: Connections) -> Bools:
    """Whether an ACK by ``side`` took :data:`LATE` longer than that side's fastest one at this capture point."""
    return wait - _reaction(connections, conn, side) >= LATE


@dataclass(frozen=True)
class Proof:
    """What :func:`prove` decided: the stalls, and why the other triples are none."""

    stalls: Triples
    round_trips: Ints  # frames of ACKs that released what was held, but came after a round trip, not a timer
    nagle_off: int  # the sender is seen not to wait for ACKs: Nagle is off
    not_late: int  # the ACK took a round trip, not a delayed-ACK timer
    later_release: int  # the data came later than the ACK explains: the application's own pause
    coincidence: int  # close to the ACK, but not more often than chance puts it there


def prove(triples: Triples, nagle_off: NDArray[np.int64], connections: Connections) -> Proof:
    """Keep the triples whose release the ACK caused; ``nagle_off`` (connections, 2) counts small behind small."""
    off = (nagle_off[triples.conn, triples.side] > 0) | _sends_before_acks(triples, connections)
    late = is_late(triples.conn, 1 - triples.side, triples.wait, connections)
    round_trip = _round_trip(connections, triples.conn, triples.side)
    excess, early = triples.release - round_trip, np.maximum(RELEASE_MARGIN, round_trip // 8)
    early = np.where(connections.handshakes()[triples.conn], early, round_trip)  # without one it may be anything less
    judged, prompt, chance = late & ~off, np.zeros(len(triples), np.bool_), np.zeros(len(triples), np.bool_)
    for rows in _by_sender(triples, judged, connections):
        margin = _margin(triples.wait[rows] + triples.release[rows], excess[rows])
        prompt[rows] = (excess[rows] <= margin) & (excess[rows] >= -early[rows])
        chance[rows] = prompt[rows] & _is_chance(excess[rows], margin, int(early[rows].max()))
    return Proof(
        stalls=triples.where(prompt & ~chance),
        round_trips=triples.ack_frame[~late & ~off & (excess <= RELEASE_MARGIN)],
        nagle_off=int(off.sum()),
        not_late=int((~late & ~off).sum()),
        later_release=int((judged & ~prompt).sum()),
        coincidence=int(chance.sum()),
    )


def _reaction(connections: Connections, conn: Ints, side: Ints) -> Ints:
    fastest = connections.facts.reaction[conn, side]
    return np.where(fastest == NO_REACTION, 0, fastest)


def _round_trip(connections: Connections, conn: Ints, side: Ints) -> Ints:
    """From the capture point to that end and back, ns: its fastest reaction, when a handshake shows it."""
    fastest = _reaction(connections, conn, side)
    return np.where(connections.handshakes()[conn], fastest, np.minimum(fastest, UNKNOWN_ROUND_TRIP))


def _sends_before_acks(triples: Triples, connections: Connections) -> Bools:
    """Triples of half-connections whose data was seen to pass sooner after an ACK than an answer to it could.

    It was sent before the ACK arrived, behind an unacknowledged small segment: that sender's Nagle is off.
    """
    fastest = _reaction(connections, triples.conn, triples.side)
    clear = connections.handshakes()[triples.conn] & (fastest > RELEASE_MARGIN)
    half = 2 * triples.conn + triples.side
    return np.isin(half, half[clear & (2 * triples.release < fastest)])


def _margin(since_trigger: Ints, excess: Ints) -> int:
    """How much slower than its fastest reaction a sender's release may be, ns; one sender's triples, (n,) ns.

    Away from the sender, queues add to the release what they add to everything, so many releases are compared, each
    with the next: one that an ACK caused keeps its distance from the ACK while the time since the trigger varies
    with the timer; one that the application timed keeps its distance from the trigger instead.
    """
    near = excess <= PAUSE
    if near.sum() < POPULATION:
        return RELEASE_MARGIN
    step_from_ack, step_from_trigger = (np.median(abs(np.diff(t[near]))) for t in (excess, since_trigger))
    if 2 * step_from_ack > step_from_trigger:
        return RELEASE_MARGIN
    low, high = np.percentile(excess[near], [10, 90])
    return int(np.clip(high + 3 * (high - low), RELEASE_MARGIN, QUEUEING))


def _is_chance(excess: Ints, margin: int, early: int) -> bool:
    """Whether one sender's prompt releases are no more than pauses ending anywhere would put next to an ACK.

    Under Nagle the ACK itself causes the release, so releases pile up right behind it; an application's pauses end
    evenly over the milliseconds that follow. Prompt releases (from ``early`` before to ``margin`` after the fastest
    reaction, ns) count when they exceed by three standard deviations what the density of the later ones predicts.
    """
    expected = 0.0
    for span in (10 * margin, PAUSE):
        later = ((excess > margin) & (excess <= span)).sum()
        expected = max(expected, later * (margin + early) / max(span - margin, margin))
    prompt = ((excess >= -early) & (excess <= margin)).sum()
    return bool(prompt <= expected + 3 * expected**0.5)


def _by_sender(triples: Triples, judged: Bools, connections: Connections) -> Iterator[Ints]:
    """The judged rows of each program that sent triggers, in order of their ACKs.

    A program is one address, with its port where it is the server.
    """
    f, conn, side = connections.facts, triples.conn, triples.side
    port = np.where(side != connections.client_side()[conn], f.port[conn, side], np.uint16(0))
    sender = endpoint_hash(f.hi[conn, side], f.lo[conn, side], port)
    rows = np.flatnonzero(judged)
    rows = rows[np.argsort(sender[rows], kind="stable")]
    if len(rows):
        yield from np.split(rows, np.flatnonzero(np.diff(sender[rows])) + 1)
