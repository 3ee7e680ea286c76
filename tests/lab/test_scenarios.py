"""Every scenario on Docker: the variants that tell its story give their verdicts."""

import json
import subprocess
from pathlib import Path

import pytest
from lab.recording import REPOSITORY, left_on_engine, undisturbed

from nagle_lab.lab.scenarios.scenario_file import scenarios
from support.schemas import check

NAGLE_LAB = REPOSITORY / ".venv" / "bin" / "nagle-lab"

pytestmark = pytest.mark.quiet
SCENARIOS = scenarios()
STORIES = [
    pytest.param(scenario.name, variant.name, id=f"{scenario.name}-{variant.name}")
    for scenario in SCENARIOS.values()
    for variant in scenario.story
]


@pytest.mark.parametrize(("scenario", "variant"), STORIES)
def test_a_story_is_told_as_expected(tmp_path: Path, scenario: str, variant: str):
    """Verdict, who held and who delayed, and the share on the connections under test; every witness agrees."""
    command = [NAGLE_LAB, "run", scenario, variant, "--json", "--runs", tmp_path]
    done = undisturbed(lambda: subprocess.run(command, capture_output=True, text=True, timeout=300, check=False))
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    check("run", result)
    expected = SCENARIOS[scenario].variant(variant).expected
    assert (result["verdict"], result["contradictions"]) == (expected.verdict, [])
    assert [c["name"] for c in result["checks"] if not c["ok"]] == []
    captures = result["captures"].values()
    sure = [
        capture for capture in captures if capture["under_test"]["stalls"] or not capture["quality"]["unresolved"]
    ]
    totals = [capture["under_test"] for capture in sure if capture["under_test"]["connections"]]
    assert totals
    for total in totals:
        assert (total["held_by"], total["delayed_by"]) == (expected.held_by, expected.delayed_by)
        assert bool(total["stalls"]) is (expected.verdict == "STALL")
    stalled = max(total["stalled_exchanges"] / (total["repeat_exchanges"] or 1) for total in totals)
    assert stalled >= (expected.min_share_after_first or 0)  # of the best capture; the other may see fewer
    assert all(not capture["others"]["stalls"] for capture in result["captures"].values())
    assert left_on_engine(tmp_path) == []
