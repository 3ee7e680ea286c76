"""The program that runs a command in a namespace and records it there: ``main(folder)``, with a job in the folder.

It is a process of its own, because a namespace cannot be left again, and because sudo or Docker may have to start it.
It prints nothing: its outcome is in the folder.
"""

import os
import signal
import time
from contextlib import suppress
from functools import partial
from pathlib import Path

from nagle_lab.guard.recording import without_nodelay
from nagle_lab.guard.recording.cuts import CutServer
from nagle_lab.guard.recording.job import (
    CAPTURE,
    JOB,
    OUTCOME,
    RESERVE,
    RESERVED,
    Job,
    NamespaceState,
    Outcome,
    no_room,
    read_record,
    write_record,
)
from nagle_lab.guard.recording.recorder import Recorder, interfaces
from nagle_lab.guard.tracing.program_keeper import ProgramKeeper
from nagle_lab.guard.tracing.strace_waits import StraceEnder
from nagle_lab.host import children, namespace

_MTU = 1500  # of loopback: with its usual 65,536 most messages fit into one segment, and nothing is held


def main(folder: str) -> None:
    """Run the job in the folder, and write its outcome there."""
    path = Path(folder)
    job = read_record(Job, path / JOB)
    if not job.parts:  # otherwise pytest's plugin reads it again
        (path / JOB).unlink()  # its environment may contain secrets, and whoever would remove it may be killed
    try:
        (path / RESERVE).write_bytes(RESERVED)
        outcome = _run(job, path)
    except OSError as error:
        problem = no_room(error, "the recording", path) or f"{folder}: {error.strerror}"
        outcome = Outcome(problem=problem, try_another_way=False)
    except RuntimeError as error:  # more threads than ulimit -u or the container allows
        outcome = Outcome(problem=f"the recorder could not start: {error}; see ulimit -u", try_another_way=False)
    with suppress(OSError):  # the process that waits for it sees that it is missing
        (path / RESERVE).unlink()
        write_record(outcome, path / OUTCOME)
    for file in (path / OUTCOME, *map(Path, outcome.programs.values())):  # whose umask may be 077, for root's, too
        with suppress(OSError):
            os.chown(file, job.uid, job.gid)


def _run(job: Job, folder: Path) -> Outcome:
    started = time.monotonic()
    try:
        recorder = _prepare(job, folder)
    except OSError as error:  # no namespace can be entered this way
        if no_room(error, CAPTURE, folder):
            raise
        return Outcome(problem=error.strerror or str(error))
    children.adopt_orphans()
    child = children.Child(job.command, job.environment, job.cwd, partial(_become, job))
    children.end_with_parent(signal.SIGTERM)
    sent_before = namespace.segments_sent()
    recorder.start()
    parts = CutServer(recorder, folder) if job.parts else None
    try:
        child.start()
    except children.NotStartedError as error:
        recorder.stop()
        return Outcome(status=error.status, problem=str(error), try_another_way=False)
    keeper = ProgramKeeper() if job.programs else None
    ender = StraceEnder(child.pid) if job.under_strace else None
    ended = child.wait(job.limit_s, relayed=True, under_strace=job.under_strace)
    if ender:
        ender.stop()
    took_s = time.monotonic() - started
    left = children.end_the_rest()
    if parts:
        parts.close()
    recorder.stop()
    sent = namespace.segments_sent()
    return Outcome(
        status=ended.status,
        timed_out=ended.timed_out,
        interrupted=ended.interrupted,
        started=True,
        problem=recorder.problem,
        try_another_way=False,
        captured=recorder.captured,
        dropped=recorder.dropped,
        sent=None if sent is None or sent_before is None else sent - sent_before,
        took_s=round(took_s, 3),
        ended_by_us=left,
        programs=keeper.copy_gone(Path(job.programs)) if keeper else {},
    )


def _prepare(job: Job, folder: Path) -> Recorder:
    """Enter the namespace, and set it up for recording. Raises OSError."""
    if job.namespace is NamespaceState.TO_MAKE:
        namespace.make(job.uid, job.gid)
    namespace.prepare_loopback(_MTU)
    names = interfaces()
    for name in names[1:]:
        namespace.set_up_interface(name, None)
    return Recorder(folder / CAPTURE, names, owner=(job.uid, job.gid))


def _become(job: Job) -> None:
    """In the child: become the user who asked for the run, with the output and without the option that was asked."""
    if os.geteuid() != job.uid and job.namespace is NamespaceState.PASTA:
        uid, gid = os.geteuid(), os.getegid()
        namespace.unshare(namespace.CLONE_NEWUSER)
        namespace.map_ids((job.uid, uid), (job.gid, gid))
    elif os.geteuid() != job.uid:
        os.setgroups(job.groups)
        os.setgid(job.gid)
        os.setuid(job.uid)
    if job.output:
        file = os.open(job.output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        os.dup2(file, 1)
        os.dup2(file, 2)
    if job.without_nodelay:
        without_nodelay.take_away()
