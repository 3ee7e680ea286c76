"""One connection that waits for every ACK beside another that does not: a window of one segment, or an option."""

import pytest

from support.stories import LATE, RELEASE, REQUEST, nodelay, server_held, talk
from support.synthetic import MS, SECOND, US, Conversation, merge


@pytest.mark.parametrize(
    ("holding", "verdict", "stalls"),
    [("hnhn", "STALL", 38), ("nhhn", "STALL", 38), ("nnhh", "INCONCLUSIVE", 0)],
)
def test_a_window_of_one_segment_is_not_taken_back(diagnose, holding, verdict, stalls):
    """Connections that hold, and others: when they begin tells TCP_NODELAY from a destination's window."""
    stories = {"h": server_held, "n": nodelay}
    talks = [
        talk(stories[kind], client=("10.0.0.1", 50_000 + number), t0_ns=(1 + 5 * number) * SECOND).segments
        for number, kind in enumerate(holding)
    ]
    result = diagnose(merge(*talks))
    assert (result.verdict, result.summary.stalls) == (verdict, stalls)
    assert ("nagle_off_elsewhere" in result.quality.unresolved) == (verdict == "INCONCLUSIVE")


@pytest.mark.parametrize(
    ("before", "host", "apart", "think", "verdict"),
    [
        (0, 1, 1 * MS, 2 * MS, "STALL"),
        (0, 1, 5 * SECOND, 2 * MS, "INCONCLUSIVE"),  # the other one has ended meanwhile, and left it
        (1, 1, 30 * MS, 2 * MS, "INCONCLUSIVE"),  # one that ended left it
        (1, 9, 30 * MS, 2 * MS, "STALL"),  # one of another host leaves nothing to this one
        (0, 1, 1 * MS, 300 * MS, "INCONCLUSIVE"),  # it begins anew for each exchange
    ],
)
def test_connections_that_begin_together_have_the_same_window(diagnose, before, host, apart, think, verdict):
    """One holds, another waits for no ACK: TCP_NODELAY on one of them, or a window of one segment."""

    def slowly(c: Conversation, number: int) -> None:
        server_held(c, number)
        c.pause(think)

    begun = 1_700_000_000 * SECOND
    others = [talk(nodelay, client=("10.0.0.1", 50_000), t0_ns=begun + before * MS)]
    if before:
        others.append(talk(nodelay, 5, client=(f"10.0.0.{host}", 50_001), t0_ns=begun))
    holding = talk(slowly, client=("10.0.0.1", 60_000), t0_ns=begun + apart)
    result = diagnose(merge(holding.segments, *(other.segments for other in others)))
    assert (result.verdict, result.summary.stalls) == (verdict, 19 if verdict == "STALL" else 0)
    assert ("nagle_off_elsewhere" in result.quality.unresolved) == (verdict == "INCONCLUSIVE")


def test_data_that_waits_now_and_then_outlasts_the_growth_of_a_window(diagnose):
    """Each third reply is held, 50 ms after the one before: bulk shows the window, and it cannot have begun anew."""

    def sometimes(c: Conversation, number: int) -> None:
        c.client_sends(REQUEST)
        c.server_writes(5 * c.full_segment)
        c.client_acks(after_ns=10 * US)
        if number % 3 == 0:
            server_held(c, number)
        c.pause(50 * MS)

    begun = 1_700_000_000 * SECOND
    other = talk(nodelay, client=("10.0.0.1", 50_000), t0_ns=begun).segments
    result = diagnose(merge(talk(sometimes, t0_ns=begun + 5 * SECOND, exchanges=31).segments, other))
    assert (result.verdict, result.summary.stalls) == ("STALL", 10)


def held_in_a_dialogue(c: Conversation) -> None:
    """A greeting, and an answer in two writes, held."""
    c.client_sends(REQUEST)
    c.server_sends(41, after_ns=200 * US)
    held(c)


def held(c: Conversation) -> None:
    """An answer in two writes, held."""
    c.client_sends(REQUEST)
    c.server_sends(20, after_ns=200 * US)
    c.client_acks(after_ns=LATE)
    c.server_sends(57, after_ns=RELEASE)
    c.client_acks(after_ns=10 * US)


@pytest.mark.parametrize(("first", "verdict"), [(False, "STALL"), (True, "INCONCLUSIVE")])
def test_what_is_held_twice_on_each_connection_adds_up(diagnose, first, verdict):
    """nbd-server: two holds in each session's beginning, and TCP_NODELAY from then on; or the first window is one."""
    talks = []
    for number in range(14):
        c = Conversation(client=("10.0.0.1", 40_000 + number), t0_ns=(1_700_000_000 + number) * SECOND)
        c.handshake()
        for _ in range(2):
            (held if first else held_in_a_dialogue)(c)
            c.pause(300 * MS)
        for more in range(5):
            c.server_sends(20 + more, after_ns=30 * MS)
        c.client_acks(after_ns=10 * US)
        c.close()
        talks.append(c.segments)
    result = diagnose(merge(*talks))
    assert (result.verdict, result.summary.stalls) == (verdict, 28 if verdict == "STALL" else 0)


@pytest.mark.parametrize(("times", "verdict"), [(1, "INCONCLUSIVE"), (3, "STALL")])
def test_that_two_were_sent_at_once_must_be_seen_more_than_once(diagnose, times, verdict):
    """One connection holds four times, soon after other data; the others wait for nothing."""
    c = Conversation(client=("10.0.0.1", 60_000), t0_ns=1_700_000_020 * SECOND)
    c.handshake()
    for _ in range(4):
        held_in_a_dialogue(c)
    for _ in range(times):
        c.client_sends(REQUEST)
        c.server_sends(20, after_ns=200 * US)
        c.server_sends(30, after_ns=30 * MS)
        c.client_acks(after_ns=10 * US)
    c.close()
    others = [
        talk(nodelay, client=("10.0.0.1", 50_000 + at), t0_ns=1_700_000_000 * SECOND).segments for at in range(2)
    ]
    assert diagnose(merge(c.segments, *others)).verdict == verdict
