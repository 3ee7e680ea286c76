"""What the analyzer says of every kind of conversation, from wherever it was captured."""

import re
from dataclasses import replace

import pytest

from nagle_lab.diagnosis.analysis import analyze
from nagle_lab.diagnosis.proof.outcomes import Obstacle
from nagle_lab.diagnosis.result.verdict import Recording, Undecided, Verdict, VerdictInput, decide
from nagle_lab.diagnosis.result.which_connections import is_one_way
from nagle_lab.reports.words.next_steps import idle_gaps
from support.stories import (
    BODY,
    CLEAN,
    HEADER,
    LATE,
    RELEASE,
    REQUEST,
    STALLED,
    client_held,
    message_queue,
    nodelay,
    prompt,
    server_held,
    talk,
    three_writes,
    two_part_reply,
)
from support.synthetic import MS, SECOND, US, Conversation, Segment, merge, pcap_bytes


@pytest.mark.parametrize("story", STALLED, ids=lambda s: s.__name__)
def test_every_kind_of_stall_is_proved(diagnose, story):
    result = diagnose(talk(story).segments)
    assert result.verdict == "STALL"
    assert result.summary.stalled_exchanges == 19  # all but the connection's first
    held = "server" if story in (server_held, three_writes) else "client"
    assert {(s.held_by.role, s.delayed_by.role) for s in result.stalls} == {
        (held, "client" if held == "server" else "server")
    }
    assert result.connections[0].first_stalled_exchange == 2


@pytest.mark.parametrize("story", CLEAN, ids=lambda s: s.__name__)
def test_no_look_alike_is_taken_for_a_stall(diagnose, story):
    result = diagnose(talk(story).segments)
    assert (result.verdict, len(result.stalls)) == ("CLEAN", 0)
    assert result.summary.exchanges == 20


@pytest.mark.parametrize("position", ["client", "middle", "server"])
@pytest.mark.parametrize("story", STALLED + CLEAN, ids=lambda s: s.__name__)
def test_the_capture_position_does_not_matter(diagnose, story, position):
    """On a path of 20 ms every triple is a round trip wider, and at the receiver so is the release."""
    near, far = (
        diagnose(talk(story).segments),
        diagnose(talk(story, rtt_ns=20 * MS).seen_at(position)),
    )
    assert far.verdict == near.verdict
    assert far.summary.stalled_exchanges == near.summary.stalled_exchanges


def test_the_proof_names_the_frames_and_the_sizes(diagnose):
    c = Conversation()
    c.handshake()  # frames 1-3
    c.client_sends(84)  # 4
    c.server_sends(238)  # 5: trigger
    c.client_acks(after_ns=41 * MS)  # 6: late ACK
    c.server_sends(615, after_ns=12 * US)  # 7: release
    result = diagnose(c.segments)
    (stall,) = result.stalls
    assert (stall.trigger_frame, stall.ack_frame, stall.release_frame) == (5, 6, 7)
    assert (stall.trigger_bytes, stall.released_bytes) == (238, 615)
    assert (stall.wait_ms, stall.release_us) == (41.0, 12.0)
    assert (str(stall.held_by), stall.held_by.role) == ("10.0.0.2:80", "server")
    assert (str(stall.delayed_by), stall.delayed_by.role) == (
        "10.0.0.1:40000",
        "client",
    )


def test_numbers_that_wrap_change_nothing(diagnose):
    near_the_end = 2**32 - 3_000
    plain = diagnose(talk(server_held).segments)
    wrapped = diagnose(talk(server_held, client_isn=near_the_end, server_isn=near_the_end).segments)
    assert list(wrapped.stalls) == list(plain.stalls)


def test_connections_do_not_disturb_each_other(diagnose):
    one = talk(server_held).segments
    many = merge(
        *(talk(server_held, client=("10.0.0.1", 40_000 + i), t0_ns=10**18 + i * 37 * US).segments for i in range(30))
    )
    result = diagnose(many)
    assert result.summary.connections == 30
    assert result.summary.stalls == 30 * diagnose(one).summary.stalls
    assert {c.stalled_exchanges for c in result.connections} == {19}


def in_step(pause: int, slow: int, *, early: int = 15 * US) -> list[Segment]:
    """100 connections in step at their client, as ab makes them: what arrives together stands in a queue.

    The body follows ``pause`` ns behind the late ACK, or ``early`` behind the first, which is not late; ``slow`` is
    how many times as long as usual the machine takes for each packet.
    """

    def exchange(place: int, c: Conversation, number: int) -> None:
        c.client_sends(84)
        header = c.server_sends(238, after_ns=slow * 150 * US)
        if number:
            acked = header.ts_ns + 40 * MS + number % 5 * MS
            c.client_acks(at_ns=acked + place * slow * US)
            c.server_sends(615, at_ns=acked + pause + (100 + 6 * place) * slow * US)
        else:
            c.client_acks(after_ns=slow * 10 * US)
            c.server_sends(615, after_ns=slow * early)
        c.client_acks(after_ns=slow * 10 * US)

    seen = []
    for place in range(100):
        c = Conversation(client=("10.0.0.1", 40_000 + place), t0_ns=SECOND + place)
        c.handshake(after_ns=slow * 20 * US)
        for number in range(10):
            exchange(place, c, number)
            c.pause(2 * MS)
        seen.append(c.segments)
    return merge(*seen)


