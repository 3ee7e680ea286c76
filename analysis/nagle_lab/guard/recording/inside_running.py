"""The program that records running software: ``main(folder)``, with a request in the folder; prints nothing."""

import os
import signal
import time
from contextlib import suppress
from functools import partial
from pathlib import Path

from nagle_lab.guard.recording.job import (
    CAPTURE,
    OUTCOME,
    READY,
    REQUEST,
    RESERVE,
    Outcome,
    Request,
    no_room,
    read_record,
    write_record,
)
from nagle_lab.guard.recording.recorder import Recorder, interfaces
from nagle_lab.guard.tracing import strace_command
from nagle_lab.guard.tracing.strace_attached import (
    STACKS_S,
    UNTRACED,
    NotTracedError,
    Tracer,
    others_here,
    untraced_s,
)
from nagle_lab.host import children, namespace
from nagle_lab.host.signals import ENDING


def main(folder: str) -> None:
    """Do what the request says, and write the outcome to the folder."""
    path = Path(folder)
    request = read_record(Request, path / REQUEST)
    signal.pthread_sigmask(signal.SIG_BLOCK, children.TAKEN)
    children.end_with_parent(signal.SIGTERM)
    try:
        outcome = _record(request, path)
    except OSError as error:
        outcome = Outcome(problem=no_room(error, "the recording", path) or error.strerror or str(error))
    except NotTracedError as error:
        outcome = Outcome(not_traced=str(error))
    (path / RESERVE).unlink(missing_ok=True)
    write_record(outcome, path / OUTCOME)
    for file in path.iterdir():
        with suppress(OSError):
            os.chown(file, request.uid, request.gid)


def _record(request: Request, folder: Path) -> Outcome:
    if request.pid is not None:
        namespace.join(request.pid, namespace.OF_PROCESS)
    there = interfaces()
    if request.interface and request.interface not in there:
        return Outcome(
            problem=f"there is no interface {request.interface}; there are {', '.join(there)}", try_another_way=False
        )
    started = time.monotonic()
    seconds = 10**9 if request.seconds is None else request.seconds
    tracer = None
    if request.trace:
        tracer = Tracer(partial(_to_trace, request.pid), folder)
        seconds = _untraced_first(tracer, Recorder(folder / UNTRACED, there, request.ports), seconds)
        tracer.start(stacks=strace_command.has_stacks())
    recorder = Recorder(folder / CAPTURE, [request.interface] if request.interface else there, request.ports)
    recorder.start()
    (folder / READY).touch()
    if tracer:
        seconds = _stacks_first(tracer, seconds)
    signal.sigtimedwait(ENDING, seconds)
    recorder.stop()
    if tracer:
        tracer.stop()
    return Outcome(
        status=0,
        problem=recorder.problem,
        try_another_way=False,
        captured=recorder.captured,
        dropped=recorder.dropped,
        took_s=round(time.monotonic() - started, 3),
        io_uring=tracer is not None and tracer.uses_io_uring,
    )


def _to_trace(pid: int | None) -> list[int]:
    """The processes to trace: one and those it started, or all of the container. Raises NotTracedError."""
    if found := others_here() if pid is None else [pid, *children.descendants(pid)]:
        return found
    raise NotTracedError("no process is left in the container: docker ps lists those that run")


def _untraced_first(tracer: Tracer, recorder: Recorder, seconds: float) -> float:
    """Record part of the time without strace, which changes how often it stalls; returns how many seconds are left.

    Raises NotTracedError if it cannot be traced, or a signal came.
    """
    if why := strace_command.why_no_tracing():
        raise NotTracedError(why)
    tracer.check()
    part = untraced_s(seconds)
    recorder.start()
    ended = signal.sigtimedwait(ENDING, part)
    recorder.stop()
    if ended:
        raise NotTracedError(f"it was ended in the first {part:g} s, which are without strace: let it run longer")
    return seconds - part


def _stacks_first(tracer: Tracer, seconds: float) -> float:
    """Record stacks for part of the time; returns how many seconds are left, 0 if a signal came."""
    if not strace_command.has_stacks():
        return seconds
    part = min(STACKS_S, seconds / 4)
    if signal.sigtimedwait(ENDING, part):
        return 0
    tracer.stop()
    with suppress(NotTracedError):  # it has already ended
        tracer.start(stacks=False)
    return seconds - part
