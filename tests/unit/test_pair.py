"""Two captures of the same traffic are judged together: each end as the capture nearer to it shows it."""

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from nagle_lab.diagnosis.analysis import analyze, analyze_same_traffic
from nagle_lab.diagnosis.observed import columns
from nagle_lab.diagnosis.result.verdict import Verdict
from nagle_lab.errors import NagleLabError
from support.repository import CAPTURES
from support.stories import (
    client_held,
    nodelay,
    server_held,
    talk,
    thinks_then_one_write,
    three_writes,
)
from support.synthetic import MS, US, Conversation, Segment, merge, pcap_bytes

FAMILIES = CAPTURES / "families"
HELD_OUT = FAMILIES.with_name("held-out")


@pytest.fixture
def at(tmp_path):
    """Write what is seen at a position of a conversation, or these segments under that name."""

    def written(conversation: Conversation | list[Segment], position: str) -> Path:
        path = tmp_path / f"{position}.pcap"
        seen = conversation if isinstance(conversation, list) else conversation.seen_at(position)
        path.write_bytes(pcap_bytes(seen))
        return path

    return written


def on_a_path_that_varies(story):
    """The story, told over a path that takes 3 to 48 ms, another time for each exchange."""

    def told(c: Conversation, number: int) -> None:
        c.one_way_ns = (3 + 15 * (number * 7 % 4)) * MS
        story(c, number)

    return told


def acknowledges_at_once(c: Conversation, _: int) -> None:
    """The server holds its second write until the client acknowledges the first, which it does at once."""
    c.client_sends(100, after_ns=2 * MS)
    c.server_sends(200, after_ns=100 * US)
    c.client_acks(after_ns=10 * US)
    c.server_sends(300, after_ns=10 * US)
    c.client_acks(after_ns=10 * US)


# ------------------------------------------------------------------------------------------------- what is measured


@pytest.mark.parametrize("story", [server_held, client_held, three_writes], ids=lambda s: s.__name__)
@pytest.mark.parametrize("order", [("server", "client"), ("client", "server"), ("middle", "client")])
def test_delay_and_hold_are_told_apart(at, story, order):
    """On a path of 20 ms the delaying end shows its timer, 40.3 ms and more; the hold is a round trip more."""
    conversation = talk(story, rtt_ns=20 * MS)
    pair = analyze_same_traffic(*(at(conversation, position) for position in order))
    assert pair.matched == (38 if story is three_writes else 19)
    assert pair.only_in == (0, 0)
    assert pair.hold_ms is not None and pair.ack_delay_ms is not None and pair.path_ms is not None
    assert 60.3 <= pair.hold_ms.p50 <= 64.4
    nearest = {server_held: "client", three_writes: "client", client_held: "server"}[story]
    if nearest in order:
        assert 40.3 <= pair.ack_delay_ms.p50 <= 44.4
        assert 20 <= pair.path_ms.p50 <= 20.1


def test_the_timer_is_that_of_the_end_that_delays(at):
    """However long the path: the remedy says what ACKs sent at once would save."""
    conversation = talk(on_a_path_that_varies(server_held), rtt_ns=20 * MS)
    pair = analyze_same_traffic(at(conversation, "client"), at(conversation, "server"))
    for result in pair.results:
        timer = result.summary.ack_timer_ms
        assert timer is not None and 40 <= timer <= 44.4


# -------------------------------------------------------------------------------------------------- what is decided


@pytest.mark.parametrize(
    ("story", "held_by", "alone"),
    [
        (server_held, "server", [Verdict.INCONCLUSIVE, Verdict.INCONCLUSIVE]),
        (client_held, "client", [Verdict.INCONCLUSIVE, Verdict.STALL]),
    ],
)
def test_a_path_that_varies_hides_nothing_from_both_ends(at, story, held_by, alone):
    """Each capture alone leaves open what the path may have made late; the other one shows that it did not."""
    conversation = talk(on_a_path_that_varies(story), rtt_ns=20 * MS)
    client, server = at(conversation, "client"), at(conversation, "server")
    assert [analyze(path).verdict for path in (client, server)] == alone
    pair = analyze_same_traffic(client, server)
    assert [result.verdict for result in pair.results] == [Verdict.STALL, Verdict.STALL]
    assert [result.summary.stalls for result in pair.results] == [19, 19]
    assert [result.summary.held_by for result in pair.results] == [held_by, held_by]
    assert pair.nearer.source.file == f"{held_by}.pcap"


