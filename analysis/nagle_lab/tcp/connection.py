"""One connection, as far as the capture shows it: what each end sent and acknowledged, and what is learned from it.

How large a full segment is, say: :func:`learn_full_size_by_mss` and :func:`learn_full_size_by_data`.

In the words of RFC 9293 and Linux. What a segment means is decided in machine.py; connection.h is the C twin.
"""

from math import gcd

import msgspec

from nagle_lab.packet.segment import ACK, FIN, PSH, RST, SYN, Segment
from nagle_lab.tcp.events import MS, EndedBy, Reaction

LEAST_MSS = 536  # what any host must take (RFC 9293 §3.7.1): surely small is only what is smaller
# Where no handshake was captured, less payload with PSH is no full segment: IPv6 carries 1220 bytes on any path
# (RFC 8200 §5), and IPv4 on any that is known, but for hosts that take 536.
LEAST_USUAL = 1200
USUAL_FULL_SIZE = 1448  # Ethernet's 1460 less timestamps: taken where no handshake was captured
TIMESTAMPS_OPTION = 12  # bytes, with its padding
LEAST_LEARNED = 500  # bytes; shorter segments without PSH say nothing of a full one
LARGEST_SCALE = 14  # RFC 7323 §2.3; a window of unknown scale is taken to be so large

# A closed connection is remembered as long as Linux remembers it (TCP_TIMEWAIT_LEN): late segments are still its own.
TIME_WAIT = 60_000 * MS

# The same packet captured again, by another interface of one host, comes this much later at most; where neither IP
# identification nor a timestamp tells it from a retransmission, so soon that this is none.
COPY, SURELY_COPY = 5 * MS, MS // 5
RECENT = 4  # segments of a half-connection that the next may be a copy of
SAMPLES = 8  # reactions of each kind that are kept of a half-connection: so many first ones, and the latest

FIRST_NUMBER = 1 << 32  # sequence numbers without their wrap begin here, so that all are positive
# The lowest port that a host gives a client by itself: Linux (ip_local_port_range); else FreeBSD (portrange.first).
EPHEMERAL = 32768, 10_000
LONGEST = (1 << 31) - 1  # ns, about two seconds; what a row of 32 bits holds
NEVER = (1 << 63) - 1


class Sent(msgspec.Struct, frozen=True, gc=False):
    """A segment that took sequence space, as later ones look back at it."""

    number: int  # of the packet on its connection
    ts: int  # ns
    frame: int
    start: int  # sequence numbers without their wrap
    end: int  # SYN and FIN counted
    length: int  # payload bytes
    flags: int
    is_new: bool  # none of it was sent before: no retransmission (Karn's rule, RFC 6298 §3)
    epoch: int  # of the clock
    exchange: int  # -1: none
    edge: int  # of the peer's window when it was sent: its right end; -1 not known
    tsval: int  # of its timestamp; -1 none


class Acknowledgement(msgspec.Struct, frozen=True, gc=False):
    """A segment as an acknowledgement."""

    number: int  # of the packet on its connection
    ts: int  # ns
    frame: int
    ack: int
    acked_before: int  # by its sender, at most
    had_room: bool  # its window, and the one its sender offered before, were open
    idle: int  # ns since the connection's packet before it
    tsval: int  # of its timestamp; -1 none
    tsval_before: int  # of its sender's packet before it
    is_echoed: bool  # its peer echoes it next: that had acknowledged all before it (RFC 7323 §4.3)
    window: int  # as on the wire
    before: int  # when its sender sent its packet before it, ns
    beyond_full: int  # how much more than a full segment it acknowledges, bytes
    ended_by: EndedBy  # of the idle gap that it ended, as in its row
    small: bool
    reply: bool


NO_SEGMENT = Sent(-1, 0, 0, 0, 0, 0, 0, False, -1, -1, -1, -1)
NO_ACK = Acknowledgement(-1, 0, 0, 0, 0, False, 0, -1, -1, False, 0, 0, 0, EndedBy.ACKNOWLEDGEMENT, False, False)


