"""The calls of the service that holds: ``trace`` runs in a sidecar of its own, and strace's output is stored here.

Its commands and answers are those of ``scenarios/shared/tracer/trace``.
"""

import io
import os
import shlex
import subprocess
import tarfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path

from msgspec.structs import replace

from nagle_lab.errors import NagleLabError
from nagle_lab.guard.tracing import hooking
from nagle_lab.guard.tracing.strace_lines import MOST_BYTES
from nagle_lab.lab.containers.interrupts import pause
from nagle_lab.lab.containers.process import end, pipe
from nagle_lab.lab.scenarios.scenario import REPOSITORY, Lab, Scenario, Variant
from nagle_lab.runs.manifest import THREADS, TRACE

SERVICE = "tracer"
STACKS_S = 1  # how long calls are recorded with stacks
HOOKED = "client"  # the service in which hooks.yaml makes a folder for the interpreters' hooks
_HOOKS = Path("/nagle-lab-hooks")
# A command run like this waits until strace is attached to it.
_HELD_BACK = ("sh", "-c", 'kill -STOP $$; exec "$@"', "sh")
_SHARED = REPOSITORY / "scenarios" / "shared"
_ATTACHED_S, _POLL_S, _ENDED_S = 30.0, 0.02, 20.0


def traced_service(scenario: Scenario, variant: Variant) -> str:
    """The service whose calls are of interest: the one that holds when the scenario stalls."""
    if service := scenario.lab(variant).traced:
        return service
    stalled = scenario.variants.get(scenario.stalled)
    holder = variant.held_by or (stalled.held_by if stalled else None)
    return scenario.load.service if holder == "client" else scenario.server.service


def with_tracer(lab: Lab, service: str) -> Lab:
    """The lab with the sidecar that traces that service."""
    files = ("trace.yaml", "hooks.yaml") if service == HOOKED else ("trace.yaml",)
    compose = (*lab.compose, *(_SHARED / name for name in files))
    return replace(lab, compose=compose, images=(*lab.images, _SHARED / SERVICE))


def variables(service: str) -> dict[str, str]:
    """The variables that the sidecar's Compose file needs."""
    return {"NAGLE_LAB_TRACED": service, "NAGLE_LAB_TRACER": str(_SHARED / SERVICE)}


def put_hooks(container: str, environment: Mapping[str, str]) -> dict[str, str]:
    """Put the hooks into a container of HOOKED; returns the environment variables with which interpreters load them.

    Returns nothing if that fails: then calls have no lines, and everything else is the same.
    """
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for path in sorted(hooking.HOOKS.rglob("*")):
            if path.is_file() and path.suffix not in (".c", ".h", ".pyc"):
                about = tar.gettarinfo(path, str(path.relative_to(hooking.HOOKS)))
                about.uid = about.gid = 0
                about.mode = 0o644
                with path.open("rb") as file:
                    tar.addfile(about, file)
    unpack = f"tar -x --no-same-owner -f - -C {_HOOKS} && uname -s -m"
    command = ["docker", "exec", "--interactive", container, "sh", "-c", unpack]
    done = subprocess.run(command, input=packed.getvalue(), capture_output=True, check=False, process_group=0)
    if done.returncode:
        return {}
    found, machine = hooking.agent_in(hooking.HOOKS), done.stdout.decode().split()
    is_same = machine == [os.uname().sysname, os.uname().machine]  # hooks compiled here run there
    return hooking.hooked(environment, _HOOKS, _HOOKS / found.name if found and is_same else None)


def held_back(command: str) -> str:
    """The command, changed so that it begins when strace is attached to it: see ``Tracer``."""
    return f"{shlex.join(_HELD_BACK)} {command}"


class Tracer:
    """A running trace, written to ``folder``. Unless it is stopped before, it ends with its container."""

    def __init__(self, container: str, folder: Path, *, waits_for_load: bool = False) -> None:
        """``waits_for_load``: it attaches when the ``held_back`` command is there, and lets that continue."""
        self._folder = folder
        self._said: list[str] = []
        self._disk_error: OSError | None = None
        script = ["trace", str(STACKS_S), *(["held"] if waits_for_load else [])]
        self._process = subprocess.Popen(
            ["docker", "exec", "--interactive", container, *script],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, process_group=0,
        )  # fmt: skip
        self._pumps = [threading.Thread(target=pump, daemon=True) for pump in (self._write, self._listen)]
        for each in self._pumps:
            each.start()

    def _write(self) -> None:
        left = MOST_BYTES + 1  # the last byte says that there was more
        stream = pipe(self._process.stdout)
        try:
            with (self._folder / TRACE).open("wb") as file:
                while block := os.read(stream.fileno(), 1 << 20):  # all of it, so that strace never waits
                    left -= file.write(block[:left])
        except OSError as error:
            self._disk_error = error
            while os.read(stream.fileno(), 1 << 20):
                pass

    def _listen(self) -> None:
        for raw in pipe(self._process.stderr):
            self._said.append(raw.decode(errors="replace").rstrip("\n"))

    def wait_until_tracing(self) -> None:
        """Wait until strace is attached; NagleLabError says why it is not."""
        until = time.monotonic() + _ATTACHED_S
        while "tracing" not in self._said:
            if self._process.poll() is not None or time.monotonic() > until:
                self.abandon()
                words = [line for line in self._said if line.startswith("strace: ")]
                raise NagleLabError(f"strace could not attach ({(words or ['no answer'])[0]}): run it without TRACE")
            pause(_POLL_S)

    def version(self) -> str:
        """The version of strace."""
        return next((line.split()[1] for line in self._said if line.startswith("strace ")), "")

    def stop(self) -> None:
        """Detach, and return when everything is in the folder. Raises OSError if its disk was full."""
        self.abandon()
        threads = [line.removeprefix("thread ") for line in self._said if line.startswith("thread ")]
        (self._folder / THREADS).write_text("".join(f"{line}\n" for line in threads))
        if self._disk_error:
            raise self._disk_error

    def abandon(self) -> None:
        """Detach, whatever the state."""
        end(self._process, self._pumps, within_s=_ENDED_S)
