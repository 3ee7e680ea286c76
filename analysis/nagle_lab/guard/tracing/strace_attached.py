"""strace on running processes: it is attached for a while, and then they continue without it."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from nagle_lab.guard.tracing import strace_command
from nagle_lab.host import children
from nagle_lab.host.privileges import CAP_SYS_PTRACE, has_capability, ptrace_scope
from nagle_lab.host.proc import every_pid, status_of

# Beside strace_command.CALLS: the earlier calls, with stacks; and the threads that existed, with their processes.
STACKS, THREADS = "strace-stacks.txt", "strace-threads.txt"
UNTRACED = "untraced.pcapng"  # the capture of the time before strace attached
UNTRACED_S = 5.0  # its longest duration
STACKS_S = 2.0  # how long stacks are recorded: each takes milliseconds, in which a hold may pass
_ATTACHED_S, _DETACHED_S = 10.0, 3.0


class NotTracedError(Exception):
    """Why strace cannot attach, and what to do."""


class Tracer:
    """Writes the calls of processes to a folder: with stacks for a while, then without.

    Use it from one thread, which must live as long as strace should.
    """

    def __init__(self, find: Callable[[], list[int]], folder: Path) -> None:
        """``find`` says which processes; it may raise NotTracedError."""
        self._find, self._folder = find, folder
        self._process: subprocess.Popen[str] | None = None
        self.uses_io_uring = False

    def check(self) -> list[int]:
        """The processes to which it would attach. Raises NotTracedError, for example if one is already traced."""
        pids = self._find()
        if why := next(filter(None, map(why_traced_already, pids)), ""):
            raise NotTracedError(why)
        return pids

    def start(self, *, stacks: bool) -> None:
        """Attach, and return when that is done. Raises NotTracedError."""
        pids = self.check()
        self.uses_io_uring |= any(map(_uses_io_uring, pids))
        file = self._folder / (STACKS if stacks else strace_command.CALLS)
        self._process = subprocess.Popen(
            strace_command.attaching(pids, file, stacks=stacks),
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            preexec_fn=_as_child,  # noqa: PLW1509 - no more than two system calls
        )  # fmt: skip
        until = time.monotonic() + _ATTACHED_S
        while not all(map(_is_traced, pids)):
            if self._process.poll() is not None or time.monotonic() > until:
                said = self.stop()
                raise NotTracedError(why_not_attached(pids, said))
            time.sleep(0.005)
        threads = [f"{task.name} {pid}\n" for pid in pids for task in _tasks(pid)]
        with (self._folder / THREADS).open("a") as known:
            known.writelines(threads)

    def stop(self) -> list[str]:
        """Detach, wait until everything is written, and return what strace said.

        Strace that has not let go after a while never will: it waits for a process to stop that waits for its child
        of vfork(), which strace has stopped. Both go on when strace is killed.
        """
        if not self._process:
            return []
        self._process.send_signal(signal.SIGTERM)
        try:
            _, said = self._process.communicate(timeout=_DETACHED_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            _, said = self._process.communicate()
        self._process = None
        return [line.removeprefix("strace: ") for line in said.splitlines()]


def _as_child() -> None:
    """In the child: end, and so detach, when the parent is gone; do not block signals."""
    children.end_with_parent(signal.SIGTERM)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _is_traced(pid: int) -> bool:
    """Whether strace is attached, or the process is gone."""
    status = status_of(pid)
    return not status or status.get("TracerPid", "0") != "0" or status.get("State", "").startswith("Z")


def _tasks(pid: int) -> list[Path]:
    with suppress(OSError):
        return list(Path(f"/proc/{pid}/task").iterdir())
    return []


def _uses_io_uring(pid: int) -> bool:
    with suppress(OSError):
        return any("[io_uring]" in str(file.readlink()) for file in Path(f"/proc/{pid}/fd").iterdir())
    return False


def why_traced_already(pid: int) -> str:
    """A line that says which program already traces the process; empty if none does."""
    tracer = status_of(pid).get("TracerPid", "0")
    if tracer == "0":
        return ""
    name = status_of(tracer).get("Name", "another program")
    return f"process {pid} is already traced by {name}, process {tracer}: end that first"


def why_not_attached(pids: Sequence[int], said: Sequence[str]) -> str:
    """Why strace did not attach, from its own output and what the kernel says about the processes; one line."""
    refused = next((pid for pid in pids if not _is_traced(pid)), pids[0])
    status = status_of(refused)
    if not status:
        return f"process {refused} has ended: ss -tlnp lists those that listen"
    why = next((line for line in said if "ptrace" in line), said[0] if said else "it gave no reason")
    owner = status.get("Uid", "?").split()[0]
    if has_capability(CAP_SYS_PTRACE):
        todo = "a security policy forbids it (AppArmor, SELinux, seccomp): trace it from the host, as root"
    elif owner != str(os.geteuid()):
        todo = f"it belongs to user {owner}: run this as root, in a container with --cap-add SYS_PTRACE"
    elif scope := ptrace_scope():
        todo = f"kernel.yama.ptrace_scope is {scope}: run this as root, or sudo sysctl kernel.yama.ptrace_scope=0"
    else:
        todo = "run this as root, in a container with --cap-add SYS_PTRACE"
    return f"strace cannot attach to process {refused} ({why}): {todo}"


def untraced_s(seconds: float | None) -> float:
    """How long to record without strace first, s; ``seconds`` is the whole time, None until a signal."""
    return UNTRACED_S if seconds is None else min(UNTRACED_S, seconds / 4)


def others_here() -> list[int]:
    """The processes of this PID namespace that see other files than this one: those of the container we joined."""
    ours = Path("/proc/self/ns/mnt").readlink()
    found = []
    for pid in every_pid():
        with suppress(OSError):
            if Path(f"/proc/{pid}/ns/mnt").readlink() != ours:
                found.append(pid)
    return sorted(found)
