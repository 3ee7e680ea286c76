"""The TCP machine: one connection, one segment at a time, → events, in the words of RFC 9293 and Linux.

What an end of a connection has sent and had acknowledged, as far as the capture shows, decides what the next segment
means: an answer to an earlier one, the end of an idle gap, data that follows a late ACK. Nothing is judged here.
:meth:`Machine.follow` takes a segment, and what it finds out leaves at once as rows of the tables that engine.h
declares; a connection's own row leaves when the connection is over. machine.c does the same, to the last bit.
"""

from enum import IntEnum
from typing import NamedTuple

from nagle_lab.packet.segment import ACK, FIN, RST, SYN, Segment
from nagle_lab.tcp.durations import Durations
from nagle_lab.tcp.tables import Tables

MS = 1_000_000  # ns

# An ACK is late when it took this long. The shortest delayed-ACK timer in use is 40 ms (Linux, TCP_DELACK_MIN =
# HZ/25); half of it separates that from network and scheduling noise.
LATE = 20 * MS
IDLE = LATE  # a silence so long is an idle gap

# An ACK of a bare FIN that Linux sends from a delayed-ACK timer of zero (tcp_send_delayed_ack, icsk_ack.ato) leaves
# with the next jiffy, up to 4 ms later; one sent at once is sooner.
AT_ONCE = 50_000  # ns

# When a lone segment stays unacknowledged, TCP probes for a loss with the next one, held or not (RFC 8985 §7.3);
# Linux not sooner than this (TCP_RTO_MIN). Sent so late behind a small segment, one does not show that Nagle is off.
PROBE = 200 * MS

LEAST_MSS = 536  # what any host must take (RFC 9293 §3.7.1): surely small is only what is smaller
USUAL_FULL_SIZE = 1448  # Ethernet's 1460 less timestamps: taken where no handshake was captured
TIMESTAMPS_OPTION = 12  # bytes, with its padding
LARGEST_SCALE = 14  # RFC 7323 §2.3; a window of unknown scale is taken to be so large

# A closed connection is remembered as long as Linux remembers it (TCP_TIMEWAIT_LEN): late segments are still its own.
TIME_WAIT = 60_000 * MS
# Memory: every SWEEP segments connections that are over are let go; beyond MANY live ones, closed ones and unanswered
# SYNs (a flood) go early, the oldest first.
SWEEP = 1 << 15
MANY = 1 << 15

FIRST_NUMBER = 1 << 32  # sequence numbers without their wrap begin here, so that all are positive
CONTROL = SYN | FIN | RST
NEVER = (1 << 63) - 1


class EndedBy(IntEnum):
    """What ended an idle gap."""

    ACKNOWLEDGEMENT = 0  # a pure ACK of something new
    ANSWER = 1  # data, after data of the other side
    CONTINUATION = 2  # data, after data of the same side
    RETRANSMISSION = 3
    WINDOW = 4  # a window that was closed or full opened
    OTHER = 5


class Sent(NamedTuple):
    """A segment that took sequence space, as later ones look back at it."""

    number: int  # of the packet on its connection
    ts: int
    frame: int
    start: int  # sequence numbers without their wrap
    end: int  # SYN and FIN counted
    length: int  # payload bytes
    flags: int
    is_new: bool  # none of it was sent before: no retransmission (Karn's rule, RFC 6298 §3)
    epoch: int  # of the clock
    exchange: int  # -1: none
    edge: int  # of the peer's window when it was sent: its right end; -1 not known


class PureAck(NamedTuple):
    """A segment that only acknowledges."""

    number: int  # of the packet on its connection
    ts: int
    frame: int
    ack: int
    acked_before: int  # by its sender, at most
    had_room: bool  # its window, and the one its sender offered before, were open
    idle: int  # ns since the connection's packet before it


NO_SEGMENT = Sent(-1, 0, 0, 0, 0, 0, 0, False, -1, -1, -1)
NO_ACK = PureAck(-1, 0, 0, 0, 0, False, 0)


