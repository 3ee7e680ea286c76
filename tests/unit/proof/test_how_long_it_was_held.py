"""How long data was held: from when it was written, as far as that is known."""

import pytest

from nagle_lab.reports.words.phrases import findings
from support.stories import (
    HEADER,
    LATE,
    RELEASE,
    REQUEST,
    acks_on_data_and_alone,
    reply_in_two,
    server_held,
    talk,
    two_part_reply,
)
from support.synthetic import MS, US, Conversation, Segment, merge


@pytest.mark.parametrize(("pause_ms", "is_late", "is_told"), [(3, False, False), (20, True, False), (30, True, True)])
def test_what_the_program_wrote_late_was_not_held_so_long(diagnose, pause_ms, is_late, is_told):
    """A pause shows where the ACK comes early; of a wait of 42 ms the data was held for the rest."""

    def paused(c: Conversation, number: int) -> None:
        if number % 3 == 0:
            two_part_reply(c, ack=10 * US, body=pause_ms * MS)
        else:
            server_held(c, number)

    result = diagnose(talk(paused, exchanges=30).segments)
    assert result.verdict == "STALL"
    hold, wait = result.summary.hold_ms, result.summary.wait_ms
    assert hold is not None and wait is not None
    assert hold.high == pytest.approx(wait.p50 - pause_ms, abs=0.5)
    assert f"{hold.high:.1f} ms sooner" in result.summary.remedy
    assert (f" (median); of these it was held for {hold} ms: it was written late" in result.reason) == is_told
    late = "; the program wrote it late" if is_late else ""
    sentence = f"of the median wait, {wait.p50:.1f} ms, the kernel held the data for {hold} ms{late}"
    assert dict(findings(result))["hold"] == sentence


def test_how_long_one_of_several_ends_held_is_not_said_of_all(diagnose):
    """The first one writes 30 ms late, the others at once."""

    def paused(c: Conversation, number: int) -> None:
        (server_held if number % 3 else reply_in_two(10 * US, lambda _: 30 * MS))(c, number)

    late = talk(paused, exchanges=60, client=("10.0.0.1", 40_000))
    others = [talk(server_held, 15, client=("10.0.0.1", 40_000 + n), server=(f"10.0.1.{n}", 80)) for n in (1, 2)]
    result = diagnose(merge(late.segments, *(one.segments for one in others)))
    assert len(result.summary.held_ends) == 3
    assert result.summary.hold_ms.high < result.summary.wait_ms.p50 / 2
    assert "written late" not in result.reason and "hold" not in dict(findings(result))


@pytest.mark.parametrize("position", ["client", "server"])
def test_the_hold_is_the_same_wherever_it_was_captured(diagnose, position):
    """At the client the trigger arrives later and the ACK leaves earlier: the wait there lacks the round trip."""
    result = diagnose(talk(server_held, rtt_ns=20 * MS).seen_at(position))
    held = (LATE + 2 * MS + 20 * MS) / MS  # the median
    assert result.summary.hold_ms.high == pytest.approx(held, abs=0.1)
    assert f"leaves up to {held:.1f} ms sooner" in result.summary.remedy


def test_a_program_that_has_just_begun_says_nothing_of_later_holds(diagnose):
    """It takes 9 ms between its writes while the ACKs are early, and later perhaps none."""

    def just_begun(c: Conversation, number: int) -> None:
        (reply_in_two(10 * US, lambda _: 9 * MS) if number < 8 else server_held)(c, 0)

    hold = diagnose(talk(just_begun, exchanges=40).segments).summary.hold_ms
    assert hold.high == pytest.approx(LATE / MS, abs=0.1)


@pytest.mark.parametrize(
    ("pauses_ms", "is_told"),
    [((38, 38), True), ((36, 39), False), ((38,), False), ((30, 30), False), ((38, 38, 1, 1), False)],
    ids=["twice", "they differ", "once", "much shorter than the wait", "as often at once"],
)
def test_a_program_that_has_just_begun_is_hardly_slow_for_as_long_as_an_ack_is_late(diagnose, pauses_ms, is_told):
    """Where it twice takes 38 ms though the ACK is early, the hold was the rest of the wait, or up to 5 ms more."""

    def begins(number: int) -> list[Segment]:
        own = pauses_ms[number] * MS if number < len(pauses_ms) else 0
        first = reply_in_two(10 * US, lambda _: own) if own else server_held
        client = ("10.0.0.1", 40_000 + number)
        return talk(lambda c, _: server_held(c, 0), first=first, client=client).segments

    summary = diagnose(merge(*(begins(number) for number in range(4)))).summary
    own = 38 - 5 if is_told else 0
    assert summary.hold_ms.low <= summary.hold_ms.high == pytest.approx(summary.wait_ms.p50 - own, abs=0.3)


