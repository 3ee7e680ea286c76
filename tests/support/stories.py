"""Conversations of the kinds that the analyzer must distinguish, each as it looks on the wire."""

from collections.abc import Callable

from support.synthetic import MS, SECOND, US, Conversation, Segment, merge

REQUEST, HEADER, BODY = 84, 238, 615  # bytes, as in the nginx incident
LATE = 40 * MS + 300 * US  # a delayed-ACK timer of 40 ms, seen with a little noise
RELEASE = 15 * US

Story = Callable[[Conversation, int], None]  # what one exchange looks like, given its number


def talk(
    exchange: Story,
    exchanges: int = 20,
    first: Story | None = None,
    **settings: object,
) -> Conversation:
    """A connection with ``exchanges`` exchanges; the first is fast (quick ACKs), or ``first``."""
    conversation = Conversation(**settings)  # type: ignore[arg-type]
    conversation.handshake()
    for number in range(exchanges):
        (exchange if number else first or prompt)(conversation, number)
        conversation.pause(2 * MS)
    conversation.close()
    return conversation


def two_part_reply(
    c: Conversation,
    *,
    asked: int = 20 * US,
    request_ack: int | None = None,
    first: int = HEADER,
    header: int = 200 * US,
    ack: int,
    body: int = RELEASE,
    pause: int | None = None,
    last_ack: int | None = 10 * US,
) -> None:
    """One exchange: a request, and a reply in two parts, with a pure ACK of the ``first`` (bytes) in between.

    Every segment leaves so many ns after the last thing that its end did or saw; with a ``pause`` the body leaves so
    long after the header, whenever the ``ack`` comes. Data without an ACK of its own (``request_ack`` or ``last_ack``
    None) is acknowledged by the receiver's next data.
    """
    c.client_sends(REQUEST, after_ns=asked)
    if request_ack is not None:
        c.server_acks(after_ns=request_ack)
    written = c.server_sends(first, after_ns=header).ts_ns
    c.client_acks(after_ns=ack)
    c.server_sends(BODY, after_ns=body, at_ns=None if pause is None else written + pause)
    if last_ack is not None:
        c.client_acks(after_ns=last_ack)


def prompt(c: Conversation, _: int) -> None:
    """Two writes, the first acknowledged at once."""
    two_part_reply(c, ack=10 * US)


def server_held(c: Conversation, number: int) -> None:
    """The nginx incident: the body waits behind the header until the client's late ACK."""
    two_part_reply(c, ack=LATE + (number % 5) * MS)


def reply_in_two(wait: int, after: Callable[[int], int] = lambda _: RELEASE, first: int = HEADER) -> Story:
    """A reply whose second part leaves ``after`` the ACK, which comes ``wait`` after the first part; ns."""

    def exchange(c: Conversation, number: int) -> None:
        two_part_reply(c, first=first, ack=wait + number % 5 * MS, body=after(number))

    return exchange


def behind_small(tail_after: int | None = None) -> Story:
    """A small header, two full segments 46 ms later, and a tail with the header's late ACK, or ``tail_after``, ns.

    That ACK was under way when the full segments arrived, so it does not acknowledge them.
    """

    def exchange(c: Conversation, number: int) -> None:
        c.client_sends(REQUEST)
        header = c.server_sends(HEADER, after_ns=200 * US)
        written = header.ts_ns + 46 * MS
        for place in range(2):
            c.server_sends(c.full_segment, at_ns=written + place * US, flags="A")
        ack = c.client_acks(at_ns=header.ts_ns + c.one_way_ns + LATE + number % 5 * MS)
        c.server_sends(81, at_ns=ack.ts_ns + c.one_way_ns + RELEASE if tail_after is None else written + tail_after)
        c.client_acks(after_ns=10 * US)
        c.client_acks(after_ns=10 * US)

    return exchange


def of_a_pool(thinks_ms: int, rtt_ms: int, *, timestamps: bool = True) -> list[Segment]:
    """Two connections of a pool that was there before the capture: what the server sees of a two-write reply."""
    talks = []
    for port in (1, 2):
        c = Conversation(client=("10.0.0.1", port), rtt_ns=rtt_ms * MS, t0_ns=1000 * SECOND, timestamps=timestamps)
        for number in range(20):
            c.client_sends(REQUEST, after_ns=thinks_ms * MS)
            c.server_sends(HEADER, after_ns=200 * US)
            c.client_acks(after_ns=(LATE if rtt_ms < 40 else 10 * US) + number % 3 * MS)
            c.server_sends(BODY, after_ns=RELEASE)
            if thinks_ms > 40:
                c.client_acks(after_ns=LATE if rtt_ms < 40 else 10 * US)
        talks.append(c.seen_at("server"))
    return merge(*talks)


def acks_on_data_and_alone(alone_every: int) -> Conversation:
    """The client's data leaves with the server's data 12 ms later, or with its pure ACK, 40 ms later."""
    c = Conversation(rtt_ns=10 * MS)
    c.handshake(after_ns=20 * US)
    for number in range(60):
        c.client_sends(60, after_ns=(25 * MS, 21 * US, 100 * US, 22 * US, 20 * US)[number % 5])
        if number % alone_every == 0:
            c.server_acks(after_ns=40 * MS)
            c.client_sends(60, after_ns=21 * US)
        c.server_sends(200, after_ns=12 * MS)
    return c