class Half:
    """One direction of a connection: what one end, ``side``, sent, and what it acknowledged of its peer's."""

    __slots__ = (
        "ack", "acked", "closed", "connection", "consuming", "data", "fin_acks", "is_small_below", "mss", "nagle_off",
        "packets", "payload", "peer", "pure_ack", "reaction", "scale", "segments", "seq", "shift", "side", "snd_nxt",
        "syn", "syn_window", "timestamps", "window", "wire",
    )  # fmt: skip

    def __init__(self, connection: "Connection", side: int) -> None:
        self.connection = connection
        self.side = side
        self.peer: Half = self
        # Sequence numbers, without their wrap at 2**32 (RFC 9293 §3.4)
        self.seq = -1  # of its latest segment; -1 unknown
        self.snd_nxt = 0  # the end of the highest it sent
        self.ack = -1  # its latest acknowledgement, in the peer's numbers; -1 none
        self.acked = 0  # the highest
        self.window = 0  # that it offered last, bytes
        # What it sent last
        self.data = NO_SEGMENT
        self.consuming = NO_SEGMENT  # data, SYN or FIN
        self.pure_ack = NO_ACK
        # Its SYN
        self.syn = self.syn_window = -1  # not captured
        self.mss, self.scale, self.timestamps = 0, -1, False
        self.shift = LARGEST_SCALE
        self.is_small_below = LEAST_MSS  # a segment of it with less payload is surely not full
        self.closed = False
        # Counted
        self.packets = self.segments = self.payload = self.wire = 0
        self.nagle_off = self.fin_acks = 0
        self.reaction = NEVER  # ns, its fastest ACK


class Connection:
    """Two halves, and what they do together: exchanges, a request and the answer to it."""

    __slots__ = (
        "answered", "asked", "asking", "exchange", "first_frame", "full_size", "greeted", "halves", "handshake",
        "has_candidates", "key", "last", "last_ts", "latest_data", "number", "opener", "packets", "repeat",
        "request", "response", "sender", "syn", "syn_ts",
    )  # fmt: skip

    def __init__(self, number: int, first: Segment, key: tuple[bytes, int, bytes, int]) -> None:
        one, two = Half(self, 0), Half(self, 1)
        one.peer, two.peer = two, one
        self.halves = (one, two)
        self.number = number
        self.key = key  # address and port of side 0, then of side 1
        self.first_frame = first.frame
        self.last: Segment | None = None
        self.sender: Half | None = None  # of it
        self.last_ts = first.ts
        self.packets = 0
        self.syn = -1  # sequence number of the latest SYN without ACK
        self.syn_ts = -1  # of a SYN that was sent once and whose handshake goes on
        self.handshake = -1
        self.full_size = USUAL_FULL_SIZE
        self.latest_data: Half | None = None  # who sent data last
        self.opener = -1  # side that sent the first data
        # The exchange that is open. A new one begins with the first data the asking side sends after the answering
        # side has sent some; a server that speaks first has one without a request.
        self.exchange = -1
        self.asking = False  # the last data came from the asking side
        self.greeted = False
        self.request = self.response = NOT_SENT
        self.asked = -1  # time of the latest acknowledgement of the request
        self.answered = self.repeat = 0  # exchanges that are over
        self.has_candidates = False

    @property
    def client(self) -> int:
        """Which side asks: by handshake, else who sent data first, else side 0."""
        one, two = self.halves
        return 0 if one.syn >= 0 or two.syn >= 0 else max(self.opener, 0)

    @property
    def is_closed(self) -> bool:
        """Both sides have sent a FIN, or one a RST."""
        one, two = self.halves
        return one.closed and two.closed

    @property
    def is_unanswered(self) -> bool:
        """A SYN, and nothing came of it."""
        one, two = self.halves
        return two.packets == 0 and one.payload == 0 and one.syn >= 0


NOT_SENT = (NEVER, -1)  # times of the first and the last segment of a request, or of an answer


def unwrapped(wire: int, near: int) -> int:
    """The number that is ``wire`` modulo 2**32 and closest to ``near`` (RFC 9293 §3.4)."""
    return near + ((wire - near + 0x80000000) & 0xFFFFFFFF) - 0x80000000


