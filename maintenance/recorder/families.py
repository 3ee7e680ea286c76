"""The table of the families: what misleads an analyst, and what is true about it. cases.py explains the columns."""

from dataclasses import replace
from typing import Any

from cases import (
    ANSWER_HALVES,
    ASK,
    BODY,
    CASES,
    HALVES,
    HEADER,
    HEADER_BODY,
    MSS,
    REQUEST,
    Case,
    Chat,
    Cork,
    Credit,
    Delays,
    Drained,
    NoDelay,
    Pause,
    Poll,
    Read,
    Step,
    Steps,
    Ticks,
    Timeout,
    Upstream,
    Write,
    header_pause_body,
)

BOTH = ("client", "server")
AWAY = ("client", "middle")
EVERYWHERE = ("client", "server", "middle")
RTTS = (1, 10, 40)
ONE_WRITE = (Read(REQUEST), Write(HEADER + BODY))


def with_wait(*wait: Step) -> Steps:
    """A server that waits between the two writes of its reply."""
    return (Read(REQUEST), Write(HEADER), *wait, Write(BODY))


TWO_WRITES = (
    Case("two-writes", "Header and body apart, Nagle on.", ASK, HEADER_BODY, held_by="server"),
    *(Case(f"two-writes-rtt-{rtt}", f"Header and body apart, on a path of {rtt} ms.",
           ASK, HEADER_BODY, held_by="server", rtt_ms=rtt) for rtt in RTTS),
    *(Case(f"two-writes-nodelay-rtt-{rtt}", f"The same with TCP_NODELAY, on a path of {rtt} ms.",
           ASK, HEADER_BODY, nodelay=True, rtt_ms=rtt) for rtt in RTTS),
    *(Case(f"halves-rtt-{rtt}", f"The client writes its request in two halves, on a path of {rtt} ms.",
           HALVES, ANSWER_HALVES, held_by="client", rtt_ms=rtt) for rtt in (1, 10)),
    Case("halves-nodelay-rtt-10", "The same halves with TCP_NODELAY, on a path of 10 ms.",
         HALVES, ANSWER_HALVES, nodelay=True, rtt_ms=10),
)  # fmt: skip

UPSTREAM_ASK = Upstream((Write(60), Read(540)))
UPSTREAM_HALVES = Upstream((Write(30), Write(30), Read(540)))
DB_HOLDS: Steps = (Read(60), Write(40), Write(500))
DB_WAITS: Steps = (Read(60), Write(540))
FLUSH_ASK: Steps = (Read(REQUEST), Write(HEADER), UPSTREAM_ASK, Write(BODY))
RELAY: Steps = (Read(REQUEST), Upstream((Write(REQUEST), Read(HEADER))), Write(HEADER),
                Upstream((Read(BODY),)), Write(BODY))  # fmt: skip
NODELAY_SERVER = ("client", "server", "upstream")

