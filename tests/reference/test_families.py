"""The recorded families, what is made of them, and other TCP stacks: truth, and verdicts.

Their truth agrees with the log of their writes; every verdict is right or honestly unsure, but for known limits.
"""

import json
from collections import Counter
from functools import cache
from itertools import pairwise
from pathlib import Path
from statistics import median

import pytest

from nagle_lab.diagnosis.analysis import analyze, analyze_same_traffic
from nagle_lab.diagnosis.observed import columns as column_tools
from nagle_lab.diagnosis.result.result import Result
from recorder.holds import MS
from support.synthetic import US, Frame, checksum
from support.transforms import BASES, PORT, TRANSFORMS, read, transformed
from support.truth import (
    KNOWN_LIMITS,
    Judgement,
    Labelled,
    both_ends,
    families,
    holds,
    lookalikes,
    references,
    stacks,
)

FAMILIES = families()
BY_NAME = {transform.name: transform.change for transform in TRANSFORMS}
HELD = 4 * MS


@cache
def diagnosed(path: Path) -> Result:
    """The result of a recorded capture: several tests look at it."""
    return analyze(path)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> list[Labelled]:
    """What is made of the captures."""
    return list(transformed(FAMILIES + stacks(), tmp_path_factory.mktemp("made")))


@pytest.fixture(scope="module")
def frames() -> list[Frame]:
    return read(next(capture.path for capture in FAMILIES if capture.name == "two-writes/server"))


def test_all_families_are_here_from_every_position():
    assert {capture.family for capture in FAMILIES} == {
        "two-writes", "chain", "waiting", "not-nagle", "pause", "queue", "complicated", "duplex", "path", "copies",
        "plain",
    }  # fmt: skip
    seen = {(capture.verdict, capture.position) for capture in FAMILIES}
    assert seen >= {
        (verdict, end) for verdict in ("STALL", "CLEAN") for end in ("server", "client", "middle", "both")
    }


@pytest.mark.parametrize("capture", FAMILIES, ids=lambda capture: capture.name)
def test_the_log_of_the_writes_agrees(capture: Labelled):
    truth = json.loads((capture.path.parent / "truth.json").read_text())["captures"][capture.position]
    held = [hold for hold in holds(capture).values() if hold]
    assert sum(hold >= HELD for hold in held) == truth["stalls"]
    assert sum(hold < HELD for hold in held) == truth["held_for_less"]
    assert (truth["verdict"] == "STALL") == (truth["stalls"] >= 3)


def judged_as(capture: Labelled) -> tuple[Judgement, str]:
    """What the verdict on a capture is worth, and the verdict."""
    result = diagnosed(capture.path)
    said = f"{result.verdict}, held by {result.summary.held_by}, {result.summary.stalls} stalls: {result.reason}"
    return capture.judge(result), said


@pytest.mark.parametrize("capture", FAMILIES + stacks(), ids=lambda capture: capture.name)
def test_the_verdict_is_right_or_honestly_unsure(capture: Labelled, request: pytest.FixtureRequest):
    if capture.name in KNOWN_LIMITS:
        request.applymarker(pytest.mark.xfail(reason=KNOWN_LIMITS[capture.name], strict=True))
    judgement, said = judged_as(capture)
    assert judgement is not Judgement.WRONG, said


def test_both_ends_together_are_never_wrong():
    """Nor undecided but where a program waits for the ACK itself, or the congestion window is one segment."""
    worth: Counter[Judgement] = Counter()
    for ends in both_ends(FAMILIES):
        results = analyze_same_traffic(*(capture.path for capture in ends)).results
        worth.update(capture.judge(result) for capture, result in zip(ends, results, strict=True))
    assert worth == {Judgement.RIGHT: 228, Judgement.UNSURE: 30}


def test_no_cause_has_less_than_no_idle_gap():
    """Of the idle gap before a stall another cause was counted first: that one is taken back, whatever ended it."""
    idle_gaps = [(one.name, cause, gap) for one in FAMILIES for cause, gap in diagnosed(one.path).idle_gaps.items()]
    assert idle_gaps
    assert [each for each in idle_gaps if each[-1].count < 1 or each[-1].total_ms < 20] == []


def test_the_true_hold_lies_between_the_bounds():
    """The median of what one end held, by its sockets' timestamps, to half a millisecond; from every position."""
    judged, outside = 0, []
    for capture in FAMILIES:
        summary = diagnosed(capture.path).summary
        if capture.held_by not in ("client", "server") or summary.held_by != capture.held_by or not capture.stalls:
            continue
        true = median(hold for hold in holds(capture).values() if hold >= HELD) / MS
        judged += 1
        if not summary.hold_ms.low - 0.5 <= true <= summary.hold_ms.high + 0.5:
            outside.append(f"{capture.name}: {true:.1f} ms, said {summary.hold_ms}")
    assert (judged >= 60, outside) == (True, [])


