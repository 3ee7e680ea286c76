"""One incident of the workshop on Docker, unattended; and Ctrl-C in the middle of its run."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from support.repository import REPOSITORY

COMMAND = [REPOSITORY / ".venv" / "bin" / "nagle-lab", "demo", "--answers", "good", "--scenario", "nginx-static"]


@pytest.mark.quiet  # it ends with 0 only where both verdicts are the expected ones
def test_an_incident_unattended(runs_dir: Path):
    done = subprocess.run([*COMMAND, "--runs", runs_dir], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr + done.stdout
    assert " STALL   nginx-static / nodelay-off" in done.stdout
    assert " CLEAN   nginx-static / nodelay-on" in done.stdout
    assert "ab -n 200 -c 20 -k" in done.stdout
    assert "Score: 2 of 2" in done.stdout
    assert "NOT AS EXPECTED" not in done.stdout
    assert len(list(runs_dir.glob("2*"))) == 2


def test_ctrl_c_in_a_run_leaves_nothing(runs_dir: Path):
    process = subprocess.Popen(
        [*COMMAND, "--runs", runs_dir],
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,
    )
    assert process.stdout
    for line in process.stdout:
        if line.startswith("… starting the captures"):
            break
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=90)
    assert process.returncode == 130
    assert errors.strip() == "nagle-lab: interrupted"
    assert list(runs_dir.iterdir()) == []