CHAINS = (
    Case("chain-database-lo", "A flushed header, then a question to a database on lo, which is held there; the body.",
         ASK, FLUSH_ASK, nodelay_at=NODELAY_SERVER, origin=DB_HOLDS, held_in_view="server", unsure=BOTH),
    Case("chain-database-beside", "The same, the database in a namespace of its own.",
         ASK, FLUSH_ASK, nodelay_at=NODELAY_SERVER, origin=DB_HOLDS, origin_at="origin", held_in_view="server",
         unsure=BOTH),
    Case("chain-question-lo", "The server's question to the database is held, in its two halves.",
         ASK, (Read(REQUEST), Write(HEADER), UPSTREAM_HALVES, Write(BODY)), nodelay_at=("client", "server", "origin"),
         origin=DB_WAITS, held_in_view="client", unsure=BOTH),
    Case("chain-question-beside", "The same, the database in a namespace of its own.",
         ASK, (Read(REQUEST), Write(HEADER), UPSTREAM_HALVES, Write(BODY)), nodelay_at=("client", "server", "origin"),
         origin=DB_WAITS, origin_at="origin", held_in_view="client", unsure=BOTH),
    Case("chain-proxy-lo", "A relay with TCP_NODELAY before an origin that writes header and body apart, and holds.",
         ASK, RELAY, nodelay_at=NODELAY_SERVER, origin=HEADER_BODY, held_in_view="server", unsure=BOTH),
    Case("chain-proxy-beside", "The same, the origin in a namespace of its own.",
         ASK, RELAY, nodelay_at=NODELAY_SERVER, origin=HEADER_BODY, origin_at="origin", held_in_view="server",
         unsure=BOTH),
    Case("chain-proxy-rtt-1", "The same on one host, the client 1 ms away.",
         ASK, RELAY, nodelay_at=NODELAY_SERVER, origin=HEADER_BODY, held_in_view="server", rtt_ms=1,
         unsure=EVERYWHERE),
    Case("chain-proxy-rtt-10", "The same, the client 10 ms away: its ACK comes after the body.",
         ASK, RELAY, nodelay_at=NODELAY_SERVER, origin=HEADER_BODY, held_in_view="server", rtt_ms=10),
    Case("chain-proxy-cured", "Relay and origin both with TCP_NODELAY.",
         ASK, RELAY, nodelay_at=(*NODELAY_SERVER, "origin"), origin=HEADER_BODY),
    Case("chain-database-think", "A flushed header, then a database that thinks for 40 ms; nothing is held anywhere.",
         ASK, FLUSH_ASK, nodelay_at=(*NODELAY_SERVER, "origin"), origin=(Read(60), Pause(40), Write(540)),
         unsure=BOTH),
)  # fmt: skip

GRANT: Steps = (Write(REQUEST), Read(HEADER), Timeout(40), Credit(True), Read(BODY))
PIECES: Steps = (Write(500), Drained()) * 3
GROWING: Steps = (Write(200), Drained(), Write(300), Drained(), Write(400))
TOLD: Steps = (Write(500), Read(1)) * 3
TELLING: Steps = (Read(500), Write(1)) * 3
WAITING = (
    Case("wait-rcvtimeo-40", "SO_RCVTIMEO of 40 ms between the writes: it ends in the tick of the delayed ACK.",
         ASK, with_wait(Timeout(40)), nodelay=True, unsure=BOTH),
    Case("wait-rcvtimeo-40-rtt-1", "The same, the client 1 ms away.",
         ASK, with_wait(Timeout(40)), nodelay=True, unsure=EVERYWHERE, rtt_ms=1),
    Case("wait-poll-40", "poll() with 40 ms between the writes.",
         ASK, with_wait(Poll(40)), nodelay=True, unsure=BOTH),
    Case("wait-poll-41-rtt-1", "poll() with 41 ms between the writes, the client 1 ms away.",
         ASK, with_wait(Poll(41)), nodelay=True, unsure=EVERYWHERE, rtt_ms=1),
    Case("wait-drained", "The program asks (SIOCOUTQ) until the header is acknowledged, and then writes the body.",
         ASK, with_wait(Drained()), nodelay=True, unsure=BOTH),
    Case("wait-drained-rtt-10", "The same, the client 10 ms away.",
         ASK, with_wait(Drained()), nodelay=True, unsure=EVERYWHERE, rtt_ms=10),
    Case("wait-drained-1ms-rtt-10", "The same, asking every millisecond.",
         ASK, with_wait(Drained(1)), nodelay=True, unsure=EVERYWHERE, rtt_ms=10),
    Case("wait-send-buffer", "A send buffer so small that a write waits until earlier ones are acknowledged.",
         (Write(REQUEST), Read(800)), (Read(REQUEST), *([Write(80), Write(120)] * 4)), nodelay=True,
         server_send_buffer=1, server_sysctls=("net.ipv4.tcp_early_retrans=0",), unsure=BOTH),
    Case("wait-credit-udp", "The body waits for a datagram that the client sends 40 ms after the header.",
         GRANT, with_wait(Credit(False)), nodelay=True, credit="udp", unsure=BOTH),
    Case("wait-credit-tcp", "The body waits for leave on a second connection, given 40 ms after the header.",
         GRANT, with_wait(Credit(False)), nodelay=True, credit="tcp", unsure=BOTH),
    Case("wait-stop-and-wait", "Pieces of 500 B, each written when the one before is acknowledged by the peer's TCP.",
         (Write(REQUEST), Read(1500)), (Read(REQUEST), *PIECES), nodelay=True, exchanges=24,
         unsure=BOTH),
    Case("wait-stop-and-wait-rtt-20", "The same pieces, the client 20 ms away.",
         (Write(REQUEST), Read(1500)), (Read(REQUEST), *PIECES), nodelay=True, exchanges=24, rtt_ms=20,
         unsure=EVERYWHERE),
    Case("wait-growing-pieces-rtt-20", "Pieces of 200, 300 and 400 B, each written when the last is acknowledged.",
         (Write(REQUEST), Read(900)), (Read(REQUEST), *GROWING), nodelay=True, rtt_ms=20, unsure=EVERYWHERE),
    Case("wait-credit-tcp-rtt-1", "The body waits for leave on a second connection, the client 1 ms away.",
         GRANT, with_wait(Credit(False)), nodelay=True, credit="tcp", rtt_ms=1, unsure=EVERYWHERE),
    Case("wait-stop-and-wait-told", "Pieces of 500 B, each written when the peer says that it has the one before.",
         (Write(REQUEST), *TELLING), (Read(REQUEST), *TOLD), nodelay=True),
)  # fmt: skip

