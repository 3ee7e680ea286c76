"""Packets → connections: which connection and direction each segment belongs to, and its place in the byte stream.

The packets of one window come in, in capture order; a :class:`Timeline` comes out, in connection order, every
row with its unwrapped sequence numbers and with what both half-connections looked like just before it. A half-
connection is one direction of a connection; ``side`` 0 is the end that opened it (the SYN's sender, or the sender
of the first packet seen), side 1 its peer.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nagle_lab.keytable import KeyTable, endpoint_hash, pair_hash
from nagle_lab.packets import Packets
from nagle_lab.timeline import ACK, FIN, RST, SYN, Bools, Ints, Timeline

LEAST_MSS = 536  # what any host must take (RFC 9293 §3.7.1): surely small is only what is smaller
DEFAULT_MSS = 1448  # Ethernet's 1460 less timestamps: what a connection uses when its handshake was not captured
_UNSET = np.int64(-1)
_ORIGIN = np.int64(1) << 32  # unwrapped numbers start here, so that all are positive and 0 means "nothing yet"
_LARGEST_SCALE = 14  # RFC 7323 §2.3; a window of unknown scale (no SYN, or its options cut off) is taken so large
_BAND = np.int64(1) << 40  # more than one window of packets can carry


@dataclass
class _Facts:
    """What is remembered of every connection, one row each; two columns where it is known per side."""

    hi: NDArray[np.uint64]  # addresses, (n, 2)
    lo: NDArray[np.uint64]
    port: NDArray[np.uint16]
    seq: Ints  # (n, 2) unwrapped number of the latest segment; -1 unknown
    ack: Ints  # (n, 2) unwrapped number of the latest acknowledgement sent by that side; -1 unknown
    sent: Ints  # (n, 2) highest end sent; 0 none
    acked: Ints  # (n, 2) highest number of that side's stream acknowledged by its peer; 0 none
    mss: NDArray[np.uint16]  # (n, 2) MSS option in that side's SYN; 0 unknown
    wscale: NDArray[np.int8]  # (n, 2) window scale in that side's SYN; -1 unknown
    shift: NDArray[np.uint8]  # (n, 2) how far that side's window is scaled; at most, where no SYN tells
    stamps: Bools  # (n, 2) timestamps option in that side's SYN
    syn: Ints  # (n, 2) wire sequence number of that side's SYN; -1 not seen
    closed: Bools  # (n, 2) FIN sent; both by a RST
    opener: NDArray[np.int8]  # (n,) side that sent the first data; -1 none yet
    packets: Ints  # (n, 2) sent by that side
    segments: Ints  # (n, 2) the same, packets made by segmentation offload counted in parts
    payload: Ints  # (n, 2) bytes in them
    wire: Ints  # (n, 2) bytes of the whole packets
    first_frame: NDArray[np.uint32]  # (n,)
    reaction: Ints  # (n, 2) ns, shortest time from a segment of the peer to this side's acknowledgement of it


_INITIAL: dict[str, tuple[type[np.generic], int, int]] = {
    "hi": (np.uint64, 2, 0),
    "lo": (np.uint64, 2, 0),
    "port": (np.uint16, 2, 0),
    "seq": (np.int64, 2, -1),
    "ack": (np.int64, 2, -1),
    "sent": (np.int64, 2, 0),
    "acked": (np.int64, 2, 0),
    "mss": (np.uint16, 2, 0),
    "wscale": (np.int8, 2, -1),
    "shift": (np.uint8, 2, 14),
    "stamps": (np.bool_, 2, 0),
    "syn": (np.int64, 2, -1),
    "closed": (np.bool_, 2, 0),
    "opener": (np.int8, 1, -1),
    "packets": (np.int64, 2, 0),
    "segments": (np.int64, 2, 0),
    "payload": (np.int64, 2, 0),
    "wire": (np.int64, 2, 0),
    "first_frame": (np.uint32, 1, 0),
    "reaction": (np.int64, 2, np.iinfo(np.int64).max),
}
NO_REACTION = np.iinfo(np.int64).max


def _blank(name: str, n: int) -> NDArray[Any]:
    dtype, columns, value = _INITIAL[name]
    return np.full((n, columns) if columns > 1 else n, value, dtype)


class Connections:
    """Every connection of a capture; :meth:`follow` takes the next window of packets."""

    def __init__(self) -> None:
        self.count = 0
        self.copies = 0  # packets seen before, on another interface
        self.facts = _Facts(**{name: _blank(name, 64) for name in _INITIAL})
        self._pairs = KeyTable()
        self._current = np.full(64, -1, np.int64)  # address pair → its newest connection
        self._context: Timeline | None = None  # rows later windows may have to look back at
        self._previous: Timeline | None = None  # the previous window, complete with what later stages wrote into it

    # Roles ------------------------------------------------------------------------------------------

    def client_side(self, conn: Ints | None = None) -> NDArray[np.int8]:
        """Which side is the client of those (n,), or all: by handshake, else who sent data first, else side 0."""
        some = slice(self.count) if conn is None else conn
        syn = self.facts.syn[some]
        by_handshake = (syn[:, 0] >= 0) | (syn[:, 1] >= 0)
        return np.where(by_handshake, 0, np.maximum(self.facts.opener[some], 0)).astype(np.int8)

    def handshakes(self) -> Bools:
        """Connections with both SYNs in the capture, shape (count,)."""
        syn = self.facts.syn[: self.count]
        return (syn[:, 0] >= 0) & (syn[:, 1] >= 0)

    def segment_size(self, conn: Ints | None = None, unknown: int = DEFAULT_MSS) -> Ints:
        """Largest payload of one segment of those (n,), or all, bytes.

        The smaller MSS (RFC 9293 §3.7.1) less timestamps.
        """
        some = slice(self.count) if conn is None else conn
        mss, stamps = self.facts.mss[some].astype(np.int64), self.facts.stamps[some].all(1)
        smaller = np.where((mss > 0).all(1), mss.min(1), mss.max(1))
        return np.where(smaller > 0, np.maximum(smaller - 12 * stamps, 1), unknown)

    # Windows of packets -----------------------------------------------------------------------------

    def follow(self, packets: Packets) -> Timeline:
        """The timeline of the next window; packets (n,) become rows (n + carried context,)."""
        order, conn, side = self._without_copies(packets, *self._assign(packets))
        self._learn_handshakes(packets, order, conn, side)
        self._count(packets, order, conn, side)
        self._keep_context()
        rows = self._with_context(self._unwrapped(packets, order, conn, side))
        self._fill_before(rows)
        self._learn(rows)
        self._previous = rows
        return rows

    def _assign(self, p: Packets) -> tuple[Ints, Ints, NDArray[np.int8]]:
        """Connection-sorted order of the packets, and in that order the connection and side of each."""
        a, b = endpoint_hash(p.src_hi, p.src_lo, p.sport), endpoint_hash(p.dst_hi, p.dst_lo, p.dport)
        pair = self._pairs.ids(pair_hash(a, b))
        if len(self._pairs) > len(self._current):
            grown = np.full(2 * len(self._pairs), -1, np.int64)
            grown[: len(self._current)] = self._current
            self._current = grown
        small = len(self._pairs) < 1 << 16
        order = np.argsort(pair.astype(np.uint16) if small else pair, kind="stable")  # uint16: radix sort
        pair = pair[order]
        conn = self._generations(p, order, pair)
        forward = (p.src_lo[order] == self.facts.lo[conn, 0]) & (p.sport[order] == self.facts.port[conn, 0])
        forward &= p.src_hi[order] == self.facts.hi[conn, 0]
        return order, conn, np.where(forward, 0, 1).astype(np.int8)

    def _generations(self, p: Packets, order: Ints, pair: Ints) -> Ints:
        """Connection of each sorted row: a SYN with a new sequence number starts another on the same address pair."""
        groups = _starts(pair)
        first = np.zeros(len(pair), np.bool_)
        first[groups] = True
        known = self._current[pair]
        is_syn = (p.flags[order] & (SYN | ACK | RST)) == SYN
        seq = p.seq[order].astype(np.int64)
        latest = np.where(known >= 0, self._syn_of(known), -1)
        syn_rows = np.flatnonzero(is_syn)
        if len(syn_rows):  # the previous SYN of the pair: in this window, else what is remembered
            same = np.diff(pair[syn_rows], prepend=_UNSET) == 0
            latest[syn_rows[same]] = seq[syn_rows[np.flatnonzero(same) - 1]]
        begins = (is_syn & (seq != latest)) | (first & (known < 0))
        # A SYN that is the very first row of an unknown pair is one beginning, not two.
        born = np.flatnonzero(begins)
        conn_of_birth = self._new(p, order[born])
        # A row belongs to the latest connection begun in its group, else to the one known before.
        edges = np.union1d(groups, born)
        owner = known[edges]
        owner[np.searchsorted(edges, born)] = conn_of_birth
        conn: Ints = np.repeat(owner, np.diff(edges, append=len(pair)))
        self._current[pair] = conn  # duplicates: the last row of each pair wins, which is its newest connection
        return conn

    def _syn_of(self, conn: Ints) -> Ints:
        syn = self.facts.syn
        return np.where(conn >= 0, syn[np.maximum(conn, 0), 0], -1)

    def _new(self, p: Packets, rows: Ints) -> Ints:
        """Open a connection for each of those packets; side 0 is its sender, or for a SYN-ACK its receiver."""
        n = len(rows)
        ids = np.empty(n, np.int64)
        ids[np.argsort(rows)] = np.arange(self.count, self.count + n)  # numbered by their first packet
        self.count += n
        if self.count > len(self.facts.packets):
            for name in _INITIAL:
                grown = _blank(name, self.count + self.count // 4)  # little to spare: a flood fills it with SYNs
                old = getattr(self.facts, name)
                grown[: len(old)] = old
                setattr(self.facts, name, grown)
        f, swap = self.facts, (p.flags[rows] & (SYN | ACK)) == SYN | ACK
        for column, sent, received in (
            (f.hi, p.src_hi, p.dst_hi),
            (f.lo, p.src_lo, p.dst_lo),
            (f.port, p.sport, p.dport),
        ):
            column[ids, 0] = np.where(swap, received[rows], sent[rows])
            column[ids, 1] = np.where(swap, sent[rows], received[rows])
        f.first_frame[ids] = p.frame[rows]
        return ids

    def _without_copies(
        self, p: Packets, order: Ints, conn: Ints, side: NDArray[np.int8]
    ) -> tuple[Ints, Ints, NDArray[np.int8]]:
        """Leave out packets captured twice, on two interfaces: the same IPv4 datagram right after itself."""
        datagram = p.ip_id[order]
        again = (
            (datagram[1:] == datagram[:-1]) & (datagram[1:] != 0) & (conn[1:] == conn[:-1]) & (side[1:] == side[:-1])
        )
        at = np.flatnonzero(again) + 1
        one, two = order[at - 1], order[at]
        for column in (p.seq, p.ack, p.flags, p.length, p.window):
            same = column[one] == column[two]
            at, one, two = at[same], one[same], two[same]
        if not len(at):
            return order, conn, side
        self.copies += len(at)
        return np.delete(order, at), np.delete(conn, at), np.delete(side, at)

    def _learn_handshakes(self, p: Packets, order: Ints, conn: Ints, side: NDArray[np.int8]) -> None:
        rows = np.flatnonzero(p.flags[order] & SYN)
        if not len(rows):
            return
        at, source, f = (conn[rows], side[rows]), order[rows], self.facts
        f.syn[at] = p.seq[source]
        f.mss[at] = p.mss[source]
        f.wscale[at] = p.wscale[source]
        f.stamps[at] = p.has_ts[source]
        scales = f.wscale[conn[rows]]
        told = (scales >= 0).sum(1, keepdims=True)  # used only when both ends told theirs (RFC 7323 §2.3)
        f.shift[conn[rows]] = np.choose(told, [_LARGEST_SCALE, 0, np.minimum(scales, _LARGEST_SCALE)])

    def _count(self, p: Packets, order: Ints, conn: Ints, side: NDArray[np.int8]) -> None:
        starts = _starts(conn)
        groups = conn[starts]
        sizes = np.diff(starts, append=len(conn))
        half = 2 * np.repeat(np.arange(len(starts)), sizes) + side
        length = p.length[order]
        parts = np.maximum(1, -(-length // np.repeat(self.segment_size(groups), sizes)))
        f = self.facts
        for column, weights in ((f.packets, None), (f.segments, parts), (f.payload, length), (f.wire, p.wire[order])):
            counts = np.bincount(half, weights, 2 * len(starts)).reshape(-1, 2)  # exact up to 2**53
            column[groups] += counts.astype(np.int64)

    def _unwrapped(self, p: Packets, order: Ints, conn: Ints, side: NDArray[np.int8]) -> Timeline:
        """Sequence and acknowledgement numbers without their wrap at 2**32 (RFC 9293 §3.4)."""
        seq, ack, flags = p.seq[order], p.ack[order], p.flags[order]
        has_ack = (flags & ACK) != 0
        self._anchor(conn, side, seq, ack, has_ack)
        start = np.empty(len(order), np.int64)
        acked = np.full(len(order), -1, np.int64)
        for s in (0, 1):
            own = np.flatnonzero(side == s)
            start[own] = _chain(conn[own], seq[own], self.facts.seq[:, s])
            own = np.flatnonzero((side == s) & has_ack)
            acked[own] = _chain(conn[own], ack[own], self.facts.ack[:, s])
        length = p.length[order].astype(np.int64)
        consumed = length + ((flags & np.uint16(SYN)) != 0) + ((flags & np.uint16(FIN)) != 0)
        shift = self.facts.shift.ravel()[2 * conn + side]
        window = p.window[order].astype(np.int64) << shift
        syn = np.flatnonzero(flags & np.uint16(SYN))
        window[syn] = p.window[order[syn]]  # that of a SYN is never scaled
        empty = np.zeros(len(order), np.int64)
        return Timeline(
            conn=conn, side=side, frame=p.frame[order], ts=p.ts[order], start=start, end=start + consumed, ack=acked,
            length=length, flags=flags, window=window, sent_own=empty, acked_own=empty,
            acked_peer=empty, exchange=empty - 1, carried=np.zeros(len(order), np.bool_),
        )  # fmt: skip

    def _anchor(
        self,
        conn: Ints,
        side: NDArray[np.int8],
        seq: NDArray[np.uint32],
        ack: NDArray[np.uint32],
        has_ack: Bools,
    ) -> None:
        """Start the numbering of new half-connections: at their first segment, else at its peer's first ACK."""
        f, starts = self.facts, _starts(conn)
        c = conn[starts]
        for s in (0, 1):
            for rows, number in (((side == s), seq), ((side != s) & has_ack, ack)):
                first = _first_of_each(rows, starts)
                new = np.flatnonzero((first >= 0) & (f.seq[c, s] < 0))
                f.seq[c[new], s] = _ORIGIN + number[first[new]]
            talks = _first_of_each(side != s, starts) >= 0
            new = np.flatnonzero(talks & (f.ack[c, 1 - s] < 0) & (f.seq[c, s] >= 0))
            f.ack[c[new], 1 - s] = f.seq[c[new], s]

    def _with_context(self, new: Timeline) -> Timeline:
        if self._context is None or not len(self._context):
            return new
        present = np.isin(self._context.conn, new.conn[new.starts])
        if not present.any():
            return new
        old = self._context.take(np.flatnonzero(present))
        self._context = self._context.take(np.flatnonzero(~present))
        old.carried[:] = True
        both = Timeline.join([old, new])
        return both.take(np.argsort(both.conn, kind="stable"))

    def _fill_before(self, rows: Timeline) -> None:
        """``sent_own`` and ``acked_*`` of the new rows; carried rows keep what they had."""
        first = rows.side == 0
        sent = [self._highest_before(rows, rows.end * (rows.side == s), self.facts.sent, s) for s in (0, 1)]
        acked = [self._highest_before(rows, rows.ack * (rows.side != s), self.facts.acked, s) for s in (0, 1)]
        old = np.flatnonzero(rows.carried)
        for name, of_first, of_second in (
            ("sent_own", sent[0], sent[1]),
            ("acked_own", acked[0], acked[1]),
            ("acked_peer", acked[1], acked[0]),
        ):
            kept = getattr(rows, name)[old]
            column = np.where(first, of_first, of_second)
            column[old] = kept
            setattr(rows, name, column)

    def _highest_before(self, rows: Timeline, values: Ints, state: Ints, side: int) -> Ints:
        """Running maximum per connection, without the row itself; starts from ``state`` and is written back to it."""
        starts = rows.starts
        conns = rows.conn[starts]
        floor = state[conns, side]
        # One accumulate for all connections: each has its own band of numbers, above the one before.
        band = np.arange(len(starts)) * _BAND
        top = values - rows.spread(floor)
        np.clip(top, 0, _BAND - 1, out=top)
        top += rows.spread(band)
        np.maximum.accumulate(top, out=top)
        last = top[rows.lasts] - band + floor
        before: Ints = np.empty_like(top)
        before[1:] = top[:-1]
        before[starts] = band
        before += rows.spread(floor - band)
        state[conns, side] = last
        return before

    def _learn(self, rows: Timeline) -> None:
        """First senders of data, closings, and each side's shortest reaction."""
        f, new = self.facts, ~rows.carried
        opens = _first_of_each(new & rows.is_data, rows.starts)
        opens = opens[opens >= 0]
        opens = opens[f.opener[rows.conn[opens]] < 0]
        f.opener[rows.conn[opens]] = rows.side[opens]
        ends = np.flatnonzero(new & (rows.flags & (FIN | RST) != 0))
        f.closed[rows.conn[ends], rows.side[ends]] = True
        f.closed[rows.conn[ends], 1 - rows.side[ends]] |= rows.flags[ends] & RST != 0
        acker, acked = rows.answers
        shortest = rows.ts[acker] - rows.ts[acked]
        np.minimum.at(f.reaction, (rows.conn[acker], rows.side[acker]), np.maximum(shortest, 0))

    def _keep_context(self) -> None:
        """Of the previous window keep, per open connection, the last row and the last of each kind of each side."""
        rows = self._previous
        if rows is None:
            return
        keep = np.zeros(len(rows), np.bool_)
        keep[rows.lasts] = True
        for side in (0, 1):
            for kind in (rows.is_consuming, rows.is_data, rows.is_pure_ack):
                last = rows.last_of_each(kind & (rows.side == side))
                keep[last[last >= 0]] = True
        keep &= ~self.facts.closed[rows.conn].all(1)
        kept = rows.take(np.flatnonzero(keep))
        self._context = kept if self._context is None else Timeline.join([self._context, kept])


