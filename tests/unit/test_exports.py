"""The files beside the screen: JUnit against its schema, CSV against the result, Markdown without foreign markup."""

import csv
import importlib
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from lxml import etree

from nagle_lab.diagnosis.analysis import analyze
from nagle_lab.diagnosis.result.verdict import Verdict
from nagle_lab.errors import Exit, NagleLabError
from nagle_lab.evidence.examples import examples
from nagle_lab.experiments import trials
from nagle_lab.experiments.trials import TrialOutcome
from nagle_lab.lab.scenarios.scenario_file import find_scenario
from nagle_lab.reports.files.junit import Case, Suite, junit, suites_of_matrix
from nagle_lab.reports.files.markdown import escaped
from nagle_lab.runs.run import judge_run
from support.experiments import filled
from support.repository import REFERENCE
from support.run_folders import change
from support.stories import nodelay, server_held, talk
from support.synthetic import pcap_bytes
from support.waiting import within

OFF, ON = REFERENCE / "nginx-static-nodelay-off", REFERENCE / "nginx-static-nodelay-on"
SCHEMA = etree.XMLSchema(etree.parse(Path(__file__).parents[1] / "support" / "junit.xsd"))
HOSTILE = "=cmd|' /C calc'!A0\x1b[31m\x00<b>&\"]]>\ufffe\ud800\n@you`x` 🐢"


def parsed(text: str | bytes) -> etree._Element:
    root = etree.fromstring(text.encode() if isinstance(text, str) else text)
    SCHEMA.assertValid(root)
    for suite in root:
        cases = suite.findall("testcase")
        for attribute, kind in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
            assert int(suite.get(attribute)) == len(suite.findall(f"testcase/{kind}"))
        assert int(suite.get("tests")) == len(cases)
    return root


def ended(root: etree._Element) -> dict[str, str]:
    """How each case ended, by name."""
    return {case.get("name"): case[0].tag if len(case) else "passed" for case in root.iter("testcase")}


def test_markdown_names_the_software_as_the_screen_does(run, tmp_path):
    page = tmp_path / "page.md"
    _, out, _ = run("analyze", ON / "server.pcap", "--markdown", page)
    assert ":8080, nginx: the busiest connection" in " ".join(out.split())
    assert ":8080, nginx: the busiest connection" in page.read_text()


@pytest.fixture
def captures(tmp_path) -> Path:
    """A stalled, a clean, a too short, and an unusable capture."""
    for name, segments in (
        ("stalled.pcap", talk(server_held).segments),
        ("clean.pcap", talk(nodelay).segments),
        ("short.pcap", talk(nodelay, exchanges=3).segments),
    ):
        (tmp_path / name).write_bytes(pcap_bytes(segments))
    (tmp_path / "text.pcap").write_text("not a capture")
    return tmp_path


NAMES = ("stalled.pcap", "clean.pcap", "short.pcap", "text.pcap", "missing.pcap")


# --------------------------------------------------------------------------------------------- JUnit


@pytest.mark.parametrize(
    ("expect", "stalled", "clean"),
    [("clean", "failure", "passed"), ("stall", "passed", "failure"), (None, "passed", "passed")],
)
def test_junit_tells_contradicted_unusable_and_inconclusive_apart(run, captures, expect, stalled, clean):
    file = captures / "j.xml"
    arguments = ["--expect", expect] if expect else []
    got, _, _ = run("analyze", *(captures / name for name in NAMES), *arguments, "--junit", file)
    assert got == Exit.UNUSABLE  # the worst of them
    root = parsed(file.read_bytes())
    assert ended(root) == dict(zip(NAMES, (stalled, clean, "skipped", "error", "error"), strict=True))
    assert "10 are needed" in root.find(".//skipped").get("message")
    if expect:
        assert f"expected {expect.upper()}, found" in root.find(".//failure").get("message")