def client_held(c: Conversation, number: int) -> None:
    """Write-write-read: the second half of the request waits for the server's late ACK."""
    c.client_sends(3)
    c.server_acks(after_ns=LATE + (number % 5) * MS)
    c.client_sends(3, after_ns=RELEASE)
    c.server_sends(BODY, after_ns=100 * US)
    c.client_acks(after_ns=10 * US)


def message_queue(c: Conversation, number: int) -> None:
    """The SDK's next message waits behind its own confirm of the last one."""
    c.client_sends(12, after_ns=50 * US)
    c.server_acks(after_ns=LATE + (number % 5) * MS)
    c.client_sends(30, after_ns=RELEASE)
    c.server_sends(19, after_ns=100 * US)


def three_writes(c: Conversation, number: int) -> None:
    """Header, half of the body, the other half: two holds in one exchange."""
    c.client_sends(REQUEST)
    c.server_sends(HEADER, after_ns=200 * US)
    c.client_acks(after_ns=LATE)
    c.server_sends(300, after_ns=RELEASE)
    c.client_acks(after_ns=LATE + (number % 5) * MS)
    c.server_sends(315, after_ns=RELEASE)
    c.client_acks(after_ns=10 * US)


def nodelay(c: Conversation, _: int) -> None:
    """The fix: the body follows its header at once."""
    c.client_sends(REQUEST)
    c.server_sends(HEADER, after_ns=200 * US)
    c.server_sends(BODY, after_ns=20 * US)
    c.client_acks(after_ns=10 * US)


def thinks_then_one_write(c: Conversation, _: int) -> None:
    """The server takes 45 ms; meanwhile the client's request is acknowledged late, and nothing is held."""
    c.client_sends(REQUEST)
    c.server_acks(after_ns=LATE)
    c.server_sends(BODY, after_ns=5 * MS)
    c.client_acks(after_ns=10 * US)


def pauses_with_nodelay(c: Conversation, number: int) -> None:
    """The server pauses 30-60 ms between its two writes: some pauses end right behind the late ACK by chance."""
    pause = 30 * MS + number * 1_500 * US  # 30.0, 31.5 … ms
    c.client_sends(REQUEST)
    header = c.server_sends(HEADER, after_ns=200 * US)
    if pause < LATE:
        c.server_sends(BODY, at_ns=header.ts_ns + pause)
    else:
        c.client_acks(after_ns=LATE)
        c.server_sends(BODY, at_ns=header.ts_ns + max(pause, LATE + RELEASE))
    c.client_acks(after_ns=10 * US)


def pauses_a_little_longer_than_the_timer(c: Conversation, number: int) -> None:
    """The server always pauses 45 ms: its data always follows the late ACK, 1 to 5 ms later, timed by itself."""
    two_part_reply(c, ack=LATE + (number % 5) * 700 * US, pause=45 * MS)


def full_segment_first(c: Conversation, _: int) -> None:
    """One write of 1.5 MSS: Nagle on Linux never holds a small segment behind a full one."""
    c.client_sends(REQUEST)
    c.server_writes(c.full_segment * 3 // 2, after_ns=200 * US)
    c.client_acks(after_ns=10 * US)


def tail_lost(c: Conversation, _: int) -> None:
    """The reply's first segment is lost and sent again after an RTO; the ACK of that is not a delayed one."""
    c.client_sends(REQUEST)
    c.server_sends(HEADER, after_ns=200 * US, lost=True)
    c.server_retransmits(after_ns=45 * MS)
    c.client_acks(after_ns=10 * US)
    c.server_sends(BODY, after_ns=RELEASE)
    c.client_acks(after_ns=10 * US)


def zero_window(c: Conversation, _: int) -> None:
    """The client's window was closed; what follows is flow control, not Nagle."""
    c.client_sends(REQUEST)
    c.server_sends(HEADER, after_ns=200 * US)
    c.client_acks(after_ns=LATE, window=0)
    c.server_sends(BODY, after_ns=200 * US)
    c.client_acks(after_ns=10 * US)


STALLED = (server_held, client_held, message_queue, three_writes)
CLEAN = (
    prompt, nodelay, thinks_then_one_write, pauses_with_nodelay, pauses_a_little_longer_than_the_timer,
    full_segment_first, tail_lost, zero_window,
)  # fmt: skip


def held_by_both() -> list[Segment]:
    """Ten stalls: five that the server held, and five that a client held, on two connections."""
    other = talk(client_held, 6, client=("fd00::1", 5), server=("fd00::2", 80))
    return merge(talk(server_held, 6).segments, other.segments)


def of_every_kind(exchanges: int, times: int = 1) -> list[Conversation]:
    """Conversations side by side, some of each story, between hosts of their own, on paths of 0, 10 and 20 ms."""
    return [
        talk(
            story,
            exchanges,
            client=(f"10.0.{i}.1", 40_000),
            server=(f"10.1.{i}.1", 80),
            t0_ns=10**18 + i * 777 * US,
            rtt_ns=i % 3 * 10 * MS,
        )
        for i, story in enumerate((STALLED + CLEAN) * times, 1)
    ]


def one_after_the_other() -> list[Conversation]:
    """A hundred and more connections of one client, of every story, three exchanges each: one begins every 3 ms."""
    return [
        talk(story, 3, client=("10.0.0.1", 20_000 + i), t0_ns=10**18 + i * 3 * MS)
        for i, story in enumerate((STALLED + CLEAN) * 15)
    ]