def test_a_program_that_waits_for_the_ack_is_not_accused_with_its_own_capture():
    """Seen from the other end of its path it looks like Nagle's algorithm."""
    folder = FAMILIES / "wait-drained-rtt-10"
    client, server = folder / "client.pcap.gz", folder / "server.pcap.gz"
    assert analyze(client).verdict is Verdict.STALL
    assert analyze_same_traffic(client, server).verdict is Verdict.INCONCLUSIVE


def test_next_door_the_capture_at_the_sender_tells_a_kernel_from_a_program():
    folder = FAMILIES / "wait-drained"
    pair = analyze_same_traffic(folder / "client.pcap.gz", folder / "server.pcap.gz")
    assert pair.verdict is Verdict.INCONCLUSIVE
    assert dict(pair.nearer.quality.unresolved) == {"like_a_program": 36}


def test_what_a_relay_passes_on_is_seen_in_its_own_capture():
    """Its other connection is not in its client's: yet both results say that what it sends is passed on."""
    client, server = (HELD_OUT / f"w2-credit-veth.{end}.pcap.gz" for end in ("client", "server"))
    only = [{8080, one} for one in range(30001, 30004)]

    def alone(path: Path) -> Verdict:
        return analyze(path, only=lambda one, other: {one[1], other[1]} in only).verdict

    assert alone(server) is Verdict.CLEAN
    pair = analyze_same_traffic(client, server)
    assert [(result.verdict, result.quality.rejected["relayed"]) for result in pair.results] == [("CLEAN", 39)] * 2


@pytest.mark.parametrize("first", ["client", "relay"])
def test_a_relay_and_the_origin_behind_it(at, first):
    """Data of a connection that only the relay's capture has arrives before the release; that one holds."""
    front = talk(server_held, server=("10.0.0.2", 80))
    behind = talk(
        server_held, client=("10.0.0.2", 50000), server=("10.0.0.3", 81), t0_ns=front.segments[0].ts_ns - 5 * US
    )
    at_client = [replace(s, ts_ns=s.ts_ns + (-50 if s.src == "10.0.0.1" else 50) * US) for s in front.segments]
    both = [at(at_client, "client"), at(merge(front.segments, behind.segments), "relay")]
    if first == "relay":
        both.reverse()
    pair = analyze_same_traffic(*both)
    assert pair.verdict is Verdict.STALL and pair.connections == 1
    (at_relay,) = (result for result in pair.results if result.source.file == "relay.pcap")
    assert [end.ip for end in at_relay.summary.held_ends] == ["10.0.0.3"]
    assert at_relay.quality.rejected["relayed"] == 19


@pytest.mark.parametrize("end", ["client", "server"])
def test_data_sent_before_its_ack_arrived_was_not_held(at, end):
    """At the client the ACK is late, and the data follows; at the server it had left before that."""

    def crossing(c: Conversation, _: int) -> None:
        c.client_sends(100, after_ns=2 * MS)
        c.server_sends(200, after_ns=100 * US)
        arrived = c.client.now_ns
        c.server_sends(300, after_ns=35 * MS)  # TCP_NODELAY: on its way when the ACK is sent
        c.client_acks(at_ns=arrived + 40 * MS, ack=c.server.next_seq - 300)
        c.client_acks(after_ns=6 * MS)

    conversation = talk(crossing, rtt_ns=20 * MS)
    pair = analyze_same_traffic(at(conversation, end), at(conversation, "server" if end == "client" else "client"))
    assert [(result.verdict, result.summary.stalls) for result in pair.results] == [("CLEAN", 0)] * 2


@pytest.mark.parametrize("first", ["client", "server"])
def test_what_the_path_kept_until_the_ack_was_not_held(at, first):
    """A sleeping radio gets its data when it sends: here with its delayed ACK. Without timestamps only the server's
    capture shows that the data had left before."""

    def kept(c: Conversation, number: int) -> None:
        c.client_sends(100, after_ns=2 * MS)
        c.server_sends(200, after_ns=100 * US)
        arrived, usual = c.client.now_ns, c.one_way_ns
        c.one_way_ns = (60 - number % 20) * MS
        c.server_sends(300, at_ns=arrived - usual + (10 + number % 20) * MS)
        c.one_way_ns = usual
        c.client_acks(at_ns=arrived + 40 * MS, ack=c.server.next_seq - 300)
        c.client_acks(at_ns=arrived + 61 * MS)

    conversation = talk(kept, rtt_ns=20 * MS, timestamps=False)
    pair = analyze_same_traffic(
        *(at(conversation, end) for end in (first, "server" if first == "client" else "client"))
    )
    assert [(result.verdict, result.summary.stalls) for result in pair.results] == [("CLEAN", 0)] * 2


