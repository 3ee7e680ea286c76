"""Compose, whichever is installed: `docker compose` (v2), else docker-compose from 1.29."""

import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from nagle_lab.errors import NagleLabError
from nagle_lab.lab.containers.docker import plain_environment
from nagle_lab.lab.containers.process import Child, Finished, run

_COMMANDS = (("docker", "compose"), ("docker-compose",))  # in the order of preference
_OLDEST = (1, 29)
_UP_PATIENCE_S = 120.0


@dataclass(frozen=True)
class Compose:
    """One Compose command and its version; ``v1`` is the Python one with the classic builder."""

    command: tuple[str, ...]
    version: str

    @property
    def v1(self) -> bool:
        """Whether this is docker-compose 1.x."""
        return self.version.startswith("1.")

    def _line(self, files: Sequence[Path], project: str, *arguments: str) -> list[str]:
        named = [word for file in files for word in ("--file", str(file))]
        return [*self.command, "--project-name", project, *named, *arguments]

    def _environment(self, variables: Mapping[str, str]) -> dict[str, str]:
        # v1 calls the classic builder itself: through Docker's command line it would need a plugin that may be
        # missing.
        classic = {"COMPOSE_DOCKER_CLI_BUILD": "0"} if self.v1 else {}
        return plain_environment() | classic | dict(variables)

    def build(self, files: Sequence[Path], project: str, variables: Mapping[str, str]) -> Finished:
        """Build the images of ``files``, later ones over earlier ones; a signal kills the build."""
        force = ["--force-rm"] if self.v1 else []  # leave no container behind a failed step
        return run(self._line(files, project, "build", *force), self._environment(variables))

    def up(self, files: Sequence[Path], project: str, variables: Mapping[str, str]) -> Finished:
        """Create and start the containers of ``files``, later ones over earlier ones.

        Signals wait until Compose is done: if it were killed half way, its requests would stay with the engine, and
        their containers would appear after the clean-up.
        """
        arguments = self._line(files, project, "up", "--detach", "--no-build")
        return Child(arguments, self._environment(variables)).wait(_UP_PATIENCE_S)


class ComposeSearch:
    """Asks every Compose there is for its version, while the caller does something else: v1 is slow."""

    def __init__(self) -> None:
        there = [command for command in _COMMANDS if shutil.which(command[0])]
        self._asked = {command: Child([*command, "version", "--short"]) for command in there}

    def result(self) -> Compose:
        """The Compose to use; NagleLabError if none is new enough."""
        for command, child in self._asked.items():
            answer = child.finish()
            version = answer.stdout.strip().removeprefix("v")
            if answer.exit_code == 0 and _numbers(version) >= _OLDEST:
                return Compose(command, version)
        raise NagleLabError(
            "Docker Compose is missing (`docker compose`, or docker-compose 1.29 or newer): run `make setup`"
        )


def error_line(finished: Finished) -> str:
    """The line of Compose's output that best explains why it failed."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", finished.stdout + "\n" + finished.stderr)
    lines = [line.strip() for line in plain.splitlines()]
    by_apt = re.findall(r"\bE: .+", "\n".join(lines))  # in the middle of a build's output
    errors = [line for line in lines if "error" in line.lower() and not line.startswith("Encountered errors")]
    return next(reversed(by_apt or errors), finished.last_line())


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version)[:2])
