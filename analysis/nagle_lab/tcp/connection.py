"""One connection, as far as the capture shows it: what each end sent and acknowledged, and what was learned from it.

In the words of RFC 9293 and Linux. learned.py has what a segment shows about its sender; machine.py decides what it
means. connection.h is the C twin.
"""

import msgspec

from nagle_lab.packet.segment import FIN, RST, Segment
from nagle_lab.tcp.events import MS, EndedBy

LEAST_MSS = 536  # any host must accept this (RFC 9293 §3.7.1): only smaller segments are surely small
# Without a captured handshake, a smaller payload with PSH is no full segment: IPv6 carries 1220 bytes on any path
# (RFC 8200 §5), and so does IPv4 on any known path, except to hosts that accept only 536.
LEAST_USUAL = 1200
USUAL_FULL_SIZE = 1448  # Ethernet's 1460 less timestamps: assumed where no handshake was captured
LARGEST_SCALE = 14  # RFC 7323 §2.3; assumed for a window of unknown scale

# A closed connection is remembered as long as Linux remembers it (TCP_TIMEWAIT_LEN): late segments still belong to
# it.
TIME_WAIT = 60_000 * MS

AT_ONCE, LEAST_STEP = 3, MS // 5  # so many packets with equal times show a coarse clock; its least step, ns

FIRST_NUMBER = 1 << 32  # unwrapped sequence numbers begin here, so that all are positive
# The lowest ephemeral port that a host assigns: Linux (ip_local_port_range); else FreeBSD (portrange.first).
EPHEMERAL = 32768, 10_000
LONGEST = (1 << 31) - 1  # ns, about two seconds; what a row of 32 bits holds
NEVER = (1 << 63) - 1


class Sent(msgspec.Struct, frozen=True, gc=False):
    """A segment that took sequence space, kept for comparison with later segments."""

    number: int  # of the packet on its connection
    ts: int  # ns
    frame: int
    start: int  # sequence numbers without their wrap
    end: int  # SYN and FIN counted
    length: int  # payload bytes
    flags: int
    is_new: bool  # none of its data was sent before: no retransmission (Karn's rule, RFC 6298 §3)
    epoch: int  # of the clock
    exchange: int  # -1: none
    edge: int  # right edge of the peer's window when it was sent; -1 not known
    tsval: int  # of its timestamp; -1 none
    since_data: int  # ns from the data segment that its sender sent before it; -1 none


class Acknowledgement(msgspec.Struct, frozen=True, gc=False):
    """A segment as an acknowledgement."""

    number: int  # of the packet on its connection
    ts: int  # ns
    frame: int
    seq: int  # of its sender: where its next new data begins, without wrap
    ack: int
    acked_before: int  # the highest its sender had acknowledged before
    had_room: bool  # its window, and the one its sender offered before, were open
    tsval: int  # of its timestamp; -1 none
    tsval_before: int  # of its sender's packet before it
    is_echoed: bool  # its peer echoes it next, because it had acknowledged everything before (RFC 7323 §4.3)
    window: int  # as on the wire
    before: int  # when its sender sent its packet before it, ns
    paced_since: int  # and the one before that
    serialization_delay: int  # of the bytes that it acknowledges, ns, as those two packets show
    beyond_full: int  # how much more than a full segment it acknowledges, bytes
    gap: int  # the idle gap that it ended, ns; 0 none
    gap_ended_by: EndedBy  # as in the row of that gap; so are the next two
    gap_small: bool
    gap_reply: bool
    edge_before: int  # of the window that its sender had offered until then, as `edge` of Sent; -1 not known


NO_SEGMENT = Sent(-1, 0, 0, 0, 0, 0, 0, False, -1, -1, -1, -1, -1)
NO_ACK = Acknowledgement(
    -1, 0, 0, 0, 0, 0, False, -1, -1, False, 0, 0, 0, 0, 0, 0, EndedBy.ACKNOWLEDGEMENT, False, False, -1
)  # fmt: skip


class Samples:
    """How long an end took for one kind of Reaction: the first SAMPLES times, and the latest."""

    __slots__ = ("count", "kept")

    def __init__(self) -> None:
        self.count = 0  # how often it reacted this way
        self.kept: list[int] = []  # ns