def test_a_path_that_delays_the_trigger_alone_denies_no_hold(at):
    """The client's capture lacks the late ACKs of five replies, whose headers were 8 ms longer under way: it has the
    bodies sooner behind these than the server's capture has the ACKs. But the server is where they were held."""
    late = []

    def held(c: Conversation, number: int) -> None:
        usual = c.one_way_ns
        c.client_sends(100, after_ns=2 * MS)
        c.one_way_ns = usual + 8 * MS * (number % 4 == 1)
        c.server_sends(200, after_ns=100 * US)
        c.one_way_ns = usual
        ack = c.client_acks(after_ns=40 * MS)
        if number % 4 == 1:
            late.append(ack.ack)
        c.server_sends(300, after_ns=10 * US)
        c.client_acks(after_ns=10 * US)

    conversation = talk(held, rtt_ns=2 * MS, timestamps=False)
    seen = [one for one in conversation.seen_at("client") if one.length or one.ack not in late]
    pair = analyze_same_traffic(at(conversation, "server"), at(seen, "client"))
    assert (pair.verdict, pair.results[0].summary.stalls) == ("STALL", 19)


def test_it_is_one_answer_whichever_is_named_first(at):
    conversation = talk(on_a_path_that_varies(server_held), rtt_ns=20 * MS)
    client, server = at(conversation, "client"), at(conversation, "server")
    one, two = analyze_same_traffic(client, server), analyze_same_traffic(server, client)
    assert one.nearer.to_json() == two.nearer.to_json()
    assert (one.matched, one.hold_ms, one.ack_delay_ms) == (two.matched, two.hold_ms, two.ack_delay_ms)


# ----------------------------------------------------------------------------------------- what one of them lacks


def later_half(segments: list[Segment]) -> list[Segment]:
    """From the first pause after the middle on."""
    halfway = len(segments) // 2
    begin = next(
        i for i, (one, two) in enumerate(pairwise(segments[halfway:]), halfway + 1) if two.ts_ns - one.ts_ns > 1 * MS
    )
    return segments[begin:]


def test_what_only_one_of_them_shows_is_judged_by_that_alone(at):
    """The client's capture begins late: what the server held before that is proved by the server's."""
    conversation = talk(server_held, rtt_ns=20 * MS)
    client, server = at(later_half(conversation.seen_at("client")), "client"), at(conversation, "server")
    pair = analyze_same_traffic(client, server)
    assert (pair.verdict, pair.matched, pair.only_in) == (Verdict.STALL, 10, (0, 9))
    assert [result.summary.stalls for result in pair.results] == [10, 19]


def test_what_only_one_of_them_shows_makes_it_no_less_a_stall(at):
    """The server holds data in the first half only, which is not in the capture at the client."""

    def held_at_first(c: Conversation, number: int) -> None:
        (server_held if number < 10 else nodelay)(c, number)

    conversation = talk(held_at_first, rtt_ns=20 * MS)
    client, server = at(later_half(conversation.seen_at("client")), "client"), at(conversation, "server")
    pair = analyze_same_traffic(client, server)
    assert (pair.verdict, pair.matched, pair.only_in) == (Verdict.STALL, 0, (0, 8))


def test_connections_that_only_one_of_them_has_are_judged_by_that_alone(at, run):
    """The server holds what it sends to another client, which the capture at ours does not show."""
    ours = talk(nodelay, rtt_ns=20 * MS)
    others = talk(server_held, rtt_ns=20 * MS, client=("10.0.0.9", 50000))
    client = at(ours, "client")
    assert analyze_same_traffic(client, at(ours, "server")).verdict is Verdict.CLEAN
    server = at(merge(ours.seen_at("server"), others.seen_at("server")), "server")
    pair = analyze_same_traffic(client, server)
    assert (pair.verdict, pair.connections, pair.only_in) == (Verdict.STALL, 1, (0, 19))
    assert [result.verdict for result in pair.results] == ["CLEAN", "STALL"]
    _, out, _ = run("analyze", "--same-traffic", client, server)
    assert "1 connection, 0 stalls, and 19 in server.pcap only" in out


