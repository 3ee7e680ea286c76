"""The loops over every packet in NumPy: what each does, and the reference that the compiled ones are held to."""

from collections.abc import Iterator
from struct import Struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nagle_lab.tcp.columns import ACK, FIN, RST, SYN, Bools, Bytes, Ints, Sides, runs
from nagle_lab.tcp.loops.shapes import (
    KINDS,
    NEVER,
    NO_EXCHANGES,
    Answers,
    Behind,
    Ended,
    Exchanges,
    Framing,
    Grouped,
    Halves,
    Noticed,
    Pauses,
    Table,
    Waits,
)

Hashes = NDArray[np.uint64]

EMPTY = -1  # a slot of a key table that never held a key; below it: that held one
_ORIGIN = np.int64(1) << 32  # unwrapped numbers start here, so that all are positive and 0 means "nothing yet"
_BAND = np.int64(1) << 40  # more than one window of packets can carry


# Bytes ----------------------------------------------------------------------------------------------


def walk(buffer: Bytes, start: int, end: int, framing: Framing) -> tuple[Ints, int]:
    """Offsets (records,) of the complete records from ``start`` on, and the offset of what follows them.

    A capture is a chain: each record says where the next one starts. Stops at the first record that reaches beyond
    ``end`` or whose size is outside the framing's limits.
    """
    length = Struct(framing.byte_order + "I").unpack_from
    _, length_at, uncounted, shortest, longest = framing
    last = end - framing.header
    memory = buffer.data  # reading single numbers from it is faster than from the array
    offsets: list[int] = []
    found = offsets.append
    while start <= last:
        size = length(memory, start + length_at)[0] + uncounted
        if start + size > end or not shortest <= size <= longest:
            break
        found(start)
        start += size
    return np.array(offsets, np.int64), start


def usual_segments(records: Table, segments: Table) -> tuple[Ints, Ints]:
    """Decode TCP segments with nothing unusual around them into the first rows of ``segments``.

    Returns which ``records`` (n,) they are, and which are left to :mod:`nagle_lab.packet`, both in order. In NumPy,
    its way is as good for all of them.
    """
    del segments
    return np.empty(0, np.int64), np.arange(len(records))


# Connections ----------------------------------------------------------------------------------------


def hash_pairs(packets: Table) -> tuple[Hashes, Hashes]:
    """Of each packet (n,), :func:`endpoint_hash` of its sender, and one of both ends, whichever of them sent it."""
    p = packets
    a, b = endpoint_hash(p.src_hi, p.src_lo, p.sport), endpoint_hash(p.dst_hi, p.dst_lo, p.dport)
    return a, _mix(a + b) ^ (a ^ b)


def endpoint_hash(hi: Hashes, lo: Hashes, port: NDArray[np.uint16]) -> Hashes:
    """One 64-bit number for an endpoint: an address in two halves, and a port."""
    return _mix(lo ^ (hi * np.uint64(0xC2B2AE3D27D4EB4F)) ^ (port.astype(np.uint64) << np.uint64(48)) ^ port)


def _mix(x: Hashes) -> Hashes:
    """A 64-bit finalizer: spreads every input bit over the whole word."""
    x = (x ^ (x >> np.uint64(32))) * np.uint64(0x9FB21C651E98DF25)
    return x ^ (x >> np.uint64(29))


def find_keys(keys: Hashes, table: Hashes, numbers: Ints) -> Ints:
    """The number of each key (n,) in a table with open addressing; -1 for one that is not there.

    ``table`` and ``numbers`` (a power of two,) are its slots; a negative number is that of a slot without a key.
    """
    found = np.full(len(keys), EMPTY, np.int64)
    for rows, slot in _probes(keys, table, numbers):
        number = numbers[slot]
        hit = (table[slot] == keys[rows]) & (number >= 0)
        found[rows[hit]] = number[hit]
    return found


def _probes(keys: Hashes, table: Hashes, numbers: Ints) -> Iterator[tuple[Ints, Ints]]:
    """Rows still looking and the slot each looks at, until every row met its key or an empty slot."""
    mask = np.uint64(len(table) - 1)
    rows = np.arange(len(keys))
    slot = (keys & mask).astype(np.int64)
    while len(rows):
        yield rows, slot
        number = numbers[slot]
        on = np.flatnonzero((number != EMPTY) & ((table[slot] != keys[rows]) | (number < 0)))
        rows, slot = rows[on], (slot[on] + 1) & np.int64(mask)


