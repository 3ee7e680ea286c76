"""Which ACKs a delayed-ACK timer made late, and which the path did, or a program that reads late."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from nagle_lab.diagnosis.proof.late_acks import path_may_have_delayed
from support.stories import (
    BODY,
    HEADER,
    LATE,
    RELEASE,
    REQUEST,
    Story,
    nodelay,
    of_a_pool,
    prompt,
    reply_in_two,
    server_held,
    talk,
    two_part_reply,
)
from support.synthetic import MS, SECOND, US, Conversation, Segment, merge, pcap_bytes


@pytest.mark.parametrize("wait", [10 * MS, 15 * MS, 40 * MS, 100 * MS, 200 * MS])
def test_any_delayed_ack_timer_counts(diagnose, wait):
    result = diagnose(talk(reply_in_two(wait)).segments)
    assert (result.verdict, result.summary.stalls) == ("STALL", 19)
    assert result.summary.grounds == {"repetition_at_sender": 19}


@pytest.mark.parametrize("connections", [1, 4])
def test_a_short_timer_that_delays_every_ack_is_no_longer_path(diagnose, connections):
    """Of 10 ms, behind each header; what else the client acknowledges its requests do."""

    def exchange(c: Conversation, number: int) -> None:
        c.client_sends(REQUEST, after_ns=5 * MS)
        c.server_sends(HEADER, after_ns=50 * US)
        c.client_acks(after_ns=10 * MS)
        c.server_sends(BODY, after_ns=RELEASE)

    talks = [talk(exchange, client=("10.0.0.1", 40_000 + at)) for at in range(connections)]
    result = diagnose(merge(*(c.segments for c in talks)))
    assert (result.verdict, result.summary.stalls) == ("STALL", 19 * connections)


def test_packets_out_of_order_on_other_connections_take_no_stall_away(diagnose):
    """Of a bulk transfer beside them every second segment was captured after its ACK."""
    bulk = Conversation(client=("10.0.0.7", 41_000), server=("10.0.0.2", 9_000))
    bulk.handshake()
    for _ in range(100):
        data = bulk.server_sends(bulk.full_segment, after_ns=MS)
        bulk.client_acks(after_ns=20 * US)
        bulk.server_sends(bulk.full_segment, after_ns=MS)
        bulk.client_acks(after_ns=20 * US)
        bulk._flights[-4] = replace(bulk._flights[-4], segment=replace(data, ts_ns=data.ts_ns + 50 * US))
    result = diagnose(merge(talk(server_held).segments, bulk.segments))
    assert (result.verdict, result.summary.stalls) == ("STALL", 19)


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


@pytest.mark.parametrize(
    ("wait", "rtt_ms", "step", "stalls"),
    [(LATE, 0, 1, 22), (LATE, 10, 1, 22), (MS, 0, 1, 19), (MS, 10, 1, 19), (0, 0, 1, 19), (LATE, 0, 10, 22)],
)
def test_when_an_ack_was_sent_that_the_capture_lost_its_timestamp_tells(diagnose, wait, rtt_ms, step, stalls):
    """Of three more exchanges, whose data comes as late: behind an early ACK it had waited for something else.

    Not where timestamps count steps of 10 ms.
    """
    c = talk(server_held, rtt_ns=rtt_ms * MS)
    lost = []
    for _ in range(3):
        c.client_sends(REQUEST, after_ns=5 * MS)
        c.server_sends(HEADER, after_ns=200 * US)
        lost.append(replace(c.client_acks(after_ns=wait), ts_ns=0))
        c.server_sends(BODY, after_ns=LATE - wait + RELEASE)
        c.client_acks(after_ns=10 * US)
    captured = [s for s in c.seen_at("server") if replace(s, ts_ns=0) not in lost]
    result = diagnose([replace(s, timestamps=tuple(stamp // step for stamp in s.timestamps)) for s in captured])
    assert (result.summary.stalls, result.quality.unresolved) == (stalls, {})


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


def test_late_acks_of_a_short_timer_are_not_denied(run, tmp_path):
    path = tmp_path / "short.pcap"
    path.write_bytes(pcap_bytes(talk(reply_in_two(10 * MS)).segments))
    assert "\ndelayed ACKs  all with data, or sooner than 20 ms" in run("analyze", path)[1]


def test_the_slowest_round_trips_of_many_are_no_delayed_acks(diagnose):
    """Nagle's algorithm waits for 200 clients far away; a few of their ACKs are 10 to 60 ms late on the way."""
    talks = []
    for number in range(200):
        c = Conversation(client=(f"10.0.{number}.1", 40_000), rtt_ns=(20 + number % 60) * MS)
        c.handshake()
        two_part_reply(c, ack=(10 + number % 50) * MS if number % 30 == 7 else 10 * US)
        c.close()
        talks.append(c.seen_at("server"))
    result = diagnose(merge(*talks))
    assert (result.verdict, result.summary.stalls) == ("CLEAN", 0)
    assert result.quality.unresolved == {"path_varies": 7}


@pytest.mark.parametrize(("sooner", "verdict"), [(False, "INCONCLUSIVE"), (True, "STALL")])
def test_a_queue_that_filled_up_after_the_handshake_is_no_delayed_ack(diagnose, sooner, verdict):
    """All ACKs take 20 to 40 ms more than the handshake took; with data that does not, it was their senders."""

    def exchange(c: Conversation, number: int) -> None:
        queued = (20 + number * 7 % 20) * MS
        two_part_reply(c, asked=100 * US if sooner else queued, ack=queued, last_ack=None)
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


