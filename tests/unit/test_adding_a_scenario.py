"""The page that adds a scenario, followed to the letter in a copy of the repository."""

import re
import subprocess
from pathlib import Path

import pytest

from nagle_lab.lab.scenarios.scenario import Scenario
from nagle_lab.lab.scenarios.scenario_file import load_scenario
from support.repository import REPOSITORY
from support.tree import copied, run_in

pytestmark = pytest.mark.long
PAGE = (REPOSITORY / "docs" / "adding-a-scenario.md").read_text()
BLOCKS = re.findall(r"^```toml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
SHELL = "".join(re.findall(r"^```sh\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))
COMMANDS = [line.partition("#")[0].strip() for line in SHELL.splitlines()]
(FILE,) = re.findall(r"^`(scenarios/\S+/scenario\.toml)`:$", PAGE, re.MULTILINE)
# What goes through the scenarios there are, whole files but of those that mostly do something else.
FILES = [f"tests/unit/test_{name}.py" for name in ("scenario", "matrix", "sweep")]
PARTS = {
    "tests/unit/test_demo.py": [
        "test_every_published_incident_is_told_and_every_verdict_is_among_the_mysteries",
        "test_an_incident_of_a_control_says_what_to_do",
        "test_each_incident_names_a_page_of_the_simulator",
    ],
    "tests/unit/test_soak.py": ["test_the_plan_is_what_it_promises"],
    "tests/unit/test_site.py": [
        "test_every_link_leads_to_a_page_and_a_heading_of_the_site",
        "test_every_page_of_the_repository_is_there",
        "test_nothing_comes_from_elsewhere_and_nothing_is_inline",
        "test_every_variant_and_every_recorded_size_is_taken",
        "test_every_recorded_case_and_exhibit_is_run_or_listed_with_a_reason",
    ],
}


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
    for path in (tree / "tests" / "unit").rglob("*.py"):
        file, text = str(path.relative_to(tree)), path.read_text()
        if file in PARTS:
            functions = re.split(r"^(?=def |@)", text, flags=re.MULTILINE)
            reading = {each.split("(")[0].removeprefix("def ") for each in functions if "scenarios()" in each}
            assert reading <= set(PARTS[file]), file
        elif path.name != Path(__file__).name:
            assert file in FILES or not re.search(r"\bscenarios\(\)", text), file
    tests = [*FILES, *(f"{file}::{name}" for file, names in PARTS.items() for name in names)]
    done = run_in(tree, ["pytest", "-q", "-c", "analysis/pyproject.toml", "--rootdir=.", *tests, "-n", "0"])
    assert done.returncode == 0, done.stdout[-2000:]
