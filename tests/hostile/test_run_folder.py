"""Somebody's run folder: tampered with, incomplete or malformed, it is refused in one line that says why."""

import json
import os
import shutil
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from rich.console import Console

from nagle_lab.diagnosis.analysis import analyze
from nagle_lab.errors import Exit, NagleLabError
from nagle_lab.evidence.examples import Examples
from nagle_lab.experiments import comparison
from nagle_lab.reports.files.junit import junit, suite_of_run
from nagle_lab.reports.files.markdown import page_of_run
from nagle_lab.reports.html.page import report_page
from nagle_lab.reports.html.shown import Shown
from nagle_lab.reports.screens.run import show_run
from nagle_lab.runs import run as runs
from nagle_lab.runs.figures import figures_of
from nagle_lab.runs.run import judge_run, store
from support.files import rewrite
from support.repository import CAPTURES, REFERENCE
from support.run_folders import change, reseal, write

DIRECT = REFERENCE / "nginx-static-nodelay-off"
PROXIED = CAPTURES / "workshop" / "redis-proxy-nginx-nagle"


@pytest.fixture
def folder(tmp_path) -> Path:
    """A run as the lab writes it."""
    return Path(shutil.copytree(PROXIED, tmp_path / "run"))


def refused(run, folder: Path) -> str:
    """What every command says of a folder that none of them takes."""
    said = set()
    for command in (["show"], ["show", "--json"], ["analyze"], ["compare", DIRECT], ["annotate", "--filter"]):
        code, out, err = run(*command, folder)
        assert (code, out) == (Exit.UNUSABLE, ""), command
        assert err.count("\n") == 1 and err[:-1].isprintable()
        said.add(err.removeprefix("nagle-lab: ").rstrip("\n"))
    assert len(said) == 1
    return said.pop()


def test_what_the_lab_writes_is_taken(run, folder):
    assert run("show", folder)[0] == Exit.OK


def test_a_manifest_that_was_edited_is_refused(run, folder):
    text = (folder / "manifest.json").read_text()
    for old, new in (('"STALL"', '"CLEAN"'), ('"VALUE_BYTES": "2000"', '"VALUE_BYTES": "20"'), ("8.0.2", "8.0.3")):
        assert old in text
        (folder / "manifest.json").write_text(text.replace(old, new))
        assert "manifest.json: changed since it was written" in refused(run, folder)
    indented = json.dumps(json.loads(text), indent=7, ensure_ascii=False)
    (folder / "manifest.json").write_text(indented)  # nothing it says has changed
    assert run("show", folder)[0] == Exit.OK


def test_a_manifest_without_its_checksum_is_refused(run, folder):
    manifest = json.loads((folder / "manifest.json").read_text())
    del manifest["checksum"]
    (folder / "manifest.json").write_text(json.dumps(manifest))
    assert "missing required field `checksum`" in refused(run, folder)


def test_a_run_that_never_completed_does_not_become_complete_by_saying_so(run, folder):
    """Killed before its witnesses were written, and `complete` set by hand, checksum and all."""
    (folder / "witnesses.json").unlink()
    change(folder, "manifest.json", lambda m: m["files"].pop("witnesses.json"))
    assert "files: witnesses.json is missing" in refused(run, folder)


@pytest.mark.parametrize("name", ["server.pcap", "client.pcap", "witnesses.json"])
def test_a_file_that_the_verdict_rests_on_cannot_be_left_out_of_the_list(run, folder, name):
    change(folder, "manifest.json", lambda m: m["files"].pop(name))
    assert f"files: {name} is missing" in refused(run, folder)


def test_the_file_that_proves_the_option_must_be_in_the_list(run, folder):
    change(folder, "manifest.json", lambda m: m["files"].pop("proxy.conf"))
    assert "files: proxy.conf is missing" in refused(run, folder)


def test_a_capture_that_was_added_is_refused(run, folder):
    shutil.copy(folder / "server.pcap", folder / "added.pcap")
    assert "added.pcap: not part of this run" in refused(run, folder)


