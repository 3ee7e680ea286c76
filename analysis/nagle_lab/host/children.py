"""Child processes: run a command and wait for it; signals reach it once, and none of its processes is left after it.

:func:`end_with_parent` and :func:`ending_by_signals` make a process of ours end together with its parent. The lab's
children, whose output it reads, are in lab/containers/process.py.
"""

import ctypes
import errno
import os
import signal
import sys
import time
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from nagle_lab.host.proc import every_pid, stat_of
from nagle_lab.host.signals import ENDING, handling

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_FROM_KERNEL = 128  # SI_KERNEL: the terminal sends its signals to every process in the foreground
FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
TAKEN = {signal.SIGCHLD, *FORWARDED}
GRACE_S = 5.0  # from SIGTERM to SIGKILL
AGAIN_S = 1.0  # from SIGTERM to the next
_SAME_S = 0.2  # within which a signal to a process group comes from its sender, and from our parent, passed on

_IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)


@dataclass(frozen=True)
class Ended:
    """How a process ended."""

    status: int  # as in a shell: its exit code, or 128 plus the signal
    timed_out: bool = False
    interrupted: bool = False  # whether a signal came meanwhile, such as that of Ctrl-C


class NotStartedError(Exception):
    """The command could not be started."""

    def __init__(self, number: int) -> None:
        super().__init__(os.strerror(number))
        self.status = 127 if number == errno.ENOENT else 126  # as env, timeout and shells do


