"""What is held behind full segments, by RFC 896 as written, and what shows that a segment is full."""

from dataclasses import replace

import pytest

from support.stories import (
    BODY,
    HEADER,
    LATE,
    RELEASE,
    REQUEST,
    behind_small,
    nodelay,
    prompt,
    reply_in_two,
    server_held,
    talk,
    two_part_reply,
)
from support.synthetic import MS, US, Conversation, Segment


def test_a_tail_behind_a_full_segment_is_held_by_rfc_896(diagnose):
    """Where a full segment was unacknowledged, what is sent in one write waits, too, and the remedy says so."""
    result = diagnose(talk(reply_in_two(LATE, first=1448)).segments)
    assert (result.verdict, result.summary.stalls, result.summary.behind_full) == ("STALL", 19, 19)
    assert "set TCP_NODELAY; one write may not help" in result.summary.remedy
    two_writes = diagnose(talk(reply_in_two(LATE, first=1447)).segments)
    assert (two_writes.summary.stalls, two_writes.summary.behind_full) == (19, 0)
    assert "send each message in one write, or set TCP_NODELAY. Or on" in two_writes.summary.remedy


@pytest.mark.parametrize("position", ["client", "middle", "server"])
def test_linux_holds_a_tail_until_the_small_segment_before_the_full_ones_is_acknowledged(diagnose, position):
    """What was written behind them was not held before they left: 46 ms of the wait are the program's."""
    result = diagnose(talk(behind_small(), rtt_ns=20 * MS).seen_at(position))
    assert (result.verdict, result.summary.stalls) == ("STALL", 19)
    hold = result.summary.hold_ms
    assert hold is not None and hold.high == pytest.approx((20 * MS + LATE + 2 * MS) / MS - 46, abs=0.2)


@pytest.mark.parametrize("position", ["client", "middle", "server"])
def test_a_tail_that_leaves_with_the_full_segments_was_not_held(diagnose, position):
    result = diagnose(talk(behind_small(tail_after=5 * US), rtt_ns=20 * MS).seen_at(position))
    assert (result.verdict, result.summary.stalls, result.summary.round_trip_holds.count) == ("CLEAN", 0, 0)


@pytest.mark.parametrize(("number_of_full", "round_trips"), [(2, 20), (8, 20), (9, 0)])
def test_the_tail_of_a_large_reply_is_held_for_a_round_trip(diagnose, number_of_full, round_trips):
    """More than the first congestion window has room for may wait for that."""

    def exchange(c: Conversation, number: int) -> None:
        c.client_sends(REQUEST)
        header = c.server_sends(HEADER, after_ns=200 * US)
        for _ in range(number_of_full):
            c.server_sends(c.full_segment, after_ns=US, flags="A")
        first_two = (header.seq + header.length + c.full_segment) % 2**32
        ack = c.client_acks(at_ns=header.ts_ns + c.one_way_ns + 5 * US, ack=first_two)
        c.server_sends(81, at_ns=ack.ts_ns + c.one_way_ns + RELEASE)
        c.client_acks(after_ns=10 * US)

    result = diagnose(talk(exchange, rtt_ns=30 * MS).segments)
    assert (result.verdict, result.summary.round_trip_holds.count) == ("CLEAN", round_trips)
    assert result.summary.round_trip_holds.total_ms == pytest.approx(30 * round_trips, rel=0.02)


def test_where_full_segments_wait_too_it_is_the_congestion_window(diagnose):
    def one_at_a_time(c: Conversation, number: int) -> None:
        c.client_sends(REQUEST)
        for size in (c.full_segment, c.full_segment, 600):
            c.server_sends(size, after_ns=RELEASE)
            c.client_acks(after_ns=LATE + number % 5 * MS)

    result = diagnose(talk(one_at_a_time).segments)
    assert (result.verdict, result.summary.stalls) == ("CLEAN", 0)


