"""The table: what the two programs of every recorded case do, and what is therefore true about its captures."""

import random
from dataclasses import dataclass

MSS = 1448  # payload of a full segment: Ethernet's 1500 bytes less IPv4, TCP and its timestamps
PORT, ORIGIN_PORT, CREDIT_PORT = 7000, 7001, 7002  # of the server, of its origin, of a second connection to it
ORIGIN_ADDRESS = "10.78.0.2"  # of the origin, if it has a namespace of its own
ADDRESSES = {False: {"client": "10.77.0.1", "server": "10.77.0.2"}, True: {"client": "fd77::1", "server": "fd77::2"}}


@dataclass(frozen=True)
class Write:
    """One send() of that many bytes, with or without MSG_MORE."""

    size: int
    more: bool = False


@dataclass(frozen=True)
class Read:
    """recv() until that many bytes have come."""

    size: int


@dataclass(frozen=True)
class Pause:
    """Sleep that long, ms; with two numbers, a random time between them."""

    shortest: float
    longest: float | None = None


@dataclass(frozen=True)
class Cork:
    """Set or clear TCP_CORK."""

    on: bool


@dataclass(frozen=True)
class NoDelay:
    """Set or clear TCP_NODELAY."""

    on: bool


@dataclass(frozen=True)
class Poll:
    """poll() for that long, ms, while nothing comes: a timer of high resolution."""

    ms: int


@dataclass(frozen=True)
class Timeout:
    """recv() with SO_RCVTIMEO, ms, while nothing comes: a timer that counts the kernel's ticks."""

    ms: int


@dataclass(frozen=True)
class Drained:
    """Ask the kernel (SIOCOUTQ) every so often, ms, until the peer has acknowledged everything."""

    every: float = 0.02


@dataclass(frozen=True)
class Credit:
    """Give the other program a credit to go on, by another way than the connection; or wait for this credit."""

    give: bool


@dataclass(frozen=True)
class Upstream:
    """Do this on the server's own connection to the origin."""

    steps: tuple["Write | Read | Pause", ...]


@dataclass(frozen=True)
class Ticks:
    """Full duplex: at every tick, ms, read what has come and write; at the end read the rest of the peer's ``total``
    bytes.
    """

    count: int
    every: float
    sizes: tuple[int, ...]
    total: int


@dataclass(frozen=True)
class Chat:
    """Full duplex: ``count`` messages of random sizes, bytes, at random times, ms; what comes meanwhile is read.

    The peer sends as many messages, of sizes in the same range.
    """

    count: int
    apart: tuple[float, float]
    sizes: tuple[int, int]

    def messages(self, name: str, end: str) -> list[tuple[float, int]]:
        """The pause before each message, ms, and its size: the same each time."""
        chance = random.Random(f"{name} {end}")
        return [(chance.uniform(*self.apart), chance.randint(*self.sizes)) for _ in range(self.count)]


Step = Write | Read | Pause | Cork | NoDelay | Poll | Timeout | Drained | Credit | Upstream | Ticks | Chat
Steps = tuple[Step, ...]


@dataclass(frozen=True)
class Drop:
    """Lose new data segments of the server between the middle and the client: every ``every``-th, from ``first``."""

    every: int
    first: int


@dataclass(frozen=True)
class Delays:
    """What else delays frames on a relayed path."""

    later_rtt_ms: float | None = None  # the round trip from the 20th frame on: after the handshake
    queue_ms: float = 0  # a queue fills and empties every 1.7 s, and adds up to this to the round trip
    still_ms: float = 0  # of every 55 ms, nothing moves on the path for this long


