"""What a command under strace leaves running: strace would wait for it, so it is ended when the command has ended."""

import os
import signal
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from nagle_lab.host.proc import every_pid, status_of

_EVERY_S = 0.02
_GRACE_S = 1.0  # from SIGTERM to SIGKILL, and from that until strace has written the rest


class _Process(NamedTuple):
    """A process as /proc has it, whose numbers are not ours where we are in a PID namespace of our own (pasta's)."""

    pid: int
    parent: int
    tracer: int
    ours: int  # its number for us


class StraceEnder(threading.Thread):
    """Ends what strace still traces once the command that it started has ended; then strace ends by itself.

    So all that was called until then is in its log, and its status is the command's.
    """

    def __init__(self, strace: int) -> None:
        super().__init__(name="strace", daemon=True)
        self._strace = strace
        self._ending = threading.Event()
        self.start()

    def run(self) -> None:
        """Wait for the command, and end the rest."""
        command = 0
        while not self._ending.wait(_EVERY_S):
            if command and _lives(command):
                continue
            traced, own = self._traced()
            if own:  # the command; before it perhaps what strace tries out
                command = own[0].ours
            elif traced:
                self._end_the_rest()
                return

    def stop(self) -> None:
        """Strace has ended."""
        self._ending.set()
        self.join()

    def _traced(self) -> tuple[list[_Process], list[_Process]]:
        """All that strace traces, and of these its own children: the command alone, for orphans are adopted by us."""
        found = _processes()
        here = int(Path("/proc/self").readlink().name)
        strace = next((one.pid for one in found if one.parent == here and one.ours == self._strace), -1)
        traced = [one for one in found if one.tracer == strace]
        return traced, [one for one in traced if one.parent == strace]

    def _end_the_rest(self) -> None:
        for number in (signal.SIGTERM, signal.SIGKILL):
            until, asked = time.monotonic() + _GRACE_S, set[int]()
            while time.monotonic() < until:
                left = {one.ours for one in self._traced()[0]}
                for pid in left - asked:
                    _signal(pid, number)
                asked |= left
                if self._ending.wait(_EVERY_S):
                    return
        _signal(self._strace, signal.SIGTERM)  # it lets go of what cannot be ended


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # sudo, say
        return True
    return True


def _signal(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def _processes() -> list[_Process]:
    found = []
    for pid in every_pid():
        with suppress(KeyError, ValueError):  # it has ended
            said = status_of(pid)
            ours = said["NSpid"].split()[-1]
            found.append(_Process(pid, int(said["PPid"]), int(said["TracerPid"]), int(ours)))
    return found
