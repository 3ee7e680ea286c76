"""The pages: the output they show is what the commands print, and every link leads somewhere."""

import importlib.util
import re
import subprocess
from contextlib import chdir
from pathlib import Path

import pytest

from support.command import Ended, in_process
from support.repository import REPOSITORY, named

_spec = importlib.util.spec_from_file_location("refresh", REPOSITORY / "docs" / "refresh.py")
assert _spec and _spec.loader
refresh = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(refresh)

PAGES = refresh.pages()
SHOWING = [page for page in PAGES if refresh.BLOCK.search(page.read_text())]
FENCED = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(<?([^)\s>]+)>?[^)]*\)|!\[[^\]]*\]\(([^)\s]+)\)")


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    found: set[str] = set()
    for heading in re.findall(r"^#{1,6} +(.+?) *#*$", FENCED.sub("", page.read_text()), re.MULTILINE):
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
        found.add(next(each for n in range(99) if (each := f"{slug}-{n}" if n else slug) not in found))
    return found


def test_a_checkout_of_another_owner_can_be_refreshed(monkeypatch, tmp_path):
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    monkeypatch.setenv("HOME", str(tmp_path))  # where nothing is trusted
    refused = subprocess.run(["git", "ls-files"], cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert "dubious ownership" in refused.stderr
    assert refresh.pages() == PAGES


def test_the_pages_are_here():
    assert {"README.md", "docs/README.md", "docs/how-it-works.md", "docs/workshop/handout.md"} <= set(
        map(named, PAGES)
    )
    assert len(SHOWING) >= 4


def ended_here(arguments: list[str]) -> Ended:
    with chdir(REPOSITORY):
        return in_process(*arguments)


def test_a_command_prints_the_same_in_a_process_of_its_own():
    command = ["analyze", "captures/reference/nginx-static-nodelay-off/server.pcap"]
    assert refresh.ended(command) == ended_here(command)


@pytest.mark.parametrize("page", SHOWING, ids=named)
def test_the_output_on_a_page_is_what_its_command_prints(page: Path, monkeypatch):
    monkeypatch.setattr(refresh, "ended", ended_here)
    text = page.read_text()
    assert refresh.refreshed(text) == text, "out of date: make docs"


@pytest.mark.parametrize(("file", "schema"), refresh.schemas().items(), ids=lambda of: getattr(of, "name", ""))
def test_a_schema_is_that_of_its_types(file: Path, schema: str):
    assert file.read_text() == schema, "out of date: make docs"


def test_no_ladder_in_the_docs_is_typed_by_hand():
    for page in PAGES:
        if page.parent in (REPOSITORY / "docs", REPOSITORY / "docs" / "workshop"):
            by_hand = refresh.BLOCK.sub("", page.read_text())
            assert "──▶│" not in by_hand, named(page)


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_every_link_leads_to_a_file_and_heading_of_the_repository(page: Path):
    text = re.sub(r"`[^`\n]*`", "", FENCED.sub("", page.read_text()))
    broken = []
    for target in (one or other for one, other in LINK.findall(text)):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        inside = file == REPOSITORY or REPOSITORY in file.parents
        if not inside or not file.exists() or (anchor and anchor not in anchors(file)):
            broken.append(target)
    assert broken == []


@pytest.mark.parametrize("page", [page for page in PAGES if page.parent.name in ("docs", "workshop")], ids=named)
def test_the_index_names_every_page(page: Path):
    index = REPOSITORY / "docs" / "README.md"
    if page.is_relative_to(index.parent) and page != index:
        assert f"]({page.relative_to(index.parent)})" in index.read_text()


def test_what_troubleshooting_quotes_is_what_is_said():
    """What stands like `this` in the first column of a table "it says" is in a message of ours, word for word."""
    page = (REPOSITORY / "docs" / "troubleshooting.md").read_text()
    tables = re.findall(r"^\| it says .*\n((?:\|.*\n)+)", page, re.MULTILINE)
    quoted = [
        words
        for table in tables
        for row in table.splitlines()
        for words in re.findall("`([^`]+)`", row.split("|")[1])
    ]
    sources = [*(REPOSITORY / "analysis" / "nagle_lab").rglob("*.py"), *(REPOSITORY / "setup").glob("*.sh")]
    spoken = "\n".join(source.read_text() for source in sources).replace("found {verdict}", "found CLEAN")
    assert len(quoted) > 15
    assert [words for words in quoted if words not in spoken] == []


def test_the_handout_fits_a_page():
    assert len((REPOSITORY / "docs" / "workshop" / "handout.md").read_text().splitlines()) <= 60


def test_only_what_is_understood_is_run_and_shown():
    for recipe, says in {
        "rm -rf /": "only nagle-lab",
        "nagle-lab analyze no-such-file": "exit code 2",
        "nagle-lab --version | from nowhere": "finds nothing",
        "nagle-lab --version | sort": "no filter",
    }.items():
        with pytest.raises(ValueError, match=says):
            refresh.output(recipe)
    assert refresh.output("nagle-lab --version | from nagle-lab").startswith("nagle-lab")


def test_a_stale_block_is_written_again():
    page = "a\n\n<!-- output: nagle-lab --version -->\n\n```\nold\n```\n\nb\n"
    again = refresh.refreshed(page)
    assert "old" not in again
    assert again.startswith("a\n\n<!-- output: nagle-lab --version -->\n\n```\nnagle-lab, version ")
    assert refresh.refreshed(again) == again


def test_what_decides_is_where_the_proof_says():
    section = (
        (REPOSITORY / "docs" / "proof.md").read_text().partition("## Where it is decided")[2].partition("\n## ")[0]
    )
    rows = re.findall(r"^\| (?!question)[^-|].* \| (.*) \|$", section, re.MULTILINE)
    assert len(rows) >= 14
    for where in rows:
        files = [(REPOSITORY / "docs" / link).resolve() for link in re.findall(r"\]\((\S+\.py)\)", where)]
        defined = {name for file in files for name in re.findall(r"(?:def|class) (\w+)", file.read_text())}
        assert files and set(re.findall(r"`(\w+)`", where)) <= defined, where
