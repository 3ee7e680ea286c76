"""The recorded look-alikes: every capture, from every position, gets the verdict that is true of it."""

import pytest

from nagle_lab.diagnosis.analysis import analyze
from support.truth import Labelled, lookalikes, references

LOOKALIKES = lookalikes()
IDLE = [c for c in LOOKALIKES if c.idle_gap and c.where == "at the sender"]
OTHER_END = {"server": "client", "client": "server", None: None}


def test_stalls_and_look_alikes_are_here_from_every_position():
    seen = {(capture.verdict, capture.position) for capture in LOOKALIKES}
    assert seen == {(verdict, end) for verdict in ("STALL", "CLEAN") for end in ("server", "client", "middle")}
    assert len({capture.path.parent for capture in LOOKALIKES}) >= 30


@pytest.mark.parametrize("capture", LOOKALIKES + references(), ids=lambda c: c.name)
def test_the_verdict_is_the_true_one(capture: Labelled):
    result = analyze(capture.path)
    assert result.verdict == capture.verdict
    assert result.summary.held_by == capture.held_by
    assert result.summary.delayed_by == OTHER_END[capture.held_by]
    assert bool(result.stalls) == (capture.verdict == "STALL")


@pytest.mark.parametrize("capture", LOOKALIKES, ids=lambda c: c.name)
def test_every_exchange_is_found_in_a_whole_file(capture: Labelled):
    result = analyze(capture.path)
    assert result.summary.exchanges == capture.exchanges
    assert result.quality.damage == []
    assert result.quality.not_decoded == {}


@pytest.mark.parametrize("capture", IDLE, ids=lambda c: c.name)
def test_silences_have_their_true_cause(capture: Labelled):
    idle_gaps = analyze(capture.path).idle_gaps
    assert capture.idle_gap in idle_gaps
    assert idle_gaps[capture.idle_gap].count >= 0.4 * capture.exchanges


FAR = [capture for capture in LOOKALIKES if "rtt-20" in str(capture.path)]


@pytest.mark.parametrize("capture", FAR, ids=lambda c: c.name)
def test_where_it_was_captured_is_inferred(capture: Labelled):
    """From the handshake and the ends' shortest reactions, on a path of 20 ms."""
    summary = analyze(capture.path).summary
    assert summary.captured_near == ("neither" if capture.position == "middle" else capture.position)
    assert sum(ms or 0 for ms in summary.round_trip_us.values()) == pytest.approx(20_500, rel=0.1)


@pytest.mark.parametrize("capture", [c for c in FAR if c.verdict == "STALL"], ids=lambda c: c.name)
def test_the_delayed_ack_timer_is_measured_from_everywhere(capture: Labelled):
    """Linux: 40 ms and up to one jiffy (4 ms) more, wherever the wait was 20 ms longer."""
    timer = analyze(capture.path).summary.ack_timer_ms
    assert timer is not None and 39.5 < timer < 46
