"""Every segment of the recorded programs: was it held behind a delayed ACK, by the sending socket's timestamps?"""

import pytest

from nagle_lab.diagnosis.analysis import analyze
from support.truth import MS, Labelled, Score, holds, lookalikes, score

LOOKALIKES = lookalikes()
AT_THE_SENDER = [capture for capture in LOOKALIKES if capture.where == "at the sender"]
ELSEWHERE = ("in the middle", "at the receiver")
TIMING = 0.25 * MS  # between two clock readings that belong together, on a busy machine


def test_segments_were_held_exactly_in_the_captures_labelled_so():
    found = {capture.name: holds(capture) for capture in LOOKALIKES}
    assert {name for name, each in found.items() if any(each.values())} == {
        capture.name for capture in LOOKALIKES if capture.verdict == "STALL"
    }
    # At least a request and an answer each.
    assert [one.name for one in LOOKALIKES if len(found[one.name]) < 2 * one.exchanges] == []


@pytest.mark.parametrize("capture", AT_THE_SENDER, ids=lambda c: c.name)
def test_at_the_sender_every_segment_is_judged_right_and_the_wait_is_an_upper_bound_of_the_hold(capture: Labelled):
    judged = score(capture, analyze(capture.path))
    assert judged.frames == []
    assert (judged.precision, judged.recall) == (1, 1)
    assert all(error > -TIMING for error in judged.errors)


@pytest.mark.parametrize("place", ELSEWHERE)
def test_elsewhere_a_pause_that_ends_within_the_noise_of_the_path_is_all_that_is_judged_wrong(place: str):
    """Away from the sender releases come with the path's jitter; so do pauses that end just after the ACK."""
    judged = sum((score(c, analyze(c.path)) for c in LOOKALIKES if c.where == place), Score())
    assert judged.precision >= 0.98
    assert judged.recall >= 0.99