def test_a_full_segment_that_answers_did_not_wait_for_the_ack(diagnose):
    """The next question comes with the ACK of the answer before it, and so does the next answer's full segment."""

    def exchange(c: Conversation, number: int) -> None:
        two_part_reply(c, first=c.full_segment, ack=LATE + number % 5 * MS)
        c.client_sends(REQUEST)
        c.server_sends(c.full_segment, after_ns=200 * US)
        c.client_acks(after_ns=10 * US)

    result = diagnose(talk(exchange, rtt_ns=10 * MS).segments)
    assert (result.verdict, result.summary.stalls, result.summary.behind_full) == ("STALL", 19, 19)


@pytest.mark.parametrize(("is_bsd", "verdict", "stalls"), [(False, "INCONCLUSIVE", 0), (True, "STALL", 19)])
def test_what_bsd_sends_with_an_ack_that_it_owes_may_have_been_held(diagnose, is_bsd, verdict, stalls):
    """It acknowledges every second segment at once, and whatever waits leaves with that (tcp_output, TF_ACKNOW)."""

    def exchange(c: Conversation, number: int) -> None:
        server_held(c, number)
        c.pause(100 * MS)
        header = c.server_sends(HEADER)
        for before in (2, 1):  # these leave just before the header arrives
            c.client_sends(REQUEST, at_ns=header.ts_ns + c.one_way_ns - before * US)
        c.server_sends(BODY, after_ns=5 * US)
        c.client_acks(after_ns=10 * US)

    result = diagnose(talk(exchange, rtt_ns=60 * MS, server_is_bsd=is_bsd).seen_at("client"))
    assert (result.verdict, result.summary.stalls) == (verdict, stalls)
    assert ("nagle_off_elsewhere" in result.quality.unresolved) is not is_bsd


@pytest.mark.parametrize(("is_bsd", "verdict", "stalls"), [(False, "INCONCLUSIVE", 0), (True, "STALL", 15)])
def test_what_left_with_bsd_s_own_late_ack_does_not_clear_its_program(diagnose, is_bsd, verdict, stalls):
    """Captured at the client: there it passes half a round trip after the client's late ACK."""

    def exchange(c: Conversation, number: int) -> None:
        if number % 4:
            server_held(c, number)
            return
        header = c.server_sends(HEADER)
        c.client_sends(REQUEST, at_ns=header.ts_ns + US)  # also under way when the header is
        timer = header.ts_ns + c.one_way_ns + LATE  # both ends have one that begins then
        c.client_acks(at_ns=timer)
        c.server_sends(BODY, at_ns=timer + US)
        c.client_acks(after_ns=10 * US)

    result = diagnose(talk(exchange, rtt_ns=10 * MS, server_is_bsd=is_bsd).seen_at("client"))
    assert (result.verdict, result.summary.stalls) == (verdict, stalls)


@pytest.mark.parametrize(("story", "verdict", "stalls"), [(server_held, "STALL", 19), (nodelay, "CLEAN", 0)])
def test_what_is_never_pushed_is_no_full_segment_for_that(diagnose, story, verdict, stalls):
    """ns-3 never sets PSH: two segments of one size that went out one by one are not as large as they can be."""
    result = diagnose([_never_pushed(s, window=65_535) for s in talk(story).segments])
    assert (result.verdict, result.summary.stalls) == (verdict, stalls)


def test_a_linux_that_never_pushes_announced_more_each_time(diagnose):
    """Each write with MSG_MORE: the kernel keeps the tail until the ACK comes, TCP_NODELAY or not."""
    result = diagnose([s if s.dport == 80 else _never_pushed(s, s.window) for s in talk(server_held).segments])
    assert (result.verdict, result.quality.rejected["corked"]) == ("CLEAN", 19)


def test_where_the_path_clears_psh_no_linux_announced_more(diagnose):
    """Neither end's data has it."""
    result = diagnose([_never_pushed(s, s.window) for s in talk(server_held).segments])
    assert (result.verdict, result.summary.stalls) == ("STALL", 19)


def _never_pushed(s: Segment, window: int) -> Segment:
    """A segment without PSH; a SYN with that window, which tells Linux."""
    return replace(s, flags=s.flags.replace("P", ""), window=window if "S" in s.flags else s.window)


