"""The containers of one run: started by Compose, addressed by service, and always removed, if not by the run itself
then by the next one.
"""

import os
import secrets
import shlex
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from nagle_lab.errors import Exit, NagleLabError
from nagle_lab.lab import tracer
from nagle_lab.lab.containers.compose import Compose, error_line
from nagle_lab.lab.containers.docker import (
    PROJECT_LABEL,
    SERVICE_LABEL,
    Container,
    container_details,
    containers,
    engine_version,
    labelled,
    last_log_lines,
    remove_project,
)
from nagle_lab.lab.containers.interrupts import pause
from nagle_lab.lab.containers.process import Child
from nagle_lab.lab.folder import claimed, clean_up_abandoned
from nagle_lab.lab.recorder import Recorder
from nagle_lab.lab.scenarios.scenario import Lab

LOCK_LABEL, HOST_LABEL = "nagle-lab.lock", "nagle-lab.host"
_LISTENING_S = 15.0
_COMMAND_S = 60.0
_POLL_S = 0.05
_NOT_RUN = (125, 126, 127)  # docker run: the engine refused; the command cannot be run; there is no such command


def sweep(runs_dir: Path) -> None:
    """Remove what ended runs have left on this engine and in ``runs_dir``; live runs are not touched.

    Containers labelled by another host (an engine can be shared) or by hand (no lock) are left alone.
    """
    for project, lock, host in labelled(LOCK_LABEL, HOST_LABEL):
        if lock and host == os.uname().nodename:
            with claimed(Path(lock)) as over:
                if over:
                    remove_project(project)
    clean_up_abandoned(runs_dir)


