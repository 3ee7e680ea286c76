"""A verdict on some connections of a capture: by the same rule as that on all of them."""

from dataclasses import replace

import pytest

from nagle_lab.diagnosis.analysis import analyze
from nagle_lab.diagnosis.result.part import Part
from nagle_lab.diagnosis.result.result import Result
from support.repository import CAPTURES
from support.stories import nodelay, server_held, talk
from support.synthetic import merge

OF_EACH_KIND = sorted(CAPTURES.glob("lookalikes/*.pcap*"))[::9] + sorted(CAPTURES.glob("held-out/*.pcap*"))[::25]


def part_of(result: Result, port: int = 0) -> Part:
    part = Part()
    for connection in result.connections:
        if port in (0, connection.server.port):
            part.add(connection)
    return part


@pytest.mark.parametrize("path", OF_EACH_KIND, ids=lambda path: path.name)
def test_what_a_part_adds_up_gives_the_verdict_of_the_whole(path):
    result = analyze(path, sha256=False)
    part = part_of(result)
    rejected = result.quality.rejected
    assert part.late_without_stall == sum(rejected.values()) - rejected["not_late"]
    assert part.decide(result) == (result.verdict, result.reason, result.undecided)
    one_less = replace(part, count=part.count - 1)  # so that the rule is asked, not the result
    assert one_less.decide(result).verdict == result.verdict


def test_a_part_without_the_stalls_is_clean(diagnose):
    stalled, fixed = talk(server_held), talk(nodelay, client=("10.0.0.9", 50000), server=("10.0.0.3", 81))
    result = diagnose(merge(stalled.segments, fixed.segments))
    assert [part_of(result, port).decide(result).verdict for port in (80, 81)] == ["STALL", "CLEAN"]