@pytest.mark.parametrize(("later", "verdict", "stalls"), [(0, "CLEAN", 0), (LATE, "STALL", 19)])
def test_on_a_slow_link_an_ack_comes_when_its_bytes_have_passed(diagnose, later, verdict, stalls):
    """Five full segments and a small one of 984 bytes stand in a queue, each is acknowledged when it arrives."""

    def exchange(c: Conversation, _: int) -> None:
        c.client_sends(REQUEST)
        c.server_writes(5 * c.full_segment + 984, after_ns=200 * US)
        *arrivals, last = [when for when, *_ in c.client.arrivals if when > c.client.now_ns - 300 * MS]
        for arrival in arrivals[-5:]:
            c.client_acks(at_ns=arrival + 20 * US)
        c.client_acks(at_ns=last + 20 * US + later)
        c.server_sends(730, after_ns=RELEASE)
        c.client_acks(after_ns=20 * US)

    result = diagnose(talk(exchange, ns_per_byte=27_000).seen_at("server"))
    assert (result.verdict, result.summary.stalls) == (verdict, stalls)


@pytest.mark.parametrize(("later", "verdict", "stalls"), [(20 * US, "INCONCLUSIVE", 0), (LATE, "STALL", 19)])
def test_without_a_queue_an_ack_may_be_late_for_its_triggers_bytes(diagnose, later, verdict, stalls):
    """400 bytes take 11 ms there, exactly, each time: a timer differs by a jiffy."""

    def exchange(c: Conversation, number: int) -> None:
        c.client_sends(REQUEST)
        c.server_sends(400, after_ns=200 * US)
        c.client_acks(after_ns=later + (number % 4 * MS if later > MS else number % 7 * US))
        c.server_sends(BODY, after_ns=RELEASE)
        c.client_acks(after_ns=20 * US)

    result = diagnose(talk(exchange, ns_per_byte=27_000).seen_at("server"))
    assert (result.verdict, result.summary.stalls) == (verdict, stalls)


@pytest.mark.parametrize("rounded", [0, 1])
@pytest.mark.parametrize(("every", "verdict", "stalls"), [(2, "INCONCLUSIVE", 0), (10, "STALL", 18), (1, "CLEAN", 0)])
def test_acks_that_were_under_way_for_long_were_sent_in_time(diagnose, every, verdict, stalls, rounded):
    """Half of the late ACKs were sent at once, by their timestamps: the path may have delayed the rest.

    Timestamps count whole milliseconds: by them it may have taken longer than it did.
    """

    def exchange(c: Conversation, number: int) -> None:
        two_part_reply(c, ack=1200 * US if number % 2 else LATE)

    segments, late = talk(exchange, exchanges=41, rtt_ns=1 * MS).segments, 0
    for at, (before, ack, release) in enumerate(zip(segments, segments[1:], segments[2:], strict=False), 1):
        if ack.ts_ns - before.ts_ns > 30 * MS and not ack.length and release.length:
            late += 1
            if late % every == 0:
                sent = ack.timestamps[0] - (ack.ts_ns - before.ts_ns) // MS - rounded
                segments[at] = replace(ack, timestamps=(sent, ack.timestamps[1]))
                segments[at + 1] = replace(release, timestamps=(release.timestamps[0], sent))
    assert late == 20
    result = diagnose(segments)
    assert (result.verdict, result.summary.stalls) == (verdict, stalls)


def test_a_path_that_varies_is_no_timer(diagnose):
    """ACKs take 0 to 39 ms more than the three handshakes did: no timer has so many times."""

    def ask(c: Conversation, number: int) -> None:
        two_part_reply(c, asked=100 * MS, ack=number * 13 % 40 * MS)

    talks = [talk(ask, rtt_ns=4 * MS, client=("10.0.0.1", port)).seen_at("server") for port in (1, 2, 3)]
    result = diagnose(merge(*talks))
    assert result.verdict == "INCONCLUSIVE" and "path_varies" in result.quality.unresolved
    # Nor is it lost among the exchanges of others, on which nothing is undecided.
    others = [talk(nodelay, 40, client=("10.0.0.2", 40_000 + n)).seen_at("server") for n in range(60)]
    with_others = diagnose(merge(*talks, *others))
    assert with_others.quality.unresolved == result.quality.unresolved
    assert sum(with_others.quality.unresolved.values()) < 0.04 * with_others.summary.exchanges
    assert with_others.verdict == "INCONCLUSIVE"


def test_a_pause_behind_an_ack_that_the_path_delayed_is_a_pause(diagnose):
    """At the sender a kernel lets go at once, whatever made the ACK late: what comes 2 ms later was not held."""

    def ask(c: Conversation, number: int) -> None:
        two_part_reply(c, asked=100 * MS, ack=number * 13 % 40 * MS, body=2 * MS)

    talks = [talk(ask, rtt_ns=4 * MS, client=("10.0.0.1", port)).seen_at("server") for port in (1, 2, 3)]
    result = diagnose(merge(*talks))
    assert (result.verdict, result.quality.unresolved) == ("CLEAN", {})


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