class Samples:
    """How long an end took to react in one of the ways of Reaction: the first SAMPLES times, and the latest."""

    __slots__ = ("count", "kept")

    def __init__(self) -> None:
        self.count = 0  # how often it reacted so
        self.kept: list[int] = []  # ns


class Half:
    """A half-connection: what one end sent, and what it acknowledged of its peer's data.

    ``side`` is 0 for the end that opened the connection, else 1: see tcp/engine.h. Sizes are bytes, times ns.
    """

    __slots__ = (
        "ahead", "beside", "clock_step", "closed", "connection", "data", "data_ack", "data_segments", "fastest_ack",
        "fin_acks", "full_size", "full_waits", "hole", "is_small_below", "kernel", "last_ts", "last_unpushed",
        "latest_sent", "learned_full_size", "lost", "mss", "not_held", "not_held_end", "offloaded", "packets",
        "payload", "peer", "pure_ack", "pushes", "rcv_nxt", "rcv_wnd", "reactions", "recent", "scale", "seq", "shift",
        "side", "snd_nxt", "snd_una", "stale_echoes", "swapped", "syn", "syn_window", "timestamps", "tsval", "wire",
    )  # fmt: skip

    def __init__(self, connection: "Connection", side: int, first_ts: int) -> None:
        self.connection = connection
        self.side = side
        self.peer: Half = self
        # As in RFC 9293 §3.3.1, but as far as the capture shows; sequence numbers are without their wrap at 2**32.
        self.seq = -1  # of its latest segment; -1 unknown
        self.snd_una = 0  # the highest that its peer acknowledged
        self.snd_nxt = 0  # the end of the highest it sent
        self.rcv_nxt = -1  # its latest acknowledgement, in the peer's numbers; -1 none
        self.rcv_wnd = 0  # that it offered with that, bytes
        self.hole = -1  # where its first data begins that is not in the capture, nor acknowledged by then; -1 none
        self.not_held_end = -1  # the end of its latest small segment sent behind an unacknowledged small one; -1 none
        # What it sent last
        self.last_ts = first_ts  # time of its latest segment; of the connection's first one before that
        self.data = NO_SEGMENT
        self.latest_sent = NO_SEGMENT  # data, SYN or FIN
        self.pure_ack = NO_ACK
        self.data_ack = NO_ACK  # its latest data that acknowledged something new
        self.recent: list[Segment] = []  # the latest, in turn
        # Its timestamps (RFC 7323)
        self.tsval = -1  # the latest; -1 none
        self.ahead = -1  # TSecr less TSval modulo 2**32, at its fastest
        self.clock_step = 0  # greatest common divisor of the differences between its TSvals; 0 without any
        # Its SYN
        self.syn = self.syn_window = -1  # not captured
        self.mss, self.scale, self.timestamps, self.kernel = 0, -1, False, 0
        self.shift = LARGEST_SCALE
        self.is_small_below = LEAST_MSS  # a segment of it with less payload is surely not full
        self.full_size = 0  # payload of a full segment by its peer's MSS; 0 not known
        self.last_unpushed = 0  # payload of its latest segment without PSH, of those that teach
        self.learned_full_size = 0  # payload of a full segment by its data: the largest that was sent twice so
        self.closed = False
        self.pushes = False  # it sets PSH: its writes end with that
        # Counted
        self.packets = self.payload = self.wire = 0
        self.offloaded = 0  # full segments in its packets beyond one in each: segmentation offload
        self.not_held = self.fin_acks = self.stale_echoes = 0
        self.data_segments = self.lost = self.swapped = self.full_waits = self.beside = 0
        self.fastest_ack = NEVER  # ns, its fastest ACK
        self.reactions: list[Samples] | None = None  # by Reaction; None before the first

    @property
    def round_trip(self) -> int:
        """How long a round trip to it takes, ns, and 1/8: as in the handshake, else its fastest ACK; 0 not known."""
        handshake = self.connection.handshake
        if handshake < 0:
            handshake = 0 if self.fastest_ack == NEVER else self.fastest_ack
        return min(handshake, TIME_WAIT) * 9 // 8

    def close(self, flags: int) -> None:
        """Note a control segment that it sent: a FIN closes its own side, a RST both, a SYN none."""
        if flags & (FIN | RST):
            self.closed = True
        if flags & RST:
            self.peer.closed = True


