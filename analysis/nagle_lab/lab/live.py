"""The containers of one run: started by Compose, addressed by service, removed whatever happened."""

import secrets
import shlex
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nagle_lab.errors import NagleLabError
from nagle_lab.lab.compose import Compose, complaint
from nagle_lab.lab.docker import SERVICE_LABEL, container_details, containers, last_log_lines, remove_project
from nagle_lab.lab.interrupts import pause
from nagle_lab.lab.process import Child
from nagle_lab.lab.recorder import Recorder
from nagle_lab.lab.scenario import Scenario

_LISTENING_S = 15.0
_POLL_S = 0.05


class LiveLab:
    """The lab of one run, a Compose project of its own."""

    def __init__(self, scenario: Scenario, compose: Compose, variables: Mapping[str, str]) -> None:
        self._scenario = scenario
        self._compose = compose
        self._variables = variables
        self._project = f"nagle-lab-{secrets.token_hex(4)}"
        self._ids: dict[str, str] = {}

    def start(self) -> None:
        """Create and start the containers; NagleLabError says in Compose's words why they did not start."""
        up = self._compose.up(self._scenario.compose, self._project, self._variables)
        self._ids = containers(self._project)
        if up.exit_code != 0:
            raise NagleLabError(f"the containers did not start: {complaint(up)}")

    def remove(self) -> None:
        """Remove every container and network, whatever signals arrive."""
        remove_project(self._project)

    def details(self) -> dict[str, dict[str, Any]]:
        """Return what the engine knows of each container, by service."""
        found = container_details(list(self._ids.values()))
        return {container["Config"]["Labels"][SERVICE_LABEL]: container for container in found}

    def exec(self, service: str, command: str, *, one_stream: bool = False) -> Child:
        """Start ``command`` (words quoted as for a shell) in the container of ``service``."""
        return Child(["docker", "exec", self._ids[service], *shlex.split(command)], one_stream=one_stream)

    def recorder(self, end: str, file: Path) -> Recorder:
        """Start a capture of ``end`` into ``file``."""
        return Recorder(end, self._ids[f"{end}-capture"], self._scenario.interface, file)

    def wait_until_listening(self, watcher: Recorder) -> None:
        """Return once the server listens, as ``watcher`` sees in its namespace without sending a packet.

        Raises NagleLabError with the server's last log lines if it ends, or does not listen within 15 s.
        """
        port, started = self._scenario.server.port, time.monotonic()
        while not watcher.listening(port):
            self.require_server()
            if time.monotonic() - started > _LISTENING_S:
                log = last_log_lines(self._ids["server"])
                raise NagleLabError(f"the server does not listen on port {port} after {_LISTENING_S:g} s: {log}")
            pause(_POLL_S)

    def require_server(self) -> None:
        """Raise NagleLabError with the server's last log lines if it has ended."""
        state = self.details()["server"]["State"] if "server" in self._ids else {"Status": "never created"}
        if state["Status"] in ("exited", "dead"):
            log = last_log_lines(self._ids["server"])
            raise NagleLabError(f"the server ended with exit code {state['ExitCode']}: {log}")