READ_LATE = ((Write(REQUEST), Pause(60), Read(12_000)), (Read(REQUEST), Write(12_000)))
SMALL_WINDOW: Any = {"nodelay": True, "limited": True, "client_buffer": 4096,
                     "client_sysctls": ("net.ipv4.tcp_window_scaling=0",)}  # fmt: skip
LARGE = (Read(REQUEST), Write(HEADER), Write(4000))


def read_late(*pause: float) -> Steps:
    """A client that pauses before it reads a reply of several full segments; ms."""
    return (Write(REQUEST), Pause(*pause), Read(HEADER + 4000))


NOT_NAGLE = (
    Case("window-late", "A small buffer without window scale, read 60 ms late: the rest of the reply waits for room.",
         *READ_LATE, exchanges=20, **SMALL_WINDOW),
    Case("window-late-rtt-10", "The same on a path of 10 ms.", *READ_LATE, exchanges=20, **SMALL_WINDOW, rtt_ms=10),
    Case("window-late-41", "The same, read 41 ms late, about when the delayed ACK leaves.",
         (Write(REQUEST), Pause(41), Read(12_000)), (Read(REQUEST), Write(12_000)), exchanges=20, **SMALL_WINDOW),
    Case("window-bulk", "Replies of 12,000 B through the same small buffer, read at once.",
         (Write(REQUEST), Read(12_000)), (Read(REQUEST), Write(12_000)), exchanges=16, **SMALL_WINDOW),
    Case("read-late-30", "Header and 4,000 B apart, read 30 ms late: Nagle's algorithm holds the end until then.",
         read_late(30), LARGE, unread=True),
    Case("read-late-60", "The same, read 60 ms late, after a delayed ACK.", read_late(60), LARGE, unread=True),
    Case("read-late-60-rtt-10", "The same on a path of 10 ms.", read_late(60), LARGE, unread=True, rtt_ms=10),
    Case("read-late-at-times", "The same replies, read at once or up to 60 ms late.",
         read_late(0), LARGE, kinds=((read_late(10, 60), LARGE),), plan=(((0, 0, 1, 0, 0),) * 8,), unread=True),
    Case("read-late-nodelay", "The same with TCP_NODELAY: the replies are read as late.",
         read_late(30), LARGE, nodelay=True, unread=True),
    Case("cwnd-1", "A congestion window locked at one segment (route cwnd lock 1).",
         ASK, HEADER_BODY, nodelay=True, limited=True, server_route=("cwnd", "lock", "1"), unsure=BOTH),
    Case("cwnd-1-rtt-10", "The same on a path of 10 ms.",
         ASK, HEADER_BODY, nodelay=True, limited=True, server_route=("cwnd", "lock", "1"), rtt_ms=10,
         unsure=EVERYWHERE),
    Case("cwnd-1-bulk", "The same, replies of several full segments between.",
         ASK, HEADER_BODY, kinds=(((Write(REQUEST), Read(3 * MSS)), (Read(REQUEST), Write(3 * MSS))),),
         plan=(((1, 0, 0, 0, 1, 0, 0, 0, 0, 1),) * 4,), nodelay=True, limited=True,
         server_route=("cwnd", "lock", "1"), unsure=BOTH),
    Case("initcwnd-1-rtt-40", "A connection per exchange; the first congestion window is one segment (initcwnd 1).",
         ASK, HEADER_BODY, nodelay=True, limited=True, keepalive=False, server_route=("initcwnd", "1"), rtt_ms=40),
    Case("msg-more", "Header, a piece with MSG_MORE, 41 ms later the rest.",
         ASK, (Read(REQUEST), Write(HEADER), Write(300, True), Pause(41), Write(BODY - 300)), nodelay=True,
         unsure=BOTH),
    Case("msg-more-60", "The same, the rest 60 ms later: the ACK releases the piece, without PSH.",
         ASK, (Read(REQUEST), Write(HEADER), Write(300, True), Pause(60), Write(BODY - 300)), nodelay=True),
    Case("msg-more-well", "The header with MSG_MORE, then the body at once: one segment.",
         ASK, (Read(REQUEST), Write(HEADER, True), Write(BODY))),
    Case("cork-41", "Header, cork, a piece, 41 ms later the rest and the cork out.",
         ASK, (Read(REQUEST), Write(HEADER), Cork(True), Write(300), Pause(41), Write(BODY - 300), Cork(False)),
         nodelay=True, unsure=BOTH),
    Case("cork-well", "Cork, header, body, and the cork out: one segment.",
         ASK, (Read(REQUEST), Cork(True), Write(HEADER), Write(BODY), Cork(False))),
)  # fmt: skip