def test_the_time_of_captures_is_that_of_their_earliest_packet(run, captures, tmp_path):
    times = [analyze(captures / name).source.first_time for name in NAMES[:2]]
    file = tmp_path / "j.xml"
    run("analyze", *(captures / name for name in NAMES[:2]), "--junit", file)
    assert parsed(file.read_bytes())[0].get("timestamp") == min(times)[:19]
    run("analyze", captures / NAMES[-1], "--junit", file)
    assert not parsed(file.read_bytes())[0].get("timestamp").startswith("1970")


def test_junit_of_runs_tells_what_ran_and_every_witness(run, tmp_path):
    file = tmp_path / "j.xml"
    assert run("analyze", OFF, ON, "--junit", file)[0] == 0
    root = parsed(file.read_bytes())
    assert ended(root) == {"nodelay-off": "passed", "nodelay-on": "passed"}
    assert [suite.get("timestamp") for suite in root] == [
        json.loads((folder / "manifest.json").read_text())["started"][:19] for folder in (OFF, ON)
    ]
    assert root.find(".//property[@name='TCP_NODELAY']").get("value") == "off"
    assert (
        "agrees: delayed ACKs of the client: 96 in the capture, 96 in the kernel" in root[0].find("system-out").text
    )
    again = tmp_path / "again.xml"
    run("analyze", OFF, ON, "--junit", again)
    assert again.read_bytes() == file.read_bytes()


def test_junit_of_a_run_held_against_another_expectation(run, tmp_path):
    file, page = tmp_path / "j.xml", tmp_path / "m.md"
    code, out, err = run("analyze", OFF, "--expect", "clean", "--junit", file, "--markdown", page)
    assert (code, "NOT AS EXPECTED" in out) == (Exit.CONTRADICTED, True)
    assert err.startswith("nagle-lab: expected CLEAN, found STALL; captures in ")
    root = parsed(file.read_bytes())
    assert root.find(".//failure").get("message").startswith("STALL: expected CLEAN, found STALL; 96 of 100")
    assert "### 🔴 STALL, not as expected · nginx-static" in page.read_text()
    assert "**not as expected**: expected CLEAN, found STALL" in page.read_text()


def test_a_run_that_is_not_as_its_variant_expects_but_as_asked_for(run, tmp_path):
    folder = shutil.copytree(OFF, tmp_path / "run")
    change(folder, "manifest.json", lambda m: m["expected"].update(verdict="CLEAN"))
    code, out, err = run("analyze", folder)
    assert (code, "NOT AS EXPECTED" in out, "found STALL" in err) == (Exit.CONTRADICTED, True, True)
    code, out, err = run("analyze", folder, "--expect", "stall")
    assert (code, "NOT AS EXPECTED" in out, err) == (Exit.OK, False, "")


def test_junit_survives_whatever_is_in_a_name():
    text = junit(
        [Suite(HOSTILE, [Case(HOSTILE, Exit.CONTRADICTED, "STALL", HOSTILE)], HOSTILE, {HOSTILE: HOSTILE}, [HOSTILE])]
    )
    root = parsed(text.encode())
    assert '\\x1b[31m\\x00<b>&"]]>\\ufffe\\ud800\\n@you' in root.find(".//failure").get("message")
    assert root[0].get("timestamp") == "1970-01-01T00:00:00"


def test_an_empty_name_is_still_valid():
    parsed(junit([Suite(" ", [Case("", Exit.INCONCLUSIVE, "INCONCLUSIVE", "")]), Suite("none", [])]))


def outcome(code, verdict, reason=""):
    return TrialOutcome(code, verdict, reason, "a-run", None)