@pytest.mark.parametrize("slow", [1, 2, 4, 6])
def test_releases_that_queue_on_a_slow_machine_are_releases(diagnose, slow):
    result = diagnose(in_step(0, slow))
    assert (result.verdict, result.summary.held_by) == ("STALL", "server")
    assert result.summary.stalled_exchanges >= 0.9 * 900


@pytest.mark.parametrize("slow", [1, 2, 4, 6])
@pytest.mark.parametrize("early", [15 * US, 4 * MS, 44 * MS], ids=lambda ns: f"{ns}-ns-early")
def test_pauses_that_queue_are_not(diagnose, slow, early):
    assert diagnose(in_step(slow * 4 * MS, slow, early=early)).summary.stalls == 0


def test_a_reused_port_is_another_connection(diagnose):
    first = talk(server_held, client_isn=1000, server_isn=5000)
    second = talk(
        server_held,
        client_isn=90_000_000,
        server_isn=70_000_000,
        t0_ns=first.segments[-1].ts_ns + 1000,
    )
    result = diagnose(first.segments + second.segments)
    assert [c.stalled_exchanges for c in result.connections] == [19, 19]


def test_the_share_of_a_few_stalls_among_many_exchanges(diagnose):
    stalled = talk(server_held, exchanges=3, client=("10.0.0.9", 999))
    result = diagnose(merge(talk(nodelay, exchanges=100).segments, stalled.segments))
    assert result.verdict == "STALL"
    assert (result.summary.stalled_exchanges, result.summary.exchanges) == (2, 103)
    assert result.reason.startswith("2 of 103 exchanges")


def test_too_few_exchanges_are_not_called_clean(diagnose):
    result = diagnose(talk(nodelay, exchanges=9).segments)
    assert result.verdict == "INCONCLUSIVE"
    assert "9 answered exchanges" in result.reason
    assert diagnose(talk(nodelay, exchanges=10).segments).verdict == "CLEAN"


@pytest.mark.parametrize(("messages", "verdict"), [(51, "CLEAN"), (50, "INCONCLUSIVE")])
def test_a_stream_without_answers_is_clean_where_many_acks_held_nothing(diagnose, messages, verdict):
    c = Conversation()
    c.handshake()
    for _ in range(messages):
        c.server_sends(60, after_ns=7 * MS)
        c.client_acks(after_ns=30 * US)
    assert diagnose(c.segments).verdict == verdict


def ahead_of_acks(messages: int) -> list[Segment]:
    """Messages of a server with TCP_NODELAY, 7 ms apart, on a path of 40 ms."""
    c = Conversation(rtt_ns=40 * MS)
    c.handshake()
    for _ in range(messages):
        c.server_sends(60, after_ns=7 * MS)
        c.client_acks(after_ns=30 * US)
    return c.seen_at("server")


@pytest.mark.parametrize(("messages", "verdict"), [(60, "CLEAN"), (40, "INCONCLUSIVE")])
def test_a_stream_that_waits_for_no_ack_is_clean(diagnose, messages, verdict):
    """Captured at its sender: hardly anything follows an ACK, but small data goes ahead of many."""
    assert diagnose(ahead_of_acks(messages)).verdict == verdict


def test_one_direction_of_a_stream_does_not_count(diagnose):
    """It has no ACKs, so all of its data seems to go ahead of them; the other connection has few exchanges."""
    c = Conversation()
    c.handshake()
    stream = [c.client_sends(60, after_ns=100 * US) for _ in range(200)]
    other = talk(nodelay, exchanges=2, client=("10.0.0.9", 999)).segments
    result = diagnose(merge(stream, other))
    assert max(one.chances for one in result.connections) > 100
    assert result.verdict == "INCONCLUSIVE"


def test_one_direction_of_a_stream_does_not_count_for_its_server(diagnose):
    """Nor does it make two open candidates few, beside a busy server that makes them few in all."""

    def exchange(c: Conversation, number: int) -> None:
        is_open = number > 6
        two_part_reply(c, ack=LATE if is_open else 10 * US, body=130 * US if is_open else RELEASE)

    c = Conversation()
    c.handshake()
    stream = [c.client_sends(60, after_ns=100 * US) for _ in range(600)]
    mine = talk(exchange, 9, client=("10.0.0.9", 999))
    busy = talk(prompt, 300, client=("10.0.0.9", 998), server=("10.0.0.3", 82))
    result = diagnose(merge(stream, mine.segments, busy.segments))
    assert [one.is_one_way and one.chances > 500 for one in result.connections].count(True) == 1
    assert sum(result.quality.unresolved.values()) == 2
    assert result.verdict == "INCONCLUSIVE" and result.reason.startswith("10.0.0.2:80: 9 ans")


