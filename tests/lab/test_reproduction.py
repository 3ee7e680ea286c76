"""The lab itself, on Docker: every variant gives its verdict, whatever the sizes, alone and beside another run."""

import json
import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from lab.recording import REPOSITORY, assert_never_wrong, docker, engine_holds, left_on_engine, undisturbed

from nagle_lab.lab.scenarios.scenario_file import find_scenario
from nagle_lab.lab.session import record
from nagle_lab.runs.run import judge
from nagle_lab.runs.witnesses import Counters
from support.schemas import check

NAGLE_LAB = REPOSITORY / ".venv" / "bin" / "nagle-lab"

pytestmark = pytest.mark.quiet


def run(runs: Path, variant: str, **parameters: str) -> subprocess.CompletedProcess[str]:
    command = [NAGLE_LAB, "run", "nginx-static", variant, "--json", "--runs", runs]
    options = {"env": os.environ | parameters, "capture_output": True, "text": True, "timeout": 120}
    return undisturbed(lambda: subprocess.run(command, check=False, **options))


def folder_of(runs: Path, variant: str) -> Path:
    return (runs / f"latest-nginx-static-{variant}").resolve(strict=True)


@pytest.mark.parametrize(
    ("variant", "verdict"),
    [("nodelay-off", "STALL"), ("nodelay-on", "CLEAN"), ("no-keepalive", "CLEAN"), ("nopush", "CLEAN")],
)
def test_a_variant_gives_its_verdict(tmp_path, variant, verdict):
    """As published: 1000 requests on 100 connections; all but the first of a connection stall, or none does."""
    done = run(tmp_path, variant)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    check("run", result)
    share = find_scenario("nginx-static").variant(variant).expected.min_share_after_first or 0
    assert (result["verdict"], result["as_expected"]) == (verdict, True)
    assert [c["name"] for c in result["checks"] if not c["ok"]] == []
    for figures in result["noise"].values():
        assert 0 < figures["p50"] <= figures["max"]
    folder = folder_of(tmp_path, variant)
    counters = Counters(**json.loads((folder / "witnesses.json").read_text())["counters"]["client"])
    for end in ("server", "client"):
        summary = result["captures"][end]["summary"]
        assert summary["exchanges"] == 1000
        most = summary["repeat_exchanges"] if verdict == "STALL" else 0
        assert most * share <= summary["stalled_exchanges"] <= most
        assert counters.grown("TcpExt.DelayedACKs") >= summary["stalled_exchanges"]
        stored = (folder / f"{end}.json").read_text()
        again = subprocess.run(
            [NAGLE_LAB, "analyze", "--json", folder / f"{end}.pcap"], capture_output=True, text=True, check=True
        )
        assert again.stdout == stored
    assert (folder / "result.json").read_text() == done.stdout
    assert left_on_engine(tmp_path) == []


def test_the_parameters_reach_the_load(tmp_path):
    done = run(tmp_path, "nodelay-off", REQUESTS="40", CONCURRENCY="1", PAGE_BYTES="100")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    summary = result["captures"]["server"]["summary"]
    assert (summary["connections"], summary["exchanges"]) == (1, 40)
    assert 37 <= summary["stalled_exchanges"] <= 39
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


def test_stopping_tcpdump_naively_loses_packets_and_the_run_says_so(tmp_path):
    """libpcap hands over its last block late; a capture stopped before that is INVALID, and is kept."""
    scenario = find_scenario("nginx-static")
    folder = record(scenario, scenario.variant("nodelay-off"), {}, tmp_path, lambda _: None, stop="naive")
    judged = judge(folder)
    assert (judged.verdict, judged.exit_code()) == ("INVALID", 2)
    assert "lossless at the" in judged.reason
    assert (folder / "server.pcap").stat().st_size > 24


def test_ends_that_are_kept_waiting_for_a_processor_never_contradict(runs_dir):
    """All containers get 1 ms of every 100: the ends pause longer than the ACK timer, many exchanges cannot stall."""

    def throttle(stage: str) -> None:
        if stage.startswith("ab "):
            for name in engine_holds(runs_dir)[0]:
                docker("update", "--cpus", "0.01", name)

    scenario = find_scenario("nginx-static")
    folder = record(scenario, scenario.variant("nodelay-off"), {}, runs_dir, throttle)
    judged = judge(folder)
    assert judged.noise.is_late  # the sidecar that measures waits as the ends do
    assert judged.contradictions == [] or judged.exit_code() == 3, judged.contradictions
    too_few = judged.captures[judged.best].under_test.stalled_after_first < 0.9
    assert ("an end paused for 20 ms" in judged.reason) is too_few


def test_two_runs_at_once(tmp_path):
    with ThreadPoolExecutor(2) as both:
        off, on = both.map(lambda v: run(tmp_path / v, v), ["nodelay-off", "nodelay-on"])
    for done, expected in ((off, "STALL"), (on, "CLEAN")):
        assert_never_wrong(json.loads(done.stdout)["verdict"], done.returncode, expected)


@pytest.mark.parametrize(("target", "verdict"), [("repro-nodelay-off", "STALL"), ("repro-nodelay-on", "CLEAN")])
def test_the_readme_commands(target, verdict):
    options = {"cwd": REPOSITORY, "capture_output": True, "text": True, "timeout": 300}
    done = undisturbed(lambda: subprocess.run(["make", target], check=False, **options))
    assert done.returncode == 0, done.stderr
    assert f" {verdict} " in done.stdout
    assert f"as expected   {verdict}" in done.stdout
    assert (" trigger\n" in done.stdout) is (verdict == "STALL")
