"""What else may follow a late ACK: each explanation with what tells it from a hold, or with what cannot."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest

from nagle_lab.diagnosis.analysis import analyze
from nagle_lab.diagnosis.result.result import Result
from nagle_lab.evidence.ladder import ladder_of
from nagle_lab.reports.words.ladder_text import ladder_text
from nagle_lab.reports.words.phrases import findings
from support.stories import BODY, HEADER, LATE, RELEASE, REQUEST, client_held, nodelay, prompt, server_held, talk
from support.synthetic import MS, SECOND, US, Conversation, Segment, merge, pcap_bytes

Story = Callable[[Conversation, int], None]


@pytest.fixture
def diagnose(tmp_path):
    def of(segments: list[Segment], **format_) -> Result:
        path = tmp_path / "some.pcap"
        path.write_bytes(pcap_bytes(segments, **format_))
        return analyze(path)

    return of


def reply_in_two(wait: int, after: Callable[[int], int], first: int = HEADER) -> Story:
    """A reply whose second part leaves ``after`` the ACK, which comes ``wait`` after the first part; ns."""

    def exchange(c: Conversation, number: int) -> None:
        c.client_sends(REQUEST)
        c.server_sends(first, after_ns=200 * US)
        c.client_acks(after_ns=wait + number % 5 * MS)
        c.server_sends(BODY, after_ns=after(number))
        c.client_acks(after_ns=10 * US)

    return exchange


@pytest.mark.parametrize("wait", [10 * MS, 15 * MS, 40 * MS, 100 * MS, 200 * MS])
def test_any_delayed_ack_timer_counts(diagnose, wait):
    result = diagnose(talk(reply_in_two(wait, lambda _: RELEASE)).segments)
    assert (result.verdict, result.summary.stalls) == ("STALL", 19)
    assert result.summary.grounds == {"repetition_at_sender": 19}


def test_a_tail_behind_a_full_segment_is_held_by_rfc_896(diagnose):
    """Where a full segment was unacknowledged, what is sent in one write waits, too, and the remedy says so."""
    result = diagnose(talk(reply_in_two(LATE, lambda _: RELEASE, first=1448)).segments)
    assert (result.verdict, result.summary.stalls, result.summary.behind_full) == ("STALL", 19, 19)
    assert "set TCP_NODELAY; one write does not help" in result.summary.remedy
    two_writes = diagnose(talk(reply_in_two(LATE, lambda _: RELEASE, first=1447)).segments)
    assert (two_writes.summary.stalls, two_writes.summary.behind_full) == (19, 0)
    assert "send header and body in one write, or set TCP_NODELAY. Or on" in two_writes.summary.remedy


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
        reply_in_two(LATE, lambda _: RELEASE, first=c.full_segment)(c, number)
        c.client_sends(REQUEST)
        c.server_sends(c.full_segment, after_ns=200 * US)
        c.client_acks(after_ns=10 * US)

    result = diagnose(talk(exchange, rtt_ns=10 * MS).segments)
    assert (result.verdict, result.summary.stalls, result.summary.behind_full) == ("STALL", 19, 19)


@pytest.mark.parametrize(("is_bsd", "verdict", "stalls"), [(False, "CLEAN", 0), (True, "STALL", 19)])
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

    result = diagnose(talk(exchange, rtt_ns=60 * MS, server_is_bsd=is_bsd).segments)
    assert (result.verdict, result.summary.stalls) == (verdict, stalls)
    assert (result.quality.rejected["nagle_off"] > 0) is not is_bsd


@pytest.mark.parametrize(("is_bsd", "verdict", "stalls"), [(False, "CLEAN", 0), (True, "STALL", 15)])
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


def test_a_program_that_waits_for_the_ack_is_not_accused(diagnose):
    """It takes as long as a woken program does, and nothing ever leaves without the ACK: that cannot be told."""
    result = diagnose(talk(reply_in_two(LATE, lambda number: (130 + number % 7 * 10) * US)).segments)
    assert (result.verdict, result.summary.stalls) == ("INCONCLUSIVE", 0)
    assert result.quality.unresolved == {"like_a_program": 19}
    assert "capture all connections of the sending host" in result.reason


@pytest.mark.parametrize(("paused", "verdict"), [(range(1, 24, 4), "CLEAN"), ((1, 2), "INCONCLUSIVE")])
def test_pauses_as_long_after_most_early_acks_are_the_program_s(diagnose, paused, verdict):
    """Two of three say less than that: a busy machine makes a program pause now and then."""

    def exchange(c: Conversation, number: int) -> None:
        early = number in (*paused, 23)
        wait, pause = (10 * US, LATE + 2 * MS) if early else (LATE, (130 + number % 7 * 10) * US)
        reply_in_two(wait, lambda _: 3 * MS if number == 23 else pause)(c, number)

    result = diagnose(talk(exchange, exchanges=24).segments)
    assert (result.verdict, result.summary.stalls) == (verdict, 0)
    assert (result.quality.rejected["nagle_off"] >= 10) is (verdict == "CLEAN")


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


def test_releases_that_follow_the_ack_late_are_no_pauses(diagnose):
    """A hundred connections in step on a busy machine: it releases a few, and then does something else."""

    def busy(c: Conversation, number: int) -> None:
        reply_in_two(LATE, lambda number: 60 * US if number < 6 else (1275 + number * 4) * US)(c, number)

    result = diagnose(talk(busy, exchanges=101).segments)
    assert (result.verdict, result.summary.stalls) == ("INCONCLUSIVE", 0)
    assert result.quality.unresolved == {"like_a_program": 100}


def test_one_prompt_release_among_pauses_is_a_coincidence(diagnose):
    def pauses(c: Conversation, number: int) -> None:
        reply_in_two(LATE, lambda number: 20 * US if number == 7 else (3 + number) * MS)(c, number)

    result = diagnose(talk(pauses, exchanges=30).segments)
    assert (result.verdict, result.summary.stalls) == ("CLEAN", 0)
    assert result.quality.unresolved == {"coincidence": 1}


def test_what_the_program_wrote_late_was_not_held_so_long(diagnose):
    """A pause of 20 ms shows where the ACK comes early; of a wait of 42 ms it was held the other 22."""

    def paused(c: Conversation, number: int) -> None:
        if number % 3 == 0:
            reply_in_two(10 * US, lambda _: 20 * MS)(c, 0)
        else:
            server_held(c, number)

    result = diagnose(talk(paused, exchanges=30).segments)
    assert result.verdict == "STALL"
    hold, wait = result.summary.hold_ms, result.summary.wait_ms
    assert hold is not None and wait is not None
    assert hold.high == pytest.approx(wait.p50 - 20, abs=0.5)
    assert f"{hold.high:.1f} ms sooner" in result.summary.remedy


def test_an_ack_that_the_capture_lost_takes_no_stall_away(diagnose):
    """The release's timestamp echoes it. Without timestamps the other stalls stand, too."""
    c = talk(server_held)
    late = [i for i, s in enumerate(c.segments) if not s.length and s.flags == "A" and s.sport == 40_000]
    lost = [s for i, s in enumerate(c.segments) if i not in late[11:15:2]]
    result = diagnose(lost)
    assert (result.verdict, result.summary.stalls) == ("STALL", 19)
    assert result.summary.grounds == {"repetition_at_sender": 17, "timestamps": 2}
    assert [stall.ack_frame for stall in result.stalls].count(None) == 2
    bare = diagnose([replace(s, timestamps=None) for s in lost])
    assert (bare.verdict, bare.summary.stalls) == ("STALL", 17)


def test_timestamps_that_do_not_echo_the_latest_deny_nothing(diagnose):
    """RFC 7323 §4.3 has a release echo the late ACK. ns-3 may echo the request, but not when it answers that."""
    stuck, latest, before = [], 1, 1
    for s in talk(server_held, rtt_ns=10 * MS).segments:
        assert s.timestamps is not None
        if s.sport == 80:
            stuck.append(replace(s, timestamps=(s.timestamps[0], before)))
        else:
            stuck.append(s)
            latest, before = s.timestamps[0], latest
    result = diagnose(stuck)
    assert (result.verdict, result.summary.stalls) == ("STALL", 19)


