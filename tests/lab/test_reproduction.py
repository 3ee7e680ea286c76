"""The lab itself, on Docker: every variant gives its verdict, whatever the sizes."""

import json
import os
import subprocess
from pathlib import Path

import pytest
from lab.recording import NAGLE_LAB, assert_recorded_as_published, left_on_engine, newest, undisturbed

pytestmark = [pytest.mark.quiet, pytest.mark.long]


def run(runs: Path, variant: str, **parameters: str) -> subprocess.CompletedProcess[str]:
    command = [NAGLE_LAB, "run", "nginx-static", variant, "--json", "--runs", runs]
    options = {"env": os.environ | parameters, "capture_output": True, "text": True, "timeout": 120}
    return undisturbed(lambda: subprocess.run(command, check=False, **options))


@pytest.mark.parametrize("variant", ["no-keepalive", "nopush"])
def test_a_variant_gives_its_verdict(tmp_path, variant):
    done = run(tmp_path, variant)
    assert done.returncode == 0, done.stderr
    folder = newest(tmp_path, variant)
    assert (folder / "result.json").read_text() == done.stdout
    assert_recorded_as_published(folder, variant, "CLEAN")
    assert left_on_engine(tmp_path) == []


def test_the_parameters_reach_the_load(tmp_path):
    done = run(tmp_path, "nodelay-off", REQUESTS="40", CONCURRENCY="1", PAGE_BYTES="100")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    summary = result["captures"]["server"]["summary"]
    assert (summary["connections"], summary["exchanges"]) == (1, 40)
    assert 36 <= summary["stalled_exchanges"] <= 39  # nine in ten, or the run is not as expected
    assert "ab -n 40 -c 1 -k" in result["load"]["command"]
    stalls = json.loads((newest(tmp_path, "nodelay-off") / "server.json").read_text())["stalls"]
    assert {s["released_bytes"] for s in stalls} == {100}


@pytest.mark.parametrize("parameters", [{"PAGE_BYTES": "4000"}, {"KEEPALIVE": "off"}], ids=["full segments", "no -k"])
def test_a_contradicted_expectation_is_exit_1_and_says_where_the_captures_are(tmp_path, parameters):
    """A full segment is never held, and a connection's first exchange never stalls: CLEAN where STALL is expected."""
    done = run(tmp_path, "nodelay-off", REQUESTS="100", CONCURRENCY="4", **parameters)
    assert done.returncode == 1
    assert json.loads(done.stdout)["verdict"] == "CLEAN"
    last = done.stderr.splitlines()[-1]
    assert "expected STALL, found CLEAN" in last
    assert str(newest(tmp_path, "nodelay-off")) in last
