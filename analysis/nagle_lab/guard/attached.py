"""The program that records what already runs: ``main(folder)``, with a request in the folder; prints nothing."""

import ctypes
import os
import signal
import time
from contextlib import suppress
from pathlib import Path

import msgspec

from nagle_lab.guard import job as jobs
from nagle_lab.guard import processes
from nagle_lab.guard.job import CAPTURE, OUTCOME, Outcome
from nagle_lab.guard.recorder import Recorder, interfaces

REQUEST, READY = "request.json", "ready"
_CLONE_NEWUSER, _CLONE_NEWNET = 0x10000000, 0x40000000


class Request(msgspec.Struct, frozen=True):
    """What to record."""

    pid: int | None = None  # a process, in whose network namespace; None: in this one
    interface: str = ""  # only this one
    ports: list[int] = []
    seconds: float | None = None  # None: until SIGINT or SIGTERM
    uid: int = 0  # to whom the files are given
    gid: int = 0


def main(folder: str) -> None:
    """Do as the request says, and leave the outcome in the folder."""
    path = Path(folder)
    request = msgspec.json.decode((path / REQUEST).read_bytes(), type=Request)
    signal.pthread_sigmask(signal.SIG_BLOCK, processes.TAKEN)
    processes.end_with_parent(signal.SIGTERM)
    try:
        outcome = _record(request, path)
    except OSError as error:
        outcome = Outcome(problem=error.strerror or str(error))
    jobs.write(outcome, path / OUTCOME)
    for file in path.iterdir():
        with suppress(OSError):
            os.chown(file, request.uid, request.gid)


def _record(request: Request, folder: Path) -> Outcome:
    if request.pid is not None:
        _enter(request.pid)
    there = interfaces()
    if request.interface and request.interface not in there:
        return Outcome(
            problem=f"there is no interface {request.interface}, but {', '.join(there)}", is_namespace=False
        )
    started = time.monotonic()
    recorder = Recorder(folder / CAPTURE, [request.interface] if request.interface else there, request.ports)
    recorder.start()
    (folder / READY).touch()
    ends = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT}
    signal.sigtimedwait(ends, 10**9 if request.seconds is None else request.seconds)
    recorder.stop()
    return Outcome(
        status=0,
        problem=recorder.problem,
        is_namespace=False,
        captured=recorder.captured,
        dropped=recorder.dropped,
        took_s=round(time.monotonic() - started, 3),
    )


def _enter(pid: int) -> None:
    """Be in the network namespace of a process; in its user namespace first, if that is another. Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    for name, kind in (("user", _CLONE_NEWUSER), ("net", _CLONE_NEWNET)):
        theirs = Path(f"/proc/{pid}/ns/{name}")
        if theirs.stat().st_ino == Path(f"/proc/self/ns/{name}").stat().st_ino:
            continue
        with theirs.open("rb") as namespace:
            if libc.setns(namespace.fileno(), kind):
                error = ctypes.get_errno()
                raise OSError(error, os.strerror(error))