class Connection:
    """A connection: its two halves, and what they do together: handshake, exchanges (a request and its answer)."""

    __slots__ = (
        "asking", "client", "exchange", "exchanges", "first_frame", "first_ts", "full_size", "halves",
        "handshake", "has_candidates", "is_copied", "key", "last_ts", "latest_data", "number", "opener",
        "packets", "repeat_exchanges", "request_acked", "request_began", "request_ended", "response_began",
        "response_ended", "sender", "server_first", "syn", "syn_ts",
    )  # fmt: skip

    def __init__(self, number: int, first: Segment, key: tuple[bytes, int, bytes, int]) -> None:
        one, two = Half(self, 0, first.ts), Half(self, 1, first.ts)
        one.peer, two.peer = two, one
        self.halves = (one, two)
        self.number = number
        self.key = key  # address and port of side 0, then of side 1
        self.first_frame, self.first_ts = first.frame, first.ts
        self.sender: Half | None = None  # of the last packet
        self.last_ts = first.ts
        self.packets = 0
        self.syn = -1  # sequence number of the latest SYN without ACK
        self.syn_ts = -1  # of a SYN that was sent once and whose handshake goes on
        self.handshake = -1  # ns, from a SYN sent once to its sender's first ACK
        self.full_size = USUAL_FULL_SIZE
        self.latest_data: Half | None = None  # who sent data last
        self.opener = -1  # side that sent the first data
        # The exchange that is open. A new one begins with the first data the asking side sends after the answering
        # side has sent some; a server that speaks first has one without a request.
        self.exchange = -1
        self.asking = False  # the last data came from the asking side
        self.server_first = False
        self.forget_exchange()
        self.exchanges = self.repeat_exchanges = 0  # that were answered and are over
        self.has_candidates = False
        self.is_copied = False  # data or a SYN of it was captured twice
        self.learn_client()

    def forget_exchange(self) -> None:
        """Begin a new exchange, of which nothing is known yet."""
        self.request_began, self.request_ended = NEVER, -1  # times of the first and the last segment of the request
        self.response_began, self.response_ended = NEVER, -1  # and of the answer
        self.request_acked = -1  # time of the latest acknowledgement of the request

    def opens(self, x: Half) -> None:
        """Note that ``x`` sends the first data of the connection: without a handshake it may be the client."""
        self.opener = x.side
        self.learn_client()

    def learn_client(self) -> None:
        """Set ``client``, the side that asks.

        By the handshake; else by the one port that is ephemeral; else by who sent data first; else side 0.
        """
        one, two = self.halves
        if one.syn >= 0 or two.syn >= 0:
            self.client = 0
            return
        for lowest in EPHEMERAL:
            ephemeral = self.key[1] >= lowest, self.key[3] >= lowest
            if sum(ephemeral) == 1:
                self.client = ephemeral.index(True)
                return
        self.client = max(self.opener, 0)

    @property
    def is_closed(self) -> bool:
        """Both sides have sent a FIN, or one a RST."""
        one, two = self.halves
        return one.closed and two.closed

    @property
    def is_over(self) -> bool:
        """It is closed, or the only side that is in the capture has closed."""
        one, two = self.halves
        return (one.closed or not one.packets) and (two.closed or not two.packets)

    @property
    def is_one_way(self) -> bool:
        """Only one side is in the capture: a SYN that nothing came of, or a capture of one direction."""
        one, two = self.halves
        return not one.packets or not two.packets


def unwrapped(wire: int, near: int) -> int:
    """A sequence number without wrap: ``wire`` modulo 2**32, and closest to ``near`` (RFC 9293 §3.4)."""
    ahead = (wire - near) & 0xFFFFFFFF
    return near + ahead if ahead < 0x80000000 else near + ahead - 0x100000000