@pytest.mark.parametrize(("fate", "share"), [("asked for", 0), ("overtaken", 0), ("missing", 0.2)])
def test_what_the_path_lost_or_reordered_is_not_missing_in_the_capture(diagnose, fate, share):
    """At the client every fifth message arrives late, sent again or overtaken; or the capture lost it."""
    c = Conversation()
    c.handshake()
    seen = c.segments[:]
    for number in range(100):
        message = c.server_sends(60, after_ns=7 * MS)
        if number % 5:
            seen += [message, c.client_acks()]
            continue
        behind = c.server_sends(60, after_ns=MS)
        both = c.client_acks()
        again = replace(message, ts_ns=both.ts_ns + 10 * US)
        asks = replace(both, ack=message.seq)
        last = replace(both, ts_ns=both.ts_ns + 20 * US)
        overtaken = replace(message, ts_ns=behind.ts_ns + 1)
        seen += {
            "asked for": [behind, asks, again, last],
            "overtaken": [behind, overtaken, both],
            "missing": [behind, both],
        }[fate]
    result = diagnose(seen)
    assert result.quality.astray_share == pytest.approx(share, abs=0.04)
    assert result.verdict == ("INCONCLUSIVE" if fate == "missing" else "CLEAN")


def messages_of(port: int, count: int, late: tuple[int, ...]) -> list[Segment]:
    """A stream without answers. What is ``late`` follows a late ACK as a program or a busy kernel sends."""
    c = Conversation(server=("10.0.0.2", port))
    c.handshake()
    for number in range(count):
        c.server_sends(60, after_ns=90 * US if number in late else 7 * MS)
        c.client_acks(after_ns=15 * MS if number + 1 in late else 30 * US)
    return c.segments


@pytest.mark.parametrize(("messages", "verdict"), [(300, "CLEAN"), (150, "INCONCLUSIVE")])
def test_a_stream_may_leave_open_as_little_as_exchanges_may(diagnose, messages, verdict):
    """One of 25 exchanges, each as much as ten messages."""
    result = diagnose(messages_of(80, messages, (90,)))
    assert (result.verdict, sum(result.quality.unresolved.values())) == (verdict, 1)


@pytest.mark.parametrize(("messages", "verdict"), [(700, "CLEAN"), (150, "INCONCLUSIVE")])
def test_a_stream_hides_nothing_of_another(diagnose, messages, verdict):
    result = diagnose(merge(messages_of(80, messages, (90, 130)), messages_of(81, 3_000, ())))
    assert (result.verdict, sum(result.quality.unresolved.values())) == (verdict, 2)
    assert result.reason.startswith("10.0.0.2:80: ") == (verdict == "INCONCLUSIVE")


def beside_each_other(ahead: list[int], after_ns: int = 20 * US) -> list[Segment]:
    """Two services on loopback, both held behind late ACKs in the same ticks; one is ``ahead`` ns of the other.

    The other one sends so long after its ACK.
    """
    seen = []
    for port in (7200, 7100):
        c = Conversation(client=("127.0.0.1", 30_000 + port), server=("127.0.0.1", port), t0_ns=SECOND + port)
        c.handshake()
        for number, ns in enumerate(ahead):
            begin = SECOND + (number + 1) * 100 * MS
            c.client_sends(84, at_ns=begin + port)
            c.server_sends(238, at_ns=begin + port + 200 * US)
            late = begin + 44 * MS - (ns if port == 7200 else 0)
            c.client_acks(at_ns=late)
            c.server_sends(615, at_ns=late + (20 * US if port == 7200 else after_ns))
            c.client_acks(after_ns=10 * US)
        seen.append(c.segments)
    return merge(*seen)


def test_a_stall_that_passes_on_what_another_one_brought_is_none(diagnose):
    result = diagnose(beside_each_other([60 * US] * 20))
    assert (result.verdict, result.summary.stalls) == ("STALL", 20)
    assert {stall.held_by.port for stall in result.stalls} == {7200}
    assert sum(relay.times for relay in result.summary.relays) == 20


def test_what_might_be_a_program_passes_on_what_a_stall_brought_just_before(diagnose):
    """On loopback, where only the order tells; without that it stays unresolved."""
    result = diagnose(beside_each_other([0] * 20, after_ns=95 * US))
    assert (result.verdict, result.summary.stalls, result.quality.unresolved) == ("STALL", 20, {})
    assert sum(relay.times for relay in result.summary.relays) == 20
    apart = diagnose(beside_each_other([-400 * US, 400 * US] * 10, after_ns=95 * US))
    assert (apart.summary.stalls, apart.quality.unresolved) == (20, {"like_a_program": 20})


def test_services_that_are_in_step_pass_nothing_on(diagnose):
    assert diagnose(beside_each_other([60 * US, -60 * US] * 10)).summary.stalls == 40
    assert diagnose(beside_each_other([8 * US] * 20)).summary.stalls == 40  # sooner than a program wakes


