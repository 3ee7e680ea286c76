"""Ctrl-C, SIGTERM and SIGKILL at every stage: nothing stays on the engine, nothing half-written in the runs."""

import json
import os
import signal
from contextlib import suppress
from pathlib import Path

import pytest
from lab.recording import HeldDocker, Recording, copy_of_the_lab, docker, left_on_engine, remove_images, well_recorded

from nagle_lab.lab.containers.images import BASE
from nagle_lab.lab.scenarios.scenario_file import find_scenario
from support.waiting import within

pytestmark = pytest.mark.long
LONG = {"CONCURRENCY": "1", "REQUESTS": "1000"}  # a load of 40 s, to be interrupted


@pytest.mark.parametrize(
    ("stage", "number"),
    [
        ("starting the containers", signal.SIGINT),
        ("starting the captures", signal.SIGINT),
        ("ab ", signal.SIGINT),
        ("ab ", signal.SIGTERM),
        ("waiting for the last packets", signal.SIGINT),
    ],
)
def test_a_signal_before_the_captures_are_complete_leaves_nothing(runs_dir: Path, stage: str, number: signal.Signals):
    waits = {"TEST_SECONDS": "recorder._QUIET_S=30"}  # for the last packets, as long as it ever does
    recording = Recording(runs_dir, **(waits if stage.startswith("waiting") else LONG))
    recording.wait_for(stage)
    recording.signal(number)
    code, _, errors = recording.end()
    assert (code, errors) == (130, "")
    assert list(runs_dir.iterdir()) == []


def test_a_second_ctrl_c_does_not_stop_the_clean_up(runs_dir: Path, tmp_path: Path):
    held = HeldDocker(tmp_path / "held")
    recording = Recording(runs_dir, **LONG, **held.environment)
    recording.wait_for("ab ")
    held.hold()
    recording.signal(signal.SIGINT)
    recording.wait_for("removing")
    recording.signal(signal.SIGINT)
    held.let_go()
    assert recording.end()[0] == 130
    assert list(runs_dir.iterdir()) == []


def test_after_the_captures_are_complete_the_run_is_finished_first(runs_dir: Path, tmp_path: Path):
    held = HeldDocker(tmp_path / "held")
    recording = Recording(runs_dir, **held.environment)
    recording.wait_for("ab ")
    held.hold()
    recording.wait_for("removing")
    recording.signal(signal.SIGINT)
    held.let_go()
    assert recording.end()[0] == 130
    folder = (runs_dir / "latest-nginx-static-nodelay-off").resolve(strict=True)
    assert json.loads((folder / "manifest.json").read_text())["complete"] is True


def test_ctrl_c_while_building_stops_the_build(runs_dir: Path, tmp_path: Path):
    seconds = f"36{os.getpid()}"  # recognisable among the machine's processes
    folder = copy_of_the_lab(tmp_path, "USER root", f"RUN sleep {seconds}")
    recording = Recording(runs_dir, scenarios=folder)
    recording.wait_for("building images")
    assert within(120, lambda: _sleeps(seconds))
    assert recording.interrupt()[0] == 130
    assert within(60, lambda: not _sleeps(seconds))
    assert within(
        60, lambda: f"sleep {seconds}" not in docker("ps", "--all", "--no-trunc", "--format", "{{.Command}}")
    )
    assert not runs_dir.exists()
    remove_images(find_scenario("nginx-static", folder).labs["bridge"], BASE)


def _sleeps(seconds: str) -> bool:
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # ended meanwhile
            if file.read_bytes().split(b"\0")[:2] == [b"sleep", seconds.encode()]:
                return True
    return False


def test_what_a_killed_run_leaves_is_swept_by_the_next_and_a_live_run_is_not_touched(runs_dir: Path):
    live = Recording(runs_dir, **LONG)
    live.wait_for("ab ")
    of_live = set(left_on_engine(runs_dir))
    killed = Recording(runs_dir, **LONG)
    killed.wait_for("ab ")
    well_recorded(runs_dir)
    killed.signal(signal.SIGKILL)
    killed.end()
    of_killed = set(left_on_engine(runs_dir)) - of_live
    assert (len(of_live), len(of_killed)) == (5, 5)
    (sidecar,) = [name for name in of_killed if "server-capture" in name]
    assert within(30, lambda: "tcpdump" not in docker("top", sidecar)), "nothing in a sidecar outlives its run"

    code, _, errors = Recording(runs_dir, REQUESTS="20", CONCURRENCY="5").end()
    assert code == 0, errors
    assert set(left_on_engine(runs_dir)) == of_live
    (failed,) = runs_dir.glob("*.failed")
    manifest = json.loads((failed / "manifest.json").read_text())
    assert (manifest["complete"], manifest["failure"]) == (False, "nagle-lab was killed")
    assert manifest["captures"]["server"]["mtu"] == 1500
    assert (failed / "server.pcap").stat().st_size > 24
    assert live.interrupt()[0] == 130
