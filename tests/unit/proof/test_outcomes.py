"""What is decided of candidates: each one once, or not at all."""

from collections import Counter
from pathlib import Path

import pytest

from nagle_lab.diagnosis.analysis import analyze
from nagle_lab.diagnosis.findings import Findings
from nagle_lab.diagnosis.proof.outcomes import Judged

CAPTURES = Path(__file__).parents[3] / "captures"
SOME = sorted(
    path for folder in ("lookalikes", "held-out", "stacks") for path in (CAPTURES / folder).rglob("*.pcap*")
)


def decided(judged: Judged) -> list[int]:
    """The rows of all candidates that something was decided of."""
    rows = [*judged.stalls, *(rows for _, rows in judged.rejected), *(rows for _, rows in judged.unresolved)]
    return [int(row) for some in rows for row in some]


def test_there_are_captures():
    assert len(SOME) == 526


@pytest.mark.parametrize("path", SOME, ids=lambda path: str(path.relative_to(CAPTURES)))
def test_no_candidate_is_decided_twice(path: Path, monkeypatch: pytest.MonkeyPatch):
    def count(self, judged, candidates, involved) -> None:
        twice = [row for row, times in Counter(decided(judged)).items() if times > 1]
        assert twice == []
        original(self, judged, candidates, involved)

    original = Findings._count_judged
    monkeypatch.setattr(Findings, "_count_judged", count)
    analyze(path)