def test_a_capture_without_its_handshake_is_diagnosed(diagnose):
    segments = talk(message_queue).segments[3:]
    result = diagnose(segments)
    assert result.verdict == "STALL"
    assert result.summary.held_by == "client"  # who sent data first
    assert result.quality.handshakes == 0


@pytest.mark.parametrize("port", [40_000, 10_854])
def test_without_a_handshake_the_client_has_the_port_that_its_system_chose(diagnose, port):
    """Linux gives 32768 and more, FreeBSD 10000 and more; here the server's answer comes first."""
    result = diagnose(talk(server_held, client=("10.0.0.1", port), server=("10.0.0.2", 7000)).segments[4:])
    assert (result.verdict, result.summary.held_by) == ("STALL", "server")


# The published capture of a message-queue SDK: time, who, bytes, ack. Frame 3 triggers, 4 is late, 5 was held.
LISTING = (
    (49_736_897, "sdk", 30), (49_737_763, "broker", 19), (49_744_738, "sdk", 12), (49_784_810, "broker", 0),
    (49_785_438, "sdk", 30), (49_785_450, "broker", 0), (49_786_147, "broker", 19), (49_790_470, "sdk", 30),
)  # fmt: skip


def test_the_published_listing(diagnose):
    c = Conversation(
        ("100.84.52.90", 58237),
        ("100.84.73.45", 9090),
        timestamps=False,
        client_isn=71,
        server_isn=20,
    )
    c.server.can_ack, c.client.can_ack = 71, 20
    for us, who, length in LISTING:
        send = c.client_sends if who == "sdk" else c.server_sends
        send(length, flags="PA" if length else "A", at_ns=us * US)
    result = diagnose(c.segments, nanosecond=False)
    assert result.verdict == "STALL"
    (stall,) = result.stalls
    assert (stall.trigger_frame, stall.ack_frame, stall.release_frame) == (3, 4, 5)
    assert stall.wait_ms == 40.072
    assert str(stall.held_by) == "100.84.52.90:58237"


CAUSES = {
    "server_held": {"nagle_delayed_ack": 19},
    "client_held": {"nagle_delayed_ack": 19},
    "three_writes": {"nagle_delayed_ack": 38},
    "nodelay": {},
    "thinks_then_one_write": {"delayed_ack": 19},
    "pauses_with_nodelay": {"delayed_ack": 13, "server_think": 6},
    "full_segment_first": {},
    "tail_lost": {"retransmission": 19},
}


@pytest.mark.parametrize("story", [s for s in STALLED + CLEAN if s.__name__ in CAUSES], ids=lambda s: s.__name__)
def test_every_idle_gap_has_its_cause(diagnose, story):
    """On a path without delay; where a pause follows a late ACK, each is an idle gap of its own."""
    idle_gaps = diagnose(talk(story).segments).idle_gaps
    assert {cause: idle_gap.count for cause, idle_gap in idle_gaps.items()} == CAUSES[story.__name__]


@pytest.mark.parametrize(("think_ms", "says"), [(300, True), (25, False)])
def test_what_takes_longer_than_the_stalls_is_said_beside_them(diagnose, think_ms, says):
    def thinks_and_stalls(c: Conversation, number: int) -> None:
        two_part_reply(c, header=think_ms * MS, ack=LATE + (number % 5) * MS)

    c = talk(thinks_and_stalls)
    result = diagnose(c.segments)
    assert result.verdict == "STALL"
    of_two_servers = diagnose(merge(c.segments, talk(nodelay, server=("10.0.0.3", 80)).segments))
    assert of_two_servers.reason.endswith("(median)")
    said = "; but another cause took more time (5.70 s, beside 806 ms of the stalls): server processing"
    assert result.reason.endswith(said) is says
    step = dict(idle_gaps(result)).get("next", "")
    assert step.startswith("the remedy below does not remove the larger delay") is says
    assert ("profile it" in step) is says


@pytest.mark.parametrize(
    ("waits", "says"),
    [(True, "cannot be told of all of them"), (False, "delayed ACK that nothing waited for")],
)
def test_late_acks_of_which_it_cannot_be_told_are_no_pauses_beside_stalls(diagnose, waits, says):
    """The client is seen to hold its request; of the reply's late ACKs, nothing was held, or that cannot be told."""

    def exchange(c: Conversation, number: int) -> None:
        client_held(c, number)
        c.server_sends(HEADER, after_ns=2 * MS)
        c.client_acks(after_ns=LATE + 5 * MS + number % 5 * MS)
        c.server_sends(BODY, after_ns=(130 + number % 7 * 10) * US if waits else 9 * MS)
        c.client_acks(after_ns=10 * US)

    result = diagnose(talk(exchange).segments)
    assert (result.verdict, result.summary.stalls) == ("STALL", 19)
    assert says in result.reason
    rows = dict(idle_gaps(result))
    assert ("whether" in result.reason) == waits == ("perhaps with data waiting" in str(rows))


