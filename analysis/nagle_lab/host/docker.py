"""What this host's Docker, if there is one, says about its containers. The lab's Docker is in lab/containers."""

import shutil
import subprocess
from contextlib import suppress

from nagle_lab.errors import NagleLabError, last_line

_NO_RIGHTS = "this account may not use Docker: run this as root, or join the group docker"
_NO_SUCH_COMMAND = 125  # exit code of docker, without Compose for ``docker compose``
_NO_FILE = "Can't find a suitable configuration file"  # how docker-compose 1 begins, whose last line lists names


def container_of_service(service: str) -> str:
    """The container of a service of the Compose project in the working directory.

    Raises NagleLabError if it does not run, or Compose does not know it.
    """
    problem = "--compose-service needs Docker Compose, and there is none: install it"
    for compose in (["docker", "compose"], ["docker-compose"]):
        if not shutil.which(compose[0]):
            continue
        done = subprocess.run([*compose, "ps", "-q", service], capture_output=True, text=True, check=False)
        if done.returncode == 0 and done.stdout.strip():
            return done.stdout.split()[0]
        _require_rights(done)
        if done.returncode != _NO_SUCH_COMMAND:
            said = "no Compose file here or in a folder above" if _NO_FILE in done.stderr else last_line(done.stderr)
            why_not = f": {said}" if done.returncode else " is not running"
            ps = f"run {' '.join(compose)} ps in the project's folder to see which are"
            problem = f"service {service}{why_not}: {ps}"
    raise NagleLabError(problem)


def _require_rights(done: subprocess.CompletedProcess[str]) -> None:
    """Raise NagleLabError if Docker's client was refused at the daemon's socket."""
    said = done.stderr.lower()
    if done.returncode and "permission denied" in said and "docker" in said:
        raise NagleLabError(_NO_RIGHTS)


def require_docker_rights() -> None:
    """Raise NagleLabError if there is a Docker that this account may not use."""
    if done := _listed("--quiet"):
        _require_rights(done)


def docker_output(*arguments: str) -> str:
    """What docker prints. Raises NagleLabError if there is no Docker, or it fails."""
    try:
        done = subprocess.run(["docker", *arguments], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise NagleLabError("--container needs Docker, but docker is not in PATH: install it") from None
    _require_rights(done)
    if done.returncode:
        raise NagleLabError(f"{last_line(done.stderr, 'docker failed')}: docker ps lists the running containers")
    return done.stdout.strip()


def container_names() -> dict[str, str]:
    """Id → name of the running containers; empty if there is no Docker, or it does not answer."""
    done = _listed("--format", "{{.ID}} {{.Names}}")
    return dict(line.split(" ", 1) for line in done.stdout.splitlines() if " " in line) if done else {}


def _listed(*options: str) -> subprocess.CompletedProcess[str] | None:
    """The running containers, as ``docker ps`` prints them; None if there is no Docker, or it does not answer."""
    command = ["docker", "ps", *options]
    with suppress(OSError, subprocess.TimeoutExpired):
        return subprocess.run(
            command, capture_output=True, text=True, timeout=5, check=False, stdin=subprocess.DEVNULL
        )
    return None
