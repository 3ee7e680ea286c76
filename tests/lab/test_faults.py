"""Faults in the middle of a run, one by one: the right exit code, one clear line, nothing lost, nothing left behind.

docs/faults.md is the table. What a signal does is in test_interruption.py, a full disk in test_failures.py, users and
checkouts in test_places.py, a stepped clock in unit/test_clock.py.
"""

import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest
from lab.private_engine import PrivateEngine, private_engine, why_not
from lab.recording import (
    HeldDocker,
    Recording,
    assert_never_wrong,
    copy_of_the_lab,
    docker,
    engine_holds,
    left_on_engine,
    well_recorded,
)

from nagle_lab.diagnosis.analysis import analyze
from nagle_lab.errors import Exit
from nagle_lab.runs.run import judge_run
from support.waiting import within

pytestmark = pytest.mark.long
LOAD = {"CONCURRENCY": "1", "REQUESTS": "1000"}  # 40 s where it stalls: the fault comes first
SMALL = {"CONCURRENCY": "5", "REQUESTS": "20"}


def container(runs_dir: Path, service: str) -> str:
    """The name of the container of that service, of the one run there."""
    pattern = re.compile(rf"-{service}-1$|_{service}_1$")  # Compose v2, v1
    (found,) = [
        name for name in engine_holds(runs_dir)[0] if re.search(pattern, re.sub(r"^\w+_nagle", "nagle", name))
    ]
    return found


def in_the_middle(runs_dir: Path, **environment: str) -> Recording:
    """A run under load, of which both captures hold packets already."""
    recording = Recording(runs_dir, **LOAD, **environment)
    recording.wait_for("ab ")
    well_recorded(runs_dir)
    return recording


@dataclass
class Failed:
    """How a run ended that failed: its line, and the folder that it names."""

    line: str
    folder: Path


def ends_with_one_line(recording: Recording) -> Failed:
    """Wait for the end of a run that fails; what it recorded can be analysed and nothing else is left of it."""
    code, _, errors = recording.end()
    assert code == Exit.UNUSABLE
    (whole,) = errors.splitlines()
    line, _, folder = whole.removeprefix("nagle-lab: ").partition("; what was recorded is in ")
    assert whole.startswith("nagle-lab: ") and Path(folder).name.endswith(".failed")
    assert_analysable(Path(folder))
    assert list(Path(folder).parent.iterdir()) == [Path(folder)]
    return Failed(line, Path(folder))


def assert_analysable(folder: Path) -> None:
    """Every capture kept there parses, and says where it was cut off; one at least shows stalls, none denies them."""
    results = [analyze(capture) for capture in folder.glob("*.pcap") if capture.stat().st_size > 24]
    assert results
    for result in results:
        assert all("ends in the middle" in damage for damage in result.quality.damage)
        assert result.source.tcp_packets > 0
    verdicts = {result.verdict for result in results}
    assert "STALL" in verdicts and "CLEAN" not in verdicts


def assert_the_next_run_is_right_and_nothing_is_left(runs_dir: Path) -> None:
    code, folder, errors = Recording(runs_dir, **SMALL).end()
    assert (code, errors) == (0, "")
    run = judge_run(Path(folder))
    assert_never_wrong(run.verdict, run.exit_code(), "STALL", run.reason)
    assert left_on_engine(runs_dir) == []
    assert [path.name for path in runs_dir.iterdir() if path.name.startswith(".")] == []
    for failed in runs_dir.glob("*.failed"):
        assert not [file for file in failed.iterdir() if file.name.startswith(".")]


# What dies while the load runs


@pytest.mark.parametrize("service", ["server", "client", "server-capture"])
def test_a_container_is_killed(runs_dir: Path, service: str):
    recording = in_the_middle(runs_dir)
    docker("kill", container(runs_dir, service))
    failed = ends_with_one_line(recording)
    assert failed.line == f"the {service} ended with exit code 137: it logged nothing"
    assert left_on_engine(runs_dir) == []


def test_the_network_goes_away(runs_dir: Path):
    recording = in_the_middle(runs_dir)
    (network,) = engine_holds(runs_dir)[1]
    docker("network", "disconnect", "--force", network, container(runs_dir, "client"))
    failed = ends_with_one_line(recording)
    assert re.fullmatch(
        r"the capture at the client ended early: .*interface disappeared",
        failed.line,
    )
    assert left_on_engine(runs_dir) == []


# What stands still


@pytest.mark.parametrize(("variant", "requests"), [("nodelay-off", "120"), ("nodelay-on", "8000")])
def test_a_paused_client_that_goes_on(runs_dir: Path, variant: str, requests: str):
    """A pause is no stall, and takes none away; a busy machine may make it INCONCLUSIVE, as any other run."""
    recording = Recording(runs_dir, variant, **(LOAD | {"REQUESTS": requests}))
    recording.wait_for("starting the captures")
    client, server = container(runs_dir, "client"), container(runs_dir, "server")
    recording.wait_for("ab ")
    docker("pause", server)  # so that ab, however few its requests, is not over before it is paused
    assert within(30, lambda: "ab -n" in docker("top", client))
    docker("pause", client)
    docker("unpause", server)
    time.sleep(1)
    docker("unpause", client)
    code, folder, errors = recording.end()
    assert (code, errors) == (0, "")
    run = judge_run(Path(folder))
    assert_never_wrong(run.verdict, run.exit_code(), run.expected, run.reason)