def test_junit_of_a_matrix_has_a_case_for_every_run(run, tmp_path, monkeypatch):
    scenario = find_scenario("node-keepalive")
    kinds = [
        outcome(Exit.OK, Verdict.STALL),
        outcome(Exit.CONTRADICTED, Verdict.CLEAN, "expected STALL"),
        outcome(Exit.UNUSABLE, None, "no server"),
        outcome(Exit.INCONCLUSIVE, Verdict.INCONCLUSIVE, "no moon"),
    ]
    matrix = filled(scenario, *kinds * len(scenario.variants), repeat=2)
    root = parsed(junit(suites_of_matrix(matrix)))
    found = ended(root)
    assert len(found) == matrix.planned and set(found.values()) == {"passed", "failure", "error", "skipped"}
    assert all(name.endswith((" #1", " #2")) for name in found)
    assert root[0].get("timestamp") == "2026-11-21T04:00:00"


@pytest.fixture
def recorded(monkeypatch, tmp_path):
    """Runs are not made: the reference run takes their place."""
    folder = shutil.copytree(OFF, tmp_path / "run")
    monkeypatch.setattr(trials, "record", lambda *_, **__: folder)
    return tmp_path


def test_run_writes_junit_and_markdown(run, recorded):
    code, _, _ = run("run", "nginx-static", "nodelay-off", "--junit", recorded / "j", "--markdown", recorded / "m")
    assert code == 0
    assert ended(parsed((recorded / "j").read_bytes())) == {"nodelay-off": "passed"}
    assert "### 🟢 STALL, as expected · nginx-static / nodelay-off" in (recorded / "m").read_text()


def test_matrix_writes_junit(run, recorded):
    code, _, _ = run("matrix", "node-keepalive", "--junit", recorded / "j.xml")
    assert code == Exit.OK  # the reference run is as expected, whatever was asked for
    assert set(ended(parsed((recorded / "j.xml").read_bytes())).values()) == {"passed"}


# ----------------------------------------------------------------------------------------------- tables


def rows(file: Path) -> list[dict[str, str]]:
    with file.open(newline="") as stream:
        return list(csv.DictReader(stream))


def test_csv_has_every_stall_and_every_connection(run, captures):
    file = captures / "out.csv"
    assert run("analyze", captures / "stalled.pcap", OFF, "--csv", file)[0] == 0
    stalls, connections = rows(file), rows(captures / "out.connections.csv")
    own = json.loads(run("analyze", "--json", captures / "stalled.pcap")[1])
    server = json.loads((OFF / "server.json").read_text())
    client = json.loads((OFF / "client.json").read_text())
    results = {"stalled.pcap": own, f"{OFF.name}/server.pcap": server, f"{OFF.name}/client.pcap": client}
    for name, result in results.items():
        told = [row for row in stalls if row["file"] == name]
        assert len(told) == len(result["stalls"])
        for number, (row, stall) in enumerate(zip(told, result["stalls"], strict=True), 1):
            assert int(row["stall"]) == number
            for key in (
                "connection",
                "exchange",
                "trigger_frame",
                "ack_frame",
                "release_frame",
                "wait_ms",
                "release_us",
            ):
                assert float(row[key]) == stall[key]
            assert row["held_ip"] == stall["held_by"]["ip"]
        told = [row for row in connections if row["file"] == name]
        assert [int(row["stalls"]) for row in told] == [c["stalls"] for c in result["connections"]]
        assert [int(row["client_payload_bytes"]) for row in told] == [
            c["sent"]["client"]["payload_bytes"] for c in result["connections"]
        ]


