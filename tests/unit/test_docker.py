"""What the host's Docker is asked, and what is said where it does not answer: by programs that stand in for it."""

from pathlib import Path

import pytest

from nagle_lab.errors import NagleLabError
from nagle_lab.host.docker import container_of_service

NO_PLUGIN = "echo \"unknown shorthand flag: 'q' in -q\" >&2; exit 125"
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
            "service web: no such service: web: run docker compose",
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
