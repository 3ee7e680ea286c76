"""Captured away from the sender: what was released a round trip behind the ACK, and what came then by itself."""

import random
from collections import Counter, defaultdict
from dataclasses import replace
from types import SimpleNamespace

import pytest

from nagle_lab.diagnosis.observed.candidates import Candidates
from nagle_lab.diagnosis.observed.columns import Numbers, as_column
from nagle_lab.diagnosis.observed.programs import Reactions
from nagle_lab.diagnosis.proof.away_from_sender import held_away
from nagle_lab.diagnosis.proof.outcomes import Judged
from nagle_lab.diagnosis.proof.pauses import follows_ack
from support.stories import (
    BODY,
    HEADER,
    LATE,
    RELEASE,
    REQUEST,
    prompt,
    server_held,
    talk,
    two_part_reply,
)
from support.synthetic import MS, SECOND, US, Conversation, Segment, merge


@pytest.mark.parametrize("slower", [1100 * US, 3 * MS])
def test_what_is_late_but_follows_the_ack_is_no_pause(diagnose, slower):
    """A body of 615 bytes passes 5 Mbit/s in a millisecond; and no pause of 3 ms begins when an ACK arrives."""

    def exchange(number: int) -> list[Segment]:
        c = Conversation(("10.0.0.1", 40_000 + number), t0_ns=(1_700_000_000 + number) * SECOND, rtt_ns=4 * MS)
        c.handshake()
        two_part_reply(c, ack=LATE + number % 5 * MS, body=slower)
        c.close()
        return c.seen_at("client")

    result = diagnose(merge(*map(exchange, range(15))))
    assert (result.verdict, result.summary.stalls) == ("INCONCLUSIVE", 0)


def test_clients_far_and_near_are_told_apart_at_the_server(diagnose):
    """A round trip of 40 ms is no delayed ACK beside a client that answers within microseconds."""
    far = talk(prompt, rtt_ns=40 * MS, client=("10.0.0.8", 999)).seen_at("server")
    near = talk(server_held, client=("10.0.0.9", 999)).segments
    result = diagnose(merge(far, near))
    assert result.summary.stalls == 19
    assert {str(end) for end in result.summary.delayed_ends} == {"10.0.0.9:999"}


@pytest.mark.parametrize("rtt_us", [200, 400, 600, 900])
def test_within_a_data_centre_the_client_s_capture_tells_as_well(diagnose, rtt_us):
    """A round trip of less than a millisecond is a path, too: releases come one of it after the ACK."""
    c = talk(server_held, exchanges=40, rtt_ns=rtt_us * US)
    at_client, at_server = (diagnose(c.seen_at(position)) for position in ("client", "server"))
    assert at_server.summary.stalls == at_client.summary.stalls == 39
    assert at_client.summary.grounds == {"repetition_on_path": 39}


def test_away_from_a_program_paced_by_something_else_its_data_is_no_release(diagnose):
    """Where the ACK comes early, the body comes no sooner: the round trip after the late ACK is a coincidence."""

    def paced(c: Conversation, number: int) -> None:
        early = number % 4 == 1
        two_part_reply(c, ack=10 * US if early else LATE, body=LATE if early else RELEASE)

    result = diagnose(talk(paced, exchanges=40, rtt_ns=20 * MS).seen_at("client"))
    assert (result.verdict, result.summary.stalls) == ("INCONCLUSIVE", 0)
    assert result.quality.unresolved == {"own_pace": 29}


@pytest.mark.parametrize(("sizes", "verdict"), [((500, 500, 500), "INCONCLUSIVE"), ((84, 500), "STALL")])
def test_away_from_a_program_that_has_one_piece_in_flight_nothing_is_proved(diagnose, sizes, verdict):
    """What is held is merged while it waits; pieces as large as the first, each behind an ACK, were written then."""

    def pieces(c: Conversation, number: int) -> None:
        c.client_sends(REQUEST)
        for piece, size in enumerate(sizes):
            c.server_sends(size, after_ns=100 * US)
            c.client_acks(after_ns=LATE + number % 5 * MS if piece % 2 == 0 else 10 * US)

    result = diagnose(talk(pieces, exchanges=40, rtt_ns=20 * MS).seen_at("client"))
    assert result.verdict == verdict


@pytest.mark.parametrize(("crosses", "held"), [(True, 29), (False, 0)])
@pytest.mark.parametrize("position", ["client", "middle", "server"])
def test_data_that_crosses_the_release_is_not_what_that_answers(diagnose, position, crosses, held):
    """The client sends right behind its late ACK; what the server had held for that does not acknowledge the data."""

    def exchange(c: Conversation, number: int) -> None:
        c.client_sends(REQUEST)
        c.server_sends(HEADER, after_ns=100 * US)
        released = c.client_acks(after_ns=LATE).ts_ns + c.one_way_ns + RELEASE
        told = c.client_sends(50, after_ns=200 * US).ts_ns + c.one_way_ns
        c.server_sends(BODY, at_ns=released if crosses else told + RELEASE)
        c.client_acks(after_ns=10 * US)

    result = diagnose(talk(exchange, exchanges=30, rtt_ns=4 * MS).seen_at(position))
    assert result.summary.stalls == held


def test_full_segments_behind_a_small_one_are_not_sent_by_who_waits_for_each_piece(diagnose):
    """A chunked reply: header, a chunk whose tail is held until the ACK of its beginning, and five bytes at the end.

    Each piece is as large in every reply, and followed an ACK.
    """

    def chunked(c: Conversation, number: int) -> None:
        c.client_sends(REQUEST)
        c.server_sends(156, after_ns=100 * US)
        for _ in range(2):
            c.server_sends(1448, after_ns=5 * US, flags="A")
        c.client_acks(after_ns=10 * US)
        c.server_sends(111, after_ns=RELEASE)
        c.client_acks(after_ns=LATE + number % 5 * MS)
        c.server_sends(5, after_ns=RELEASE)
        c.client_acks(after_ns=10 * US)

    result = diagnose(talk(chunked, exchanges=40, rtt_ns=5 * MS).seen_at("client"))
    assert (result.verdict, result.summary.stalls) == ("STALL", 39)  # all but the first


def test_loss_probes_of_held_data_take_no_stall_away(diagnose):
    """Some late ACKs are lost behind the capture: a probe sends what is held, and still echoes what came before."""

    def exchange(c: Conversation, number: int) -> None:
        if number % 6 == 1:
            c.client_sends(REQUEST)
            c.server_sends(HEADER, after_ns=200 * US)
            c.client_acks(after_ns=LATE, lost=True)
            c.server_sends(BODY, after_ns=205 * MS)
            c.client_acks(after_ns=10 * US)
        else:
            server_held(c, number)

    result = diagnose(talk(exchange, exchanges=40, rtt_ns=6 * MS).seen_at("client"))
    assert (result.verdict, result.summary.stalls) == ("STALL", 32)


