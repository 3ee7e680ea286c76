"""The scenario of docs/adding-a-scenario.md, run on Docker by the page's own commands."""

import re
from pathlib import Path

import pytest

from support.repository import REPOSITORY
from support.tree import copied, run_in

PAGE = (REPOSITORY / "docs" / "adding-a-scenario.md").read_text()
BLOCKS = re.findall(r"^```toml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
VARIANTS = re.findall(r"^\[variants\.(\S+)\]$", BLOCKS[0], re.MULTILINE)

pytestmark = [pytest.mark.quiet, pytest.mark.long]


def test_every_variant_of_the_page_is_as_it_expects(tmp_path: Path):
    """`make matrix SCENARIO=full-segment`, without the set-up that the tests' own has done."""
    tree = copied(tmp_path / "nagle-lab")
    (tree / "scenarios" / "full-segment").mkdir()
    (tree / "scenarios" / "full-segment" / "scenario.toml").write_text(BLOCKS[0])
    done = run_in(tree, ["nagle_lab", "matrix", "full-segment"])
    assert done.returncode == 0, done.stderr
    assert len(VARIANTS) == 2 and all(variant in done.stdout for variant in VARIANTS)
