"""Captures by somebody who had not read the rules of the proof: right, honestly unsure, or a known fault."""

import json

import pytest

from nagle_lab.diagnosis.analysis import analyze, analyze_same_traffic
from nagle_lab.diagnosis.result.verdict import Verdict
from support.repository import CAPTURES

FOLDER = CAPTURES / "held-out"
TRUTHS = json.loads((FOLDER / "truth.json").read_text())
FAULTS = json.loads((FOLDER / "faults.json").read_text())


def test_all_of_them_are_here():
    assert {truth["name"] for truth in TRUTHS} == {path.name[: -len(".pcap.gz")] for path in FOLDER.glob("*.pcap.gz")}
    assert len(TRUTHS) == 446 and FAULTS.keys() <= {truth["name"] for truth in TRUTHS}
    assert sum(truth["verdict"] == "STALL" for truth in TRUTHS) == 248


@pytest.mark.parametrize(
    "truth",
    [
        pytest.param(
            truth,
            id=truth["name"],
            marks=[pytest.mark.xfail(reason=FAULTS[truth["name"]], strict=True)] if truth["name"] in FAULTS else [],
        )
        for truth in TRUTHS
    ],
)
def test_the_verdict_is_right_or_honestly_unsure(truth):
    """A fault that is mended fails here, so that it leaves the list."""
    result = analyze(FOLDER / f"{truth['name']}.pcap.gz")
    assert result.verdict in (truth["verdict"], *truth["also_acceptable"])
    if result.verdict is Verdict.STALL and truth["verdict"] == "STALL":
        least, most = truth["stalls"]
        assert least <= result.summary.stalls <= most
        assert truth["held_by"] in (None, result.summary.held_by) or result.summary.held_by == "both"


BY_NAME = {truth["name"]: truth for truth in TRUTHS}
OF_TWO_RUNS = {"fourteenth-busy-peer", "thirteenth-ack-slots"}
AT_BOTH_ENDS = sorted(
    name.removesuffix(".client") for name in BY_NAME if name.endswith(".client") and name[:-6] + "server" in BY_NAME
)
UNDECIDED = {"f-ackwait-20", "r11-outq-20", "w2-outq-1ms-veth"}  # programs that wait for the ACK themselves
PAIR_FAULTS = {"d4-both-nagle": "counted too few: of ACKs that came with data only those count that both show"}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            name,
            marks=[pytest.mark.xfail(reason=PAIR_FAULTS[name], strict=True)] if name in PAIR_FAULTS else [],
        )
        for name in sorted({*AT_BOTH_ENDS} - OF_TWO_RUNS)
    ],
)
def test_both_ends_together_decide_it(name):
    """Whatever one of them says alone."""
    ends = [f"{name}.client", f"{name}.server"]
    pair = analyze_same_traffic(*(FOLDER / f"{end}.pcap.gz" for end in ends))
    for end, result in zip(ends, pair.results, strict=True):
        truth = BY_NAME[end]
        assert result.verdict == ("INCONCLUSIVE" if name in UNDECIDED else truth["verdict"])
        if truth["verdict"] == "STALL":
            least, most = truth["stalls"]
            assert least <= result.summary.stalls <= most
            assert truth["held_by"] in (None, result.summary.held_by)


def test_so_many_were_captured_at_both_ends():
    assert len(AT_BOTH_ENDS) == 50
