"""Packets → connections: which connection and direction each segment belongs to, and its place in the byte stream.

The packets of one window come in, in capture order; a :class:`Timeline` comes out, grouped by connection, every row
with its unwrapped sequence numbers and with what its half-connection looked like just before it. A half-connection is
one direction of a connection; ``side`` 0 is the end that opened it (the SYN's sender, or the sender of the first
packet seen), side 1 its peer.

Only live connections are in memory, each in a row ("place") of the tables here. One that is over is put away:
what is left of it is a row of the ledger (:mod:`nagle_lab.tcp.ledger`).
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nagle_lab.packet import Packets
from nagle_lab.tcp.columns import ACK, RST, SYN, Bools, Ints, Sides, distinct
from nagle_lab.tcp.keytable import KeyTable
from nagle_lab.tcp.loops import Grouped, Halves, by_pair, endpoint_hash, lower, sort_numbers, unwrap
from nagle_lab.tcp.timeline import Timeline

LEAST_MSS = 536  # what any host must take (RFC 9293 §3.7.1): surely small is only what is smaller
DEFAULT_MSS = 1448  # Ethernet's 1460 less timestamps: what a connection uses when its handshake was not captured
_LARGEST_SCALE = 14  # RFC 7323 §2.3; a window of unknown scale (no SYN, or its options cut off) is taken so large

# A closed connection is remembered as long as Linux remembers it (TCP_TIMEWAIT_LEN): late packets are still its own.
TIME_WAIT = 60 * 1_000_000_000  # ns
LAST_ANSWER = 1_000_000_000  # ns; what a closing leads to has come by then
# Beyond so many live connections, closed ones and unanswered SYNs (a flood) are put away early, the oldest first.
MANY = 1 << 15


@dataclass
class _Facts:
    """What is remembered of every live connection, one row each; two columns where it is known per side."""

    id: Ints  # (n,) the connection's number in order of appearance; -1 a free place
    pair: Ints  # (n,) number of its address pair
    origin: NDArray[np.uint64]  # (n,) hash of side 0's address and port
    hi: NDArray[np.uint64]  # addresses, (n, 2)
    lo: NDArray[np.uint64]
    port: NDArray[np.uint16]
    seq: Ints  # (n, 2) unwrapped number of the latest segment; -1 unknown
    ack: Ints  # (n, 2) unwrapped number of the latest acknowledgement sent by that side; -1 unknown
    sent: Ints  # (n, 2) highest end sent; 0 none
    told: Ints  # (n, 2) highest acknowledgement sent; 0 none
    mss: NDArray[np.uint16]  # (n, 2) MSS option in that side's SYN; 0 unknown
    wscale: Sides  # (n, 2) window scale in that side's SYN; -1 unknown
    shift: NDArray[np.uint8]  # (n, 2) how far that side's window is scaled; at most, where no SYN tells
    stamps: Bools  # (n, 2) timestamps option in that side's SYN
    syn: Ints  # (n, 2) wire sequence number of that side's SYN; -1 not seen
    syn_window: Ints  # (n, 2) window in that side's SYN, bytes; -1 not seen
    size: Ints  # (n,) largest payload of one segment in bytes: the smaller MSS (RFC 9293 §3.7.1) less timestamps
    small: Ints  # (n, 2) a segment of that side with less payload, in bytes, is surely no full one
    closed: Bools  # (n, 2) FIN sent; both by a RST
    opener: Sides  # (n,) side that sent the first data; -1 none yet
    packets: Ints  # (n, 2) sent by that side
    segments: Ints  # (n, 2) the same, packets made by segmentation offload counted in parts
    payload: Ints  # (n, 2) bytes in them
    wire: Ints  # (n, 2) bytes of the whole packets
    first_frame: Ints  # (n,)
    last_ts: Ints  # (n,) ns, of its latest packet
    reaction: Ints  # (n, 2) ns, shortest time from a segment of the peer to this side's acknowledgement of it


NO_REACTION = np.iinfo(np.int64).max
_INITIAL: dict[str, tuple[type[np.generic], int, int]] = {
    "id": (np.int64, 1, -1),
    "pair": (np.int64, 1, -1),
    "origin": (np.uint64, 1, 0),
    "hi": (np.uint64, 2, 0),
    "lo": (np.uint64, 2, 0),
    "port": (np.uint16, 2, 0),
    "seq": (np.int64, 2, -1),
    "ack": (np.int64, 2, -1),
    "sent": (np.int64, 2, 0),
    "told": (np.int64, 2, 0),
    "mss": (np.uint16, 2, 0),
    "wscale": (np.int8, 2, -1),
    "shift": (np.uint8, 2, 14),
    "stamps": (np.bool_, 2, 0),
    "syn": (np.int64, 2, -1),
    "syn_window": (np.int64, 2, -1),
    "size": (np.int64, 1, DEFAULT_MSS),
    "small": (np.int64, 2, LEAST_MSS),
    "closed": (np.bool_, 2, 0),
    "opener": (np.int8, 1, -1),
    "packets": (np.int64, 2, 0),
    "segments": (np.int64, 2, 0),
    "payload": (np.int64, 2, 0),
    "wire": (np.int64, 2, 0),
    "first_frame": (np.int64, 1, 0),
    "last_ts": (np.int64, 1, 0),
    "reaction": (np.int64, 2, NO_REACTION),
}


def _blank(name: str, n: int) -> NDArray[Any]:
    dtype, columns, value = _INITIAL[name]
    return np.full((n, columns) if columns > 1 else n, value, dtype)


class Connections:
    """Every connection of a capture; :meth:`follow` takes the next window of packets, :meth:`finish` ends it."""

    def __init__(self) -> None:
        self.count = 0  # connections seen
        self.copies = 0  # packets seen before, on another interface
        self.facts = _Facts(**{name: _blank(name, 64) for name in _INITIAL})
        self._free = np.arange(63, -1, -1)  # places, the next one last
        self._pairs = KeyTable()
        self._current = np.full(64, -1, np.int64)  # address pair → place of its newest connection
        self._superseded: list[Ints] = []  # places of connections whose address pair has a newer one
        self._context = Timeline.empty(0)  # rows later windows may have to look back at

    @property
    def places(self) -> int:
        """Places there are, free ones included: every place is below this."""
        return len(self.facts.id)

    # Roles ------------------------------------------------------------------------------------------

    def client_side(self, place: Ints) -> Sides:
        """Which side is the client of those (n,): by handshake, else who sent data first, else side 0."""
        sure = self.sure_client_side(place)
        return np.where(sure >= 0, sure, np.maximum(self.facts.opener[place], 0)).astype(np.int8)

    def sure_client_side(self, place: Ints) -> Sides:
        """The same where no later packet can change it; else -1."""
        syn = self.facts.syn
        return np.where(np.maximum(syn[place, 0], syn[place, 1]) >= 0, 0, -1).astype(np.int8)

    def handshakes(self, place: Ints) -> Bools:
        """Which of those (n,) have both SYNs in the capture."""
        syn = self.facts.syn[place]
        return (syn[:, 0] >= 0) & (syn[:, 1] >= 0)

    # Windows of packets -----------------------------------------------------------------------------

    def follow(self, packets: Packets, hashes: tuple[NDArray[np.uint64], NDArray[np.uint64]]) -> Timeline:
        """The timeline of the next window; packets (n,) become rows (n + carried context,).

        ``hashes`` are those of their senders and of both ends: :func:`nagle_lab.tcp.loops.hash_pairs`.
        """
        sender, pair_hash = hashes
        pair = self._pairs.numbers(pair_hash)
        order, groups, syns = by_pair(packets, sender, pair, sort_numbers(pair, self._pairs.size))
        self.copies += len(packets) - len(order)
        start, places = self._generations(packets, order, pair, groups, syns)
        place = places[np.searchsorted(start, syns, "right") - 1]
        self._learn_handshakes(packets, order[syns], place, sender[order[syns]])
        rows = self._unwrapped(packets, order, sender, start, places)
        acker, _, wait = rows.noticed.answers
        lower(rows, acker, wait, self.facts.reaction)
        return rows

    def finish(self, rows: Timeline) -> Ints:
        """End the window of ``rows``: keep what later ones look back at; returns the places of what is over.

        Whoever keeps something by place must take it from these now: :meth:`free` gives them to new connections.
        """
        over = self._over(int(rows.ts.max()))
        self._keep_context(rows, over)
        return over

    def free(self, places: Ints) -> None:
        """Forget the connections there."""
        pair = self.facts.pair[places]
        newest = self._current[pair] == places
        self._pairs.drop(pair[newest])
        self._current[pair[newest]] = -1
        for name, (_, _, value) in _INITIAL.items():
            getattr(self.facts, name)[places] = value
        self._free = np.concatenate([self._free, places[::-1]])

    def live(self) -> Ints:
        """The places that are taken."""
        return np.flatnonzero(self.facts.id >= 0)

    def _generations(self, p: Packets, order: Ints, pair: Ints, groups: Ints, syns: Ints) -> tuple[Ints, Ints]:
        """Where in the order each connection begins, and its place.

        A SYN with a new sequence number starts another on the same address pair.
        """
        if self._pairs.size > len(self._current):
            spare = np.full(2 * self._pairs.size - len(self._current), -1, np.int64)
            self._current = np.concatenate([self._current, spare])
        known = self._current[pair[order[groups]]]
        syns = syns[p.flags[order[syns]] & (SYN | ACK | RST) == SYN]
        own = pair[order[syns]]
        before = self._current[own]
        latest = np.where(before >= 0, self.facts.syn[before, 0], -1)
        seq = p.seq[order[syns]].astype(np.int64)
        same = np.flatnonzero(own[1:] == own[:-1]) + 1
        latest[same] = seq[same - 1]  # the previous SYN of the pair: in this window, else what is remembered
        # A SYN that is the very first row of an unknown pair is one beginning, not two.
        born = distinct(syns[seq != latest], groups[known < 0])
        places = self._new(p, order[born], pair[order[born]])
        # A row belongs to the latest connection begun in its group, else to the one known before.
        start = distinct(groups, born)
        owner = np.full(len(start), -1)
        owner[np.searchsorted(start, groups)] = known
        begun = np.searchsorted(start, born)
        replaced, owner[begun] = owner[begun], places
        own = pair[order[start]]
        self._supersede(replaced, owner, own)
        self._current[own] = owner  # duplicates: the last of each pair wins, its newest connection
        return start, owner

    def _supersede(self, known: Ints, owner: Ints, pair: Ints) -> None:
        """Note whom a newer connection follows: the one ``known`` before, or an earlier one of this window."""
        followed = np.concatenate([pair[1:] == pair[:-1], [False]])[: len(pair)]
        self._superseded += [known[known >= 0], owner[followed & (owner >= 0)]]

    def _new(self, p: Packets, rows: Ints, pair: Ints) -> Ints:
        """Open a connection for each of those packets; side 0 is its sender, or for a SYN-ACK its receiver."""
        n = len(rows)
        if n > len(self._free):
            self._grow(n)
        places, self._free = self._free[len(self._free) - n :][::-1], self._free[: len(self._free) - n]
        f, swap = self.facts, (p.flags[rows] & (SYN | ACK)) == SYN | ACK
        f.id[places[np.argsort(rows)]] = np.arange(self.count, self.count + n)  # numbered by their first packet
        self.count += n
        for column, sent, received in (
            (f.hi, p.src_hi, p.dst_hi),
            (f.lo, p.src_lo, p.dst_lo),
            (f.port, p.sport, p.dport),
        ):
            column[places, 0] = np.where(swap, received[rows], sent[rows])
            column[places, 1] = np.where(swap, sent[rows], received[rows])
        f.origin[places] = endpoint_hash(f.hi[places, 0], f.lo[places, 0], f.port[places, 0])
        f.first_frame[places], f.last_ts[places], f.pair[places] = p.frame[rows], p.ts[rows], pair
        return places

    def _grow(self, need: int) -> None:
        old = self.places
        new = old + need + old // 4  # little to spare: a flood fills it with SYNs
        for name in _INITIAL:
            grown = _blank(name, new)
            grown[:old] = getattr(self.facts, name)
            setattr(self.facts, name, grown)
        self._free = np.concatenate([np.arange(new - 1, old - 1, -1), self._free])

    def _learn_handshakes(self, p: Packets, syns: Ints, place: Ints, sender: NDArray[np.uint64]) -> None:
        """What the SYNs (n,) of those connections tell; ``sender`` (n,) sent them."""
        if not len(syns):
            return
        f = self.facts
        half = 2 * place + (sender != f.origin[place])
        for column, said in (
            (f.syn, p.seq), (f.syn_window, p.window), (f.mss, p.mss), (f.wscale, p.wscale), (f.stamps, p.has_ts),
        ):  # fmt: skip
            column.reshape(-1)[half] = said[syns]
        one, other = f.wscale[place].T
        told = (one >= 0).astype(np.int8) + (other >= 0)  # used only when both ends told theirs (RFC 7323 §2.3)
        for side, scale in enumerate((one, other)):
            f.shift[place, side] = np.choose(told, [_LARGEST_SCALE, 0, np.minimum(scale, _LARGEST_SCALE)])
        self._learn_sizes(place)

    def _learn_sizes(self, place: Ints) -> None:
        """The largest segment of those connections (n,), and what is surely less.

        Linux takes half the largest window it was offered for a full segment where that is less than the MSS, on
        loopback for example (tcp_bound_to_half_wnd); that window is never less than the one in the peer's SYN.
        """
        f = self.facts
        one, other = f.mss[place].astype(np.int64).T  # column by column: rows of two are slow to go through
        smaller = np.where((one > 0) & (other > 0), np.minimum(one, other), np.maximum(one, other))
        told, payload = smaller > 0, np.maximum(smaller - 12 * (f.stamps[place, 0] & f.stamps[place, 1]), 1)
        f.size[place] = np.where(told, payload, DEFAULT_MSS)
        sure = np.where(told, payload, LEAST_MSS)
        for side in (0, 1):
            window = f.syn_window[place, 1 - side]
            half = np.where(window > LEAST_MSS, window // 2, window)
            f.small[place, side] = np.where(window >= 0, np.minimum(sure, half), sure)

    def _unwrapped(self, p: Packets, order: Ints, sender: NDArray[np.uint64], start: Ints, places: Ints) -> Timeline:
        """Of each connection, the rows of earlier windows that these may look back at, and then the new ones."""
        size, f = np.diff(start, append=len(order)), self.facts
        old, group = self._looked_back_at(places)
        carried = np.cumsum(np.bincount(group, minlength=len(places)))
        rows = Timeline.empty(len(order) + len(old))
        rows.put(start[group] + np.arange(len(old)), old)
        halves = Halves(*(getattr(f, name) for name in Halves._fields))
        unwrap(p, Grouped(order, sender, start, size, places, f.size[places], carried), halves, rows)
        return rows

    def _looked_back_at(self, places: Ints) -> tuple[Timeline, Ints]:
        """Take out the context of the connections there: its rows in their order, and of each whose it is."""
        owner = np.full(self.places, -1)
        owner[places] = np.arange(len(places))
        owner = owner[self._context.conn]
        rows = np.flatnonzero(owner >= 0)
        rows = rows[np.argsort(owner[rows], kind="stable")]
        old = self._context.take(rows)
        old.carried[:] = True
        self._context = self._context.take(np.flatnonzero(owner < 0))
        return old, owner[rows]

    def _over(self, now: int) -> Ints:
        """Places of connections that nothing more is expected of."""
        f, live = self.facts, self.live()
        closed, silent = f.closed[live, 0] & f.closed[live, 1], now - f.last_ts[live]
        over = closed & (silent > TIME_WAIT)
        if len(live) > MANY:
            unanswered = (f.packets[live, 1] == 0) & (f.payload[live, 0] == 0) & (f.syn[live, 0] >= 0)
            early = np.flatnonzero(closed | unanswered)
            over[early[np.argsort(-silent[early], kind="stable")][: len(live) - MANY]] = True
        places = distinct(*self._superseded, live[over])
        self._superseded.clear()
        return places

    def _keep_context(self, rows: Timeline, over: Ints) -> None:
        """Keep what later windows may look back at, of connections that are not over."""
        f = self.facts
        gone = f.closed[:, 0] & f.closed[:, 1] & (int(rows.ts.max()) - f.last_ts > LAST_ANSWER)
        gone[over] = True
        keep = np.flatnonzero(rows.noticed.context)
        keep = keep[~gone[rows.conn[keep]]]
        stays = np.flatnonzero(~gone[self._context.conn])
        self._context = Timeline.join([rows.take(keep), self._context.take(stays)])
