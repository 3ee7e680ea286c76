"""What the ends' timestamps tell away from the sender: when data left, however long it was under way."""

from dataclasses import replace

import pytest

from support.stories import BODY, HEADER, LATE, RELEASE, REQUEST, server_held, talk, two_part_reply
from support.synthetic import MS, US, Conversation, Segment, merge

SLOW = 27_000  # ns a byte: 0.3 Mbit/s


@pytest.mark.parametrize("ns_per_byte", [4_000, SLOW])
@pytest.mark.parametrize(("timestamps", "verdict"), [(True, "STALL"), (False, "INCONCLUSIVE")])
def test_a_slow_link_does_not_hide_what_left_at_once(diagnose, ns_per_byte, timestamps, verdict):
    """At the client releases pass milliseconds after a round trip, for their bytes."""

    def held(c: Conversation, number: int) -> None:
        c.client_sends(REQUEST)
        c.server_sends(HEADER, after_ns=60 * US)
        c.client_acks(after_ns=LATE + number % 8 * MS // 2)
        c.server_sends(900, after_ns=RELEASE)

    result = diagnose(talk(held, exchanges=30, ns_per_byte=ns_per_byte, timestamps=timestamps).seen_at("client"))
    assert (result.verdict, result.summary.stalls) == (verdict, 29 if timestamps else 0)


def test_on_a_slow_link_pauses_are_no_releases(diagnose):
    """A server with TCP_NODELAY that pauses for 45 to 75 ms between two writes."""

    def pauses(c: Conversation, number: int) -> None:
        c.client_sends(REQUEST)
        header = c.server_sends(HEADER, after_ns=60 * US)
        c.client_acks(after_ns=LATE + number % 8 * MS // 2)
        c.server_sends(900, at_ns=header.ts_ns + (65 + number * 17 % 30) * MS)

    assert diagnose(talk(pauses, exchanges=60, ns_per_byte=SLOW).seen_at("client")).verdict == "CLEAN"


def thinks_and_pauses(*, holds: bool) -> Conversation:
    """A server 10 ms away that thinks for up to 60 ms, and writes the body up to 20 ms after the late ACK arrived.

    If it ``holds``, two of three bodies were written before, and leave with the ACK.
    """

    def exchange(c: Conversation, number: int) -> None:
        c.client_sends(REQUEST)
        c.server_sends(HEADER, after_ns=number * 37 % 60 * MS + 100 * US)
        c.client_acks(after_ns=LATE + number % 8 * MS // 2)
        c.server_sends(BODY, after_ns=RELEASE if holds and number % 3 else number * 37 % 91 * 20 * MS // 91)

    return talk(exchange, exchanges=91, rtt_ns=10 * MS)


def test_a_server_that_thinks_as_it_likes_shows_nothing_of_the_path(diagnose):
    """Its answers vary by 60 ms, but what left later than the ACK arrived was written later."""
    result = diagnose(thinks_and_pauses(holds=True).seen_at("client"))
    assert result.verdict == "STALL" and 60 <= result.summary.stalls <= 63


def test_one_that_only_pauses_is_clean(diagnose):
    assert diagnose(thinks_and_pauses(holds=False).seen_at("client")).verdict == "CLEAN"


def test_where_the_way_there_varies_a_release_may_leave_later(diagnose):
    """Half of the ACKs are up to 8 ms longer under way, as much as the data behind them: that is no pause."""

    def exchange(c: Conversation, number: int) -> None:
        for vary, say in enumerate((c.client_sends, c.server_sends, c.client_acks, c.server_sends)):
            c.one_way_ns = 5 * MS + (number % 2) * ((number * 29 + vary * 13) % 17) * MS // 2
            length = () if say == c.client_acks else ((REQUEST, HEADER, 0, BODY)[vary],)
            say(*length, after_ns=(20 * US, 60 * US, LATE, RELEASE)[vary])

    result = diagnose(talk(exchange, exchanges=60, rtt_ns=10 * MS).seen_at("client"))
    assert (result.verdict, result.quality.rejected["later_release"]) == ("STALL", 0)


def test_a_path_that_became_longer_makes_no_pauses_of_what_was_held(diagnose):
    """After six replies the way there takes 8 ms more: by timestamps every release leaves so much later.

    One comes 16 ms later still.
    """
    c = Conversation(rtt_ns=1 * MS)
    c.handshake()
    there, back = 8500 * US, 500 * US
    for _ in range(6):
        c.client_sends(REQUEST, after_ns=50 * MS)
        c.server_sends(BODY, after_ns=60 * US)
    for number in range(30):
        c.one_way_ns = there
        c.client_sends(REQUEST, after_ns=50 * MS)
        c.one_way_ns = back
        c.server_sends(HEADER, after_ns=60 * US)
        c.one_way_ns = there
        c.client_acks(after_ns=LATE + number % 8 * MS // 2)
        c.one_way_ns = back
        c.server_sends(BODY, after_ns=16 * MS if number == 3 else RELEASE)
    assert diagnose(c.seen_at("client")).verdict == "INCONCLUSIVE"


@pytest.mark.parametrize("unit_ms", [1, 10, 500])
def test_timestamps_of_coarse_units_say_nothing_of_the_path(diagnose, unit_ms):
    """A server with units of 500 ms echoes old timestamps, as if what the client sent had been under way."""
    c = talk(server_held, exchanges=40, rtt_ns=10 * MS)
    segments = [
        replace(one, timestamps=(one.timestamps[0] // unit_ms, one.timestamps[1]))
        if one.timestamps and one.sport == 80
        else one
        for one in c.seen_at("server")
    ]
    result = diagnose(segments)
    assert (result.verdict, result.summary.stalls) == ("STALL", 39)


@pytest.mark.parametrize(("is_second_echoed", "verdict"), [(False, "CLEAN"), (True, "CLEAN")])
def test_what_echoes_anything_older_than_the_ack_had_left_before(diagnose, is_second_echoed, verdict):
    """A request in two segments: the reply acknowledges both, and echoes the first one until the next ACK arrives.

    RFC 7323 §4.3. The capture began late, and shows nothing else about how far away the server is.
    """
    c = Conversation(rtt_ns=MS)

    def replies(length: int, at_ns: int, echo: Segment) -> Segment:
        stamps = (at_ns - c.t0_ns) // MS + 1, echo.timestamps[0]
        return c.server_sends(length, at_ns=at_ns, timestamps=stamps)

    for number in range(30):
        both = c.client_sends(REQUEST, after_ns=2 * MS), c.client_sends(20, after_ns=5 * MS)
        echo = both[is_second_echoed]
        replies(HEADER, both[1].ts_ns + c.one_way_ns + 300 * US, echo)
        ack = c.client_acks(after_ns=LATE + number % 5 * MS)
        replies(BODY, ack.ts_ns + 60 * US + number % 3 * US, echo)  # before the ACK arrives
        c.client_acks(after_ns=10 * US)
    assert diagnose(c.seen_at("client")).verdict == verdict


@pytest.mark.parametrize("step", [1, 200 * US, MS])
def test_what_followed_acks_that_the_capture_lacks_is_open_by_a_coarse_clock_too(diagnose, step):
    """In 14 exchanges the server pauses; then the capture loses all late ACKs, which release what is held."""
    lost = []

    def exchange(c: Conversation, number: int) -> None:
        c.client_sends(REQUEST)
        c.server_sends(HEADER, after_ns=200 * US)
        ack = c.client_acks(after_ns=LATE + number % 5 * MS)
        if number > 14:
            lost.append(ack)
        c.server_sends(BODY, after_ns=RELEASE if number > 14 else 15 * MS + number % 7 * MS)
        c.client_acks(after_ns=10 * US)

    captured = [one for one in talk(exchange, exchanges=40).segments if one not in lost]
    result = diagnose([replace(one, ts_ns=one.ts_ns // step * step) for one in captured])
    assert (result.verdict, result.quality.unresolved) == ("INCONCLUSIVE", {"capture_incomplete": 25})


def test_what_two_clocks_stamped_before_its_ack_is_open_with_the_rest(diagnose):
    """The client's segments are stamped 0.1 ms late, so nearly all of its late ACKs come behind what they release.

    Beside that, another server has many exchanges in which nothing waits.
    """

    def exchange(c: Conversation, number: int) -> None:
        body = 300 * US if number == 20 else RELEASE
        two_part_reply(c, header=60 * US, ack=LATE + number % 5 * MS, body=body, last_ack=200 * US)

    def answer(c: Conversation, number: int) -> None:
        c.client_sends(REQUEST)
        c.server_sends(HEADER)

    late = {"10.0.0.1": 100 * US}
    held = [replace(one, ts_ns=one.ts_ns + late.get(one.src, 0)) for one in talk(exchange, exchanges=40).segments]
    quick = talk(answer, exchanges=1000, client=("10.0.0.9", 40000), server=("10.0.0.8", 80)).segments
    result = diagnose(merge(held, quick))
    assert (result.verdict, result.quality.unresolved) == ("INCONCLUSIVE", {"capture_incomplete": 39})
