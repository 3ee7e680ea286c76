"""A command run in a namespace, from outside: find a way in, wait for it, and say what was recorded."""

import os
import shutil
import signal
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict, Unpack

import msgspec

from nagle_lab.errors import NagleLabError
from nagle_lab.guard.recording.cuts import PARTS_VARIABLE
from nagle_lab.guard.recording.job import (
    CAPTURE,
    JOB,
    OUTCOME,
    RESERVE,
    RESERVED,
    Job,
    NamespaceState,
    Outcome,
    read_record,
    room_needed,
    write_record,
)
from nagle_lab.guard.recording.launchers import Way, program, ways, why_no_namespace
from nagle_lab.host import children


@dataclass(frozen=True)
class Guarded:
    """A command that has run, and its recording."""

    folder: Path
    way: str
    outcome: Outcome
    command: Sequence[str] = ()  # empty: running software was recorded
    what: str = ""  # that software; empty for a command
    enter: str = ""  # what a shell writes before a command to run it in the network namespace of that software

    @property
    def capture(self) -> Path:
        """The capture file, with every TCP segment of the namespace."""
        return self.folder / CAPTURE


class Surroundings(TypedDict, total=False):
    """Where a command runs, and how."""

    cwd: Path  # otherwise our working directory
    environment: Mapping[str, str]  # in addition to ours
    output: Path  # a file for what it prints; otherwise it prints where we do


def working_folder() -> Path:
    """Our working directory; NagleLabError if it was removed, or no command could begin there."""
    try:
        here = Path.cwd()
    except FileNotFoundError:
        raise NagleLabError("the working directory was deleted: cd to one that exists, and run it again") from None
    if not os.access(here, os.X_OK):
        raise NagleLabError(f"{here}: no permission to enter it: cd to another directory, and run it again")
    return here


class HowToRun(Surroundings, total=False):
    """Further settings of a run."""

    limit_s: float | None  # time after which the command is ended
    without_nodelay: bool  # whether it runs without TCP_NODELAY
    parts: bool  # whether programs there may cut the capture (cuts.CutClient)
    programs: Path | None  # an existing folder for copies of programs whose files are gone at the end
    under_strace: bool  # whether the command is strace with one


def make_job(command: Sequence[str], folder: Path, **how: Unpack[HowToRun]) -> Job:
    """A job with the present user, working directory and environment; with ``parts``, a variable names the job's
    folder.
    """
    environment = {**os.environ, **how.get("environment", {})}
    parts = how.get("parts", False)
    return Job(
        command=list(command),
        cwd=str(how.get("cwd") or working_folder()),
        environment=environment | ({PARTS_VARIABLE: str(folder)} if parts else {}),
        uid=os.geteuid(),
        gid=os.getegid(),
        groups=os.getgroups(),
        limit_s=how.get("limit_s"),
        without_nodelay=how.get("without_nodelay", False),
        output=str(how.get("output", "")),
        parts=parts,
        programs=str(how.get("programs") or ""),
        under_strace=how.get("under_strace", False),
    )


def run(command: Sequence[str], folder: Path, *, network: bool = False, **how: Unpack[HowToRun]) -> Guarded:
    """Run a command in a network namespace of its own, and record it to an existing, empty ``folder``.

    With ``network`` it reaches this machine's network through pasta. Raises NagleLabError if no such namespace can be
    made. A command that cannot be started is an outcome, not an error.
    """
    job = make_job(command, folder, **how)
    if network:
        pasta = Way("a user namespace with a way out by pasta", _pasta(), NamespaceState.PASTA)
        return _through([pasta], job, folder)
    return _through(ways(), job, folder)


def _through(these: Iterable[Way], job: Job, folder: Path) -> Guarded:
    refused = ""
    for way in these:
        outcome = _run(way, job, folder)
        if not outcome.problem or not outcome.try_another_way:
            return Guarded(folder, way.name, outcome, job.command)
        refused = refused or outcome.problem
    raise NagleLabError(
        f"no network namespace can be created here ({refused or 'nothing allows it'}): {why_no_namespace()}"
    )


def _run(way: Way, job: Job, folder: Path) -> Outcome:
    (folder / OUTCOME).unlink(missing_ok=True)
    with room_needed(folder):
        write_record(msgspec.structs.replace(job, namespace=way.namespace, way=way.name), folder / JOB)
    command = [*way.before, *program("inside_command", str(folder))]
    try:
        ended = _ended(command, job.cwd)
    except children.NotStartedError as error:
        return Outcome(problem=f"{command[0]}: {error}")
    finally:
        (folder / JOB).unlink(missing_ok=True)
    try:
        return read_record(Outcome, folder / OUTCOME)
    except (OSError, ValueError):
        return _without_outcome(way, ended.status, folder)


def _ended(command: Sequence[str], cwd: str) -> children.Ended:
    """Run the program and wait; end the processes it leaves behind. Raises NotStartedError."""
    children.adopt_orphans()
    before = children.descendants(os.getpid())
    child = children.Child(command, os.environ, cwd, lambda: None)
    try:
        child.start()
        return child.wait()
    finally:
        children.end_the_rest(but=before)
        child.unblock()


def _without_outcome(way: Way, status: int, folder: Path) -> Outcome:
    """Report why the program inside left no outcome. Raises NagleLabError, KeyboardInterrupt."""
    if status == 128 + signal.SIGINT:
        raise KeyboardInterrupt
    if status - 128 in signal.valid_signals():
        raise NagleLabError(f"the recording was ended by {_name_of(status - 128)}: run it again")
    if not folder.exists():
        raise NagleLabError(f"{folder} was removed during the recording: keep the command from removing it")
    with room_needed(folder):  # the disk may be so full that it could not say so
        (folder / RESERVE).write_bytes(RESERVED)
    return Outcome(problem=f"{way.name} ended with {status}", try_another_way=not (folder / CAPTURE).exists())


def _name_of(number: int) -> str:
    """A signal's name; only the first and the last of real-time signals have one."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _pasta() -> tuple[str, ...]:
    if not shutil.which("pasta"):
        raise NagleLabError("--network needs pasta: install the package passt, or leave out --network")
    if not os.access("/dev/net/tun", os.R_OK | os.W_OK):
        raise NagleLabError("--network needs access to /dev/net/tun: as root, chmod 666 /dev/net/tun")
    if os.geteuid() == 0:
        raise NagleLabError(
            "--network does not work as root, because pasta drops root's capabilities: run it as another user"
        )
    # Its ports are not reachable from here, nor ours from there
    no_ports = ("-t", "none", "-u", "none", "-T", "none", "-U", "none")
    return ("pasta", "--config-net", "--quiet", "--mtu", "1500", *no_ports, "--")
