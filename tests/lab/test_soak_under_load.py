"""A soak of two runs with both cores kept busy: the load is there while they run, and gone afterwards."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from lab.recording import REPOSITORY, assert_never_wrong, docker

from soak.plan import read

COMMAND = [sys.executable, "-m", "soak", "nginx-static", "--at-most", "1", "--only", "cpu"]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(REPOSITORY / "maintenance")}

pytestmark = pytest.mark.alone


def stress(runs: Path) -> list[str]:
    """The containers that keep the machine busy for a soak in ``runs``."""
    rows = docker("ps", "--all", "--format", '{{.Label "nagle-lab.lock"}} {{.ID}}').splitlines()
    return [row.split(" ")[1] for row in rows if row.startswith(f"{runs}/.soak.lock ")]


def test_two_runs_under_load(tmp_path: Path):
    busy: list[int] = []
    over = threading.Event()

    def watch() -> None:
        while not over.is_set():
            tops = [["docker", "top", container] for container in stress(tmp_path)]
            said = [subprocess.run(top, capture_output=True, text=True, check=False).stdout for top in tops]
            busy.extend(text.count("stress-ng-cpu") for text in said)
            over.wait(1)  # seldom: each look takes some of the processors that are kept busy

    watcher = threading.Thread(target=watch)
    watcher.start()
    done = subprocess.run(
        [*COMMAND, "--runs", tmp_path], env=ENVIRONMENT, capture_output=True, text=True, timeout=300, check=False
    )
    over.set()
    watcher.join()
    assert done.returncode == 0, done.stderr
    entries = read(tmp_path / "soak.jsonl")
    assert [(e.variant, e.expected) for e in entries] == [("nodelay-off", "STALL"), ("nodelay-on", "CLEAN")]
    for entry in entries:
        assert_never_wrong(entry.verdict, entry.code, entry.expected, done.stderr)
    assert max(busy) == os.cpu_count()
    assert stress(tmp_path) == []
    kept = {Path(entry.folder).name for entry in entries if entry.folder}  # of runs that are not as expected
    assert {path.name for path in tmp_path.iterdir()} == {".soak.lock", "soak.jsonl"} | kept
