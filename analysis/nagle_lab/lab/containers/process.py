"""Child processes: each in a process group of its own, so that a terminal's Ctrl-C reaches only nagle-lab.

It gets no session of its own, because the kernel's scheduler would treat that as another user (sched(7), autogroup),
which Linux 6.18 lets wait for seconds while others compute.
"""

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import IO

from nagle_lab.errors import last_line
from nagle_lab.lab.containers.interrupts import interruptible


@dataclass(frozen=True)
class Finished:
    """A child's exit code and what it wrote, as text."""

    command: tuple[str, ...]
    exit_code: int
    stdout: str
    stderr: str

    def last_line(self) -> str:
        """The last line it wrote on stderr, otherwise on stdout; the exit code if it wrote nothing."""
        return last_line(self.stdout + "\n" + self.stderr, f"exit code {self.exit_code}")


class Child:
    """A running child whose output is collected by ``finish``."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        """Start ``command``."""
        self.command = tuple(command)
        self._process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            process_group=0,
        )

    def wait(self, timeout_s: float | None = None) -> Finished:
        """Wait for its end, whatever signals arrive, and return how it ended; kills it after ``timeout_s``."""
        finished = self._ended_within(timeout_s)
        if finished is not None:
            return finished
        self.kill()
        killed = self.wait()
        return replace(killed, stderr=f"{killed.stderr}\nno answer within {timeout_s:g} s")

    def finish(self, timeout_s: float | None = None) -> Finished:
        """As ``wait``, but a signal raises KeyboardInterrupt and leaves the child running."""
        with interruptible():
            return self.wait(timeout_s)

    def ended_within(self, timeout_s: float) -> Finished | None:
        """How it ended, or None if it still runs after ``timeout_s``; a signal raises KeyboardInterrupt."""
        with interruptible():
            return self._ended_within(timeout_s)

    def _ended_within(self, timeout_s: float | None) -> Finished | None:
        try:
            stdout, stderr = self._process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            return None
        return Finished(self.command, self._process.returncode, stdout, stderr or "")

    def kill(self) -> None:
        """Kill the child and everything it started in its group."""
        self._signal(signal.SIGKILL)

    def interrupt(self) -> None:
        """Send it SIGINT, as Ctrl-C does."""
        self._signal(signal.SIGINT)

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)


def run(
    command: Sequence[str], environment: Mapping[str, str] | None = None, timeout_s: float | None = None
) -> Finished:
    """Run ``command`` to its end; a signal kills it and raises KeyboardInterrupt."""
    child = Child(command, environment)
    try:
        return child.finish(timeout_s)
    except KeyboardInterrupt:
        child.kill()
        child.wait()
        raise


def pipe(stream: IO[bytes] | None) -> IO[bytes]:
    """A stream of a process all of whose streams are pipes."""
    assert stream is not None
    return stream


def end(process: subprocess.Popen[bytes], readers: Iterable[threading.Thread], *, within_s: float) -> None:
    """End a process that ends with its standard input, and the thread that reads its output; kills it after
    ``within_s``.
    """
    with contextlib.suppress(OSError):
        pipe(process.stdin).close()
    try:
        process.wait(timeout=within_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    for reader in readers:
        reader.join(within_s)
