"""Both ends speak of their own accord, and data carries the ACKs: what was held, and what only looks so."""

import heapq
from dataclasses import replace
from functools import partial
from itertools import accumulate

import pytest

from support.stories import (
    BODY,
    HEADER,
    LATE,
    RELEASE,
    REQUEST,
    acks_on_data_and_alone,
    talk,
    two_part_reply,
)
from support.synthetic import MS, SECOND, US, Conversation, Segment, merge


def chat(
    writes: list[int],
    ticks: list[int],
    *,
    rtt_ns: int,
    nagle: bool = True,
    answers: tuple[int, ...] = (50,),
    varies_ns: int = 0,
    release_ns: int = RELEASE,
) -> Conversation:
    """A client writes 40 B at these times, ns, and its kernel holds what Nagle's algorithm tells it to.

    The server sends segments of those sizes at its own times, each of which acknowledges what has arrived. The path
    delays some by up to three times as long as ``varies_ns``.
    """
    c = Conversation(rtt_ns=rtt_ns)
    c.handshake()
    start, way = c.t0_ns + SECOND, rtt_ns // 2
    events = [(start + at, "write", 0) for at in writes] + [(start + at, "tick", 0) for at in ticks]
    heapq.heapify(events)
    waiting = sent = acked = sent_at = 0
    while events:
        now, what, covers = heapq.heappop(events)
        if what == "tick":
            for number, size in enumerate(answers):
                c.server_sends(size, at_ns=now + number * 20 * US)
            arrives = now + way + release_ns + len(events) % 4 * varies_ns
            heapq.heappush(events, (arrives, "ack", sent if sent_at + way <= now else sent - 1))
        elif what == "ack":
            acked = max(acked, covers)
        else:
            waiting += 40
        if waiting and (acked == sent or not nagle):
            c.client_sends(waiting, at_ns=now)
            waiting, sent, sent_at = 0, sent + 1, now
    return c


