"""A program that does one thing for one peer, or on one connection, and another for the next."""

import pytest

from support.stories import (
    BODY,
    HEADER,
    LATE,
    REQUEST,
    Story,
    nodelay,
    pauses_a_little_longer_than_the_timer,
    pauses_with_nodelay,
    reply_in_two,
    server_held,
    talk,
    two_part_reply,
)
from support.synthetic import MS, US, Conversation, Segment, merge

ONE, ANOTHER = ("10.0.0.1", 40_000), ("10.0.9.9", 50_000)
THE_SAME = (ONE[0], 50_000)


def pauses_63_ms(c: Conversation, number: int) -> None:
    """TCP_NODELAY, and a pause that ends some 20 ms behind the ACK: as soon as what a client 20 ms away released."""
    two_part_reply(c, ack=LATE + (number % 5) * MS, pause=63 * MS)


DOES_NOT_HOLD = (nodelay, pauses_with_nodelay, pauses_a_little_longer_than_the_timer, pauses_63_ms)


@pytest.mark.parametrize("seen_at", ["middle", "client"])
@pytest.mark.parametrize("rtt_ns", [0, MS, 20 * MS])
@pytest.mark.parametrize("story", DOES_NOT_HOLD)
def test_what_a_server_does_for_one_client_does_not_hide_what_it_holds_for_another(diagnose, story, rtt_ns, seen_at):
    held, other = talk(server_held, 40, client=ANOTHER, rtt_ns=20 * MS), talk(story, 40, client=ONE, rtt_ns=rtt_ns)
    result = diagnose(merge(held.seen_at(seen_at), other.seen_at(seen_at)))
    assert (result.verdict, result.summary.stalls) == ("STALL", 39)
    assert {result.connections[stall.connection].client.ip for stall in result.stalls} == {"10.0.9.9"}


@pytest.mark.parametrize("seen_at", ["middle", "client"])
@pytest.mark.parametrize("story", [nodelay, pauses_a_little_longer_than_the_timer, pauses_63_ms])
def test_what_one_connection_does_not_hold_does_not_hide_what_another_one_holds(diagnose, story, seen_at):
    held, other = (
        talk(of_one, 40, client=client, rtt_ns=20 * MS) for of_one, client in ((server_held, THE_SAME), (story, ONE))
    )
    result = diagnose(merge(held.seen_at(seen_at), other.seen_at(seen_at)))
    assert (result.verdict, result.summary.stalls) == ("STALL", 39)


def at_the_server(*stories: Story) -> list[Segment]:
    """Connections of one client, 2 ms away, captured at the server."""
    talks = (talk(story, 20, client=(ONE[0], 50_000 + n), rtt_ns=2 * MS) for n, story in enumerate(stories))
    return merge(*(one.seen_at("server") for one in talks))


HELD = reply_in_two(LATE, lambda number: (10 + number % 10) * US)


def test_a_connection_that_passes_on_is_not_counted_with_those_that_hold(diagnose):
    """A proxy waits for its origin, whose timer fires in the same tick: half of all leave later than a kernel's."""
    relayed = [reply_in_two(LATE, lambda number, n=n: (90 + number * 37 % 90 + 15 * n) * US) for n in range(4)]
    result = diagnose(at_the_server(HELD, HELD, HELD, *relayed))
    assert (result.verdict, result.summary.stalls) == ("STALL", 3 * 19)


def test_what_left_at_once_at_the_sender_a_kernel_let_go_whatever_the_others_do(diagnose):
    """The others pause for a little longer than the timer, early ACK or late: some end right behind it."""

    def pausing(which: int) -> Story:
        def pauses(c: Conversation, number: int) -> None:
            c.client_sends(REQUEST)
            header = c.server_sends(HEADER, after_ns=200 * US)
            c.client_acks(after_ns=LATE if number % 5 else 10 * US)
            pause = LATE + 2 * MS + (40 + (number * 311 + which * 790) % 4_000) * US
            c.server_sends(BODY, at_ns=header.ts_ns + pause)
            c.client_acks(after_ns=10 * US)

        return pauses

    result = diagnose(at_the_server(HELD, HELD, HELD, *map(pausing, range(5))))
    assert (result.verdict, result.summary.stalls) == ("STALL", 3 * 19)


def test_what_is_held_on_one_connection_is_left_open_where_the_others_are_not_certain(diagnose):
    """Pauses that vary look as if they were held by chance, seen at the client: by themselves they are left open."""
    talks: list[tuple[Story, tuple[str, int]]] = [(server_held, THE_SAME), (pauses_with_nodelay, ONE)]
    seen = [talk(story, 40, client=client, rtt_ns=20 * MS).seen_at("client") for story, client in talks]
    result = diagnose(merge(*seen))
    assert (result.verdict, result.summary.stalls) == ("INCONCLUSIVE", 0)
    assert result.quality.unresolved["connections_differ"] == 39