PAUSES = (
    *(Case(f"pause-{ms}-nagle", f"{ms} ms between the writes, Nagle on: held for the rest of the 40 ms.",
           ASK, header_pause_body(ms), held_by="server") for ms in (20, 30)),
    *(Case(f"pause-{ms}-nagle", f"{ms} ms between the writes, Nagle on: a race with the delayed ACK.",
           ASK, header_pause_body(ms), held_by="server", by_log=True) for ms in (38, 40, 42)),
    *(Case(f"pause-{ms}-nagle", f"{ms} ms between the writes, Nagle on: the delayed ACK has come.",
           ASK, header_pause_body(ms), unsure=("client",)) for ms in (44, 50)),
    *(Case(f"pause-{ms}-nodelay", f"{ms} ms between the writes, TCP_NODELAY.",
           ASK, header_pause_body(ms), nodelay=True, unsure=("client",) if 40 <= ms < 50 else ())
      for ms in (20, 30, 38, 40, 42, 44, 50)),
    Case("pause-20-nagle-rtt-10", "20 ms between the writes, Nagle on, on a path of 10 ms.",
         ASK, header_pause_body(20), held_by="server", rtt_ms=10),
    Case("pause-52-nodelay-rtt-10", "52 ms between the writes, TCP_NODELAY, on a path of 10 ms.",
         ASK, header_pause_body(52), nodelay=True, rtt_ms=10, unsure=AWAY),
)  # fmt: skip