def is_copy(x: Half, s: Segment) -> bool:
    """Whether segment ``s`` is a packet of ``x`` that was captured already, on another interface."""
    seq, ack = s.seq, s.ack
    for before in x.recent:
        if before.seq == seq and before.ack == ack and is_same(s, before, copied=x.connection.is_copied):
            return True
    return False


def remember(x: Half, s: Segment) -> None:
    """Keep a segment of ``x`` for :func:`is_copy`, in place of the oldest of RECENT."""
    if x.packets < RECENT:
        x.recent.append(s)
    else:
        x.recent[x.packets % RECENT] = s


def is_same(s: Segment, before: Segment, *, copied: bool) -> bool:
    """Whether ``s`` is the packet ``before``, captured once more.

    IPv4 identification tells. Without it (IPv6; RFC 6864 allows 0) TSval must be equal, and the times of capture COPY
    apart at most, or SURELY_COPY without timestamps; pure ACKs may be repeated, so they count as copies only where
    data is ``copied``.
    """
    if s.seq != before.seq or s.length != before.length or s.ack != before.ack:
        return False
    if (s.flags, s.window, s.tsval) != (before.flags, before.window, before.tsval):
        return False
    if s.ip_id and before.ip_id:
        return s.ip_id == before.ip_id
    is_soon = 0 <= s.ts - before.ts <= (COPY if s.timestamps else SURELY_COPY)
    return is_soon and bool(s.length or s.flags & SYN or copied)


def acknowledged(x: Half, s: Segment) -> int:
    """The acknowledgement number of segment ``s`` of ``x``, without wrap.

    If nothing of the peer has been seen yet, the peer's numbers begin there.
    """
    y = x.peer
    if y.seq < 0:
        y.seq = FIRST_NUMBER + s.ack
    return unwrapped(s.ack, x.rcv_nxt if x.rcv_nxt >= 0 else y.seq)


def learn_syn(x: Half, s: Segment) -> None:
    """Note what a SYN of ``x`` says: MSS, window, window scale, whether there are timestamps, whose kernel."""
    connection = x.connection
    if not s.flags & (ACK | RST):
        if x.side == 0 and connection.packets:
            connection.syn_ts = -1  # sent again: the handshake takes a retransmission timeout
        connection.syn = s.seq
    x.syn, x.syn_window, x.mss, x.scale, x.timestamps = s.seq, s.window, s.mss, s.wscale, bool(s.timestamps)
    x.kernel = s.kernel
    connection.learn_client()
    one, two = connection.halves
    scales = (one.scale, two.scale)
    for half in (one, two):
        half.shift = window_shift(half, scales)
    learn_full_size_by_mss(connection)


def window_shift(x: Half, scales: tuple[int, int]) -> int:
    """The window scale of ``x``: used only when both ends offered the option (RFC 7323 §2.3).

    A SYN/ACK offers only what its SYN did. LARGEST_SCALE where the capture lacks the SYN that says it, or the option.
    """
    if min(scales) < -1:
        return LARGEST_SCALE
    are_there = x.syn >= 0, x.peer.syn >= 0
    if all(are_there):
        return min(x.scale, LARGEST_SCALE) if min(scales) >= 0 else 0
    if any(are_there) and max(scales) < 0:
        return 0
    return min(x.scale, LARGEST_SCALE) if are_there[0] and x.side == 1 else LARGEST_SCALE


