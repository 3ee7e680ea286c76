"""The table: what the two programs of every case with another TCP stack do, and what is therefore true of it.

The server is the end that might be held. A step of a program is w238 (write so many bytes), r84 (read so many) or
p40 (pause so many ms).
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Stack:
    """A TCP stack, whose program is NAME-peer.

    ``full_sent`` is the payload, in bytes, of a full segment that it sends to Linux, ``full_received`` that of one
    which Linux sends to it; ``ack_delay`` is its ACK delay in ms, if its program can set that.
    """

    name: str
    full_sent: int
    full_received: int
    ack_delay: int = 0


LINUX = Stack("linux", 0, 0)
SMOLTCP = Stack("smoltcp", 1460, 1460, 10)
NETSTACK = Stack("netstack", 1420, 1448)  # gVisor's always leaves room for 40 bytes of options
LWIP = Stack("lwip", 1460, 1460)
FREEBSD = Stack("freebsd", 1448, 1448, 100)
NS3 = Stack("ns3", 1448, 1448)  # a simulator: both ends of a case


@dataclass(frozen=True)
class Case:
    """One server, one client, and the truth.

    ``held`` says whether Nagle's algorithm holds segments of the server until a delayed ACK: then, and only then, the
    verdict is STALL. record_stacks.py takes their number from the log of write() times, unless ``counted`` is false,
    for the reason in ``why``.
    """

    name: str
    why: str
    sender: Stack  # the server
    receiver: Stack  # the client: it asks, and acknowledges; one of the two is Linux, or both are NS3
    steps: tuple[str, ...]  # of the server
    nagle: bool = True  # of the server
    ack_delay: int | None = None  # of the receiver, ms; None: the stack's own
    held: bool = False
    counted: bool = True
    also_acceptable: tuple[str, ...] = ()

    def ack_delay_of(self, stack: Stack) -> int:
        """The ACK delay that one of the two is told to use, ms."""
        return stack.ack_delay if self.ack_delay is None else self.ack_delay

    @property
    def client_steps(self) -> tuple[str, ...]:
        """A request in one write, and all of the reply."""
        return (f"w{REQUEST}", f"r{sum(int(step[1:]) for step in self.steps if step[0] == 'w')}")


CONNECTIONS, EXCHANGES = 3, 20
REQUEST, HEADER, BODY, TAIL = 84, 238, 615, 600
READ = f"r{REQUEST}"
TWO_WRITES = (READ, f"w{HEADER}", f"w{BODY}")
PAUSE_20 = (READ, f"w{HEADER}", "p20", f"w{BODY}")
PAUSE_40 = (READ, f"w{HEADER}", "p40", f"w{BODY}")
PAUSE_100 = (READ, f"w{HEADER}", "p100", f"w{BODY}")
PAUSE_200 = (READ, f"w{HEADER}", "p200", f"w{BODY}")
UNSURE = ("INCONCLUSIVE",)  # the pause ends with the peer's timer: only early data distinguishes them


def full_tail(full: int) -> tuple[str, ...]:
    """A full segment (or two), then a small one, in two writes."""
    return (READ, f"w{full}", f"w{TAIL}")


def sends(stack: Stack, splits_hold: bool) -> list[Case]:
    """The cases in which that stack is the server, and Linux delays its ACKs by 40 ms."""
    name, full = stack.name, stack.full_sent
    one_write = (
        "As full-tail-two-writes, in one write."
        if splits_hold
        else "One write of a full segment and a tail: this stack applies Nagle's algorithm between writes only."
    )
    return [
        Case(f"{name}-two-writes", "Header and body apart: the body waits for Linux's delayed ACK.",
             stack, LINUX, TWO_WRITES, held=True),
        Case(f"{name}-two-writes-nodelay", "Header and body apart, Nagle's algorithm off.",
             stack, LINUX, TWO_WRITES, nagle=False),
        Case(f"{name}-pause-20", "20 ms between the writes: the body waits for the rest of the delayed ACK.",
             stack, LINUX, PAUSE_20, held=True),
        Case(f"{name}-pause-40-nodelay", "Nagle's algorithm off, 40 ms between the writes: as long as the ACK timer.",
             stack, LINUX, PAUSE_40, nagle=False, also_acceptable=UNSURE),
        Case(f"{name}-full-tail-two-writes",
             "RFC 896 as written: the small tail waits behind one FULL segment, whose ACK Linux delays.",
             stack, LINUX, full_tail(full), held=True),
        Case(f"{name}-full-tail-one-write", one_write,
             stack, LINUX, (READ, f"w{full + TAIL}"), held=splits_hold),
        Case(f"{name}-full-tail-nodelay", "As full-tail-two-writes, Nagle's algorithm off.",
             stack, LINUX, full_tail(full), nagle=False),
        Case(f"{name}-two-full-tail", "The tail is behind two full segments, which Linux acknowledges at once.",
             stack, LINUX, full_tail(2 * full)),
    ]  # fmt: skip


def acknowledges_after(ms: int) -> list[Case]:
    """Linux sends to smoltcp, whose delayed ACK is set to so many milliseconds."""
    name = f"linux-to-smoltcp-ack{ms}"
    return [
        Case(name, f"Linux writes header and body apart; smoltcp delays its ACK by {ms} ms.",
             LINUX, SMOLTCP, TWO_WRITES, ack_delay=ms, held=True),
        Case(f"{name}-nodelay", f"As {name}, with TCP_NODELAY.",
             LINUX, SMOLTCP, TWO_WRITES, ack_delay=ms, nagle=False),
        Case(f"{name}-full-tail",
             "Linux follows Minshall: the tail behind a full segment leaves at once, whenever the ACK comes.",
             LINUX, SMOLTCP, full_tail(SMOLTCP.full_received), ack_delay=ms),
    ]  # fmt: skip


RECEIVED = [
    *acknowledges_after(10),
    *acknowledges_after(40),
    *acknowledges_after(200),
    Case("linux-to-smoltcp-ack40-full-pause-20-tail",
         "The tail is written 20 ms after the full segment, which is not yet acknowledged, and leaves at once.",
         LINUX, SMOLTCP, (READ, f"w{SMOLTCP.full_received}", "p20", f"w{TAIL}"), ack_delay=40),
    Case("linux-to-smoltcp-ack10-pause-40-nodelay",
         "TCP_NODELAY, and 40 ms between the writes: long after the ACK.",
         LINUX, SMOLTCP, PAUSE_40, nagle=False),
    Case("linux-to-smoltcp-ack40-pause-40-nodelay",
         "TCP_NODELAY, and 40 ms between the writes: as long as the ACK timer.",
         LINUX, SMOLTCP, PAUSE_40, ack_delay=40, nagle=False, also_acceptable=UNSURE),
    Case("linux-to-netstack-two-writes", "This stack never delays an ACK: the body waits for some microseconds.",
         LINUX, NETSTACK, TWO_WRITES),
    Case("linux-to-netstack-two-writes-nodelay", "As linux-to-netstack-two-writes, with TCP_NODELAY.",
         LINUX, NETSTACK, TWO_WRITES, nagle=False),
    Case("linux-to-netstack-full-tail", "A full segment and a tail in two writes; every ACK is immediate.",
         LINUX, NETSTACK, full_tail(NETSTACK.full_received)),
    Case("linux-to-netstack-pause-40-nodelay", "TCP_NODELAY, and 40 ms between the writes; every ACK is immediate.",
         LINUX, NETSTACK, PAUSE_40, nagle=False),
    Case("linux-to-lwip-two-writes",
         "lwIP acknowledges on a tick of 250 ms: after 0 to 250 ms, by phase. Where that is later than Linux's RTO, "
         "the ACK that ends the wait follows a spurious retransmission: an analyzer may count those or not.",
         LINUX, LWIP, TWO_WRITES, held=True, counted=False),
    Case("linux-to-lwip-two-writes-nodelay", "As linux-to-lwip-two-writes, with TCP_NODELAY.",
         LINUX, LWIP, TWO_WRITES, nagle=False),
    Case("linux-to-lwip-full-tail", "Linux follows Minshall: the tail behind a full segment leaves at once.",
         LINUX, LWIP, full_tail(LWIP.full_received)),
    Case("linux-to-lwip-pause-40-nodelay", "TCP_NODELAY, 40 ms between the writes, and ACKs on a tick of 250 ms.",
         LINUX, LWIP, PAUSE_40, nagle=False),
    Case("linux-to-freebsd-two-writes",
         "Linux writes header and body apart; FreeBSD delays its ACK by 100 ms and up to a tick of 10 ms.",
         LINUX, FREEBSD, TWO_WRITES, held=True),
    Case("linux-to-freebsd-two-writes-nodelay", "As linux-to-freebsd-two-writes, with TCP_NODELAY.",
         LINUX, FREEBSD, TWO_WRITES, nagle=False),
    Case("linux-to-freebsd-full-tail", "Linux follows Minshall: the tail behind a full segment leaves at once.",
         LINUX, FREEBSD, full_tail(FREEBSD.full_received)),
    Case("linux-to-freebsd-pause-40-nodelay",
         "TCP_NODELAY, and 40 ms between the writes: long before the ACK timer.",
         LINUX, FREEBSD, PAUSE_40, nagle=False),
    Case("linux-to-freebsd-pause-100-nodelay",
         "TCP_NODELAY, and 100 ms between the writes: as long as the ACK timer.",
         LINUX, FREEBSD, PAUSE_100, nagle=False, also_acceptable=UNSURE),
]  # fmt: skip

SIMULATED = [
    Case("ns3-two-writes", "Header and body apart: the body waits for a delayed ACK of 200 ms. Nothing has PSH.",
         NS3, NS3, TWO_WRITES, held=True),
    Case("ns3-two-writes-nodelay", "Header and body apart, Nagle's algorithm off.",
         NS3, NS3, TWO_WRITES, nagle=False),
    Case("ns3-same-size", "Two writes of one size: no full segments, though the size comes again without PSH.",
         NS3, NS3, (READ, f"w{BODY}", f"w{BODY}"), held=True),
    Case("ns3-pause-20", "20 ms between the writes: the body waits for the rest of the delayed ACK.",
         NS3, NS3, PAUSE_20, held=True),
    Case("ns3-pause-200-nodelay", "Nagle's algorithm off, 200 ms between the writes: as long as the ACK timer.",
         NS3, NS3, PAUSE_200, nagle=False, also_acceptable=UNSURE),
    Case("ns3-full-tail", "RFC 896 as written: the small tail waits behind one FULL segment.",
         NS3, NS3, full_tail(NS3.full_sent), held=True),
    Case("ns3-full-tail-nodelay", "As full-tail, Nagle's algorithm off.",
         NS3, NS3, full_tail(NS3.full_sent), nagle=False),
    Case("ns3-two-full-tail", "The tail is behind two full segments, which are acknowledged at once.",
         NS3, NS3, full_tail(2 * NS3.full_sent)),
]  # fmt: skip

SENT = [
    *sends(SMOLTCP, splits_hold=True),
    *sends(NETSTACK, splits_hold=False),
    *sends(LWIP, splits_hold=True),
    *sends(FREEBSD, splits_hold=False),
]
CASES = {case.name: case for case in SENT + RECEIVED + SIMULATED}