@pytest.mark.parametrize(
    ("least", "others_most_ms", "verdict", "stalls"),
    [
        (LATE, 15, "STALL", 39),
        (20 * MS, 15, "INCONCLUSIVE", 0),
        (LATE, 1, "STALL", 39),
        (LATE, 64, "INCONCLUSIVE", 0),
    ],
)
def test_a_timer_shows_on_a_path_that_varies_by_what_is_not_for_it(diagnose, least, others_most_ms, verdict, stalls):
    """The path adds 0 to 14 ms to any ACK. All of the headers take 40 ms and more, those of the bodies do not.

    Without timestamps: none tells how long an ACK was under way.
    """

    def exchange(c: Conversation, number: int) -> None:
        varies = number * 7 % 15 * MS
        others = 40 * MS if others_most_ms > 40 else 0
        last = others + number * 11 % 15 * min(others_most_ms, 15) * MS // 15
        two_part_reply(c, asked=8 * MS, ack=least + 2 * varies, last_ack=last)

    result = diagnose(talk(exchange, exchanges=40, rtt_ns=2 * MS, timestamps=False).seen_at("server"))
    assert (result.verdict, result.summary.stalls) == (verdict, stalls)


def test_one_ack_a_little_late_does_not_make_a_path_that_varies(diagnose):
    """Nine ACKs are as late as Linux's timer; of 26 others one is 6 ms late, one 15 and one 20, by the path."""

    def exchange(c: Conversation, number: int) -> None:
        late = number % 4 == 1
        wait = LATE + number % 5 * MS if late else {10: 6 * MS, 20: 15 * MS, 30: 20 * MS}.get(number, 20 * US)
        two_part_reply(c, ack=wait)

    result = diagnose(talk(exchange, exchanges=36, rtt_ns=20 * MS).seen_at("server"))
    assert (result.verdict, result.summary.stalls) == ("STALL", 11)


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


@pytest.mark.parametrize(("timer", "verdict", "stalls"), [(0, "INCONCLUSIVE", 0), (LATE, "STALL", 40)])
def test_a_syn_proxy_is_known_by_its_ttl(diagnose, timer, verdict, stalls):
    """The SYN came with another TTL than the data: how soon it was answered says nothing of the client, which is a
    round trip of 40 ms away, and acknowledges before each request. That may be its timer; what takes longer is."""
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
    assert result.summary.round_trip_holds.count == 0


@pytest.mark.parametrize(("radio", "verdict"), [(True, "INCONCLUSIVE"), (False, "STALL")])
def test_a_radio_that_sleeps_is_no_timer(diagnose, radio, verdict):
    """Each fourth reply meets a sleeping radio, for up to 102 ms (802.11 power save); or a delayed-ACK timer."""

    def ask(c: Conversation, number: int) -> None:
        late = (5 + number * 37 % 97) * MS if radio else LATE + number % 5 * MS
        two_part_reply(c, asked=300 * MS, ack=late if number % 4 == 0 else 20 * US + number % 7 * 30 * US)

    talks = [talk(ask, 81, rtt_ns=4 * MS, client=("10.0.0.1", port)).seen_at("server") for port in (1, 2, 3)]
    assert diagnose(merge(*talks)).verdict == verdict


@pytest.mark.parametrize(
    ("shortest_ms", "longest_ms", "timestamps", "verdict"),
    [
        (0, 30, True, "INCONCLUSIVE"),
        (10, 200, True, "INCONCLUSIVE"),
        (10, 200, False, "STALL"),
        (40, 64, True, "STALL"),
        (40, 140, True, "INCONCLUSIVE"),
    ],
)
def test_a_neighbour_that_sleeps_is_no_timer(diagnose, shortest_ms, longest_ms, timestamps, verdict):
    """A virtual machine that waits for a processor, or a radio; of a stack without timestamps it may be the timer."""

    def ask(c: Conversation, number: int) -> None:
        two_part_reply(
            c, asked=300 * MS, ack=shortest_ms * MS + number * 37 % 97 * (longest_ms - shortest_ms) * MS // 97
        )

    c = talk(ask, 81, rtt_ns=300 * US, timestamps=timestamps)
    assert diagnose(c.seen_at("server")).verdict == verdict


@pytest.mark.parametrize(
    ("late", "timestamps", "rtt", "exchanges", "verdict"),
    [
        (18 * MS, True, 300 * US, 8, "INCONCLUSIVE"),
        (18 * MS, False, 300 * US, 8, "STALL"),  # another stack's timer
        (18 * MS, True, 300 * US, 12, "STALL"),  # so many as alike: a program that reads late
        (41 * MS, True, 300 * US, 8, "STALL"),
        (18 * MS, True, 5 * MS, 30, "INCONCLUSIVE"),  # a path that repeats what was lost on it
        (18 * MS, False, 5 * MS, 30, "STALL"),
        (41 * MS, True, 5 * MS, 30, "STALL"),
    ],
)
def test_acks_sooner_than_any_timer_of_linux_may_be_the_path_s(diagnose, late, timestamps, rtt, exchanges, verdict):
    """A few of a near client; any number of a far one."""
    c = talk(reply_in_two(late), 1 + exchanges, rtt_ns=rtt, timestamps=timestamps)
    assert diagnose(c.seen_at("server")).verdict == verdict