def test_what_a_person_puts_beside_a_run_is_not_its_business(run, folder):
    (folder / "notes.txt").write_text("as seen on Monday")
    assert run("show", folder)[0] == Exit.OK
    assert run("show", folder, "--html", folder / "report.html")[0] == Exit.OK
    assert run("show", folder)[0] == Exit.OK


@pytest.mark.parametrize("name", ["../outside.pcap", "/etc/passwd", "..", ".", "", "a/b", "x\n", "\x1b[2J", "c\0d"])
def test_no_name_leads_out_of_the_folder(run, folder, name):
    shutil.copy(folder / "server.pcap", folder.parent / "outside.pcap")
    change(folder, "manifest.json", lambda m: m["files"].update({name: m["files"]["server.pcap"]}))
    assert "which is not a plain name" in refused(run, folder)


def test_no_capture_lies_elsewhere(run, folder):
    def move(manifest: dict[str, Any]) -> None:
        manifest["captures"]["../server"] = manifest["captures"].pop("server")

    change(folder, "manifest.json", move)
    assert "which is not a plain name" in refused(run, folder)


@pytest.mark.parametrize("name", ["server.pcap", "load.txt", "witnesses.json", "manifest.json"])
def test_a_link_is_refused_wherever_it_leads(run, folder, name):
    (folder / name).rename(folder.parent / "outside")
    (folder / name).symlink_to("../outside")
    assert f"{name}: not a regular file" in refused(run, folder)


def test_a_pipe_is_refused_before_anybody_waits_for_it(run, folder):
    (folder / "load.txt").unlink()
    os.mkfifo(folder / "load.txt")
    assert "load.txt: not a regular file" in refused(run, folder)


def test_a_stored_result_that_was_edited_convinces_nobody(run, folder):
    """Every command judges the captures again; storing writes the true result over it."""
    store(judge_run(folder))
    true = (folder / "result.json").read_text()
    for name in ("result.json", "server.json", "client.json"):
        (folder / name).write_text((folder / name).read_text().replace("STALL", "CLEAN"))
    assert run("show", "--json", folder)[1] == true
    assert "CLEAN" not in run("show", folder)[1]
    store(judge_run(folder))
    assert (folder / "result.json").read_text() == true


def test_a_capture_and_its_checksum_replaced_together_are_held_against_the_witnesses(run, folder):
    """No checksum can tell; whoever replaces the witnesses, too, is not found out: that would take a signature."""
    shutil.copy(DIRECT / "server.pcap", folder / "server.pcap")
    reseal(folder, "server.pcap")
    code, out, _ = run("show", "--json", folder)
    assert (code, json.loads(out)["verdict"]) == (Exit.UNUSABLE, "INVALID")
    assert "0 sent and 0 received in the capture, 256 and 200 in the kernel" in out


@pytest.mark.parametrize("name", ["manifest.json", "witnesses.json"])
@pytest.mark.parametrize(
    "content", [b"", b"{", b"[" * 100_000, b"\xff\xfe", b"null", b"7" * 5000, b'{"a":' * 50_000, b" " * (17 << 20),
     b'{"a":' * 100 + b"1" + b"}" * 100, b'{"a": 1e999}', b'{"a": NaN}', b"[]", b'"text"'],
    ids=["empty", "cut", "deep", "no text", "null", "long number", "deep objects", "huge", "whole",
         "inf", "nan", "a list", "a string"],
)  # fmt: skip
def test_what_is_no_json_is_one_line(run, folder, name, content):
    (folder / name).write_bytes(content)
    if name == "witnesses.json":
        reseal(folder, name)
    said = refused(run, folder)
    assert name in said
    assert ("too large to have been written" in said) is (len(content) > 16 << 20)


