"""What Nagle's algorithm, a cork or a loss cost beside stalls."""

from itertools import pairwise

import pytest

from nagle_lab.diagnosis.result.idle_gaps import Cause
from nagle_lab.reports.words.next_steps import idle_gaps
from support.stories import BODY, HEADER, LATE, REQUEST, prompt, server_held, talk, two_part_reply
from support.synthetic import MS, US, Conversation, merge


def test_what_nagle_costs_in_round_trips_is_a_finding_of_its_own(diagnose):
    result = diagnose(talk(prompt, rtt_ns=10 * MS).segments)
    assert (result.verdict, result.summary.round_trip_holds.count) == ("CLEAN", 20)
    assert result.summary.round_trip_holds.total_ms == pytest.approx(200, rel=0.05)
    assert result.connections[0].round_trip_holds_ms == result.summary.round_trip_holds.total_ms
    assert result.summary.round_trip_holds_by == {"client": 0, "server": 20}


def test_what_each_connection_lost_adds_up(diagnose):
    other = talk(server_held, exchanges=7, client=("10.0.0.7", 5)).segments
    result = diagnose(merge(talk(server_held).segments, other))
    assert result.connections[0].lost_ms > result.connections[1].lost_ms > 6 * 40
    assert sum(c.lost_ms for c in result.connections) == pytest.approx(result.summary.lost_ms_total, abs=0.01)


def test_a_stall_whose_ack_the_capture_lacks_is_no_server_processing(diagnose):
    """The capture dropped three of the late ACKs: what the server sent next echoes their timestamps."""
    segments = talk(server_held, exchanges=30).segments
    late = [ack for before, ack in pairwise(segments) if ack.ts_ns - before.ts_ns >= LATE][10:13]
    complete, result = diagnose(segments), diagnose([s for s in segments if s not in late])
    assert result.summary.grounds["timestamps"] == 3
    assert result.summary.stalls == complete.summary.stalls
    assert set(result.idle_gaps) == set(complete.idle_gaps) == {Cause.NAGLE_DELAYED_ACK}
    assert result.idle_gaps[Cause.NAGLE_DELAYED_ACK].count == result.summary.stalls


def test_a_loss_probe_that_carries_the_held_data_is_no_cork(diagnose):
    """The trigger is lost beyond the capture, so it stays unacknowledged; the probe sends the next segment."""

    def probed(c: Conversation, _: int) -> None:
        c.client_sends(REQUEST)
        c.server_sends(HEADER, after_ns=200 * US)
        c.server_sends(BODY, after_ns=204 * MS)
        c.client_acks(after_ns=10 * US)

    def corked(c: Conversation, _: int) -> None:
        two_part_reply(c, ack=10 * US, body=204 * MS)

    for story, cause in ((probed, "retransmission"), (corked, "cork")):
        counts = {name: idle_gap.count for name, idle_gap in diagnose(talk(story).segments).idle_gaps.items()}
        assert {name: count for name, count in counts.items() if count} == {cause: 19}


@pytest.mark.parametrize(("position", "rtt_ms"), [("server", 0), ("client", 0), ("server", 10), ("client", 10)])
@pytest.mark.parametrize(("body", "cause"), [(15 * US, "msg_more"), (30 * MS, "delayed_ack")])
def test_what_msg_more_keeps_until_a_late_ack_is_no_pause(diagnose, position, rtt_ms, body, cause):
    """The tail of each reply has no PSH, and leaves with the ACK; or 30 ms after it, by itself."""

    def announced(c: Conversation, number: int) -> None:
        c.client_sends(REQUEST)
        c.server_sends(HEADER, after_ns=200 * US)
        c.client_acks(after_ns=LATE + number % 5 * MS)
        c.server_sends(REQUEST, after_ns=body, flags="A")
        c.client_acks(after_ns=10 * US)

    result = diagnose(talk(announced, rtt_ns=rtt_ms * MS).seen_at(position))
    assert (result.verdict, result.idle_gaps[cause].count) == ("CLEAN", 19)
    assert ("msg_more" in result.idle_gaps) == (cause == "msg_more")
    steps = dict(idle_gaps(result))
    assert ("MSG_MORE waiting" in steps["idle gaps"], "without it" in steps["next"]) == (2 * (cause == "msg_more",))


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


@pytest.mark.parametrize(("more_late", "count"), [(1, 18), (2, None)])
def test_one_corked_reply_in_ten_may_be_later_still(diagnose, more_late, count):
    """On a busy machine."""

    def corked(c: Conversation, number: int) -> None:
        c.client_sends(REQUEST)
        c.server_acks(after_ns=10 * US)
        c.server_sends(BODY, after_ns=(300 if number <= more_late else 204) * MS)
        c.client_acks(after_ns=10 * US)

    gap = diagnose(talk(corked).segments).idle_gaps.get("likely_cork")
    assert (gap and gap.count) == count


@pytest.mark.parametrize(("window_bytes", "cause"), [(8 * 128, "window"), (9 * 128, "delayed_ack")])
def test_an_ack_of_data_that_filled_the_window_is_no_delayed_ack_that_nothing_waited_for(
    diagnose, window_bytes, cause
):
    """The client offers a window (in units of 128 bytes) as large as the first part of the reply, or larger."""

    def in_parts(c: Conversation, _: int) -> None:
        c.client_sends(REQUEST, window=window_bytes // 128)
        c.server_sends(8 * 128, after_ns=200 * US)
        c.client_acks(after_ns=41 * MS, window=window_bytes // 128)
        c.server_sends(BODY, after_ns=3 * MS)
        c.client_acks(after_ns=10 * US, window=window_bytes // 128)

    gaps = diagnose(talk(in_parts).segments).idle_gaps
    assert {name: gap.count for name, gap in gaps.items() if gap.count} == {cause: 19}


@pytest.mark.parametrize("position", ["client", "server"])
def test_what_round_trips_cost_is_the_same_wherever_it_was_captured(diagnose, position):
    result = diagnose(talk(prompt, exchanges=40, rtt_ns=20 * MS).seen_at(position))
    assert result.summary.round_trip_holds.count == 40
    assert result.summary.round_trip_holds.total_ms == pytest.approx(40 * 20, rel=0.01)
