"""What was passed on, or asked for on another connection, was not held."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from nagle_lab.reports.words.phrases import findings
from support.stories import (
    BODY,
    HEADER,
    LATE,
    RELEASE,
    REQUEST,
    reply_in_two,
    server_held,
    talk,
    two_part_reply,
)
from support.synthetic import MS, SECOND, US, Conversation, Segment, merge


def test_a_relay_is_not_accused_and_its_source_is_named(diagnose):
    """The proxy passes its origin's reply on: data arrives at it between the ACK and what it sends."""
    origin = talk(server_held, client=("10.0.0.2", 50_000), server=("10.0.0.3", 9000)).segments
    client = talk(reply_in_two(LATE - 100 * US, lambda _: 115 * US), t0_ns=origin[0].ts_ns).segments
    result = diagnose(merge(origin, client))
    assert (result.verdict, result.summary.stalls) == ("STALL", 19)
    assert [str(end) for end in result.summary.held_ends] == ["10.0.0.3:9000"]
    (relay,) = result.summary.relays
    assert str(result.connections[relay.connection].server) == "10.0.0.2:80"
    assert str(result.connections[relay.source].server) == "10.0.0.3:9000"
    said = dict(findings(result))["relayed"]
    assert said.startswith(f"{relay.times} times data followed a late ACK on connections to 10.0.0.2:80 only because")
    assert "passed on from those to 10.0.0.3:9000: fix that first" in said
    itself = replace(result, summary=replace(result.summary, relays=[replace(relay, source=relay.connection)]))
    assert "passed on from others to the same server: fix" in dict(findings(itself))["relayed"]


@pytest.mark.parametrize(
    ("back_at", "passes_on", "held"),
    [
        ("10.0.0.2", True, {"172.16.0.3:9000"}),
        ("172.16.0.2", True, {"172.16.0.3:9000"}),
        ("172.16.0.2", False, {"172.16.0.3:9000", "10.0.0.2:80"}),
    ],
)
def test_a_relay_with_nagle_on_between_two_networks_holds_for_next_to_nothing(diagnose, back_at, passes_on, held):
    """Its ACK timers fire in one tick: what the origin held has just arrived, and been written, when the ACK comes.

    Or it comes after the relay's own release, each time: then both are held, in step.
    """
    front = Conversation()
    back = Conversation(client=(back_at, 50_000), server=("172.16.0.3", 9000))
    front.handshake()
    back.handshake(after_ns=300 * US)
    for number in range(1, 31):
        asked = front.client_sends(REQUEST, at_ns=front.t0_ns + number * 100 * MS)
        back.client_sends(REQUEST, at_ns=asked.ts_ns + 100 * US)
        for c in (back, front):
            c.server_sends(HEADER, after_ns=150 * US)
        late = back.client_acks(after_ns=LATE + number % 5 * MS)
        back.server_sends(BODY, after_ns=RELEASE)
        front.client_acks(at_ns=late.ts_ns + (120 * US if passes_on else -60 * US))
        front.server_sends(BODY, after_ns=RELEASE)
        for c in (back, front):
            c.client_acks(after_ns=300 * US)
    result = diagnose(merge(front.segments, back.segments))
    assert {str(end) for end in result.summary.held_ends} == held
    assert result.quality.rejected["relayed"] == (30 if passes_on else 0)


def in_step(
    front: Conversation, back: Conversation, behind_us: Callable[[int], int], more: Conversation | None = None
):
    """Each holds 30 times: ``front`` lets go so long behind ``back``; ``more``, if there is one, behind ``front``."""
    talks = [front, back, *([more] if more else [])]
    for c in talks:
        c.handshake()
    for number in range(1, 31):
        for c in talks:
            c.client_sends(REQUEST, at_ns=front.t0_ns + number * 100 * MS)
            c.server_sends(HEADER, after_ns=150 * US)
        late = back.client_acks(at_ns=front.t0_ns + number * 100 * MS + 43 * MS + number % 5 * MS).ts_ns
        front.client_acks(at_ns=late + behind_us(number) * US)
        if more:
            more.client_acks(at_ns=late + 2 * behind_us(number) * US)
        for c in talks:
            c.server_sends(BODY, after_ns=RELEASE)
            c.client_acks(after_ns=500 * US)
    return merge(*(c.segments for c in talks))


BACK = {"client": ("172.16.0.2", 50_000), "server": ("172.16.0.3", 9000)}


def test_two_of_three_behind_another_s_are_in_step_between_two_networks(diagnose):
    result = diagnose(in_step(Conversation(), Conversation(**BACK), lambda number: 120 if number % 3 else 900))
    assert len(result.summary.held_ends) == 2


def test_what_also_comes_before_another_s_is_in_step_between_two_networks(diagnose):
    also = Conversation(client=("172.16.0.2", 50_001), server=("172.16.0.3", 9000))
    result = diagnose(in_step(Conversation(), Conversation(**BACK), lambda _: 120, also))
    assert {str(end) for end in result.summary.held_ends} == {"10.0.0.2:80", "172.16.0.3:9000"}