def test_what_comes_later_than_acks_and_sooner_than_answers_keeps_to_its_own_clock(diagnose):
    """Away from an end that answers after 30 ms, and goes on some ms after four late ACKs: no release, no answer."""

    def speak(c: Conversation, number: int) -> None:
        c.client_sends(REQUEST)
        c.server_sends(HEADER, after_ns=30 * MS)
        if number % 4 == 1:
            c.client_acks(after_ns=LATE)
            c.server_sends(BODY, after_ns=(5 + number % 7) * MS)

    result = diagnose(talk(speak, exchanges=16, rtt_ns=10 * MS, timestamps=False).seen_at("client"))
    assert (result.verdict, result.quality.unresolved) == ("INCONCLUSIVE", {"path_varies": 4})
    assert diagnose(talk(speak, exchanges=16, rtt_ns=10 * MS).seen_at("client")).verdict == "CLEAN"


def test_who_asks_a_database_meanwhile_is_slower_than_its_fastest_answers(diagnose):
    """Some bodies come as soon as slow answers do, but none as soon as the fast ones."""

    def flush_and_ask(c: Conversation, number: int) -> None:
        share = number * 37 % 60 / 60
        two_part_reply(
            c, header=int((0.2 + 3 * share) * MS), ack=LATE, body=int((2 + 10 * (number * 29 % 60 / 60) ** 2) * MS)
        )

    result = diagnose(talk(flush_and_ask, exchanges=120, rtt_ns=4 * MS, timestamps=False).seen_at("client"))
    assert (result.verdict, result.summary.stalls) == ("INCONCLUSIVE", 0)
    assert diagnose(talk(flush_and_ask, exchanges=120, rtt_ns=4 * MS).seen_at("client")).verdict == "CLEAN"


def test_three_pieces_of_other_sizes_each_are_no_pieces_of_a_message(diagnose):
    """Few replies, no two alike, each in two segments behind ACKs, the second one always late."""

    def exchange(c: Conversation, number: int) -> None:
        c.client_sends(REQUEST)
        c.server_sends(500 + 31 * number, after_ns=2 * MS)
        c.client_acks(after_ns=10 * US)
        c.server_sends(20 + number, after_ns=RELEASE)
        c.client_acks(after_ns=LATE)
        c.server_sends(3 + number % 4, after_ns=RELEASE)
        c.client_acks(after_ns=10 * US)

    result = diagnose(talk(exchange, exchanges=5, rtt_ns=20 * MS).seen_at("client"))
    assert (result.verdict, result.summary.stalls) == ("STALL", 4)


def test_what_seems_held_beside_connections_that_wait_for_nothing_is_left_open(diagnose):
    """Away from the sender: on two of its connections it sends when it likes, on the third all comes behind ACKs."""

    def likes(c: Conversation, number: int) -> None:
        c.client_sends(REQUEST)
        header = c.server_sends(HEADER, after_ns=200 * US)
        if number == 1:
            c.server_sends(BODY, at_ns=header.ts_ns + 50 * MS)
            c.client_acks(after_ns=LATE)
        else:
            c.client_acks(after_ns=LATE)
            c.server_sends(BODY, at_ns=header.ts_ns + 150 * MS)
        c.client_acks(after_ns=10 * US)

    clients = [("10.0.0.1", port) for port in (1, 2)]
    others = [talk(likes, exchanges=4, rtt_ns=20 * MS, client=client).seen_at("client") for client in clients]
    held = talk(server_held, exchanges=4, rtt_ns=20 * MS, client=("10.0.0.1", 3)).seen_at("client")
    result = diagnose(merge(held, *others))
    assert (result.verdict, result.quality.unresolved) == ("INCONCLUSIVE", {"nagle_off_elsewhere": 3})


