"""Nothing of one's own is CLEAN that could not have been a STALL."""

import msgspec
import pytest

from nagle_lab.cli.pytest_plugin.expected import ExpectedOfTest
from nagle_lab.diagnosis.proof.outcomes import Obstacle
from nagle_lab.diagnosis.result.could_stall import Missing, stricter_for_own_software, what_is_missing
from nagle_lab.diagnosis.result.idle_gaps import Cause
from nagle_lab.diagnosis.result.verdict import Verdict
from nagle_lab.experiments.software import guarded
from nagle_lab.experiments.software.guarded import Guarded, JudgedCommand, Protection, Selection, guard
from nagle_lab.guard.recording.job import Outcome
from nagle_lab.reports.screens.guard import about_guarded
from support.stories import (
    BODY,
    HEADER,
    REQUEST,
    Story,
    full_segment_first,
    nodelay,
    pauses_a_little_longer_than_the_timer,
    prompt,
    server_held,
    talk,
    thinks_then_one_write,
)
from support.synthetic import MS, SECOND, US, Conversation, Segment, merge, pcap_bytes


def slow_one_write(c: Conversation, _: int) -> None:
    """The server takes 3 ms; its answer carries the ACK, and the next request follows at once."""
    c.client_sends(REQUEST)
    c.server_sends(HEADER + BODY, after_ns=3 * MS)


def corked_reply(c: Conversation, number: int) -> None:
    """The reply leaves as one segment when TCP_CORK's timer fires, however many writes it was."""
    c.client_sends(REQUEST)
    c.server_acks(after_ns=10 * US)
    c.server_sends(HEADER + BODY, after_ns=(202 + number % 5) * MS)
    c.client_acks(after_ns=10 * US)


def tail_of_full_segments(after: int) -> Story:
    """The last part of a reply follows the ACK of its full segments; Linux would not have held it behind these."""

    def exchange(c: Conversation, _: int) -> None:
        c.client_sends(REQUEST)
        for _full in range(2):
            c.server_sends(c.full_segment, flags="A", after_ns=10 * US)
        c.client_acks(after_ns=10 * US)
        c.server_sends(BODY, after_ns=after)
        c.client_acks(after_ns=10 * US)

    return exchange


@pytest.mark.parametrize(
    ("story", "exchanges", "missing"),
    [
        (tail_of_full_segments(after=5 * US), 20, Missing.SECOND_WRITE),
        (tail_of_full_segments(after=3 * MS), 20, Missing.SECOND_WRITE),
        (nodelay, 20, None),
        (pauses_a_little_longer_than_the_timer, 20, None),
        (prompt, 20, None),  # the second write is held for microseconds
        (thinks_then_one_write, 20, Missing.SECOND_WRITE),
        (slow_one_write, 20, Missing.SECOND_WRITE),
        (full_segment_first, 20, Missing.SECOND_WRITE),
        (corked_reply, 20, Missing.UNCORKED_WRITE),
        (nodelay, 5, Missing.EXCHANGES),
        (nodelay, 1, Missing.SECOND_EXCHANGE),
    ],
)
def test_what_a_run_without_a_stall_lacks(diagnose, story, exchanges, missing):
    result = diagnose(talk(story, exchanges, first=story).segments)
    assert what_is_missing(result, result.connections) is missing
    own = stricter_for_own_software(result, result.connections, "")
    assert (own.verdict is Verdict.CLEAN) is (missing is None)
    assert own.verdict in (Verdict.CLEAN, Verdict.INCONCLUSIVE)


def refused(number: int) -> list[Segment]:
    """A SYN that a port answers with RST, because nobody listens there."""
    c = Conversation(client=("10.0.0.7", 50_000 + number))
    c.handshake()
    syn = c.segments[0]
    rst = Segment(syn.ts_ns + 5 * US, syn.dst, syn.dport, syn.src, syn.sport, seq=0, ack=syn.seq + 1, flags="RA")
    return [syn, rst]


def test_where_nobody_listened_nothing_could_stall(diagnose, run, tmp_path):
    result = diagnose(merge(*map(refused, range(12))))
    assert result.quality.refused == 12
    assert what_is_missing(result, result.connections) is Missing.LISTENER
    unanswered = [refused(number)[0] for number in range(12)]
    without_the_answer = [s for s in talk(prompt, 3).segments if s.flags != "SA"]
    assert diagnose(merge(unanswered, without_the_answer)).quality.refused == 0
    for others, said in ((10, "12 (all handshakes captured; 2 refused)"), (0, "2 (2 refused)")):
        talks = [talk(prompt, 2, client=("10.0.0.8", 50_000 + number)).segments for number in range(others)]
        path = tmp_path / "some.pcap"
        path.write_bytes(pcap_bytes(merge(*talks, refused(0), refused(1))))
        assert f"connections   {said}" in run("analyze", path).out


