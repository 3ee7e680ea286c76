"""The load of a soak: there while runs are made, and gone afterwards. The runs themselves: unit/test_soak.py."""

import os
import subprocess
from pathlib import Path

import pytest
from lab.recording import docker

from nagle_lab.errors import Exit
from soak import command
from soak.plan import Entry, Trial, read
from support.waiting import within

pytestmark = pytest.mark.alone


def stress(runs: Path) -> list[str]:
    """The containers that keep the machine busy for a soak in ``runs``."""
    rows = docker("ps", "--all", "--format", '{{.Label "nagle-lab.lock"}} {{.ID}}').splitlines()
    return [row.split(" ")[1] for row in rows if row.startswith(f"{runs}/.soak.lock ")]


def workers(runs: Path) -> int:
    """How many processes of theirs compute."""
    tops = [["docker", "top", container] for container in stress(runs)]
    said = [subprocess.run(top, capture_output=True, text=True, check=False).stdout for top in tops]
    return sum(text.count("stress-ng-cpu") for text in said)


def test_every_processor_is_busy_during_each_run_and_none_afterwards(tmp_path: Path, monkeypatch):
    def made(trial: Trial, runs: Path, _) -> Entry:
        assert within(60, lambda: workers(runs) == os.cpu_count())
        return Entry(*trial.key, trial.expected, trial.expected, Exit.OK, "", None, [], 0, 0, {}, None, None, "")

    monkeypatch.setattr(command, "_make", made)
    code = command.run_soak(["nginx-static"], tmp_path, at_most=1, only=["cpu"], fresh=False, markdown_file=None)
    assert code == Exit.OK
    entries = read(tmp_path / "soak.jsonl")
    assert [(e.variant, e.expected) for e in entries] == [("nodelay-off", "STALL"), ("nodelay-on", "CLEAN")]
    assert stress(tmp_path) == []
    assert {path.name for path in tmp_path.iterdir()} == {".soak.lock", "soak.jsonl"}
