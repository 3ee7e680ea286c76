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
from nagle_lab.timeline import ACK, FIN, RST, SYN, Bools, Ints, Timeline, joined, narrow

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

# Where a sender's releases show how they spread, one may be at least this much later than its neighbours: twice the
# slowest true release seen at a sender's own capture.
RELEASE_SPREAD = 100_000  # ns
NOTHING = -(1 << 62)  # ns, a margin nobody keeps
NEIGHBOURS = 4  # so many before a release, or after it, tell how late the queues made it: all but the earliest

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
        whole = Triples(**joined(_TRIPLE_TYPES, parts))
        return whole.where(np.argsort(whole.ack_frame, kind="stable"))


_TRIPLE_TYPES: dict[str, type[np.generic]] = {
    "conn": np.int32, "side": np.int8, "exchange": np.int32, "trigger_frame": np.uint32, "ack_frame": np.uint32,
    "release_frame": np.uint32, "wait": np.int64, "release": np.int64, "trigger_bytes": np.int32,
    "released_bytes": np.int32,
}  # fmt: skip


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
        & _window_had_room(rows, trigger, release)
        & (rows.window[ack] > 0)
    )
    release, trigger, ack = release[held], trigger[held], ack[held]
    columns = narrow(
        _TRIPLE_TYPES,
        conn=rows.conn[release],
        side=rows.side[release],
        exchange=rows.exchange[release],
        trigger_frame=rows.frame[trigger],
        ack_frame=rows.frame[ack],
        release_frame=rows.frame[release],
        wait=rows.ts[ack] - rows.ts[trigger],
        release=rows.ts[release] - rows.ts[ack],
        trigger_bytes=rows.length[trigger],
        released_bytes=rows.length[release],
    )
    return Triples(**columns)


def _window_had_room(rows: Timeline, trigger: Ints, release: Ints) -> Bools:
    """Whether the receiver's window, as last told before the trigger, had room for trigger and release together."""
    told = rows.latest_of_peer((rows.flags & np.uint16(ACK)) != 0, trigger)
    edge = rows.ack[told] + rows.window[told]
    return np.asarray((told < 0) | (edge >= rows.end[trigger] + rows.length[release]))


def small_behind_small(rows: Timeline, segment_size: Ints) -> Ints:
    """New rows where a small segment was sent behind an unacknowledged small one: that sender's Nagle is off."""
    pending = rows.is_data & (rows.acked_own < rows.sent_own) & rows.is_fresh & ~rows.carried
    sent = np.flatnonzero(pending & (rows.flags & np.uint16(FIN) == 0))
    sent = sent[rows.length[sent] < segment_size[sent]]
    own = rows.latest_of_own(rows.is_data, sent)
    sent, own = sent[own >= 0], own[own >= 0]
    small = rows.length[own] % segment_size[sent] != 0
    outstanding: Bools = rows.acked_own[sent] < rows.end[own]
    return sent[np.flatnonzero(small & rows.is_fresh[own] & outstanding)]


class LateAcks(NamedTuple):
    """Pure ACKs that came late: connection, side of their sender, time since the segment they acknowledge in ns."""

    conn: Ints
    side: Ints
    wait: Ints

    @staticmethod
    def join(parts: "list[LateAcks]") -> "LateAcks":
        """All rows of all parts."""
        return LateAcks(**joined(_LATE_TYPES, parts))


_LATE_TYPES: dict[str, type[np.generic]] = {"conn": np.int32, "side": np.int8, "wait": np.int64}


def _late_acks(rows: Timeline, acker: Ints, wait: Ints) -> LateAcks:
    return LateAcks(**narrow(_LATE_TYPES, conn=rows.conn[acker], side=rows.side[acker], wait=wait))


def late_acks(rows: Timeline) -> LateAcks:
    """Every new pure ACK that took at least :data:`LATE`; :func:`is_late` judges them when all is known."""
    acker, segment = rows.answers
    wait = rows.ts[acker] - rows.ts[segment]
    late = np.flatnonzero((wait >= LATE) & rows.is_pure_ack[acker])
    return _late_acks(rows, acker[late], wait[late])


def late_fin_acks(rows: Timeline) -> LateAcks:
    """Every new pure ACK of a bare FIN that was not sent at once, but sooner than a late one.

    Linux sends it from the delayed-ACK timer too, and counts it among TcpExtDelayedACKs; until data has come on the
    connection that timer is set to zero (tcp_send_delayed_ack, icsk_ack.ato), so it holds nothing back.
    """
    acker, segment = rows.answers
    wait = rows.ts[acker] - rows.ts[segment]
    bare_fin = (rows.flags[segment] & FIN != 0) & (rows.length[segment] == 0)
    by_timer = bare_fin & rows.is_pure_ack[acker] & (wait >= RELEASE_MARGIN) & (wait < LATE)
    return _late_acks(rows, acker[by_timer], wait[by_timer])


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
        margin = _margins(triples.wait[rows] + triples.release[rows], excess[rows])
        prompt[rows] = (excess[rows] <= margin) & (excess[rows] >= -early[rows])
        width = int(np.median(margin) + early[rows].max())
        chance[rows] = prompt[rows] & _is_chance(int(prompt[rows].sum()), excess[rows] - margin, width)
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
    step_from_ack, step_from_trigger = (np.median(abs(np.diff(t[near]))) for t in (excess, since_trigger))
    if 2 * step_from_trigger < step_from_ack:  # what an ACK releases varies with the ACK and more, never less
        return np.full(len(excess), NOTHING)
    if 2 * step_from_ack > step_from_trigger:
        return strict
    padded = np.pad(excess[near], NEIGHBOURS, "reflect")
    runs = np.sort(np.lib.stride_tricks.sliding_window_view(padded, NEIGHBOURS + 1), axis=1)[:, 1]
    queued = np.maximum(runs[: len(near)], runs[NEIGHBOURS : NEIGHBOURS + len(near)])  # before it, and after it
    spread = np.clip(2 * np.median(excess[near]), RELEASE_SPREAD, RELEASE_MARGIN)
    most = QUEUEING if np.median(excess[near]) > RELEASE_SPREAD else RELEASE_MARGIN  # no queue, no widening
    small_step = np.percentile(abs(np.diff(excess[near])), 25)  # between two releases, even where pauses are many
    strict[near] = np.clip(queued + max(6 * small_step, spread), RELEASE_SPREAD, most)
    return strict


def _is_chance(prompt: int, beyond: Ints, width: int) -> bool:
    """Whether one sender's ``prompt`` releases are no more than pauses ending anywhere would put next to an ACK.

    Under Nagle the ACK itself causes the release, so releases pile up right behind it; an application's pauses end
    evenly over the milliseconds that follow. ``beyond`` (n,) is how much later than allowed each came; prompt ones,
    within ``width`` (all ns), count when they exceed by three standard deviations what the later ones predict.
    """
    expected = max(width * ((beyond > 0) & (beyond <= span)).sum() / span for span in (10 * width, PAUSE))
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
