"""The recorded look-alikes: every capture, from every position, gets the verdict that is true of it."""

from functools import cache
from pathlib import Path

import pytest

from nagle_lab.diagnosis.analysis import analyze
from nagle_lab.diagnosis.result.result import Result
from support.truth import Labelled, lookalikes, references

LOOKALIKES = lookalikes()
IDLE = [c for c in LOOKALIKES if c.idle_gap and c.where == "at the sender"]
OTHER_END = {"server": "client", "client": "server", None: None}


@cache
def diagnosed(path: Path) -> Result:
    """Several tests look at it."""
    return analyze(path)


def test_stalls_and_look_alikes_are_here_from_every_position():
    seen = {(capture.verdict, capture.position) for capture in LOOKALIKES}
    assert seen == {(verdict, end) for verdict in ("STALL", "CLEAN") for end in ("server", "client", "middle")}
    assert len({capture.path.parent for capture in LOOKALIKES}) >= 30


@pytest.mark.parametrize("capture", LOOKALIKES + references(), ids=lambda c: c.name)
def test_the_verdict_is_the_true_one(capture: Labelled):
    result = diagnosed(capture.path)
    assert result.verdict == capture.verdict
    assert result.summary.held_by == capture.held_by
    assert result.summary.delayed_by == OTHER_END[capture.held_by]
    assert bool(result.stalls) == (capture.verdict == "STALL")


def test_every_exchange_is_found_in_a_whole_file():
    found = {capture.name: diagnosed(capture.path) for capture in LOOKALIKES}
    assert {name: result.summary.exchanges for name, result in found.items()} == {
        capture.name: capture.exchanges for capture in LOOKALIKES
    }
    assert {name for name, result in found.items() if result.quality.damage or result.quality.not_decoded} == set()


@pytest.mark.parametrize("capture", IDLE, ids=lambda c: c.name)
def test_silences_have_their_true_cause(capture: Labelled):
    idle_gaps = diagnosed(capture.path).idle_gaps
    assert capture.idle_gap in idle_gaps
    assert idle_gaps[capture.idle_gap].count >= 0.4 * capture.exchanges


FAR = [capture for capture in LOOKALIKES if "rtt-20" in str(capture.path)]


@pytest.mark.parametrize("capture", FAR, ids=lambda c: c.name)
def test_where_it_was_captured_is_inferred(capture: Labelled):
    """From the handshake and the ends' shortest reactions, on a path of 20 ms."""
    summary = diagnosed(capture.path).summary
    assert summary.captured_near == ("neither" if capture.position == "middle" else capture.position)
    assert sum(ms or 0 for ms in summary.round_trip_us.values()) == pytest.approx(20_500, rel=0.1)


@pytest.mark.parametrize("capture", [c for c in FAR if c.verdict == "STALL"], ids=lambda c: c.name)
def test_the_delayed_ack_timer_is_measured_from_everywhere(capture: Labelled):
    """Linux: 40 ms and up to one jiffy (4 ms) more, wherever the wait was 20 ms longer."""
    timer = diagnosed(capture.path).summary.ack_timer_ms
    assert timer is not None and 39.5 < timer < 46