def test_acks_that_one_of_them_lacks_are_no_late_ones(at):
    """The client acknowledges at once; its own capture has only what carries data, the server's shows a path."""
    conversation = talk(on_a_path_that_varies(acknowledges_at_once), rtt_ns=20 * MS)
    data_only = [one for one in conversation.seen_at("client") if one.length or "S" in one.flags]
    assert analyze_same_traffic(at(data_only, "client"), at(conversation, "server")).verdict is not Verdict.STALL


def test_the_path_beyond_the_capture_is_no_delay_of_the_ack(at):
    """The peer acknowledges at once, 11 ms beyond the middle."""
    conversation = talk(acknowledges_at_once, rtt_ns=22 * MS)
    pair = analyze_same_traffic(at(conversation, "middle"), at(conversation, "server"))
    assert (pair.verdict, pair.connections) == (Verdict.CLEAN, 1)
    held = talk(server_held, rtt_ns=22 * MS)
    pair = analyze_same_traffic(at(held, "middle"), at(held, "server"))
    assert [result.summary.stalls for result in pair.results] == [19, 19]


def test_the_same_capture_twice_tells_no_more_than_once(at):
    path = at(talk(on_a_path_that_varies(server_held), rtt_ns=20 * MS), "server")
    alone, pair = analyze(path), analyze_same_traffic(path, path)
    assert pair.verdict is alone.verdict
    assert pair.nearer.reason.endswith("capture at both ends (`--same-traffic`)")


def test_a_capture_of_one_direction_takes_nothing_away(at, run):
    conversation = talk(server_held, rtt_ns=20 * MS)
    one_way = [one for one in conversation.seen_at("client") if one.src == "10.0.0.2"]
    client, server = at(one_way, "client"), at(conversation, "server")
    pair = analyze_same_traffic(client, server)
    assert (pair.verdict, pair.connections) == (Verdict.STALL, 0)
    assert pair.nearer.summary.stalls == analyze(server).summary.stalls == 19
    _, out, _ = run("analyze", "--same-traffic", client, server)
    assert "each capture by itself" in out


def by_offload(segments: list[Segment]) -> list[Segment]:
    """Segments as they leave a host with segmentation offload: data behind full segments, without an ACK in between,
    in one packet with these.
    """
    packets: list[Segment] = []
    for one in segments:
        before = packets[-1] if packets else one
        if one.length and before.src == one.src and before.length % 1448 == 0 < before.length:
            packets[-1] = replace(before, length=before.length + one.length, flags=one.flags)
        else:
            packets.append(one)
    return packets


def test_what_offload_merges_at_one_end_is_found_at_the_other(at):
    """The trigger leaves its host in one packet with the full segment before it."""

    def a_tail_and_more(c: Conversation, _: int) -> None:
        c.client_sends(100, after_ns=2 * MS)
        c.server_sends(1448, after_ns=100 * US, flags="A")
        c.server_sends(200, after_ns=1 * US)
        c.client_acks(after_ns=10 * US, ack=c.server.next_seq - 200)
        c.client_acks(after_ns=40 * MS)
        c.server_sends(300, after_ns=10 * US)
        c.client_acks(after_ns=10 * US)

    conversation = talk(a_tail_and_more, rtt_ns=20 * MS)
    packets = by_offload(conversation.seen_at("server"))
    pair = analyze_same_traffic(at(conversation, "client"), at(packets, "server"))
    assert pair.matched == pair.results[0].summary.stalls == pair.results[1].summary.stalls >= 18


def test_segmentation_offload_at_one_end_hides_no_acks_of_the_other(at):
    """Each reply ends in two writes; before these it has 14 full segments, one packet where it leaves its host."""

    def large_reply(c: Conversation, _: int) -> None:
        c.client_sends(100, after_ns=2 * MS)
        for _ in range(14):
            c.server_sends(1448, after_ns=1 * US, flags="A")
        c.client_acks(after_ns=10 * US)
        c.server_sends(200, after_ns=100 * US)
        c.client_acks(after_ns=40 * MS)
        c.server_sends(300, after_ns=10 * US)
        c.client_acks(after_ns=10 * US)

    conversation = talk(large_reply, rtt_ns=20 * MS)
    packets = by_offload(conversation.seen_at("server"))
    pair = analyze_same_traffic(at(conversation, "client"), at(packets, "server"))
    assert pair.connections == 1
    assert pair.matched == pair.results[0].summary.stalls == pair.results[1].summary.stalls >= 18


