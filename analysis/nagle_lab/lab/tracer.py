"""The calls of the service that holds: ``trace`` runs in a sidecar of its own, and what strace writes is kept here.

What it says is that of ``scenarios/shared/tracer/trace``.
"""

import os
import subprocess
import threading
import time
from pathlib import Path
from typing import IO

from msgspec.structs import replace

from nagle_lab.errors import NagleLabError
from nagle_lab.lab.containers.interrupts import pause
from nagle_lab.lab.scenarios.scenario import REPOSITORY, Lab, Scenario, Variant
from nagle_lab.runs.manifest import THREADS, TRACE

SERVICE = "tracer"
MOST_BYTES = 100_000_000  # of a trace that are kept, and a byte that says that there was more
STACKS_S = 1  # how long calls are written with stacks
_SHARED = REPOSITORY / "scenarios" / "shared"
_ATTACHED_S, _POLL_S, _ENDED_S = 30.0, 0.02, 20.0


def traced_service(scenario: Scenario, variant: Variant) -> str:
    """Return the service whose calls are of interest: the one that holds, where the scenario stalls."""
    if service := scenario.lab(variant).traced:
        return service
    stalled = scenario.variants.get(scenario.stalled)
    holder = variant.held_by or (stalled.held_by if stalled else None)
    return scenario.load.service if holder == "client" else scenario.server.service


def with_tracer(lab: Lab) -> Lab:
    """Return the lab with the sidecar that traces."""
    compose, images = (*lab.compose, _SHARED / "trace.yaml"), (*lab.images, _SHARED / SERVICE)
    return replace(lab, compose=compose, images=images)


def variables(service: str) -> dict[str, str]:
    """Return what the sidecar's Compose file asks for."""
    return {"NAGLE_LAB_TRACED": service, "NAGLE_LAB_TRACER": str(_SHARED / SERVICE)}


class Tracer:
    """A running trace, written to ``folder``. Its end is that of its container, if it is not stopped before."""

    def __init__(self, container: str, folder: Path) -> None:
        self._folder = folder
        self._said: list[str] = []
        self._disk_error: OSError | None = None
        self._process = subprocess.Popen(
            ["docker", "exec", "--interactive", container, "trace", str(STACKS_S)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
        self._pumps = [threading.Thread(target=pump, daemon=True) for pump in (self._write, self._listen)]
        for each in self._pumps:
            each.start()

    def _write(self) -> None:
        left = MOST_BYTES + 1
        stream = _pipe(self._process.stdout)
        try:
            with (self._folder / TRACE).open("wb") as file:
                while block := os.read(stream.fileno(), 1 << 20):  # also of what is not kept: strace must not wait
                    left -= file.write(block[:left])
        except OSError as error:
            self._disk_error = error
            while os.read(stream.fileno(), 1 << 20):
                pass

    def _listen(self) -> None:
        for raw in _pipe(self._process.stderr):
            self._said.append(raw.decode(errors="replace").rstrip("\n"))

    def wait_until_tracing(self) -> None:
        """Return once strace is attached; NagleLabError says why it is not."""
        until = time.monotonic() + _ATTACHED_S
        while "tracing" not in self._said:
            if self._process.poll() is not None or time.monotonic() > until:
                self.abandon()
                words = [line for line in self._said if line.startswith("strace: ")]
                raise NagleLabError(f"strace could not attach ({(words or ['no answer'])[0]}): run it without TRACE")
            pause(_POLL_S)

    def version(self) -> str:
        """Return that of strace."""
        return next((line.split()[1] for line in self._said if line.startswith("strace ")), "")

    def stop(self) -> None:
        """Detach, and return when all is in the folder. Raises OSError where that was full."""
        self.abandon()
        threads = [line.removeprefix("thread ") for line in self._said if line.startswith("thread ")]
        (self._folder / THREADS).write_text("".join(f"{line}\n" for line in threads))
        if self._disk_error:
            raise self._disk_error

    def abandon(self) -> None:
        """Detach, whatever its state."""
        stdin = _pipe(self._process.stdin)
        if not stdin.closed:
            stdin.close()
        try:
            self._process.wait(timeout=_ENDED_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for pump in self._pumps:
            pump.join(_ENDED_S)


def _pipe(stream: IO[bytes] | None) -> IO[bytes]:
    assert stream is not None  # every stream of the process is a pipe
    return stream