class Half:
    """A half-connection: what one end sent, and what it acknowledged of its peer's data.

    ``side`` is 0 for the end that opened the connection, else 1: see tcp/engine.h. Sizes are bytes, times ns.
    """

    __slots__ = (
        "ack_spacing", "ahead", "arrived", "beside_unacked", "closed", "connection", "copied", "data", "data_ack",
        "data_segments", "fastest_ack", "fin_acks", "first_not_held", "first_tsval", "first_tsval_ts",
        "full_size_by_data", "full_size_by_mss", "full_waits", "hole", "kernel", "last_ts", "last_unpushed",
        "latest_sent", "lost", "mss", "newly_acked", "not_held", "not_held_end", "offloaded", "packets", "payload",
        "peer", "pure_ack", "pushes", "rcv_nxt", "rcv_wnd", "reactions", "recent", "scale", "seq", "shift", "side",
        "small", "small_ack", "snd_nxt", "snd_una", "stale_echoes", "surely_small_below", "swapped", "syn", "syn_ttl",
        "syn_window", "timestamp_step", "timestamps", "tsval", "tsval_clock", "wire",
    )  # fmt: skip

    def __init__(self, connection: "Connection", side: int, first_ts: int) -> None:
        self.connection = connection
        self.side = side
        self.peer: Half = self
        # As in RFC 9293 §3.3.1, as far as the capture shows; sequence numbers are unwrapped.
        self.seq = -1  # of its latest segment; -1 unknown
        self.snd_una = 0  # the highest that its peer acknowledged
        self.snd_nxt = 0  # the end of the highest it sent
        self.rcv_nxt = -1  # its latest acknowledgement, in the peer's numbers; -1 none
        self.rcv_wnd = 0  # the window it offered with that ACK, bytes
        # Its ACK clock: the time from the previous packet to the latest one, and how much the latest acknowledged
        self.ack_spacing = 0  # ns
        self.newly_acked = 0  # bytes; 0 nothing new
        self.hole = -1  # start of its first data missing in the capture and not acknowledged by then; -1 none
        self.not_held_end = -1  # the end of its latest small segment sent behind an unacknowledged small one; -1 none
        # What it sent last
        self.last_ts = first_ts  # time of its latest segment; until it has one, of the connection's first segment
        self.data = NO_SEGMENT
        self.small = NO_SEGMENT  # its latest data that is not a full segment: ends at Linux's snd_sml
        self.small_ack = NO_ACK  # the pure ACK of its peer that acknowledged that
        self.latest_sent = NO_SEGMENT  # data, SYN or FIN
        self.pure_ack = NO_ACK
        self.data_ack = NO_ACK  # its latest data that acknowledged something new
        self.recent: list[Segment] = []  # the latest RECENT, used as a ring
        # The number of its packet that was captured more than once, and the earliest time of its arrival, ns
        self.copied, self.arrived = -1, 0
        # Its timestamps (RFC 7323)
        self.tsval = self.first_tsval = -1  # the latest, and the first; -1 none
        self.first_tsval_ts = 0  # when that was captured, ns
        self.tsval_clock = -1  # greatest TSval less time of capture: see clock_of in learned.py; -1 none
        self.ahead = -1  # TSecr less TSval modulo 2**32, at its fastest
        self.timestamp_step = 0  # greatest common divisor of the differences between its TSvals; 0 without any
        # Its SYN
        self.syn = self.syn_window = -1  # not captured
        self.mss, self.scale, self.timestamps, self.kernel, self.syn_ttl = 0, -1, False, 0, 0
        self.shift = LARGEST_SCALE
        self.surely_small_below = LEAST_MSS  # a segment with less payload is surely not full
        self.full_size_by_mss = 0  # payload of a full segment by its peer's MSS; 0 not known
        self.last_unpushed = 0  # payload of its latest segment without PSH that can teach the size
        self.full_size_by_data = 0  # the same by its data: the largest sent twice in a row without PSH
        self.closed = False
        self.pushes = False  # it sets PSH, so its writes end with it
        # Counted
        self.packets = self.payload = self.wire = 0
        self.offloaded = 0  # full segments in its packets beyond one per packet: segmentation offload
        self.not_held = self.fin_acks = self.stale_echoes = 0
        self.first_not_held = 0  # frame
        self.data_segments = self.lost = self.swapped = self.full_waits = self.beside_unacked = 0
        self.fastest_ack = NEVER  # ns, its fastest ACK
        self.reactions: list[Samples] | None = None  # by Reaction; None before the first

    @property
    def round_trip(self) -> int:
        """The round trip to it plus 1/8, ns: from the handshake, otherwise its fastest ACK; 0 not known."""
        handshake = self.connection.handshake
        if handshake < 0:
            handshake = 0 if self.fastest_ack == NEVER else self.fastest_ack
        return min(handshake, TIME_WAIT) * 9 // 8

    def arrival_of(self, packet: "Sent | Acknowledgement") -> int:
        """When a packet of it had arrived, ns: the time by its last copy (:func:`note_copy`), otherwise the time of
        capture.
        """
        return self.arrived if packet.number == self.copied else packet.ts

    def close(self, flags: int) -> None:
        """Note a control segment that it sent: a FIN closes its own side, a RST both, a SYN none."""
        if flags & (FIN | RST):
            self.closed = True
        if flags & RST:
            self.peer.closed = True