@pytest.mark.parametrize(("coarse", "verdict"), [("client", "STALL"), ("server", "INCONCLUSIVE")])
def test_a_coarse_clock_matters_where_the_data_is_sent(at, coarse, verdict):
    """How late ACKs were a clock of 1 ms tells, too; how soon they released the data it does not."""
    conversation = talk(on_a_path_that_varies(server_held), rtt_ns=20 * MS)
    ends = [
        at([replace(one, ts_ns=one.ts_ns // MS * MS) for one in conversation.seen_at(end)], end)
        if end == coarse
        else at(conversation, end)
        for end in ("client", "server")
    ]
    assert analyze_same_traffic(*ends).verdict == verdict


def test_clocks_that_are_apart_do_not_matter(at):
    """One is an hour ahead, and 200 ppm fast."""
    conversation = talk(on_a_path_that_varies(server_held), rtt_ns=20 * MS)
    seen = conversation.seen_at("client")
    first = seen[0].ts_ns
    ahead = [
        replace(one, ts_ns=one.ts_ns + 3600 * 1000 * MS + (one.ts_ns - first) * 200 // 1_000_000) for one in seen
    ]
    pair = analyze_same_traffic(at(ahead, "client"), at(conversation, "server"))
    assert [result.summary.stalls for result in pair.results] == [19, 19]


@pytest.mark.parametrize("late", [False, True], ids=["whole", "begun late"])
def test_addresses_may_be_translated_in_between(at, late):
    """As by a load balancer: both ends' sequence numbers tell that it is the same traffic."""
    conversation = talk(on_a_path_that_varies(server_held), rtt_ns=20 * MS)
    inside = {"10.0.0.1": ("192.0.2.7", 61000), "10.0.0.2": ("192.0.2.8", 8080)}
    translated = [
        replace(
            one, src=inside[one.src][0], sport=inside[one.src][1], dst=inside[one.dst][0], dport=inside[one.dst][1]
        )
        for one in conversation.seen_at("server")
    ]
    pair = analyze_same_traffic(
        at(conversation, "client"), at(later_half(translated) if late else translated, "server")
    )
    assert pair.verdict is Verdict.STALL
    assert pair.matched == pair.results[1].summary.stalls == (10 if late else 19)
    assert str(pair.nearer.stalls[0].held_by) == "192.0.2.8:8080"


def test_another_run_between_the_same_ends_is_not_taken_for_the_same(at, run):
    """Their sequence numbers are others: each is judged by itself, and it is said."""
    one = at(talk(server_held, rtt_ns=20 * MS), "client")
    two = at(talk(server_held, rtt_ns=20 * MS, client_isn=77_000_000, server_isn=88_000_000), "server")
    pair = analyze_same_traffic(one, two)
    assert (pair.is_one, pair.connections, pair.matched, pair.only_in) == (False, 0, 0, (19, 19))
    _, out, _ = run("analyze", "--same-traffic", one, two)
    assert "no connection is in both, by sequence numbers" in " ".join(out.split())


@pytest.mark.parametrize("first", [True, False])
def test_a_capture_without_tcp_is_named(at, run, first):
    whole, empty = at(talk(server_held), "server"), at([], "client")
    both = [empty, whole] if first else [whole, empty]
    code, out, err = run("analyze", "--same-traffic", *both)
    assert (code, out) == (2, "")
    assert err == f"nagle-lab: {empty}: no TCP connection in it; capture with the filter 'tcp', and at least -s 128\n"


def test_other_traffic_is_refused(at):
    one = at(talk(server_held), "server")
    two = at(talk(nodelay, client=("10.9.9.9", 1)), "client")
    with pytest.raises(NagleLabError, match="no connection in common"):
        analyze_same_traffic(one, two)


# ----------------------------------------------------------------------------------------------- how it is said


def test_as_json_it_is_one_line(at):
    conversation = talk(server_held, rtt_ns=20 * MS)
    pair = analyze_same_traffic(at(conversation, "client"), at(conversation, "server"))
    text = pair.to_json()
    assert text.endswith("\n") and text.count("\n") == 1
    said = json.loads(text)
    assert (said["schema"], said["files"], said["matched"]) == (
        "nagle-lab-pair/1",
        ["client.pcap", "server.pcap"],
        19,
    )
    assert (said["verdict"], said["verdicts"], said["nearer"]) == ("STALL", ["STALL", "STALL"], "server.pcap")
    assert said["hold_ms"]["p50"] == pair.hold_ms.p50
    assert list(said["ack_delay_ms"]) == ["p50", "p95", "p99", "max"]
    nothing = analyze_same_traffic(at(talk(nodelay), "server"), at(talk(nodelay), "client"))
    assert (nothing.matched, nothing.hold_ms, nothing.ack_delay_ms, nothing.path_ms) == (0, None, None, None)


def test_a_clean_pair_says_which_part_of_the_reply_is_the_path(at, run):
    conversation = talk(thinks_then_one_write, rtt_ns=20 * MS)
    server, client = (at(conversation, position) for position in ("server", "client"))
    pair = analyze_same_traffic(server, client)
    at_server, at_client = (result.summary.request_to_response_ms for result in pair.results)
    assert at_server and at_client
    assert 20 <= at_client.p50 - at_server.p50 <= 20.1
    _, out, _ = run("analyze", "--same-traffic", client, server)
    words = " ".join(out.split())
    assert "in both 1 connection, no stall" in words
    assert "below is what server.pcap shows" in words
    assert f"p50 {at_server.p50:.2f} ms after the request in server.pcap" in words
    assert "the path between them takes 20.0" in words


def test_there_is_one_screen_and_one_answer(at, run):
    conversation = talk(on_a_path_that_varies(server_held), rtt_ns=20 * MS)
    both = [at(conversation, "client"), at(conversation, "server")]
    code, out, _ = run("analyze", "--same-traffic", *both)
    assert code == 0
    assert out.count("STALL ") == 1 and "client.pcap and server.pcap" in out
    assert "both captures; below is what server.pcap shows" in out
    assert "frames of server.pcap" in out
    code, _, err = run("analyze", "--same-traffic", "--expect", "clean", *both)
    assert (code, err.count("expected CLEAN, found STALL")) == (1, 1)
    code, out, _ = run("analyze", "--same-traffic", "--json", *both)
    assert [json.loads(line)["schema"] for line in out.splitlines()] == [
        "nagle-lab-pair/1",
        "nagle-lab/1",
        "nagle-lab/1",
    ]


def test_two_that_disagree_say_so(at, run):
    """One of them ends in the middle of a record, and so nothing in it can be called clean; the other one is."""
    conversation = talk(nodelay, rtt_ns=20 * MS)
    server, client = at(conversation, "server"), at(conversation, "client")
    client.write_bytes(client.read_bytes()[:-10])
    code, out, _ = run("analyze", "--same-traffic", client, server)
    words = " ".join(out.split())
    assert code == 2
    assert "the other server.pcap shows CLEAN: 20 answered exchanges" in words


def test_the_files_of_a_pair_are_told_apart_on_the_screen(run, tmp_path):
    content = pcap_bytes(talk(nodelay).segments)
    for end in ("one", "two"):
        (tmp_path / end).mkdir()
        (tmp_path / end / "c.pcap").write_bytes(content)
    _, out, _ = run("analyze", "--same-traffic", tmp_path / "one" / "c.pcap", tmp_path / "two" / "c.pcap")
    assert "one/c.pcap and two/c.pcap" in out


@pytest.mark.parametrize("name", ["w2-credit-veth", "fifteenth-radio-both", "d10-ticks-47-30"])
def test_columns_of_many_rows_say_the_same(name, monkeypatch):
    """As lists of a few, and as arrays."""
    ends = [HELD_OUT / f"{name}.{end}.pcap.gz" for end in ("client", "server")]
    as_lists = [result.to_json() for result in analyze_same_traffic(*ends).results]
    monkeypatch.setattr(columns, "LARGE", 1)
    assert [result.to_json() for result in analyze_same_traffic(*ends).results] == as_lists


def test_files_have_the_one_answer(at, run, tmp_path):
    """The pair is a test case, a page and a section of the report; tables name the file that their frames are of."""
    conversation = talk(on_a_path_that_varies(server_held), rtt_ns=20 * MS)
    both = [at(conversation, "client"), at(conversation, "server")]
    files = {name: tmp_path / f"out.{name}" for name in ("junit", "markdown", "html", "csv")}
    options = [word for name, file in files.items() for word in (f"--{name}", file)]
    assert run("analyze", "--same-traffic", "--json", *options, *both)[0] == 0
    junit, markdown, html, csv = (file.read_text() for file in files.values())
    assert junit.count("<testcase") == 1 and 'name="client.pcap and server.pcap"' in junit
    assert markdown.count("### ") == 1 and "client.pcap and server.pcap" in markdown
    assert "| judged by | both captures; below is what server.pcap shows |" in markdown
    assert "client.pcap and server.pcap" in html
    assert csv.splitlines()[1].startswith("server.pcap,") and len(csv.splitlines()) == 20