class LiveLab:
    """The lab of one run, a Compose project of its own."""

    def __init__(self, lab: Lab, server: str, compose: Compose, lock: Path, variables: Mapping[str, str]) -> None:
        """``server`` is the service that must never end; ``lock`` is a file that the run holds locked (flock), by
        which :func:`sweep` knows that it lives; ``variables`` are those of the Compose files.
        """
        self._lab, self._server = lab, server
        self._compose = compose
        self._project = f"nagle-lab-{secrets.token_hex(4)}"
        host = os.uname().nodename
        self._labels = {PROJECT_LABEL: self._project, LOCK_LABEL: str(lock), HOST_LABEL: host}
        # From these the Compose files make the same labels.
        self._variables = {**variables, "NAGLE_LAB_LOCK": str(lock), "NAGLE_LAB_HOST": host}
        self._ids: dict[str, str] = {}

    def require(self, what: str, image: str) -> None:
        """Raise NagleLabError (INCONCLUSIVE) for ``what`` unless this machine has everything that the lab requires.

        Each command runs in a container of ``image`` of its own, without a network and without capabilities.
        """
        confined = ["--network=none", "--read-only", "--cap-drop=ALL", "--security-opt=no-new-privileges:true"]
        confined += [f"--label={name}={value}" for name, value in self._labels.items()]
        for requirement in self._lab.requires:
            command = ["docker", "run", "--rm", *confined, image, *shlex.split(requirement.command)]
            asked = Child(command).wait(_COMMAND_S)  # if killed, its container might appear after the clean-up
            if asked.exit_code in _NOT_RUN or asked.exit_code < 0:
                raise NagleLabError(f"`{requirement.command}` could not be run: {asked.last_line()}: start Docker")
            if asked.exit_code != 0:
                raise NagleLabError(
                    f"this machine cannot run {what}: it has no {requirement.what}", Exit.INCONCLUSIVE
                )

    def start(self) -> None:
        """Create and start the containers; NagleLabError says in Compose's words why they did not start."""
        up = self._compose.up(self._lab.compose, self._project, self._variables)
        self._ids = containers(self._project)
        if up.exit_code != 0:
            raise NagleLabError(f"the containers did not start: {error_line(up)}: run it again")

    def remove(self) -> None:
        """Remove every container and network, whatever signals arrive."""
        remove_project(self._project)

    def details(self) -> dict[str, Container]:
        """The details of each container, by service."""
        containers = container_details(list(self._ids.values()))
        return {container.config.labels[SERVICE_LABEL]: container for container in containers}

    def exec(self, service: str, command: str, environment: Mapping[str, str] | None = None) -> Child:
        """Start ``command`` (words quoted as for a shell) in the container of ``service``."""
        variables = [f"--env={name}={value}" for name, value in (environment or {}).items()]
        return Child(["docker", "exec", *variables, self._id(service), *shlex.split(command)])

    def prepare(self, service: str, command: str) -> None:
        """Run ``command`` in the container of ``service``; NagleLabError with its last line if it fails."""
        done = self.exec(service, command).finish(_COMMAND_S)
        if done.exit_code != 0:
            raise NagleLabError(f"`{command}` in {service} failed: {done.last_line()}")

    def recorder(self, name: str, file: Path) -> Recorder:
        """Start the capture ``name`` of the lab into ``file``."""
        point = self._lab.captures[name]
        return Recorder(name, self._id(point.service), point.interface, file)

    def held_back(self, service: str, command: str) -> Child:
        """Start ``command`` as ``exec`` does, with the hooks of interpreters; the command waits until strace is
        attached.
        """
        own = dict(variable.split("=", 1) for variable in self.details()[service].config.env)
        return self.exec(service, tracer.held_back(command), tracer.put_hooks(self._id(service), own))

    def tracer(self, folder: Path, *, waits_for_load: bool) -> tracer.Tracer:
        """Start the trace of the lab, which has its sidecar (``with_tracer``), into ``folder``."""
        return tracer.Tracer(self._id(tracer.SERVICE), folder, waits_for_load=waits_for_load)

    def wait_until_listening(self, services: Sequence[str], port: int, watcher: Recorder) -> None:
        """Wait until one of ``services`` listens on TCP ``port``, asking ``watcher``, which sends no packet.

        Raises NagleLabError with the last log lines of any service that ends meanwhile, or of ``services`` after 15
        s.
        """
        started = time.monotonic()
        while not watcher.listening(port):
            self.require_services()
            if time.monotonic() - started > _LISTENING_S:
                who, log = " or ".join(services), " / ".join(last_log_lines(self._id(each)) for each in services)
                raise NagleLabError(f"the {who} does not listen on port {port} after {_LISTENING_S:g} s: {log}")
            pause(_POLL_S)

    def require_services(self) -> None:
        """Raise NagleLabError with the last log lines of the service that ended first, if any has failed.

        A service other than the server may end with exit code 0, when its work is done. If the engine is gone, or was
        restarted, the error says so.
        """
        details = self.details()
        if self._ids and not details:
            engine_version()  # it answers, perhaps only now: ask once more
            details = self.details()
            if not details:
                gone = "the containers of this run are gone (was Docker restarted?)"
                raise NagleLabError(f"{gone}: run it again")
        states = {service: container.state for service, container in details.items()}
        ended = [
            service
            for service, state in states.items()
            if state.status in ("exited", "dead") and (state.exit_code != 0 or service == self._server)
        ]
        if len(ended) == len(states) > 1:
            raise NagleLabError("all containers ended at once (was Docker restarted?): run it again")
        if ended:
            first = min(ended, key=lambda service: states[service].finished_at)
            log = last_log_lines(self._id(first))
            raise NagleLabError(f"the {first} ended with exit code {states[first].exit_code}: {log}")

    def paused(self) -> list[str]:
        """The services whose containers are paused."""
        return [service for service, container in self.details().items() if container.state.status == "paused"]

    def _id(self, service: str) -> str:
        if service not in self._ids:
            names = ", ".join(sorted(self._ids))
            raise NagleLabError(
                f"scenario.toml names service {service!r}, which the Compose files do not have: they have {names}"
            )
        return self._ids[service]