class Machine:
    """Every connection of a capture.

    Attributes
    ----------
    tables : the rows that have left so far
    connections : how many there have been
    segments : how many were followed, copies included
    copies : how many of them were left out: the same packet, captured on another interface
    first_ts, last_ts : times of the first and the last segment, ns; None before there is one
    durations : of all answered exchanges, by the names of the fields of ``exchange``
    """

    def __init__(self, *, exchanges: bool = True) -> None:
        self.tables = Tables()
        self.connections = self.segments = self.copies = 0
        self.first_ts: int | None = None
        self.last_ts = 0
        self.durations = {name: Durations() for name in ("to_ack", "to_response", "total")}
        self._list_exchanges = exchanges
        self._halves: dict[
            tuple[bytes, int, bytes, int], Half
        ] = {}  # of live connections, by the addresses they send from and to
        self._live: dict[int, Connection] = {}
        self._programs: dict[tuple[bytes, int], int] = {}  # by address, and port where it is the server
        self._until_sweep = SWEEP

    def follow(self, s: Segment) -> None:
        """Take the next segment of the capture."""
        self.segments += 1
        self.last_ts = s.ts
        if self.first_ts is None:
            self.first_ts = s.ts
        x = self._halves.get((s.src, s.sport, s.dst, s.dport))
        if x is None or ((s.flags & SYN or x.closed) and self._begins_anew(x.connection, s)):
            x = self._open(s, x)
        connection = x.connection
        if s.ip_id and connection.sender is x and is_copy(s, connection.last):
            self.copies += 1
            return
        if s.flags & SYN:
            learn_syn(x, s)
        self._take(x, s)
        connection.last = s
        self._until_sweep -= 1
        if not self._until_sweep:
            self._sweep(s.ts)

    def finish(self) -> None:
        """The capture is over, and so is every connection."""
        for connection in self._live.values():
            self._close(connection)
        self._live.clear()
        self._halves.clear()

    # One segment ------------------------------------------------------------------------------------

    def _take(self, x: Half, s: Segment) -> None:
        """A segment that ``x`` sent."""
        connection, y = x.connection, x.peer
        flags, length, ts = s.flags, s.length, s.ts
        start = unwrapped(s.seq, x.seq) if x.seq >= 0 else FIRST_NUMBER + s.seq
        end = start + length
        if flags & (SYN | FIN):
            end += bool(flags & SYN) + bool(flags & FIN)
        ack = acknowledged(x, s) if flags & ACK else -1
        idle = ts - connection.last_ts
        if idle >= IDLE and connection.latest_data is not None and (length or not flags & CONTROL):
            small, reply = length % connection.full_size != 0, connection.sender is not x
            self.tables.idle_gap.add(connection.number, idle, x.side, ended_by(x, s, start, ack), small, reply, 0)
        number = connection.packets
        exchange = -1
        if length:
            if end > x.snd_nxt:
                exchange = self._exchange_of(x, ts)
            if start >= x.snd_nxt:
                self._new_data(x, s, exchange)
        if flags & ACK:
            self._acknowledge(x, s, ack, number, idle)
            x.ack, x.window = ack, s.window if flags & SYN else s.window << x.shift
            x.acked = max(x.acked, ack)
        if end > start:
            edge = y.ack + y.window if y.ack >= 0 else -1
            is_new = start >= x.snd_nxt
            x.consuming = sent = Sent(number, ts, s.frame, start, end, length, flags, is_new, s.epoch, exchange, edge)
            if length:
                x.data = sent
                connection.latest_data = x
                if connection.opener < 0:
                    connection.opener = x.side
        x.seq = start
        x.snd_nxt = max(x.snd_nxt, end)
        if flags & (FIN | RST):
            x.closed = True
            y.closed = y.closed or bool(flags & RST)
        x.packets += 1
        x.segments += -(-length // connection.full_size) or 1
        x.payload += length
        x.wire += s.wire
        connection.packets = number + 1
        connection.last_ts = ts
        connection.sender = x

    def _acknowledge(self, x: Half, s: Segment, ack: int, number: int, idle: int) -> None:
        """``x`` acknowledges, up to ``ack``."""
        y, connection = x.peer, x.connection
        is_pure = s.flags & (CONTROL | ACK) == ACK and not s.length
        if ack > x.acked:
            answered = y.consuming
            if answered.end == ack and answered.is_new and answered.epoch == s.epoch:
                self._answer(x, s, answered, is_pure)
        if is_pure:
            had_room = s.window > 0 and (x.ack < 0 or x.window > 0)
            x.pure_ack = PureAck(number, s.ts, s.frame, ack, x.acked, had_room, idle)
        if connection.syn_ts >= 0 and x.side == 0 and not s.flags & SYN:
            connection.handshake = s.ts - connection.syn_ts
            connection.syn_ts = -1

    def _answer(self, x: Half, s: Segment, answered: Sent, is_pure: bool) -> None:
        """``x`` acknowledges the latest that its peer sent: a round trip, and perhaps a delayed ACK."""
        connection = x.connection
        wait = s.ts - answered.ts
        if wait < x.reaction:
            x.reaction = max(wait, 0)
        if is_pure and wait >= LATE:
            self.tables.late_ack.add(connection.number, wait, x.side)
        elif is_pure and answered.flags & FIN and not answered.length and wait >= AT_ONCE:
            x.fin_acks += 1
        asks = answered.length and x.peer.side == connection.client
        if asks and 0 <= answered.exchange == connection.exchange and s.ts > connection.asked:
            connection.asked = s.ts

    def _new_data(self, x: Half, s: Segment, exchange: int) -> None:
        """``x`` sends data that it never sent before; was it held, or does it show that Nagle is off?"""
        connection, y, before = x.connection, x.peer, x.data
        if before.number < 0:
            return
        if y.acked < before.end and before.is_new and is_small_behind_small(x, s, before):
            x.nagle_off += 1
        ack = y.pure_ack
        if connection.latest_data is x and ack.number > before.number and is_candidate(x, s, before, ack):
            connection.has_candidates = True
            self.tables.candidate.add(
                connection.number, before.frame, ack.frame, s.frame, ack.ts - before.ts, s.ts - ack.ts, ack.idle,
                exchange, before.length, s.length, x.side,
            )  # fmt: skip

    # Exchanges --------------------------------------------------------------------------------------

    def _exchange_of(self, x: Half, ts: int) -> int:
        """The number of the exchange that new data of ``x`` belongs to."""
        connection = x.connection
        if connection.opener < 0:
            connection.opener = x.side
        asks = x.side == connection.client
        if connection.exchange < 0 or (asks and not connection.asking):
            self._end_exchange(connection)
            connection.exchange += 1
        connection.asking = asks
        first, last = connection.request if asks else connection.response
        times = (ts if ts < first else first, ts if ts > last else last)
        if asks:
            connection.request = times
        else:
            connection.response = times
        return connection.exchange

    def _end_exchange(self, connection: Connection) -> bool:
        """The open exchange is over; whether it has request and answer."""
        (asked, asked_last), (answered, answered_last) = connection.request, connection.response
        number, acked = connection.exchange, connection.asked
        connection.request = connection.response = NOT_SENT
        connection.asked = -1
        if asked == NEVER:
            connection.greeted = connection.greeted or number == 0
            return False
        if answered == NEVER:
            return False
        connection.answered += 1
        connection.repeat += number > 0
        gaps = (duration(asked_last, acked), duration(asked_last, answered), duration(asked, answered_last))
        for durations, gap in zip(self.durations.values(), gaps, strict=True):
            if gap >= 0:
                durations.add(gap)
        if self._list_exchanges:
            self.tables.exchange.add(connection.number, asked, *gaps, number)
        return True

    # Connections ------------------------------------------------------------------------------------

    def _begins_anew(self, connection: Connection, s: Segment) -> bool:
        """Whether a segment between the ends of a connection is the first of another one."""
        if s.flags & (SYN | ACK | RST) == SYN:
            return s.seq != connection.syn
        return connection.is_closed and s.ts - connection.last_ts > TIME_WAIT

    def _open(self, s: Segment, x: Half | None) -> Half:
        """A new connection, in place of that of ``x``; returns the half that sent its first segment."""
        if x is not None:
            self._forget(x.connection)
        key = (s.src, s.sport, s.dst, s.dport)
        back = (s.dst, s.dport, s.src, s.sport)
        is_answer = s.flags & (SYN | ACK) == SYN | ACK  # its receiver opened it
        connection = Connection(self.connections, s, back if is_answer else key)
        self.connections += 1
        if s.flags & (SYN | ACK | RST) == SYN:
            connection.syn_ts = s.ts
        self._live[connection.number] = connection
        src, sport, dst, dport = connection.key
        self._halves[dst, dport, src, sport] = connection.halves[1]
        self._halves[connection.key] = connection.halves[0]  # last: one that talks to itself has one key for both
        return self._halves[key]

    def _forget(self, connection: Connection) -> None:
        src, sport, dst, dport = connection.key
        self._halves.pop((src, sport, dst, dport), None)
        self._halves.pop((dst, dport, src, sport), None)
        del self._live[connection.number]
        self._close(connection)

    def _close(self, connection: Connection) -> None:
        """The connection is over: its row leaves."""
        one, two = connection.halves
        number = connection.exchange
        is_full = self._end_exchange(connection)
        src, sport, dst, dport = connection.key
        client = connection.client
        program = other_program = -1
        if connection.has_candidates:
            program, other_program = (
                self._program(src, sport if client else 0),
                self._program(dst, 0 if client else dport),
            )
        self.tables.connection.put(
            connection.number,
            (
                connection.number, connection.first_frame, one.packets, two.packets, one.segments, two.segments,
                one.payload, two.payload, one.wire, two.wire,
                -1 if one.reaction == NEVER else one.reaction, -1 if two.reaction == NEVER else two.reaction,
                connection.handshake, one.nagle_off, two.nagle_off, one.fin_acks, two.fin_acks,
                program, other_program, connection.full_size, connection.answered, connection.repeat,
                -1 if is_full else number, 0, 0, -1, -1, 0, 0, 0, 0, sport, dport, src + dst,
                client, one.syn >= 0 and two.syn >= 0, connection.greeted, 0,
            ),
        )  # fmt: skip

    def _program(self, address: bytes, port: int) -> int:
        return self._programs.setdefault((address, port), len(self._programs))

    def _sweep(self, now: int) -> None:
        """Let go of connections that nothing more is expected of."""
        self._until_sweep = SWEEP
        silent = [c for c in self._live.values() if c.is_closed and now - c.last_ts > TIME_WAIT]
        for connection in silent:
            self._forget(connection)
        too_many = len(self._live) - MANY
        if too_many > 0:
            idle = [c for c in self._live.values() if c.is_closed or c.is_unanswered]
            for connection in sorted(idle, key=lambda c: (c.last_ts, c.number))[:too_many]:
                self._forget(connection)


def is_copy(s: Segment, before: Segment | None) -> bool:
    """Whether it is the same IPv4 datagram as the one that its sender sent before, captured on another interface."""
    return (
        before is not None
        and s.ip_id == before.ip_id
        and (s.seq, s.ack, s.flags, s.length, s.window)
        == (before.seq, before.ack, before.flags, before.length, before.window)
    )


def duration(begin: int, end: int) -> int:
    """From one time to the other; -1 where one is missing, or the clock was set back."""
    return end - begin if end >= begin else -1


def is_candidate(x: Half, s: Segment, trigger: Sent, ack: PureAck) -> bool:
    """Whether ``x`` may have held the new data until the late ACK of the trigger: what a stall must look like.

    Both are small; the ACK took long; before it the trigger was outstanding, after it nothing is; and nothing else
    explains the wait. Whether the ACK *caused* the release is for the proof (:mod:`nagle_lab.diagnosis.proof`).
    """
    full_size = x.connection.full_size
    return (
        ack.ts - trigger.ts >= LATE
        and s.ts - trigger.ts >= LATE
        and trigger.length % full_size != 0  # with segmentation offload one can be several full segments
        and s.length < full_size
        and not (trigger.flags | s.flags) & CONTROL  # a FIN is never held (tcp_nagle_test)
        and trigger.epoch == s.epoch
        and trigger.is_new
        and ack.acked_before < trigger.end  # until this ACK the trigger was outstanding
        and ack.ack == x.snd_nxt  # and now nothing is
        and ack.had_room
        and (trigger.edge < 0 or trigger.edge >= trigger.end + s.length)  # so the window was not what held it
    )


def is_small_behind_small(x: Half, s: Segment, before: Sent) -> bool:
    """Whether new data is less than a full segment and so was the data before it: then that sender's Nagle is off.

    Linux takes half of the largest window it was offered for a full segment where that is less than the MSS
    (tcp_bound_to_half_wnd), so both must be smaller than that, too.
    """
    least, full_size = x.is_small_below, x.connection.full_size
    # With segmentation offload one packet can be several full segments and a small one.
    tail = before.length % full_size if least == full_size else before.length
    return s.length < least and 0 < tail < least and not s.flags & FIN and s.ts - before.ts < PROBE


def acknowledged(x: Half, s: Segment) -> int:
    """Up to where ``x`` acknowledges, without wrap; the first time this is where its peer's numbers begin."""
    y = x.peer
    if y.seq < 0:
        y.seq = FIRST_NUMBER + s.ack
    return unwrapped(s.ack, x.ack if x.ack >= 0 else y.seq)


def ended_by(x: Half, s: Segment, start: int, ack: int) -> EndedBy:
    """What a segment is that ``x`` sent after an idle gap."""
    y = x.peer
    if not s.length:
        if x.ack >= 0 and x.window == 0:
            return EndedBy.WINDOW  # a window update, or the answer to a probe
        return EndedBy.ACKNOWLEDGEMENT if s.flags & ACK and ack > x.acked else EndedBy.OTHER
    if y.ack >= 0 and x.data.number >= 0 and x.snd_nxt >= y.ack + y.window:
        return EndedBy.WINDOW  # there was no room for one more byte
    if start < x.snd_nxt:
        return EndedBy.RETRANSMISSION
    return EndedBy.CONTINUATION if x.data.number > y.data.number else EndedBy.ANSWER


def learn_syn(x: Half, s: Segment) -> None:
    """What a SYN of ``x`` says: its MSS, window, window scale and whether there are timestamps."""
    connection = x.connection
    if not s.flags & (ACK | RST):
        if x.side == 0 and connection.packets:
            connection.syn_ts = -1  # sent again: the handshake takes a retransmission timeout
        connection.syn = s.seq
    x.syn, x.syn_window, x.mss, x.scale, x.timestamps = s.seq, s.window, s.mss, s.wscale, bool(s.timestamps)
    one, two = connection.halves
    scales = (one.scale, two.scale)
    for half in (one, two):  # used only when both ends offered theirs (RFC 7323 §2.3)
        if min(scales) >= 0:
            half.shift = min(half.scale, LARGEST_SCALE)
        else:
            half.shift = 0 if max(scales) >= 0 else LARGEST_SCALE
    learn_full_size(connection)


def learn_full_size(connection: Connection) -> None:
    """The payload of a full segment, and below what payload one of each side surely is not full."""
    one, two = connection.halves
    mss = min(one.mss, two.mss) or max(one.mss, two.mss)
    surely_full = LEAST_MSS
    if mss:
        surely_full = max(mss - TIMESTAMPS_OPTION * (one.timestamps and two.timestamps), 1)
    connection.full_size = surely_full if mss else USUAL_FULL_SIZE
    for half in (one, two):
        window = half.peer.syn_window
        half_window = window // 2 if window > LEAST_MSS else window
        half.is_small_below = min(surely_full, half_window) if window >= 0 else surely_full