def sort_numbers(numbers: Ints, below: int) -> Ints:
    """The stable order of numbers (n,), each at least 0 and less than ``below``."""
    return np.argsort(numbers.astype(np.uint16) if below < 1 << 16 else numbers, kind="stable")  # uint16: radix sort


def by_pair(packets: Table, sender: Hashes, pair: Ints, order: Ints) -> tuple[Ints, Ints, Ints]:
    """Of packets (n,) in the ``order`` of their address pairs: their order without copies, and where in it are what.

    Those are the first packet of each pair, and every SYN. A copy is a packet captured twice, on two interfaces: the
    same IPv4 datagram right after itself.
    """
    p, same = packets, packets.ip_id[order[1:]] != 0
    for column in (p.ip_id, pair, sender, p.seq, p.ack, p.flags, p.length, p.window):
        same &= column[order[1:]] == column[order[:-1]]
    order = np.delete(order, np.flatnonzero(same) + 1)
    return order, runs(pair[order]), np.flatnonzero(p.flags[order] & np.uint16(SYN))


def unwrap(packets: Table, by: Grouped, halves: Halves, rows: Table) -> None:
    """Fill in those ``rows`` of a timeline that are new, of ``packets`` in the order that ``by`` says.

    Sequence and acknowledgement numbers lose their wrap, going on from ``halves``, which are updated.
    """
    at = np.arange(len(by.order)) + np.repeat(by.carried, by.size)
    for name, column in _unwrapped(packets, by, halves).items():
        getattr(rows, name)[at] = column


def _unwrapped(p: Table, by: Grouped, halves: Halves) -> dict[str, NDArray[np.generic] | int]:
    """Sequence and acknowledgement numbers without their wrap at 2**32 (RFC 9293 §3.4), and how far they got."""
    order, n, conn = by.order, len(by.order), np.repeat(by.place, by.size)
    side = (by.sender[order] != halves.origin[conn]).astype(np.int8)
    seq, ack, flags = p.seq[order], p.ack[order], p.flags[order]
    has_ack = (flags & np.uint16(ACK)) != 0
    length = p.length[order].astype(np.int64)
    consumed = length + ((flags & np.uint16(SYN)) != 0) + ((flags & np.uint16(FIN)) != 0)
    sides = [_Half(conn, np.flatnonzero(side == s)) for s in (0, 1)]
    acking = [half if has_ack[half.rows].all() else _Half(conn, half.rows[has_ack[half.rows]]) for half in sides]
    _anchor(sides, acking, seq, ack, halves)
    _count(sides, p.wire[order], length, np.repeat(by.segment_size, by.size), halves)
    _open_and_close(conn, side, flags, length, halves)
    start, end, sent_own, acked_peer = np.empty((4, n), np.int64)
    acked = np.full(n, -1)
    for s, (half, acks) in enumerate(zip(sides, acking, strict=True)):
        own = half.rows
        start[own] = chained = half.chain(seq[own], halves.seq[:, s])
        end[own] = ends = chained + consumed[own]
        sent_own[own] = half.highest_before(ends, halves.sent[:, s])
        acked[acks.rows] = acks.chain(ack[acks.rows], halves.ack[:, s])
        acked_peer[own] = half.highest_before(acked[own], halves.told[:, s])
    window = p.window[order].astype(np.int64) << halves.shift.ravel()[2 * conn + side]
    syn = np.flatnonzero(flags & np.uint16(SYN))
    window[syn] = p.window[order[syn]]  # that of a SYN is never scaled
    ts = p.ts[order]
    return {
        "conn": conn, "side": side, "frame": p.frame[order], "ts": ts, "gap": _gaps(ts, by, halves.last_ts),
        "start": start, "end": end, "ack": acked, "length": length, "flags": flags, "window": window,
        "sent_own": sent_own, "acked_peer": acked_peer, "exchange": -1, "carried": 0, "stretch": p.stretch[order],
    }  # fmt: skip


def _gaps(ts: Ints, by: Grouped, last_ts: Ints) -> Ints:
    """ns since the connection's previous packet."""
    gap = np.diff(ts, prepend=ts[:1])
    gap[by.start] = ts[by.start] - last_ts[by.place]
    last_ts[by.place] = ts[by.start + by.size - 1]
    return gap