@pytest.mark.parametrize(
    ("position", "ms_later", "says_perhaps"),
    [
        ("client", (4, 0, 0, 0), True),
        ("server", (4, 0, 0, 0), False),
        ("client", (20, 20, 0), False),  # mostly: then the program is late
        ("client", (4, 0, 0, 0, *[None] * 16), False),  # nothing waited for most late ACKs
    ],
)
def test_what_the_path_may_have_delayed_is_not_said_to_have_waited_for_nothing(
    diagnose, position, ms_later, says_perhaps
):
    """Some releases come 4 ms later: at their sender that is a pause, elsewhere it may be the path."""

    def exchange(c: Conversation, number: int) -> None:
        later = ms_later[number % len(ms_later)]
        c.client_sends(100)
        c.server_sends(HEADER, after_ns=50 * US)
        c.client_acks(after_ns=LATE)
        if later is not None:
            c.server_sends(BODY, after_ns=15 * US + later * MS)
            c.client_acks(after_ns=10 * US)

    result = diagnose(talk(exchange, exchanges=80, rtt_ns=7 * MS).seen_at(position))
    assert result.verdict == "STALL" and result.quality.rejected["later_release"] >= 3
    assert ("perhaps with data waiting" in str(idle_gaps(result))) == says_perhaps


def test_how_long_a_client_pauses_between_exchanges_is_not_said_beside_stalls(diagnose):
    def rare(c: Conversation, number: int) -> None:
        c.pause(2 * SECOND)
        server_held(c, number)

    result = diagnose(talk(rare).segments)
    assert result.idle_gaps["client_think"].total_ms > result.idle_gaps["nagle_delayed_ack"].total_ms
    assert result.reason.endswith(" ms later (median)")


@pytest.mark.parametrize(("think_ms", "ack_ms"), [(450, 45), (700, 45), (3_000, 45), (3_000, 800)])
def test_who_thinks_for_long_thinks(diagnose, think_ms, ack_ms):
    """However long an answer takes it is no round trip; nor is an ACK later than any timer sends it."""
    c = Conversation()
    c.handshake()
    for _ in range(6):
        c.client_sends(100)
        c.server_acks(after_ns=ack_ms * MS)
        c.server_sends(200, after_ns=think_ms * MS)
        c.client_acks(after_ns=10 * US)
        c.pause(MS)
        c.client_sends(100)
        c.server_sends(200, after_ns=think_ms * MS)
        c.client_acks(after_ns=10 * US)
    counts = {cause: idle_gap.count for cause, idle_gap in diagnose(c.segments).idle_gaps.items()}
    assert counts == {"delayed_ack" if ack_ms < 500 else "unknown": 6, "server_think": 12}


def test_a_hold_of_one_round_trip_is_not_a_delayed_ack(diagnose):
    """Though that takes as long as the timer of Linux."""
    result = diagnose(talk(prompt, rtt_ns=40 * MS).seen_at("server"))
    assert (result.verdict, result.summary.delayed_acks) == ("CLEAN", 0)
    assert result.idle_gaps["nagle_round_trip"].count == 20
    assert "nagle_delayed_ack" not in result.idle_gaps


def test_an_ack_of_a_bare_fin_is_counted_apart(diagnose):
    """Linux may acknowledge a bare FIN from its timer, set to zero: with the next jiffy, at once or 4 ms later."""
    talks = [talk(nodelay).segments]
    for port, after in ((5000, 2 * MS), (5001, 10 * US)):
        c = Conversation(("10.0.0.1", port))
        c.handshake()
        c.client_sends(0, flags="FA")
        c.server_acks(after_ns=after)
        talks.append(c.segments)
    summary = diagnose(merge(*talks)).summary
    assert summary.fin_acks_by == {"client": 1, "server": 2}
    assert summary.delayed_acks == 0


@pytest.mark.parametrize(("late_ms", "before_timer"), [(19, 0), (25, 19), (29, 19), (31, 0), (40, 0)])
@pytest.mark.parametrize("rtt_ms", [0, 20])
def test_a_late_ack_too_soon_for_a_timer_is_counted_apart(diagnose, late_ms, before_timer, rtt_ms):
    """A program that reads late makes the kernel acknowledge then: no timer of 40 ms fires after 25."""

    def reads_late(c: Conversation, _: int) -> None:
        c.client_sends(100)
        c.server_acks(after_ns=late_ms * MS)
        c.server_sends(600, after_ns=50 * MS)
        c.client_acks(after_ns=10 * US)

    connection = diagnose(talk(reads_late, rtt_ns=rtt_ms * MS).seen_at("client")).connections[0]
    assert connection.sent["server"].acks_before_timer == before_timer
    assert connection.sent["server"].delayed_acks == (0 if late_ms < 20 else 19)
    assert connection.sent["client"].acks_before_timer == 0


def test_a_greeting_can_stall_before_any_request(diagnose):
    """The server speaks first, in two writes; or the requests are missing from the capture."""
    c = Conversation()
    c.handshake()
    c.server_sends(238)
    c.client_acks(after_ns=41 * MS)
    c.server_sends(615, after_ns=15 * US)
    c.client_acks(after_ns=41 * MS)
    c.client_sends(84)
    c.server_sends(100)
    result = diagnose(c.segments)
    assert result.verdict == "STALL"
    (stall,) = result.stalls
    assert (stall.connection, stall.exchange, stall.held_by.role) == (0, 1, "server")
    assert result.summary.exchanges == 2  # the stalled greeting, and the answered request