def adopt_orphans() -> None:
    """Become the parent of processes that the command leaves behind (PR_SET_CHILD_SUBREAPER)."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # if ignored, as our parent may have set it, wait finds nothing
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def end_with_parent(number: signal.Signals = signal.SIGKILL) -> None:
    """Let the kernel send this process a signal when its parent has died, for whatever reason."""
    _prctl(_PR_SET_PDEATHSIG, number)


def leave_terminal() -> None:
    """Ignore the terminal's signals, and do not read from it.

    The scheduler treats a process in a session of its own as another user (sched(7), autogroup): Linux 6.18 then lets
    it wait for seconds while others compute. So it gets only a process group of its own.
    """
    os.setpgid(0, 0)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None).prctl(option, ctypes.c_ulong(value), 0, 0, 0)


class Child:
    """A process of ours that waits for :meth:`start`, and then becomes the command.

    Fork it before there are threads. Signals are blocked in this process until :meth:`unblock`, for :meth:`wait`.
    Raises OSError, and blocks none, if there can be no further process.
    """

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str], cwd: str, prepare: Callable[[], None]
    ) -> None:
        before = self._before = signal.pthread_sigmask(signal.SIG_BLOCK, TAKEN)
        go, self._go = os.pipe()
        self._failed, failed = os.pipe()
        try:
            self.pid = os.fork()
        except OSError:
            self.unblock()
            for pipe in (go, self._go, self._failed, failed):
                os.close(pipe)
            raise
        if self.pid:
            os.close(go)
            os.close(failed)
            return
        try:  # in the child
            end_with_parent()
            os.close(self._go)
            if not os.read(go, 1):  # nobody is there any more
                os._exit(1)
            prepare()
            for number in _IGNORED_BY_PYTHON:
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            os.chdir(cwd)
            os.execvpe(command[0], list(command), dict(environment))
        except OSError as error:
            os.write(failed, str(error.errno).encode())
        except ValueError:  # an empty name
            os.write(failed, str(errno.ENOENT).encode())
        finally:
            os._exit(127)

    def start(self) -> None:
        """Turn the child into the command. Raises NotStartedError."""
        os.write(self._go, b"!")
        os.close(self._go)
        with os.fdopen(self._failed, "rb") as failed:
            number = failed.read()
        if number:
            with suppress(ChildProcessError):
                os.waitpid(self.pid, 0)
            raise NotStartedError(int(number))

    def wait(self, limit_s: float | None = None, *, relayed: bool = False, under_strace: bool = False) -> Ended:
        """Wait until it has ended; pass signals on to it, except the terminal's, which it receives itself.

        ``relayed``: our parent passes signals on, too, so what also comes from others came to the process group.
        After ``limit_s`` it gets SIGTERM, and GRACE_S later SIGKILL. Strace gets that GRACE_S after any such signal:
        it has let go of its processes by then, or never will, as one that waits for its child of vfork() does not
        stop, and that child is stopped by strace.
        """
        end, timed_out = None if limit_s is None else time.monotonic() + limit_s, False
        ending = signal.SIGTERM
        parent, orphaned, interrupted = os.getppid(), False, False
        while True:
            status = self._reap()
            if status is not None:
                return Ended(status, timed_out, interrupted)
            if os.getppid() != parent and not orphaned:  # nobody waits for it any more
                end, orphaned = time.monotonic(), True
            left = 60.0 if end is None else max(end - time.monotonic(), 0.0)
            info = signal.sigtimedwait(TAKEN, left)
            if info is None and end is not None and time.monotonic() >= end:
                timed_out |= ending == signal.SIGTERM
                self._signal(ending)
                end, ending = time.monotonic() + GRACE_S, signal.SIGKILL
            elif info and _is_to_be_passed_on(info, parent if relayed else None):
                self._signal(info.si_signo)
            if info is not None and info.si_signo in ENDING:
                if under_strace and not interrupted:
                    end, ending = time.monotonic() + GRACE_S, signal.SIGKILL
                interrupted = True

    def wait_or_end(self) -> Ended:
        """Wait until it has ended, and end it at the first signal. It has left the terminal, so the terminal's
        signals do not reach it.

        The request to end is repeated until it ends: docker's client loses signals that come before its container
        runs.
        """
        is_asked = False
        while True:
            status = self._reap()
            if status is not None:
                return Ended(status)
            info = signal.sigtimedwait(TAKEN, AGAIN_S if is_asked else 60.0)
            if is_asked or (info and info.si_signo != signal.SIGCHLD):
                self._signal(signal.SIGTERM)
                is_asked = True

    def unblock(self) -> None:
        """Let this process receive signals again."""
        signal.pthread_sigmask(signal.SIG_SETMASK, self._before)

    def _signal(self, number: int) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def _reap(self) -> int | None:
        """Reap ended processes, including orphans; returns the status of the command if it was among them."""
        status = None
        with suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                if ended[0] == self.pid:
                    code = os.waitstatus_to_exitcode(ended[1])
                    status = code if code >= 0 else 128 - code
        return status


def _is_to_be_passed_on(first: signal.struct_siginfo, relay: int | None) -> bool:
    """Whether the child has not received the signal itself, as it does what a terminal sends.

    ``relay``: the process that passes all signals on to us. If one also comes from others, it was for the process
    group: timeout(1) signals its child, then the group.
    """
    if first.si_signo == signal.SIGCHLD or first.si_code == _FROM_KERNEL:
        return False
    end, senders = time.monotonic() + _SAME_S, {first.si_pid}
    while relay is not None and (info := signal.sigtimedwait({first.si_signo}, max(end - time.monotonic(), 0))):
        senders.add(info.si_pid)
    return relay is None or senders == {relay}


@contextmanager
def ending_by_signals() -> Iterator[None]:
    """Within the block SIGTERM and SIGHUP, unless ignored, raise SystemExit, so that the program cleans up."""
    not_taken = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) is signal.SIG_DFL]
    with handling(dict.fromkeys(not_taken, _end)):
        yield


def _end(number: int, _: object) -> None:
    sys.exit(128 + number)


def end_the_rest(but: Container[int] = ()) -> list[str]:
    """End the descendants of this process, except those in ``but``, by SIGTERM, after a second by SIGKILL.

    Returns the names of the processes found.
    """
    names: dict[int, str] = {}
    for number in (signal.SIGTERM, signal.SIGKILL):
        until = time.monotonic() + 1.0
        asked: set[int] = set()
        while time.monotonic() < until:
            left = {pid: name for pid, name in descendants(os.getpid()).items() if pid not in but}
            if not left:
                break
            for pid in left:
                if pid not in asked:
                    with suppress(ProcessLookupError, PermissionError):
                        os.kill(pid, number)
            asked |= left.keys()
            names |= left
            _reap_all()
            time.sleep(0.005)
    _reap_all()
    return list(names.values())


def _reap_all() -> None:
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def descendants(of: int) -> dict[int, str]:
    """The living processes that descend from process ``of``, by PID, with their names (proc(5))."""
    if str(Path("/proc/self").readlink()) != str(os.getpid()):
        return {}  # first in a PID namespace (pasta's): all end with us, and /proc is another one's
    parents: dict[int, tuple[int, str]] = {}
    for pid in every_pid():
        with suppress(OSError, ValueError):
            name, (state, its_parent, *_) = stat_of(pid)
            if state != b"Z":
                parents[pid] = (int(its_parent), name)
    found: dict[int, str] = {}
    grown = True
    while grown:
        grown = False
        for pid, (parent, name) in parents.items():
            if pid not in found and (parent == of or parent in found):
                found[pid] = name
                grown = True
    return found
