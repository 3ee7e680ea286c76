"""Captures by somebody who had not read the rules of the proof: right, honestly unsure, or a known fault."""

import json
from pathlib import Path

import pytest

from nagle_lab.diagnosis.analysis import analyze
from nagle_lab.diagnosis.result.verdict import Verdict

FOLDER = Path(__file__).parents[2] / "captures" / "held-out"
TRUTHS = json.loads((FOLDER / "truth.json").read_text())
FAULTS = json.loads((FOLDER / "faults.json").read_text())


def test_all_of_them_are_here():
    assert {truth["name"] for truth in TRUTHS} == {path.name[: -len(".pcap.gz")] for path in FOLDER.glob("*.pcap.gz")}
    assert len(TRUTHS) == 404 and FAULTS.keys() <= {truth["name"] for truth in TRUTHS}
    assert sum(truth["verdict"] == "STALL" for truth in TRUTHS) == 224


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