@dataclass(frozen=True)
class Case:
    """Two programs, the path between them, and the truth.

    ``held_by`` is the end whose segments Nagle's algorithm held until a delayed ACK: only then is the verdict STALL.
    If anything else makes a program's data leave late (the path, a cork, a loss, the window), it is no stall.
    """

    name: str
    why: str
    client: tuple[Step, ...]
    server: tuple[Step, ...]
    held_by: str | None = None
    # The cause (idle_gaps.Cause) of the idle gap that every exchange has, or every second one.
    idle_gap: str | None = None
    exchanges: int = 40
    nodelay: bool = False  # TCP_NODELAY, both ends
    keepalive: bool = True  # False: a connection per exchange
    ipv6: bool = False
    rtt_ms: float | None = None  # None: a veth pair; else a relay with this round trip, and a capture in its middle
    jitter_ms: float = 0  # a random time added to the round trip, at most
    drop: Drop | None = None
    client_buffer: int | None = None  # SO_RCVBUF of the client, bytes
    client_route: tuple[str, ...] = ()  # options of the client's route to the server, as in ip-route(8)
    server_route: tuple[str, ...] = ()
    server_sysctls: tuple[str, ...] = ()
    # The families (families.py) have these too.
    family: str = ""
    connections: int = 1  # of a client program, one after the other; they share the exchanges
    kinds: tuple[tuple[Steps, Steps], ...] = ()  # further kinds of exchanges (client, server), numbered from 1
    plan: tuple[tuple[tuple[int, ...], ...], ...] = ()  # client program → connection → kind of each exchange
    nodelay_at: tuple[str, ...] = ()  # "client", "server", "upstream" (the server towards the origin), "origin"
    origin: Steps = ()  # what the origin does, the program that the server asks
    origin_at: str = "server"  # or "origin": a namespace of its own
    credit: str = ""  # "udp" or "tcp": the way of the credit
    limited: bool = False  # the window holds data back, not Nagle's algorithm
    acks_at_once: bool = False  # neither end ever delays an ACK
    unread: bool = False  # ACKs are late, but not delayed: the client's program does not read
    counted: bool = True  # False: only the verdict is known exactly; how many are held, not to a few percent
    by_log: bool = False  # a race with the timer: the log of the recording says whether it is a stall
    unsure: tuple[str, ...] = ()  # positions at which only INCONCLUSIVE is honest
    held_in_view: str | None = None  # held on the connection to the origin, by its "client" or its "server"
    bridge: bool = False  # the ends are on a bridge, and the middle's capture is of all its interfaces
    ipv4_mtu: int | None = None  # of a router between the ends: it passes on no larger packets
    path: Delays = Delays()
    client_sysctls: tuple[str, ...] = ()
    server_send_buffer: int | None = None  # SO_SNDBUF, bytes
    md5: bool = False  # TCP MD5 signatures (RFC 2385)

    @property
    def programs(self) -> tuple[tuple[tuple[int, ...], ...], ...]:
        """What each client program does: connections, and the kind of each of their exchanges."""
        if self.plan:
            return self.plan
        connections = self.connections if self.keepalive else self.exchanges
        return (((0,) * (self.exchanges // connections),) * connections,)

    def steps(self, kind: int, end: str) -> Steps:
        """What one end does in an exchange of that kind."""
        client, server = ((self.client, self.server), *self.kinds)[kind]
        return client if end == "client" else server

    @property
    def origin_address(self) -> tuple[str, int]:
        """Where the origin listens."""
        return ("127.0.0.1" if self.origin_at == "server" else ORIGIN_ADDRESS, ORIGIN_PORT)

    @property
    def longest_path_ms(self) -> float:
        """The longest round trip that the path may have; 0 if it is not relayed."""
        path = self.path
        return max(self.rtt_ms or 0, path.later_rtt_ms or 0) + self.jitter_ms + path.queue_ms + path.still_ms

    @property
    def verdict(self) -> str:
        """What an analyzer must say of every capture of this case."""
        return "STALL" if self.held_by else "CLEAN"


REQUEST, HEADER, BODY = 84, 238, 615  # as in the nginx incident
ASK = (Write(REQUEST), Read(HEADER + BODY))
HEADER_BODY = (Read(REQUEST), Write(HEADER), Write(BODY))
HALVES = (Write(3), Write(3), Read(BODY))
ANSWER_HALVES = (Read(6), Write(BODY))


def header_pause_body(*pause: float) -> tuple[Step, ...]:
    """A server that pauses between the two writes of its reply; ms."""
    return (Read(REQUEST), Write(HEADER), Pause(*pause), Write(BODY))


STALLED = (
    Case("server-held", "The server writes header and body apart; the body waits for the client's delayed ACK.",
         ASK, HEADER_BODY, held_by="server"),
    Case("server-held-ipv6", "As server-held, over IPv6.", ASK, HEADER_BODY, held_by="server", ipv6=True),
    Case("server-held-rtt-20", "As server-held, on a path of 20 ms.", ASK, HEADER_BODY, held_by="server", rtt_ms=20),
    Case("server-held-rtt-20-jitter-2", "As server-held-rtt-20, with up to 2 ms of jitter in each round trip.",
         ASK, HEADER_BODY, held_by="server", rtt_ms=20, jitter_ms=2),
    Case("client-held", "The client writes its request in two halves, then reads; the second half waits.",
         HALVES, ANSWER_HALVES, held_by="client"),
    Case("client-held-rtt-20", "As client-held, on a path of 20 ms.",
         HALVES, ANSWER_HALVES, held_by="client", rtt_ms=20),
    Case("message-queue", "An SDK confirms each reply and sends its next message, which waits behind the confirm.",
         (Write(30), Read(19), Write(12)), (Read(30), Write(19), Read(12)), held_by="client"),
    Case("three-writes", "Header and body in two parts; the parts wait together.",
         ASK, (Read(REQUEST), Write(HEADER), Write(300), Write(BODY - 300)), held_by="server"),
    Case("three-writes-with-a-pause", "As three-writes, the third written 60 ms after the second.",
         ASK, (Read(REQUEST), Write(HEADER), Write(300), Pause(60), Write(BODY - 300)), held_by="server"),
    Case("random-pause", "The server pauses 0 to 60 ms before the body: shorter than the ACK timer it is held.",
         ASK, header_pause_body(0, 60), held_by="server", exchanges=120),
    Case("random-pause-rtt-20", "As random-pause, on a path of 20 ms.",
         ASK, header_pause_body(0, 90), held_by="server", exchanges=120, rtt_ms=20),
)  # fmt: skip

CLEAN = (
    Case("think-40", "The server thinks for 40 ms, then answers in one write.",
         ASK, (Read(REQUEST), Pause(40), Write(HEADER + BODY)), idle_gap="server_think"),
    Case("nodelay", "Header and body apart with TCP_NODELAY: nothing is held.", ASK, HEADER_BODY, nodelay=True),
    Case("nodelay-pause-30-60", "TCP_NODELAY and a random pause between the writes: some end right behind the ACK.",
         ASK, header_pause_body(30, 60), nodelay=True, exchanges=120),
    Case("nodelay-pause-45", "TCP_NODELAY and always 45 ms between the writes: the body always follows the ACK.",
         ASK, header_pause_body(45), nodelay=True, idle_gap="delayed_ack"),
    Case("nodelay-pause-30-90-rtt-20", "As nodelay-pause-30-60, with longer pauses on a path of 20 ms.",
         ASK, header_pause_body(30, 90), nodelay=True, exchanges=120, rtt_ms=20),
    Case("nodelay-pause-50-70-rtt-20", "TCP_NODELAY on a path of 20 ms; pauses around the time its late ACKs arrive.",
         ASK, header_pause_body(50, 70), nodelay=True, exchanges=80, rtt_ms=20),
    Case("nodelay-pause-63-rtt-20", "TCP_NODELAY on a path of 20 ms; the pause always ends as the late ACK arrives.",
         ASK, header_pause_body(63), nodelay=True, rtt_ms=20),
    Case("nagle-pause-60", "Nagle on, but the server pauses 60 ms between the writes: longer than any delayed ACK.",
         ASK, header_pause_body(60), idle_gap="delayed_ack"),
    Case("nodelay-rtt-40", "A path of 40 ms and TCP_NODELAY.", ASK, HEADER_BODY, nodelay=True, rtt_ms=40),
    Case("nagle-rtt-40", "Nagle holds the body one round trip of 40 ms; the client delays no ACK (quickack route).",
         ASK, HEADER_BODY, rtt_ms=40, client_route=("quickack", "1"), idle_gap="nagle_round_trip"),
    Case("cork", "The server corks after the header; the kernel lets the body go after 200 ms (tcp(7)).",
         ASK, (Read(REQUEST), Cork(False), Write(HEADER), Cork(True), Write(BODY)), exchanges=20, idle_gap="cork"),
    Case("tail-loss-probe", "The body is lost on every second reply and sent again by a tail-loss probe.",
         ASK, HEADER_BODY, nodelay=True, rtt_ms=20, drop=Drop(every=4, first=3), idle_gap="retransmission"),
    Case("rto", "The one segment of every second reply is lost and sent again after an RTO of about 40 ms.",
         ASK, (Read(REQUEST), Write(HEADER + BODY)), nodelay=True, rtt_ms=0, drop=Drop(every=2, first=1),
         server_route=("rto_min", "40ms"), server_sysctls=("net.ipv4.tcp_early_retrans=0",),
         idle_gap="retransmission"),
    Case("rto-nagle", "The header of every second reply is lost; Nagle holds the body until the RTO repairs that.",
         ASK, HEADER_BODY, rtt_ms=0, drop=Drop(every=4, first=2), client_route=("quickack", "1"),
         server_route=("rto_min", "40ms"), server_sysctls=("net.ipv4.tcp_early_retrans=0",),
         idle_gap="retransmission"),
    Case("zero-window", "A client with a small buffer reads 120 ms late; the server waits for room.",
         (Write(REQUEST), Pause(120), Read(12_000)), (Read(REQUEST), Write(12_000)), exchanges=20, client_buffer=4096,
         idle_gap="window"),
    Case("harmless-delayed-ack", "The client rests for 60 ms and delays its ACK; the server has no more to send.",
         (*ASK, Pause(60)), (Read(REQUEST), Write(HEADER + BODY)), idle_gap="delayed_ack"),
    Case("one-write-of-1.5-mss", "One write of a full and a half segment: Linux holds no segment behind a full one.",
         (Write(REQUEST), Read(MSS * 3 // 2)), (Read(REQUEST), Write(MSS * 3 // 2))),
    Case("full-segment-first", "Two writes, the first a full segment: Linux holds no segment behind a full one.",
         (Write(REQUEST), Read(MSS + 500)), (Read(REQUEST), Write(MSS), Write(500))),
    Case("no-keepalive", "A connection per exchange: its first ACKs are quick ones.",
         ASK, HEADER_BODY, keepalive=False),
    Case("one-write", "Header and body in one write.", ASK, (Read(REQUEST), Write(HEADER + BODY))),
)  # fmt: skip

CASES = {case.name: case for case in STALLED + CLEAN}