class _Half:
    """Those ``rows`` of a window, all of one side, grouped by connection."""

    def __init__(self, conn: Ints, rows: Ints) -> None:
        self.rows = rows
        conn = conn[rows]
        self.starts = runs(conn)
        self.conn = conn[self.starts]
        self.sizes = np.diff(self.starts, append=len(conn))
        self._lasts = self.starts + self.sizes - 1

    def chain(self, wire: NDArray[np.uint32], state: Ints) -> Ints:
        """Unwrap wire numbers (n,) by following their steps; ``state`` (places,) is read and updated."""
        if not len(wire):
            return np.empty(0, np.int64)
        before = state[self.conn]
        steps = np.empty(len(wire), np.int32)
        np.subtract(wire[1:], wire[:-1], out=steps[1:].view(np.uint32))  # modulo 2**32
        steps[self.starts] = (wire[self.starts] - before.astype(np.uint32)).view(np.int32)
        total = np.cumsum(steps, dtype=np.int64)
        total += np.repeat(before - (total[self.starts] - steps[self.starts]), self.sizes)
        state[self.conn] = total[self._lasts]
        return total

    def highest_before(self, values: Ints, state: Ints) -> Ints:
        """Highest of the values (n,) before each row; starts from ``state`` (places,), which is updated."""
        if not len(values):
            return np.empty(0, np.int64)
        floor = state[self.conn]
        # One accumulate for all connections: each has its own band of numbers, above the one before.
        band = np.arange(len(self.conn)) * _BAND
        offset = np.repeat(band - floor, self.sizes)
        top = values + offset
        np.maximum(top, np.repeat(band, self.sizes), out=top)
        np.minimum(top, np.repeat(band + (_BAND - 1), self.sizes), out=top)
        np.maximum.accumulate(top, out=top)
        state[self.conn] = top[self._lasts] - band + floor
        before: Ints = np.empty_like(top)
        before[1:] = top[:-1]
        before[self.starts] = band
        before -= offset
        return before


def _anchor(
    sides: list[_Half], acking: list[_Half], seq: NDArray[np.uint32], ack: NDArray[np.uint32], halves: Halves
) -> None:
    """Start the numbering of new half-connections: at their first segment, else at its peer's first ACK."""
    for s in (0, 1):
        for half, number in ((sides[s], seq), (acking[1 - s], ack)):
            new = np.flatnonzero(halves.seq[half.conn, s] < 0)
            halves.seq[half.conn[new], s] = _ORIGIN + number[half.rows[half.starts[new]]]
    for s in (0, 1):
        talking = sides[1 - s].conn
        new = talking[(halves.ack[talking, 1 - s] < 0) & (halves.seq[talking, s] >= 0)]
        halves.ack[new, 1 - s] = halves.seq[new, s]