def test_what_may_be_a_full_segment_does_not_show_that_nagle_is_off(diagnose):
    """Without MSS and PSH nothing tells that 700 bytes are full; but they are more than surely is small."""

    def exchange(c: Conversation, number: int) -> None:
        server_held(c, number)
        if number % 2:
            c.client_sends(REQUEST)
            c.server_sends(HEADER, after_ns=200 * US)
            c.server_sends(700 + number, after_ns=30 * MS)
            c.client_acks(after_ns=10 * US)

    bare = [replace(s, flags=s.flags.replace("P", ""), mss=None, timestamps=None) for s in talk(exchange).segments]
    result = diagnose(bare)
    assert (result.verdict, result.summary.stalls) == ("STALL", 19)


@pytest.mark.parametrize(
    ("is_first_full", "flags", "verdict"), [(False, "A", "CLEAN"), (False, "PA", "STALL"), (True, "A", "CLEAN")]
)
def test_what_was_sent_with_msg_more_was_not_held_by_nagle(diagnose, is_first_full, flags, verdict):
    """Linux sends what a program has announced to go on with the next ACK, as promptly; but without PSH.

    So it does with the rest of a write whose full segment it has sent, which has no PSH, either.
    """

    def announced(c: Conversation, number: int) -> None:
        c.client_sends(REQUEST)
        if is_first_full:
            c.server_sends(c.full_segment, after_ns=200 * US, flags="A")
        else:
            c.server_sends(HEADER, after_ns=200 * US)
        c.client_acks(after_ns=LATE + number % 5 * MS)
        c.server_sends(300, after_ns=RELEASE, flags=flags)
        c.client_acks(after_ns=10 * US)
        c.server_sends(BODY, after_ns=2 * MS)
        c.client_acks(after_ns=10 * US)

    result = diagnose(talk(announced).segments)
    assert result.verdict == verdict
    assert result.quality.rejected["corked"] == (19 if flags == "A" else 0)


def test_full_segments_shorter_than_the_mss_do_not_show_that_nagle_is_off(diagnose):
    """MD5 leaves 1440 B of them: four in flight, none with PSH but the last; then header and body are held."""

    def exchange(c: Conversation, number: int) -> None:
        c.client_sends(REQUEST)
        for size, flags in ((1440, "A"), (1440, "A"), (1440, "A"), (700, "PA")):
            c.server_sends(size, flags=flags, after_ns=5 * US)
        c.client_acks(after_ns=10 * US)
        server_held(c, number)

    result = diagnose(talk(exchange).segments)
    assert (result.verdict, result.summary.stalls) == ("STALL", 19)
    assert result.connections[0].sent["server"].not_held == 0


@pytest.mark.parametrize(
    ("net", "ids", "stalls"),
    [("fd00::", 0, 0), ("10.0.0.", 1, 0), ("10.0.0.", 0, 19)],
    ids=["IPv6", "IPv4 as of Linux", "IPv4 without identification"],
)
def test_without_a_handshake_what_went_beside_other_data_is_full(engine, diagnose, monkeypatch, net, ids, stalls):
    """Nagle's algorithm let it go behind a small segment, so the late ACK is of more than a full one: not read.

    But what leaves the identification of its packets 0 is no Linux, and macOS delays such ACKs, too.
    """
    monkeypatch.setattr("nagle_lab.diagnosis.analysis.make_engine", engine)

    def exchange(c: Conversation, _: int) -> None:
        c.client_sends(HEADER)
        c.client_sends(2 * c.full_segment, after_ns=5 * US)
        c.server_acks(after_ns=LATE)
        c.client_sends(BODY, after_ns=RELEASE)
        c.server_sends(REQUEST, after_ns=200 * US)
        c.client_acks(after_ns=10 * US)

    talked = talk(exchange, client=(f"{net}1", 40_000), server=(f"{net}2", 80))
    segments = [replace(s, ip_id=ids * at) for at, s in enumerate(talked.segments, 1) if "S" not in s.flags]
    result = diagnose(segments)
    assert (result.verdict, result.summary.stalls) == ("STALL" if stalls else "CLEAN", stalls)
    assert result.quality.rejected["not_read"] == 19 - stalls


