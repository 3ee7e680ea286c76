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

DEFAULT_MSS = 1448  # Ethernet's 1460 less timestamps: what a connection uses when its handshake was not captured
_UNSET = np.int64(-1)
_ORIGIN = np.int64(1) << 32  # unwrapped numbers start here, so that all are positive and 0 means "nothing yet"
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
    mss: Ints  # (n, 2) MSS option in that side's SYN; 0 unknown
    wscale: Ints  # (n, 2) window scale in that side's SYN; -1 unknown
    stamps: Bools  # (n, 2) timestamps option in that side's SYN
    syn: Ints  # (n, 2) wire sequence number of that side's SYN; -1 not seen
    closed: Bools  # (n, 2) FIN sent; both by a RST
    opener: NDArray[np.int8]  # (n,) side that sent the first data; -1 none yet
    packets: Ints  # (n,)
    first_frame: Ints  # (n,)
    longest: Ints  # (n, 2) longest payload sent
    reaction: Ints  # (n, 2) ns, shortest time from a segment of the peer to this side's acknowledgement of it


_INITIAL: dict[str, tuple[type[np.generic], int, int]] = {
    "hi": (np.uint64, 2, 0),
    "lo": (np.uint64, 2, 0),
    "port": (np.uint16, 2, 0),
    "seq": (np.int64, 2, -1),
    "ack": (np.int64, 2, -1),
    "sent": (np.int64, 2, 0),
    "acked": (np.int64, 2, 0),
    "mss": (np.int64, 2, 0),
    "wscale": (np.int64, 2, -1),
    "stamps": (np.bool_, 2, 0),
    "syn": (np.int64, 2, -1),
    "closed": (np.bool_, 2, 0),
    "opener": (np.int8, 1, -1),
    "packets": (np.int64, 1, 0),
    "first_frame": (np.int64, 1, 0),
    "longest": (np.int64, 2, 0),
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
        self.facts = _Facts(**{name: _blank(name, 64) for name in _INITIAL})
        self._pairs = KeyTable()
        self._current = np.full(64, -1, np.int64)  # address pair → its newest connection
        self._context: Timeline | None = None  # rows later windows may have to look back at
        self._previous: Timeline | None = None  # the previous window, complete with what later stages wrote into it

    # Roles ------------------------------------------------------------------------------------------

    def client_side(self) -> NDArray[np.int8]:
        """Which side is the client, shape (count,): by handshake, else who sent data first, else side 0."""
        f = self.facts
        syn = f.syn[: self.count]
        by_handshake = (syn[:, 0] >= 0) | (syn[:, 1] >= 0)
        return np.where(by_handshake, 0, np.maximum(f.opener[: self.count], 0)).astype(np.int8)

    def handshakes(self) -> Bools:
        """Connections with both SYNs in the capture, shape (count,)."""
        syn = self.facts.syn[: self.count]
        return (syn[:, 0] >= 0) & (syn[:, 1] >= 0)

    def segment_size(self) -> Ints:
        """Largest payload of one segment, (count,), bytes: the smaller MSS (RFC 9293 §3.7.1) less timestamps."""
        mss, stamps = self.facts.mss[: self.count], self.facts.stamps[: self.count].all(1)
        smaller = np.where((mss > 0).all(1), mss.min(1), mss.max(1))
        return np.where(smaller > 0, smaller - 12 * stamps, DEFAULT_MSS)

    # Windows of packets -----------------------------------------------------------------------------

    def follow(self, packets: Packets) -> Timeline:
        """The timeline of the next window; packets (n,) become rows (n + carried context,)."""
        order, conn, side = self._assign(packets)
        self._learn_handshakes(packets, order, conn, side)
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
        first = np.diff(pair, prepend=_UNSET) != 0
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
        nth = np.maximum.accumulate(np.where(begins, np.arange(len(pair)), -1))
        groups = np.flatnonzero(first)
        within = nth >= np.repeat(groups, np.diff(groups, append=len(pair)))
        conn = np.where(within, conn_of_birth[np.searchsorted(born, nth)] if len(born) else known, known)
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
                grown = _blank(name, 2 * self.count)
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

    def _learn_handshakes(self, p: Packets, order: Ints, conn: Ints, side: NDArray[np.int8]) -> None:
        rows = np.flatnonzero(p.flags[order] & SYN)
        if not len(rows):
            return
        at, source, f = (conn[rows], side[rows]), order[rows], self.facts
        f.syn[at] = p.seq[source]
        f.mss[at] = p.mss[source]
        f.wscale[at] = p.wscale[source]
        f.stamps[at] = p.has_ts[source]

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
            own = own[has_ack[own]]
            acked[own] = _chain(conn[own], ack[own], self.facts.ack[:, s])
        length = p.length[order].astype(np.int64)
        consumed = length + ((flags & SYN) != 0) + ((flags & FIN) != 0)
        scale = np.where((self.facts.wscale[conn] >= 0).all(1), self.facts.wscale[conn, side], 0)
        window = p.window[order].astype(np.int64) << np.where(flags & SYN, 0, np.minimum(scale, 14))
        empty = np.zeros(len(order), np.int64)
        return Timeline(
            conn=conn, side=side, frame=p.frame[order], ts=p.ts[order], start=start, end=start + consumed, ack=acked,
            length=length, flags=flags, window=window, sent_own=empty, sent_peer=empty, acked_own=empty,
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
        f = self.facts
        for s in (0, 1):
            for rows, number in (
                (np.flatnonzero(side == s), seq),
                (np.flatnonzero((side != s) & has_ack), ack),
            ):
                unknown = rows[f.seq[conn[rows], s] < 0][::-1]  # reversed: the earliest row is written last
                f.seq[conn[unknown], s] = _ORIGIN + number[unknown]
            rows = np.flatnonzero(side == 1 - s)
            fresh = rows[(f.ack[conn[rows], 1 - s] < 0) & (f.seq[conn[rows], s] >= 0)]
            f.ack[conn[fresh], 1 - s] = f.seq[conn[fresh], s]

    def _with_context(self, new: Timeline) -> Timeline:
        if self._context is None or not len(self._context):
            return new
        present = np.zeros(self.count, np.bool_)
        present[new.conn] = True
        here = present[self._context.conn]
        old = self._context.take(np.flatnonzero(here))
        self._context = self._context.take(np.flatnonzero(~here))
        old.carried[:] = True
        both = Timeline.join(old, new)
        return both.take(np.argsort(both.conn, kind="stable"))

    def _fill_before(self, rows: Timeline) -> None:
        """``sent_*`` and ``acked_*`` of the new rows; carried rows keep what they had."""
        mine = rows.side == 0
        sent = [
            self._highest_before(rows, np.where(mine == (s == 0), rows.end, 0), self.facts.sent, s) for s in (0, 1)
        ]
        acked = [
            self._highest_before(rows, np.where(mine == (s == 1), rows.ack, 0), self.facts.acked, s) for s in (0, 1)
        ]
        new = ~rows.carried
        rows.sent_own = np.where(new, np.where(mine, sent[0], sent[1]), rows.sent_own)
        rows.sent_peer = np.where(new, np.where(mine, sent[1], sent[0]), rows.sent_peer)
        rows.acked_own = np.where(new, np.where(mine, acked[0], acked[1]), rows.acked_own)
        rows.acked_peer = np.where(new, np.where(mine, acked[1], acked[0]), rows.acked_peer)

    def _highest_before(self, rows: Timeline, values: Ints, state: Ints, side: int) -> Ints:
        """Running maximum per connection, without the row itself; starts from ``state`` and is written back to it."""
        starts = rows.starts
        sizes = np.diff(starts, append=len(rows))
        floor = np.repeat(state[rows.conn[starts], side], sizes)
        # One accumulate for all connections: each has its own band of numbers, above the one before.
        band = np.repeat(np.arange(len(starts)) * _BAND, sizes)
        top = np.maximum.accumulate(np.clip(values - floor, 0, _BAND - 1) + band) - band
        state[rows.conn[starts], side] += top[starts + sizes - 1]
        before: Ints = np.concatenate([[0], top[:-1]])
        before[starts] = 0
        before += floor
        return before

    def _learn(self, rows: Timeline) -> None:
        """Longest payloads, first senders of data, and each side's shortest reaction."""
        f, new = self.facts, ~rows.carried
        f.packets[: self.count] += np.bincount(rows.conn[new], minlength=self.count)
        data = np.flatnonzero(new & rows.is_data)
        np.maximum.at(f.longest, (rows.conn[data], rows.side[data]), rows.length[data])
        silent = data[f.opener[rows.conn[data]] < 0][::-1]  # reversed: the earliest row is written last
        f.opener[rows.conn[silent]] = rows.side[silent]
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
            for kind in (rows.end > rows.start, rows.is_data, rows.is_pure_ack):
                last = rows.last_until(kind & (rows.side == side))[rows.lasts]
                keep[last[last >= 0]] = True
        keep &= ~self.facts.closed[rows.conn].all(1)
        kept = rows.take(np.flatnonzero(keep))
        self._context = kept if self._context is None else Timeline.join(self._context, kept)


def _chain(conn: Ints, wire: NDArray[np.uint32], state: Ints) -> Ints:
    """Unwrap wire numbers (n,), grouped by connection, by following their steps; ``state`` is read and updated."""
    if not len(conn):
        return np.empty(0, np.int64)
    first = np.diff(conn, prepend=_UNSET) != 0
    previous = np.concatenate([[0], wire[:-1]]).astype(np.uint32)
    previous[first] = (state[conn[first]] & 0xFFFFFFFF).astype(np.uint32)
    steps = (wire - previous).view(np.int32).astype(np.int64)
    total = np.cumsum(steps)
    starts = np.flatnonzero(first)
    base = state[conn[starts]] - (total[starts] - steps[starts])
    unwrapped: Ints = total + np.repeat(base, np.diff(starts, append=len(conn)))
    state[conn] = unwrapped  # duplicates: the last row of each connection wins
    return unwrapped