QUICKACK = ("quickack", "1")
ASK_AND_REST = (*ASK, Pause(0, 12))
QUEUES = (
    Case("queue-60-quickack", "The client acknowledges at once, but a queue adds up to 60 ms to the path; Nagle on.",
         ASK, HEADER_BODY, rtt_ms=2, path=Delays(queue_ms=60), client_route=QUICKACK, acks_at_once=True,
         unsure=EVERYWHERE),
    Case("queue-random-60-quickack", "The same with up to 60 ms at random.",
         ASK, HEADER_BODY, rtt_ms=2, jitter_ms=60, client_route=QUICKACK, acks_at_once=True, unsure=EVERYWHERE),
    Case("still-40-quickack", "The client acknowledges at once, but for 40 of every 55 ms nothing moves; Nagle on.",
         ASK_AND_REST, HEADER_BODY, rtt_ms=2, path=Delays(still_ms=40), client_route=QUICKACK, acks_at_once=True,
         exchanges=100, unsure=EVERYWHERE),
    Case("still-15", "For 15 of every 55 ms nothing moves, and the client delays its ACKs; Nagle on.",
         ASK_AND_REST, HEADER_BODY, held_by="server", rtt_ms=2, path=Delays(still_ms=15), counted=False,
         unsure=EVERYWHERE),
    Case("queue-60-nodelay", "The queue of up to 60 ms, and TCP_NODELAY.",
         ASK, HEADER_BODY, rtt_ms=2, path=Delays(queue_ms=60), nodelay=True, unsure=EVERYWHERE),
    *(Case(f"round-trip-{rtt}-quickack", f"Nagle holds for one round trip of {rtt} ms; no ACK is delayed.",
           ASK, HEADER_BODY, rtt_ms=rtt, client_route=QUICKACK, acks_at_once=True) for rtt in (1, 10)),
)  # fmt: skip