def _count(sides: list[_Half], wire: NDArray[np.uint32], length: Ints, segment_size: Ints, halves: Halves) -> None:
    """Packets, segments and bytes of each side."""
    for s, half in enumerate(sides):
        if not len(half.rows):
            continue
        own = length[half.rows]
        parts = np.maximum(1, -(-own // segment_size[half.rows]))
        halves.packets[half.conn, s] += half.sizes
        for column, values in ((halves.segments, parts), (halves.payload, own), (halves.wire, wire[half.rows])):
            column[half.conn, s] += np.add.reduceat(values, half.starts, dtype=np.int64)


def _open_and_close(conn: Ints, side: Sides, flags: NDArray[np.uint16], length: Ints, halves: Halves) -> None:
    """First senders of data, and closings."""
    data = np.flatnonzero((length > 0) & (halves.opener[conn] < 0))
    opens = data[runs(conn[data])]
    halves.opener[conn[opens]] = side[opens]
    for flag, closes in ((FIN, side), (RST, side), (RST, 1 - side)):
        rows = np.flatnonzero(flags & np.uint16(flag))
        halves.closed[conn[rows], closes[rows]] = True


# Timeline -------------------------------------------------------------------------------------------


def latest(conn: Ints, side: Sides, of_kind: Bools) -> tuple[Ints, Ints]:
    """Which row of a kind came last before each row (n,) of a timeline, of its connection; -1 where none did.

    Sent by the row's own side, and by its peer. ``conn`` (n,) is grouped, ``of_kind`` (n,) tells the rows asked for.
    """
    at = np.arange(len(conn))
    starts = runs(conn)
    first = np.repeat(starts, np.diff(starts, append=len(conn)))
    by_side = []
    for s in (0, 1):
        seen = np.maximum.accumulate(np.where(of_kind & (side == s), at, -1))
        seen = np.concatenate([[-1], seen])[: len(conn)]
        by_side.append(np.where(seen >= first, seen, -1))
    return np.where(side == 0, *by_side), np.where(side == 0, *by_side[::-1])


def notice(rows: Table, least_ns: int) -> Noticed:
    """What the rows of a timeline show beside those before them; a wait or a pause takes at least so much."""
    return Noticed(_answers(rows), _waits(rows, least_ns), _pauses(rows, least_ns), _behind(rows), _context(rows))


def _answers(rows: Table) -> Answers:
    """Retransmitted segments give none (Karn's rule, RFC 6298 §3), nor does one before which time went back."""
    acker = np.flatnonzero((rows.ack > rows.acked_peer) & ~rows.carried)
    segment = rows.latest_of_peer("consuming", acker)
    exact = np.flatnonzero((segment >= 0) & (rows.ack[acker] == rows.end[segment]))
    acker, segment = acker[exact], segment[exact]
    comparable = rows.stretch[acker] == rows.stretch[segment]
    fresh = np.flatnonzero((rows.start[segment] >= rows.sent_own[segment]) & comparable)
    acker, segment = acker[fresh], segment[fresh]
    return Answers(acker, segment, rows.ts[acker] - rows.ts[segment])


def _waits(rows: Table, least_ns: int) -> Waits:
    """New data is no retransmission."""
    data = np.flatnonzero(rows.is_data)
    ts = rows.ts[data]
    after = np.flatnonzero(ts[1:] - ts[:-1] >= least_ns) + 1
    release, trigger = data[after], data[after - 1]
    of_one = np.flatnonzero((rows.conn[release] == rows.conn[trigger]) & (rows.side[release] == rows.side[trigger]))
    release, trigger = release[of_one], trigger[of_one]
    ack = rows.latest_of_peer("pure_ack", release)
    new = np.flatnonzero(rows.is_fresh(release) & ~rows.carried[release] & (ack > trigger))
    return Waits(trigger[new], rows.latest_of_peer("acking", trigger[new]), ack[new], release[new])


def _pauses(rows: Table, least_ns: int) -> Pauses:
    at = np.flatnonzero((rows.gap >= least_ns) & ~rows.carried)
    own, peer = rows.latest_of_own("data", at), rows.latest_of_peer("data", at)
    some = np.flatnonzero(np.maximum(own, peer) >= 0)
    at = at[some]
    return Pauses(at, own[some], peer[some], rows.latest_of_peer("acking", at))


def _behind(rows: Table) -> Behind:
    """Neither is a retransmission. What is not acknowledged here may be at the sender."""
    sent = np.flatnonzero(rows.is_data & ~rows.carried)
    own = rows.latest_of_own("data", sent)
    known = np.flatnonzero(own >= 0)
    sent, own = sent[known], own[known]
    fresh = np.flatnonzero(rows.is_fresh(sent) & rows.is_fresh(own))
    sent, own = sent[fresh], own[fresh]
    told = rows.latest_of_peer("acking", sent)
    acked = np.where(told >= 0, np.maximum(rows.acked_peer[told], rows.ack[told]), 0)
    waiting = np.flatnonzero(acked < rows.end[own])
    return Behind(sent[waiting], own[waiting])


def _context(rows: Table) -> Bools:
    """Each connection's last row, and before it each side's last of each kind."""
    keep = np.zeros(len(rows), np.bool_)
    keep[rows.lasts] = True
    for kind in KINDS:
        for before in (rows.latest_of_own(kind, rows.lasts), rows.latest_of_peer(kind, rows.lasts)):
            keep[before[before >= 0]] = True
    return keep


def lower(rows: Table, acker: Ints, wait: Ints, fastest: Ints) -> None:
    """Note in ``fastest`` (places, 2) the shortest ``wait`` (n,), ns, of each side that sent one of the rows (n,)."""
    np.minimum.at(fastest, (rows.conn[acker], rows.side[acker]), np.maximum(wait, 0))


# Exchanges ------------------------------------------------------------------------------------------


def exchanges(rows: Table, client: Sides, now: Exchanges) -> Ended:
    """Number the exchange of every new data row in ``rows.exchange``; those that are over, in timeline order.

    ``client`` (connections,) is the side that asks. What goes on from window to window is kept in ``now``.
    """
    data = np.flatnonzero(rows.is_data & (rows.end > rows.sent_own) & ~rows.carried)
    asks = rows.side[data] == client[rows.group[data]]
    number = rows.exchange[data] = _exchange_numbers(rows.conn[data], asks, now)
    acker, acked = _acknowledged_requests(rows, client, data, now)
    events = [
        *_open(rows, now),
        (2 * data, rows.conn[data], number, np.where(asks, _ASKS, _ANSWERS), rows.ts[data]),
        (2 * acker, rows.conn[acker], acked, np.full(len(acker), _ACKNOWLEDGES), rows.ts[acker]),
    ]
    at, place, number, does, ts = (np.concatenate(columns) for columns in zip(*events, strict=True))
    if not len(at):
        return Ended._make(np.empty((len(Ended._fields), 0), np.int64))
    order = np.argsort(at, kind="stable")
    place, number, does, ts = (column[order] for column in (place, number, does, ts))
    first = np.flatnonzero((np.diff(place, prepend=-1) != 0) | (np.diff(number, prepend=-1) != 0))
    times = (
        together.reduceat(np.where(does == what, ts, unseen), first)
        for what, together, unseen in zip(_DOES, _TOGETHER, NO_EXCHANGES[-5:], strict=True)
    )
    return _go_on(Ended._make([place[first], number[first], *times]), now)


_ASKS, _ACKNOWLEDGES, _ANSWERS = range(3)  # what a row does in its exchange, and each of the times of Ended is of
_DOES = (_ASKS, _ASKS, _ACKNOWLEDGES, _ANSWERS, _ANSWERS)
_TOGETHER = (np.minimum, np.maximum, np.maximum, np.minimum, np.maximum)


def _exchange_numbers(conn: Ints, asks: Bools, now: Exchanges) -> NDArray[np.int32]:
    """Of the exchange of each data row (n,): another one begins where the asking side speaks after the other."""
    starts = runs(conn)
    places, sizes = conn[starts], np.diff(starts, append=len(conn))
    asked_before = np.concatenate([[False], asks[:-1]])[: len(asks)]
    asked_before[starts] = now.asking[places]
    begins = asks & ~asked_before
    begins[starts] |= now.number[places] < 0  # a server that speaks first: its exchange has no request
    now.asking[places] = asks[starts + sizes - 1]
    begun = np.cumsum(begins)
    number: Ints = begun + np.repeat(now.number[places] - begun[starts] + begins[starts], sizes)
    return number.astype(np.int32)


def _acknowledged_requests(rows: Table, client: Sides, data: Ints, now: Exchanges) -> tuple[Ints, NDArray[np.int32]]:
    """The rows that acknowledge the request of the exchange they are in, and its number."""
    acker, segment, _ = rows.noticed.answers
    conn, number = rows.conn[acker], rows.exchange[segment]
    latest = np.append(data, -1)[np.searchsorted(data, acker, "right") - 1]  # data row before; the last one is none
    current = np.where((latest >= 0) & (rows.conn[latest] == conn), rows.exchange[latest], now.number[conn])
    asked = np.flatnonzero((rows.side[segment] == client[rows.group[segment]]) & (number >= 0) & (number == current))
    return acker[asked], number[asked]


def _open(rows: Table, now: Exchanges) -> Iterator[tuple[NDArray[Any], ...]]:
    """What the open exchanges of the connections here have seen, as if it were rows before their first ones."""
    place = rows.conn[rows.starts]
    for does, times in zip(_DOES, now[-5:], strict=True):
        seen = np.flatnonzero((times[place] >= 0) & (times[place] < NEVER))
        on = place[seen]
        yield 2 * rows.starts[seen] - 1, on, now.number[on], np.full(len(on), does), times[on]


def _go_on(pieces: Ended, now: Exchanges) -> Ended:
    """The last exchange of each connection stays open; those of the others that have request and answer."""
    last = np.append(pieces.place[1:] != pieces.place[:-1], True)
    place = pieces.place[last]
    now.number[place] = pieces.number[last]
    for kept, times in zip(now[-5:], pieces[-5:], strict=True):
        kept[place] = times[last]
    over = Ended._make(column[~last] for column in pieces)
    now.greeted[over.place[(over.number == 0) & (over.asked == NEVER)]] = True
    full = (over.asked < NEVER) & (over.answered < NEVER)
    np.add.at(now.full, over.place[full], 1)
    np.add.at(now.repeat, over.place[full & (over.number > 0)], 1)
    return Ended._make(column[full] for column in over)