PAIRS_OF_WRITES = [at + more for at in range(0, 6 * SECOND, 70 * MS) for more in (0, 2 * MS)]
SOMETIMES_PAIRS = [
    at + more for at in range(0, 6 * SECOND, 47 * MS) for more in (0, 2 * MS) if not more or at // (47 * MS) % 4 == 0
]
OFTEN = [at + 3 * MS + at // (5 * MS) % 7 * 300 * US for at in range(0, 6 * SECOND, 15 * MS)]


@pytest.mark.parametrize(
    ("nagle", "position", "verdict"),
    [
        (True, "client", "STALL"),
        (True, "server", "INCONCLUSIVE"),
        (False, "client", "CLEAN"),
        (False, "server", "CLEAN"),
    ],
)
def test_what_leaves_only_with_the_data_that_acknowledges_it_was_held(diagnose, nagle, position, verdict):
    """The peer's data comes every 15 ms, and hardly any of it is followed at once; the client's crosses it."""
    result = diagnose(chat(PAIRS_OF_WRITES, OFTEN, rtt_ns=20 * MS, nagle=nagle).seen_at(position))
    assert result.verdict == verdict
    assert result.summary.held_by == ("client" if verdict == "STALL" else None)
    assert result.quality.unresolved.get("ack_on_data", 0) >= (50 if verdict == "INCONCLUSIVE" else 0)


@pytest.mark.parametrize(("nagle", "verdict"), [(True, "INCONCLUSIVE"), (False, "CLEAN")])
def test_what_takes_longer_than_an_answer_to_a_syn_may_be_held(diagnose, nagle, verdict):
    """Both ends write every 10 to 30 ms; the one that holds takes 1.7 times as long for it as for a SYN's answer."""
    writes, ticks = (
        list(accumulate((10 + number * step % 20) * MS + number * 37 * US for number in range(300)))
        for step in (7, 13)
    )
    c = chat(writes, ticks, rtt_ns=2 * MS, nagle=nagle, release_ns=34 * US)
    assert diagnose(c.seen_at("client")).verdict == verdict


def test_what_comes_at_other_times_too_does_not_hide_what_was_held(diagnose):
    """At the sender; on a path of 20 ms most of the writes come within that after data which acknowledged all."""
    result = diagnose(chat(SOMETIMES_PAIRS, OFTEN, rtt_ns=20 * MS).seen_at("client"))
    assert (result.verdict, result.summary.held_by) == ("STALL", "client")
    assert 45 <= result.summary.stalls <= 50


@pytest.mark.parametrize("answers", [(50,), (50, 60)])
def test_the_first_of_two_segments_may_have_released_what_follows_both(diagnose, answers):
    """Away from the sender a round trip lies between; the second one acknowledges nothing that the first did not."""
    writes, ticks = range(0, 4 * SECOND, 27 * MS), range(0, 4 * SECOND, 33 * MS)
    c = chat(list(writes), list(ticks), rtt_ns=20 * MS, answers=answers, varies_ns=200 * US)
    result = diagnose(c.seen_at("server"))
    assert (result.verdict, result.summary.stalls) == ("INCONCLUSIVE", 0)
    assert result.quality.unresolved["ack_on_data"] >= 100


@pytest.mark.parametrize(("spread", "verdict"), [(1, "STALL"), (6, "INCONCLUSIVE")])
def test_a_program_that_is_woken_is_not_accused_for_being_quick(diagnose, spread, verdict):
    """A median of 61 us where SYNs are answered in 40: its times vary, a kernel's do not. It also speaks unasked."""
    c = Conversation(rtt_ns=10 * MS)
    c.handshake(after_ns=40 * US)
    for number in range(60):
        c.client_sends(60, after_ns=(61 + (number % 11 - 5) * spread) * US)
        if number % 5 == 4:
            c.server_acks(after_ns=10 * US)
            c.client_sends(60, after_ns=25 * MS)
        c.server_sends(200, after_ns=12 * MS)
    assert diagnose(c.seen_at("client")).verdict == verdict


def test_an_answer_among_what_was_held_is_not_counted(diagnose):
    """Most of what follows data comes as soon as behind pure ACKs, and some only when the program was woken."""
    result = diagnose(acks_on_data_and_alone(alone_every=10).seen_at("client"))
    assert (result.verdict, result.summary.grounds) == ("STALL", {"repetition_at_sender": 6, "data_acks": 36})


@pytest.mark.parametrize("sizes", [(20, 40), (5, 40, 305), (200,)])
@pytest.mark.parametrize("rtt", [0, 20 * MS])
def test_question_and_answer_in_one_write_each_are_no_merged_writes(diagnose, sizes, rtt):
    """The next request carries the ACK of the reply before it, late; what follows it is an answer."""

    def ask(c: Conversation, number: int) -> None:
        c.client_sends(REQUEST)
        c.server_sends(sizes[number % len(sizes)], after_ns=40 * US)
        c.pause(20 * MS)

    for position in ("client", "server"):
        result = diagnose(talk(ask, exchanges=60, rtt_ns=rtt).seen_at(position))
        assert (result.verdict, result.summary.stalls) == ("CLEAN", 0)


def speak_at_will(c: Conversation, number: int, *, nagle: bool = True) -> None:
    """Both ends speak when they like; what the server writes meanwhile leaves with the ACK that data carries."""
    c.client_sends(20 + 7 * number % 90)
    c.server_acks(after_ns=LATE + number % 5 * MS)
    c.client_sends(33 + number % 11, after_ns=9 * MS if number % 3 else RELEASE)
    c.server_sends(41 + 5 * number % 70, after_ns=18 * MS)
    if not nagle:
        c.server_sends(27 + number % 50, after_ns=12 * MS)
    c.client_sends(25 + number % 60, after_ns=15 * MS)
    if nagle:
        c.server_sends(60 + 3 * number % 80, after_ns=RELEASE)
    c.client_acks(after_ns=LATE + number % 4 * MS)
    c.server_sends(31 + number % 40, after_ns=7 * MS if number % 4 else RELEASE)


@pytest.mark.parametrize("rtt", [0, 10 * MS])
def test_what_data_acks_release_is_held_too_where_both_ends_speak_when_they_like(diagnose, rtt):
    for position in ("client", "server"):
        result = diagnose(talk(speak_at_will, exchanges=60, rtt_ns=rtt).seen_at(position))
        assert result.verdict == "STALL"
        assert result.summary.grounds["data_acks"] >= 50


def test_an_end_that_speaks_beside_unacknowledged_data_holds_nothing(diagnose):
    free = partial(speak_at_will, nagle=False)
    result = diagnose(talk(free, exchanges=60).seen_at("server"))
    assert "data_acks" not in result.summary.grounds


@pytest.mark.parametrize("rtt", [0, 10 * MS])
@pytest.mark.parametrize("is_same_client", [True, False])
def test_what_is_held_on_one_connection_is_counted_beside_others_that_do_not_wait(diagnose, rtt, is_same_client):
    """One client of a chat has lost TCP_NODELAY, the others have it."""
    talks = []
    for number in range(3):
        client = ("10.0.0.1", 40_000 + number) if is_same_client else (f"10.0.0.{10 + number}", 40_000)
        talks.append(Conversation(client, t0_ns=(1_700_000_000 + 7 * number) * SECOND, rtt_ns=rtt))
        talks[-1].handshake()
        for at in range(60):
            speak_at_will(talks[-1], at, nagle=number == 1)
    for position in ("client", "server"):
        result = diagnose(merge(*(c.seen_at(position) for c in talks)))
        assert result.verdict == "STALL"
        assert result.summary.grounds["data_acks"] >= 50, position


def test_always_held_until_data_carries_the_ack_is_never_clean_at_the_sender(diagnose):
    """As soon behind each request as only a kernel is: it looks like an answer, but no program is so fast."""

    def tick(c: Conversation, number: int) -> None:
        c.client_sends(50)
        c.server_sends(30 + 13 * number % 170, after_ns=(20 + number % 5) * US)
        c.pause(20 * MS)

    c = Conversation()
    c.handshake(after_ns=20 * US)
    for number in range(60):
        tick(c, number)
    result = diagnose(c.segments)
    assert (result.verdict, set(result.quality.unresolved)) == ("INCONCLUSIVE", {"ack_on_data"})


@pytest.mark.parametrize(("by_a_clock", "verdict"), [(True, "INCONCLUSIVE"), (False, "CLEAN")])
def test_away_from_the_sender_data_between_ticks_of_the_peer_is_an_answer_or_held(diagnose, by_a_clock, verdict):
    """The server's data carries the ACK; whether it asks for what follows, its clock tells: then it did not wait."""

    def tick(c: Conversation, number: int) -> None:
        if by_a_clock:
            c.server_sends(50, at_ns=c.t0_ns + SECOND + number * 33 * MS)
        else:
            c.server_sends(50, after_ns=23 * MS)
        c.client_sends(84, after_ns=(5 + number * 37 % 300) * US)

    segments = talk(tick, exchanges=60, rtt_ns=10 * MS).seen_at("server")
    for some in (segments, segments[3:]):  # without the handshake its reactions tell how far away it is
        result = diagnose(some)
        assert (result.verdict, result.summary.stalls) == (verdict, 0)
        assert result.quality.unresolved.get("ack_on_data", 0) == (58 if by_a_clock else 0)
    coarse = [replace(segment, ts_ns=segment.ts_ns // (50 * US) * 50 * US) for segment in segments]
    assert diagnose(coarse).quality.unresolved == ({"coarse_clock": 58} if by_a_clock else {})


@pytest.mark.parametrize(("early", "verdict"), [(True, "STALL"), (False, "INCONCLUSIVE")])
def test_what_early_acks_are_seen_to_release_is_held_until_data_carries_the_ack(diagnose, early, verdict):
    """At the sender, as soon as its kernel: an answer takes a program, and early pure ACKs show Nagle's algorithm."""

    def ticks(c: Conversation, number: int) -> None:
        if early and number % 10 == 1:
            c.server_acks(after_ns=10 * US)
            c.client_sends(44, after_ns=25 * US)
        c.server_sends(50, after_ns=23 * MS)
        c.client_sends(84, after_ns=25 * US)

    result = diagnose(talk(ticks, exchanges=60, rtt_ns=10 * MS).seen_at("client"))
    assert result.verdict == verdict
    assert result.summary.grounds.get("data_acks", 0) >= (50 if early else 0)


@pytest.mark.parametrize("rtt", [0, 10 * MS])
def test_writes_that_are_merged_by_the_time_they_waited_were_held(diagnose, rtt):
    """60 B every 20 ms, sent with the ACK that comes every 28 to 34 ms: no answer grows with the time."""

    def ticks(c: Conversation, number: int) -> None:
        c.server_sends(30, after_ns=(18 + 7 * number % 6) * MS + (10 * MS - rtt))
        if number % 12 == 7:
            c.client_acks(after_ns=LATE)  # it has nothing to say: so it does not answer
        due = 60 * ((c.client.now_ns - c.t0_ns) // (20 * MS)) - (c.client.next_seq - first)
        c.client_sends(due or 60, after_ns=RELEASE)

    c = Conversation(rtt_ns=rtt)
    c.handshake()
    first = c.client.next_seq
    for number in range(120):
        ticks(c, number)
    for position in ("client", "server"):
        result = diagnose(c.seen_at(position))
        assert (result.verdict, result.summary.held_by) == ("STALL", "client")
        assert result.summary.grounds["merged_writes"] >= 90


def ticking(c: Conversation) -> list[Segment]:
    """Two writes of 84 B together, sent with the ACK on the peer's data; now and then each by itself."""
    c.handshake()
    for number in range(60):
        if number % 10:
            c.client_sends(84, after_ns=2 * RELEASE)
        else:
            c.client_sends(40, after_ns=2 * RELEASE)
            c.server_acks(after_ns=RELEASE)
            c.client_sends(44, after_ns=5 * MS)
        c.server_sends(30, after_ns=(30 + number % 4) * MS)
    return c.segments


def test_what_may_be_merged_writes_stays_open_by_a_coarse_clock(diagnose):
    coarse = [replace(s, ts_ns=s.ts_ns // MS * MS) for s in ticking(Conversation())]
    result = diagnose(coarse)
    assert (result.verdict, result.quality.unresolved) == ("INCONCLUSIVE", {"coarse_clock": 58})


def test_without_a_handshake_what_no_woken_program_sends_so_soon_stays_open(diagnose):
    result = diagnose(ticking(Conversation())[3:])
    assert (result.verdict, result.quality.unresolved) == ("INCONCLUSIVE", {"ack_on_data": 59})


def test_without_a_handshake_waits_of_any_length_are_no_path_that_varies(diagnose):
    """Nothing shows how long the path takes."""
    c = Conversation()
    for number in range(60):
        c.client_sends(50, after_ns=(6 + number * 7 % 33) * MS)
        c.server_sends(30 + 13 * number % 170, after_ns=(20 + number % 5) * US)
    result = diagnose(c.segments)
    assert (result.verdict, set(result.quality.unresolved)) == ("INCONCLUSIVE", {"ack_on_data"})


@pytest.mark.parametrize(("answers_us", "verdict"), [(15, "INCONCLUSIVE"), (150, "CLEAN")])
def test_an_answer_is_later_than_anything_that_early_acks_release(diagnose, answers_us, verdict):
    """Seen at a client that asks again 25 ms after a reply; the first part of each was acknowledged at once."""

    def ask(c: Conversation, number: int) -> None:
        c.client_sends(REQUEST, after_ns=(25 + number % 6) * MS)
        c.server_sends(HEADER, after_ns=answers_us * US + number % 7 * US)
        c.client_acks(after_ns=10 * US)
        c.server_sends(BODY, after_ns=RELEASE)

    assert diagnose(talk(ask, exchanges=60, rtt_ns=10 * MS).seen_at("client")).verdict == verdict


def test_a_quick_client_whose_questions_are_seldom_answered_late_is_clean_without_its_handshake(diagnose):
    c = Conversation()
    c.handshake()
    for number in range(100):
        c.client_sends(101, after_ns=RELEASE)
        c.server_sends(615, after_ns=(3 if number % 5 else 30) * MS + number * US)
    assert diagnose(c.segments[3:]).verdict == "CLEAN"


@pytest.mark.parametrize(
    ("after", "elsewhere", "position", "verdict"),
    [
        (3 * US, 3 * US, "client", "INCONCLUSIVE"),
        (3 * US, 3 * US, "server", "INCONCLUSIVE"),
        (3 * US, 50 * MS, "client", "INCONCLUSIVE"),
        (3 * US, 50 * MS, "server", "STALL"),  # the program takes longer where there is nothing to let go
        (90 * US, 50 * MS, "client", "CLEAN"),
        (90 * US, 50 * MS, "server", "CLEAN"),
    ],
)
def test_data_as_soon_as_a_syn_is_answered_may_have_been_held_until_the_ack(
    diagnose, after, elsewhere, position, verdict
):
    """Each of the client's segments carries an ACK that is 25 ms late; a kernel, or a program, sends what follows."""

    def ask(c: Conversation, number: int) -> None:
        c.client_sends(REQUEST, after_ns=25 * MS)
        c.server_sends(HEADER, after_ns=after)
        if number % 5 == 0:  # pure ACKs tell which end the capture is at
            c.client_acks(after_ns=3 * US)
            c.client_sends(REQUEST, after_ns=50 * MS)
            c.server_acks(after_ns=3 * US)
            c.server_sends(HEADER, after_ns=elsewhere)

    c = talk(ask, exchanges=60, rtt_ns=10 * US)
    assert diagnose(c.seen_at(position)).verdict == verdict


@pytest.mark.parametrize(("pause", "verdict"), [(20 * US, "INCONCLUSIVE"), (20 * MS, "CLEAN")])
def test_on_a_path_that_varies_what_follows_data_may_have_been_held(diagnose, pause, verdict):
    """Data right behind early ACKs shows that the server holds; if it pauses then, its other data is an answer."""
    c = Conversation(rtt_ns=10 * MS)
    c.handshake()
    for number in range(40):
        jitter = number * 13 % 40 * 151 * US
        c.client_sends(REQUEST)
        c.server_acks(after_ns=20 * US + jitter)
        c.server_sends(HEADER, after_ns=5 * MS)
        c.client_acks(after_ns=10 * US)
        c.server_sends(BODY, after_ns=pause + jitter)
        c.client_sends(100, after_ns=45 * MS + number % 7 * MS)
        c.server_sends(BODY, after_ns=1700 * US + number * 13 % 40 * 11 * US)
        c.client_acks(after_ns=10 * US)
        c.pause(5 * MS)
    result = diagnose(c.seen_at("client"))
    assert (result.verdict, result.summary.stalls) == (verdict, 0)


@pytest.mark.parametrize(("in_two", "held"), [(False, 20), (True, 20 + 2 * 21)])
def test_answers_of_a_tight_loop_are_of_other_lengths_than_what_was_held(diagnose, in_two, held):
    """At a client that asks in two writes, held until a pure ACK, and then answers questions within 15 us.

    Or it asks in two writes then, too, held until the answer to the first.
    """
    c = Conversation(rtt_ns=4 * MS)
    c.handshake(after_ns=12 * US)
    for number in range(21):
        c.client_sends(250)
        c.server_acks(after_ns=10 * US if not number else 40 * MS + number % 5 * MS)
        c.client_sends(99, after_ns=RELEASE)
        for asked, told in ((186, 59), (81, 34)):
            c.server_sends(asked, after_ns=15 * MS)
            c.client_sends(250 if in_two else told, after_ns=RELEASE)
            if in_two:
                c.server_sends(asked, after_ns=15 * MS)
                c.client_sends(99, after_ns=RELEASE)
        c.server_sends(55, after_ns=20 * MS)
    result = diagnose(c.seen_at("client"))
    assert (result.verdict, result.summary.stalls) == ("STALL", held)


def test_on_a_path_that_varies_a_late_answer_is_no_delayed_ack(diagnose):
    """Two writes each time: the second is held for a round trip, which is 23 to 34 ms, as pure ACKs show, too."""
    c = Conversation(rtt_ns=22 * MS)
    c.handshake()
    for number in range(60):
        later = (1 + number * 7 % 11) * MS
        c.client_sends(289, after_ns=120 * US)
        if number % 6:
            c.server_sends(100, after_ns=later)
        else:
            c.server_acks(after_ns=later)
        c.client_sends(289, after_ns=(5 + number % 3) * US)
        c.server_sends(60, after_ns=MS)
    result = diagnose(c.seen_at("client"))
    assert (result.verdict, result.summary.stalls) == ("CLEAN", 0)


def test_what_is_held_on_one_connection_accuses_no_answers_on_another(diagnose):
    """Its client thinks for 30 ms, and asks again before its ACK is due; the answers are as quick as releases."""

    def thinks(c: Conversation, number: int) -> None:
        c.client_sends(REQUEST, after_ns=30 * MS)
        c.server_sends(BODY, after_ns=(83 + number % 5) * US)

    def held(c: Conversation, number: int) -> None:
        two_part_reply(c, header=5 * MS if number % 4 else 200 * US, ack=LATE, body=(58 + number % 5) * US)

    others = talk(thinks, exchanges=40, client=("10.0.0.1", 50_001))
    result = diagnose(merge(talk(held, exchanges=30).segments, others.segments))
    assert (result.verdict, result.summary.stalls) == ("STALL", 29)


def test_slow_answers_are_no_sign_that_quick_ones_were_held(diagnose):
    """A client thinks for 30 ms. Every other reply leaves in two writes, some after 5 ms."""

    def exchange(c: Conversation, number: int) -> None:
        c.client_sends(REQUEST, after_ns=30 * MS)
        c.server_sends(HEADER, after_ns=5 * MS if number % 8 < 2 else (20 + number % 5) * US)
        if number % 2:
            c.client_acks(after_ns=LATE + number % 3 * MS)
            c.server_sends(BODY, after_ns=(15 + number % 5) * US)

    result = diagnose(talk(exchange, exchanges=60).segments)
    assert (result.verdict, result.summary.stalls) == ("STALL", 30)
    assert result.quality.unresolved["ack_on_data"] >= 40


@pytest.mark.parametrize("varies", [0, 11 * US])
def test_one_write_as_large_as_two_others_is_an_answer_where_its_times_vary(diagnose, varies):
    """A client thinks for 120 ms. Now and then the reply leaves in two writes, and the first is acknowledged at once.

    Where the times do not vary, only a kernel would be so regular: then two writes were held, and merged.
    """
    c = Conversation()
    c.handshake()
    for number in range(60):
        c.client_sends(REQUEST, after_ns=120 * MS + number * 7 % 30 * MS)
        after = 75 * US + (number * 5 % 11 - 5) * varies
        if number % 8 == 3:
            c.server_sends(HEADER, after_ns=after)
            c.client_acks(after_ns=10 * US)
            c.server_sends(BODY, after_ns=RELEASE)
        else:
            c.server_sends(HEADER + BODY, after_ns=after)
    result = diagnose(c.segments)
    assert result.verdict == ("INCONCLUSIVE" if varies else "STALL")
    assert result.quality.unresolved == ({"ack_on_data": 59} if varies else {})


def test_answers_are_as_quick_where_the_question_acknowledged_nothing_new(diagnose):
    """A server writes twice, and the first is acknowledged at once; the second at once, or by the next question."""
    c = Conversation(rtt_ns=5 * MS)
    c.handshake(after_ns=30 * US)
    for number in range(60):
        c.client_sends(REQUEST, after_ns=(28 + number % 6) * MS + number * US)
        c.server_sends(50, after_ns=(25 + number * 7 % 30) * US)
        c.client_acks(after_ns=10 * US)
        c.server_sends(615, after_ns=RELEASE)
        if number % 3 == 0:
            c.client_acks(after_ns=10 * US)
    assert diagnose(c.seen_at("server")).verdict == "CLEAN"


@pytest.mark.parametrize(
    ("acked_every", "told", "told_us", "answers_us", "position", "verdict"),
    [
        (4, 98, 15, 60, "client", "STALL"),
        (40, 98, 15, 60, "client", "INCONCLUSIVE"),  # hardly any answers to data that acknowledges nothing new
        (4, 12, 15, 60, "client", "CLEAN"),  # as long as its answers: it may have been awake
        (4, 98, 60, 60, "client", "CLEAN"),  # as late as its answers
        (4, 98, 15, 18, "client", "CLEAN"),  # answers as soon
        (4, 98, 15, 60, "server", "CLEAN"),  # the path is in between
    ],
)
def test_what_a_kernel_sends_stands_apart_from_a_program_s_answers(
    diagnose, acked_every, told, told_us, answers_us, position, verdict
):
    """A broker's client: it answers what it gets, and tells something itself in one of four exchanges."""
    c = Conversation(rtt_ns=8 * US)
    c.handshake(after_ns=15 * US)
    for number in range(80):
        c.server_sends(90, after_ns=(7 + number * 7 % 11) * MS)
        if number % 4 == 1:
            c.client_sends(told, after_ns=told_us * US)  # written 3 ms ago
            c.server_sends(15, after_ns=200 * US)
        if number % 4 == 2:
            c.client_acks(after_ns=1 * US)
        c.client_sends(12, after_ns=(answers_us + number * 5 % 40) * US)
        if number % acked_every == 3:
            c.server_acks(after_ns=1 * US)
    result = diagnose(c.seen_at(position))
    assert result.verdict == verdict
    assert result.summary.stalls == (20 if verdict == "STALL" else 0)


def test_where_most_is_a_kernel_s_what_comes_a_little_later_was_held_too(diagnose):
    """Each fifth time it takes 40 us. Answers to data that acknowledges nothing new take 300 us."""
    c = Conversation(rtt_ns=8 * US)
    c.handshake(after_ns=15 * US)
    for number in range(80):
        c.server_sends(90, after_ns=(7 + number * 7 % 11) * MS)
        if number % 4 == 2:
            c.client_acks(after_ns=1 * US)
        c.client_sends(98, after_ns=(15 if number % 5 else 40) * US)
        if number % 4 == 3:
            c.server_acks(after_ns=1 * US)
            c.server_sends(90, after_ns=7 * MS)
            c.client_sends(12, after_ns=300 * US)
    result = diagnose(c.seen_at("client"))
    assert (result.verdict, result.summary.stalls) == ("STALL", 79)  # nothing comes before the first


@pytest.mark.parametrize(("pushes", "verdict"), [(True, "INCONCLUSIVE"), (False, "CLEAN")])
def test_what_follows_data_that_the_peer_pushes_by_a_clock_may_have_been_held(diagnose, pushes, verdict):
    """A remote desktop: a picture every 33 ms; the pointer every 16, each second movement right behind a picture."""
    c = Conversation()
    c.handshake(after_ns=15 * US)
    for number in range(80):
        since = (14 + number * 7 % 5 * 3) * MS  # the movement before comes at any time between two pictures
        c.client_sends(6, at_ns=c.t0_ns + number * 33 * MS + since)
        c.server_sends(216, at_ns=c.t0_ns + (number + 1) * 33 * MS + (0 if pushes else since - 14 * MS))
        c.client_sends(6, after_ns=(36 + number % 9) * US)
        c.server_acks(after_ns=10 * US)
    result = diagnose(c.segments)
    assert (result.verdict, set(result.quality.unresolved)) == (verdict, {"ack_on_data"} if pushes else set())


def test_a_busy_server_that_answers_many_in_turn_keeps_no_clock(diagnose):
    """60 clients ask four times; the first and the third answer come late, 18 ms apart on each connection."""
    talks = []
    for number in range(60):
        c = Conversation(client=("10.0.0.1", 40_000 + number))
        c.handshake(after_ns=15 * US)
        asked = c.t0_ns + 50 * MS
        c.client_sends(REQUEST, at_ns=asked)
        c.server_sends(BODY, at_ns=asked + (8 + number % 3) * MS)
        c.client_sends(REQUEST, after_ns=(36 + number % 9) * US)
        c.server_sends(BODY, after_ns=300 * US)
        c.client_sends(REQUEST, after_ns=(1 + number % 5) * MS)
        c.server_sends(BODY, at_ns=asked + (26 + number % 3) * MS)
        c.client_sends(REQUEST, after_ns=(36 + number % 9) * US)
        c.server_sends(BODY, after_ns=300 * US)
        c.close()
        talks.append(c.segments)
    assert diagnose(merge(*talks)).verdict == "CLEAN"


@pytest.mark.parametrize("late", [6, 1])
def test_who_asks_again_at_once_sends_no_data_of_its_own(diagnose, late):
    """A server answers every 10 ms; its client asks again at once, or, one time in ``late``, when it has time to."""
    c = Conversation()
    c.handshake(after_ns=15 * US)
    begin = c.t0_ns
    for number in range(1, 120):
        c.client_sends(REQUEST, after_ns=(36 + number % 9) * US if number % late or late == 1 else number % 7 * MS)
        c.server_sends(BODY, at_ns=begin + number * 10 * MS)
    assert diagnose(c.segments).verdict == "CLEAN"


@pytest.mark.parametrize(("sizes", "verdict"), [((6, 12, 18), "INCONCLUSIVE"), ((6, 13, 20), "CLEAN")])
def test_sums_of_sizes_at_the_peer_may_be_merged_writes(diagnose, sizes, verdict):
    """A client sends the pointer's movements by threes, each as soon as a picture comes; captured at the server."""
    c = Conversation()
    c.handshake(after_ns=15 * US)
    c.client_sends(6)
    for number in range(1, 40):
        c.server_sends(216, at_ns=c.t0_ns + number * 33 * MS)
        c.client_sends(sizes[1 + number % 5 // 4], after_ns=(40 + number * 7 % 12) * US)
    assert diagnose(c.segments).verdict == verdict


def test_data_that_is_stamped_before_the_ack_it_is_behind_proves_nothing(diagnose):
    """A client asks again as soon as it is answered, after 45 ms; what the server sends is stamped 3 ms late."""

    c = Conversation(rtt_ns=40 * US)
    c.handshake()
    for number in range(61):
        c.client_sends(100, after_ns=(30 + number % 5) * US)
        c.server_sends(40, after_ns=(45 + number % 4) * MS)
    server = c.server.port
    result = diagnose([replace(s, ts_ns=s.ts_ns + 3 * MS) if s.sport == server else s for s in c.seen_at("client")])
    assert (result.verdict, result.quality.unresolved) == ("INCONCLUSIVE", {"capture_incomplete": 60})


def four_messages(c: Conversation, number: int, *, held: bool) -> None:
    """60 B, 110 B, 10 B and, as an answer or held behind the 110 B, 70 B; at first 110 B are acknowledged at once."""
    c.client_sends(60)
    c.server_sends(110, after_ns=100 * US)
    if number == 0:
        c.client_acks(after_ns=10 * US)
        if held:
            c.server_sends(70, after_ns=RELEASE)
    c.client_sends(10, after_ns=(20 + number % 3) * MS)
    if held and number == 0:
        c.server_acks(after_ns=10 * US)
    else:
        c.server_sends(70, after_ns=RELEASE if held else 100 * US)


@pytest.mark.parametrize("noise", [0, 150 * US])
@pytest.mark.parametrize(("held", "verdict"), [(True, "INCONCLUSIVE"), (False, "CLEAN")])
def test_what_answers_nothing_where_a_connection_begins_may_be_held_later(diagnose, held, verdict, noise):
    """Away from the sender, on a path that may vary by more than usual, two connections begin."""
    pair = []
    for port in (40_001, 40_002):
        c = Conversation(client=("10.0.0.1", port), rtt_ns=2 * MS)
        c.handshake(after_ns=4 * noise)
        for number in range(22):
            four_messages(c, number, held=held)
        pair.append(c.seen_at("middle"))
    late = [replace(s, ts_ns=s.ts_ns + 3 * noise * (s.length == 70)) for s in merge(*pair)]
    result = diagnose(late)
    assert result.verdict == verdict
    assert result.quality.unresolved.get("ack_on_data", 0) == (42 if held else 0)