def test_what_tcp_cork_may_have_joined_is_not_said_to_be_one_write(diagnose):
    result = diagnose(talk(corked_reply, first=corked_reply).segments)
    reason = stricter_for_own_software(result, result.connections, "").reason
    assert reason.startswith("in all 20 exchanges each request and each reply left as one segment, but perhaps of ")
    assert "20 idle gaps, 204 ms each, are probably TCP_CORK" in reason


@pytest.mark.parametrize("missing", list(Missing))
def test_one_write_of_a_marker_allows_only_replies_that_left_in_one_segment(diagnose, missing):
    """A program that takes 200 ms for a reply looks as if it set TCP_CORK, and its test must not fail for that."""
    result = diagnose(talk(corked_reply, first=corked_reply).segments)
    one_write = ExpectedOfTest("clean", one_write=True, selection=Selection(), marked=True)
    complaint = one_write.complaint(Verdict.INCONCLUSIVE, "why", result, missing)
    allowed = (Missing.SECOND_WRITE, Missing.UNCORKED_WRITE)
    assert complaint == ("" if missing in allowed else "expected CLEAN, found INCONCLUSIVE: why")


@pytest.mark.parametrize(("by_server", "missing"), [(True, Missing.SECOND_WRITE), (False, Missing.UNCORKED_WRITE)])
def test_tcp_cork_is_only_named_where_it_takes_most_of_the_time_but_the_client_s_own(diagnose, by_server, missing):
    """Each reply of another connection, or each request there, comes a second late."""

    def slow(c: Conversation, _: int) -> None:
        c.client_sends(REQUEST, after_ns=SECOND * (not by_server))
        c.server_acks(after_ns=10 * US)
        c.server_sends(HEADER + BODY, after_ns=SECOND * by_server + 20 * US)
        c.client_acks(after_ns=10 * US)

    corked = talk(corked_reply, first=corked_reply)
    result = diagnose(merge(corked.segments, talk(slow, first=slow, client=("10.0.0.7", 50_000)).segments))
    assert what_is_missing(result, result.connections) is missing


def test_a_candidate_left_open_makes_no_clean_of_too_few_exchanges(diagnose):
    """Late ACKs enough that a capture of them is CLEAN; of one's own software more is asked."""
    result = diagnose(talk(nodelay, 5, first=nodelay).segments).concluded(Verdict.CLEAN, "")
    quality = msgspec.structs.replace(result.quality, unresolved={Obstacle.PATH_VARIES: 1})
    own = stricter_for_own_software(msgspec.structs.replace(result, quality=quality), result.connections, "")
    assert (own.verdict, own.reason[:11]) == (Verdict.INCONCLUSIVE, "5 exchanges")