def _starts(grouped: Ints) -> Ints:
    """Where each run of equal numbers begins."""
    return np.concatenate([[0], np.flatnonzero(grouped[1:] != grouped[:-1]) + 1])[: len(grouped)]


def _first_of_each(mask: Bools, starts: Ints) -> Ints:
    """The first row of each run where ``mask``, shape of ``starts``; -1 none."""
    where = np.append(np.flatnonzero(mask), len(mask))
    first = where[np.searchsorted(where, starts)]
    return np.where(first < np.append(starts[1:], len(mask)), first, -1)


def _chain(conn: Ints, wire: NDArray[np.uint32], state: Ints) -> Ints:
    """Unwrap wire numbers (n,), grouped by connection, by following their steps; ``state`` is read and updated."""
    if not len(conn):
        return np.empty(0, np.int64)
    starts = _starts(conn)
    groups = conn[starts]
    sizes = np.diff(starts, append=len(conn))
    steps = np.empty(len(conn), np.int64)
    steps[1:] = (wire[1:] - wire[:-1]).view(np.int32)
    steps[starts] = (wire[starts] - state[groups].astype(np.uint32)).view(np.int32)  # modulo 2**32
    total = np.cumsum(steps)
    unwrapped: Ints = total + np.repeat(state[groups] - (total[starts] - steps[starts]), sizes)
    state[groups] = unwrapped[starts + sizes - 1]
    return unwrapped