def test_one_client_of_two_servers_is_no_relay_between_two_networks(diagnose):
    other = Conversation(client=("10.0.0.1", 50_000), server=("172.16.0.3", 9000))
    assert len(diagnose(in_step(Conversation(), other, lambda _: 120)).summary.held_ends) == 2


@pytest.mark.parametrize(("most", "held"), [(2, 1), (1, 2)])
def test_among_many_programs_no_relay_between_two_networks_is_looked_for(diagnose, monkeypatch, most, held):
    monkeypatch.setattr("nagle_lab.diagnosis.proof.relays.MOST_STALLING", most)
    result = diagnose(in_step(Conversation(), Conversation(**BACK), lambda _: 120))
    assert len(result.summary.held_ends) == held


@pytest.mark.parametrize(("exchanges", "rejected"), [(60, 20), (180, 0)])
def test_a_relay_that_also_holds_is_accused_of_that_alone(diagnose, monkeypatch, exchanges, rejected):
    """A third of its replies wait for its origin, which stalls; the others it holds itself, and sends sooner.

    Where the origin's releases later on come between the ticks of the relay's timer, chance may explain them all.
    """
    monkeypatch.setattr("nagle_lab.diagnosis.proof.relays.MOST_LOOKED_AT", 60)
    origin = Conversation(client=("10.0.0.2", 50_000), server=("10.0.0.3", 9000))
    relay = Conversation()
    for c in (origin, relay):
        c.handshake()
    for number in range(1, exchanges + 1):
        asked = relay.client_sends(REQUEST, at_ns=relay.t0_ns + number * 100 * MS)
        relay.server_sends(HEADER, after_ns=200 * US)
        late = relay.client_acks(after_ns=LATE + number % 5 * MS)
        passes_on, is_between = number % 3 == 0 and number <= 60, number > 60
        if passes_on or is_between:
            origin.client_sends(REQUEST, at_ns=asked.ts_ns + 100 * US)
            origin.server_sends(HEADER, after_ns=100 * US)
            origin.client_acks(at_ns=late.ts_ns - 10 * US - is_between * 2_600 * US)
            origin.server_sends(BODY, after_ns=RELEASE)
            origin.client_acks(after_ns=10 * US)
        relay.server_sends(BODY, after_ns=((60 + number % 7 * 3) if passes_on else (10 + number % 7)) * US)
        relay.client_acks(after_ns=10 * US)
    result = diagnose(merge(origin.segments, relay.segments))
    held = {str(end): end.stalls for end in result.summary.held_ends}
    assert held == {"10.0.0.2:80": exchanges - rejected, "10.0.0.3:9000": 20 + exchanges - 60}
    assert result.quality.rejected["relayed"] == rejected


@pytest.mark.parametrize("lost", [0, 3])
@pytest.mark.parametrize(("asks", "verdict"), [(True, "INCONCLUSIVE"), (False, "STALL")])
def test_what_another_connection_asked_for_was_not_held(diagnose, asks, verdict, lost):
    """At the client, which reads late, acknowledges then, and asks for the next piece on another connection.

    Where the capture lacks some of the ACKs, the timestamps tell of them, and they are like the others.
    """
    c, control = Conversation(), Conversation(client=("10.0.0.1", 40_001), server=("10.0.0.2", 81))
    for talk_ in (c, control):
        talk_.handshake(after_ns=2 * MS)
    late: list[Segment] = []
    for number in range(40):
        c.client_sends(REQUEST, after_ns=30 * MS)
        c.server_acks(after_ns=2 * MS + number * 7 % 40 * US)
        c.server_sends(HEADER, after_ns=5 * MS)
        late.append(c.client_acks(after_ns=LATE))
        if asks:
            control.client_sends(4, at_ns=c.client.now_ns + 150 * US)
            control.server_acks(after_ns=2 * MS)
        c.server_sends(60, after_ns=2 * MS + number % 5 * 20 * US)
        c.client_acks(after_ns=30 * US)
    captured = [segment for segment in c.segments if segment not in late[10 : 10 + lost]]
    result = diagnose(merge(captured, control.segments))
    assert (result.verdict, result.summary.grounds.get("timestamps", 0)) == (verdict, 0 if asks else lost)