def test_a_syn_cut_by_snaplen_hides_the_scale_not_the_stall(diagnose):
    """With 66 bytes of a packet the SYN's window scale is cut off; a window of 502 is not too small for 615 bytes."""
    assert diagnose(talk(server_held).segments, snaplen=66).summary.stalled_exchanges == 19
    assert diagnose(talk(server_held).segments[3:]).summary.stalled_exchanges == 19  # no SYN at all


def test_where_all_headers_are_cut_more_bytes_are_asked_for(diagnose):
    result = diagnose(talk(server_held, client=("fd00::1", 40_000), server=("fd00::2", 80)).segments, snaplen=64)
    assert result.verdict == "INVALID"
    assert f"too few bytes were kept of {result.source.packets} packets; capture with -s 128" in result.reason


def test_what_the_window_held_nagle_did_not(diagnose):
    """The receiver's window had no room for both segments until its ACK, which happened to come late."""

    def held_by_the_window(c: Conversation, number: int) -> None:
        c.client_sends(84, window=3)  # scaled by 128: 384 bytes
        c.server_sends(238, after_ns=200 * US)
        c.client_acks(after_ns=41 * MS + number % 5 * MS, window=502)
        c.server_sends(615, after_ns=15 * US)
        c.client_acks(after_ns=10 * US)

    result = diagnose(talk(held_by_the_window).segments)
    assert (result.verdict, result.summary.stalls) == ("CLEAN", 0)


def test_a_clock_that_was_set_back_proves_nothing():
    evidence = VerdictInput(tcp_packets=100, exchanges=50, stalls=3, set_back=True)
    assert decide(evidence) == (Verdict.INVALID, "the clock was set back", None)


@pytest.mark.parametrize(
    ("swapped", "exchanges", "verdict"), [(2, 20, "CLEAN"), (3, 20, "INCONCLUSIVE"), (3, 75, "CLEAN")]
)
def test_data_captured_after_its_ack_hinders_clean_from_three_and_one_in_25_on(swapped, exchanges, verdict):
    evidence = VerdictInput(tcp_packets=300, exchanges=exchanges, stalls=0, swapped_without_timestamps=swapped)
    assert decide(evidence)[0] == verdict


def test_a_clock_set_back_gives_no_negative_times(diagnose):
    segments = talk(nodelay).segments
    late = [replace(s, ts_ns=s.ts_ns - 10 * SECOND) if i > 40 else s for i, s in enumerate(segments)]
    summary = diagnose(late).summary
    assert summary.request_to_response_ms is not None and summary.exchange_ms is not None
    assert summary.request_to_response_ms.p50 >= 0
    assert summary.exchange_ms.p50 >= 0