def test_what_an_end_takes_does_not_tell_what_its_peer_takes(diagnose):
    """The client's SYN is missing, and the server takes 536 bytes: what it sends itself may be larger, and held."""
    segments = [
        replace(s, mss=s.mss and 536)
        for s in talk(reply_in_two(LATE)).segments
        if s.flags != "S"
    ]  # fmt: skip
    assert BODY > 536
    assert diagnose(segments).summary.stalls == 19


@pytest.mark.parametrize(
    ("waits", "verdict", "stalls"), [(lambda _: False, "STALL", 19), (lambda n: n % 6 > 0, "CLEAN", 0)]
)
def test_who_does_not_wait_behind_full_segments_holds_nothing_behind_them(diagnose, waits, verdict, stalls):
    """Linux (Minshall): on a busy machine a tail that is written 5 ms later follows the ACK of 10 ms a few times."""

    def exchange(c: Conversation, number: int) -> None:
        c.client_sends(REQUEST)
        c.server_sends(c.full_segment, after_ns=200 * US)
        if waits(number):
            c.server_sends(BODY, after_ns=5 * MS)
            c.client_acks(after_ns=20 * US)
        else:
            c.client_acks(after_ns=11 * MS + number % 3 * MS)
            c.server_sends(BODY, after_ns=RELEASE)
            c.client_acks(after_ns=10 * US)

    result = diagnose(talk(exchange).segments)
    assert (result.verdict, result.summary.stalls) == (verdict, stalls)


@pytest.mark.parametrize(("length", "verdict", "stalls"), [(32_800, "STALL", 5), (20_000, "INCONCLUSIVE", 0)])
def test_half_of_the_window_is_full(diagnose, length, verdict, stalls):
    """On loopback, where the MSS is larger than that: Linux sends so much at once, whatever is unacknowledged."""
    c = Conversation(mss=65_495)
    c.handshake()
    for number in range(20):
        prompt(c, number)
        if number % 4 == 0:
            server_held(c, number)
            c.client_sends(REQUEST)
            c.server_sends(HEADER, after_ns=200 * US)
            c.server_sends(length - number, after_ns=25 * MS, flags="A")
            c.client_acks(after_ns=10 * US, window=65_536 >> 7)
    result = diagnose(c.segments)
    assert (result.verdict, result.summary.stalls) == (verdict, stalls)


@pytest.mark.parametrize(
    ("window", "released", "said"),
    [(64, 615, {"STALL"}), (64, 20, {"INCONCLUSIVE", "window_unknown"}), (63, 20, {"STALL"}), (65, 20, {"STALL"})],
)
def test_a_window_of_unknown_scale_may_be_full(diagnose, window, released, said):
    """A header of 64 bytes, and a window that its ACK states as so many: on loopback 65,536 bytes, scaled."""
    c = Conversation()
    for _ in range(20):
        c.client_sends(REQUEST, window=window)
        c.server_sends(64, after_ns=200 * US)
        c.client_acks(after_ns=LATE, window=window)
        c.server_sends(released, after_ns=RELEASE)
        c.client_acks(after_ns=10 * US, window=window)
    result = diagnose(c.segments)
    assert {str(result.verdict), *result.quality.unresolved} == said


def test_a_window_that_opened_meanwhile_did_not_hold_the_data(diagnose):
    """The trigger filled the window; the ACK of what came before it opened it again, and the tail waited on."""
    c = Conversation()
    c.handshake(wscale=None)
    for _ in range(20):
        c.client_sends(REQUEST, window=2_800)
        full = c.server_sends(1_448, after_ns=200 * US, flags="A")
        c.server_sends(1_352, after_ns=5 * US)
        c.client_acks(after_ns=1 * MS, ack=full.seq + full.length, window=2_800)
        c.client_acks(after_ns=LATE, window=2_800)
        c.server_sends(BODY, after_ns=RELEASE)
        c.client_acks(after_ns=10 * US, window=2_800)
        c.pause(5 * MS)
    assert diagnose(c.segments).summary.stalls == 20