@pytest.mark.parametrize(("later", "verdict"), [(0, "STALL"), (900 * US, "INCONCLUSIVE")])
def test_away_from_the_sender_a_kernel_releases_as_soon_as_it_acknowledges(diagnose, later, verdict):
    """A program that asks every millisecond whether all is acknowledged is later than that end's quick ACKs."""

    def exchange(c: Conversation, number: int) -> None:
        c.client_sends(REQUEST)
        c.server_acks(after_ns=10 * US)
        c.server_sends(HEADER, after_ns=30 * MS)
        c.client_acks(after_ns=LATE)
        c.server_sends(60, after_ns=20 * US + number * 37 % 60 * later // 60 + later // 2)
        c.client_acks(after_ns=10 * US)

    assert diagnose(talk(exchange, exchanges=40, rtt_ns=10 * MS).seen_at("client")).verdict == verdict


@pytest.mark.parametrize(("position", "flushed"), [("client", True), ("server", True), ("client", False)])
def test_behind_what_did_not_wait_itself_nothing_is_held_by_nagle(diagnose, position, flushed):
    """A send buffer has room for five small pieces, with TCP_NODELAY: the sixth waits for the ACK of these.

    Of two pieces, the second has waited: there it is Nagle's algorithm, though the kernel is as quick in both.
    """

    def pieces(c: Conversation, _: int) -> None:
        c.client_sends(REQUEST)
        for number in range(5 if flushed else 1):
            c.server_sends((80, 120)[number % 2], after_ns=5 * US)
        c.client_acks(after_ns=LATE)
        c.server_sends(120, after_ns=RELEASE)
        c.client_acks(after_ns=10 * US)

    result = diagnose(talk(pieces, exchanges=30, rtt_ns=5 * MS).seen_at(position))
    assert result.verdict == ("INCONCLUSIVE" if flushed else "STALL")
    assert result.quality.unresolved == ({"own_pace": 29} if flushed else {})


@pytest.mark.parametrize(("slow_answers", "verdict"), [(0, "INCONCLUSIVE"), (2, "STALL")])
def test_away_from_a_program_that_polls_and_is_interrupted_its_answers_are_not_late(diagnose, slow_answers, verdict):
    """Two of five releases come up to 8 ms late, though it writes at once behind early ACKs: no kernel does that.

    Where as many answers come late, the path is why, and the others count.
    """

    def polls(c: Conversation, number: int) -> None:
        early = number % 8 == 1
        late = number % 5 in (2, 4) and not early
        c.client_sends(REQUEST, after_ns=MS)
        c.server_sends(HEADER, after_ns=200 * US + (number % 5 < slow_answers) * 7 * MS)
        c.client_acks(after_ns=10 * US if early else LATE + number % 3 * MS)
        c.server_sends(BODY, after_ns=RELEASE + late * (4 + number % 4) * MS)
        c.client_acks(after_ns=10 * US)

    assert diagnose(talk(polls, exchanges=60, rtt_ns=5 * MS).seen_at("client")).verdict == verdict


def test_sums_of_pieces_behind_late_acks_only_were_merged(diagnose):
    """A stream of two writes in turn: behind early ACKs one by one, behind late ones together."""

    def stream(c: Conversation, number: int) -> None:
        early = number % 4 == 1
        for _ in range(2):
            c.server_sends(50, after_ns=20 * MS)
            c.client_acks(after_ns=10 * US if early else LATE)
            c.server_sends(100, after_ns=RELEASE)
            c.client_acks(after_ns=10 * US if early else LATE)
            if not early:
                c.server_sends(150, after_ns=RELEASE)
                c.client_acks(after_ns=LATE)
                c.server_sends(150, after_ns=RELEASE)
                c.client_acks(after_ns=10 * US)

    result = diagnose(talk(stream, exchanges=24, rtt_ns=5 * MS).seen_at("client"))
    assert (result.verdict, result.summary.stalls > 60) == ("STALL", True)


@pytest.mark.parametrize(
    ("tail", "jitter", "release", "verdict"),
    [
        (BODY, 100 * US, RELEASE, "STALL"),
        (BODY, 100 * US, 1100 * US, "INCONCLUSIVE"),
        (8, 1600 * US, RELEASE, "STALL"),
        (8, 1600 * US, 350 * US, "INCONCLUSIVE"),
    ],
    ids=["held", "polled", "held, jitter", "polled, jitter"],
)
def test_a_program_that_polls_for_the_ack_is_slower_than_acks(diagnose, tail, jitter, release, verdict):
    """Answers show that the link is not slow, and many exchanges how much slower, in spite of jitter."""
    c = Conversation(rtt_ns=10 * MS)
    c.handshake()
    for number in range(40):
        varies = number * 13 % 40 * jitter // 40
        c.client_sends(REQUEST)
        c.server_acks(after_ns=20 * US + varies)
        c.client_sends(REQUEST)
        c.server_sends(HEADER, after_ns=200 * US + number % 4 * 800 * US + varies)
        c.client_acks(after_ns=LATE)
        c.server_sends(tail, after_ns=release + varies)
        c.client_acks(after_ns=10 * US)
        c.pause(5 * MS)
    assert diagnose(c.seen_at("client")).verdict == verdict


@pytest.mark.parametrize(
    ("answer_us", "acks", "after_us", "verdict", "rtt_us", "slow_ack_us", "stamps_us"),
    [
        (250, 2, 105, "INCONCLUSIVE", 400, 10, 1),
        (250, 2, 20, "STALL", 400, 10, 1),  # as soon as ACKs
        (80, 2, 105, "STALL", 400, 10, 1),  # no sooner than answers
        (80, 12, 250, "INCONCLUSIVE", 400, 10, 1),  # but surely later than many ACKs
        (80, 12, 150, "STALL", 400, 10, 1),
        (80, 2, 250, "STALL", 400, 10, 1),  # two ACKs are not many
        (250, 0, 105, "STALL", 400, 10, 1),  # nor is the answer to a SYN
        (250, 12, 105, "STALL", 400, 110, 1),  # some ACKs take as long
        (250, 2, 105, "STALL", 4_000, 10, 1),  # on a path that may vary as much
        (250, 2, 105, "STALL", 400, 10, 20),  # by a clock that tells no more
    ],
)
def test_a_relay_next_door_is_slower_than_its_kernel_s_acks(
    diagnose, answer_us, acks, after_us, verdict, rtt_us, slow_ack_us, stamps_us
):
    """ssh -L with TCP_NODELAY, woken by its origin's stall in the tick of its client's delayed ACK: 0.4 ms away.

    Its answers take longer still, for they come from the origin. A program that polls answers sooner than that.
    """
    c = Conversation(rtt_ns=rtt_us * US)
    c.handshake()
    for number in range(40):
        c.client_sends(REQUEST)
        if number < acks:
            c.server_acks(after_ns=(10 if number % 3 else slow_ack_us) * US)
        c.server_sends(HEADER, after_ns=answer_us * US)
        c.client_acks(after_ns=LATE)
        c.server_sends(BODY, after_ns=after_us * US + number % 7 * 3 * US)
        c.client_acks(after_ns=10 * US)
        c.pause(5 * MS)
    step = stamps_us * US
    segments = [replace(segment, ts_ns=segment.ts_ns // step * step) for segment in c.seen_at("client")]
    assert diagnose(segments).verdict == verdict


def test_releases_that_come_sooner_than_its_few_answers_follow_the_ack_all_the_same(diagnose):
    """A wireless link without timestamps: in the one connection its end is answered twice, and rather late."""
    c = Conversation(timestamps=False)
    c.handshake(after_ns=9 * MS)
    for number in range(90):
        c.client_sends(REQUEST)
        c.server_sends(HEADER, after_ns=10 * MS + number * 37 % 90 * 30 * US)
        c.client_acks(after_ns=40 * MS + number * 13 % 50 * 100 * US)
        c.server_sends(BODY, after_ns=6 * MS + number * 53 % 90 * 44 * US)
        c.client_acks(after_ns=10 * US)
    result = diagnose(c.segments)
    assert (result.verdict, result.summary.stalls) == ("STALL", 90)


def test_a_few_that_come_late_do_not_hide_that_the_others_follow_the_ack():
    """Ten connections in step, 100 ms away: of the ACKs that come first some release after 7 ms more."""
    waits = [40 * MS + number * 13 % 60 * 50 * US for number in range(60)]
    distances = [100 * MS + wait % 97 * US // 1000 + (7 * MS if wait < 41 * MS and wait % 3 else 0) for wait in waits]
    columns = {"trigger_to_ack": as_column(waits), "ack_to_release": as_column(distances)}
    assert follows_ack(Candidates(columns, as_column(range(60)))) is True


@pytest.mark.parametrize(
    ("count", "by_itself", "spread", "says"),
    [(60, False, 3 * MS, True), (60, True, 3 * MS, False), (6, True, 3 * MS, None), (60, True, 60 * MS, None)],
)
def test_what_follows_the_ack_and_what_does_not(count, by_itself, spread, says):
    """Waits of 40 to 44 ms; distances that vary as much, or pauses of a length of their own. Few say nothing."""
    waits = [40 * MS + number * 13 % 60 * 66 * US for number in range(count)]
    varies = [number * 37 % 60 * spread // 60 for number in range(count)]
    distances = [
        60 * MS - wait + more if by_itself else 10 * MS + more for wait, more in zip(waits, varies, strict=True)
    ]
    columns = {"trigger_to_ack": as_column(waits), "ack_to_release": as_column(distances)}
    assert follows_ack(Candidates(columns, as_column(range(count)))) is says


@pytest.mark.parametrize(("timestamps", "verdict"), [(False, "INCONCLUSIVE"), (True, "CLEAN")])
@pytest.mark.parametrize(
    ("rtt", "exchanges", "varies", "handshake"),
    [(40 * MS, 48, 14 * MS, True), (60 * MS, 90, 14 * MS, False)],
)
def test_what_comes_when_a_query_ends_was_not_held(
    diagnose, rtt, exchanges, varies, handshake, timestamps, verdict
):  # fmt: skip
    """A header, a query of two milliseconds more than timer and path, and a body, with TCP_NODELAY.

    As many come soon as later; and they come the sooner behind the ACK, the later that is.
    """
    c = Conversation(rtt_ns=rtt, timestamps=timestamps)
    c.handshake()
    for number in range(exchanges):
        c.client_sends(REQUEST)
        header = c.server_sends(HEADER, after_ns=3 * MS + number % 7 * 100 * US)
        c.client_acks(after_ns=40 * MS + number * 13 % 50 * 100 * US)
        c.server_sends(BODY, at_ns=header.ts_ns + rtt + 42 * MS + number * 37 % exchanges * varies // exchanges)
        c.client_acks(after_ns=10 * US)
    segments = c.seen_at("client")
    assert diagnose(segments if handshake else segments[3:]).verdict == verdict


@pytest.mark.parametrize(("later", "verdict"), [(0, "STALL"), (5 * MS, "INCONCLUSIVE")])
def test_where_the_path_varies_as_much_as_a_timer_releases_are_compared_with_acks_as_quick(diagnose, later, verdict):
    """Of that end's ACKs those that took 8 ms more may have been delayed, and so do not count as quick."""
    talks = [Conversation(client=("10.0.0.1", 40_000 + at), rtt_ns=10 * MS, timestamps=False) for at in range(4)]
    for at, c in enumerate(talks):
        c.handshake()
        for number in range(30):
            slower, even_slower = ((number * 13 + at + more) % 30 * 500 * US for more in (0, 11))
            c.client_sends(REQUEST)
            c.server_acks(after_ns=20 * US + slower)
            c.server_sends(HEADER, after_ns=20 * MS)
            c.client_acks(after_ns=LATE)
            c.server_sends(8, after_ns=RELEASE + even_slower + later)
            c.client_acks(after_ns=10 * US)
            c.pause(5 * MS)
    assert diagnose(merge(*(c.seen_at("client") for c in talks))).verdict == verdict


def test_a_connection_that_keeps_to_a_clock_does_not_count_with_others(diagnose):
    """Away from the sender: on one its data is held, on the other it follows the trigger after 50 ms each time.

    It takes up to 9 ms for an answer, so other data may be as late.
    """

    def thinks_and_stalls(c: Conversation, number: int) -> None:
        two_part_reply(c, header=200 * US + number % 10 * MS, ack=LATE, body=RELEASE + number % 7 * 10 * US)

    def every_50_ms(c: Conversation, number: int) -> None:
        two_part_reply(c, ack=LATE + number % 5 * MS, pause=50 * MS)

    talks = [
        talk(story, exchanges=40, rtt_ns=1 * MS, client=("10.0.0.1", port))
        for port, story in [(50_000, thinks_and_stalls), (50_001, thinks_and_stalls), (50_002, every_50_ms)]
    ]
    result = diagnose(merge(*(each.seen_at("client") for each in talks)))
    assert (result.verdict, result.summary.stalls) == ("STALL", 78)


def test_a_program_that_thinks_for_long_does_not_show_a_slow_link(diagnose):
    """It polls for the ACK; that its answers take long does not mean that the bytes of a release do."""
    c = Conversation(rtt_ns=10 * MS)
    c.handshake()
    for number in range(40):
        c.client_sends(REQUEST)
        c.server_acks(after_ns=20 * US)
        two_part_reply(c, header=2 * MS, ack=LATE, body=2100 * US + number * 13 % 40 * 3 * US)
        c.pause(5 * MS)
    assert diagnose(c.seen_at("client")).verdict == "INCONCLUSIVE"


@pytest.mark.parametrize(("polls_us", "verdict"), [(1500, "INCONCLUSIVE"), (50, "STALL")])
def test_how_slow_a_link_is_at_most_its_soonest_releases_tell(diagnose, polls_us, verdict):
    """A client polls for the ACK of the first bytes of its request, and then sends hundreds: some come at once."""
    c = Conversation(rtt_ns=14 * MS)
    c.handshake()
    for number in range(40):
        size = 400 + number * 531 % 900
        c.client_sends(8, after_ns=150 * US)
        c.server_acks(after_ns=LATE)
        c.client_sends(size, after_ns=20 * US + number * 13 % 37 * polls_us * US // 37)
        c.server_acks(after_ns=10 * US)
        c.server_sends(BODY, after_ns=100 * US)
        if number % 2:  # else the next request has the ACK
            c.client_acks(after_ns=20 * US)
    assert diagnose(c.seen_at("server")).verdict == verdict


@pytest.mark.parametrize(("rtt_ms", "timestamps"), [(8, True), (20, False), (20, True)])
@pytest.mark.parametrize("held", [0, 8])
def test_where_all_answers_are_slow_pauses_are_no_late_releases(diagnose, held, rtt_ms, timestamps):
    """The server works for 3 to 30 ms each time, and pauses now and then: no ACK of its kernel takes so long.

    But far away the path may: timestamps do not tell how long ACKs were under way behind the capture.
    """

    def exchange(c: Conversation, number: int) -> None:
        c.client_sends(REQUEST)
        c.server_sends(HEADER if number % 3 == 1 else BODY, after_ns=(3 + number * 7 % 27) * MS)
        if number % 3 == 1:
            c.client_acks(after_ns=LATE + number % 5 * MS)
            c.server_sends(BODY, after_ns=RELEASE if number < 3 * held else (7 + number * 5 % 20) * MS)

    result = diagnose(talk(exchange, exchanges=60, rtt_ns=rtt_ms * MS, timestamps=timestamps).seen_at("client"))
    without = "CLEAN" if rtt_ms == 8 else "INCONCLUSIVE"
    assert (result.verdict, result.summary.stalls) == ("STALL" if held else without, held)
    assert timestamps or result.quality.unresolved["own_pace"] > 8


def test_releases_all_as_late_follow_the_ack_however_few_they_are(diagnose):
    """Of twelve, chance puts the later ones behind the shorter waits; by 20 us, where waits differ by 4 ms."""
    c = Conversation(rtt_ns=20 * MS)
    c.handshake()
    for number in range(25):
        c.client_sends(REQUEST, after_ns=30 * MS)
        c.server_sends(HEADER, after_ns=60 * US)
        if number % 2:
            c.client_acks(after_ns=LATE + (number % 8) * MS // 2)
            c.server_sends(BODY, after_ns=(30 - 2 * (number % 8)) * US)
        else:
            c.client_acks(after_ns=10 * US)
            c.server_sends(BODY, after_ns=RELEASE)
        c.client_acks(after_ns=20 * US)
    result = diagnose(c.seen_at("client"))
    assert (result.verdict, result.summary.stalls) == ("STALL", 12)


def test_a_radio_that_sleeps_keeps_to_a_clock_and_so_does_what_it_delays(diagnose):
    """What the client sends goes on every 8 ms: releases follow their triggers at one distance, as pauses do.

    So late are the server's ACKs of requests, too, and the handshake was not.
    """
    c = Conversation(rtt_ns=1 * MS)
    c.handshake()

    def sends(after: int, *length: int) -> None:
        now = c.client.now_ns + after
        c.one_way_ns = -(-(now + MS // 2) // (8 * MS)) * 8 * MS - now
        (c.client_sends if length else c.client_acks)(*length, after_ns=after)
        c.one_way_ns = MS // 2

    for number in range(30):
        sends(3 * MS + number * 7 % 20 * MS // 2, REQUEST)
        c.server_acks(after_ns=20 * US)
        c.server_sends(HEADER, after_ns=60 * US)
        sends(LATE + number % 8 * MS // 2)
        c.server_sends(BODY, after_ns=RELEASE)
    result = diagnose(c.seen_at("client"))
    assert result.verdict == "INCONCLUSIVE" and result.quality.unresolved["path_varies"] >= 20


@pytest.mark.parametrize("held", [True, False])
def test_a_path_that_became_longer_delays_that_end_s_acks_as_well(diagnose, held):
    """By 8 ms, behind six replies of a near server. Its pauses end at any time."""
    c = Conversation(rtt_ns=100 * US)
    c.handshake()
    for number in range(46):
        c.client_sends(REQUEST, after_ns=70 * MS)
        c.server_acks(after_ns=20 * US)
        if number < 6:
            c.server_sends(BODY, after_ns=60 * US)
            c.one_way_ns += 4 * MS * (number == 5)
            continue
        c.server_sends(HEADER, after_ns=MS + number % 4 * MS)
        c.client_acks(after_ns=LATE + number % 5 * MS)
        c.server_sends(BODY, after_ns=RELEASE if held else 1 * MS + number * 7 % 40 * MS)
    result = diagnose(c.seen_at("client"))
    assert (result.verdict, result.quality.unresolved) == (
        ("INCONCLUSIVE", {"path_varies": 40}) if held else ("CLEAN", {})
    )


@pytest.mark.parametrize(
    ("ack_ms", "thinks_ms", "verdict"),
    [(10, 0, "STALL"), (10, 1, "STALL"), (0, 0, "INCONCLUSIVE"), (10, 20, "INCONCLUSIVE")],
)
def test_a_path_longer_than_its_handshakes_shows_in_all_else(diagnose, ack_ms, thinks_ms, verdict):
    """The client's handshakes take 10 ms. Everything else takes 10 more: something nearer answered those.

    Or a timer delays its ACKs and the program its data: then one of them is sooner.
    """

    c = Conversation(rtt_ns=10 * MS)
    c.handshake()
    for number in range(20):
        c.client_sends(REQUEST, after_ns=(10 + thinks_ms) * MS + number * 7 % 5 * 50 * US)
        c.server_acks(after_ns=LATE + number % 5 * MS)
        c.client_sends(60, after_ns=10 * MS + number * 3 % 5 * 50 * US)
        c.server_sends(BODY, after_ns=100 * US)
        if number % 8 == 1:  # else the next request carries it
            c.client_acks(after_ns=ack_ms * MS + number % 3 * 50 * US)
    result = diagnose(c.seen_at("server"))
    assert (result.verdict, result.summary.stalls) == (verdict, 20 if verdict == "STALL" else 0)


@pytest.mark.parametrize(("slow", "verdict"), [(6, "CLEAN"), (2, "INCONCLUSIVE")])
def test_a_few_slow_acks_show_no_longer_path(diagnose, slow, verdict):
    """One in ``slow`` of a near server's ACKs takes 4 ms; what it pauses for ends 2 to 3 ms behind the late ACK."""
    c = Conversation(rtt_ns=100 * US)
    c.handshake()
    for number in range(48):
        c.client_sends(REQUEST, after_ns=70 * MS)
        c.server_acks(after_ns=20 * US if number % slow else 4 * MS)
        c.server_sends(HEADER, after_ns=MS + number % 4 * MS)
        c.client_acks(after_ns=LATE)
        c.server_sends(BODY, after_ns=2 * MS + number * 7 % 20 * 50 * US)
    assert diagnose(c.seen_at("client")).verdict == verdict


@pytest.mark.parametrize("place", ["client", "server"])
@pytest.mark.parametrize(
    ("held", "before", "more_ms", "verdict"),
    [(True, 1, 0, "STALL"), (True, 6, 0, "STALL"), (True, 1, 12, "INCONCLUSIVE"), (False, 1, 0, "CLEAN")],
)
def test_a_path_that_became_longer_than_a_timer_shows_in_later_handshakes(
    diagnose, place, held, before, more_ms, verdict
):
    """By 32 ms, on the first of seven connections, or six; the paths of later ones differ by twice ``more_ms``."""

    def reply(c: Conversation, number: int) -> None:
        if number == 2 and c.one_way_ns < MS:
            c.one_way_ns += 16 * MS
        c.client_sends(REQUEST, after_ns=20 * MS)
        c.server_acks(after_ns=10 * US)
        c.server_sends(HEADER, after_ns=10 * MS + number * 313 * US)
        c.client_acks(after_ns=LATE + number % 5 * MS)
        c.server_sends(BODY, after_ns=RELEASE if held else (6 + number * 5 % 23) * MS)

    rtt_ns = [40 * US] * before + [(32 + at % 3 * more_ms) * MS for at in range(7 - before)]
    began = [1_700_000_000 * SECOND + (at >= before) * 300 * MS for at in range(7)]
    talks = [talk(reply, 7, rtt_ns=rtt_ns[at], client=("10.0.0.1", 40_000 + at), t0_ns=began[at]) for at in range(7)]
    result = diagnose(merge(*(c.seen_at(place) for c in talks)))
    assert (result.verdict, result.summary.stalls) == (verdict, 42 if verdict == "STALL" else 0)
    assert (result.quality.unresolved.get("path_varies", 0) >= 41) is (verdict == "INCONCLUSIVE")


@pytest.mark.parametrize("clock", ["ack", "own"])
def test_on_a_slow_link_what_was_held_keeps_no_clock_though_large_ones_come_later(diagnose, clock):
    """Two held segments in turn, of 1,000 and 77 bytes, at 1 Mbit/s: the longer the wait, the sooner the release.

    Or the program writes each 90 ms after the one before, as its own clock says.
    """

    def exchange(c: Conversation, number: int) -> None:
        c.client_sends(REQUEST, after_ns=50 * MS)
        sent = c.server_sends(77, after_ns=200 * US)
        for at, held in enumerate((1000, 77)):
            c.client_acks(after_ns=LATE + (number + at) * 37 % 10 * 100 * US)
            when = {"after_ns": RELEASE} if clock == "ack" else {"at_ns": sent.ts_ns + 90 * MS}
            sent = c.server_sends(held, **when)

    c = talk(exchange, exchanges=20, rtt_ns=20 * MS, ns_per_byte=8_000, timestamps=False)
    result = diagnose(c.seen_at("middle"))
    assert result.verdict == ("INCONCLUSIVE" if clock == "ack" else "CLEAN")


@pytest.mark.parametrize(("drift_ms", "unresolved"), [(0, {}), (900, {"coincidence": 2})])
def test_timestamps_that_do_not_keep_step_do_not_show_a_pause(diagnose, drift_ms, unresolved):
    """Two releases come one round trip behind late ACKs: few, but no pauses by the capture's clock."""
    c = Conversation(rtt_ns=56 * MS)
    c.handshake()
    for number in range(14):
        c.client_sends(REQUEST)
        c.server_sends(HEADER, after_ns=200 * US)
        if number in (6, 10):
            c.client_acks(after_ns=37 * MS)
            c.server_sends(BODY, after_ns=RELEASE if drift_ms else 20 * MS)
        c.client_acks(after_ns=10 * US)
    late = c.t0_ns + 300 * MS
    segments = [
        replace(one, timestamps=(one.timestamps[0] + drift_ms, one.timestamps[1]))
        if one.timestamps and one.sport == 80 and one.ts_ns > late
        else one
        for one in c.seen_at("client")
    ]
    result = diagnose(segments)
    assert result.quality.unresolved == unresolved


@pytest.mark.parametrize(
    ("least", "slow", "handshake", "verdict"),
    [
        (600, 0, False, "STALL"),
        (300, 0, False, "INCONCLUSIVE"),
        (300, 1, False, "INCONCLUSIVE"),
        (300, 1, True, "INCONCLUSIVE"),
    ],
)
def test_where_nothing_tells_how_far_the_sender_is_a_slow_program_is_no_path(
    diagnose, least, slow, handshake, verdict
):
    """Relays take 150 to 500 µs; so does what was held on a path of that length, and on a longer one always alike."""
    c = Conversation()
    c.handshake(after_ns=15 * US)
    for number in range(40):
        c.client_sends(REQUEST, after_ns=5 * MS)
        varies = number * 11 % 60
        c.server_sends(HEADER, after_ns=(least + 30 + number * 7 % 50) * US)
        c.client_acks(after_ns=LATE + number % 3 * MS)
        c.server_sends(BODY, after_ns=(least + (varies * varies // 8 if slow else varies)) * US)
        c.client_acks(after_ns=10 * US)
    assert diagnose(c.segments if handshake else c.segments[3:]).verdict == verdict


@pytest.mark.parametrize("held", [True, False])
def test_what_stood_in_a_queue_behind_a_bulk_transfer_was_held_too(diagnose, held):
    """Every third reply arrives 30 to 90 ms later. By its timestamp it left with the ACK; or after a pause."""
    c = Conversation(rtt_ns=20 * MS)
    c.handshake()
    for number in range(90):
        later = (30 + number * 7 % 60) * MS if number % 3 == 0 else 0
        c.client_sends(REQUEST, after_ns=5 * MS)
        c.server_sends(HEADER, after_ns=200 * US)
        c.client_acks(after_ns=LATE + number % 5 * MS)
        c.one_way_ns += later if held else 0
        c.server_sends(BODY, after_ns=RELEASE + (0 if held else later))
        c.one_way_ns -= later if held else 0
        c.client_acks(after_ns=10 * US)
    result = diagnose(c.seen_at("client"))
    assert (result.verdict, result.summary.stalls) == ("STALL", 90 if held else 60)


@pytest.mark.parametrize(("early_ms", "verdict"), [(20, "INCONCLUSIVE"), (58, "CLEAN")])
def test_a_clock_of_the_program_is_one_behind_early_acks_too(diagnose, early_ms, verdict):
    """A stack that looks for packets now and then lets go 58 ms behind the trigger, but 20 where the ACK was early.

    A program that pauses for 58 ms does so behind either.
    """

    def exchange(c: Conversation, number: int) -> None:
        is_early = number % 4 == 1
        c.client_sends(REQUEST)
        header = c.server_sends(HEADER, after_ns=100 * US)
        c.client_acks(after_ns=10 * US if is_early else LATE + number * 37 % 50 * MS // 10)
        c.server_sends(BODY, at_ns=header.ts_ns + (early_ms if is_early else 58) * MS)
        c.client_acks(after_ns=10 * US)

    result = diagnose(talk(exchange, 40, rtt_ns=10 * MS, timestamps=False).seen_at("client"))
    assert result.verdict == verdict
    assert ("own_pace" in result.quality.unresolved) is (verdict == "INCONCLUSIVE")


@pytest.mark.parametrize(("by", "verdict"), [("ack", "INCONCLUSIVE"), ("trigger", "CLEAN")])
def test_what_follows_every_ack_sooner_than_a_round_trip_is_left_open(diagnose, by, verdict):
    """An end that looks for packets each millisecond seems a millisecond away: it answers only what it waited for."""

    def exchange(c: Conversation, number: int) -> None:
        c.client_sends(REQUEST)
        header = c.server_sends(HEADER, after_ns=10 * US)
        ack = c.client_acks(after_ns=LATE + number * 37 % 80 * MS // 10)
        sent = ack.ts_ns + number * 61 % 100 * 10 * US if by == "ack" else header.ts_ns + 49 * MS
        c.server_sends(BODY, at_ns=sent - c.one_way_ns)
        c.client_acks(after_ns=10 * US)

    result = diagnose(talk(exchange, 60, rtt_ns=MS, timestamps=False).seen_at("client"))
    assert result.verdict == verdict
    assert ("round_trip_unknown" in result.quality.unresolved) is (verdict == "INCONCLUSIVE")


@pytest.mark.parametrize(
    ("early", "is_held", "later_ms", "verdict"),
    [
        (range(5), True, (0, 0), "INCONCLUSIVE"),
        ((0, 2), True, (0, 0), "CLEAN"),  # too few
        (range(5), False, (0, 0), "CLEAN"),
        (range(5), True, (0, 9), "CLEAN"),
        (range(5), True, (60, 60), "CLEAN"),  # what it waits for is far away
    ],
)
def test_data_that_came_as_soon_behind_early_acks_may_have_waited_for_late_ones(
    diagnose, early, is_held, later_ms, verdict
):
    """On its way to the server an ACK without data waits for up to 12 ms; the client's data does not.

    Or the server pauses as long after each header; or it sends so much later behind early ACKs, and late ones.
    """

    def ask(c: Conversation, number: int) -> None:
        c.client_sends(REQUEST, after_ns=60 * MS)
        c.server_sends(HEADER, after_ns=200 * US)
        sent = c.server.now_ns
        c.one_way_ns = 17 * MS + (2 + number * 2 % 5 * 2) * MS
        c.client_acks(after_ns=10 * US if number in early else LATE + number % 3 * MS)
        c.one_way_ns = 17 * MS
        pauses_until = sent + 100 * MS + number * 37 % 97 * MS // 8
        c.server_sends(BODY, after_ns=later_ms[number > 4] * MS + RELEASE, at_ns=None if is_held else pauses_until)
        c.client_acks(after_ns=10 * US)

    assert diagnose(talk(ask, 40, rtt_ns=34 * MS).seen_at("client")).verdict == verdict


def test_far_away_a_few_late_acks_are_delayed_by_the_path_where_early_ones_show_that_data_waits(diagnose):
    """On a path longer than Linux's timer, one ACK in eight is under way for 15 ms more than the others."""

    def ask(c: Conversation, number: int) -> None:
        c.client_sends(REQUEST, after_ns=5 * MS)
        c.server_sends(HEADER, after_ns=10 * US)
        c.one_way_ns = 30 * MS + 15 * MS * (number % 8 == 5)
        c.client_acks(after_ns=10 * US if number % 8 == 1 else LATE + number % 3 * MS)
        c.one_way_ns = 30 * MS
        c.server_sends(BODY, after_ns=RELEASE)
        c.client_acks(after_ns=10 * US)

    result = diagnose(talk(ask, 41, rtt_ns=60 * MS).seen_at("client"))
    assert (result.verdict, result.summary.stalls) == ("STALL", 35)


@pytest.mark.parametrize(("thinks_ms", "verdict"), [(45, "INCONCLUSIVE"), (0, "CLEAN")])
def test_far_away_data_as_late_as_answers_may_be_the_path_s(diagnose, thinks_ms, verdict):
    """All second writes come 28 to 40 ms later than by a round trip, and some answers up to ``thinks_ms`` later."""

    def ask(c: Conversation, number: int) -> None:
        c.client_sends(REQUEST, after_ns=60 * MS)
        c.server_sends(HEADER, after_ns=200 * US + number * 7 % 13 * thinks_ms * MS // 13)
        c.client_acks(after_ns=LATE + number % 3 * MS)
        c.server_sends(BODY, after_ns=28 * MS + number * 5 % 13 * MS)
        c.client_acks(after_ns=10 * US)

    c = talk(ask, 30, rtt_ns=50 * MS, timestamps=False)
    assert diagnose(c.seen_at("client")).verdict == verdict


@pytest.mark.parametrize(("replies", "verdict"), [(10, "INCONCLUSIVE"), (20, "STALL")])
def test_far_away_the_one_reply_whose_ack_was_early_shows_that_a_few_are_paused(diagnose, replies, verdict):
    """Each second write comes 71 ms after the first; beside many that may be a slow first exchange."""

    def ask(c: Conversation, number: int) -> None:
        c.client_sends(REQUEST, after_ns=5 * MS)
        c.server_sends(HEADER, after_ns=200 * US)
        c.client_acks(after_ns=LATE + number % 2 * MS if number else 10 * US)
        c.server_sends(BODY, after_ns=RELEASE + (0 if number else 41 * MS))
        c.client_acks(after_ns=10 * US)

    assert diagnose(talk(ask, replies, first=ask, rtt_ns=30 * MS).seen_at("client")).verdict == verdict


@pytest.mark.parametrize("acks", [0, 3, 30])
def test_what_comes_sooner_than_any_ack_of_that_end_had_left_before(diagnose, acks):
    """One tick fires the client's ACK timer and wakes a relay on the same kernel: its data takes half a round trip.

    The capture began late. Without ACKs in time that end's answers show how near it is at most.
    """
    c = Conversation(rtt_ns=MS, timestamps=False)
    for number in range(30):
        c.client_sends(REQUEST, after_ns=2 * MS)
        if number < acks:
            c.server_acks(after_ns=20 * US)
        c.server_sends(HEADER, after_ns=300 * US)
        ack = c.client_acks(after_ns=LATE + number % 5 * MS)
        c.server_sends(BODY, at_ns=ack.ts_ns + 60 * US + number % 3 * US)
        c.client_acks(after_ns=10 * US)
    assert diagnose(c.seen_at("client")).verdict == "INCONCLUSIVE"


def test_one_segment_that_crossed_its_ack_makes_no_shorter_path(diagnose):
    """The capture began late: that end's ACKs show how far away it is, and one release that comes sooner does not."""
    c = Conversation(rtt_ns=MS, timestamps=False)
    for number in range(30):
        c.client_sends(REQUEST, after_ns=2 * MS)
        c.server_acks(after_ns=20 * US)
        c.server_sends(HEADER, after_ns=300 * US)
        ack = c.client_acks(after_ns=LATE + number % 5 * MS)
        arrives = ack.ts_ns + c.one_way_ns
        c.server_sends(BODY, at_ns=ack.ts_ns - 20 * US if number == 0 else arrives + RELEASE)
        c.client_acks(after_ns=10 * US)
    result = diagnose(c.seen_at("client"))
    assert (result.verdict, result.summary.stalls) == ("STALL", 29)


def test_pauses_of_any_length_end_by_chance_on_either_side_of_a_round_trip(diagnose):
    """A program that waits for nothing, and pauses for 40.5 to 100 ms, all of these equally often."""

    def exchange(c: Conversation, number: int) -> None:
        pause = 40_500 * US + number * 37_081 % 59_500 * US
        two_part_reply(c, ack=LATE + number % 5 * 40 * US, pause=pause)

    result = diagnose(talk(exchange, exchanges=2_000, rtt_ns=1_500 * US, timestamps=False).seen_at("client"))
    assert (result.verdict, result.summary.stalls) == ("CLEAN", 0)


@pytest.mark.parametrize(("crossing", "timestamps"), [((10,), True), ((10,), False), ((10, 20, 30), True)])
def test_what_crossed_its_ack_does_not_show_that_its_sender_is_near(diagnose, crossing, timestamps):
    """The capture began late. By timestamps such data left before its ACK came; without them one may be chance."""

    def exchange(c: Conversation, number: int) -> None:
        c.client_sends(REQUEST)
        c.server_sends(HEADER, after_ns=200 * US)
        ack = c.client_acks(after_ns=LATE + number % 5 * MS)
        crosses = ack.ts_ns + 5 * US - c.one_way_ns
        c.server_sends(BODY, after_ns=RELEASE, at_ns=crosses if number in crossing else None)
        c.client_acks(after_ns=10 * US)

    c = talk(exchange, exchanges=40, rtt_ns=2 * MS, timestamps=timestamps)
    result = diagnose(c.seen_at("client")[3:])
    assert (result.verdict, result.summary.stalls) == ("STALL", 39 - len(crossing))


@pytest.mark.parametrize(("syn_us", "verdict"), [(8, "STALL"), (50, "STALL"), (200, "INCONCLUSIVE")])
def test_a_kernel_that_takes_longer_for_a_syn_than_for_what_it_held_is_no_nearer(diagnose, syn_us, verdict):
    """Without timestamps, as Windows has them off, on a path that does not vary."""

    def held(c: Conversation, number: int) -> None:
        two_part_reply(c, ack=LATE + number % 5 * MS, body=RELEASE + number % 3 * US)

    c = Conversation(rtt_ns=4 * MS, timestamps=False)
    c.handshake(after_ns=syn_us * US)
    for number in range(40):
        held(c, number)
    result = diagnose(c.seen_at("client"))
    assert (result.verdict, result.summary.stalls) == (verdict, 40 if verdict == "STALL" else 0)


@pytest.mark.parametrize("later", [40 * MS, 3 * MS])
def test_an_end_s_own_delayed_acks_do_not_show_that_the_path_varies(diagnose, later):
    """A client with TCP_NODELAY pauses for 60 to 90 ms between two writes, and delays its ACKs by 40 ms, or by 3."""

    def write_write_read(c: Conversation, number: int) -> None:
        first = c.client_sends(3, after_ns=100 * MS)
        c.server_acks(after_ns=LATE + number % 9 * MS // 2)
        c.client_sends(4, at_ns=first.ts_ns + 60 * MS + number * 37 % 61 * MS // 2)
        c.server_sends(BODY, after_ns=100 * US)
        c.client_acks(after_ns=later if number == 5 else LATE)

    c = talk(write_write_read, exchanges=60, first=write_write_read, rtt_ns=10 * MS, timestamps=False)
    result = diagnose(c.seen_at("server"))
    assert (result.verdict, result.summary.stalls) == ("CLEAN", 0)


@pytest.mark.parametrize(("held", "verdict"), [(5, "INCONCLUSIVE"), (0, "CLEAN")])
def test_a_clock_that_most_data_keeps_to_is_not_that_of_the_rest(diagnose, held, verdict):
    """A server that pauses for 84 ms between two writes, but in every fifth reply, which comes a round trip later."""

    def exchange(c: Conversation, number: int) -> None:
        c.client_sends(REQUEST)
        header = c.server_sends(HEADER, after_ns=2 * MS)
        c.client_acks(after_ns=LATE + number % 9 * MS // 8)
        paused = header.ts_ns + 84 * MS + number % 7 * 9 * US
        c.server_sends(BODY, after_ns=RELEASE, at_ns=None if held and number % held == 0 else paused)

    result = diagnose(talk(exchange, exchanges=60, rtt_ns=30 * MS).seen_at("client"))
    assert (result.verdict, result.summary.stalls) == (verdict, 0)
    assert result.quality.unresolved == ({"own_pace": 11} if held else {})


@pytest.mark.parametrize("seed", [1, 2, 4])
def test_the_soonest_of_some_pauses_is_no_round_trip(diagnose, seed):
    """Captured at a server with TCP_NODELAY that thinks for 15 ms and more, and pauses for two times beyond a timer.

    So nothing but its handshake comes soon, which might be a SYN proxy's.
    """
    varies = random.Random(seed)
    c = Conversation(rtt_ns=100 * US, timestamps=False)
    c.handshake()
    for number in range(60):
        c.one_way_ns = 50 * US + varies.randrange(150) * US
        c.client_sends(REQUEST, after_ns=100 * MS)
        header = c.server_sends(HEADER, after_ns=15 * MS + varies.randrange(8 * MS))
        c.client_acks(after_ns=LATE + varies.randrange(1100) * US if number else 10 * US)
        c.server_sends(BODY, at_ns=header.ts_ns + varies.choice((54 * MS, 58 * MS)) + varies.randrange(MS))
        c.client_acks(after_ns=10 * US)
    result = diagnose(c.seen_at("server"))
    assert (result.verdict, result.summary.stalls) == ("INCONCLUSIVE", 0)


def test_of_no_candidates_none_is_held():
    """All late ACKs may be on data, and nothing else that end sent may show how far away it is."""
    reactions = Reactions(ack=[10 * MS], data=[10 * MS])
    program = SimpleNamespace(reactions=reactions)
    observed = SimpleNamespace(
        sender_fastest=MS, program=program, setting=SimpleNamespace(resolution=0), early=[], sent_before=Counter()
    )
    none = Candidates(defaultdict(Numbers), Numbers())
    assert len(held_away(none, observed, Judged())) == 0


@pytest.mark.parametrize("seed", range(4))
def test_how_long_a_program_always_takes_is_not_the_path_s(diagnose, seed):
    """A server with TCP_NODELAY answers after 80 ms, and goes on 60 to 90 ms later. The path hardly varies."""
    times = random.Random(seed)

    def pauses(c: Conversation, _: int) -> None:
        c.client_sends(REQUEST)
        header = c.server_sends(HEADER, after_ns=80 * MS + times.randrange(MS))
        c.client_acks(after_ns=25 * MS + times.randrange(4 * MS))
        c.server_sends(BODY, at_ns=header.ts_ns + 60 * MS + times.randrange(30 * MS))

    result = diagnose(talk(pauses, 60, first=pauses, rtt_ns=40 * MS, timestamps=False).seen_at("client"))
    assert (result.verdict, result.summary.stalls) == ("INCONCLUSIVE", 0)
