"""Recording of what is watched, by a separate process, whose packets come through a pipe; targets that go away are
awaited.
"""

import fcntl
import os
import select
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from nagle_lab.errors import NagleLabError, last_line
from nagle_lab.guard.recording.inside_stream import GONE, NEEDS
from nagle_lab.guard.recording.job import Request, Target, as_text
from nagle_lab.guard.recording.launchers import program
from nagle_lab.guard.recording.record_running import way_to
from nagle_lab.host.docker import container_of_service, docker_output

AGAIN_S = 2.0  # between two looks for a target that has gone
END_S = 5.0  # time for a recorder to end
_PIPE_BYTES = 1 << 20


class Recording:
    """A recorder and the pipe to which it writes. Raises NagleLabError if the target cannot be recorded.

    When a container, a service or an interface goes away, it is looked for until it is back, and another recorder
    continues in the same pipe. When a process ends, the recording ends.
    """

    def __init__(self, target: Target) -> None:
        self._target = target
        self.pid: int | None = None  # the process whose network namespace is recorded; None: this namespace
        self._pidfd = -1  # a descriptor that is readable when the process has ended
        self._child: subprocess.Popen[bytes] | None = None
        self._next_check = 0.0
        self.fd, self._end = os.pipe()  # to read packets from: pcapng, one section per recorder
        with suppress(OSError):  # an ordinary user may not have such a large one
            fcntl.fcntl(self._end, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        try:
            self._begin()
        except BaseException:
            self.stop()
            raise

    def changes(self) -> str:
        """Check the target at intervals; returns a sentence when something has changed, otherwise nothing."""
        if self._end < 0 or time.monotonic() < self._next_check:
            return ""
        self._next_check = time.monotonic() + AGAIN_S
        if self._child is None:
            return self._try_again()
        if self._pidfd >= 0 and select.select([self._pidfd], [], [], 0)[0]:
            self._end_child()
            return self._lost("has ended")
        status = self._child.poll()
        if status is None:
            return ""
        why = "is gone" if status == GONE else f"is not recorded any more ({self._problem() or status})"
        self._end_child()
        return self._lost(why)

    def stop(self) -> None:
        """Stop recording: the rest of the pipe can still be read, up to its end."""
        if self._child:
            self._child.terminate()
        if self._end >= 0:
            os.close(self._end)
            self._end = -1

    def close(self) -> None:
        """End the recording and its process."""
        self.stop()
        self._end_child()
        os.close(self.fd)

    def _begin(self) -> None:
        target = self._target
        container = container_of_service(target.service) if target.service else target.container
        self.pid = _first_process(container) if container else target.pid
        way = way_to(self.pid, container)
        inside = None if way.is_container else self.pid
        request = Request(pid=inside, interface=target.interface, ports=target.ports)
        said = tempfile.TemporaryFile()  # noqa: SIM115 - until the child ends
        command = [*way.before, *program("inside_stream", as_text(request))]
        self._child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=self._end, stderr=said, process_group=0
        )
        self._said = said
        if self.pid is not None:
            with suppress(ProcessLookupError):
                self._pidfd = os.pidfd_open(self.pid)
        self._require_begun()

    def _require_begun(self) -> None:
        """Wait until it writes, or has failed: it writes the head of a section first."""
        assert self._child
        while not select.select([self.fd], [], [], 0.05)[0]:
            if (status := self._child.poll()) is not None:
                problem = self._problem() or f"the recorder ended with {status}"
                todo = ": run this with sudo, or as root" if NEEDS in problem else ""
                raise NagleLabError(f"{self._target} cannot be recorded: {problem.strip()}{todo}")

    def _problem(self) -> str:
        self._said.seek(0)
        return last_line(self._said.read().decode(errors="replace"))

    def _lost(self, how: str) -> str:
        if self._target.container or self._target.service or self._target.interface:
            return f"{self._target} {how}: waiting until it is back"
        self.stop()
        return f"{self._target} {how}"

    def _try_again(self) -> str:
        with suppress(NagleLabError):
            self._begin()
            return f"{self._target} is back"
        self._end_child()
        return ""

    def _end_child(self) -> None:
        if self._child:
            self._child.terminate()
            try:
                self._child.wait(END_S)
            except subprocess.TimeoutExpired:
                self._child.kill()
                self._child.wait()
            self._said.close()
            self._child = None
        if self._pidfd >= 0:
            os.close(self._pidfd)
            self._pidfd = -1


def _first_process(container: str) -> int:
    pid = int(docker_output("inspect", "--type=container", "--format={{.State.Pid}}", container))
    if not pid or not Path(f"/proc/{pid}").is_dir():
        raise NagleLabError(f"container {container} is not running: docker ps lists the running containers")
    return pid
