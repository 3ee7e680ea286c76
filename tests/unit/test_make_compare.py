"""make compare with a nagle-lab that only notes how it is called: which runs are made, and which are taken."""

import os
import shutil
import subprocess

import pytest

from support.repository import REPOSITORY

FAKE = """#!/usr/bin/env bash
if [[ $1 == list ]]; then
  case $2 in nginx-static) echo nodelay-off nodelay-on ;; redis-proxy) echo stalled fixed ;; *) exit 2 ;; esac
  exit
fi
echo "$*" >>calls
[[ $1 != run ]] || { mkdir -p captures/runs/made-$3; touch captures/runs/made-$3/result.json
  ln -sfn made-$3 captures/runs/latest-$2-$3; exit "${CODE:-0}"; }
"""


@pytest.fixture
def make(tmp_path):
    """Run make in a checkout that has only its Makefile; gives exit code, stdout, and how nagle-lab was called."""
    shutil.copy(REPOSITORY / "Makefile", tmp_path)
    for folder in ("setup", ".venv/bin"):
        (tmp_path / folder).mkdir(parents=True)
    for step in ("engine", "base-image", "python"):
        (tmp_path / "setup" / f"{step}.sh").write_text("#!/bin/sh\n")
    (tmp_path / ".venv/bin/nagle-lab").write_text(FAKE)
    for script in (*tmp_path.glob("setup/*"), tmp_path / ".venv/bin/nagle-lab"):
        script.chmod(0o755)

    def run(*arguments: str, **settings: str) -> tuple[int, str, list[str]]:
        environment = {"PATH": os.environ["PATH"], **settings}
        command = ["make", "compare", *arguments]
        done = subprocess.run(
            command, check=False, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60
        )
        return done.returncode, done.stdout, (tmp_path / "calls").read_text().splitlines()

    return run


LATEST = "captures/runs/latest-nginx-static-nodelay-off captures/runs/latest-nginx-static-nodelay-on"


def test_what_has_not_been_run_is_run_and_what_has_is_taken(make, tmp_path):
    code, out, calls = make()
    assert code == 0
    assert calls == [
        "run nginx-static nodelay-off --json",
        "run nginx-static nodelay-on --json",
        f"compare {LATEST}",
    ]
    assert "nodelay-off: running it" in out
    (tmp_path / "calls").unlink()
    code, out, calls = make()
    assert (code, calls) == (0, [f"compare {LATEST}"])
    assert "nodelay-on: the newest run, made-nodelay-on" in out


def test_again_and_other_scenarios(make, tmp_path):
    make()
    (tmp_path / "calls").unlink()
    assert len(make("AGAIN=1")[2]) == 3
    (tmp_path / "calls").unlink()
    calls = make("SCENARIO=redis-proxy")[2]
    assert calls[:2] == ["run redis-proxy stalled --json", "run redis-proxy fixed --json"]
    (tmp_path / "calls").unlink()
    calls = make("SCENARIO=redis-proxy", "VARIANTS=a b c")[2]
    assert calls[:3] == [f"run redis-proxy {variant} --json" for variant in "abc"]
    assert calls[3].count("latest-redis-proxy-") == 3


@pytest.mark.parametrize(("ended", "compared"), [("1", True), ("2", False), ("3", False), ("130", False)])
def test_a_run_that_contradicts_is_compared_one_that_failed_is_not(make, ended, compared):
    code, _, calls = make(CODE=ended)
    assert (code == 0) is compared
    assert any(call.startswith("compare") for call in calls) is compared