def test_a_paused_client_that_never_goes_on(runs_dir: Path):
    recording = in_the_middle(runs_dir, TEST_SECONDS="session._PATIENCE_S=4 session._LOOK_S=0.2")
    docker("pause", container(runs_dir, "client"))
    failed = ends_with_one_line(recording)
    assert failed.line == "no packet for 4 s, and ab does not end: paused containers: client"
    assert left_on_engine(runs_dir) == []


# What SIGKILL leaves


def asks_how_long(runs_dir: Path) -> bool:
    """Whether a run there is in the middle of asking the machine for what its lab requires."""
    rows = docker("ps", "--no-trunc", "--format", '{{.Label "nagle-lab.lock"}} {{.Command}}').splitlines()
    return any(row.startswith(f"{runs_dir}/") and "sleep 60" in row for row in rows)


def test_sigkill_at_each_stage_and_start_again(runs_dir: Path, tmp_path: Path):
    """No run gets further than to the removal of its containers, so none is over before it is killed."""
    needy = copy_of_the_lab(tmp_path / "copy")
    toml = needy / "nginx-static" / "scenario.toml"
    requirement = '[labs.bridge]\nrequires = [{ what = "time", command = "sleep 60" }]\n'
    toml.write_text(toml.read_text().replace("[labs.bridge]\n", requirement))

    def kill_at(stage: str) -> None:
        scenarios = {"scenarios": needy} if stage == "require" else {}
        held = HeldDocker(tmp_path / stage.replace(" ", ""))
        recording = Recording(runs_dir, **scenarios, **(LOAD if stage == "ab " else SMALL), **held.environment)
        if stage == "require":
            assert within(60, lambda: asks_how_long(runs_dir))
        else:
            recording.wait_for("starting the containers")
            held.hold()
        if stage == "starting the containers":
            assert within(30, lambda: left_on_engine(runs_dir) != [])
        elif stage != "require":
            recording.wait_for(stage)
            time.sleep(0.3)  # into the stage
        recording.signal(signal.SIGKILL)
        assert recording.end()[0] == -signal.SIGKILL

    with ThreadPoolExecutor(3) as several:
        list(several.map(kill_at, ["require", "starting the captures", "ab ", "waiting", "removing"]))
    assert left_on_engine(runs_dir) != []
    kill_at("starting the containers")  # last, so that the next run begins while the engine is at it
    assert_the_next_run_is_right_and_nothing_is_left(runs_dir)


# The engine itself


@pytest.fixture(scope="module")
def engine_of_its_own() -> Iterator[PrivateEngine]:
    if reason := why_not():
        pytest.skip(reason)
    with private_engine() as engine:
        yield engine


def restart(engine: PrivateEngine) -> None:
    engine.end("TERM")
    engine.start()


def kill_and_start(engine: PrivateEngine) -> None:
    engine.end("KILL")
    engine.start()


@pytest.mark.parametrize("fault", [restart, kill_and_start])
def test_the_engine_is_restarted(
    engine_of_its_own: PrivateEngine,
    tmp_path: Path,
    monkeypatch,
    fault: Callable[[PrivateEngine], None],
):
    monkeypatch.setenv("DOCKER_HOST", engine_of_its_own.host)
    recording = in_the_middle(tmp_path / "runs")
    fault(engine_of_its_own)
    failed = ends_with_one_line(recording)
    lines = (
        "the Docker engine does not answer",
        "all containers ended at once",
        "the containers of this run are gone",
    )
    assert failed.line.startswith(lines), failed.line
    assert left_on_engine(tmp_path / "runs") == []


def test_the_engine_is_killed_and_stays_away(engine_of_its_own: PrivateEngine, tmp_path: Path, monkeypatch):
    monkeypatch.setenv("DOCKER_HOST", engine_of_its_own.host)
    runs_dir = tmp_path / "runs"
    recording = in_the_middle(runs_dir, TEST_SECONDS="docker._AWAY_S=1")
    engine_of_its_own.end("KILL")
    failed = ends_with_one_line(recording)
    assert re.fullmatch(
        r"the Docker engine has stopped answering \(.*\): restart it; the next run removes the containers of this"
        r" one",
        failed.line,
    )
    refused = subprocess.run(["docker", "ps"], check=False, capture_output=True)
    assert refused.returncode != 0
    code, _, errors = Recording(runs_dir, **SMALL).end()
    assert code == Exit.UNUSABLE
    assert re.fullmatch(
        r"nagle-lab: the Docker engine does not answer \(.*\): run `make setup`\n",
        errors,
    )
    engine_of_its_own.start()
    assert len(left_on_engine(runs_dir)) == 5
    assert_the_next_run_is_right_and_nothing_is_left(runs_dir)
