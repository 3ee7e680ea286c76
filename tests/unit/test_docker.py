"""What the host's Docker is asked, and what is said where it does not answer: by programs that stand in for it."""

from pathlib import Path

import pytest

from nagle_lab.errors import NagleLabError
from nagle_lab.host.docker import container_of_service, docker_output
from nagle_lab.live.sockets.processes import of_container

NO_PLUGIN = "echo \"unknown shorthand flag: 'q' in -q\" >&2; exit 125"
NO_FILE = """echo "ERROR:
        Can't find a suitable configuration file in this directory or any
        parent. Are you in the right directory?

        Supported filenames: docker-compose.yml, docker-compose.yaml, compose.yml, compose.yaml
" >&2; exit 1"""
NO_SERVICE = "echo no such service: web >&2; exit 1"


def stand_in(folder: Path, name: str, script: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


@pytest.mark.parametrize(
    ("programs", "said"),
    [
        ({}, "needs Docker Compose, and there is none: install it"),
        ({"docker": NO_PLUGIN}, "needs Docker Compose, and there is none: install it"),
        (
            {"docker": NO_PLUGIN, "docker-compose": NO_SERVICE},
            "service web: no such service: web: run docker-compose ps in",
        ),
        (
            {"docker": NO_PLUGIN, "docker-compose": NO_FILE},
            "service web: no Compose file here or in a folder above: run docker-compose ps in the project's folder",
        ),
        ({"docker": NO_SERVICE}, "service web: no such service: web: run docker compose ps"),
        ({"docker": "exit 0"}, "service web is not running: run docker compose ps"),
    ],
)
def test_why_a_service_has_no_container(programs, said, tmp_path, monkeypatch):
    for name, script in programs.items():
        stand_in(tmp_path, name, script)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NagleLabError, match=said):
        container_of_service("web")


def test_the_container_of_a_service(tmp_path, monkeypatch):
    stand_in(tmp_path, "docker", NO_PLUGIN)
    stand_in(tmp_path, "docker-compose", "echo c0ffee")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert container_of_service("web") == "c0ffee"


@pytest.mark.parametrize(
    "ask", [container_of_service, of_container, lambda name: docker_output("inspect", "--type=container", name)]
)
def test_an_account_that_may_not_use_docker_is_told_how_it_may(ask, tmp_path, monkeypatch):
    """That docker ps lists the containers would be no help: it is refused, too."""
    socket = "unix:///var/run/docker.sock"
    stand_in(tmp_path, "docker", f"echo permission denied while connecting to the Docker API at {socket} >&2; exit 1")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NagleLabError) as refused:
        ask("web")
    assert str(refused.value) == "this account may not use Docker: run this as root, or join the group docker"
