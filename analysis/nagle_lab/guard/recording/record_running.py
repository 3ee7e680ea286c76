"""Record running software, from outside: a process, a container, a Compose service, an interface."""

import errno
import os
import shlex
import signal
from collections.abc import Callable
from pathlib import Path

from nagle_lab.errors import DISK_FULL, NagleLabError
from nagle_lab.guard.recording.job import (
    OUTCOME,
    READY,
    REQUEST,
    RESERVE,
    RESERVED,
    Outcome,
    Request,
    Target,
    read_record,
    room_needed,
    write_record,
)
from nagle_lab.guard.recording.launchers import Way, docker_with_folders, program, sudo_works, why_not_allowed
from nagle_lab.guard.recording.run_command import Guarded
from nagle_lab.host import children
from nagle_lab.host.docker import container_of_service, docker_output
from nagle_lab.host.privileges import may_join_namespaces


def record_running(
    folder: Path,
    target: Target,
    *,
    seconds: float | None = None,
    trace: bool = False,
    begins: Callable[[], None] = lambda: None,
) -> Guarded:
    """Record to an existing, empty ``folder`` for ``seconds``, or until SIGINT (Ctrl-C) or SIGTERM.

    With ``trace`` strace attaches to the target meanwhile, unless it is an interface. ``begins`` is called once there
    is a way to the target. Raises NagleLabError if it does not exist, or may not be recorded.
    """
    container = target.container
    if target.service:
        container = container_of_service(target.service)
    elif container:
        docker_output("inspect", "--type=container", "--format={{.Id}}", container)
    request = Request(target.pid, target.interface, target.ports, seconds, os.geteuid(), os.getegid(), trace)
    with room_needed(folder):
        write_record(request, folder / REQUEST)
        (folder / RESERVE).write_bytes(RESERVED)
    way = way_to(target.pid, container, trace=trace)
    begins()
    outcome = _run(way, folder)
    for name in (REQUEST, READY, RESERVE):
        (folder / name).unlink(missing_ok=True)
    if outcome.not_traced:
        raise NagleLabError(outcome.not_traced)
    if outcome.problem.startswith(DISK_FULL) and outcome.status is None:
        raise NagleLabError(outcome.problem)
    if outcome.problem and outcome.status is None:
        raise NagleLabError(f"{target} cannot be recorded ({outcome.problem}){_todo(way, outcome.problem)}")
    return Guarded(folder, way.name, outcome, what=str(target), enter=_enter(target.pid, container))


def _enter(pid: int | None, container: str) -> str:
    """What a shell on this host writes before a command to run it in that network namespace; empty for this one."""
    of_container = f"$(docker inspect -f '{{{{.State.Pid}}}}' {shlex.quote(container)})" if container else ""
    process = of_container if pid is None else pid
    return f"nsenter -t {process} -n " if process else ""


def _todo(way: Way, problem: str) -> str:
    """What to do about a problem, if that is a matter of rights."""
    if way.is_container:
        return ""
    if problem.endswith((os.strerror(errno.EACCES), os.strerror(errno.EPERM))):
        return f": {why_not_allowed()}"
    return "" if may_join_namespaces() else ": run this as root"


def way_to(pid: int | None, container: str, *, trace: bool = False) -> Way:
    """How to get into the network namespace of a process or a container; without either, how to record in this one.

    With ``trace`` also how to get to the container's processes. Raises NagleLabError if there is no such process, or
    Docker is not reachable.
    """
    if container and not (pid is not None and may_join_namespaces()):
        more = (f"--pid=container:{container}", "--cap-add=SYS_PTRACE") if trace else ()
        name = "a capture sidecar beside the container"
        return docker_with_folders(name, f"--network=container:{container}", *more)
    if pid is not None and not Path(f"/proc/{pid}").is_dir():
        raise NagleLabError(f"there is no process {pid}: ss -tlnp lists those that listen")
    if may_join_namespaces() or not sudo_works():
        return Way("as root" if may_join_namespaces() else "without root")
    return Way("sudo", ("sudo", "-n", "--"))


def _run(way: Way, folder: Path) -> Outcome:
    command = [*way.before, *program("inside_running", str(folder))]
    child = children.Child(command, os.environ, str(Path.cwd()), children.leave_terminal)
    try:
        child.start()
        ended = child.wait_or_end()
    except children.NotStartedError as error:
        return Outcome(problem=f"{command[0]}: {error}")
    finally:
        child.unblock()
    try:
        return read_record(Outcome, folder / OUTCOME)
    except (OSError, ValueError):
        if ended.status == 128 + signal.SIGTERM:  # our SIGTERM, after a signal that came before it had begun
            raise KeyboardInterrupt from None
        return Outcome(problem=f"{way.name} ended with {ended.status}")
