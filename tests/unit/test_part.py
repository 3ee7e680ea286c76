"""A verdict on some connections of a capture: by the same rule as that on all of them."""

from dataclasses import replace

import pytest

from nagle_lab.diagnosis.analysis import analyze
from nagle_lab.diagnosis.result.part import Part
from nagle_lab.diagnosis.result.result import Result
from support.repository import CAPTURES
from support.stories import LATE, nodelay, reply_in_two, server_held, talk
from support.synthetic import MS, US, merge

OF_EACH_KIND = sorted(CAPTURES.glob("lookalikes/*.pcap*"))[::9] + sorted(CAPTURES.glob("held-out/*.pcap*"))[::25]


def part_of(result: Result, *ports: int) -> Part:
    """The connections to these server ports, or all."""
    part = Part()
    for connection in result.connections:
        if not ports or connection.server.port in ports:
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


def test_a_part_of_one_direction_says_so(diagnose):
    whole, half = talk(nodelay), talk(nodelay, client=("10.0.0.9", 50000), server=("10.0.0.3", 81))
    result = diagnose(merge(whole.segments, [s for s in half.segments if s.dport == 81]))
    decision = part_of(result, 81).decide(result)
    assert decision.verdict == "INCONCLUSIVE" and "one direction" in decision.reason


def test_a_connection_that_is_open_is_not_hidden_by_a_busy_one_of_its_part(diagnose):
    pauses, woken = (
        reply_in_two(LATE, lambda n: (3 + n % 9) * MS),
        reply_in_two(LATE, lambda n: (130 + n % 7 * 10) * US),
    )
    busy = talk(pauses, exchanges=600, client=("10.0.0.9", 50_000), server=("10.0.0.2", 82))
    other = talk(nodelay, client=("10.0.0.8", 50_000), server=("10.0.0.3", 80))
    result = diagnose(merge(busy.segments, talk(woken, server=("10.0.0.2", 81)).segments, other.segments))
    assert [part_of(result, *ports).decide(result).verdict for ports in ((82,), (81, 82))] == [
        "CLEAN",
        "INCONCLUSIVE",
    ]
