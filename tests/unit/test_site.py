"""The built site: complete, self-contained, small; its links lead somewhere, and its data is the project's."""

import re
import tomllib
import zipfile
from html.parser import HTMLParser
from importlib.metadata import version
from pathlib import Path
from urllib.parse import urldefrag

import pytest

from nagle_lab.lab.scenarios.scenario_file import scenarios
from support.repository import CAPTURES, REPOSITORY, named
from support.site import SITE, module

STRICT = {"default-src 'none'", "style-src 'self'", "base-uri 'none'", "form-action 'none'"}


@pytest.fixture(scope="module")
def site(built_site) -> Path:
    return built_site


@pytest.fixture(scope="module")
def data():
    return module("collect").collect()


class Seen(HTMLParser):
    """What a page links to, loads and contains."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.ids: set[str] = set()
        self.policy = ""
        self.inline: list[str] = []
        self._in = ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        has = dict(attrs)
        self._in = tag
        self.ids.add(has.get("id") or "")
        if tag == "a" and has.get("href"):
            self.links.append(has["href"])
        if tag in {"script", "img", "iframe"} and has.get("src"):
            self.loads.append(has["src"])
        if tag == "link":
            self.loads.append(has["href"])
        if has.get("http-equiv") == "Content-Security-Policy":
            self.policy = has["content"]
        self.inline += [name for name in has if name == "style" or name.startswith("on")]

    def handle_endtag(self, tag):
        self._in = ""

    def handle_data(self, data):
        if self._in in {"script", "style"} and data.strip():
            self.inline.append(data)


@pytest.fixture(scope="module")
def pages(site) -> dict[Path, Seen]:
    return {page: Seen(page.read_text()) for page in site.rglob("*.html")}


def test_every_link_leads_to_a_page_and_a_heading_of_the_site(pages):
    broken = []
    for page, seen in pages.items():
        for link in seen.links + seen.loads:
            if re.match(r"(https?|mailto):", link):
                continue
            target, anchor = urldefrag(link)
            found = (page.parent / target).resolve() if target else page
            if not found.is_file():
                broken.append(f"{page.name}: {link}")
            elif anchor and found.suffix == ".html" and "=" not in anchor and anchor not in pages[found].ids:
                broken.append(f"{page.name}: no #{anchor} in {target}")
    assert broken == []
    assert len(pages) > 40


def test_every_page_of_the_repository_is_there(site):
    build = module("build")
    assert [page for page in build.Docs(site, "").pages if not (site / build.page_of(page)).is_file()] == []


def test_nothing_comes_from_elsewhere_and_nothing_is_inline(pages):
    for page, seen in pages.items():
        rules = set(seen.policy.split("; "))
        assert {rule.partition(" 'sha256-")[0] for rule in rules} >= STRICT, page
        unsafe = re.findall(r"\S*unsafe\S*", seen.policy)  # a page with Python in it compiles WebAssembly
        assert unsafe == (["'wasm-unsafe-eval'"] if page.name == "drop.html" else []) and seen.inline == [], page
        assert [load for load in seen.loads if ":" in load or load.startswith("//")] == [], page


def test_the_simulator_is_small(site):
    weight = sum((site / name).stat().st_size for name in ("index.html", "site.css", "site.js"))
    assert weight < 320_000
    for file in SITE.glob("*.js"):
        assert file.read_text().count("\n") <= 400, file.name


def test_every_module_is_in_the_script(site):
    build = module("build")
    assert {*build.MODULES} == {file.stem for file in SITE.glob("*.js")} - {"worker"} | {"data"}


@pytest.mark.parametrize(
    ("modules", "said"),
    [
        ({"a": 'import { b } from "./b.js";\n', "b": "export const b = 1;\n"}, "a.js imports b.js"),
        ({"a": "export default 1;\n"}, "a.js has an import or export"),
        ({"a": 'import * as b from "./b.js";\n'}, "a.js has an import or export"),
    ],
)
def test_a_module_that_cannot_be_put_into_the_script_is_refused(modules, said):
    with pytest.raises(ValueError, match=said):
        module("build").script(modules)


def test_a_folder_of_somebody_else_is_not_overwritten(tmp_path, capsys):
    (tmp_path / "mine.txt").write_text("mine")
    assert module("build").main([str(tmp_path)]) == 2
    assert (
        capsys.readouterr().err
        == f"site/build.py: {tmp_path} has files that this did not write: name another folder\n"
    )
    assert (tmp_path / "mine.txt").read_text() == "mine"


def test_without_npm_the_site_is_built_without_the_page_that_needs_it(tmp_path, capsys, monkeypatch):
    build, analyzer = module("build"), module("analyzer")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(analyzer.NotFetchedError, match=r"^pyodide-[\d.]+\.tgz: npm is not installed$"):
        analyzer.fetch(tmp_path / "cache")
    lines = "npm warn of something\nnpm error failed, reason: no way\nnpm error log"
    (tmp_path / "npm").write_text(f"#!/bin/sh\necho '{lines}' >&2\nexit 1\n")
    (tmp_path / "npm").chmod(0o755)
    with pytest.raises(analyzer.NotFetchedError, match=r"^pyodide-[\d.]+\.tgz: npm error failed, reason: no way$"):
        analyzer.fetch(tmp_path / "cache")
    monkeypatch.undo()
    monkeypatch.setattr(analyzer, "CACHE", tmp_path / "cache")
    monkeypatch.setattr(analyzer, "_run", refuse(analyzer.NotFetchedError("pyodide.tgz: npm is not installed")))
    assert build.main([str(tmp_path / "public")]) == 0
    said = 'site/build.py: no page "Drop a capture", because of pyodide.tgz: npm is not installed\n'
    assert capsys.readouterr().err == said
    texts = [page.read_text() for page in (tmp_path / "public").rglob("*.html")]
    assert len(texts) > 40 and not any("drop.html" in text for text in texts)


def refuse(error: Exception):
    def refusing(*_):
        raise error

    return refusing


def test_a_fetched_file_that_is_another_one_is_refused(tmp_path):
    analyzer = module("analyzer")
    for name in fetched():
        (tmp_path / name).write_bytes(b"another")
    with pytest.raises(ValueError, match=r"is not the file that site/fetched\.toml names"):
        analyzer.fetch(tmp_path)


def fetched() -> list[str]:
    return [one["name"] for one in tomllib.loads((SITE / "fetched.toml").read_text())["file"]]


def test_the_browser_has_the_versions_of_the_command_line(tmp_path):
    assert f"msgspec-{version('msgspec')}-" in fetched()[1]
    wheel = tmp_path / "msgspec.whl"
    with zipfile.ZipFile(wheel, "w") as made:
        made.writestr("msgspec/__init__.py", "")
    names = module("analyzer").archived(wheel).keys()
    assert {"in_page.py", "nagle_lab/tcp/machine.py", "nagle_lab/tcp/engine.h", "jinja2/__init__.py"} <= names
    assert {"nagle_lab/reports/html/capture.html.j2", "markupsafe/_native.py", "msgspec/__init__.py"} <= names
    assert not [name for name in names if name.endswith((".so", ".pyc", ".c"))]
    assert sum("license" in name.lower() for name in names) >= 2


def test_a_link_that_leads_nowhere_is_an_error(tmp_path):
    docs = module("build").Docs(tmp_path, "")
    with pytest.raises(ValueError, match=r"links to nowhere\.md"):
        docs.place("nowhere.md", module("build").PurePosixPath("docs/README.md"))


def test_every_variant_and_every_recorded_size_is_taken(data):
    matrix = (REPOSITORY / "docs" / "matrix.md").read_text()
    assert {name: set(one["variants"]) for name, one in data["scenarios"].items()} == {
        name: set(scenario.variants) for name, scenario in scenarios().items() if f"## {name}\n" in matrix
    }
    sweeps = (REPOSITORY / "docs" / "sweeps.md").read_text()
    sizes = [size for one in data["scenarios"].values() for size in one["sizes"]]
    assert len(sizes) == len(re.findall(r" (?:STALL|CLEAN)$", sweeps, re.MULTILINE)) > 0
    for one in data["scenarios"].values():
        for variant in one["variants"].values():
            assert variant["recorded"]["verdict"] == variant["verdict"]


def test_every_recorded_case_and_exhibit_is_run_or_listed_with_a_reason(data):
    folders = {
        named(folder)
        for kind in ("lookalikes", "families", "stacks")
        for folder in (CAPTURES / kind).iterdir()
        if (folder / "truth.json").is_file()
    }
    assert {one["folder"] for one in data["cases"].values()} == folders
    assert all(("setup" in one) != bool(one.get("cannot")) for one in data["cases"].values())
    exhibits = {
        str(file.parent.relative_to(REPOSITORY / "museum")) for file in REPOSITORY.glob("museum/*/*/exhibit.toml")
    }
    shown, other = set(data["museum"]["exhibits"]), set(data["museum"]["cannot"])
    assert shown | other == exhibits and not shown & other and all(data["museum"]["cannot"].values())
