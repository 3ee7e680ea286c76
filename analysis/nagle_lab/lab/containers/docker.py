"""The Docker engine, through its command line: whether it is there, what runs in it, and removing what we started."""

import os
import shutil
import time
from collections.abc import Sequence
from typing import Any

from msgspec import Struct
from msgspec.json import decode

from nagle_lab.errors import NagleLabError
from nagle_lab.lab.containers.interrupts import interruptible
from nagle_lab.lab.containers.process import Child, Finished, run

PROJECT_LABEL = "com.docker.compose.project"
SERVICE_LABEL = "com.docker.compose.service"
_PATIENCE_S = 60.0  # for a single question to the engine
_AWAY_S = 10.0  # for an engine that is being restarted to answer again


def docker(*arguments: str) -> Finished:
    """Run one ``docker`` command; a signal kills it."""
    return run(["docker", *arguments], timeout_s=_PATIENCE_S)


def engine_version() -> str:
    """The engine's version; NagleLabError when there is no Docker or no engine answers."""
    if shutil.which("docker") is None:
        raise NagleLabError("Docker is not installed: run `make setup`")
    answer = docker("version", "--format", "{{.Server.Version}}")
    if answer.exit_code != 0:
        raise NagleLabError(f"the Docker engine does not answer ({answer.last_line()}): run `make setup`")
    return answer.stdout.strip()


class _Config(Struct, frozen=True, rename="pascal"):
    image: str
    labels: dict[str, str]
    env: list[str] = []  # "NAME=value"


class _HostConfig(Struct, frozen=True, rename="pascal"):
    network_mode: str


class _State(Struct, frozen=True, rename="pascal"):
    status: str
    exit_code: int
    finished_at: str


class Container(Struct, frozen=True, rename="pascal"):
    """What we need to know about a container."""

    id: str
    image: str  # its id
    config: _Config
    host_config: _HostConfig
    state: _State


def image_details(images: Sequence[str]) -> list[dict[str, Any]]:
    """The details of those of ``images`` that exist (``docker image inspect``)."""
    return decode(docker("image", "inspect", *images).stdout or "[]", type=list[dict[str, Any]])


def container_details(ids: Sequence[str]) -> list[Container]:
    """The details of the containers ``ids`` (``docker container inspect``)."""
    return decode(docker("container", "inspect", *ids).stdout or "[]", type=list[Container])


def containers(project: str) -> dict[str, str]:
    """Service → container id of a Compose project, running or not."""
    rows = docker(
        "ps", "--all", "--no-trunc", "--filter", f"label={PROJECT_LABEL}={project}",
        "--format", f'{{{{.Label "{SERVICE_LABEL}"}}}} {{{{.ID}}}}',
    )  # fmt: skip
    pairs = (line.split(" ") for line in rows.stdout.splitlines())
    return {service: id_ for service, id_ in pairs if service}


def labelled(lock_label: str, host_label: str) -> set[tuple[str, str, str]]:
    """The (project, lock, host) of all containers and networks that have ``lock_label``."""
    row = "\t".join(f'{{{{.Label "{label}"}}}}' for label in (PROJECT_LABEL, lock_label, host_label))
    with interruptible():
        answers = _list_all("--filter", f"label={lock_label}", "--format", row)
    project_lock_host = (line.split("\t") for answer in answers for line in answer.stdout.splitlines())
    return {(project, lock, host) for project, lock, host in project_lock_host}


def _list_all(*arguments: str) -> list[Finished]:
    """The answers to ``docker ps --all`` and ``docker network ls`` with those ``arguments``."""
    commands = (["docker", "ps", "--all"], ["docker", "network", "ls"])
    children = [Child([*command, *arguments]) for command in commands]
    return [child.wait(_PATIENCE_S) for child in children]


def remove_project(project: str) -> None:
    """Remove every container and network of a Compose project, whatever signals arrive.

    Asks again until nothing is left: the engine may still finish a request made before it, and a child may be
    hit by a Ctrl-C in the millisecond before it has a group of its own. Raises NagleLabError if something stays,
    or if no engine has answered for 10 s (a restart takes less).
    """
    problem, attempts, deadline = "", 0, time.monotonic() + _AWAY_S
    while attempts < 5:
        lists = _list_all("--quiet", "--filter", f"label={PROJECT_LABEL}={project}")
        failed = [answer.last_line() for answer in lists if answer.exit_code != 0]
        if failed:
            if time.monotonic() > deadline:
                raise NagleLabError(
                    f"the Docker engine has stopped answering ({failed[0]}): restart it; "
                    "the next run removes the containers of this one"
                )
            time.sleep(0.2)
            continue
        attempts += 1
        ids, networks = (answer.stdout.split() for answer in lists)
        if not ids and not networks:
            return
        if ids:
            problem = Child(["docker", "rm", "--force", "--volumes", *ids]).wait(_PATIENCE_S).last_line()
        if networks:
            problem = Child(["docker", "network", "rm", *networks]).wait(_PATIENCE_S).last_line()
    raise NagleLabError(f"could not remove the containers of {project} ({problem}): run `make clean`")


def last_log_lines(container: str) -> str:
    """The last three lines a container logged, joined to one line."""
    answer = docker("logs", "--tail", "3", container)
    words = [line.strip() for line in (answer.stdout + answer.stderr).splitlines() if line.strip()]
    return " / ".join(words) or "it logged nothing"


def plain_environment() -> dict[str, str]:
    """Our environment without variables that would make Compose use another project or file."""
    return {name: value for name, value in os.environ.items() if not name.startswith("COMPOSE_")}