def test_csv_has_every_exchange(run, captures):
    """As many as the summary counts, the stalled ones marked, their times spread as the summary says."""
    file = captures / "out.csv"
    assert run("analyze", OFF, "--csv", file)[0] == 0
    exchanges = rows(captures / "out.exchanges.csv")
    for end in ("server", "client"):
        summary = json.loads((OFF / f"{end}.json").read_text())["summary"]
        told = [row for row in exchanges if row["file"] == f"{OFF.name}/{end}.pcap"]
        assert len({(row["connection"], row["exchange"]) for row in told}) == len(told) == summary["exchanges"]
        assert sum(int(row["stalled"]) for row in told) == summary["stalled_exchanges"]
        assert all(float(row["asked_s"]) > 0 for row in told)
        for column in ("request_to_ack_ms", "request_to_response_ms", "exchange_ms"):
            seen = sorted(float(row[column]) for row in told if row[column])
            assert seen[-1] == summary[column]["max"]
            assert seen[-(-len(seen) // 2) - 1] == summary[column]["p50"]  # nearest rank


@pytest.mark.parametrize("begin", ["=", "+", "-", "@", "\uff1d", "\uff20"])
def test_a_file_s_name_is_no_formula(run, captures, begin):
    name = f"{begin}1+1.pcap"
    (captures / name).write_bytes((captures / "stalled.pcap").read_bytes())
    run("analyze", captures / name, "--csv", captures / "out.csv")
    assert {row["file"] for row in rows(captures / "out.csv")} == {f"'{name}"}


def test_parquet_without_pyarrow_is_one_line(run, captures, monkeypatch):
    def missing(name):
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", missing)
    code, out, err = run("analyze", captures / "clean.pcap", "--parquet", captures / "out.parquet")
    assert (code, out) == (Exit.UNUSABLE, "")
    assert "needs pyarrow" in err and err.count("\n") == 1
    assert not list(captures.glob("*out*")) and not list(captures.glob(".*"))


# --------------------------------------------------------------------------------------------- Markdown


def test_markdown_tells_verdict_figures_remedy_and_a_ladder(run, captures):
    file = captures / "m.md"
    run("analyze", *(captures / name for name in NAMES), "--markdown", file)
    text = file.read_text()
    for said in (
        "### 🔴 STALL · stalled.pcap",
        "### 🟢 CLEAN · clean.pcap",
        "INCONCLUSIVE · short.pcap",
        "unusable · text.pcap",
    ):
        assert said in text
    assert "| remedy | On the server" in text and "set TCP\\_NODELAY" in text
    assert text.count("```text") == 1 and "late ACK" in text


def test_what_comes_from_names_is_no_markup():
    text = escaped(HOSTILE + "[x](http://y) | a_b *c* ~~d~~ # e")
    assert "\n" not in text and "\x1b" not in text and "<b>" not in text and "@you" not in text
    assert "\\[x\\](" in text and " \\| " in text and "\\`x\\`" in text


# ---------------------------------------------------------------------------------------------- files


@pytest.mark.parametrize("option", ["--junit", "--markdown", "--csv"])
def test_a_file_that_cannot_be_written_is_said_before_anything_is_done(run, captures, option):
    code, out, err = run("analyze", captures / "clean.pcap", option, captures / "no" / "such" / "folder")
    assert (code, out) == (Exit.UNUSABLE, "")
    assert "cannot be written" in err and err.count("\n") == 1


def test_two_outputs_of_one_name_are_refused(run, captures):
    same = captures / "same"
    code, _, err = run("analyze", captures / "clean.pcap", "--junit", same, "--markdown", same)
    assert code == Exit.UNUSABLE and "name the same file" in err and not same.exists()


@pytest.mark.parametrize("option", ["--html", "--csv", "--junit", "--markdown"])
@pytest.mark.parametrize("there", [b"\xd4\xc3\xb2\xa1", b"\x0a\x0d\x0d\x0a", b"\x1f\x8b\x08", b"#!/bin/sh"])
def test_no_capture_or_program_becomes_a_report(run, captures, option, there):
    """As where a shell makes two names of ``--html *.pcap``."""
    precious = captures / "other.pcap"
    precious.write_bytes(there + b" and more")
    code, out, err = run("analyze", option, precious, captures / "clean.pcap")
    assert (code, out) == (Exit.UNUSABLE, "")
    assert err.endswith("is there, and would be lost: name another file\n")
    assert precious.read_bytes() == there + b" and more"


def test_nor_is_one_file_written_by_two_names(run, captures, monkeypatch):
    """By a relative and an absolute path, by a symbolic link, or as the table beside another one."""
    monkeypatch.chdir(captures)
    (captures / "link.html").symlink_to("page.html")
    for one, other in (
        (("--html", "page.html"), ("--markdown", captures / "page.html")),
        (("--html", "page.html"), ("--junit", "link.html")),
        (("--csv", "all.csv"), ("--html", "all.connections.csv")),
    ):
        code, _, err = run("analyze", captures / "clean.pcap", *one, *other)
        assert code == Exit.UNUSABLE and "name the same file" in err and not (captures / one[1]).exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ("analyze", "clean.pcap", "--html", "clean.pcap"),
        ("analyze", "stalled.pcap", "clean.pcap", "--junit", "link.pcap"),
        ("analyze", "clean.pcap", "--markdown", "hard.pcap"),
        ("analyze", "clean.pcap", "--csv", "clean.pcap"),
        ("analyze", "t.connections.pcap", "--csv", "t.pcap"),
        ("analyze", "--rotated", "stalled.pcap", "clean.pcap", "--html", "clean.pcap"),
        ("analyze", "--same-traffic", "stalled.pcap", "clean.pcap", "--html", "clean.pcap"),
        ("show", "clean.pcap", "--html", "clean.pcap"),
        ("compare", "stalled.pcap", "clean.pcap", "--html", "clean.pcap"),
        ("compare", "stalled.pcap", "clean.pcap", "--markdown", "./stalled.pcap"),
    ],
)
def test_a_capture_that_is_read_is_never_written_over(run, captures, monkeypatch, arguments):
    monkeypatch.chdir(captures)
    Path("link.pcap").symlink_to("clean.pcap")
    Path("hard.pcap").hardlink_to("clean.pcap")
    shutil.copy("clean.pcap", "t.connections.pcap")
    before = {path: path.read_bytes() for path in captures.iterdir()}
    code, out, err = run(*arguments)
    assert (code, out) == (Exit.UNUSABLE, "")
    assert "it is an input of this command: name another file" in err and err.count("\n") == 1
    assert {path: path.read_bytes() for path in captures.iterdir()} == before


