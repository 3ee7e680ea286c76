"""The museum is data: every exhibit is whole and pinned, whichever of them a machine can run."""

import json
import re
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

from nagle_lab.errors import NagleLabError
from nagle_lab.experiments.software import installs, museum
from nagle_lab.experiments.software.installs import Installed
from nagle_lab.experiments.software.museum import (
    ECOSYSTEMS,
    MUSEUM,
    Exhibit,
    ExhibitHalf,
    ExhibitRun,
    HalfOutcome,
    exhibits,
)
from nagle_lab.reports.experiments.museum import museum_page

EVERY = exhibits()


def test_there_is_enough_of_everything():
    """What issue 16 asked for."""
    assert len(EVERY) == 86
    assert {exhibit.ecosystem for exhibit in EVERY} == set(ECOSYSTEMS)
    assert {exhibit.kind for exhibit in EVERY} == {"server", "client", "driver", "broker", "proxy", "tunnel"}
    assert sum(exhibit.latest for exhibit in EVERY) >= 8
    assert {exhibit.held_by for exhibit in EVERY} == {"client", "server"}


def test_bad_and_good_differ():
    for exhibit in EVERY:
        bad, good = exhibit.bad, exhibit.good
        assert (bad.version, bad.setting) != (good.version, good.setting), exhibit.name
        assert (bad.run, bad.install) != (good.run, good.install), exhibit.name
        assert not bad.one_write, f"{exhibit.name}: two writes stall"


def test_it_is_said_how_the_first_release_that_stalls_is_known():
    for exhibit in EVERY:
        assert bool(exhibit.since) == bool(exhibit.since_by), exhibit.name


@pytest.mark.parametrize(
    ("since", "by", "said"),
    [("1.0 or earlier", "source", " Since 1.0 or earlier (by its source). "), ("1.0", "run", " Since 1.0. ")],
)
def test_the_page_says_where_only_the_source_of_a_release_was_read(since, by, said):
    exhibit = msgspec.structs.replace(EVERY[0], since=since, since_by=by, thread="")
    shown = ExhibitRun(exhibit, HalfOutcome(None, "not run"), HalfOutcome(None, "not run"))
    assert said in museum_page([shown])


@pytest.mark.parametrize("ecosystem", ECOSYSTEMS)
def test_what_is_installed_is_pinned_by_hashes(ecosystem):
    for exhibit in exhibits([ecosystem]):
        for half in (exhibit.bad, exhibit.good):
            assert_pinned(exhibit, half)


def assert_pinned(exhibit: Exhibit, half: ExhibitHalf) -> None:
    what = Path(exhibit.folder) / half.install
    match exhibit.ecosystem:
        case "pypi":
            text = what.read_text().replace("\\\n", " ")
            lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
            assert lines
            for line in lines:
                assert re.match(r"[\w.\[\]-]+==[\w.+!-]+( ;[^#]*)? .*--hash=sha256:[0-9a-f]{64}", line), line
        case "npm":
            packages = json.loads((what / "package-lock.json").read_text())["packages"]
            installed = {name: package for name, package in packages.items() if name}
            assert installed and (what / "package.json").exists()
            assert all(package["integrity"].startswith("sha") for package in installed.values())
        case "maven":
            lines = (what / "checksums.txt").read_text().splitlines()
            assert lines and all(re.fullmatch(r"[0-9a-f]{64}  [\w.-]+\.jar", line) for line in lines)
            assert "<version>" in (what / "pom.xml").read_text()
        case "crates":
            packages = tomllib.loads((what / "Cargo.lock").read_text())["package"]
            assert all(re.fullmatch("[0-9a-f]{64}", one["checksum"]) for one in packages if "source" in one)
            assert sum("source" not in one for one in packages) == 1, "all but the exhibit itself"
        case "go":
            assert re.findall(r"h1:[\w+/]{43}=", (what / "go.sum").read_text())
        case "debian":
            lines = [line.split() for line in what.read_text().splitlines() if line.strip()]
            assert all(re.fullmatch("[0-9a-f]{64}", sha256) for _, _, sha256 in lines)
            assert lines or exhibit.needs


def test_no_lock_says_where_to_download_from():
    """The machine that installs knows its registries."""
    words = [
        "registry.npmjs",
        "registry.yarnpkg",
        "pypi.org",
        "pythonhosted",
        "repo.maven",
        "repo1.maven",
        "proxy.golang",
    ]
    hosts = re.compile("|".join(map(re.escape, [*words, "--index-url", "--extra-index", '"resolved"'])))
    found = [
        str(path.relative_to(MUSEUM))
        for path in MUSEUM.rglob("*")
        if path.is_file() and hosts.search(path.read_text(errors="replace"))
    ]
    assert found == []