SLOW = (ASK, header_pause_body(60))
FLUSHED: Steps = (*HEADER_BODY, NoDelay(True), NoDelay(False))
BULK = ((Write(REQUEST), Read(14_000)), (Read(REQUEST), Write(14_000)))
BULK_THEN_SMALL = ((1, *[0] * 12),) * 3
TOKENS = (Read(REQUEST), Write(HEADER), Write(30), Pause(25), Write(30), Pause(25), Write(30))
THREE: Steps = (Write(100), Write(150), Write(200))
AT_ONCE = ((ASK, (NoDelay(True), *HEADER_BODY)),)
BY_TURNS = (((0,) * 8, (1,) * 8) * 3,)
SET_LATE = (((0,) * 8 + (1,) * 8,) * 4,)
LARGE_FIRST = ((Write(REQUEST), Read(1200)), (Read(REQUEST), Write(900), Write(300)))
COMPLICATED = (
    Case("flush-trick", "TCP_NODELAY on and off again to flush the second reply of each connection, and no other.",
         ASK, HEADER_BODY, kinds=((ASK, FLUSHED),), plan=(((0, 1, *[0] * 10),) * 4,), held_by="server"),
    Case("path-mtu-1400", "A router passes on 1,400 B, the SYNs say 1460; a bulk reply, then header and body apart.",
         ASK, HEADER_BODY, kinds=(BULK,), plan=(BULK_THEN_SMALL,), held_by="server", ipv4_mtu=1400,
         server_route=("advmss", "1460")),
    Case("slow-beside", "One port: connections of 200 replies with 60 ms between the writes, others of 40 held ones.",
         *SLOW, kinds=((ASK, HEADER_BODY),), plan=(((0,) * 50, (1,) * 20) * 2 + ((0,) * 50,) * 2,), held_by="server"),
    Case("slow-mixed", "One port: the same 200 and 40 on the same connections, in turn.",
         *SLOW, kinds=((ASK, HEADER_BODY),), plan=(((0, 0, 0, 1, 0, 0) * 10,) * 4,), held_by="server"),
    Case("two-programs", "One client host: a program pauses 60 ms between its halves, another's second half is held.",
         (Write(40), Pause(60), Write(40), Read(BODY)), (Read(80), Write(BODY)),
         kinds=(((Write(40), Write(40), Read(BODY)), (Read(80), Write(BODY))),),
         plan=(((0,) * 20,) * 2, ((1,) * 20,) * 2), held_by="client"),
    Case("advmss-536", "The server announces an MSS of 536, the client 1460; header and a body of 900 B.",
         (Write(REQUEST), Read(HEADER + 900)), (Read(REQUEST), Write(HEADER), Write(900)), held_by="server",
         server_route=("advmss", "536")),
    Case("md5", "MD5 signatures leave less room in a segment; a bulk reply, then header and body apart.",
         ASK, HEADER_BODY, kinds=(BULK,), plan=(BULK_THEN_SMALL,), held_by="server", md5=True),
    Case("two-kinds", "One port: on some connections TCP_NODELAY and SO_RCVTIMEO of 40 ms, on others data is held.",
         ASK, HEADER_BODY, kinds=((ASK, (NoDelay(True), *with_wait(Timeout(40)))),),
         plan=(((0,) * 15, (1,) * 10, (0,) * 15, (1,) * 10, (0,) * 15),), held_by="server"),
    Case("nodelay-by-turns", "TCP_NODELAY on every second connection, set when it begins.",
         ASK, HEADER_BODY, kinds=AT_ONCE, plan=BY_TURNS, held_by="server"),
    Case("nodelay-set-late-rtt-10", "TCP_NODELAY is set on each connection after its eighth reply.",
         ASK, HEADER_BODY, kinds=AT_ONCE, plan=SET_LATE, held_by="server", rtt_ms=10),
    Case("nodelay-then-bulk", "TCP_NODELAY on the first connections; on the later ones a large reply comes between.",
         ASK, HEADER_BODY, kinds=(*AT_ONCE, BULK), plan=(((1,) * 8, (1,) * 8, (2, *[0] * 8), (2, *[0] * 8)),),
         held_by="server"),
    Case("tokens", "A header and the first token at once, which is held; further tokens every 25 ms.",
         (Write(REQUEST), Read(HEADER + 90)), TOKENS, held_by="server", exchanges=24),
    Case("three-writes-rtt-10", "Three writes at once, then three more 25 ms later: the later ones wait together.",
         (Write(REQUEST), Read(900)), (Read(REQUEST), *THREE, Pause(25), *THREE), held_by="server", rtt_ms=10),
    Case("confirm-and-next", "A confirm, and the next message, which waits behind it.",
         (Write(30), Read(19), Write(12)), (Read(30), Write(19), Read(12)), held_by="client"),
    Case("both-ends", "Request and reply in two writes each, and both ends hold the second.",
         (Write(40), Write(44), Read(HEADER + BODY)), (Read(84), Write(HEADER), Write(BODY)), held_by="both",
         exchanges=24),
    Case("large-first", "The first of the two writes is 900 B, more than half a segment.",
         *LARGE_FIRST, held_by="server"),
    Case("large-first-rtt-10", "The same on a path of 10 ms.", *LARGE_FIRST, held_by="server", rtt_ms=10),
    Case("large-first-nodelay", "The same with TCP_NODELAY.", *LARGE_FIRST, nodelay=True),
)  # fmt: skip