@pytest.mark.parametrize(("story", "verdict", "stalls"), [(server_held, "STALL", 19), (nodelay, "CLEAN", 0)])
def test_what_is_never_pushed_is_no_full_segment_for_that(diagnose, story, verdict, stalls):
    """ns-3 never sets PSH: two segments of one size that went out one by one are not as large as they can be."""
    segments = [replace(s, flags=s.flags.replace("P", "")) for s in talk(story).segments]
    result = diagnose(segments)
    assert (result.verdict, result.summary.stalls) == (verdict, stalls)


@pytest.mark.parametrize(("slower", "verdict"), [(1100 * US, "INCONCLUSIVE"), (3 * MS, "CLEAN")])
def test_a_slow_link_is_no_pause(diagnose, slower, verdict):
    """A body of 615 bytes passes 5 Mbit/s in a millisecond: away from its sender, too late, but no acquittal."""

    def exchange(number: int) -> list[Segment]:
        c = Conversation(("10.0.0.1", 40_000 + number), t0_ns=(1_700_000_000 + number) * SECOND, rtt_ns=4 * MS)
        c.handshake()
        reply_in_two(LATE, lambda _: slower)(c, number)
        c.close()
        return c.seen_at("client")

    result = diagnose(merge(*map(exchange, range(15))))
    assert (result.verdict, result.summary.stalls) == (verdict, 0)


def test_a_connection_before_and_after_nat_counts_once(diagnose):
    segments = talk(server_held).segments
    inside = {"10.0.0.1": "192.0.2.7"}
    again = [
        replace(s, src=inside.get(s.src, s.src), dst=inside.get(s.dst, s.dst), ts_ns=s.ts_ns + 20 * US)
        for s in segments
    ]  # fmt: skip
    result = diagnose(merge(segments, again))
    assert (result.summary.stalls, result.summary.exchanges) == (19, 20)


def test_connections_that_all_begin_with_the_same_numbers_are_no_views(diagnose):
    """ns-3 begins each with 0: that says nothing of who is whom."""
    c, other = (
        talk(server_held, client=("10.0.0.1", port), client_isn=0, server_isn=0, t0_ns=1_700_000_000 * SECOND + after)
        for port, after in ((40_000, 0), (40_001, 300 * MS))
    )
    result = diagnose(merge(c.segments, other.segments))
    assert (result.summary.stalls, result.summary.exchanges) == (38, 40)


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


def behind_nat(segments: list[Segment], later_ns: int = 0) -> list[Segment]:
    """The same packets beyond 10.0.0.2, which translates both addresses."""
    beyond = {"10.0.0.1": "10.0.0.2", "10.0.0.2": "10.0.0.3"}
    return [replace(s, src=beyond[s.src], dst=beyond[s.dst], ts_ns=s.ts_ns + later_ns) for s in segments]


def test_what_nat_passes_on_is_the_same_connection_and_no_relay(diagnose):
    """At the NAT, the data arrives at its own address just before it leaves for the client."""
    beyond = talk(server_held, exchanges=40, rtt_ns=10 * MS).seen_at("server")
    within = [replace(s, ts_ns=s.ts_ns + (-20 if s.src == "10.0.0.1" else 20) * US) for s in beyond]
    result = diagnose(merge(within, behind_nat(beyond)))
    assert (result.verdict, result.summary.stalls, result.summary.exchanges) == ("STALL", 39, 40)


def test_captures_of_both_ends_of_a_nat_count_once_whatever_their_clocks(diagnose):
    c = talk(server_held, exchanges=40, rtt_ns=10 * MS)
    result = diagnose(merge(c.seen_at("client"), behind_nat(c.seen_at("server"), later_ns=30 * MS)))
    assert (result.verdict, result.summary.stalls, result.summary.exchanges) == ("STALL", 39, 40)


def test_ipv6_packets_captured_on_three_interfaces_count_once(diagnose):
    segments = talk(server_held, client=("fd00::1", 40_000), server=("fd00::2", 80)).segments
    copies = [[replace(s, ts_ns=s.ts_ns + later * 2 * US) for s in segments] for later in range(3)]
    result = diagnose(merge(*copies))
    assert (result.verdict, result.summary.stalls, result.summary.exchanges) == ("STALL", 19, 20)


@pytest.mark.parametrize(("client", "server"), [("10.0.0.1", "10.0.0.2"), ("fd00::1", "fd00::2")])
def test_the_ladder_says_what_was_captured_again(tmp_path, client, server):
    segments = talk(server_held, client=(client, 40_000), server=(server, 80)).segments
    path = tmp_path / "any.pcap"
    path.write_bytes(pcap_bytes(merge(segments, [replace(s, ts_ns=s.ts_ns + 2 * US) for s in segments])))
    result = analyze(path)
    shown = ladder_of([path], result, result.stalls[0])
    assert [(row.part, row.again) for row in shown.rows][:8] == [
        ("", False), ("", True), ("trigger", False), ("", True), ("late ACK", False), ("", True), ("release", False),
        ("", True),
    ]  # fmt: skip
    assert ladder_text(shown).plain.count("seen again") == 4


def test_late_acks_of_a_short_timer_are_not_denied(run, tmp_path):
    path = tmp_path / "short.pcap"
    path.write_bytes(pcap_bytes(talk(reply_in_two(10 * MS, lambda _: RELEASE)).segments))
    assert "\ndelayed ACKs  all with data, or sooner than 20 ms" in run("analyze", path)[1]