@pytest.mark.parametrize("story", [server_held, nodelay], ids=lambda s: s.__name__)
def test_packets_captured_on_two_interfaces_count_once(diagnose, tmp_path, story):
    """Captured on "any", every packet of a bridge is there twice; a copy has the same IPv4 identification."""
    segments = talk(story).segments
    path = tmp_path / "twice.pcap"
    content = bytearray(
        pcap_bytes(sorted([*segments, *(replace(s, ts_ns=s.ts_ns + 2_000) for s in segments)], key=at))
    )
    offset, number = 24, 0
    while offset < len(content):  # the builder writes identification 0, which says nothing
        number += 1
        content[offset + 16 + 18 : offset + 16 + 20] = (1 + (number - 1) // 2).to_bytes(2, "big")
        offset += 16 + int.from_bytes(content[offset + 8 : offset + 12], "little")
    path.write_bytes(content)
    twice, once = analyze(path), diagnose(segments)
    assert twice.quality.not_decoded == {"TCP seen again on another interface": len(segments)}
    assert twice.summary.stalled_exchanges == once.summary.stalled_exchanges
    assert twice.summary.segments_by == once.summary.segments_by


def at(segment):
    return segment.ts_ns


def test_full_segments_of_an_unknown_mss_are_not_taken_for_nodelay(diagnose):
    """Without the handshake 1300 bytes may be a full segment; two in a row do not show that Nagle is off."""

    def upload_then_stall(c: Conversation, number: int) -> None:
        c.client_sends(84)
        for _ in range(3):
            c.server_sends(1300, after_ns=20 * US, flags="A")
        c.client_acks(after_ns=10 * US)
        server_held(c, number)

    result = diagnose(talk(upload_then_stall).segments[3:])
    assert result.summary.stalls == 19


def half_window_then_held(c: Conversation, number: int) -> None:
    """Loopback: a segment of half the window counts as full, so a small one follows it at once; then one is held."""
    c.client_sends(60)
    c.server_sends(64_240 // 2, after_ns=50 * US)
    c.server_sends(12_000, after_ns=5 * US)
    server_held(c, number)


def test_half_the_window_is_a_full_segment(diagnose):
    """Linux never waits for more than half of the largest window offered (tcp_bound_to_half_wnd)."""
    result = diagnose(talk(half_window_then_held, mss=65_495).segments)
    assert (result.verdict, result.quality.rejected["nagle_off"]) == ("STALL", 0)
    assert result.summary.stalled_exchanges == 19


def test_half_of_a_window_that_grows_is_not_full_for_ever(diagnose):
    """Linux's receive window grows: what was cut to half of it before is less than a full segment then."""

    def upload(c: Conversation, number: int) -> None:
        grown = number >= 4
        window = 1023 if grown else 440  # in units of 128 bytes
        c.client_sends(60, window=window)
        c.server_sends(6_000, after_ns=50 * US)
        c.client_acks(after_ns=43 * MS if grown else 5 * US, window=window)
        if grown:
            c.server_sends(28_180, after_ns=RELEASE)
        else:
            c.server_sends(440 * 128 // 2, after_ns=5 * US, flags="A")
            c.server_sends(20, after_ns=5 * US)
        c.client_acks(after_ns=10 * US, window=window)

    assert diagnose(talk(upload, mss=65_495).segments).summary.stalled_exchanges == 16


@pytest.mark.parametrize("story", STALLED, ids=lambda s: s.__name__)
@pytest.mark.parametrize("direction", ["from the held end", "to the held end"])
def test_one_direction_alone_proves_nothing_and_is_not_called_clean(diagnose, story, direction):
    """Without the acknowledgements nobody can say what was waited for: too little, and never CLEAN."""
    both = talk(story)
    held = diagnose(both.segments).stalls[0].held_by
    ours = [s for s in both.segments if (s.sport == held.port) == (direction == "from the held end")]
    result = diagnose(ours)
    assert (result.verdict, len(result.stalls), result.summary.exchanges) == ("INCONCLUSIVE", 0, 0)


def test_a_loss_probe_is_not_taken_for_nagle_off(diagnose):
    """The client's network goes away: the server's TCP sends what it held after 228 ms, unacknowledged as it is."""
    c = talk(server_held)
    segments = [segment for segment in c.segments if not set(segment.flags) & set("FR")]
    cut = max(i for i, segment in enumerate(segments) if segment.length == 615)
    release = segments[cut]
    gone = [
        *segments[: cut - 1],
        replace(release, ack=segments[cut - 2].ack, ts_ns=segments[cut - 2].ts_ns + 228 * MS),
    ]
    assert (gone[-2].length, gone[-2].src) == (238, release.src)
    result = diagnose(gone)
    assert (result.verdict, result.summary.stalls) == ("STALL", 18)


def test_both_kinds_of_ends_are_named(diagnose):
    other = talk(client_held, client=("10.0.0.7", 5), server=("10.0.0.4", 99)).segments
    result = diagnose(merge(talk(server_held).segments, other))
    assert result.summary.held_by == "both"
    assert "the server 10.0.0.2:80 (19 times) and the client 10.0.0.7:5 (19 times)" in result.reason


def test_two_ends_that_hold_each_until_the_other_acknowledges_are_named_once(diagnose):
    def both_held(c: Conversation, number: int) -> None:
        (server_held if number % 2 else client_held)(c, number)

    result = diagnose(talk(both_held, exchanges=40).segments)
    ends = r"the (server|client) 10\.0\.0\.\S+ \(\d+ times\) and the (server|client) 10\.0\.0\.\S+ \(\d+ times\)"
    assert re.search(f": {ends} each held a small segment until the other acknowledged the one before", result.reason)
    assert re.match(rf"On {ends}: send .*, or set TCP_NODELAY; or acknowledge at once", result.summary.remedy)


def test_ends_of_different_connections_do_not_hold_each_until_the_other(diagnose):
    other = talk(client_held, client=("10.0.0.7", 5), server=("10.0.0.4", 99)).segments
    assert not diagnose(merge(talk(server_held).segments, other)).summary.is_mutual


def test_of_more_than_ten_ends_that_held_all_are_counted(diagnose):
    """The ten with the most stalls are listed; the sentence says how many there were."""
    stalled = [talk(server_held, exchanges=6, server=(f"10.0.1.{number}", 80)).segments for number in range(1, 13)]
    summary = diagnose(merge(*stalled)).summary
    assert len(summary.held_ends) == 10
    assert (summary.held_ends_by, summary.delayed_ends_by) == (
        {"client": 0, "server": 12},
        {"client": 1, "server": 0},
    )
    assert summary.who_held == "12 servers (most often 10.0.1.1:80, 5 times)"
    assert summary.who_delayed == "the client (10.0.0.1:40000)"


@pytest.mark.parametrize("timestamps", [True, False])
def test_what_a_filter_for_data_leaves_of_a_stall(diagnose, timestamps):
    segments = talk(server_held, timestamps=timestamps).segments
    data_only = diagnose([segment for segment in segments if segment.length])
    assert data_only.verdict == "INCONCLUSIVE"
    assert data_only.undecided == Undecided(Obstacle.CAPTURE_INCOMPLETE, None, None)
    assert "19 times data followed an ACK that is not in the capture" in data_only.reason
    assert "as if a filter had left them out" in data_only.reason


def test_what_a_filter_for_data_leaves_of_what_was_not_held(diagnose):
    """The second part is sent at once: no ACK can have released it."""
    segments = talk(nodelay, timestamps=False).segments
    assert diagnose([segment for segment in segments if segment.length]).verdict == "CLEAN"


@pytest.mark.parametrize("trigger", [HEADER, 1_424])
@pytest.mark.parametrize("timestamps", [True, False])
def test_what_a_filter_for_pure_acks_leaves_of_a_stall(diagnose, timestamps, trigger):
    """SYNs and FINs are still there; a large trigger may have been a full segment."""
    c = Conversation(timestamps=timestamps)
    c.handshake()
    for _ in range(20):
        c.client_sends(REQUEST)
        c.server_sends(trigger, after_ns=200 * US)
        c.client_acks(after_ns=LATE)
        c.server_sends(BODY, after_ns=RELEASE)
        c.client_acks(after_ns=10 * US)
    c.close()
    result = diagnose(
        [segment for segment in c.segments if segment.length or not set("SF").isdisjoint(segment.flags)]
    )
    assert result.verdict == "INCONCLUSIVE" and "as if a filter had left them out" in result.reason
    assert result.summary.decided_exchanges == 0
    assert set(result.idle_gaps) == {"unknown"}, "not the server's processing"


def test_data_sent_late_was_not_held_if_acks_are_in_the_capture(diagnose):
    c = Conversation(timestamps=False)
    c.handshake()
    for _ in range(20):
        c.client_sends(REQUEST)
        c.server_sends(HEADER, after_ns=200 * US)
        c.server_sends(BODY, after_ns=25 * MS)
        c.client_acks(after_ns=10 * US)
    assert diagnose(c.segments).verdict == "CLEAN"
    assert diagnose([segment for segment in c.segments if segment.length]).verdict == "INCONCLUSIVE"


def test_what_a_filter_for_data_leaves_of_two_servers(diagnose):
    """The reason names the one of which most is open."""
    both = merge(talk(server_held).segments, talk(server_held, server=("10.0.0.2", 81)).segments)
    of_one = diagnose([segment for segment in both if segment.length]).reason
    assert of_one.startswith("10.0.0.2:80: ") and "as if a filter had left them out" in of_one


def test_acks_missing_of_one_connection_only_were_left_out_by_no_filter(diagnose):
    data_only = [segment for segment in talk(server_held).segments if segment.length]
    whole = talk(nodelay, client=("10.0.0.9", 999)).segments
    reason = diagnose(merge(data_only, whole)).reason
    assert "the capture lacks" in reason, reason


def test_where_a_tenth_carries_no_data_no_filter_is_blamed():
    lossy = VerdictInput(100, exchanges=20, stalls=0, unresolved={Obstacle.CAPTURE_INCOMPLETE: 5})
    assert "the capture lacks" in decide(lossy)[1]
    assert "a filter had left them out" in decide(replace(lossy, is_data_only=True))[1]


def test_nearly_all_connections_in_one_direction_are_not_all():
    evidence = VerdictInput(1000, exchanges=2, stalls=0, one_way=0.997)
    assert "of 99% of the connections" in decide(evidence)[1]


@pytest.mark.parametrize("of_a_server", [False, True])
def test_who_captured_at_both_ends_is_not_told_to(of_a_server):
    left_open = VerdictInput(100, exchanges=20, stalls=0, unresolved={Obstacle.PATH_VARIES: 5})
    alone = replace(left_open, unresolved={}, servers={"192.0.2.1:80": left_open}) if of_a_server else left_open
    told, at_both_ends = decide(alone), decide(replace(alone, is_of_both_ends=True))
    assert told.reason.endswith("delay as much; capture at both ends (`--same-traffic`)")
    assert at_both_ends.reason.endswith("delay as much; capture for longer, or while less runs beside it")
    server = "192.0.2.1:80" if of_a_server else None
    assert told.undecided == Undecided(Obstacle.PATH_VARIES, server, Recording.AT_BOTH_ENDS)
    assert at_both_ends.undecided == Undecided(Obstacle.PATH_VARIES, server, None)


def test_of_one_syn_no_direction_is_missing(diagnose):
    c = Conversation()
    c.handshake()
    result = diagnose(c.segments[:1])
    assert result.verdict == "INCONCLUSIVE" and "capture for longer" in result.reason and not is_one_way(result)


@pytest.mark.parametrize("exchange", [prompt, server_held])
def test_a_slice_beyond_all_stalls_is_empty(diagnose, exchange):
    result = diagnose(talk(exchange).segments)
    assert result.stalls[100:] == result.stalls[3:3] == result.connections[1:] == []
    assert len(result.stalls[:3]) == (3 if exchange is server_held else 0)