TICKS = 30
CLIENT_TICKS: Steps = (Write(1), Ticks(TICKS, 33, (40, 44), TICKS * 50))
SERVER_TICKS: Steps = (Read(1), Pause(4, 30), Ticks(TICKS, 33, (50,), TICKS * 84))
GAME = ((Ticks(100, 25, (40,), 100 * 50),), (Ticks(100, 33, (50,), 100 * 40),))
CHAT: Steps = (Chat(100, (5, 60), (10, 300)),)
SLOW_CHAT: Steps = (Chat(25, (60, 250), (10, 300)),)
PUSHES = ((Write(REQUEST), Read(HEADER + 100), Pause(5, 30)), (Read(REQUEST), Write(HEADER), Pause(60), Write(100)))
DUPLEX = (
    Case("duplex-ticks", "Both ends tick every 33 ms; the client's second write waits for the ACK in the next tick.",
         CLIENT_TICKS, SERVER_TICKS, held_by="client", exchanges=5, nodelay_at=("server",)),
    Case("duplex-ticks-rtt-10", "The same on a path of 10 ms.",
         CLIENT_TICKS, SERVER_TICKS, held_by="client", exchanges=5, nodelay_at=("server",), rtt_ms=10),
    Case("duplex-ticks-nodelay", "The same ticks with TCP_NODELAY at both ends.",
         CLIENT_TICKS, SERVER_TICKS, exchanges=5, nodelay=True),
    Case("duplex-ticks-nodelay-rtt-10", "The same with TCP_NODELAY on a path of 10 ms.",
         CLIENT_TICKS, SERVER_TICKS, exchanges=5, nodelay=True, rtt_ms=10),
    Case("duplex-poll-25-rtt-5", "A client asks every 25 ms by its own clock, answered at once, on a path of 5 ms.",
         (Ticks(60, 25, (50,), 60 * 84),), (Read(50), Write(84)) * 60, nodelay=True, exchanges=4,
         rtt_ms=5, unsure=AWAY),
    Case("duplex-confirmed-rtt-5", "A server pushes every 33 ms, and the client confirms each, on a path of 5 ms.",
         (Write(1), *((Read(50), Write(20)) * 60)), (Read(1), Ticks(60, 33, (50,), 60 * 20)), nodelay=True,
         exchanges=4, rtt_ms=5, unsure=("server", "middle")),
    *(Case(f"duplex-one{at}", "The ends tick every 25 and 33 ms and write once each time, Nagle on at both.",
           *GAME, held_by="both", exchanges=4, rtt_ms=rtt, counted=False)
      for at, rtt in (("", None), ("-rtt-10", 10))),
    *(Case(f"duplex-chat{at}", "Messages of 10 to 300 B every 5 to 60 ms both ways, Nagle on at both ends.",
           CHAT, CHAT, held_by="both", exchanges=4, rtt_ms=rtt, counted=False)
      for at, rtt in (("", None), ("-rtt-10", 10))),
    *(Case(f"duplex-chat-nodelay{at}", "The same messages with TCP_NODELAY at both ends.",
           CHAT, CHAT, nodelay=True, exchanges=4, rtt_ms=rtt) for at, rtt in (("", None), ("-rtt-10", 10))),
    Case("duplex-slow-chat", "Messages every 60 to 250 ms both ways, Nagle on: all is acknowledged by then.",
         SLOW_CHAT, SLOW_CHAT, exchanges=4),
    Case("duplex-pushes-rtt-10", "An answer, and 60 ms later more without a question; the client thinks up to 30 ms.",
         *PUSHES, rtt_ms=10),
)  # fmt: skip