def test_stamps_too_coarse_for_distances_decide_nothing(diagnose):
    segments = talk(reply_in_two(LATE, lambda _: 120 * US), timestamps=False).segments
    coarse = [replace(s, ts_ns=s.ts_ns // (10 * MS) * 10 * MS) for s in segments]
    result = diagnose(coarse)
    assert (result.verdict, result.quality.clock_resolution_us) == ("INCONCLUSIVE", 10_000)
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


def test_what_nagle_costs_in_round_trips_is_a_finding_of_its_own(diagnose):
    result = diagnose(talk(prompt, rtt_ns=10 * MS).segments)
    assert (result.verdict, result.summary.round_trips.count) == ("CLEAN", 20)
    assert result.summary.round_trips.total_ms == pytest.approx(200, rel=0.05)
    assert result.connections[0].round_trips_ms == result.summary.round_trips.total_ms
    assert result.summary.round_trips_by == {"client": 0, "server": 20}


def test_what_each_connection_lost_adds_up(diagnose):
    other = talk(server_held, exchanges=7, client=("10.0.0.7", 5)).segments
    result = diagnose(merge(talk(server_held).segments, other))
    assert result.connections[0].held_ms > result.connections[1].held_ms > 6 * 40
    assert sum(c.held_ms for c in result.connections) == pytest.approx(result.summary.lost_ms_total, abs=0.01)


def test_clients_far_and_near_are_told_apart_at_the_server(diagnose):
    """A round trip of 40 ms is no delayed ACK beside a client that answers within microseconds."""
    far = talk(prompt, rtt_ns=40 * MS, client=("10.0.0.8", 999)).seen_at("server")
    near = talk(server_held, client=("10.0.0.9", 999)).segments
    result = diagnose(merge(far, near))
    assert result.summary.stalls == 19
    assert {str(end) for end in result.summary.delayed_ends} == {"10.0.0.9:999"}


def test_both_kinds_of_ends_are_named(diagnose):
    other = talk(client_held, client=("10.0.0.7", 5), server=("10.0.0.4", 99)).segments
    result = diagnose(merge(talk(server_held).segments, other))
    assert result.summary.held_by == "both"
    assert "the server 10.0.0.2:80 (19 times) and the client 10.0.0.7:5 (19 times)" in result.reason


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


def test_another_connection_with_tcp_nodelay_acquits_nobody(diagnose):
    """One server, one port: a stream that waits for no ACK beside replies that are held."""

    def push(c: Conversation, number: int) -> None:
        sent = c.server_sends(100 + number, after_ns=30 * MS)
        if number % 5 == 4:
            c.client_acks(after_ns=40 * MS)
            c.server_sends(77, at_ns=sent.ts_ns + 41 * MS)
            c.client_acks(after_ns=10 * US)

    def streams(c: Conversation, number: int) -> None:
        c.client_sends(10)
        for turn in range(8):
            push(c, turn + number)

    stream = talk(streams, exchanges=20, client=("10.0.0.5", 50_000)).segments
    result = diagnose(merge(talk(server_held).segments, stream))
    assert (result.verdict, result.summary.stalls) == ("STALL", 19)


@pytest.mark.parametrize("rtt_us", [200, 400, 600, 900])
def test_within_a_data_centre_the_client_s_capture_tells_as_well(diagnose, rtt_us):
    """A round trip of less than a millisecond is a path, too: releases come one of it after the ACK."""
    c = talk(server_held, exchanges=40, rtt_ns=rtt_us * US)
    at_client, at_server = (diagnose(c.seen_at(position)) for position in ("client", "server"))
    assert at_server.summary.stalls == at_client.summary.stalls == 39
    assert at_client.summary.grounds == {"repetition_on_path": 39}


def test_the_slowest_round_trips_of_many_are_no_delayed_acks(diagnose):
    """Nagle's algorithm waits for 200 clients far away; a few of their ACKs are 10 to 60 ms late on the way."""
    talks = []
    for number in range(200):
        c = Conversation(client=(f"10.0.{number}.1", 40_000), rtt_ns=(20 + number % 60) * MS)
        c.handshake()
        c.client_sends(REQUEST)
        c.server_sends(HEADER, after_ns=200 * US)
        c.client_acks(after_ns=(10 + number % 50) * MS if number % 30 == 7 else 10 * US)
        c.server_sends(BODY, after_ns=RELEASE)
        c.client_acks(after_ns=10 * US)
        c.close()
        talks.append(c.seen_at("server"))
    result = diagnose(merge(*talks))
    assert (result.verdict, result.summary.stalls) == ("CLEAN", 0)
    assert result.quality.unresolved == {"path_varies": 7}


def test_a_stream_without_answers_is_clean_where_a_stall_would_have_shown(diagnose):
    """TCP_NODELAY, and ticks as long as the peer's timer: late ACKs, pauses behind them, and data before them."""

    def ticks(c: Conversation, number: int) -> None:
        if number % 3:
            c.client_acks(after_ns=40 * MS)
            c.server_sends(100, after_ns=5 * MS)
        else:
            c.server_sends(100, after_ns=45 * MS)
            c.client_acks(after_ns=10 * US)

    result = diagnose(talk(ticks, exchanges=60).segments)
    assert result.summary.exchanges < 10
    assert (result.verdict, result.summary.stalls) == ("CLEAN", 0)
    assert "followed a late ACK" in result.reason


@pytest.mark.parametrize("chunk", [16, 1 << 16])
def test_however_long_it_goes_on_a_share_of_data_without_ack_acquits_nobody(diagnose, monkeypatch, chunk):
    """TCP_NODELAY for one reply in twelve: candidates are compared with what was sent among them, not with all."""
    monkeypatch.setattr("nagle_lab.tcp.tables.CHUNK", chunk)

    def flushed(c: Conversation, number: int) -> None:
        if number % 12 == 5:
            c.client_sends(REQUEST)
            c.server_sends(HEADER, after_ns=200 * US)
            c.server_sends(300, after_ns=20 * US)
            c.server_sends(BODY, after_ns=30 * MS)
            c.client_acks(after_ns=10 * US)
        else:
            server_held(c, number)

    result = diagnose(talk(flushed, exchanges=240).segments)
    assert (result.verdict, result.summary.stalls) == ("STALL", 219)


def chat(c: Conversation, number: int, *, nagle: bool = True) -> None:
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
        result = diagnose(talk(chat, exchanges=60, rtt_ns=rtt).seen_at(position))
        assert result.verdict == "STALL"
        assert result.summary.grounds["data_acks"] >= 50


def test_an_end_that_speaks_beside_unacknowledged_data_holds_nothing(diagnose):
    free = partial(chat, nagle=False)
    result = diagnose(talk(free, exchanges=60).seen_at("server"))
    assert "data_acks" not in result.summary.grounds


def test_always_held_until_data_carries_the_ack_is_never_clean_at_the_sender(diagnose):
    """As soon behind each request as only a kernel is: it looks like an answer, but no program is so fast."""

    def tick(c: Conversation, number: int) -> None:
        c.client_sends(50)
        c.server_sends(30 + 13 * number % 170, after_ns=(20 + number % 5) * US)
        c.pause(20 * MS)

    for answer_to_syn in (20 * US,):
        c = Conversation()
        c.handshake(after_ns=answer_to_syn)
        for number in range(60):
            tick(c, number)
        result = diagnose(c.segments)
        assert (result.verdict, set(result.quality.unresolved)) == ("INCONCLUSIVE", {"ack_on_data"})


def test_a_probe_for_a_loss_does_not_show_that_nagle_is_off(diagnose):
    """TCP sends what it holds when the last segment stays unacknowledged for 200 ms and more (RFC 8985 §7.3)."""

    def probed(c: Conversation, number: int) -> None:
        if number % 2:
            server_held(c, number)
            return
        c.client_sends(REQUEST)
        c.server_sends(HEADER, after_ns=200 * US)
        c.server_sends(BODY, after_ns=205 * MS)
        c.client_acks(after_ns=10 * US)

    result = diagnose(talk(probed, exchanges=40).segments)
    assert (result.verdict, result.summary.stalls) == ("STALL", 20)


@pytest.mark.parametrize(("every", "verdict"), [(30, "INCONCLUSIVE"), (100, "CLEAN")])
def test_a_few_late_acks_that_cannot_be_told_are_enough_to_hide_a_rare_stall(diagnose, every, verdict):
    """Of 120 exchanges four, or one, may have stalled, and in no other could one have shown."""
    rare = reply_in_two(LATE, lambda number: (130 + number % 7 * 10) * US)

    def exchange(c: Conversation, number: int) -> None:
        (rare if number % every == 7 else prompt)(c, number)

    result = diagnose(talk(exchange, exchanges=120).segments)
    assert (result.verdict, result.summary.stalls) == (verdict, 0)
    assert sum(result.quality.unresolved.values()) < 0.04 * 120


def test_a_loss_probe_that_carries_the_held_data_is_no_cork(diagnose):
    """The trigger is lost beyond the capture, so it stays unacknowledged; the probe sends the next segment."""

    def probed(c: Conversation, _: int) -> None:
        c.client_sends(REQUEST)
        c.server_sends(HEADER, after_ns=200 * US)
        c.server_sends(BODY, after_ns=204 * MS)
        c.client_acks(after_ns=10 * US)

    def corked(c: Conversation, _: int) -> None:
        c.client_sends(REQUEST)
        c.server_sends(HEADER, after_ns=200 * US)
        c.client_acks(after_ns=10 * US)
        c.server_sends(BODY, after_ns=204 * MS)
        c.client_acks(after_ns=10 * US)

    for story, cause in ((probed, "retransmission"), (corked, "cork")):
        counts = {name: idle_gap.count for name, idle_gap in diagnose(talk(story).segments).idle_gaps.items()}
        assert {name: count for name, count in counts.items() if count} == {cause: 19}


@pytest.mark.parametrize(
    ("late", "cause"), [((204, 208), "likely_cork"), ((200.4, 200.4), "server_think"), ((204, 260), "server_think")]
)
def test_replies_as_late_as_the_cork_s_timer_each_time_are_probably_corked(diagnose, late, cause):
    def corked(c: Conversation, number: int) -> None:
        c.client_sends(REQUEST)
        c.server_acks(after_ns=10 * US)
        c.server_sends(BODY, after_ns=round(late[number % 2] * MS))
        c.client_acks(after_ns=10 * US)

    result = diagnose(talk(corked).segments)
    assert result.verdict == "CLEAN"
    assert result.idle_gaps[cause].count == 19


@pytest.mark.parametrize("position", ["client", "server"])
def test_the_hold_is_the_same_wherever_it_was_captured(diagnose, position):
    """At the client the trigger arrives later and the ACK leaves earlier: the wait there lacks the round trip."""
    result = diagnose(talk(server_held, rtt_ns=20 * MS).seen_at(position))
    held = (LATE + 2 * MS + 20 * MS) / MS  # the median
    assert result.summary.hold_ms.high == pytest.approx(held, abs=0.1)
    assert f"leaves up to {held:.1f} ms sooner" in result.summary.remedy


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
        reply_in_two(wait, lambda _: pause)(c, 0)

    hold = diagnose(talk(paused, exchanges=60).segments).summary.hold_ms
    assert (hold.low, hold.high) == (0, pytest.approx(LATE / MS, abs=0.1))


@pytest.mark.parametrize("position", ["client", "server"])
def test_what_round_trips_cost_is_the_same_wherever_it_was_captured(diagnose, position):
    result = diagnose(talk(prompt, exchanges=40, rtt_ns=20 * MS).seen_at(position))
    assert result.summary.round_trips.count == 40
    assert result.summary.round_trips.total_ms == pytest.approx(40 * 20, rel=0.01)


def test_the_shortest_waits_show_when_it_had_been_written(diagnose):
    """A timer of 10 to 200 ms by phase (lwIP), and data always at once behind it: written within 20 ms."""

    def by_phase(c: Conversation, number: int) -> None:
        reply_in_two((10 + 10 * number % 190) * MS, lambda _: RELEASE)(c, 0)

    hold = diagnose(talk(by_phase, exchanges=60).segments).summary.hold_ms
    assert hold.low > hold.high - 35 > 50


def test_away_from_a_program_paced_by_something_else_its_data_is_no_release(diagnose):
    """Where the ACK comes early, the body comes no sooner: the round trip after the late ACK is a coincidence."""

    def paced(c: Conversation, number: int) -> None:
        early = number % 4 == 1
        reply_in_two(10 * US if early else LATE, lambda _: LATE if early else RELEASE)(c, 0)

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


@pytest.mark.parametrize(("spread", "verdict"), [(1, "STALL"), (12, "INCONCLUSIVE")])
def test_between_kernel_and_program_the_spread_tells(diagnose, spread, verdict):
    """A median of 55 µs at the sender: a kernel's times are alike, those of a program that is woken are not."""
    after = reply_in_two(LATE, lambda number: (50 + number % 11 * spread) * US)
    result = diagnose(talk(after, exchanges=40).segments)
    assert result.verdict == verdict


@pytest.mark.parametrize(("pauses", "stalls"), [(False, 39), (True, 26)])
def test_releases_that_waited_for_a_tick_at_the_peer_count_too(diagnose, pauses, stalls):
    """Every fourth comes 4 ms behind the ACK, and others even later where the program pauses."""

    def after(number: int) -> int:
        if pauses and number % 12 == 5:
            return 15 * MS
        return 4 * MS if number % 4 == 3 else 70 * US

    def exchange(c: Conversation, number: int) -> None:
        (reply_in_two(LATE, after) if number > 3 else prompt)(c, number)

    result = diagnose(talk(exchange, exchanges=43).segments)
    assert (result.verdict, result.summary.stalls) == ("STALL", stalls)


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


def test_an_exchange_with_two_open_questions_is_unseen_once(diagnose):
    def exchange(c: Conversation, number: int) -> None:
        c.client_sends(REQUEST)
        for size in (HEADER, 300, 315):
            c.server_sends(size, after_ns=(130 + number % 7 * 10) * US)
            c.client_acks(after_ns=LATE + number % 5 * MS)

    result = diagnose(talk(exchange).segments)
    assert result.quality.unresolved == {"like_a_program": 2 * 19}
    assert (result.summary.exchanges, result.summary.seen_exchanges) == (20, 1)


@pytest.mark.parametrize(("flags", "verdict"), [("A", "CLEAN"), ("PA", "STALL")])
def test_what_was_sent_with_msg_more_was_not_held_by_nagle(diagnose, flags, verdict):
    """Linux sends what a program has announced to go on with the next ACK, as promptly; but without PSH."""

    def announced(c: Conversation, number: int) -> None:
        c.client_sends(REQUEST)
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

    def bulk(c: Conversation) -> None:
        c.client_sends(REQUEST)
        for size, flags in ((1440, "A"), (1440, "A"), (1440, "A"), (700, "PA")):
            c.server_sends(size, flags=flags, after_ns=5 * US)
        c.client_acks(after_ns=10 * US)

    def exchange(c: Conversation, number: int) -> None:
        bulk(c)
        server_held(c, number)

    result = diagnose(talk(exchange).segments)
    assert (result.verdict, result.summary.stalls) == ("STALL", 19)
    assert result.connections[0].sent["server"].not_held == 0


@pytest.mark.parametrize(("sooner", "verdict"), [(False, "INCONCLUSIVE"), (True, "STALL")])
def test_a_queue_that_filled_up_after_the_handshake_is_no_delayed_ack(diagnose, sooner, verdict):
    """All ACKs take 20 to 40 ms more than the handshake took; with data that does not, it was their senders."""

    def exchange(c: Conversation, number: int) -> None:
        queued = (20 + number * 7 % 20) * MS
        c.client_sends(REQUEST, after_ns=100 * US if sooner else queued)
        c.server_sends(HEADER, after_ns=200 * US)
        c.client_acks(after_ns=queued)
        c.server_sends(BODY, after_ns=RELEASE)
        if not sooner:
            c.client_acks(after_ns=queued)

    talks = []
    for port in (1, 2, 3):
        c = Conversation(client=("10.0.0.1", port), rtt_ns=4 * MS)
        c.handshake()
        for number in range(20):
            exchange(c, number)
        talks.append(c.seen_at("server"))
    assert diagnose(merge(*talks)).verdict == verdict


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


def test_a_slow_program_behind_a_fast_handshake_is_not_so_far_away(diagnose):
    """A gateway to a serial line: it acknowledges late, and each part of a file takes 320 ms."""
    c = Conversation(timestamps=False)
    c.handshake(after_ns=300 * US)
    for _ in range(6):
        c.client_sends(31, after_ns=12 * MS)
        c.server_acks(after_ns=203 * MS)
        for number in range(4):
            c.server_sends(292, after_ns=(320 + number) * MS)
            c.client_acks(after_ns=199 * MS)
    result = diagnose(c.segments)
    assert (result.verdict, result.summary.stalls) == ("CLEAN", 0)


def test_what_was_held_before_tcp_nodelay_was_set_counts(diagnose):
    """OpenSSH: its key exchange is held twice, and TCP_NODELAY comes with the session."""
    c = Conversation()
    c.handshake()
    for _ in range(2):
        c.client_sends(16)
        c.server_acks(after_ns=LATE)
        c.client_sends(48, after_ns=RELEASE)
        c.server_sends(BODY, after_ns=200 * US)
        c.client_acks(after_ns=10 * US)
    for number in range(12):
        c.client_sends(36, after_ns=20 * MS)
        c.client_sends(36, after_ns=(60 + number) * MS)
        c.server_sends(44, after_ns=200 * US)
        c.client_acks(after_ns=10 * US)
    result = diagnose(c.segments)
    assert (result.verdict, result.summary.stalls, result.summary.grounds) == ("STALL", 2, {"promptness": 2})


def goes_on(c: Conversation, number: int) -> None:
    """A server with TCP_NODELAY writes its body 25 ms after its header, before any ACK."""
    c.client_sends(REQUEST)
    c.server_sends(HEADER, after_ns=200 * US)
    c.server_sends(BODY, after_ns=25 * MS + number * 100 * US)
    c.client_acks(after_ns=10 * US)


def in_turn(stories: dict[str, Story], parts: str, rtt_ns: int) -> Conversation:
    """One connection with an exchange for each letter of ``parts``."""
    c = Conversation(rtt_ns=rtt_ns)
    c.handshake()
    prompt(c, 0)
    for number, part in enumerate(parts):
        c.pause(2 * MS)
        stories[part](c, number)
    c.close()
    return c


@pytest.mark.parametrize("seen_at", ["server", "client"])
@pytest.mark.parametrize(
    ("parts", "verdict", "stalls"),
    [
        ("h" * 20 + "n" * 9, "STALL", 20),
        ("n" * 9 + "h" * 20, "STALL", 20),
        ("n" * 5 + "h" * 8, "STALL", 8),
        ("hnhhnhhnh" * 4, "CLEAN", 0),
    ],
    ids=["set", "cleared", "cleared, a few", "by turns"],
)
def test_an_option_that_changes_splits_its_connection(diagnose, parts, verdict, stalls, seen_at):
    """TCP_NODELAY is set, or cleared, between exchanges; where data waits and does not by turns, that is chance."""
    c = in_turn({"h": server_held, "n": goes_on}, parts, rtt_ns=10 * MS if seen_at == "client" else 0)
    result = diagnose(c.seen_at(seen_at))
    assert (result.verdict, result.summary.stalls) == (verdict, stalls)


def passes_on(c: Conversation, number: int) -> None:
    """A relay with TCP_NODELAY: what comes to it late leaves with the ACK; most follows 3 ms after the header."""
    if number % 3 == 0:
        server_held(c, number)
        return
    c.client_sends(REQUEST)
    c.server_sends(HEADER, after_ns=200 * US)
    c.server_sends(BODY, after_ns=3 * MS + number * 10 * US)
    c.client_acks(after_ns=10 * US)


@pytest.mark.parametrize("seen_at", ["server", "client"])
@pytest.mark.parametrize(
    ("parts", "verdict", "stalls"),
    [("r" * 30, "CLEAN", 0), ("h" * 10 + "s" * 20, "STALL", 10)],
    ids=["a relay", "set"],
)
def test_what_leaves_soon_beside_unacknowledged_data_did_not_wait(diagnose, parts, verdict, stalls, seen_at):
    """Data in between that left much sooner than the ACK shows that TCP_NODELAY is set, too."""
    stories = {"h": server_held, "r": passes_on, "s": lambda c, number: passes_on(c, 3 * number + 1)}
    c = in_turn(stories, parts, rtt_ns=2 * MS if seen_at == "client" else 0)
    result = diagnose(c.seen_at(seen_at))
    assert (result.verdict, result.summary.stalls) == (verdict, stalls)


@pytest.mark.parametrize("seen_at", ["server", "client"])
def test_a_few_before_the_option_changed_are_left_open(diagnose, seen_at):
    """As slow as a program that was woken, and too few to tell from chance: not acquitted by what came later."""
    c = Conversation(rtt_ns=2 * MS)
    c.handshake()
    prompt(c, 0)
    for number in range(9):
        c.pause(2 * MS)
        c.client_sends(REQUEST)
        c.server_sends(HEADER, after_ns=200 * US)
        if number < 6:
            c.client_acks(after_ns=LATE)
            c.server_sends(BODY, after_ns=75 * US)
        else:
            c.server_sends(BODY, after_ns=(25 if number == 8 else 12) * MS)
        c.client_acks(after_ns=10 * US)
    result = diagnose(c.seen_at(seen_at))
    assert (result.verdict, result.summary.stalls) == ("INCONCLUSIVE", 0)


@pytest.mark.parametrize(
    ("others", "release", "verdict", "stalls"),
    [(7, RELEASE, "STALL", 7), (4, RELEASE, "INCONCLUSIVE", 0), (7, 40 * US, "CLEAN", 0)],
)
def test_tcp_nodelay_on_one_connection_of_a_pool(diagnose, others, release, verdict, stalls):
    """The others hold once each; sooner than any woken program, or as soon as one that waits for the ACK.

    Four are too few to tell.
    """

    def held_once(c: Conversation, number: int) -> None:
        if number != 1:
            prompt(c, number)
            return
        c.client_sends(REQUEST)
        c.server_sends(HEADER, after_ns=200 * US)
        c.client_acks(after_ns=LATE)
        c.server_sends(BODY, after_ns=release)
        c.client_acks(after_ns=10 * US)

    talks = [talk(goes_on, exchanges=4, rtt_ns=2 * MS)]
    talks += [
        talk(held_once, exchanges=2, client=("10.0.0.1", 50_000 + number), rtt_ns=2 * MS) for number in range(others)
    ]
    result = diagnose(merge(*(each.seen_at("server") for each in talks)))
    assert (result.verdict, result.summary.stalls) == (verdict, stalls)


@pytest.mark.parametrize(("late", "verdict", "stalls"), [(0, "CLEAN", 0), (LATE, "STALL", 3)])
def test_how_far_a_peer_is_other_peers_do_not_tell(diagnose, late, verdict, stalls):
    """A client with a near server and one 94 ms away, whose connection began before the capture."""

    def two_writes(c: Conversation, ack: int) -> None:
        c.client_sends(27)
        c.server_acks(after_ns=ack)
        c.client_sends(60, after_ns=RELEASE)
        c.server_sends(BODY, after_ns=200 * US)
        c.client_acks(after_ns=10 * US)

    near = talk(lambda c, _: two_writes(c, 2 * MS))
    far = Conversation(client=("10.0.0.1", 6), server=("10.9.9.9", 443), rtt_ns=94 * MS, timestamps=False)
    for _ in range(3):
        two_writes(far, late)
    result = diagnose(merge(near.segments, far.seen_at("client")))
    assert (result.verdict, result.summary.stalls) == (verdict, stalls)


@pytest.mark.parametrize(
    ("small", "bsd", "verdict", "stalls"),
    [(HEADER, False, "CLEAN", 0), (HEADER, True, "STALL", 19), (0, False, "STALL", 19)],
)
def test_only_who_does_not_read_acknowledges_more_than_a_full_segment_late(diagnose, small, bsd, verdict, stalls):
    """The end of a write is held until the ACK; macOS delays that of several full segments, too."""

    def exchange(c: Conversation, _: int) -> None:
        if small:
            c.client_sends(small)
        c.client_sends(c.full_segment, after_ns=5 * US)
        c.server_acks(after_ns=LATE)
        c.client_sends(BODY, after_ns=RELEASE)
        c.server_sends(REQUEST, after_ns=200 * US)
        c.client_acks(after_ns=10 * US)

    result = diagnose(talk(exchange, server_is_bsd=bsd).segments)
    assert (result.verdict, result.summary.stalls) == (verdict, stalls)
    assert result.quality.rejected["not_read"] == (19 if verdict == "CLEAN" else 0)
    cause = "server_think" if verdict == "CLEAN" else "nagle_delayed_ack"
    assert result.idle_gaps[cause].count == 19


@pytest.mark.parametrize(
    ("pieces", "verdict"), [([500, 500, 500], "INCONCLUSIVE"), ([500, 1000], "STALL")]
)  # fmt: skip
def test_pieces_behind_each_other_were_not_written_at_once(diagnose, pieces, verdict):
    """Nagle's algorithm would have merged the last two: a program waits for each ACK, without sleeping."""

    def exchange(c: Conversation, number: int) -> None:
        c.client_sends(REQUEST)
        c.server_sends(pieces[0], after_ns=200 * US)
        for size in pieces[1:]:
            c.client_acks(after_ns=LATE if number > 2 else 10 * US)
            c.server_sends(size, after_ns=RELEASE)
        c.client_acks(after_ns=10 * US)

    result = diagnose(talk(exchange).segments)
    assert (result.verdict, set(result.quality.unresolved)) == (
        verdict,
        {"like_a_program"} if verdict == "INCONCLUSIVE" else set(),
    )


def test_what_comes_later_than_acks_and_sooner_than_answers_keeps_to_its_own_clock(diagnose):
    """Away from an end that answers after 30 ms, and goes on some ms after four late ACKs: no release, no answer."""

    def speak(c: Conversation, number: int) -> None:
        c.client_sends(REQUEST)
        c.server_sends(HEADER, after_ns=30 * MS)
        if number % 4 == 1:
            c.client_acks(after_ns=LATE)
            c.server_sends(BODY, after_ns=(5 + number % 7) * MS)

    result = diagnose(talk(speak, exchanges=16, rtt_ns=10 * MS).seen_at("client"))
    assert (result.verdict, result.quality.unresolved) == ("INCONCLUSIVE", {"own_pace": 4})


def test_without_a_handshake_what_went_beside_other_data_is_full(diagnose):
    """Nagle's algorithm let it go behind a small segment, so the late ACK is of more than a full one: not read."""

    def exchange(c: Conversation, _: int) -> None:
        c.client_sends(HEADER)
        c.client_sends(2 * c.full_segment, after_ns=5 * US)
        c.server_acks(after_ns=LATE)
        c.client_sends(BODY, after_ns=RELEASE)
        c.server_sends(REQUEST, after_ns=200 * US)
        c.client_acks(after_ns=10 * US)

    result = diagnose([s for s in talk(exchange).segments if "S" not in s.flags])
    assert (result.verdict, result.quality.rejected["not_read"]) == ("CLEAN", 19)


def test_what_an_end_takes_does_not_tell_what_its_peer_takes(diagnose):
    """The client's SYN is missing, and the server takes 536 bytes: what it sends itself may be larger, and held."""
    segments = [
        replace(s, mss=s.mss and 536)
        for s in talk(reply_in_two(LATE, lambda _: RELEASE)).segments
        if s.flags != "S"
    ]  # fmt: skip
    assert BODY > 536
    assert diagnose(segments).summary.stalls == 19


def test_what_is_acknowledged_late_from_afar_may_have_been_late_on_the_path(diagnose):
    def exchange(c: Conversation, _: int) -> None:
        c.client_sends(REQUEST)
        c.server_writes(4000, after_ns=200 * US)
        c.client_acks(after_ns=LATE)

    idle_gaps = diagnose(talk(exchange, rtt_ns=10 * MS).seen_at("server")).idle_gaps
    assert {cause: idle_gap.count for cause, idle_gap in idle_gaps.items()} == {"unknown": 19}


@pytest.mark.parametrize(("in_two", "verdict", "stalls"), [(True, "CLEAN", 0), (False, "STALL", 19)])
def test_what_had_not_arrived_when_its_peer_sent_was_under_way_until_then(diagnose, in_two, verdict, stalls):
    """A busy host or a queue: after 40 ms it acknowledges what came first, and right behind it the rest."""

    def exchange(c: Conversation, number: int) -> None:
        c.client_sends(REQUEST)
        if in_two:
            c.server_sends(c.full_segment, after_ns=200 * US)
        trigger = c.server_sends(HEADER, after_ns=5 * US)
        c.client_acks(after_ns=LATE + number % 5 * MS, **({"ack": trigger.seq} if in_two else {}))
        if in_two:
            c.client_acks(after_ns=25 * US)
        c.server_sends(BODY, after_ns=RELEASE)
        c.client_acks(after_ns=10 * US)

    result = diagnose(talk(exchange).segments)
    assert (result.verdict, result.summary.stalls) == (verdict, stalls)


@pytest.mark.parametrize(("every", "verdict", "stalls"), [(2, "INCONCLUSIVE", 0), (10, "STALL", 18), (1, "CLEAN", 0)])
def test_acks_that_were_under_way_for_long_were_sent_in_time(diagnose, every, verdict, stalls):
    """Half of the late ACKs were sent at once, by their timestamps: the path may have delayed the rest."""

    def exchange(c: Conversation, number: int) -> None:
        story = reply_in_two(1200 * US, lambda _: RELEASE) if number % 2 else server_held
        story(c, 0)

    segments, late = talk(exchange, exchanges=41, rtt_ns=1 * MS).segments, 0
    for at, (before, ack, release) in enumerate(zip(segments, segments[1:], segments[2:], strict=False), 1):
        if ack.ts_ns - before.ts_ns > 30 * MS and not ack.length and release.length:
            late += 1
            if late % every == 0:
                sent = ack.timestamps[0] - (ack.ts_ns - before.ts_ns) // MS
                segments[at] = replace(ack, timestamps=(sent, ack.timestamps[1]))
                segments[at + 1] = replace(release, timestamps=(release.timestamps[0], sent))
    assert late == 20
    result = diagnose(segments)
    assert (result.verdict, result.summary.stalls) == (verdict, stalls)


def test_who_asks_a_database_meanwhile_is_slower_than_its_fastest_answers(diagnose):
    """Some bodies come as soon as slow answers do, but none as soon as the fast ones."""

    def flush_and_ask(c: Conversation, number: int) -> None:
        share = number * 37 % 60 / 60
        c.client_sends(REQUEST)
        c.server_sends(HEADER, after_ns=int((0.2 + 3 * share) * MS))
        c.client_acks(after_ns=LATE)
        c.server_sends(BODY, after_ns=int((2 + 10 * (number * 29 % 60 / 60) ** 2) * MS))
        c.client_acks(after_ns=10 * US)

    result = diagnose(talk(flush_and_ask, exchanges=120, rtt_ns=4 * MS).seen_at("client"))
    assert (result.verdict, result.summary.stalls) == ("INCONCLUSIVE", 0)


def test_a_path_that_varies_is_no_timer(diagnose):
    """ACKs take 0 to 39 ms more than the three handshakes did: no timer has so many times."""

    def ask(c: Conversation, number: int) -> None:
        c.client_sends(REQUEST, after_ns=100 * MS)
        c.server_sends(HEADER, after_ns=200 * US)
        c.client_acks(after_ns=number * 13 % 40 * MS)
        c.server_sends(BODY, after_ns=RELEASE)
        c.client_acks(after_ns=10 * US)

    talks = [talk(ask, rtt_ns=4 * MS, client=("10.0.0.1", port)).seen_at("server") for port in (1, 2, 3)]
    result = diagnose(merge(*talks))
    assert result.verdict == "INCONCLUSIVE" and "path_varies" in result.quality.unresolved


def test_a_pause_behind_an_ack_that_the_path_delayed_is_a_pause(diagnose):
    """At the sender a kernel lets go at once, whatever made the ACK late: what comes 2 ms later was not held."""

    def ask(c: Conversation, number: int) -> None:
        c.client_sends(REQUEST, after_ns=100 * MS)
        c.server_sends(HEADER, after_ns=200 * US)
        c.client_acks(after_ns=number * 13 % 40 * MS)
        c.server_sends(BODY, after_ns=2 * MS)
        c.client_acks(after_ns=10 * US)

    talks = [talk(ask, rtt_ns=4 * MS, client=("10.0.0.1", port)).seen_at("server") for port in (1, 2, 3)]
    result = diagnose(merge(*talks))
    assert (result.verdict, result.quality.unresolved) == ("CLEAN", {})


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


@pytest.mark.parametrize(
    ("soonest", "verdict"),
    [(5 * US, "STALL"), (20 * US, "STALL"), (55 * US, "INCONCLUSIVE")],
)
def test_where_a_third_comes_sooner_than_a_program_wakes_a_kernel_released_all(diagnose, soonest, verdict):
    """On a busy machine most releases take as long as those of a woken program."""
    story = reply_in_two(LATE, lambda number: soonest if number % 2 else 80 * US + number * US)
    result = diagnose(talk(story, exchanges=40, client=("127.0.0.1", 1), server=("127.0.0.1", 80)).segments)
    assert result.verdict == verdict


@pytest.mark.parametrize(
    ("before", "apart", "think", "verdict"),
    [
        (0, 1 * MS, 2 * MS, "STALL"),
        (0, 5 * SECOND, 2 * MS, "INCONCLUSIVE"),  # the other one has ended meanwhile, and left it
        (1, 100 * MS, 2 * MS, "INCONCLUSIVE"),  # one that ended left it
        (0, 1 * MS, 300 * MS, "INCONCLUSIVE"),  # it begins anew for each exchange
    ],
)
def test_connections_that_begin_together_have_the_same_window(diagnose, before, apart, think, verdict):
    """One holds, another waits for no ACK: TCP_NODELAY on one of them, or a window of one segment."""

    def slowly(c: Conversation, number: int) -> None:
        server_held(c, number)
        c.pause(think)

    begun = 1_700_000_000 * SECOND
    others = [talk(nodelay, client=("10.0.0.1", 50_000 + n), t0_ns=begun + n * MS) for n in range(1 + before)]
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


def test_a_program_that_waits_on_one_connection_says_nothing_of_another(diagnose):
    """On one the kernel holds; on the other the program asks again and again whether all is acknowledged."""

    def asks(c: Conversation, after_ns: int) -> None:
        c.client_sends(REQUEST)
        c.server_acks(after_ns=3 * US)
        c.server_sends(HEADER, after_ns=5 * MS)
        c.client_acks(after_ns=LATE)
        c.server_sends(BODY, after_ns=after_ns)
        c.client_acks(after_ns=10 * US)

    def waits(c: Conversation, number: int) -> None:
        asks(c, (100 + number * 377 % 900) * US)

    clients = [("10.0.0.1", port) for port in (1, 2, 3)]
    held = [talk(lambda c, _: asks(c, RELEASE), exchanges=6, client=client).segments for client in clients]
    waiting = talk(waits, exchanges=6, client=("10.0.0.1", 4)).segments
    result = diagnose(merge(waiting, *held))
    assert {c.client.port: c.stalls for c in result.connections} == {1: 5, 2: 5, 3: 5, 4: 0}


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


def test_what_was_announced_behind_full_segments_was_not_held_by_nagle(diagnose):
    """A write with MSG_MORE of one full segment and a rest: neither has PSH, and the rest leaves with the ACK."""

    def announced(c: Conversation, number: int) -> None:
        c.client_sends(REQUEST)
        c.server_sends(c.full_segment, after_ns=200 * US, flags="A")
        c.client_acks(after_ns=LATE + number % 5 * MS)
        c.server_sends(300, after_ns=RELEASE, flags="A")
        c.client_acks(after_ns=10 * US)
        c.server_sends(BODY, after_ns=2 * MS)
        c.client_acks(after_ns=10 * US)

    result = diagnose(talk(announced).segments)
    assert (result.verdict, result.quality.rejected["corked"]) == ("CLEAN", 19)


def test_a_slow_program_does_not_make_a_near_end_a_syn_proxy(diagnose):
    """Its data comes 10 ms behind all it gets, and 160 to 600 µs behind each late ACK: it asked for that."""
    c = Conversation()
    c.handshake()
    for number in range(20):
        c.client_sends(REQUEST, after_ns=10 * MS)
        c.server_acks(after_ns=LATE)
        c.client_sends(60, after_ns=(160 + number * 67 % 440) * US)
        c.server_sends(BODY, after_ns=20 * US)
    result = diagnose(c.segments)
    assert (result.verdict, result.quality.unresolved) == ("INCONCLUSIVE", {"like_a_program": 20})


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


def test_a_pause_a_tick_behind_the_ack_is_none_of_those_that_were_held(diagnose):
    """At the peer: on one connection the kernel holds; on another the program writes 1 to 4 ms behind late ACKs."""

    def pauses(c: Conversation, number: int) -> None:
        reply_in_two(LATE, lambda _: (1000 + number * 700 % 3000) * US)(c, 0)

    held = talk(server_held, exchanges=30, client=("10.0.0.1", 1)).segments
    result = diagnose(merge(held, talk(pauses, exchanges=6, client=("10.0.0.1", 2)).segments))
    assert [(c.client.port, c.stalls) for c in result.connections] == [(1, 29), (2, 0)]


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


def test_one_ack_a_little_late_does_not_make_a_path_that_varies(diagnose):
    """Nine ACKs are as late as Linux's timer; of 26 others one is 6 ms late, one 15 and one 20, by the path."""

    def exchange(c: Conversation, number: int) -> None:
        late = number % 4 == 1
        wait = LATE if late else {10: 6 * MS, 20: 15 * MS, 30: 20 * MS}.get(number, 20 * US)
        reply_in_two(wait, lambda _: RELEASE)(c, number if late else 0)

    result = diagnose(talk(exchange, exchanges=36, rtt_ns=20 * MS).seen_at("server"))
    assert (result.verdict, result.summary.stalls) == ("STALL", 11)


def test_what_was_written_before_the_late_ack_came_is_no_pause_as_long(diagnose):
    """A slow stack: behind early ACKs its data comes 36 ms after the trigger; behind late ones never before 43."""

    def exchange(c: Conversation, number: int) -> None:
        early = number % 8 == 1
        wait = 10 * US if early else LATE + 1 * MS
        reply_in_two(wait, lambda n: 36 * MS if early else (150 + n % 7 * 10) * US)(c, 0 if early else number)

    result = diagnose(talk(exchange, exchanges=40).segments)
    assert (result.verdict, result.quality.unresolved) == (
        "INCONCLUSIVE",
        {"like_a_program": 34},
    )


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


@pytest.mark.parametrize(("theirs", "verdict"), [(12, "INCONCLUSIVE"), (5, "STALL")])
def test_every_packet_twice_from_one_end_is_no_bridge(diagnose, theirs, verdict):
    """A mirror port sends each twice: pure ACKs show at whose end, and there a kernel is sooner than 80 µs.

    On a bridge those of both ends are captured as soon, and the ACK has yet to reach the sender.
    """

    def exchange(c: Conversation, number: int) -> None:
        c.client_sends(REQUEST)
        c.server_acks(after_ns=(3 + number % 3) * US)
        c.server_sends(HEADER, after_ns=100 * US)
        c.client_acks(after_ns=LATE)
        c.server_sends(BODY, after_ns=(70 + number * 7 % 50) * US)
        c.client_acks(after_ns=(theirs + number % 4) * US)

    once = talk(exchange, exchanges=30).segments
    again = [replace(segment, ts_ns=segment.ts_ns + 3 * US) for segment in once]
    assert diagnose(sorted([*once, *again], key=lambda segment: segment.ts_ns)).verdict == verdict


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


@pytest.mark.parametrize(("length", "verdict", "stalls"), [(32_800, "STALL", 5), (20_000, "CLEAN", 0)])
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


def test_a_connection_that_keeps_to_a_clock_does_not_count_with_others(diagnose):
    """Away from the sender: on one its data is held, on the other it follows the trigger after 50 ms each time.

    It takes up to 9 ms for an answer, so other data may be as late.
    """

    def thinks_and_stalls(c: Conversation, number: int) -> None:
        c.client_sends(REQUEST)
        c.server_sends(HEADER, after_ns=200 * US + number % 10 * MS)
        c.client_acks(after_ns=LATE)
        c.server_sends(BODY, after_ns=RELEASE + number % 7 * 10 * US)
        c.client_acks(after_ns=10 * US)

    def every_50_ms(c: Conversation, number: int) -> None:
        c.client_sends(REQUEST)
        header = c.server_sends(HEADER, after_ns=200 * US)
        c.client_acks(after_ns=LATE + number % 5 * MS)
        c.server_sends(BODY, at_ns=header.ts_ns + 50 * MS)
        c.client_acks(after_ns=10 * US)

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
        c.client_sends(REQUEST)
        c.server_sends(HEADER, after_ns=2 * MS)
        c.client_acks(after_ns=LATE)
        c.server_sends(BODY, after_ns=2100 * US + number * 13 % 40 * 3 * US)
        c.client_acks(after_ns=10 * US)
        c.pause(5 * MS)
    assert diagnose(c.seen_at("client")).verdict == "INCONCLUSIVE"


@pytest.mark.parametrize(("lost", "verdict", "stalls"), [(False, "CLEAN", 0), (True, "STALL", 8)])
def test_an_ack_that_the_capture_lost_is_no_sign_of_tcp_nodelay(diagnose, lost, verdict, stalls):
    """Data that follows data after 3 ms did not wait; but where data is lost, too, the ACK in between may be."""
    c = Conversation(timestamps=False)
    c.handshake()
    for number in range(30):
        (server_held if number % 3 == 1 else passes_on)(c, 1)
    segments = c.segments
    if lost:
        segments = [segment for at, segment in enumerate(segments) if not (segment.length and at % 40 == 7)]
    result = diagnose(segments)
    assert (result.verdict, result.summary.stalls) == (verdict, stalls)


@pytest.mark.parametrize(("longer", "verdict", "stalls"), [(0, "CLEAN", 0), (2 * MS, "STALL", 30)])
def test_a_pause_exactly_as_long_as_the_timer_is_the_program_s(diagnose, longer, verdict, stalls):
    """Captured at a stack in user space, as promptly as a kernel; where the ACK came early, the same data comes then.

    What comes 2 ms later than that, right behind the late ACK, was held for these 2 ms.
    """
    c = Conversation()
    c.handshake()
    for number in range(40):
        early = number % 4 == 3
        c.client_sends(REQUEST)
        header = c.server_sends(HEADER, after_ns=200 * US)
        c.client_acks(after_ns=10 * US if early else 40 * MS + longer)
        c.server_sends(BODY, at_ns=header.ts_ns + 40 * MS + RELEASE + (0 if early else longer))
        c.client_acks(after_ns=10 * US)
        c.pause(5 * MS)
    result = diagnose(c.segments)
    assert (result.verdict, result.summary.stalls) == (verdict, stalls)


@pytest.mark.parametrize(("ack", "stalls"), [(70 * US, 40), (10 * US, 30)])
def test_a_stack_in_user_space_may_be_late_to_release(diagnose, ack, stalls):
    """It does so once its process runs; a kernel, whose ACKs are quick, never waits for that at the sender."""
    c = Conversation()
    c.handshake()
    for number in range(40):
        c.client_sends(REQUEST)
        c.server_acks(after_ns=ack)
        c.server_sends(HEADER, after_ns=200 * US)
        c.client_acks(after_ns=LATE)
        c.server_sends(BODY, after_ns=2 * MS if number % 4 == 0 else 60 * US)
        c.client_acks(after_ns=10 * US)
        c.pause(5 * MS)
    assert diagnose(c.segments).summary.stalls == stalls


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


@pytest.mark.parametrize(
    ("rtt_ms", "thinks", "verdict"),
    [*((ms, False, "INCONCLUSIVE") for ms in (7, 20, 40, 60)), (40, True, "STALL"), (60, True, "STALL")],
)
def test_behind_a_syn_proxy_alike_acks_are_no_timer(diagnose, rtt_ms, thinks, verdict):
    """The handshake was answered next to the server, and all that the client sends comes over a path that hardly
    varies. Where it also asks sooner than it acknowledges, no path delays its ACKs."""
    c = Conversation()
    c.handshake()
    for number in range(40):
        c.client_sends(REQUEST, after_ns=(number % 5 * 10 if thinks else rtt_ms) * MS + (50 + number * 7) * US)
        c.server_sends(HEADER, after_ns=200 * US)
        c.client_acks(after_ns=rtt_ms * MS + number * 13 % 40 * 10 * US)
        c.server_sends(BODY, after_ns=RELEASE)
    assert diagnose(c.segments).verdict == verdict


@pytest.mark.parametrize(("asks", "verdict"), [(True, "INCONCLUSIVE"), (False, "STALL")])
def test_what_another_connection_asked_for_was_not_held(diagnose, asks, verdict):
    """At the client, which reads late, acknowledges then, and asks for the next piece on another connection."""
    c, control = Conversation(), Conversation(client=("10.0.0.1", 40_001), server=("10.0.0.2", 81))
    for talk_ in (c, control):
        talk_.handshake(after_ns=2 * MS)
    for number in range(40):
        c.client_sends(REQUEST, after_ns=30 * MS)
        c.server_acks(after_ns=2 * MS + number * 7 % 40 * US)
        c.server_sends(HEADER, after_ns=5 * MS)
        c.client_acks(after_ns=LATE)
        if asks:
            control.client_sends(4, at_ns=c.client.now_ns + 150 * US)
            control.server_acks(after_ns=2 * MS)
        c.server_sends(60, after_ns=2 * MS + number % 5 * 20 * US)
        c.client_acks(after_ns=30 * US)
    assert diagnose(merge(c.segments, control.segments)).verdict == verdict


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


@pytest.mark.parametrize(("early_ms", "verdict"), [(43, "INCONCLUSIVE"), (1, "STALL")])
def test_what_came_as_late_behind_the_only_early_ack_may_be_a_pause(diagnose, early_ms, verdict):
    """A program that waits for a jiffy timer of 40 ms, as its peer's kernel does, and then works for 30 µs."""
    c = Conversation()
    c.handshake()
    for number in range(40):
        c.client_sends(REQUEST, after_ns=10 * MS)
        c.server_sends(HEADER, after_ns=200 * US)
        c.client_acks(after_ns=43 * MS + 600 * US if number else 20 * US)
        c.server_sends(BODY, after_ns=(75 + number % 7) * US if number else early_ms * MS)
    assert diagnose(c.segments).verdict == verdict


@pytest.mark.parametrize(("timer", "verdict", "stalls"), [(0, "CLEAN", 0), (LATE, "STALL", 40)])
def test_a_syn_proxy_is_known_by_its_ttl(diagnose, timer, verdict, stalls):
    """The SYN came with another TTL than the data: how soon it was answered says nothing of the client, which is a
    round trip of 40 ms away, and acknowledges before each request. That is no timer, unless it takes longer still."""
    c = Conversation(syn_ttl=57)
    c.handshake()
    for number in range(40):
        c.client_sends(REQUEST, after_ns=(40 + number % 7 * 5) * MS)
        c.server_sends(HEADER, after_ns=200 * US)
        c.client_acks(after_ns=timer + 40 * MS + number * 13 % 40 * 10 * US)
        c.server_sends(BODY, after_ns=RELEASE)
        c.client_acks(after_ns=40 * MS + number * 17 % 40 * 10 * US)
    result = diagnose(c.segments)
    assert (result.verdict, result.summary.stalls) == (verdict, stalls)
    assert (result.summary.round_trips.count > 0) is not bool(stalls)


@pytest.mark.parametrize(("wakes", "verdict"), [(20 * US, "STALL"), (80 * US, "INCONCLUSIVE")])
def test_connections_in_step_queue_behind_the_first_release(diagnose, wakes, verdict):
    """On loopback the late ACKs of eight come at once, and a kernel handles one after the other; so does a relay, but
    first it must wake up."""
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
            c.server_sends(BODY, at_ns=begin + LATE + wakes + (7 - at) * 10 * US)
            c.client_acks(after_ns=2 * MS)
    result = diagnose(merge(*(c.segments for c in talks)))
    assert (result.verdict, result.summary.stalls) == (verdict, 80 if verdict == "STALL" else 0)


def test_a_slow_answer_to_a_syn_makes_no_path_on_loopback(diagnose):
    """A relay just started answers its first SYN after 1 ms; the client's ACKs show that nothing is far away."""
    c = Conversation(client=("127.0.0.1", 50_000), server=("127.0.0.2", 80))
    c.handshake(after_ns=1 * MS)
    for number in range(40):
        c.client_sends(REQUEST)
        c.server_sends(HEADER, after_ns=1 * MS)
        c.client_acks(after_ns=LATE)
        c.server_sends(BODY, after_ns=80 * US + number * 13 % 40 * 10 * US)
        c.client_acks(after_ns=10 * US)
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


@pytest.mark.parametrize(("connections", "verdict"), [(1, "INCONCLUSIVE"), (3, "STALL")])
def test_one_slow_answer_to_a_syn_does_not_make_a_slow_kernel(diagnose, connections, verdict):
    """A third of the releases come as soon as SYNs are answered, which says something if that is always so slow."""
    talks = [Conversation(client=("10.0.0.1", 50_000 + at)) for at in range(connections)]
    for at, c in enumerate(talks):
        c.pause(at * 10 * SECOND)
        c.handshake(after_ns=120 * US)
        for number in range(40):
            c.client_sends(REQUEST)
            c.server_acks(after_ns=20 * US)
            c.server_sends(HEADER, after_ns=5 * MS)
            c.client_acks(after_ns=LATE)
            c.server_sends(BODY, after_ns=(60 if number % 3 else 100) * US + number * 2 * US)
            c.client_acks(after_ns=60 * US)
            c.pause(5 * MS)
    assert diagnose(merge(*(c.segments for c in talks))).verdict == verdict
