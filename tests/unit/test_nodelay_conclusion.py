"""What is concluded from two recordings, before TCP_NODELAY was set and after."""

from dataclasses import replace
from functools import cache

import msgspec
import pytest

from nagle_lab.diagnosis.analysis import analyze
from nagle_lab.diagnosis.result.could_stall import stricter_for_own_software
from nagle_lab.diagnosis.result.result import Result
from nagle_lab.diagnosis.result.verdict import Verdict
from nagle_lab.errors import Exit
from nagle_lab.experiments.nodelay import ProgramConnections, ProgramRecording, beside, conclude, conclude_back
from nagle_lab.experiments.software.guarded import Selection
from nagle_lab.reports.experiments.nodelay import in_a_line
from support.repository import REFERENCE


@cache
def recorded(variant: str) -> Result:
    return analyze(REFERENCE / f"nginx-static-{variant}" / "server.pcap")


def watched(variant: str, name: str = "after", **changed) -> ProgramRecording:
    result = msgspec.structs.replace(recorded(variant), **changed)
    return ProgramRecording(name, result, list(result.connections), "on for 0 of 3 sockets")


def in_the_middle(variant: str) -> ProgramRecording:
    """As if recorded without handshakes: bodies are no longer surely small, and no second write is seen."""
    one = watched(variant)
    judged = [
        msgspec.structs.replace(
            each,
            second_writes=0,
            handshake=False,
            sent={role: msgspec.structs.replace(sent, not_held=0) for role, sent in each.sent.items()},
        )
        for each in one.judged
    ]
    return replace(one, result=stricter_for_own_software(one.result, judged, ""), judged=judged)


STALLED, CLEAN = "nodelay-off", "nodelay-on"


@pytest.mark.parametrize(
    ("before", "after", "code", "says"),
    [
        (
            watched(STALLED, "before"),
            watched(CLEAN),
            Exit.OK,
            "the stall is gone: 96 of 100 exchanges stalled before",
        ),
        (watched(STALLED, "before"), watched(STALLED), Exit.CONTRADICTED, "the stall stays: the server (172."),
        (watched(CLEAN, "before"), watched(CLEAN), Exit.INCONCLUSIVE, "there was no stall to remove"),
        (
            watched(STALLED, "before"),
            watched(CLEAN, verdict=Verdict.INCONCLUSIVE, reason="too little"),
            Exit.INCONCLUSIVE,
            "whether the stall is gone cannot be told: too little",
        ),
        (
            watched(STALLED, "before"),
            watched(CLEAN, verdict=Verdict.INVALID, reason="lost"),
            Exit.UNUSABLE,
            "what was recorded after is unusable: lost",
        ),
    ],
)
def test_the_exit_code_follows_from_both(before, after, code, says):
    conclusion = conclude(before, after)
    assert conclusion.code is code
    assert conclusion.sentence.startswith(says)
    assert conclude_back(before, after).code is Exit.OK


def test_an_unseen_second_write_is_known_from_the_stall_beside_it():
    """Without a handshake only what is below 536 bytes is surely small; the stall proves a second write."""
    before, after = watched(STALLED, "before"), in_the_middle(CLEAN)
    assert after.result.verdict is Verdict.INCONCLUSIVE
    assert "each reply left in one write" in after.result.reason
    assert beside(after, before).result.verdict is Verdict.CLEAN
    assert beside(before, after) is before


def test_but_not_where_the_program_sends_fewer_segments_now():
    """Then it may write once."""
    before, after = watched(STALLED, "before"), in_the_middle(CLEAN)
    halves = [
        msgspec.structs.replace(
            each,
            sent={r: msgspec.structs.replace(sent, segments=sent.segments // 2) for r, sent in each.sent.items()},
        )
        for each in after.judged
    ]
    after = replace(after, judged=halves)
    assert beside(after, before) is after


def more_segments(one: ProgramRecording, each_exchange: int, fewer: float = 0.0) -> ProgramRecording:
    """The same with so many more segments of the server for each exchange, and some fewer of all."""
    judged = []
    for each in one.judged:
        sent = each.sent["server"]
        segments = sent.segments + round((each_exchange - fewer) * each.exchanges)
        sent = {**each.sent, "server": msgspec.structs.replace(sent, segments=segments)}
        judged.append(msgspec.structs.replace(each, sent=sent))
    return replace(one, judged=judged)


@pytest.mark.parametrize("more", [0, 4, 40])
def test_one_write_fewer_is_noticed_however_many_segments_there_are(more):
    """A second write that is gone is one segment of two, or of forty-two."""
    before, after = more_segments(watched(STALLED, "before"), more), more_segments(in_the_middle(CLEAN), more)
    assert beside(after, before).result.verdict is Verdict.CLEAN
    joined = more_segments(in_the_middle(CLEAN), more, fewer=1)
    assert beside(joined, before) is joined


def test_nor_beside_what_did_not_stall():
    after = in_the_middle(CLEAN)
    assert beside(after, watched(CLEAN)) is after


def test_what_is_clean_is_not_counted_twice():
    sentence = conclude_back(watched(STALLED, "before"), watched(CLEAN)).sentence
    assert sentence == "taken back: 96 of 100 exchanges stalled before, none of 100 after"


def test_what_was_recorded_in_a_line():
    assert in_a_line(watched(STALLED, "before")) == "before: STALL, 96 of 100 exchanges stalled"
    assert in_a_line(watched(CLEAN)).startswith("after: CLEAN, 100 ")


def test_the_connections_of_a_program():
    one = ProgramConnections(listening=frozenset({("", 80), ("10.0.0.1", 81)}), open=frozenset({("10.0.0.1", 50000)}))
    other = ("10.0.0.9", 40000)
    assert one.wants(other, ("10.0.0.1", 80)) and one.wants(other, ("10.0.0.1", 81))
    assert one.wants(("10.0.0.1", 50000), ("10.0.0.9", 443))
    assert not one.wants(other, ("10.0.0.2", 81)) and not one.wants(other, ("10.0.0.1", 443))
    assert one != Selection()


def test_other_programs_connections_are_not_what_differs():
    """What was recorded beside the program's own has other ports, and a packet more for each exchange."""
    alone = watched(STALLED)
    other = msgspec.structs.replace(
        alone.judged[0], id=99, server=msgspec.structs.replace(alone.judged[0].server, port=8000), exchanges=1
    )
    beside_others = replace(
        alone, result=msgspec.structs.replace(alone.result, connections=[*alone.result.connections, other])
    )
    was, now = alone.subject, beside_others.subject
    assert now.figures == was.figures
    assert {**now.facts["capture"], "captured near": "both"} == was.facts["capture"]
