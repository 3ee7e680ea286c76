"""One connection captured several times, on interfaces, bridges or both sides of a NAT: counted once."""

from dataclasses import replace

import pytest

from nagle_lab.diagnosis.analysis import analyze
from nagle_lab.evidence.ladder import ladder_of
from nagle_lab.reports.words.ladder_text import ladder_text
from support.stories import BODY, LATE, RELEASE, REQUEST, reply_in_two, server_held, talk
from support.synthetic import MS, SECOND, US, Conversation, Segment, merge, pcap_bytes


@pytest.mark.parametrize(("since", "exchanges"), [(0, 20), (4, 19)])
def test_a_connection_before_and_after_nat_counts_once(diagnose, since, exchanges):
    """By the sequence numbers of its SYNs; where it began before the capture, by those behind its last segments.

    One of the two views begins with the other side then.
    """
    segments = talk(server_held).segments[since:]
    inside = {"10.0.0.1": "192.0.2.7"}
    again = [
        replace(s, src=inside.get(s.src, s.src), dst=inside.get(s.dst, s.dst), ts_ns=s.ts_ns + 20 * US)
        for s in segments[min(since, 1) :]
    ]  # fmt: skip
    result = diagnose(merge(segments, again))
    assert (result.summary.stalls, result.summary.exchanges) == (19, exchanges)
    assert (result.summary.delayed_acks, result.summary.delayed_acks_by["client"]) == (19, 19)
    assert {cause: gap.count for cause, gap in result.idle_gaps.items()} == {"nagle_delayed_ack": 19}


@pytest.mark.parametrize(("since", "exchanges"), [(0, 20), (4, 19)])
def test_connections_that_all_begin_with_the_same_numbers_are_no_views(diagnose, since, exchanges):
    """ns-3 begins each with 0: that says nothing of who is whom."""
    c, other = (
        talk(server_held, client=("10.0.0.1", port), client_isn=0, server_isn=0, t0_ns=1_700_000_000 * SECOND + after)
        for port, after in ((40_000, 0), (40_001, 300 * MS))
    )
    result = diagnose(merge(c.segments[since:], other.segments[since:]))
    assert (result.summary.stalls, result.summary.exchanges) == (38, 2 * exchanges)


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


V6 = {"client": ("fd00::1", 40_000), "server": ("fd00::2", 80)}


@pytest.mark.parametrize(
    ("way_ms", "timestamps", "ttl"), [(20, True, 64), (2, False, 64), (20, False, 63), (90, True, 64)]
)
def test_copies_without_an_id_may_be_a_queue_apart(diagnose, way_ms, timestamps, ttl):
    """The SYN shows that there are copies: with timestamps the others may be as late, and behind a router any."""
    c = talk(server_held, exchanges=30, rtt_ns=2 * way_ms * MS, timestamps=timestamps, **V6)
    client, server = (
        [replace(s, ttl=64 if s.src == own else ttl) for s in c.seen_at(end)]
        for end, own in (("client", "fd00::1"), ("server", "fd00::2"))
    )
    result = diagnose(merge(client, server))
    assert (result.verdict, result.summary.stalls) == ("STALL", 29)
    assert result.quality.not_decoded["TCP seen again on another interface"] == len(client)


@pytest.mark.parametrize("later_ms", [6, 101])
def test_what_is_sent_again_is_no_copy(diagnose, later_ms):
    """Without timestamps 5 ms later, or anything after 100 ms."""
    c = talk(server_held, exchanges=30, timestamps=later_ms > 100, **V6)
    again = [replace(s, ts_ns=s.ts_ns + later_ms * MS) for s in c.segments[3:] if s.length]
    copies = [replace(s, ts_ns=s.ts_ns + 2 * US) for s in c.segments]
    result = diagnose(merge(c.segments, copies, again))
    assert result.quality.not_decoded["TCP seen again on another interface"] == len(copies)