def test_pauses_longer_than_the_wait_are_of_something_else(diagnose):
    """Where the ACK comes early, that program writes 60 ms later: so what was held for 42 ms is not of that kind."""

    def mixed(c: Conversation, number: int) -> None:
        (server_held if number % 3 else reply_in_two(10 * US, lambda _: 60 * MS))(c, number)

    result = diagnose(talk(mixed, exchanges=30).segments)
    assert result.verdict == "STALL"
    assert result.summary.hold_ms.high == pytest.approx(result.summary.wait_ms.p50, abs=0.1)


def test_how_late_it_writes_elsewhere_in_a_reply_says_nothing_of_the_hold(diagnose):
    """Header and first token are written at once, and held; the next token comes 25 ms later, behind an early ACK."""

    def tokens(c: Conversation, number: int) -> None:
        c.client_sends(REQUEST)
        c.server_sends(HEADER, after_ns=200 * US)
        c.client_acks(after_ns=LATE)
        for _ in range(3):
            c.server_sends(30, after_ns=RELEASE)
            c.client_acks(after_ns=10 * US)
            c.pause(25 * MS)

    hold = diagnose(talk(tokens).segments).summary.hold_ms
    assert hold.high == pytest.approx(LATE / MS, abs=0.1)


def test_where_pauses_vary_only_the_upper_bound_is_known(diagnose):
    def paused(c: Conversation, number: int) -> None:
        wait, pause = (10 * US, 20 * MS) if number % 3 == 0 else (LATE, RELEASE if number % 5 else 9 * MS)
        two_part_reply(c, ack=wait, body=pause)

    hold = diagnose(talk(paused, exchanges=60).segments).summary.hold_ms
    assert (hold.low, hold.high) == (0, pytest.approx(LATE / MS, abs=0.1))


def test_the_shortest_waits_show_when_it_had_been_written(diagnose):
    """A timer of 10 to 200 ms by phase (lwIP), and data always at once behind it: written within 20 ms."""

    def by_phase(c: Conversation, number: int) -> None:
        two_part_reply(c, ack=(10 + 10 * number % 190) * MS)

    hold = diagnose(talk(by_phase, exchanges=60, timestamps=False).segments).summary.hold_ms
    assert hold.low > hold.high - 35 > 50


@pytest.mark.parametrize(("alone_every", "high"), [(1, 50), (3, 22)])
def test_where_some_acks_come_alone_and_some_with_data_the_hold_is_of_all_stalls(diagnose, alone_every, high):
    """Some held data leaves with the peer's data 12 ms later, and some with its pure ACK, 40 ms later."""
    result = diagnose(acks_on_data_and_alone(alone_every).seen_at("client"))
    summary = result.summary
    assert (summary.grounds["data_acks"] > summary.grounds["repetition_at_sender"]) == (high == 22)
    assert (summary.hold_ms.low, summary.hold_ms.high) == (0, pytest.approx(high, abs=0.1))
    assert summary.hold_ms.high == pytest.approx(summary.wait_ms.p50, abs=0.1)
    assert "written late" not in result.reason and "hold" not in dict(findings(result))


def test_what_leaves_at_once_behind_a_segment_of_another_size_says_nothing_of_the_hold(diagnose):
    """Behind the body all leaves at once; behind the header that program takes 30 ms where the ACK comes early."""

    def three_parts(c: Conversation, number: int) -> None:
        is_early = number == 0
        two_part_reply(c, ack=10 * US if is_early else LATE, body=30 * MS if is_early else RELEASE)
        c.server_sends(77, after_ns=RELEASE)
        c.client_acks(after_ns=10 * US)

    clients = [("10.0.0.1", 40_000 + number) for number in range(4)]
    talks = [talk(three_parts, first=three_parts, client=client).segments for client in clients]
    hold = diagnose(merge(*talks)).summary.hold_ms
    assert (hold.low, hold.high) == pytest.approx((LATE / MS - 30, LATE / MS), abs=0.1)