def test_what_capturing_does_to_captures_misleads_no_more(made: list[Labelled]):
    """Coarse stamps, losses, copies, a missing handshake: only the known limits are wrong, and they are."""
    wrong = {capture.name for capture in made if judged_as(capture)[0] is Judgement.WRONG}
    assert wrong == {capture.name for capture in made} & KNOWN_LIMITS.keys()


def test_there_are_enough_captures_to_judge(made: list[Labelled]):
    captures = [*references(), *lookalikes(), *FAMILIES, *made]
    assert len(captures) == 808
    assert len({(capture.family, capture.name) for capture in captures}) == len(captures)
    assert KNOWN_LIMITS.keys() <= {capture.name for capture in captures}


def test_coarse_stamps(frames: list[Frame]):
    coarse = BY_NAME["stamps-1ms"](frames)
    assert {frame.ts_ns % MS for frame in coarse} == {0}
    assert [frame.data for frame in coarse] == [frame.data for frame in frames]


def test_a_clock_that_is_behind_puts_answers_first(frames: list[Frame]):
    behind = BY_NAME["clock-behind-3ms"](frames)
    assert all(earlier.ts_ns <= later.ts_ns for earlier, later in pairwise(behind))
    assert behind[0].data == frames[1].data


def test_stamps_that_are_late_stay_in_order(frames: list[Frame]):
    late = BY_NAME["stamps-late"](frames)
    assert all(earlier.ts_ns < later.ts_ns for earlier, later in pairwise(late))
    assert [frame.data for frame in late] == [frame.data for frame in frames] and late != frames
    assert sum(one.ts_ns - other.ts_ns for one, other in zip(late, frames, strict=True)) > 20 * US * len(frames)


def test_short_packets_keep_their_length_on_the_wire(frames: list[Frame]):
    cut = BY_NAME["cut-to-64"](frames)
    assert {len(frame.data) for frame in cut} == {64}
    assert [frame.original_length for frame in cut] == [frame.original_length for frame in frames]


def test_parts_of_a_capture(frames: list[Frame]):
    assert len(BY_NAME["server-only"](frames)) + len(BY_NAME["client-only"](frames)) == len(frames)
    assert BY_NAME["without-syn"](frames)[0] == frames[1]
    assert len(BY_NAME["without-handshake"](frames)) == len(frames) - 2 * 4
    assert len(BY_NAME["begun-late"](frames)) == len(frames) - 6 * 4  # it has four connections
    assert 0.95 < len(BY_NAME["lost-2-percent"](frames)) / len(frames) < 1


def test_swapped_neighbours_are_the_same_packets(frames: list[Frame]):
    swapped = BY_NAME["swapped-2-percent"](frames)
    assert [frame.ts_ns for frame in swapped] == [frame.ts_ns for frame in frames]
    assert sorted(frame.data for frame in swapped) == sorted(frame.data for frame in frames)
    assert swapped != frames


def test_copies(frames: list[Frame]):
    assert len(BY_NAME["doubled"](frames)) == 2 * len(frames)
    copied = BY_NAME["doubled-by-nat"](frames)
    original, copy = copied[0], next(frame for frame in copied if frame.ts_ns == copied[0].ts_ns + 20 * US)
    assert (original.data[26:30], copy.data[26:30]) == (bytes((10, 77, 0, 1)), bytes((192, 0, 2, 7)))
    assert original.data[36:38] == PORT.to_bytes(2, "big") and copy.data[34:] == original.data[34:]
    assert checksum(copy.data[14:34]) == 0


def test_every_base_has_every_transformation(made: list[Labelled]):
    names = {capture.name for capture in made}
    assert names >= {base.replace("/", f"+{transform.name}/") for base in BASES for transform in TRANSFORMS}


@pytest.mark.parametrize("name", ["duplex-chat-rtt-10/client", "duplex-one/client", "chain-proxy-beside/both"])
def test_lists_and_arrays_give_the_same_result_to_the_byte(name: str, monkeypatch: pytest.MonkeyPatch):
    """What is judged of several programs stands in the same order, whichever comes first."""
    (capture,) = (capture for capture in FAMILIES if capture.name == name)
    result = analyze(capture.path).to_json()
    monkeypatch.setattr(column_tools, "LARGE", 1)
    assert analyze(capture.path).to_json() == result