class Connection:
    """A connection: its two halves, and what they do together: handshake, exchanges (a request and its answer)."""

    __slots__ = (
        "answers_as", "asking", "at_once", "client", "exchange", "exchanges", "first_frame", "first_ts", "followed",
        "halves", "handshake", "is_copied", "key", "last_ts", "latest_data", "least_apart", "least_full_segment",
        "needs_programs", "number", "opener", "packets", "repeat_exchanges", "request_acked", "request_began",
        "request_ended", "response_began", "response_ended", "sender", "server_first", "shared", "syn", "syn_ts",
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
        # How many of its packets have the time of the one before; by how much the others are later at least.
        self.at_once, self.least_apart = 0, NEVER
        self.syn = -1  # sequence number of the latest SYN without ACK
        # Address and port that the segments of side 1 carry, where these are not its own: see Machine._asked_by.
        self.answers_as: tuple[bytes, int] | None = None
        self.syn_ts = -1  # of a SYN that was sent once and whose handshake is not complete
        self.handshake = -1  # ns, from a SYN sent once to its sender's first ACK
        self.least_full_segment = USUAL_FULL_SIZE
        self.latest_data: Half | None = None  # who sent data last
        self.opener = -1  # side that sent the first data
        self.shared = -1  # side whose port belongs to more connections than the other side's; -1 not known
        # The open exchange. A new one begins with the first data that the asking side sends after the answering
        # side has sent some; a server that speaks first has one without a request.
        self.exchange = -1
        self.asking = False  # the last data came from the asking side
        self.server_first = False
        self.forget_exchange()
        self.exchanges = self.repeat_exchanges = 0  # answered and ended exchanges
        self.followed = 0  # small data within SHORT of small data, after the pure ACK of that
        self.needs_programs = False
        self.is_copied = False  # data or a SYN of it was captured twice
        self.learn_client()

    def forget_exchange(self) -> None:
        """Begin a new exchange, of which nothing is known yet."""
        self.request_began, self.request_ended = NEVER, -1  # times of the first and the last segment of the request
        self.response_began, self.response_ended = NEVER, -1  # and of the answer
        self.request_acked = -1  # time of the latest acknowledgement of the request

    def opens(self, x: Half) -> None:
        """Note that ``x`` sends the first data of the connection; without a handshake that may make it the client."""
        self.opener = x.side
        self.learn_client()

    def learn_client(self) -> None:
        """Set ``client``, the side that asks.

        The handshake decides; otherwise the only ephemeral port; otherwise the server is the end whose port more
        connections have; otherwise the client is the end that sent data first; otherwise side 0.
        """
        one, two = self.halves
        if one.syn >= 0 or two.syn >= 0:
            self.client = 0
        elif self.side_by_port >= 0:
            self.client = self.side_by_port
        elif self.shared >= 0:
            self.client = 1 - self.shared
        else:
            self.client = max(self.opener, 0)

    @property
    def side_by_port(self) -> int:
        """The side with the only port that is ephemeral; -1 where both are, or none."""
        for lowest in EPHEMERAL:
            ephemeral = self.key[1] >= lowest, self.key[3] >= lowest
            if sum(ephemeral) == 1:
                return ephemeral.index(True)
        return -1

    @property
    def clock_step(self) -> int:
        """The step of the clock that stamped it, ns, if packets show that it is coarse; otherwise 0.

        Packets follow each other at any distance. If several have the same time, and none is only a little later than
        the one before it, the clock advances in steps. These need not be round numbers: 1/1024 s, or a slewed clock.
        """
        is_coarse = self.at_once >= AT_ONCE and LEAST_STEP <= self.least_apart < NEVER
        return min(self.least_apart, LONGEST) if is_coarse else 0

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
        """Only one side is in the capture: an unanswered SYN, or a capture of one direction."""
        one, two = self.halves
        return not one.packets or not two.packets