@pytest.mark.parametrize(
    ("in_time_us", "timestamps", "verdict"),
    [
        (range(1_000, 5_000, 100), True, "INCONCLUSIVE"),  # a client's kernel that waits for a processor
        (range(100, 900, 20), True, "STALL"),  # nothing between these and those in time
        (range(1_000, 5_000, 100), False, "STALL"),  # another stack's timer, perhaps
    ],
)
def test_acks_that_a_busy_host_delays_by_any_time_are_no_timer_s(diagnose, in_time_us, timestamps, verdict):
    """Of each sixty ACKs of a client next door forty are in time; the others are 5 to 6 ms late."""
    waits = [*(us * US for us in in_time_us), *(5_100 * US + 50 * US * late for late in range(20))]

    def ask(c: Conversation, number: int) -> None:
        c.client_sends(REQUEST, after_ns=8 * MS)
        c.server_sends(HEADER, after_ns=200 * US)
        c.client_acks(after_ns=waits[number * 37 % len(waits)])
        c.server_sends(BODY, after_ns=RELEASE)
        c.client_acks(after_ns=10 * US)

    result = diagnose(talk(ask, 121, timestamps=timestamps).segments)
    assert result.verdict == verdict
    # Close to both ends, as here, another capture at the other one is no advice.
    assert result.reason.endswith("or while less runs beside it") is (verdict == "INCONCLUSIVE")


@pytest.mark.parametrize(
    ("longest_ms", "short_ms", "timestamps", "stalls"),
    [
        (70, (10, 15, 20), True, 30),  # the path takes as long
        (50, (10, 15, 20), True, 45),  # it does not: a program that reads late
        (70, (10, 27, 29), False, 45),  # as many are a little shorter than Linux's timer: another stack's
    ],
)
def test_what_a_path_adds_to_the_timer_may_be_all_of_other_waits(diagnose, longest_ms, short_ms, timestamps, stalls):
    """On each of five connections six ACKs come 40 ms late and up to ``longest_ms``, three after ``short_ms``."""
    waits = (*short_ms, 40, 40, 41, 42, longest_ms, longest_ms)

    def ask(c: Conversation, number: int) -> None:
        two_part_reply(c, asked=MS, ack=waits[number - 1] * MS)

    of_all = {"rtt_ns": 300 * US, "timestamps": timestamps}
    talks = [talk(ask, 10, client=("10.0.0.1", 40_000 + at), **of_all) for at in range(5)]
    result = diagnose(merge(*(c.seen_at("server") for c in talks)))
    assert (result.verdict, result.summary.stalls) == ("STALL", stalls)


@pytest.mark.parametrize(
    ("place", "slow", "verdict"),
    [
        ("server", (), "STALL"),
        ("server", (1, 3), "INCONCLUSIVE"),
        ("server", (1,), "STALL"),
        (0.05, (1, 3), "INCONCLUSIVE"),  # by those of the server
        ("client", (1, 3), "STALL"),  # nothing lies between
    ],
)
def test_handshakes_as_late_as_acks_show_that_the_path_delays_both(diagnose, place, slow, verdict):
    """By 40 ms, as long as Linux's timer takes: on ``slow`` ones of four connections."""

    def exchange(at: int) -> list[Segment]:
        c = Conversation(("10.0.0.1", 40_000 + at), rtt_ns=5 * MS, t0_ns=SECOND + at * 7 * MS)
        more = 40 * MS * (at in slow)
        c.one_way_ns += more // 2
        c.handshake()
        c.one_way_ns -= more // 2
        c.client.now_ns += 40 * MS
        for number in range(20):
            two_part_reply(c, ack=(LATE if number % 2 else 10 * US) + number % 5 * MS)
        return c.seen_at(place)

    assert diagnose(merge(*map(exchange, range(4)))).verdict == verdict


@pytest.mark.parametrize(
    ("place", "late_releases", "verdict"),
    [("middle", 4, "INCONCLUSIVE"), ("middle", 2, "STALL"), ("client", 4, "STALL")],
)
def test_releases_as_late_as_acks_show_that_the_path_delays_both(diagnose, place, late_releases, verdict):
    """By 40 ms; of 20 replies whose ACK is late. What is at the client is not under way when its timer fires."""

    def exchange(c: Conversation, number: int) -> None:
        c.client_sends(REQUEST, after_ns=60 * MS)
        c.server_sends(HEADER, after_ns=200 * US)
        c.client_acks(after_ns=LATE if number % 2 else 10 * US)
        c.one_way_ns += (80 if place == "middle" else 40) * MS * (number % 2 and number < 2 * late_releases)
        c.server_sends(BODY, after_ns=RELEASE)
        c.one_way_ns = 5 * MS

    assert diagnose(talk(exchange, 40, rtt_ns=10 * MS).seen_at(place)[3:]).verdict == verdict


@pytest.mark.parametrize(("least_ms", "verdict"), [(0, "INCONCLUSIVE"), (10, "STALL")])
def test_acks_that_begin_to_be_late_where_those_in_time_end_are_no_timer_s(diagnose, least_ms, verdict):
    """Without timestamps, from before the capture: a path that delays by up to 18 ms, mostly by more than 8.

    Or a fifth of the ACKs comes at once, the others 10 to 18 ms later.
    """

    def ask(c: Conversation, number: int) -> None:
        share = (number * 37 % 97 / 97) ** 0.5
        late_ms = 18 * share if not least_ms else max(18 * share, least_ms) if share > 0.44 else 0
        two_part_reply(c, asked=50 * MS, ack=int(late_ms * MS))

    c = talk(ask, 97, rtt_ns=40 * MS, timestamps=False)
    assert diagnose(c.seen_at("server")[3:]).verdict == verdict