RISING = Delays(later_rtt_ms=20)
PATHS = (
    Case("rtt-rising", "The round trip is 2 ms in the handshake and 20 ms after it.",
         ASK, HEADER_BODY, held_by="server", rtt_ms=2, path=RISING, unsure=AWAY),
    Case("rtt-rising-nodelay", "The same with TCP_NODELAY.", ASK, HEADER_BODY, nodelay=True, rtt_ms=2, path=RISING,
         unsure=AWAY),
    *(Case(f"jitter-{ms}-rtt-10", f"A path of 10 ms and up to {ms} ms of jitter.",
           ASK, HEADER_BODY, held_by="server", rtt_ms=10, jitter_ms=ms, unsure=AWAY if ms == 3 else ())
      for ms in (1, 3)),
    *(Case(f"jitter-{ms}-rtt-10-nodelay", f"A path of 10 ms, up to {ms} ms of jitter, and TCP_NODELAY.",
           ASK, HEADER_BODY, nodelay=True, rtt_ms=10, jitter_ms=ms) for ms in (1, 3)),
    Case("jitter-8-rtt-10", "A path of 10 ms and up to 8 ms of jitter.",
         ASK, HEADER_BODY, held_by="server", rtt_ms=10, jitter_ms=8, unsure=AWAY),
    Case("jitter-8-rtt-40-nodelay", "A path of 40 ms, up to 8 ms of jitter, and TCP_NODELAY.",
         ASK, HEADER_BODY, nodelay=True, rtt_ms=40, jitter_ms=8),
    Case("jitter-3-pause-50-nodelay", "A path of 10 ms with jitter; pauses of 50 ms, about what a late ACK takes.",
         ASK, header_pause_body(50), nodelay=True, rtt_ms=10, jitter_ms=3, unsure=AWAY),
)  # fmt: skip

COPIES = (
    Case("bridge", "Both ends on a bridge, captured on all its interfaces: every packet several times.",
         ASK, HEADER_BODY, held_by="server", bridge=True),
    Case("bridge-ipv6", "The same over IPv6.", ASK, HEADER_BODY, held_by="server", bridge=True, ipv6=True),
    Case("bridge-nodelay", "The bridge, and TCP_NODELAY.", ASK, HEADER_BODY, nodelay=True, bridge=True),
    Case("bridge-nodelay-ipv6", "The same over IPv6.", ASK, HEADER_BODY, nodelay=True, bridge=True, ipv6=True),
)  # fmt: skip

ECHO = ((Write(1), Read(1), Pause(20, 120)), (Read(1), Write(1)))
PLAIN = (
    Case("clean-think", "The server thinks 20 to 60 ms, then answers in one write; Nagle on.",
         ASK, (Read(REQUEST), Pause(20, 60), Write(HEADER + BODY))),
    Case("clean-one-write", "Header and body in one write, a request every 5 ms.", (*ASK, Pause(5)), ONE_WRITE),
    Case("clean-one-write-rtt-10", "The same on a path of 10 ms.", ASK, ONE_WRITE, rtt_ms=10),
    Case("clean-nodelay", "Header and body apart with TCP_NODELAY, a request every 5 ms.",
         (*ASK, Pause(5)), HEADER_BODY, nodelay=True),
    Case("clean-bulk", "Replies of 60,000 B, Nagle on.",
         (Write(REQUEST), Read(60_000)), (Read(REQUEST), Write(60_000)), exchanges=15),
    Case("clean-bulk-rtt-10", "The same on a path of 10 ms.",
         (Write(REQUEST), Read(60_000)), (Read(REQUEST), Write(60_000)), exchanges=15, rtt_ms=10),
    Case("clean-echo", "Single keystrokes and their echo, 20 to 120 ms apart, Nagle on.", *ECHO),
    Case("clean-echo-rtt-10", "The same on a path of 10 ms.", *ECHO, rtt_ms=10),
)  # fmt: skip

TABLE: dict[str, tuple[Case, ...]] = {
    "two-writes": TWO_WRITES,
    "chain": CHAINS,
    "waiting": WAITING,
    "not-nagle": NOT_NAGLE,
    "pause": PAUSES,
    "queue": QUEUES,
    "complicated": COMPLICATED,
    "duplex": DUPLEX,
    "path": PATHS,
    "copies": COPIES,
    "plain": PLAIN,
}


def _in_family(case: Case, family: str) -> Case:
    several = case.keepalive and not case.plan and case.connections == 1
    return replace(case, family=family, connections=min(4, case.exchanges) if several else case.connections)


FAMILIES = {case.name: _in_family(case, family) for family, cases in TABLE.items() for case in cases}
ALL = CASES | FAMILIES
