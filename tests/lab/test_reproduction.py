"""The lab itself, on Docker: every variant gives its verdict, whatever the sizes; and so do the README's commands."""

import json
import os
import subprocess
from pathlib import Path

import pytest
from lab.recording import NAGLE_LAB, REPOSITORY, assert_its_story, left_on_engine, undisturbed

from nagle_lab.lab.scenarios.scenario_file import find_scenario
from nagle_lab.runs.witnesses import Counters
from support.command import in_process
from support.schemas import check

pytestmark = [pytest.mark.quiet, pytest.mark.long]


def run(runs: Path, variant: str, **parameters: str) -> subprocess.CompletedProcess[str]:
    command = [NAGLE_LAB, "run", "nginx-static", variant, "--json", "--runs", runs]
    options = {"env": os.environ | parameters, "capture_output": True, "text": True, "timeout": 120}
    return undisturbed(lambda: subprocess.run(command, check=False, **options))


def folder_of(runs: Path, variant: str) -> Path:
    return (runs / f"latest-nginx-static-{variant}").resolve(strict=True)


@pytest.mark.parametrize(("variant", "verdict"), [("nodelay-off", "STALL"), ("nodelay-on", "CLEAN")])
def test_the_readme_commands(variant, verdict):
    """`make repro-…`, as published: its screen, and what it has recorded."""
    options = {"cwd": REPOSITORY, "capture_output": True, "text": True, "timeout": 300}
    done = undisturbed(lambda: subprocess.run(["make", f"repro-{variant}"], check=False, **options))
    assert done.returncode == 0, done.stderr
    assert f" {verdict} " in done.stdout
    assert f"as expected   {verdict}" in done.stdout
    assert (" trigger\n" in done.stdout) is (verdict == "STALL")
    runs = REPOSITORY / "captures" / "runs"
    assert_recorded_as_published(folder_of(runs, variant), variant, verdict)
    assert left_on_engine(runs) == []


@pytest.mark.parametrize("variant", ["no-keepalive", "nopush"])
def test_a_variant_gives_its_verdict(tmp_path, variant):
    done = run(tmp_path, variant)
    assert done.returncode == 0, done.stderr
    folder = folder_of(tmp_path, variant)
    assert (folder / "result.json").read_text() == done.stdout
    assert_recorded_as_published(folder, variant, "CLEAN")
    assert left_on_engine(tmp_path) == []


def assert_recorded_as_published(folder: Path, variant: str, verdict: str) -> None:
    """1000 requests on 100 connections; all but the first of a connection stall, or none does."""
    result = json.loads((folder / "result.json").read_text())
    check("run", result)
    expected = find_scenario("nginx-static").variant(variant).expected
    assert (result["verdict"], result["as_expected"]) == (verdict, True)
    assert_its_story(result, expected)
    for figures in result["noise"].values():
        assert 0 < figures["p50"] <= figures["max"]
    counters = Counters(**json.loads((folder / "witnesses.json").read_text())["counters"]["client"])
    for end in ("server", "client"):
        summary = result["captures"][end]["summary"]
        assert summary["exchanges"] == 1000
        most = summary["repeat_exchanges"] if verdict == "STALL" else 0
        # On a busy machine releases may reach the client too late to tell them from pauses: it leaves those open.
        open_ones = sum(result["captures"][end]["quality"]["unresolved"].values()) if end == "client" else 0
        assert most * (expected.min_share_after_first or 0) <= summary["stalled_exchanges"] + open_ones
        assert summary["stalled_exchanges"] <= most
        # A client that reads late on a busy machine acknowledges then, sooner than the timer would.
        waits = [stall["wait_ms"] for stall in json.loads((folder / f"{end}.json").read_text())["stalls"]]
        assert counters.grown("TcpExt.DelayedACKs") >= sum(wait >= 38 for wait in waits)
        stored = (folder / f"{end}.json").read_text()
        assert in_process("analyze", "--json", folder / f"{end}.pcap").out == stored


def test_the_parameters_reach_the_load(tmp_path):
    done = run(tmp_path, "nodelay-off", REQUESTS="40", CONCURRENCY="1", PAGE_BYTES="100")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    summary = result["captures"]["server"]["summary"]
    assert (summary["connections"], summary["exchanges"]) == (1, 40)
    assert 36 <= summary["stalled_exchanges"] <= 39  # nine in ten, or the run is not as expected
    assert "ab -n 40 -c 1 -k" in result["load"]["command"]
    stalls = json.loads((folder_of(tmp_path, "nodelay-off") / "server.json").read_text())["stalls"]
    assert {s["released_bytes"] for s in stalls} == {100}


@pytest.mark.parametrize("parameters", [{"PAGE_BYTES": "4000"}, {"KEEPALIVE": "off"}], ids=["full segments", "no -k"])
def test_a_contradicted_expectation_is_exit_1_and_says_where_the_captures_are(tmp_path, parameters):
    """A full segment is never held, and a connection's first exchange never stalls: CLEAN where STALL is expected."""
    done = run(tmp_path, "nodelay-off", REQUESTS="100", CONCURRENCY="4", **parameters)
    assert done.returncode == 1
    assert json.loads(done.stdout)["verdict"] == "CLEAN"
    last = done.stderr.splitlines()[-1]
    assert "expected STALL, found CLEAN" in last
    assert str(folder_of(tmp_path, "nodelay-off")) in last