def learn_full_size_by_mss(connection: Connection) -> None:
    """Set how large a full segment is by the MSS in the SYNs, bytes of payload.

    ``Connection.full_size`` of both ends, ``Half.full_size`` of each by what its peer announced less the options in
    use (RFC 6691), and ``Half.is_small_below``, below which a segment surely is not full.
    """
    one, two = connection.halves
    options = TIMESTAMPS_OPTION * (one.timestamps and two.timestamps)
    mss = min(one.mss, two.mss) or max(one.mss, two.mss)
    surely_full = max(mss - options, 1) if mss else LEAST_MSS
    connection.full_size = surely_full if mss else USUAL_FULL_SIZE
    for half in (one, two):
        half.full_size = max(half.peer.mss - options, 1) if half.peer.mss else 0
        window = half.peer.syn_window
        half_window = window // 2 if window > LEAST_MSS else window
        half.is_small_below = min(surely_full, half_window) if window >= 0 else surely_full


def learn_full_size_by_data(x: Half, s: Segment) -> None:
    """Learn how large a full segment of ``x`` is from new data ``s``: a length sent twice in a row without PSH.

    A path MTU and options that the handshake does not show make it less than the MSS says. Nothing is learned from
    what is full only until the window grows. If ``x`` never sets PSH (ns-3), only what it sends while other data is
    unacknowledged counts.
    """
    length = s.length
    if s.flags & PSH:
        x.pushes = True
        return
    if length < LEAST_LEARNED or length <= x.learned_full_size or (x.full_size and length > x.full_size):
        return
    if is_half_of_window(x, length):
        return
    if not x.pushes and x.snd_una >= x.data.end:
        return
    if length == x.last_unpushed:
        x.learned_full_size = length
    x.last_unpushed = length


def is_half_of_window(x: Half, length: int) -> bool:
    """Whether a segment of ``x`` is half of the peer's window or more: full, if that was the largest so far.

    Linux sends no more at once, unless the window has less than 536 bytes (tcp_bound_to_half_wnd).
    """
    return x.peer.rcv_nxt >= 0 and 2 * length >= x.peer.rcv_wnd


def note_hole(x: Half, start: int) -> None:
    """Count data of ``x`` that follows a hole, data that is not in the capture; or take that back, if this fills it.

    A hole is filled by data at its ``start`` that the peer still asks for by duplicate ACKs (RFC 5681 §3.2): then the
    path lost it, not the capture.
    """
    y = x.peer
    if x.seq >= 0 and start > x.snd_nxt:
        x.lost += 1
        if x.hole < x.snd_una:
            x.hole = x.snd_nxt
    elif start == x.hole == y.pure_ack.ack and y.pure_ack.number > x.data.number:
        x.lost -= 1
        x.hole = -1


def full_size_of(x: Half) -> int:
    """The payload of a full segment of ``x``, bytes, learned from its data or by the MSS; 0 not known."""
    return x.learned_full_size or x.full_size


def is_after(one: int, other: int) -> bool:
    """Whether a timestamp is newer than another, modulo 2**32 (RFC 7323 §5.2)."""
    return 0 < (one - other) & 0xFFFFFFFF < 0x80000000


def learn_clock(x: Half, s: Segment) -> None:
    """Note the timestamp of a segment of ``x``, and how far TSecr is ahead of TSval at its fastest (RFC 7323).

    That is the least time from the peer's segment to this one, by the ends' clocks, plus how far these are apart.
    """
    if x.clock_step != 1 and x.tsval >= 0:
        x.clock_step = gcd(x.clock_step, s.tsval - x.tsval)
    x.tsval = s.tsval
    ahead = (s.tsecr - s.tsval) & 0xFFFFFFFF
    if ahead != x.ahead and s.flags & (ACK | SYN) == ACK and (x.ahead < 0 or is_after(ahead, x.ahead)):
        x.ahead = ahead


def keep_sample(x: Half, kind: Reaction, ns: int) -> None:
    """Keep how long ``x`` took for a reaction, ns: the first SAMPLES of each kind, and the latest."""
    if x.reactions is None:
        x.reactions = [Samples() for _ in Reaction]
    samples = x.reactions[kind]
    if not 0 <= ns <= LONGEST:
        ns = min(max(ns, 0), LONGEST)
    if samples.count < 2 * SAMPLES:
        samples.kept.append(ns)
    else:
        samples.kept[SAMPLES + samples.count % SAMPLES] = ns
    samples.count += 1
