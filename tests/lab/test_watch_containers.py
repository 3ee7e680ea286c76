"""A container watched while it is stopped and started again: nginx under a load from another one."""

import json
import subprocess
import sys
from functools import partial

import pytest

from support.command import in_process
from support.in_docker import compose_project, docker, nginx_that_stalls, read_in
from support.namespaces import sent
from support.rights import AS_ROOT
from support.schemas import check
from support.waiting import within

pytestmark = pytest.mark.long

COMMAND = [sys.executable, "-m", "nagle_lab", "watch", "--json"]


@pytest.fixture
def nginx(tmp_path):
    """The name of a container with nginx, tcp_nodelay off, and a function that begins a load of ten connections."""
    if AS_ROOT:
        pytest.skip("looking into containers takes root")
    name = f"nagle-lab-test-watch-{tmp_path.name.replace('_', '-')}".lower()[:60]
    with nginx_that_stalls(name) as load:
        load("-r")
        yield name, lambda: load("-r")


def next_said(watch: subprocess.Popen[str], event: str, text: str) -> dict:
    """The next line of that kind with that text in it."""
    for line in watch.stdout:
        said = json.loads(line)
        check("watch", said)
        if said["event"] == event and text in line:
            return said
    pytest.fail(f"it ended without {event} {text}")


@pytest.mark.timeout(300)
def test_a_container_that_is_stopped_and_started_is_followed(nginx):
    """Its process is named before and after, both stops are told, and the report is of all."""
    name, load = nginx
    with subprocess.Popen([*COMMAND, "--container", name], stdout=subprocess.PIPE, text=True) as watch:
        until = partial(next_said, watch)
        assert until("finding", '"begins"')["process"] == f"{name}/nginx"
        docker("stop", "--time=1", name)
        assert until("note", "has ended")["text"] == f"container {name} has ended: waiting until it is back"
        docker("start", name)
        assert until("note", "is back")["text"] == f"container {name} is back"
        load()
        assert within(60, lambda: sent(read_in(name, "/proc/net/snmp")) > 2000), "counted anew in its new namespace"
        watch.terminate()
        report = until("report", "")
        assert watch.wait(60) == 0
    assert (report["verdict"], report["dropped"]) == ("STALL", 0)
    assert report["stalls"] > 100


@pytest.mark.timeout(300)
def test_a_service_is_followed_into_the_container_that_takes_its_place(tmp_path):
    """Changed, it has another container, with another network namespace."""
    if AS_ROOT:
        pytest.skip("looking into containers takes root")
    command = [*COMMAND, "--compose-service", "stalling"]
    with (
        compose_project(tmp_path / "watchproject") as (folder, compose),
        subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True) as watch,
    ):
        until = partial(next_said, watch)
        before = until("finding", '"begins"')["process"]
        settings = folder / "compose.yaml"
        settings.write_text(settings.read_text().replace("PORT=8080", "PORT=8081"))
        compose("up", "--detach", "--timeout", "1")
        assert until("note", "has ended")["text"] == "service stalling has ended: waiting until it is back"
        assert until("note", "is back")["text"] == "service stalling is back"
        after = until("finding", "127.0.0.1:8081")["process"]
        watch.terminate()
        report = until("report", "")
        assert watch.wait(60) == 0
    assert before.endswith("/perl") and after.endswith("/perl"), (before, after)
    assert (report["verdict"], report["dropped"]) == ("STALL", 0)


def test_without_sys_admin_it_is_recorded_from_a_container_beside_it(nginx):
    """What an account does that may use Docker and is not root."""
    name, _ = nginx
    bare = ["setpriv", "--bounding-set=-sys_admin"]
    whole = [*bare, *COMMAND, "--container", name, "--seconds=6"]
    done = subprocess.run(whole, capture_output=True, text=True, timeout=120, check=False)
    report = json.loads(done.stdout.splitlines()[-1])
    assert (done.returncode, done.stderr, report["verdict"]) == (0, "", "STALL")
    beside = docker("ps", "--quiet", "--filter=ancestor=nagle-lab-guard:empty", f"--filter=network=container:{name}")
    assert beside == ""


def test_what_is_not_there():
    for options, says in (
        (["--container", "no-such-container"], "docker ps lists the running containers"),
        (["--compose-service", "no-such-service"], "o such service: no-such-service: run docker"),
    ):
        done = in_process("watch", "--json", *options)
        assert (done.code, says in done.err, done.err.count("\n")) == (2, True, 1), done.err
