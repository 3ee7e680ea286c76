"""The page that adds a scenario, followed to the letter in a copy of the repository."""

import re
import subprocess
from pathlib import Path

import pytest

from nagle_lab.lab.scenarios.scenario import REPOSITORY, Scenario
from nagle_lab.lab.scenarios.scenario_file import load_scenario
from support.tree import copied, run_in

PAGE = (REPOSITORY / "docs" / "adding-a-scenario.md").read_text()
BLOCKS = re.findall(r"^```toml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
SHELL = "".join(re.findall(r"^```sh\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))
COMMANDS = [line.partition("#")[0].strip() for line in SHELL.splitlines()]
(FILE,) = re.findall(r"^`(scenarios/\S+/scenario\.toml)`:$", PAGE, re.MULTILINE)
TESTS = [f"tests/unit/test_{name}.py" for name in ("scenario", "soak", "demo", "matrix", "site", "sweep")]


@pytest.fixture(scope="module")
def tree(tmp_path_factory) -> Path:
    """A copy of the repository with all that the page says."""
    tree = copied(tmp_path_factory.mktemp("page") / "nagle-lab")
    subprocess.run(["git", "init", "--quiet", tree], check=True)  # which files are the project's, git says
    (tree / FILE).parent.mkdir()
    (tree / FILE).write_text("\n".join(BLOCKS))
    (tree / FILE).with_name("README.md").write_text("# A page of one full segment does not wait\n")
    return tree


@pytest.fixture
def scenario(tree: Path) -> Scenario:
    return load_scenario(tree / FILE)


def test_the_scenario_on_the_page_is_one_before_anything_is_appended(tree):
    alone = tree / FILE
    whole = alone.read_text()
    alone.write_text(BLOCKS[0])
    try:
        scenario = load_scenario(alone)
    finally:
        alone.write_text(whole)
    assert [variant.name for variant in scenario.story] == ["one-byte-less", "full-segment"]
    assert all(image.is_dir() for image in scenario.labs["bridge"].images)


def test_it_is_as_short_as_the_page_says():
    lines = [line for line in BLOCKS[0].splitlines() if line]
    assert (len(lines), "in twenty-six lines" in PAGE) == (26, True)


def test_what_the_page_appends_to_it_fits(scenario):
    assert scenario.sweep and scenario.sweep.series == {"nagle": "anything"}
    assert [one.measure for one in scenario.claims] == ["wait_p50_ms"]


def test_the_commands_of_the_page_are_those_that_are_run_here_and_in_tests_lab():
    assert COMMANDS == [
        ".venv/bin/nagle-lab list full-segment",
        "make repro SCENARIO=full-segment VARIANT=one-byte-less",
        "make matrix SCENARIO=full-segment",
        "make test-unit",
        ".venv/bin/nagle-lab matrix full-segment --repeat 3",
    ]


def test_it_is_listed(tree):
    listed = run_in(tree, ["nagle_lab", "list", "full-segment"])
    assert listed.returncode == 0, listed.stderr
    assert "one-byte-less" in listed.stdout and "PAGE_BYTES" in listed.stdout
    assert run_in(tree, ["nagle_lab", "list", "full-segment", "--pair"]).stdout == "one-byte-less full-segment\n"


def test_the_unit_tests_pass_with_it(tree):
    """Those that go through the scenarios there are: of `make test-unit`, what a new one could break."""
    reading = {
        path for path in (tree / "tests" / "unit").glob("*.py") if re.search(r"\bscenarios\(\)", path.read_text())
    }
    assert reading <= {tree / name for name in TESTS} | {tree / "tests/unit/test_adding_a_scenario.py"}
    done = run_in(tree, ["pytest", "-q", "-c", "analysis/pyproject.toml", "--rootdir=.", *TESTS, "-n", "0"])
    assert done.returncode == 0, done.stdout[-2000:]