@pytest.mark.parametrize(
    ("every", "is_relay", "verdict", "stalls"), [(40, False, "STALL", 30), (100, True, "INCONCLUSIVE", 0)]
)
def test_data_that_comes_so_often_arrives_by_chance(diagnose, every, is_relay, verdict, stalls):
    """Another connection sends to the same host every 40 or 100 µs; a relay is woken by it each time."""
    c = Conversation(rtt_ns=400 * US)
    c.handshake()
    wakes = []
    for number in range(30):
        c.client_sends(REQUEST)
        c.server_acks(after_ns=6 * US)
        c.server_sends(HEADER, after_ns=200 * US)
        c.client_acks(after_ns=LATE + number % 5 * MS)
        release = c.server_sends(BODY, after_ns=(50 + number % 7) * US)
        wakes.append(release.ts_ns - 30 * US)
        c.client_acks(after_ns=10 * US)
    dense = Conversation(client=("10.0.0.7", 41_000), server=("10.0.0.2", 9_000), t0_ns=c.segments[0].ts_ns)
    dense.handshake()
    number = 0
    while dense.client.now_ns < wakes[-1]:
        number += 1
        following = dense.client.now_ns + (every // 2 + number * 37 % every) * US
        if is_relay and following > wakes[0]:
            following = wakes.pop(0) if len(wakes) > 1 else wakes[0]
        dense.client_sends(400, at_ns=max(following, dense.client.now_ns + US))
    result = diagnose(merge(c.seen_at("server"), dense.segments))
    assert (result.verdict, result.summary.stalls) == (verdict, stalls)


def test_data_of_many_other_connections_arrives_by_chance(diagnose):
    """Any of forty other connections sends to the same host every 60 µs: each of them seldom, all of them often."""
    c = Conversation(rtt_ns=1_200 * US)
    c.handshake()
    for number in range(13):
        two_part_reply(c, ack=(LATE if number else 0) + number % 5 * MS, body=(50 + number % 7) * US)
    began, others = c.segments[0].ts_ns, []
    for port in range(40):
        other = Conversation(client=("10.0.0.7", 41_000 + port), server=("10.0.0.2", 8080), t0_ns=began)
        other.handshake()
        others.append(other)
    for number in range((c.segments[-1].ts_ns - began) // (60 * US)):
        others[number % 40].client_sends(120, at_ns=began + MS + number * 60 * US)
    result = diagnose(merge(c.seen_at("server"), *(other.segments for other in others)))
    assert result.verdict == "INCONCLUSIVE"
    assert result.quality.unresolved == {"like_a_program": 12}


@pytest.mark.parametrize("is_busy", [False, True])
def test_a_relay_with_so_many_releases_is_behind_some_by_chance(diagnose, is_busy):
    """A relay that is held itself, after its upstream was: on many connections one is just behind another's."""
    talks = []
    for number in range(250 if is_busy else 4):
        t0 = SECOND + number * 331 * US
        front = Conversation(client=("10.0.0.1", 40_000 + number), t0_ns=t0, rtt_ns=1_500 * US)
        back = Conversation(client=("10.0.0.2", 50_000 + number), server=("10.0.0.3", 8080), t0_ns=t0)
        front.handshake()
        back.handshake()
        for turn in range(6):
            late = LATE + (number * 7 + turn * 5) % 40 * 100 * US if turn else 0
            front.client_sends(REQUEST, after_ns=(number * 13 + turn * 29) % 50 * 50 * US)
            asked = front.server.now_ns
            back.client_sends(REQUEST, at_ns=asked + 100 * US)
            back.server_sends(HEADER, after_ns=200 * US)
            back.client_acks(after_ns=late)
            back.server_sends(BODY, after_ns=RELEASE)
            front.server_sends(HEADER, at_ns=back.client.now_ns + 100 * US)
            back.client_acks(after_ns=10 * US)
            front.client_acks(after_ns=late)
            front.server_sends(BODY, after_ns=RELEASE)
            front.client_acks(after_ns=10 * US)
        talks += [front.seen_at("server"), back.seen_at("client")]
    result = diagnose(merge(*talks))
    assert {str(end) for end in result.summary.held_ends} == {"10.0.0.2:80", "10.0.0.3:8080"}


def test_one_local_connection_does_not_make_the_others_local(diagnose):
    """Each of ten clients is asked a few times, and a check on the host itself: together they are one program's.

    What a relay passes on to the clients has just arrived from its origin, which its releases are behind.
    """
    relay = ("10.0.0.2", 80)
    check = talk(reply_in_two(2 * MS), 4, client=(relay[0], 60_000), server=relay)
    passed_on = []
    for number in range(10):
        front = Conversation(client=(f"10.0.1.{number + 1}", 40_000), server=relay)
        back = Conversation(client=(relay[0], 50_000 + number), server=("10.0.0.3", 9000))
        front.handshake()
        back.handshake()
        for _ in range(4):
            front.client_sends(REQUEST, after_ns=3 * MS)
            header = front.server_sends(HEADER, after_ns=150 * US)
            back.client_sends(REQUEST, at_ns=header.ts_ns + 10 * US)
            late = front.client_acks(after_ns=LATE)
            back.server_sends(BODY, at_ns=late.ts_ns + 30 * US)
            front.server_sends(BODY, at_ns=late.ts_ns + 75 * US)
            front.client_acks(after_ns=10 * US)
        passed_on += [front.segments, back.segments]
    alone, with_check = diagnose(merge(*passed_on)), diagnose(merge(check.segments, *passed_on))
    assert alone.quality.rejected["relayed"] == with_check.quality.rejected["relayed"] == 40
