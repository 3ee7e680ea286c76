"""Every scenario on Docker: the variants that tell its story give their verdicts.

Those of nginx-static are in test_readme_commands.py and test_reproduction.py.
"""

import json
import subprocess
from pathlib import Path

import pytest
from lab.recording import NAGLE_LAB, assert_its_story, left_on_engine, undisturbed

from nagle_lab.lab.scenarios.scenario_file import scenarios
from support.schemas import check

pytestmark = pytest.mark.quiet
SCENARIOS = scenarios()
STORIES = [
    pytest.param(scenario.name, variant.name, id=f"{scenario.name}-{variant.name}")
    for scenario in SCENARIOS.values()
    for variant in scenario.story
    if scenario.name != "nginx-static"
]


@pytest.mark.parametrize(("scenario", "variant"), STORIES)
def test_a_story_is_told_as_expected(tmp_path: Path, scenario: str, variant: str):
    command = [NAGLE_LAB, "run", scenario, variant, "--json", "--runs", tmp_path]
    done = undisturbed(lambda: subprocess.run(command, capture_output=True, text=True, timeout=300, check=False))
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    check("run", result)
    assert_its_story(result, SCENARIOS[scenario].variant(variant).expected)
    assert left_on_engine(tmp_path) == []