def test_of_many_connections_with_pauses_a_few_end_right_behind_the_ack_by_chance(diagnose):
    """Thirty connections of one client, each with a pause of its own, 41 to 99 ms, seen at the client, 20 ms away."""

    def pausing(pause_ms: int) -> Story:
        def exchange(c: Conversation, number: int) -> None:
            two_part_reply(c, ack=LATE + number % 3 * MS, pause=max(pause_ms, 61) * MS)

        return exchange

    talks = (talk(pausing(41 + 2 * n), 8, client=(ONE[0], 50_000 + n), rtt_ns=20 * MS) for n in range(30))
    assert diagnose(merge(*(one.seen_at("client") for one in talks))).verdict != "STALL"


def test_what_a_server_does_for_clients_that_ask_seldom_is_judged_together(diagnose):
    """Sixty clients, each with one reply that is held: no one of them shows anything by itself."""
    talks = [talk(server_held, 2, client=(f"10.0.{number}.1", 40_000)) for number in range(60)]
    result = diagnose(merge(*(one.seen_at("server") for one in talks)))
    assert (result.verdict, result.summary.stalls) == ("STALL", 60)


def test_pauses_that_end_a_little_after_the_ack_are_of_another_behaviour(diagnose):
    """On one connection of the server all is held, on another it pauses for 42 ms: one pause ends as promptly."""

    def pauses(c: Conversation, number: int) -> None:
        c.client_sends(REQUEST)
        header = c.server_sends(HEADER, after_ns=200 * US)
        before = 110 if number == 3 else 500 + number * 170
        c.client_acks(at_ns=header.ts_ns + (42_200 - before) * US)
        c.server_sends(BODY, at_ns=header.ts_ns + 42_200 * US)
        c.client_acks(after_ns=10 * US)

    held = talk(reply_in_two(LATE, lambda number: (50 + number % 3 * 5) * US), exchanges=30)
    paused = talk(pauses, exchanges=8, client=("10.0.0.1", 50_001))
    result = diagnose(merge(held.segments, paused.segments))
    assert (result.verdict, result.summary.stalls) == ("STALL", 29)


def test_what_stays_open_alone_stays_open_beside_tcp_nodelay(diagnose):
    """One connection of a client 20 ms away may be held, by a kernel that is busy; another has TCP_NODELAY."""
    busy = reply_in_two(LATE, lambda number: (1_100 + number % 3 * 100) * US)
    unsure, other = (
        talk(story, 40, client=client, rtt_ns=20 * MS) for story, client in ((busy, ONE), (pauses_63_ms, THE_SAME))
    )
    alone = diagnose(unsure.seen_at("client"))
    assert (alone.verdict, alone.quality.unresolved) == ("INCONCLUSIVE", {"own_pace": 39})
    result = diagnose(merge(unsure.seen_at("client"), other.seen_at("client")))
    assert (result.verdict, result.quality.unresolved) == ("INCONCLUSIVE", {"nagle_off_elsewhere": 39})


@pytest.mark.parametrize(("others_ms", "verdict"), [(6, "INCONCLUSIVE"), (0, "STALL")])
def test_what_the_path_explains_of_all_connections_is_no_stall_of_each(diagnose, others_ms, verdict):
    """On two ACKs come 11 to 13 ms late, as another stack's timer may send them; on the others a little sooner."""

    def acknowledged(late_ms: int) -> Story:
        def exchange(c: Conversation, number: int) -> None:
            two_part_reply(
                c, asked=50 * MS, ack=(late_ms + number % 3 if late_ms else 0) * MS, body=10 * US, last_ack=None
            )

        return exchange

    talks = [
        talk(acknowledged(late_ms), 20, client=(ONE[0], 50_000 + at), rtt_ns=8 * MS, timestamps=False)
        for at, late_ms in enumerate((11, 11, others_ms, others_ms))
    ]
    assert diagnose(merge(*(c.seen_at("server") for c in talks))).verdict == verdict


@pytest.mark.parametrize("farther", [2 * MS, 10 * MS])
def test_a_near_host_behind_the_same_address_does_not_hide_what_a_farther_one_holds(diagnose, farther):
    """A load balancer's address, say: most of the client's connections go to a near host, which holds nothing."""

    def answers(c: Conversation, _: int) -> None:
        c.client_sends(REQUEST)
        c.server_acks(after_ns=10 * US)
        c.server_sends(BODY, after_ns=200 * US)

    near = [talk(answers, 40, client=(ONE[0], 40_000 + number), first=answers) for number in range(6)]
    far = talk(server_held, 40, client=THE_SAME, rtt_ns=farther)
    result = diagnose(merge(*(one.seen_at("client") for one in (*near, far))))
    assert (result.verdict, result.summary.stalls) == ("STALL", 39)
    assert {result.connections[stall.connection].client.port for stall in result.stalls} == {THE_SAME[1]}
