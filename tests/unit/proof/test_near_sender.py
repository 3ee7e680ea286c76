"""Captured at the sender: what its kernel released, and what its program sent when it was woken."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from nagle_lab.diagnosis.analysis import analyze
from nagle_lab.diagnosis.result.verdict import Recording, Undecided, Verdict
from support.stories import (
    BODY,
    HEADER,
    LATE,
    RELEASE,
    REQUEST,
    prompt,
    reply_in_two,
    server_held,
    talk,
    two_part_reply,
)
from support.synthetic import MS, SECOND, US, Conversation, Interface, Segment, merge, pcapng_bytes


def test_a_program_that_waits_for_the_ack_is_not_accused(diagnose):
    """It takes as long as a woken program does, and nothing ever leaves without the ACK: that cannot be told."""
    result = diagnose(talk(reply_in_two(LATE, lambda number: (130 + number % 7 * 10) * US)).segments)
    assert (result.verdict, result.summary.stalls) == ("INCONCLUSIVE", 0)
    assert result.quality.unresolved == {"like_a_program": 19}
    assert result.undecided == Undecided("like_a_program", None, Recording.ASKING_THE_KERNEL)
    assert result.concluded(Verdict.INCONCLUSIVE, "for more").undecided == result.undecided
    assert result.concluded(Verdict.CLEAN, "all the same").undecided is None


@pytest.mark.parametrize(
    ("quick_acks", "slowest_us", "verdict"),
    [(6, 20, "STALL"), (2, 20, "INCONCLUSIVE"), (6, 90, "STALL"), (2, 90, "INCONCLUSIVE")],
)
def test_one_hop_before_the_sender_releases_may_take_twice_its_answer(diagnose, quick_acks, slowest_us, verdict):
    """At the bridge that a server is behind: all that its kernel does takes 60 us there, and its client is far."""

    def exchange(c: Conversation, number: int) -> None:
        request_ack = 10 * US if number < quick_acks else None
        later_us = slowest_us if number % 7 == 0 else number % 7 * 3
        two_part_reply(c, request_ack=request_ack, ack=LATE, body=(15 + later_us) * US)

    result = diagnose(talk(exchange, 30, rtt_ns=10 * MS).seen_at(0.995))
    assert result.verdict == verdict


@pytest.mark.parametrize(("port", "says"), [(81, "10.0.0.2:81: 20 answered exchanges; 19 "), (0, "1,000 ")])
def test_a_busy_server_hides_nothing_of_another(diagnose, port, says):
    """A thousand pauses of one say nothing of twenty releases of the other, which may have been held, or not."""
    pauses = reply_in_two(LATE, lambda number: (3 + number % 9) * MS)
    busy = talk(pauses, exchanges=1000, client=("10.0.0.9", 50_000), server=("10.0.0.2", 82))
    waits = talk(reply_in_two(LATE, lambda number: (130 + number % 7 * 10) * US), server=("10.0.0.2", port))
    result = diagnose(merge(busy.segments, waits.segments) if port else busy.segments)
    assert (result.verdict, result.summary.stalls) == ("INCONCLUSIVE" if port else "CLEAN", 0)
    assert result.reason.startswith(says)


@pytest.mark.parametrize(("paused", "verdict"), [(range(1, 24, 4), "CLEAN"), ((1, 2), "INCONCLUSIVE")])
def test_pauses_as_long_after_most_early_acks_are_the_program_s(diagnose, paused, verdict):
    """Two of three say less than that: a busy machine makes a program pause now and then."""

    def exchange(c: Conversation, number: int) -> None:
        early = number in (*paused, 23)
        wait, pause = (10 * US, LATE + 2 * MS) if early else (LATE, (130 + number % 7 * 10) * US)
        two_part_reply(c, ack=wait + number % 5 * MS, body=3 * MS if number == 23 else pause)

    result = diagnose(talk(exchange, exchanges=24).segments)
    assert (result.verdict, result.summary.stalls) == (verdict, 0)
    assert (result.quality.rejected["later_release"] >= 10) is (verdict == "CLEAN")


def test_releases_that_follow_the_ack_late_are_no_pauses(diagnose):
    """A hundred connections in step on a busy machine: it releases a few, and then does something else."""

    busy = reply_in_two(LATE, lambda number: 60 * US if number < 6 else (1275 + number * 4) * US)
    result = diagnose(talk(busy, exchanges=101).segments)
    assert (result.verdict, result.summary.stalls) == ("INCONCLUSIVE", 0)
    assert result.quality.unresolved == {"like_a_program": 100}


def test_one_prompt_release_among_pauses_is_a_coincidence(diagnose):
    pauses = reply_in_two(LATE, lambda number: 20 * US if number == 7 else (3 + number) * MS)
    result = diagnose(talk(pauses, exchanges=30).segments)
    assert (result.verdict, result.summary.stalls) == ("CLEAN", 0)
    assert result.quality.unresolved == {"coincidence": 1}


@pytest.mark.parametrize("step", [10 * MS, 10 * MS + 100, SECOND / 96], ids=["10 ms", "10.0001 ms", "1/96 s"])
@pytest.mark.parametrize("is_one_fine", [False, True], ids=["alone", "beside fine stamps"])
def test_stamps_too_coarse_for_distances_decide_nothing(diagnose, step, is_one_fine):
    """Some steps have no divisor in common, and captures by two clocks have none, either."""
    c = talk(reply_in_two(LATE, lambda _: 120 * US), timestamps=False)
    coarse = [replace(s, ts_ns=int(s.ts_ns // step * step)) for s in c.segments]
    other = Conversation(client=("10.0.0.9", 50_000), t0_ns=c.segments[-1].ts_ns + 1)
    other.handshake()
    result = diagnose(merge(coarse, other.segments) if is_one_fine else coarse)
    assert result.verdict == "INCONCLUSIVE"
    assert result.quality.clock_resolution_us * US == pytest.approx(step, rel=1e-5)
    assert "coarse_clock" in result.quality.unresolved


@pytest.mark.parametrize("step", [1, 10])
def test_timestamps_of_coarse_steps_show_no_pauses(diagnose, step):
    """In a virtual machine FreeBSD's step by 10 ms: so much later may seem what was not."""

    def coarse(s: Segment) -> Segment:
        sent, echoed = s.timestamps or (0, 0)
        by_client = s.sport != 80
        known = (sent // step * step, echoed) if by_client else (sent, echoed // step * step)
        return replace(s, ts_ns=s.ts_ns // MS * MS, timestamps=known)

    result = diagnose([coarse(s) for s in talk(server_held, exchanges=40).segments])
    assert (result.verdict, result.quality.unresolved) == ("INCONCLUSIVE", {"coarse_clock": 39})


@pytest.mark.parametrize(("pause_ms", "verdict"), [(0, "INCONCLUSIVE"), (9, "CLEAN")])
def test_what_the_ack_was_longer_under_way_is_no_pause_behind_it(diagnose, pause_ms, verdict):
    """Its way varies by up to 7 ms, and by stamps of a millisecond what it released came with it."""

    def exchange(c: Conversation, number: int) -> None:
        c.client_sends(REQUEST, after_ns=50 * MS)
        c.server_sends(HEADER, after_ns=200 * US)
        c.one_way_ns += (0 if number == 3 else 4 + number % 4) * MS
        c.client_acks(after_ns=LATE)
        c.one_way_ns = 20 * MS
        c.server_sends(BODY, after_ns=RELEASE + (pause_ms + number % 5) * MS * (pause_ms > 0))

    c = talk(exchange, exchanges=40, rtt_ns=40 * MS)
    coarse = [replace(s, ts_ns=s.ts_ns // MS * MS) for s in c.seen_at("server")]
    assert diagnose(coarse).verdict == verdict


def test_what_is_stamped_before_the_ack_that_let_it_go_is_no_sign_of_nodelay(diagnose):
    """What the server sends is stamped a millisecond early; one in eight replies then comes before its request."""
    c = Conversation(rtt_ns=2 * MS, timestamps=False)
    c.handshake()
    for number in range(80):
        c.client_sends(REQUEST, after_ns=20 * MS)
        c.server_sends(HEADER, after_ns=3 * MS if number % 8 else 200 * US)
        c.client_acks(after_ns=LATE)
        c.server_sends(BODY, after_ns=RELEASE)
    early = [replace(s, ts_ns=s.ts_ns - MS * (s.sport == 80)) for s in c.seen_at("server")]
    result = diagnose(sorted(early, key=lambda s: s.ts_ns))
    assert result.verdict == "INCONCLUSIVE" and result.reason.startswith("10 times data was captured after its ack")


@pytest.mark.parametrize(("timestamps", "verdict"), [(False, "INCONCLUSIVE"), (True, "CLEAN")])
def test_timestamps_tell_of_two_clocks_that_nothing_was_held(diagnose, timestamps, verdict):
    """One write for each reply; the server's segments are stamped a millisecond early, one in eight replies first."""
    c = Conversation(rtt_ns=2 * MS, timestamps=timestamps)
    c.handshake()
    for number in range(80):
        c.client_sends(REQUEST, after_ns=20 * MS)
        c.server_sends(BODY, after_ns=3 * MS if number % 8 else 200 * US)
    early = [replace(s, ts_ns=s.ts_ns - MS * (s.sport == 80)) for s in c.seen_at("server")]
    assert diagnose(sorted(early, key=lambda s: s.ts_ns)).verdict == verdict


def test_what_is_stamped_before_the_ack_that_it_follows_is_left_open(tmp_path):
    """A tap with an interface and a clock for each direction, 41 ms apart; TCP_NODELAY, and pauses of 50 to 66 ms."""

    def pauses(c: Conversation, number: int) -> None:
        c.client_sends(REQUEST)
        header = c.server_sends(HEADER, after_ns=200 * US)
        c.client_acks(after_ns=LATE)
        c.server_sends(BODY, at_ns=header.ts_ns + (50 + number % 5 * 4) * MS)
        c.client_acks(after_ns=10 * US)

    seen = talk(pauses, timestamps=False).seen_at("server")
    tapped = [replace(s, ts_ns=s.ts_ns + 41 * MS, interface=1) if s.dport == 80 else s for s in seen]
    path = tmp_path / "tap.pcapng"
    path.write_bytes(pcapng_bytes(tapped, interfaces=[Interface(), Interface()]))
    result = analyze(path)
    assert result.verdict == "INCONCLUSIVE" and result.quality.unresolved == {"capture_incomplete": 19}


@pytest.mark.parametrize(("every", "verdict"), [(30, "INCONCLUSIVE"), (100, "CLEAN")])
def test_a_few_late_acks_that_cannot_be_told_are_enough_to_hide_a_rare_stall(diagnose, every, verdict):
    """Of 120 exchanges four, or one, may have stalled, and in no other could one have shown."""
    rare = reply_in_two(LATE, lambda number: (130 + number % 7 * 10) * US)

    def exchange(c: Conversation, number: int) -> None:
        (rare if number % every == 7 else prompt)(c, number)

    result = diagnose(talk(exchange, exchanges=120).segments)
    assert (result.verdict, result.summary.stalls) == (verdict, 0)
    assert sum(result.quality.unresolved.values()) < 0.04 * 120


@pytest.mark.parametrize("snaplen", [64, 128])
def test_where_timestamps_were_cut_off_linux_is_no_slow_stack(diagnose, snaplen):
    """Its own pure ACKs take 15 to 24 us: too long for a kernel only where a stack sends no timestamps."""
    c = Conversation()
    c.handshake(after_ns=40 * US)
    for number in range(40):
        c.client_sends(REQUEST)
        c.server_acks(after_ns=(15 + number % 10) * US)
        c.server_sends(HEADER, after_ns=200 * US)
        c.client_acks(after_ns=LATE if number > 5 else 10 * US)
        c.server_sends(BODY, after_ns=(130 + number % 7 * 10) * US)
        c.client_acks(after_ns=10 * US)
    result = diagnose(c.segments, snaplen=snaplen)
    assert (result.verdict, result.quality.unresolved) == ("INCONCLUSIVE", {"like_a_program": 34})


def slow_to_answer(answers_us: int, release_us: Callable[[int], int]) -> list[Segment]:
    """An end whose SYN/ACK and pure ACKs take ``answers_us`` or a little less; its data follows early ACKs early."""
    c = Conversation()
    c.handshake(after_ns=answers_us * US)
    for number in range(40):
        c.client_sends(REQUEST)
        c.server_acks(after_ns=(answers_us - number % 10) * US)
        c.server_sends(HEADER, after_ns=200 * US)
        c.client_acks(after_ns=LATE if number > 5 else 10 * US)
        c.server_sends(BODY, after_ns=(release_us(number) if number > 5 else 30) * US)
        c.client_acks(after_ns=10 * US)
    return c.segments


@pytest.mark.parametrize(("release", "verdict"), [(300, "STALL"), (440, "INCONCLUSIVE")])
def test_a_stack_in_user_space_or_a_path_of_100_us_is_not_three_times_as_slow(diagnose, release, verdict):
    """A program that polls its send queue takes much longer."""
    assert diagnose(slow_to_answer(140, lambda number: release + number % 7 * 10)).verdict == verdict


@pytest.mark.parametrize(("polls", "verdict"), [(False, "STALL"), (True, "INCONCLUSIVE")])
def test_who_asks_for_its_send_queue_every_two_ms_is_no_stack_in_user_space(diagnose, polls, verdict):
    """Of what follows the late ACK within 2 ms most is as soon as from a slow stack; the rest comes 1 ms later."""
    after = slow_to_answer(90, lambda number: 280 + number % 7 * 10 + 1000 * (polls and number % 5 < 2))
    assert diagnose(after).verdict == verdict


@pytest.mark.parametrize(
    ("is_bsd", "varies", "verdict"),
    [(True, MS, "STALL"), (False, MS, "INCONCLUSIVE"), (True, 0, "INCONCLUSIVE")],
    ids=["two kernels", "one", "two, and a pause as long as the timer"],
)
def test_what_follows_any_ack_of_another_kernel_as_soon_was_held(diagnose, is_bsd, varies, verdict):
    """Seen near a slow stack whose ACKs are all late; of one kernel the same tick may send both, as at a relay."""
    c = Conversation(server_is_bsd=is_bsd)
    c.handshake(after_ns=140 * US)
    for number in range(40):
        c.client_sends(REQUEST)
        c.server_acks(after_ns=(140 - number % 10) * US)
        c.server_sends(HEADER, after_ns=200 * US)
        c.client_acks(after_ns=LATE + number % 5 * varies)
        c.server_sends(BODY, after_ns=(250 + number % 7 * 10) * US)
        c.client_acks(after_ns=10 * US)
    assert diagnose(c.segments).verdict == verdict


@pytest.mark.parametrize(("spread", "verdict"), [(1, "STALL"), (12, "INCONCLUSIVE")])
def test_between_kernel_and_program_the_spread_tells(diagnose, spread, verdict):
    """A median of 55 µs at the sender: a kernel's times are alike, those of a program that is woken are not."""
    after = reply_in_two(LATE, lambda number: (50 + number % 11 * spread) * US)
    result = diagnose(talk(after, exchanges=40).segments)
    assert result.verdict == verdict


@pytest.mark.parametrize(
    ("acks_us", "release", "verdict"),
    [
        (lambda number: 90 + number % 10 * 3, 100, "STALL"),
        (
            lambda number: 90 + number % 10 * 3,
            140,
            "INCONCLUSIVE",
        ),  # as of a program that is woken by the ACK
        (None, 100, "INCONCLUSIVE"),  # one handshake is too little to tell
        (
            lambda number: 60 if number % 5 == 0 else 100,
            100,
            "INCONCLUSIVE",
        ),  # some ACKs are sooner than that
        (lambda number: 160 + number % 10 * 3, 120, "INCONCLUSIVE"),  # ACKs may wait for the program that reads
    ],
)
def test_on_a_path_of_100_us_a_release_takes_hardly_longer_than_that_kernel_s_answers(
    diagnose, acks_us, release, verdict
):
    """Captured between the two, or at the peer; a SYN is answered after 100 us."""
    c = Conversation()
    c.handshake(after_ns=100 * US)
    for number in range(40):
        c.client_sends(REQUEST)
        if acks_us:
            c.server_acks(after_ns=acks_us(number) * US)
        c.server_sends(HEADER, after_ns=400 * US)
        c.client_acks(after_ns=LATE)
        c.server_sends(BODY, after_ns=(release + number % 7 * 11) * US)
        c.client_acks(after_ns=60 * US)
    result = diagnose(c.segments)
    assert result.verdict == verdict
    assert result.summary.grounds == ({"repetition_nearby": 40} if verdict == "STALL" else {})


@pytest.mark.parametrize(
    ("first", "spread", "ground"),
    [
        (10, 2, "repetition_at_sender"),
        (30, 1, "repetition_at_sender"),  # alike
        (20, 4, "repetition_nearby"),  # as those of a program that polls its send queue every 50 µs
    ],
)
def test_what_a_woken_program_may_do_as_soon_is_not_certain(diagnose, first, spread, ground):
    after = reply_in_two(LATE, lambda number: (first + number % 11 * spread) * US)
    assert diagnose(talk(after, exchanges=40).segments).summary.grounds == {ground: 39}


@pytest.mark.parametrize(
    ("kinds", "early", "exchanges", "stalls"),
    [
        ("nnnt", 4, 43, 39),
        ("nnntnpnntnnt", 4, 43, 26),
        ("nnt", 0, 43, 42),
        ("nntnnpnntnnt", 0, 43, 28),
        ("nnt", 0, 12, 7),
        ("ntt", 0, 43, 11),
        ("t", 0, 43, 0),
    ],
)
def test_releases_that_waited_for_a_tick_at_the_peer_count_too(diagnose, kinds, early, exchanges, stalls):
    """Releases next door (n), those a tick behind the ACK (t), and pauses (p); some ACKs are early, or none."""
    behind = {"n": 70 * US, "t": 4 * MS, "p": 15 * MS}

    def exchange(c: Conversation, number: int) -> None:
        if number < early:
            prompt(c, number)
        else:
            two_part_reply(c, ack=LATE + number % 5 * MS, body=behind[kinds[number % len(kinds)]])

    assert diagnose(talk(exchange, exchanges=exchanges).segments).summary.stalls == stalls


def test_an_exchange_with_two_open_questions_is_unseen_once(diagnose):
    def exchange(c: Conversation, number: int) -> None:
        c.client_sends(REQUEST)
        for size in (HEADER, 300, 315):
            c.server_sends(size, after_ns=(130 + number % 7 * 10) * US)
            c.client_acks(after_ns=LATE + number % 5 * MS)

    result = diagnose(talk(exchange).segments)
    assert result.quality.unresolved == {"like_a_program": 2 * 19}
    assert (result.summary.exchanges, result.summary.decided_exchanges) == (20, 1)


@pytest.mark.parametrize("speaks", ["client", "server"])
def test_an_open_question_in_no_answered_exchange_hides_none_of_these(diagnose, speaks):
    """What a client reports without an answer, or a server's greetings, beside another server's stalls."""
    reports = []
    for port in range(50_000, 50_012):
        c = Conversation(client=("10.0.0.9", port), server=("10.0.0.2", 82))
        c.handshake()
        says, acknowledges = (
            getattr(c, f"{who}_{does}")
            for who, does in ((speaks, "sends"), ("server" if speaks == "client" else "client", "acks"))
        )
        says(HEADER)
        acknowledges(after_ns=LATE + port % 5 * MS)
        says(300, after_ns=(130 + port % 7 * 10) * US)
        reports.append(c.segments)
    result = diagnose(merge(talk(server_held).segments, *reports))
    assert (result.summary.exchanges, result.summary.stalled_exchanges) == (20, 19)
    assert sum(result.quality.unresolved.values()) == 12
    assert result.summary.decided_exchanges == 20


def test_connections_of_a_program_that_waits_are_not_counted_with_held_ones(diagnose):
    """On one port: four connections whose data is held, two whose program wakes 130 µs behind the ACK."""
    talks = [
        talk(reply_in_two(LATE, lambda n, woken=port > 4: (130 + n * 7 % 40) * US if woken else RELEASE),
             exchanges=11, client=("10.0.0.1", port), t0_ns=(1_700_000_000 + 3 * port) * SECOND).segments
        for port in range(1, 7)
    ]  # fmt: skip
    result = diagnose(merge(*talks))
    assert (result.verdict, result.summary.stalls) == ("STALL", 40)
    assert [c.stalls for c in result.connections] == [10, 10, 10, 10, 0, 0]


@pytest.mark.parametrize(
    ("soonest", "verdict"),
    [(5 * US, "STALL"), (20 * US, "STALL"), (55 * US, "INCONCLUSIVE")],
)
def test_where_a_third_comes_sooner_than_a_program_wakes_a_kernel_released_all(diagnose, soonest, verdict):
    """On a busy machine most releases take as long as those of a woken program."""
    story = reply_in_two(LATE, lambda number: soonest if number % 2 else 80 * US + number * US)
    result = diagnose(talk(story, exchanges=40, client=("127.0.0.1", 1), server=("127.0.0.1", 80)).segments)
    assert result.verdict == verdict


def test_a_program_that_waits_on_one_connection_says_nothing_of_another(diagnose):
    """On one the kernel holds; on the other the program asks again and again whether all is acknowledged."""

    def asks(c: Conversation, after_ns: int) -> None:
        two_part_reply(c, request_ack=3 * US, header=5 * MS, ack=LATE, body=after_ns)

    def waits(c: Conversation, number: int) -> None:
        asks(c, (100 + number * 377 % 900) * US)

    clients = [("10.0.0.1", port) for port in (1, 2, 3)]
    held = [talk(lambda c, _: asks(c, RELEASE), exchanges=6, client=client).segments for client in clients]
    waiting = talk(waits, exchanges=6, client=("10.0.0.1", 4)).segments
    result = diagnose(merge(waiting, *held))
    assert {c.client.port: c.stalls for c in result.connections} == {1: 5, 2: 5, 3: 5, 4: 0}


def test_a_pause_a_tick_behind_the_ack_is_none_of_those_that_were_held(diagnose):
    """At the peer: on one connection the kernel holds; on another the program writes 1 to 4 ms behind late ACKs."""

    def pauses(c: Conversation, number: int) -> None:
        two_part_reply(c, ack=LATE, body=(1000 + number * 700 % 3000) * US)

    held = talk(server_held, exchanges=30, client=("10.0.0.1", 1)).segments
    result = diagnose(merge(held, talk(pauses, exchanges=6, client=("10.0.0.1", 2)).segments))
    assert [(c.client.port, c.stalls) for c in result.connections] == [(1, 29), (2, 0)]


def test_what_was_written_before_the_late_ack_came_is_no_pause_as_long(diagnose):
    """A slow stack: behind early ACKs its data comes 36 ms after the trigger; behind late ones never before 43."""

    def exchange(c: Conversation, number: int) -> None:
        if number % 8 == 1:
            two_part_reply(c, ack=10 * US, body=36 * MS)
        else:
            two_part_reply(c, ack=LATE + (1 + number % 5) * MS, body=(150 + number % 7 * 10) * US)

    result = diagnose(talk(exchange, exchanges=40).segments)
    assert (result.verdict, result.quality.unresolved) == (
        "INCONCLUSIVE",
        {"like_a_program": 34},
    )


@pytest.mark.parametrize(("theirs", "verdict"), [(12, "INCONCLUSIVE"), (5, "STALL")])
def test_every_packet_twice_from_one_end_is_no_bridge(diagnose, theirs, verdict):
    """A mirror port sends each twice: pure ACKs show at whose end, and there a kernel is sooner than 70 µs.

    On a bridge those of both ends are captured as soon, and the ACK has yet to reach the sender.
    """

    def exchange(c: Conversation, number: int) -> None:
        c.client_sends(REQUEST)
        c.server_acks(after_ns=(3 + number % 3) * US)
        c.server_sends(HEADER, after_ns=100 * US)
        c.client_acks(after_ns=LATE)
        c.server_sends(BODY, after_ns=(52 + number * 7 % 50) * US)
        c.client_acks(after_ns=(theirs + number % 4) * US)

    once = talk(exchange, exchanges=30).segments
    again = [replace(segment, ts_ns=segment.ts_ns + 3 * US) for segment in once]
    assert diagnose(sorted([*once, *again], key=lambda segment: segment.ts_ns)).verdict == verdict


@pytest.mark.parametrize(("longer", "verdict", "stalls"), [(0, "CLEAN", 0), (2 * MS, "STALL", 30)])
def test_a_pause_exactly_as_long_as_the_timer_is_the_program_s(diagnose, longer, verdict, stalls):
    """Captured at a stack in user space, as promptly as a kernel; where the ACK came early, the same data comes then.

    What comes 2 ms later than that, right behind the late ACK, was held for these 2 ms.
    """
    c = Conversation()
    c.handshake()
    for number in range(40):
        early = number % 4 == 3
        two_part_reply(
            c, ack=10 * US if early else 40 * MS + longer, pause=40 * MS + RELEASE + (0 if early else longer)
        )
        c.pause(5 * MS)
    result = diagnose(c.segments)
    assert (result.verdict, result.summary.stalls) == (verdict, stalls)


@pytest.mark.parametrize(("holds", "verdict"), [(True, "INCONCLUSIVE"), (False, "CLEAN")])
def test_a_program_that_pauses_on_some_connections_may_hold_on_others(diagnose, holds, verdict):
    """Its pauses end with its peer's delayed-ACK timer; elsewhere it writes at once, on a machine that is busy."""
    talks = [Conversation(client=("10.0.0.1", 40_000 + at)) for at in range(4)]
    for at, c in enumerate(talks):
        pauses = at < 2 or not holds
        c.handshake()
        for number in range(25):
            c.client_sends(REQUEST, after_ns=10 * MS)
            c.server_sends(HEADER, after_ns=200 * US)
            c.client_acks(after_ns=43 * MS + number % 7 * 100 * US if number else 20 * US)
            spread = (160 if pauses else 40) + number * 7 % 25 * (8 if pauses else 4)
            c.server_sends(BODY, after_ns=spread * US if number else 43 * MS + at * MS if pauses else 30 * US)
    assert diagnose(merge(*(c.segments for c in talks))).verdict == verdict


@pytest.mark.parametrize(("varies", "verdict"), [(True, "INCONCLUSIVE"), (False, "CLEAN")])
def test_what_leaves_at_once_beside_pauses_may_be_held(diagnose, varies, verdict):
    """On one connection three in ten follow the late ACK as soon as from a kernel; early ACKs show pauses.

    Where these are all as long as the waits, the quick ones are pauses that ended there by chance.
    """
    c = Conversation()
    c.handshake()
    for number in range(42):
        c.client_sends(REQUEST, after_ns=10 * MS)
        c.server_sends(HEADER, after_ns=200 * US)
        c.client_acks(after_ns=43 * MS + number % 7 * 100 * US if number > 1 else 20 * US)
        wait = (15 if number % 10 < 3 else 150 + number * 7 % 80) * US
        c.server_sends(BODY, after_ns=wait if number > 1 else 43 * MS + (number * 3 * MS if varies else 0))
    assert diagnose(c.segments).verdict == verdict


@pytest.mark.parametrize(
    ("early_ms", "after_us", "verdict"),
    [(43, 75, "INCONCLUSIVE"), (43, 46, "INCONCLUSIVE"), (43, 15, "STALL"), (1, 75, "STALL")],
)
def test_what_came_as_late_behind_the_only_early_ack_may_be_a_pause(diagnose, early_ms, after_us, verdict):
    """A program that waits for a jiffy timer of 40 ms, as its peer's kernel does, and then works for 30 µs."""
    c = Conversation()
    c.handshake()
    for number in range(40):
        c.client_sends(REQUEST, after_ns=10 * MS)
        c.server_sends(HEADER, after_ns=200 * US)
        c.client_acks(after_ns=43 * MS + 600 * US if number else 20 * US)
        c.server_sends(BODY, after_ns=(after_us + number % 7) * US if number else early_ms * MS)
    assert diagnose(c.segments).verdict == verdict


@pytest.mark.parametrize(
    ("releases", "early_ms", "varies_ms", "after_us", "verdict"),
    [
        (20, 43, 4, 75, "INCONCLUSIVE"),
        (20, 43, 4, 15, "STALL"),  # as soon as a kernel
        (20, 38, 4, 75, "STALL"),  # what would have waited for 5 ms more was held
        (3, 38, 4, 75, "INCONCLUSIVE"),  # of so few hardly anything is known
        (3, 30, 4, 75, "STALL"),
        (20, 43, 40, 75, "STALL"),  # some were written at once
    ],
)
def test_who_pauses_as_long_behind_most_early_acks_may_pause_behind_late_ones(
    diagnose, releases, early_ms, varies_ms, after_us, verdict
):
    """A program that reads once per frame, and so acknowledges late; the server sends once per frame, too."""
    c = Conversation()
    c.handshake()
    for number in range(10 + releases):
        is_early = number < 10
        c.client_sends(REQUEST, after_ns=10 * MS)
        c.server_sends(HEADER, after_ns=200 * US)
        c.client_acks(after_ns=20 * US if is_early else 43 * MS + 600 * US)
        paused = early_ms * MS + (number % 5 - 2) * varies_ms * MS // 2
        c.server_sends(BODY, after_ns=max(paused, US) if is_early else (after_us + number % 7) * US)
    assert diagnose(c.segments).verdict == verdict


def in_step(wakes: int, apart: int, *, pauses: bool = False) -> list[Segment]:
    """On loopback the late ACKs of eight come at once; their end answers ``wakes`` ns later, all ``apart`` ns apart.

    It does so ten times. The last one ``pauses`` instead, for 1 to 1.5 ms behind the ACK.
    """
    talks = [Conversation(client=("127.0.0.1", 50_000 + at), server=("127.0.0.2", 80)) for at in range(8)]
    for c in talks:
        c.handshake()
    start = talks[0].client.now_ns + 10 * MS
    for number in range(10):
        begin = start + number * 100 * MS
        for at, c in enumerate(talks):
            c.client_sends(REQUEST, at_ns=begin + at * US)
            c.server_sends(HEADER, after_ns=200 * US)
            c.client_acks(at_ns=begin + LATE + (at - 8) * 2 * US)
            paused = 1 * MS + number * 50 * US if pauses and c is talks[-1] else 0
            c.server_sends(BODY, at_ns=begin + LATE + (paused or wakes + at * apart))
            c.client_acks(after_ns=2 * MS)
    return merge(*(c.segments for c in talks))


@pytest.mark.parametrize(("wakes", "apart", "verdict"), [(20, 6, "STALL"), (80, 12, "INCONCLUSIVE")])
def test_connections_in_step_queue_behind_the_first_release(diagnose, wakes, apart, verdict):
    """A kernel handles one ACK after the other; so does a relay, but first it must wake up, and each takes longer."""
    result = diagnose(in_step(wakes * US, apart * US))
    assert (result.verdict, result.summary.stalls) == (verdict, 80 if verdict == "STALL" else 0)


def test_what_pauses_beside_a_queue_does_not_stand_in_it(diagnose):
    result = diagnose(in_step(20 * US, 6 * US, pauses=True))
    assert (result.verdict, result.summary.stalls) == ("STALL", 70)


@pytest.mark.parametrize(
    ("writers", "apart", "verdict"), [(1, 2 * US, "STALL"), (1, 12 * US, "INCONCLUSIVE"), (4, 2 * US, "INCONCLUSIVE")]
)
def test_a_queue_in_the_order_of_its_acks_is_a_kernel_s(diagnose, writers, apart, verdict):
    """Captured at the peer of twenty connections in step, nothing of which was ever early.

    One thread that writes takes longer for each, several that write side by side keep no order.
    """
    talks = [Conversation(client=("10.0.0.1", 50_000 + at)) for at in range(20)]
    for c in talks:
        c.handshake(after_ns=8 * US)
    start = talks[0].client.now_ns + 10 * MS
    for begin in (start + number * 100 * MS for number in range(10)):
        for at, c in enumerate(talks):
            turn = at % writers * len(talks) // writers + at // writers if writers > 1 else at
            c.client_sends(REQUEST, at_ns=begin + at * 10 * US)
            c.server_acks(after_ns=15 * US)
            c.server_sends(HEADER, after_ns=200 * US)
            c.client_acks(at_ns=begin + LATE + (at - 20) * US // 2)
            c.server_sends(BODY, at_ns=begin + LATE + 70 * US + turn * (apart + 1 * US))
            c.client_acks(after_ns=1 * US)
    assert diagnose(merge(*(c.segments for c in talks))).verdict == verdict


@pytest.mark.parametrize(
    ("sooner", "soonest_us", "verdict"),
    [(0, 60, "STALL"), (3, 60, "INCONCLUSIVE"), (0, 25, "STALL"), (1, 25, "INCONCLUSIVE"), (1, 4, "STALL")],
)
def test_what_was_once_sent_before_its_ack_came_clears_a_relay_next_door(diagnose, sooner, soonest_us, verdict):
    """Releases as late as a woken program's may be a kernel's or a relay's; sooner ones are a kernel's."""
    c = Conversation()
    c.handshake(after_ns=20 * US)
    for number in range(60):
        c.client_sends(REQUEST, after_ns=3 * MS)
        c.server_sends(HEADER, after_ns=400 * US)
        if number in range(20, 20 + sooner):
            c.server_sends(BODY, after_ns=LATE - 20 * US)
            c.client_acks(after_ns=20 * US)
        else:
            c.client_acks(after_ns=LATE)
            c.server_sends(BODY, after_ns=(soonest_us + number % 13 * 3) * US)
        c.client_acks(after_ns=8 * US)
    result = diagnose(c.segments)
    assert result.verdict == verdict
    assert verdict == "STALL" or result.quality.unresolved == {"like_a_program": 60 - sooner}


@pytest.mark.parametrize(("answers_us", "verdict"), [(25, "INCONCLUSIVE"), (37, "STALL"), (0, "INCONCLUSIVE")])
def test_a_kernel_next_door_takes_three_answers_to_a_syn_at_most(diagnose, answers_us, verdict):
    """104 to 110 µs behind the ACK: on a slow machine a kernel's, else a relay's; without a handshake it is open."""
    c = Conversation()
    c.handshake(after_ns=max(answers_us, 1) * US)
    for number in range(40):
        c.client_sends(REQUEST, after_ns=3 * MS)
        c.server_sends(HEADER, after_ns=400 * US)
        c.client_acks(after_ns=LATE)
        c.server_sends(BODY, after_ns=(104 + number % 7) * US)
        c.client_acks(after_ns=8 * US)
    result = diagnose(c.segments if answers_us else c.segments[3:])
    assert (result.verdict, result.quality.unresolved) == (
        verdict,
        {} if verdict == "STALL" else {"like_a_program": 40},
    )
    assert result.summary.grounds == ({"repetition_nearby": 40} if verdict == "STALL" else {})


@pytest.mark.parametrize(("acks_us", "verdict"), [(5, "INCONCLUSIVE"), (30, "STALL")])
def test_one_slow_answer_to_a_syn_makes_no_slow_kernel(diagnose, acks_us, verdict):
    """Data follows 44 to 87 µs behind the ACK: a kernel's where its own ACKs are slow, too, else a program's."""
    c = Conversation(rtt_ns=2 * MS)
    c.handshake(after_ns=30 * US)
    for number in range(40):
        c.client_sends(REQUEST, after_ns=3 * MS)
        c.server_acks(after_ns=acks_us * US)
        c.server_sends(HEADER, after_ns=2 * MS)
        c.client_acks(after_ns=LATE)
        c.server_sends(BODY, after_ns=(44 + (number * 7 % 37) ** 2 // 30) * US)
        c.client_acks(after_ns=8 * US)
    result = diagnose(c.seen_at("server"))
    assert result.verdict == verdict
    assert result.quality.unresolved == ({} if verdict == "STALL" else {"like_a_program": 40})


@pytest.mark.parametrize(("slept_us", "verdict"), [(2000, "INCONCLUSIVE"), (20, "CLEAN")])
def test_a_stack_that_sleeps_before_it_answers_a_syn_may_sleep_before_it_releases(diagnose, slept_us, verdict):
    """On a small device, say: what it reads together with the ACK before it is answered at once, all else 2 ms later.

    Where the SYN was answered at once, it is the program that pauses.
    """
    c = Conversation()
    c.handshake(after_ns=slept_us * US)
    for number in range(40):
        c.client_sends(REQUEST, after_ns=50 * US)
        c.server_sends(HEADER, after_ns=(60 + number % 20) * US)
        c.client_acks(after_ns=LATE)
        c.server_sends(BODY, after_ns=(2070 + number % 4 * 10) * US)
        c.client_acks(after_ns=10 * US)
    result = diagnose(c.segments)
    assert result.verdict == verdict
    assert result.quality.unresolved.keys() == ({"own_pace"} if verdict == "INCONCLUSIVE" else set())


def test_a_slow_answer_to_a_syn_makes_no_path_on_loopback(diagnose):
    """A relay just started answers its first SYN after 1 ms; the client's ACKs show that nothing is far away."""
    c = Conversation(client=("127.0.0.1", 50_000), server=("127.0.0.2", 80))
    c.handshake(after_ns=1 * MS)
    for number in range(40):
        two_part_reply(c, header=1 * MS, ack=LATE, body=80 * US + number * 13 % 40 * 10 * US)
        c.pause(5 * MS)
    assert diagnose(c.segments).verdict == "INCONCLUSIVE"


def test_in_a_simulator_answers_take_no_time(diagnose):
    """What it holds is released in none either, so that tells nothing of what follows data that carries the ACK."""
    c = Conversation()
    c.handshake(after_ns=0)
    for number in range(30):
        c.client_sends(REQUEST, after_ns=20 * MS + number)
        c.server_acks(after_ns=0)
        c.server_sends(HEADER, after_ns=5 * MS)
        c.client_acks(after_ns=LATE)
        c.server_sends(BODY, after_ns=0)
        c.client_sends(REQUEST, after_ns=30 * MS)
        c.server_sends(100 + number, after_ns=0)
        c.client_acks(after_ns=10 * US)
    result = diagnose(c.segments)
    assert (result.verdict, result.summary.stalls) == ("STALL", 30)


@pytest.mark.parametrize(
    ("answered", "early_us", "verdict"),
    [
        (20 * US, [], "STALL"),
        (8 * US, [], "INCONCLUSIVE"),
        (8 * US, [3, 9, 19], "STALL"),
        (8 * US, [3, 30, 40], "INCONCLUSIVE"),
        (8 * US, [3, 9], "INCONCLUSIVE"),
    ],
)
def test_on_a_fast_machine_what_is_released_in_forty_microseconds_was_not(diagnose, answered, early_us, verdict):
    """A relay with TCP_NODELAY, woken by its origin's stall in the same tick; a kernel answers SYNs sooner there.

    But a kernel that is seen to hold, by what follows early ACKs, holds here, too.
    """
    c = Conversation()
    c.handshake(after_ns=answered)
    for number in range(40):
        c.client_sends(REQUEST)
        c.server_acks(after_ns=answered // 2)
        c.server_sends(HEADER, after_ns=200 * US)
        is_early = number < len(early_us)
        c.client_acks(after_ns=10 * US if is_early else LATE + number % 5 * MS)
        c.server_sends(BODY, after_ns=early_us[number] * US if is_early else 28 * US + (number * 13 % 40) ** 2 * 30)
        c.client_acks(after_ns=20 * US)
        c.pause(5 * MS)
    assert diagnose(c.segments).verdict == verdict


@pytest.mark.parametrize(("slowest_us", "verdict"), [(160, "INCONCLUSIVE"), (60, "STALL")])
def test_on_a_fast_machine_most_releases_of_a_kernel_are_no_slower_than_a_few(diagnose, slowest_us, verdict):
    """A program whose timer ends in the tick of the delayed ACK is sometimes woken within 18 µs, but mostly later."""
    c = Conversation()
    c.handshake(after_ns=6 * US)
    for number in range(60):
        c.client_sends(REQUEST)
        c.server_acks(after_ns=6 * US)
        c.server_sends(HEADER, after_ns=200 * US)
        c.client_acks(after_ns=LATE + number % 5 * MS)
        later = (number * 13 % 60 / 60) ** 4 * slowest_us * US
        c.server_sends(BODY, after_ns=(18 + number * 7 % 20) * US + round(later))
        c.client_acks(after_ns=20 * US)
        c.pause(5 * MS)
    assert diagnose(c.segments).verdict == verdict


@pytest.mark.parametrize(
    ("begun_late", "early_us", "verdict"),
    [
        (False, [], "STALL"),
        (True, [], "INCONCLUSIVE"),
        (True, [24, 24, 26, 24, 29], "STALL"),
        (True, [24, 24, 38, 38, 38], "INCONCLUSIVE"),
        (True, [60, 60, 60, 60, 60], "INCONCLUSIVE"),
        (True, [24, 24, 24], "INCONCLUSIVE"),
    ],
)
def test_where_nothing_tells_how_fast_an_end_is_only_what_no_program_does_is_a_kernel_s(
    diagnose, begun_late, early_us, verdict
):
    """Captured at a server that never acknowledges by itself, from the beginning or later on.

    What follows early ACKs, so many µs behind each, tells as well, if it comes soon, and as soon each time.
    """
    c = Conversation()
    c.handshake(after_ns=20 * US)
    for released_us in early_us:
        two_part_reply(c, ack=10 * US, body=released_us * US, last_ack=20 * US)
        c.pause(5 * MS)
    for number in range(40):
        two_part_reply(c, ack=LATE + number % 5 * MS, body=28 * US + (number * 13 % 40) ** 2 * 30, last_ack=20 * US)
        c.pause(5 * MS)
    assert diagnose(c.segments[3:] if begun_late else c.segments).verdict == verdict


@pytest.mark.parametrize(("holds", "verdict"), [(True, "INCONCLUSIVE"), (False, "CLEAN")])
def test_pauses_that_vary_end_seldom_right_behind_the_ack(diagnose, holds, verdict):
    """They take 45 to 47 ms, as the ACK does. What is written before that leaves with it, or at once."""
    c = Conversation(rtt_ns=5 * MS)
    c.handshake()
    for number in range(60):
        c.client_sends(REQUEST)
        header = c.server_sends(HEADER, after_ns=200 * US)
        ack = c.client_acks(after_ns=10 * US if number % 6 == 1 else 40 * MS + number * 13 % 60 * 33 * US)
        written = header.ts_ns + 45 * MS + number * 37 % 60 * 33 * US
        released = ack.ts_ns + c.one_way_ns + RELEASE
        c.server_sends(BODY, at_ns=max(written, released) if holds else written)
        c.client_acks(after_ns=10 * US)
        c.pause(5 * MS)
    assert diagnose(c.seen_at("server")).verdict == verdict


def test_two_releases_by_a_coarse_clock_have_a_median(diagnose):
    """Neither is between their first and their ninth decile. All others are pauses."""
    releases = {3: 100 * US, 7: 500 * US}
    c = talk(reply_in_two(LATE, lambda number: releases.get(number, 2 * MS + number % 7 * MS)), exchanges=40)
    result = diagnose([replace(s, ts_ns=s.ts_ns // (100 * US) * 100 * US) for s in c.segments])
    assert (result.verdict, result.summary.stalls) == ("INCONCLUSIVE", 0)


@pytest.mark.parametrize("count", [4, 7, 11])
def test_few_releases_that_differ_are_no_surer_than_many(diagnose, count):
    """Sixty microseconds behind the ACK a program may be woken as well; a kernel's releases are alike."""
    releases = [60, 61, 62, 62, 63, 300, 400]

    def exchange(c: Conversation, number: int) -> None:
        if number < count:
            two_part_reply(c, ack=LATE + number % 5 * MS, body=releases[-1 - number % 7] * US)
        else:
            prompt(c, number)

    on_loopback = talk(exchange, client=("127.0.0.1", 40_000), server=("127.0.0.1", 80))
    result = diagnose(on_loopback.segments)
    assert (result.verdict, result.quality.unresolved.keys()) == ("INCONCLUSIVE", {"like_a_program"})


def test_where_each_connection_is_slow_nothing_is_left_to_judge(diagnose):
    """A busy server answers SYNs in 470 µs, and sends 230 to 840 µs behind each late ACK, on both connections."""

    def exchange(c: Conversation, number: int) -> None:
        c.client_sends(REQUEST)
        c.server_acks(after_ns=90 * US)
        c.server_sends(HEADER, after_ns=MS)
        c.client_acks(after_ns=LATE + number % 5 * MS)
        c.server_sends(BODY, after_ns=(230 + number * 97 % 610) * US)

    talks = [Conversation(("10.0.0.1", 40_000 + at), t0_ns=SECOND + at * MS, rtt_ns=2 * MS) for at in range(3)]
    for c in talks:
        c.handshake(after_ns=470 * US)
    for number in range(24):
        exchange(talks[number % 2], number)
    result = diagnose(merge(*(c.seen_at("server") for c in talks)))
    assert result.verdict == "INCONCLUSIVE" and result.quality.unresolved["like_a_program"] == 24


@pytest.mark.parametrize(("wait_ms", "unresolved"), [(40, 8), (44, 0)])
def test_a_pause_does_not_end_sooner_than_any_other(diagnose, wait_ms, unresolved):
    """A server that pauses for 44 ms between two writes, behind early ACKs, too; but some data follows its ACK."""

    def exchange(c: Conversation, number: int) -> None:
        is_early, is_prompt = number % 4 == 0, number % 4 == 1
        wait = 10 * US if is_early else wait_ms * MS if is_prompt else LATE
        two_part_reply(c, ack=wait, pause=wait + 40 * US if is_prompt else 44 * MS + number % 7 * 9 * US)

    result = diagnose(talk(exchange, exchanges=32, first=exchange).segments)
    assert result.quality.unresolved == ({"like_a_program": unresolved} if unresolved else {})