@pytest.mark.parametrize("ids", [0, 7])
@pytest.mark.parametrize("is_whole_first", [True, False])
def test_what_offload_splits_or_merges_on_another_interface_counts_once(diagnose, is_whole_first, ids):
    """A bridge: one port has the frame as it was sent, the next one its segments."""

    def reply(c: Conversation, _: int) -> None:
        c.client_sends(REQUEST)
        first = c.server_sends(3_000, after_ns=200 * US)
        c.client_acks(ack=first.seq + 2_896)
        c.client_acks(after_ns=LATE)
        c.server_sends(BODY, after_ns=RELEASE)
        c.client_acks()

    segments, ports = talk(reply, exchanges=30).segments, ([], [])
    for s in (replace(s, ip_id=ids * number) for number, s in enumerate(segments, 1)):
        first = replace(s, length=1_448, flags="A")
        second = replace(first, seq=s.seq + 1_448, ip_id=ids and s.ip_id + 1)
        last = replace(s, seq=s.seq + 2_896, length=104, ip_id=ids and s.ip_id + 2)
        parts = [first, second, last] if s.length == 3_000 else [s]
        for port, seen in zip(ports, ([s], parts) if is_whole_first else (parts, [s]), strict=True):
            later_ns = (2 if port is ports[1] else 0) * US
            port += [replace(each, ts_ns=s.ts_ns + later_ns + place * 100) for place, each in enumerate(seen)]
    result = diagnose(merge(*ports))
    assert (result.verdict, result.summary.stalls, result.summary.exchanges) == ("STALL", 29, 30)
    assert result.quality.not_decoded["TCP seen again on another interface"] == len(ports[1])


@pytest.mark.parametrize(
    "changes",
    [
        {"ip_id": -1},  # the first segment of the frame begins where that does,
        {"ip_id": 1, "seq": 1},  # 1449 bytes are no two segments of one size,
        {"ip_id": 3},  # and hardly any path carries so little that they are four
        {"window": 501},
        {"flags": "FA"},
        {"timestamps": (9, 9)},
        {"ack": 2},
        {"length": 1_553},  # a byte beyond it
        {"seq": -1_448, "length": 4_500, "ip_id": -10},  # ends later
        {"ts_ns": 100_001 * US},
    ],
    ids=str,
)
def test_what_overlaps_a_captured_frame_is_no_part_of_it(diagnose, changes):
    """On a bridge, where each packet is captured twice."""
    c = Conversation()
    c.handshake()
    c.client_sends(REQUEST)
    whole = c.server_sends(3_000, ip_id=9)
    part = replace(whole, seq=whole.seq + 1_448, length=1_448, ip_id=10, flags="A", ts_ns=whole.ts_ns + 3 * US)
    by = {name: getattr(part, name) + changes[name] for name in {"ip_id", "seq", "ts_ns", "ack"} & changes.keys()}
    copies = [replace(s, ts_ns=s.ts_ns + 2 * US) for s in c.segments]
    for other, is_part in ((part, True), (replace(part, **changes | by), False)):
        result = diagnose(merge(c.segments, copies, [other]))
        assert result.quality.not_decoded["TCP seen again on another interface"] == len(copies) + is_part
    assert not diagnose([*c.segments, part]).quality.not_decoded  # nothing else was captured twice


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


@pytest.mark.parametrize("rtt_us", [120, 4_000])
def test_both_ends_in_one_file_show_each_end_as_its_own_capture_does(diagnose, rtt_us):
    """From the last copy of what an end got, but for 30 µs, to the first one of what it sends: no path is in that."""
    c = talk(server_held, exchanges=30, rtt_ns=rtt_us * US)
    both, server = diagnose(merge(c.seen_at("client"), c.seen_at("server"))), diagnose(c.seen_at("server"))
    assert (both.verdict, both.summary.stalls) == ("STALL", 29)
    assert server.summary.release_us.max <= both.summary.release_us.max <= server.summary.release_us.max + 30
    assert both.summary.captured_near == "both"


def test_a_program_that_waits_for_the_ack_is_not_accused_in_a_file_of_both_ends(diagnose):
    c = talk(reply_in_two(LATE, lambda n: (110 + n * 7 % 30) * US), exchanges=30, rtt_ns=80 * US)
    assert diagnose(merge(c.seen_at("client"), c.seen_at("server"))).verdict == "INCONCLUSIVE"