def test_links_are_to_threads():
    for exhibit in EVERY:
        assert exhibit.thread == "" or re.fullmatch(r"https://\S+", exhibit.thread), exhibit.name


def test_an_exhibit_is_asked_for_by_name_or_ecosystem():
    assert [exhibit.name for exhibit in exhibits(["pypi/hypercorn"])] == ["pypi/hypercorn"]
    assert {exhibit.ecosystem for exhibit in exhibits(["npm", "go"])} == {"npm", "go"}
    with pytest.raises(NagleLabError, match=r"no exhibit pypi/nothing: nagle-lab museum --list prints their names"):
        exhibits(["pypi/nothing"])
    with pytest.raises(NagleLabError, match=r"no exhibit hypercorn: did you mean pypi/hypercorn\?"):
        exhibits(["hypercorn"])
    with pytest.raises(NagleLabError, match="no museum there: run this in a checkout"):
        exhibits(museum=MUSEUM / "nowhere")


def test_a_mistake_in_an_exhibit_names_file_and_key(tmp_path):
    folder = tmp_path / "pypi" / "wrong"
    folder.mkdir(parents=True)
    text = (MUSEUM / "pypi" / "hypercorn" / "exhibit.toml").read_text()
    (folder / "exhibit.toml").write_text(text.replace('kind = "server"', 'kind = "toaster"'))
    with pytest.raises(NagleLabError, match=r"pypi/wrong/exhibit\.toml: kind: Invalid enum value 'toaster'"):
        exhibits(museum=tmp_path)
    (folder / "exhibit.toml").write_text(text)
    folder.parent.rename(tmp_path / "pypy")
    with pytest.raises(NagleLabError, match=r"pypy/wrong/exhibit\.toml: ecosystem: Invalid enum value 'pypy'"):
        exhibits(museum=tmp_path)


def test_a_mistake_in_a_table_of_an_exhibit_names_the_words_there(tmp_path):
    folder = tmp_path / "pypi" / "wrong"
    folder.mkdir(parents=True)
    text = (MUSEUM / "pypi" / "hypercorn" / "exhibit.toml").read_text()
    wrong = re.sub(r'(?m)^language = ".*"$', 'language = "Cobol"', text)
    assert wrong != text
    (folder / "exhibit.toml").write_text(wrong)
    with pytest.raises(NagleLabError, match=r"exhibit\.toml: writes\.language: .*'Cobol': use Python or Node\.js or"):
        exhibits(museum=tmp_path)


def test_a_file_that_moves_to_another_folder_is_installed_again(tmp_path):
    digests = set()
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "main.go").write_text("package main")
        digests.add(installs._digest(tmp_path, []))
        (tmp_path / folder / "main.go").unlink()
    assert len(digests) == 2


def test_what_two_runs_want_at_once_is_installed_once(monkeypatch, tmp_path):
    """Of both halves of an exhibit, or of `make museum` twice: none removes what the other is installing."""
    source = tmp_path / "software"
    source.mkdir()
    (source / "lock.txt").touch()
    installed = []

    def slowly(folder: Path, lock: Path) -> None:
        time.sleep(0.2)
        assert lock.exists(), "another one has removed it"
        installed.append(folder)

    monkeypatch.setitem(installs._INSTALLERS, "pypi", slowly)
    with ThreadPoolExecutor(2) as both:
        wanted = [both.submit(installs.install, "pypi", source, "lock.txt", tmp_path / "cache", []) for _ in range(2)]
    assert [one.result().folder for one in wanted] == installed * 2


def test_missing_packages_are_no_pass(monkeypatch, run):
    """Named, with the command that installs them; exit code 3."""
    monkeypatch.setattr(museum, "missing", lambda packages: "no-such-package")
    code, out, err = run("museum", "debian/curl")
    assert code == 3
    assert "it needs no-such-package: apt-get install no-such-package" in out
    assert "0 of 1 exhibits as expected, 1 could not run here" in err


def test_what_cannot_be_recorded_costs_its_own_row(monkeypatch, run, tmp_path):
    """A disk that is full: exit code 3, and a table."""

    def full(*_: object, **__: object) -> None:
        raise NagleLabError("no space left on device")

    monkeypatch.setattr(museum, "install_half", lambda *_: Installed(tmp_path, {}))
    monkeypatch.setattr(museum, "guard", full)
    code, out, err = run("museum", "pypi/hypercorn")
    assert (code, "no space left on device" in out) == (3, True)
    assert "0 of 1 exhibits as expected, 1 could not run here" in err


def test_the_list(run):
    code, out, _ = run("museum", "--list", "pypi")
    assert code == 0
    assert "pypi/hypercorn" in out and "npm/" not in out
