"""The page that adds a scenario: its TOML is one, and as short as it says."""

import re
from pathlib import Path

import pytest

from nagle_lab.lab.scenario import REPOSITORY, Scenario
from nagle_lab.lab.scenario_file import find_scenario

PAGE = (REPOSITORY / "docs" / "adding-a-scenario.md").read_text()
BLOCKS = re.findall(r"^```toml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture
def load(tmp_path: Path):
    """Return a function that loads a text as the page's scenario."""
    folder = tmp_path / "scenarios" / "full-segment"
    folder.mkdir(parents=True)
    for name in ("compose.yaml", "nginx", "client", "scenarios/shared"):
        (tmp_path / name).symlink_to(REPOSITORY / name)

    def loaded(text: str) -> Scenario:
        (folder / "scenario.toml").write_text(text)
        return find_scenario("full-segment", tmp_path / "scenarios")

    return loaded


def test_the_scenario_on_the_page_is_one(load):
    scenario = load(BLOCKS[0])
    assert (scenario.stalled, scenario.fixed) == ("one-byte-less", "full-segment")
    assert all(image.is_dir() for image in scenario.labs["bridge"].images)


def test_it_is_as_short_as_the_page_says():
    lines = [line for line in BLOCKS[0].splitlines() if line]
    assert (len(lines), "in twenty-six lines" in PAGE) == (26, True)


def test_what_the_page_adds_to_it_fits(load):
    sweep, claim = BLOCKS[1:]
    anything = '[variants.anything]\nfixed = {}\nverdict = "CLEAN"\nteaches = "x"\n'
    scenario = load("\n".join([BLOCKS[0], anything, sweep, claim]))
    assert scenario.sweep and scenario.sweep.series == {"nagle": "anything"}
    assert [one.measure for one in scenario.claims] == ["wait_p50_ms"]