@pytest.mark.parametrize("command", ["analyze", "show", "annotate"])
def test_what_a_run_recorded_is_never_written_over_but_a_report_in_its_folder_is(run, tmp_path, command):
    folder = shutil.copytree(OFF, tmp_path / "run")
    capture = (folder / "client.pcap").read_bytes()
    option = ["--force", "-o"] if command == "annotate" else ["--html"]
    code, _, err = run(command, folder, *option, folder / "client.pcap")
    assert code == Exit.UNUSABLE and "it is an input of this command" in err
    assert (folder / "client.pcap").read_bytes() == capture
    if command != "annotate":
        for _ in range(2):
            assert run(command, folder, *option, folder / "report.html")[0] == Exit.OK


def test_slides_are_not_written_over_a_committed_capture(run, captures, monkeypatch):
    monkeypatch.setattr("nagle_lab.cli.lab.demo.COMMITTED", (captures,))
    before = (captures / "clean.pcap").read_bytes()
    code, _, err = run("demo", "--slides", captures / "clean.pcap")
    assert code == Exit.UNUSABLE and "it is an input of this command" in err
    assert (captures / "clean.pcap").read_bytes() == before


def test_a_guard_writes_no_report_over_its_recording(run, tmp_path):
    code, _, err = run("guard", "--keep", tmp_path, "--json", tmp_path / "capture.pcapng", "--", "true")
    assert code == Exit.UNUSABLE and "it is an input of this command" in err