def test_a_manifest_of_another_time_says_so(run, folder):
    change(folder, "manifest.json", lambda m: m.update(schema="nagle-lab-manifest/9"))
    assert "'nagle-lab-manifest/9' - at `$.schema`: this nagle-lab cannot read it" in refused(run, folder)


# ---------------------------------------------------------------------- every key and value, one after the other

ODD = (None, [], "", "\x1b]0;x\x07\u202e", -1, 1e308, 10**400, {"a": None})
MISSING = object()


@pytest.mark.parametrize(
    ("kind", "name", "under"),
    [
        pytest.param(DIRECT, "manifest.json", ("schema", "captures", "expected"), id="manifest of two ends"),
        pytest.param(PROXIED, "manifest.json", (), id="manifest of a proxy between them"),
        pytest.param(DIRECT, "witnesses.json", (), id="witnesses"),
    ],
)
def test_whatever_stands_in_a_run_folder_is_reported_or_refused_in_one_line(tmp_path, monkeypatch, kind, name, under):
    """Each key left out, each value replaced by each odd one: a whole report, or NagleLabError; nothing else."""
    folder = Path(shutil.copytree(kind, tmp_path / "run"))
    known: dict[Path, Any] = {}
    monkeypatch.setattr(runs, "analyze", lambda path, **_: known.get(path) or known.setdefault(path, analyze(path)))
    manifest = (folder / "manifest.json").read_bytes()
    text = (folder / name).read_text()
    ended = {"refused": 0, "reported": 0}
    for path in (path for path in paths(json.loads(text)) if not under or path[0] in under):
        for odd in (MISSING, *ODD):
            if name != "manifest.json":
                rewrite(folder / "manifest.json", manifest)
            write(folder, name, edited(text, path, odd))
            try:
                report_everywhere(folder)
                ended["reported"] += 1
            except NagleLabError as error:
                assert str(error).startswith((str(folder), folder.name)), (path, odd)
                ended["refused"] += 1
    assert min(ended.values()) >= 10  # both ways to end are really taken


def paths(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in a JSON value; of members that are alike the first, and the counter that a verdict rests on."""
    if at:
        yield at
    if isinstance(value, dict):
        objects = [key for key, member in value.items() if isinstance(member, dict)]
        alike = (len(at) == 1 and len(objects) == len(value)) or len(value) > 20
        for key in value:
            if not alike or key == next(iter(value)) or key == "TcpExt.DelayedACKs":
                yield from paths(value[key], (*at, key))
    elif isinstance(value, list):
        for i, member in enumerate(value):
            yield from paths(member, (*at, i))


def edited(text: str, path: tuple[Any, ...], odd: object) -> Any:
    """What JSON says, with one place left out or replaced."""
    found = json.loads(text)  # anew: to copy it deeply would take five times as long
    parent = found
    for key in path[:-1]:
        parent = parent[key]
    if odd is MISSING:
        del parent[path[-1]]
    else:
        parent[path[-1]] = odd
    return found


def report_everywhere(folder: Path) -> None:
    """Everything that reads a manifest or witnesses, but the drawings, which are of captures."""
    run = judge_run(folder)
    run.to_json()
    said = StringIO()
    show_run(run, None, Console(file=said, width=100, highlight=False, markup=False, emoji=False), [])
    assert said.getvalue().replace("\n", "").isprintable()
    suite = suite_of_run(run, run.exit_code(), run.contradictions)
    for text in (junit([suite]), page_of_run(run, None, run.contradictions)):
        assert "\x1b" not in text
    if run.verdict in ("STALL", "CLEAN"):
        figures_of(run)
    both = comparison.compared([comparison.subject_of_run(run)] * 2)
    both.to_json()
    result = run.results[run.best]
    plain = replace(result, idle_gaps={}, summary=replace(result.summary, exchange_ms=None, wait_ms=None))
    name = f"{run.manifest.scenario} / {run.manifest.variant}"
    assert "\x1b" not in report_page([Shown(name, run.verdict, run.reason, plain, Examples(), run)])
