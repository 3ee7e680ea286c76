"""The guard beside what runs in Docker: a container, a service of Compose, and Docker as the way to a namespace."""

import re
import shlex
import signal
import subprocess
import sys

import pytest

from nagle_lab.guard.recording.launchers import EMPTY_IMAGE, docker_with_folders
from support import forbid
from support.guarded import GUARD, server
from support.in_docker import IMAGE, PERL, compose_project, read_in
from support.namespaces import receiving, sent
from support.waiting import within


def recorded(*options: str, **more) -> tuple[int, str]:
    done = subprocess.run([*GUARD, *options], capture_output=True, text=True, timeout=120, check=False, **more)
    return done.returncode, done.stderr


@pytest.fixture
def container(tmp_path):
    """A stalling pair in a container; its name."""
    name = f"nagle-lab-test-guard-{tmp_path.name.replace('_', '-')}".lower()
    subprocess.run(["docker", "run", "--rm", "--detach", "--name", name, IMAGE, "perl", "-e", PERL], check=True)
    yield name
    subprocess.run(["docker", "rm", "--force", name], check=True, capture_output=True)


def sidecars_of(container: str) -> list[str]:
    """The guard's containers that share the network of that one."""
    rows = subprocess.run(
        ["docker", "ps", "--quiet", "--filter", f"ancestor={EMPTY_IMAGE}"], capture_output=True, text=True, check=True
    ).stdout.split()
    form = "{{.Id}} {{.HostConfig.NetworkMode}}"
    said = subprocess.run(
        ["docker", "inspect", "--format", form, container, *rows], capture_output=True, text=True, check=False
    ).stdout.splitlines()  # one of somebody else's may have ended meanwhile
    of = f"container:{said[0].split()[0]}"
    return [row for row in said if row.endswith(of)]


def test_a_container(container):
    """By a sidecar in its network namespace, which is gone afterwards."""
    code, err = recorded(f"--container={container}", "--seconds=3")
    assert code == 1, err
    assert " exchanges waited for a delayed ACK: the server (127.0.0.1:8080)" in err
    assert "a capture sidecar beside the container" in err
    assert sidecars_of(container) == []


def test_the_calls_of_a_container_that_runs(container):
    """By strace in the sidecar, which joins the container's PID namespace for it; the container goes on."""
    code, err = recorded(f"--container={container}", "--seconds=8", "--trace")
    text = " ".join(err.split())
    assert code == 1, err
    assert " stalls: " in text and "syswrite" not in text
    assert re.search(r"write 200 B, then .* write 600 B", text), err
    assert "written by perl, process" in text
    status = subprocess.run(
        ["docker", "top", container, "-o", "pid,stat"], capture_output=True, text=True, check=True
    )
    assert not set("tT") & set(status.stdout.partition("\n")[2]), "nothing is stopped"
    assert recorded(f"--container={container}", "--seconds=4")[0] == 1, "and it still answers"


def test_ctrl_c_ends_the_sidecar_and_reports(container):
    process = subprocess.Popen([*GUARD, f"--container={container}"], stderr=subprocess.PIPE, text=True)
    assert within(60, lambda: len(sidecars_of(container)) == 1)
    assert within(60, lambda: receiving(read_in(container, "/proc/net/packet")))
    before = sent(read_in(container, "/proc/net/snmp"))
    assert within(60, lambda: sent(read_in(container, "/proc/net/snmp")) > before + 300)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1, err
    assert " exchanges waited for a delayed ACK" in err
    assert sidecars_of(container) == []


def test_a_service_of_compose(tmp_path):
    """The project in the working directory."""
    with compose_project(tmp_path / "guardproject") as (folder, _):
        code, err = recorded("--compose-service=stalling", "--seconds=3", cwd=folder)
        assert code == 1, err
        code, err = recorded("--compose-service=nothing", "--seconds=3", cwd=folder)
        assert (code, "o such service: nothing: run docker" in err) == (2, True)


def test_a_container_that_is_not_there():
    code, err = recorded("--container=no-such-container", "--seconds=1")
    assert code == 2
    assert "docker ps lists the running containers" in err.splitlines()[-1]


def test_docker_is_the_last_way_to_a_namespace(tmp_path):
    """Root without the right to make namespaces, where user namespaces are refused: a container of this machine."""
    docker_with_folders("makes the image")
    drop = ["setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin"]
    command = [sys.executable, forbid.__file__, *drop, "env", f"TMPDIR={tmp_path}"]
    command += [*GUARD, "--", "sh", "-c", "id -u; exec " + shlex.join(server("two-writes"))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if "sudo without a password" in done.stderr:
        pytest.skip("sudo comes before Docker here")
    assert (done.returncode, done.stdout) == (1, "0\ndone\n"), done.stderr
    assert "ran in        a Docker container" in done.stderr


def test_in_a_container_without_rights_there_is_one_line(tmp_path):
    """Such as the lab's own: no capability, no Docker, nothing to write on."""
    way = docker_with_folders("makes the image")
    mounts = [option for option in way.before if option.startswith("--mount")]
    confined = ["--cap-drop=ALL", "--security-opt=no-new-privileges", "--read-only", "--network=none"]
    inside = ["env", "DOCKER_HOST=unix:///nowhere", *GUARD, "--", "echo", "it ran"]
    command = ["docker", "run", "--rm", *confined, *mounts, EMPTY_IMAGE, *inside]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    (line,) = done.stderr.strip().splitlines()
    assert line.startswith("nagle-lab: no network namespace can be created here (Operation not permitted): ")