@pytest.mark.parametrize(
    ("connections", "missing"), [(1, None), (20, Missing.SECOND_EXCHANGE)], ids=["one connection", "many"]
)
def test_a_stream_without_answers_could_have_stalled_on_one_connection(diagnose, connections, missing):
    """On each of many the first few ACKs are quick."""
    seen = []
    for number in range(connections):
        c = Conversation(client=("10.0.0.7", 50_000 + number))
        c.handshake()
        for _ in range(60 // connections + 1):
            c.server_sends(60, after_ns=7 * MS)
            c.client_acks(after_ns=30 * US)
        seen.append(c.segments)
    result = diagnose(merge(*seen))
    assert what_is_missing(result, result.connections) is missing
    assert (stricter_for_own_software(result, result.connections, "").verdict is Verdict.CLEAN) is (missing is None)


def test_many_connections_of_one_exchange_could_not_have_stalled(diagnose):
    connections = [talk(nodelay, 1, client=("10.0.0.7", 50_000 + i)).segments for i in range(20)]
    result = diagnose(merge(*connections))
    assert what_is_missing(result, result.connections) is Missing.SECOND_EXCHANGE


def test_loss_is_invalid_and_takes_no_stall_back(diagnose):
    clean = diagnose(talk(nodelay).segments)
    lost = stricter_for_own_software(clean, clean.connections, "7 segments were lost")
    assert (lost.verdict, lost.reason) == (Verdict.INVALID, "7 segments were lost")
    stalled = diagnose(talk(server_held).segments)
    assert stricter_for_own_software(stalled, stalled.connections, "7 segments were lost").verdict is Verdict.STALL


def test_nothing_recorded_is_no_verdict(diagnose):
    result = diagnose(talk(nodelay).segments)
    empty = msgspec.structs.replace(result, source=msgspec.structs.replace(result.source, tcp_packets=0))
    assert stricter_for_own_software(empty, [], "").verdict is Verdict.INCONCLUSIVE
    assert stricter_for_own_software(empty, [], "the kernel sent 9 segments").verdict is Verdict.INVALID


def test_unwanted_connections_are_not_judged_and_still_tell_of_their_ends(diagnose):
    """A stall on one of two connections; only the other is wanted."""
    stalls = talk(server_held, client=("10.0.0.7", 50_001), server=("10.0.0.2", 81)).segments
    clean = talk(nodelay, client=("10.0.0.7", 50_002), t0_ns=1_700_000_000 * SECOND + 5 * US).segments
    whole = diagnose(merge(stalls, clean))
    assert whole.verdict is Verdict.STALL
    for port, verdict, count in ((50_001, Verdict.STALL, 19), (50_002, Verdict.CLEAN, 0)):
        part = diagnose(merge(stalls, clean), only=lambda client, _, port=port: client[1] == port)
        assert (part.verdict, part.summary.stalls, len(part.stalls)) == (verdict, count, count)
        assert part.summary.exchanges == 20
        assert part.quality.handshakes == whole.quality.handshakes == 2
        assert part.summary.exchange_ms is None and part.histograms["exchange_ms"].count == 0
        assert part.summary.connections == 2


def test_what_a_filter_left_out_shows_no_idle_time_and_is_why_there_is_no_verdict(diagnose):
    stalls = talk(server_held, client=("10.0.0.7", 50_001)).segments
    both = merge(stalls, talk(nodelay, client=("10.0.0.7", 50_002)).segments)
    part = diagnose(both, only=lambda client, _: client[1] == 50_002)
    assert part.verdict is Verdict.CLEAN and Cause.DELAYED_ACK not in part.idle_gaps
    none = diagnose(both, only=lambda *_: False)
    assert none.verdict is Verdict.INCONCLUSIVE and none.reason.startswith("the filter left out all 2 connections: ")
    assert (none.idle_gaps, none.quality.handshakes) == ({}, 2)
    one = diagnose(stalls, only=lambda *_: False)
    assert one.reason.startswith("the filter left out the only connection: ")


@pytest.mark.parametrize(
    ("first", "second", "protection"),
    [
        (prompt, prompt, Protection.NOT_THE_OPTION),
        (slow_one_write, prompt, Protection.NOT_THE_OPTION),  # its two writes left as one segment by chance
        (prompt, slow_one_write, Protection.UNKNOWN),
        (slow_one_write, slow_one_write, Protection.ONE_WRITE),
        (nodelay, server_held, Protection.OPTION),
        (prompt, server_held, Protection.UNKNOWN),  # it has no TCP_NODELAY, and stalls now and then
    ],
)
def test_what_protects_a_command_by_what_was_seen_in_either_run(monkeypatch, tmp_path, first, second, protection):
    """On a busy machine the second write, or a stall, is seen in one run only, now and then."""

    def run(_command, folder, *, without_nodelay=False, **_):
        story = second if without_nodelay else first
        (folder / "capture.pcapng").write_bytes(pcap_bytes(talk(story, first=story).segments))
        return Guarded(folder, "a namespace", Outcome(status=0))

    monkeypatch.setattr(guarded, "run", run)
    judged = guard(["program"], tmp_path, Selection(), both_sides=True)
    assert judged.both_sides and judged.both_sides.protection is protection
    assert judged.result.verdict is Verdict.CLEAN
    says = "could have stalled" in judged.result.reason
    assert says is ((first, second) == (prompt, slow_one_write)), judged.result.reason


@pytest.mark.parametrize(
    ("rest", "says"),
    [
        (slow_one_write, "1 second write: Nagle's algorithm had nothing else to hold; ten would say more"),
        (nodelay, None),
    ],
)
def test_a_clean_that_rests_on_few_second_writes_says_so(diagnose, tmp_path, rest, says):
    result = diagnose(talk(rest, first=nodelay).segments)
    assert result.verdict is Verdict.CLEAN
    run = JudgedCommand(Guarded(tmp_path, "a namespace", Outcome(status=0), ["program"]), result)
    assert dict(about_guarded(run)).get("rests on") == says