@pytest.mark.parametrize(("queue_ms", "stalls"), [(12, 40), (0, 50)])
def test_a_queue_beside_a_timer_makes_some_round_trips_longer(diagnose, queue_ms, stalls):
    """Each third ACK is late by the timer, others by up to 12 ms, as a queue adds to all. Or ten by 9 and more."""

    def ask(c: Conversation, number: int) -> None:
        c.client_sends(REQUEST, after_ns=100 * US)
        c.server_sends(HEADER, after_ns=200 * US)
        timer = number % 3 == 1
        rarely = (9 + number // 12 % 4) * MS * (number % 12 == 3)
        by_path = number * 7 % 13 * queue_ms * MS // 12 if queue_ms else rarely
        c.client_acks(after_ns=(LATE if timer else 20 * US) + by_path)
        c.server_sends(BODY, after_ns=RELEASE)

    result = diagnose(talk(ask, 120, rtt_ns=2 * MS, timestamps=False).seen_at("server"))
    assert (result.verdict, result.summary.stalls) == ("STALL", stalls)


def test_acks_of_any_lateness_are_no_timer_s_though_a_third_are_as_late_as_linux_s(diagnose):
    """As many come a little sooner. What the client asks comes at once, so the path is not always slow."""
    late_ms = [8, 11, 12, 19, 20, 20, 21, 22, 33, 35, 35, 36, 37, 38, 39, 45, 51, 52, 60, 75, 90, 116, 130, 142]

    def ask(c: Conversation, number: int) -> None:
        two_part_reply(c, asked=100 * US, ack=late_ms[number * 7 % 24] * MS if number else 0, last_ack=None)

    assert diagnose(talk(ask, 25, rtt_ns=300 * US).seen_at("server")).verdict == "INCONCLUSIVE"


def test_a_neighbour_s_timer_may_fire_late_now_and_then(diagnose):
    """Each third time by 40 ms or more: most waits are as long as Linux's timer makes them, so it is one."""

    def ask(c: Conversation, number: int) -> None:
        two_part_reply(c, ack=LATE + (number % 5 + (0 if number % 3 else 40 + number)) * MS)

    result = diagnose(talk(ask, 31, rtt_ns=300 * US).seen_at("server"))
    assert (result.verdict, result.summary.stalls) == ("STALL", 30)


@pytest.mark.parametrize(("roams", "verdict"), [(True, "INCONCLUSIVE"), (False, "STALL")])
def test_a_path_that_becomes_longer_is_no_timer(diagnose, roams, verdict):
    """A client of a VPN that roams from 20 to 65 ms, both ways alike; or one whose ACKs are late from then on."""
    c = Conversation(rtt_ns=20 * MS)
    c.handshake()
    for number in range(60):
        if number == 30 and roams:
            c.one_way_ns = 32_500 * US
        c.client_sends(REQUEST, after_ns=(50 + number * 37 % 200) * MS)
        c.server_sends(HEADER, after_ns=200 * US)
        c.client_acks(after_ns=number % 7 * 50 * US + (LATE if number >= 30 and not roams else 0))
        c.server_sends(BODY, after_ns=RELEASE)
        c.client_acks(after_ns=10 * US)
    result = diagnose(c.seen_at("server"))
    assert (result.verdict, result.quality.unresolved) == (verdict, {"path_varies": 30} if roams else {})


@pytest.mark.parametrize(
    ("thinks_ms", "rtt_ms", "handshake_ms", "boot_s", "verdict", "unsure"),
    [
        (60, 0, None, 0, "INCONCLUSIVE", 38),
        (60, 0, 1, 1000, "STALL", 0),
        (60, 60, None, 0, "INCONCLUSIVE", 38),
        (60, 60, 60, 1000, "CLEAN", 0),
        (60, 60, 20, 900, "INCONCLUSIVE", 38),
        (1, 60, None, 0, "CLEAN", 0),
        (39, 0, None, 0, "INCONCLUSIVE", 38),
        (60, 20, None, 0, "INCONCLUSIVE", 38),
    ],
)
def test_a_pool_from_before_the_capture(diagnose, thinks_ms, rtt_ms, handshake_ms, boot_s, verdict, unsure):
    """All ACKs come 40 ms late or more: by the timer of a near client that thinks for longer, or by the path.

    A handshake of another connection of the same hosts tells, or data that comes as soon as ACKs do. Behind NAT other
    hosts have that address, too: the timestamps of these begin at another time.
    """
    segments = of_a_pool(thinks_ms, rtt_ms)
    if handshake_ms:
        other = Conversation(client=("10.0.0.1", 3), rtt_ns=handshake_ms * MS, t0_ns=boot_s * SECOND)
        other.handshake()
        segments = merge(other.seen_at("server"), segments)
    result = diagnose(segments)
    assert (result.verdict, result.quality.unresolved.get("no_handshake", 0)) == (verdict, unsure)
    assert result.summary.stalls == (38 if verdict == "STALL" else 0)
    assert result.summary.round_trip_holds.count == (38 if verdict == "CLEAN" else 0)


def test_without_timestamps_another_host_of_that_address_tells_nothing(diagnose):
    other = talk(prompt, client=("10.0.0.1", 3), rtt_ns=MS, timestamps=False, t0_ns=990 * SECOND)
    result = diagnose(merge(other.seen_at("server"), of_a_pool(60, 60, timestamps=False)))
    assert (result.verdict, result.quality.unresolved) == ("INCONCLUSIVE", {"no_handshake": 38})
    assert result.idle_gaps["unknown"].count == 78 and "round_trip" not in result.idle_gaps


def rare(c: Conversation, number: int, *, stalls: bool, jitter: int) -> None:
    """A reply in two parts; its first ACK is late by the timer, or by as much as the path varies."""
    two_part_reply(c, ack=LATE + number % 3 * MS if stalls else 10 * US + jitter)
    c.pause(3 * MS)


def test_three_acks_as_late_as_the_timer_on_a_steady_path_are_no_tail(diagnose):
    """At the server, telnet's; the connection began before the capture."""
    c = Conversation(rtt_ns=4 * MS)
    c.handshake()
    for number in range(70):
        rare(c, number, stalls=number in (20, 21, 50), jitter=number % 9 * 20 * US)
    result = diagnose(c.seen_at("server")[3:])
    assert (result.verdict, result.summary.stalls) == ("STALL", 3)


def test_a_few_acks_as_late_as_the_timer_may_be_the_tail_of_a_path(diagnose):
    """At the server: the path delays most by up to 6 ms, and some by 12, so what is left open is not CLEAN."""
    talks = [Conversation(client=("10.0.0.1", 40_000 + at), rtt_ns=5 * MS) for at in range(4)]
    for c in talks:
        c.handshake()
        for number in range(100):
            jitter = 12 * MS if number % 25 == 7 else number * 37 % 100 * 60 * US
            rare(c, number, stalls=number % 20 == 11, jitter=jitter)
    result = diagnose(merge(*(c.seen_at("server") for c in talks)))
    assert (result.verdict, result.quality.unresolved) == ("INCONCLUSIVE", {"path_varies": 36})


@pytest.mark.parametrize("skew", [0, 3 * MS])
def test_a_handshake_out_of_order_shows_no_path(diagnose, skew):
    """The server's packets are stamped by another clock: its SYN/ACK comes after its ACK. All ACKs are late ones."""

    def exchange(c: Conversation, number: int) -> None:
        c.pause(60 * MS)
        two_part_reply(c, header=100 * US, ack=LATE + number % 3 * MS, last_ack=LATE + number % 3 * MS)

    segments = talk(exchange, rtt_ns=MS).seen_at("server")
    stamped = [replace(s, ts_ns=s.ts_ns + (skew if s.sport == 80 else 0)) for s in segments]
    result = diagnose(sorted(stamped, key=lambda s: s.ts_ns))
    assert result.verdict == ("INCONCLUSIVE" if skew else "STALL")
    assert ("no_handshake" in result.quality.unresolved) == bool(skew)


@pytest.mark.parametrize("late", [0, 1])
def test_what_an_ack_acknowledges_was_not_released_by_it(diagnose, late):
    """Request and header are stamped late sometimes, after the header's ACK. That seems to be of the body before."""

    def exchange(c: Conversation, number: int) -> None:
        c.pause(6 * MS)
        two_part_reply(c, header=30 * US, ack=20 * US, body=30 * US, last_ack=None)

    def stamped(s: Segment, number: int) -> Segment:
        by = {REQUEST: 110 * US, HEADER: 50 * US}.get(s.length, 0)
        return replace(s, ts_ns=s.ts_ns + (by if number // 4 % 4 == 3 else 0))

    segments = talk(exchange, exchanges=40, rtt_ns=20 * US).seen_at("client")
    disordered = sorted((stamped(s, n * late) for n, s in enumerate(segments)), key=lambda s: s.ts_ns)
    result = diagnose(disordered)
    assert (result.verdict, result.quality.unresolved.keys()) == ("INCONCLUSIVE", {"ack_on_data"})


def test_acks_of_a_near_end_that_are_all_late_do_not_make_it_far(diagnose):
    """A device sends 48 B every 20 ms, captured at the client, which never answers and whose ACKs a timer delays."""
    c = Conversation(rtt_ns=700 * US, timestamps=False)
    c.handshake()
    c.client_sends(REQUEST)
    c.server_sends(48)
    for number in range(60):
        c.client_acks(after_ns=(21 + number * 7 % 19) * MS)
        c.server_sends(48 + number % 2 * 48, after_ns=RELEASE)
    result = diagnose(c.seen_at("client"))
    assert (result.verdict, result.summary.stalls, result.summary.held_by) == ("STALL", 60, "server")


@pytest.mark.parametrize(("beside", "verdict"), [(True, "CLEAN"), (False, "INCONCLUSIVE")])
def test_an_end_that_seldom_waits_held_nothing_on_a_path_that_varies(diagnose, beside, verdict):
    """Its second write mostly leaves right behind the first; now and then an ACK arrives in between, late or not."""
    c = Conversation(rtt_ns=30 * MS)
    c.handshake()
    for number in range(90):
        c.client_sends(REQUEST, after_ns=number % 7 * MS)
        c.server_sends(HEADER, after_ns=200 * US)
        if number % 3 == 2:
            c.client_acks(after_ns=number * 7 % 26 * MS)
            c.server_sends(BODY, after_ns=300 * US)
        elif beside:
            c.server_sends(BODY, after_ns=300 * US)
        c.client_acks(after_ns=10 * US)
    assert diagnose(c.seen_at("server")).verdict == verdict


@pytest.mark.parametrize(
    ("rtt", "timestamps", "verdict"),
    [(0, False, "STALL"), (20 * MS, False, "INCONCLUSIVE"), (20 * MS, True, "STALL")],
)
def test_a_peer_next_door_that_shows_one_timer_is_not_far_away(diagnose, rtt, timestamps, verdict):
    """Most ACKs come after 40 to 47 ms, the others after 6 to 20: a path of 20 ms may do that, none of 4 µs.

    Unless their timestamps tell that they were sent so late.
    """
    talks = [Conversation(client=("10.0.0.1", 50_000 + at), rtt_ns=rtt, timestamps=timestamps) for at in range(6)]
    for c in talks:
        c.handshake(after_ns=4 * US)
        for number in range(12):
            two_part_reply(c, asked=300 * MS, ack=(40 + number % 8 if number % 4 else 6 + number) * MS)
    assert diagnose(merge(*(c.seen_at("server") for c in talks))).verdict == verdict


@pytest.mark.parametrize(
    ("late", "longer_ms", "timestamps", "said"),
    [
        (LATE, 90, True, ("STALL", 39, 0)),
        (LATE, 90, False, ("INCONCLUSIVE", 0, 0)),
        (10 * US, 90, True, ("CLEAN", 0, 40)),
        (10 * US, 90, False, ("INCONCLUSIVE", 0, 0)),
        (LATE, 0, True, ("STALL", 39, 0)),
    ],
)
def test_timestamps_tell_how_long_acks_were_under_way(diagnose, late, longer_ms, timestamps, said):
    """By up to ``longer_ms`` more than the fastest: that is the path's, and only the rest the timer's."""
    c = talk(_with_acks_under_way(late, longer_ms), 40, rtt_ns=20 * MS, timestamps=timestamps)
    result = diagnose(c.seen_at("server"))
    assert (result.verdict, result.summary.stalls, result.summary.round_trip_holds.count) == said


@pytest.mark.parametrize(
    ("pause", "step", "verdict"),
    [(90 * SECOND, 1, "STALL"), (100 * SECOND, 1, "INCONCLUSIVE"), (0, 4, "INCONCLUSIVE")],
)
def test_timestamps_tell_nothing_where_clocks_may_have_parted_or_count_no_milliseconds(
    diagnose, pause, step, verdict
):
    """The connection lasts that long; its timestamps count ``step`` ms."""
    c = talk(_with_acks_under_way(LATE, 90, pause), 40, rtt_ns=20 * MS)
    segments = [replace(s, timestamps=tuple(one // step * step for one in s.timestamps)) for s in c.seen_at("server")]
    assert diagnose(segments).verdict == verdict


@pytest.mark.parametrize(
    ("connections", "handshake_ms", "verdict", "stalls"), [(1, 100, "STALL", 30), (31, 60, "CLEAN", 0)]
)
def test_what_all_acks_take_longer_than_data_is_part_of_their_round_trip(
    diagnose, connections, handshake_ms, verdict, stalls
):
    """A path on which ACKs take 40 ms more than requests; ACKs of single replies are sent at once, and none held."""

    def ask(c: Conversation, number: int) -> None:
        c.one_way_ns = 30 * MS
        c.client_sends(REQUEST, after_ns=61 * MS)
        c.server_sends(HEADER, after_ns=200 * US)
        c.one_way_ns = 70 * MS + number * 37 % 5 * MS
        c.client_acks(after_ns=LATE if number else 10 * US)
        c.one_way_ns = 30 * MS
        c.server_sends(BODY, after_ns=RELEASE)

    ports, rtt_ns = range(40_000, 40_000 + connections), handshake_ms * MS
    talks = [talk(ask, 31 // connections, ask, client=("10.0.0.1", port), rtt_ns=rtt_ns) for port in ports]
    result = diagnose(merge(*(c.seen_at("server") for c in talks)))
    assert (result.verdict, result.summary.stalls) == (verdict, stalls)


def test_no_ack_is_under_way_for_longer_than_it_is_late(diagnose):
    """The capture's clock is set forward by a second in the middle: timestamps seem to be late from then on."""
    segments = talk(reply_in_two(LATE), 41, rtt_ns=20 * MS).seen_at("server")
    half = len(segments) // 2
    later = [replace(s, ts_ns=s.ts_ns + SECOND) for s in segments[half:]]
    result = diagnose(segments[:half] + later)
    assert result.verdict == "STALL" and result.summary.stalls >= 39


@pytest.mark.parametrize(("longer_ms", "verdict"), [(40, "INCONCLUSIVE"), (150, "STALL")])
def test_data_may_have_been_under_way_as_long_as_acks_were(diagnose, longer_ms, verdict):
    """Every third ACK comes 40 ms late; others, behind which nothing waits, were under way for ``longer_ms`` more."""
    write_two = _with_acks_under_way(LATE, 0)

    def ask(c: Conversation, number: int) -> None:
        if number % 3 == 0:
            write_two(c, number)
            return
        prompt(c, number)
        c.server_sends(BODY, after_ns=60 * MS)
        c.one_way_ns += longer_ms * MS * (number % 3 == 1)
        c.client_acks(after_ns=10 * US)
        c.one_way_ns = 10 * MS
        c.server_sends(HEADER, after_ns=9 * MS + number * 613 * US)
        c.client_acks(after_ns=10 * US)

    assert diagnose(talk(ask, 60, rtt_ns=20 * MS).seen_at("server")).verdict == verdict


@pytest.mark.parametrize("place", ["client", "server"])
def test_acks_are_late_on_a_path_longer_than_any_timer(diagnose, place):
    """By satellite: from the trigger to its ACK 620 ms pass at the server."""
    c = talk(reply_in_two(LATE), 20, rtt_ns=580 * MS)
    result = diagnose(c.seen_at(place))
    assert (result.verdict, result.summary.stalls) == ("STALL", 19)
    saves = "Held data then leaves up to 622.3 ms sooner; if ACKs are sent at once, up to 42.3 ms."
    assert saves in result.summary.remedy


def test_near_by_acks_sent_at_once_save_what_the_option_saves(diagnose):
    c = talk(reply_in_two(LATE), 20, rtt_ns=MS)
    assert "if ACKs are sent at once" not in diagnose(c.seen_at("server")).summary.remedy


@pytest.mark.parametrize(
    ("late", "thinks_ms", "timestamps", "verdict"),
    [
        (LATE, (5, 40, 70), True, "STALL"),
        (LATE, (5, 40, 70), False, "INCONCLUSIVE"),
        (10 * US, (5, 40, 70), True, "INCONCLUSIVE"),  # by the queue alone
        (LATE, (150,), True, "INCONCLUSIVE"),  # nothing of the client shows that no queue stands all the time
    ],
)
def test_a_timer_shows_beside_a_queue_by_how_much_it_takes_at_least(diagnose, late, thinks_ms, timestamps, verdict):
    """A queue before the client delays the data by up to 60 ms; timestamps tell that its ACKs were not delayed."""

    def ask(c: Conversation, number: int) -> None:
        queue_ns = 10 * MS + max(number * 37 % 97 - 37, 0) * MS
        c.client_sends(REQUEST, after_ns=thinks_ms[number % len(thinks_ms)] * MS)
        c.one_way_ns = queue_ns
        c.server_sends(HEADER, after_ns=200 * US)
        c.one_way_ns = 10 * MS
        c.client_acks(after_ns=late)
        c.one_way_ns = queue_ns
        c.server_sends(BODY, after_ns=RELEASE)
        c.one_way_ns = 10 * MS

    c = talk(ask, 40, rtt_ns=20 * MS, timestamps=timestamps)
    assert diagnose(c.seen_at("server")).verdict == verdict


@pytest.mark.parametrize(
    ("every", "late", "varies_ms", "verdict"),
    [
        (5, LATE, 6, "STALL"),
        (12, LATE, 6, "INCONCLUSIVE"),
        (5, 20 * MS, 2, "STALL"),  # another stack's timer, or a program that reads late
        (12, 20 * MS, 2, "INCONCLUSIVE"),
    ],
)
def test_the_slowest_few_may_be_the_path_s(diagnose, every, late, varies_ms, verdict):
    """Of 60 ACKs every fifth is late, or five are; whether or not by Linux's timer, as their timestamps show."""

    def ask(c: Conversation, number: int) -> None:
        c.one_way_ns = 10 * MS + number * 37 % 97 * varies_ms * MS // 97
        two_part_reply(c, ack=late if number % every == 1 else 10 * US, last_ack=None)

    c = talk(ask, 61, rtt_ns=20 * MS, timestamps=late == LATE)
    assert diagnose(c.seen_at("server")).verdict == verdict


def _with_acks_under_way(late: int, longer_ms: int, pause: int = 0) -> Story:
    """Replies in two writes, whose first is acknowledged after ``late`` ns, by an ACK that is under way for longer.

    With a ``pause``, ns, in the middle.
    """

    def ask(c: Conversation, number: int) -> None:
        c.client_sends(REQUEST, after_ns=60 * MS + pause * (number == 20))
        c.server_sends(HEADER, after_ns=200 * US)
        c.one_way_ns += number * 37 % 97 * longer_ms * MS // 97
        c.client_acks(after_ns=late)
        c.one_way_ns = 10 * MS
        c.server_sends(BODY, after_ns=RELEASE)
        c.client_acks(after_ns=10 * US)

    return ask


@pytest.mark.parametrize(
    ("handshakes", "acks", "is_shown"),
    [
        ([16, 16], [], True),
        ([16], [], False),
        ([15, 15], [], False),
        ([], [16, 29], True),
        ([], [31, 31], False),  # a timer's
        ([16], [16], True),
        ([0] * 18 + [16] * 2, [], True),
        ([0] * 28 + [16] * 2, [], False),  # less than a tenth
        ([8, 10], [10], True),
        ([8, 9], [12], False),
        ([10, 10], [], False),
    ],
)
@pytest.mark.parametrize("fastest", [0.9, 5])
def test_what_no_timer_delays_shows_that_the_path_may_delay_acks_on_data(handshakes, acks, is_shown, fastest):
    """Ten ACKs on data, 20 ms late, and what else came from that end, so many ms later than its fastest."""
    reactions = SimpleNamespace(
        handshake_more=[ms * MS for ms in handshakes], ack=[(fastest + ms) * MS for ms in acks]
    )
    observed = SimpleNamespace(
        peer_fastest=fastest * MS,
        program=SimpleNamespace(peer_reactions=reactions),
        setting=SimpleNamespace(resolution=0),
    )
    on_data = SimpleNamespace(late_by=lambda _: [20 * MS] * 10)
    assert path_may_have_delayed(on_data, observed) == (is_shown and fastest > 1)