def test_an_interrupted_diagnosis_leaves_no_half_written_file(run, captures, monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("nagle_lab.cli.captures.analyze.Analysis", interrupt)
    files = ["--junit", captures / "o.xml", "--csv", captures / "o.csv", "--markdown", captures / "o.md"]
    before = sorted(captures.iterdir())
    assert run("analyze", captures / "clean.pcap", *files)[0] == Exit.INTERRUPTED
    assert sorted(captures.iterdir()) == before


@pytest.mark.parametrize("kept", [0.0, 0.1])
def test_a_capture_that_changes_while_it_is_read_is_one_line(run, captures, monkeypatch, kept):
    """Its packets are read once more to be shown: tcpdump -W may have begun it anew by then."""
    capture = captures / "stalled.pcap"

    def changed(*arguments, **options):
        os.truncate(capture, 24 + int(kept * (capture.stat().st_size - 24)))
        return examples(*arguments, **options)

    monkeypatch.setattr("nagle_lab.cli.captures.outcome.examples", changed)
    code, _, err = run("analyze", capture)
    assert code == Exit.UNUSABLE
    assert err == "nagle-lab: stalled.pcap: changed while it was read: copy it, then name the copy\n"


@pytest.mark.parametrize("output", ["csv", "annotate"])
def test_a_diagnosis_that_is_ended_leaves_no_half_written_file(tmp_path, output):
    """By SIGTERM, as timeout(1) and CI systems do."""
    waits = "import time, nagle_lab.{} as module; module.{} = lambda *_, **__: time.sleep(60)"
    at = ("evidence.annotation", "copy_commented") if output == "annotate" else ("cli.captures.analyze", "_take_all")
    options = ["annotate", "-o", "x.pcapng"] if output == "annotate" else ["analyze", "--csv=x.csv"]
    program = f"{waits.format(*at)}; from nagle_lab.cli.main import main; main()"
    command = [sys.executable, "-c", program, *options, str(OFF / "server.pcap")]
    with subprocess.Popen(command, cwd=tmp_path) as ended:
        assert within(30, lambda: list(tmp_path.iterdir())), "it has begun to write"
        ended.terminate()
    assert ended.returncode == 128 + signal.SIGTERM
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("length", [240, 250])
def test_a_file_may_have_the_longest_name(run, captures, length):
    """250 letters and .html are 255 bytes, the most that a name can have."""
    page = captures / f"{length * 'n'}.html"
    assert run("analyze", captures / "stalled.pcap", "--html", page)[0] == 0
    assert page.read_text().startswith("<!DOCTYPE html>")


def test_a_file_that_is_replaced_keeps_its_permissions(run, captures):
    page = captures / "private.md"
    page.touch(0o600)
    assert run("analyze", captures / "stalled.pcap", "--markdown", page)[0] == 0
    assert "STALL" in page.read_text() and page.stat().st_mode & 0o777 == 0o600


def test_a_run_that_cannot_be_judged_is_an_error_case(run, tmp_path):
    folder = shutil.copytree(OFF, tmp_path / "run")
    (folder / "load.txt").write_text("changed")
    with pytest.raises(NagleLabError):
        judge_run(folder)
    run("analyze", folder, "--junit", tmp_path / "j.xml")
    assert ended(parsed((tmp_path / "j.xml").read_bytes())) == {"run": "error"}


# --------------------------------------------------------------------------------------------- no room


@pytest.mark.parametrize("output", ["junit", "markdown", "html", "csv", "parquet", "annotate"])
def test_a_file_for_which_there_is_no_room_is_named(tmp_path, output):
    """`ulimit -f` refuses the first byte, as a full disk does: where it is written, or where the file is closed."""
    if output == "parquet":
        pytest.importorskip("pyarrow")
    file, capture = tmp_path / f"x.{output}", OFF / "server.pcap"
    options = ["annotate", "-o", file] if output == "annotate" else ["analyze", f"--{output}={file}"]
    command = ["sh", "-c", 'ulimit -f 0; exec "$@"', "sh", sys.executable, "-m", "nagle_lab", *options, capture]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == Exit.UNUSABLE
    assert {line.partition(": too large")[0] for line in done.stderr.splitlines()} == {f"nagle-lab: {file}"}
    assert list(tmp_path.iterdir()) == []
