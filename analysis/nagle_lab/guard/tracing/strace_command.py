"""Run a command under strace, or attach strace to running processes, so that each write can be named."""

import re
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from nagle_lab.guard.tracing.strace_lines import MOST_BYTES
from nagle_lab.host.privileges import ptrace_scope

CALLS = "strace.txt"  # a file's name: what strace wrote, in the folder of what was traced
_WRITES = "sendto,sendmsg,sendmmsg,write,writev,pwritev2,sendfile,splice,setsockopt,connect,accept,accept4"
_STARTS = "fork,vfork,clone,clone3,execve,io_uring_setup"
_MARK = "rmdir"  # the call that hooks use as a mark: see hooks/python/nagle_lab_marks.py
OLDEST = (5, 16)  # of strace: --decode-pids=comm, --seccomp-bpf


def traced(command: Sequence[str], file: Path, *, stacks: bool = False) -> list[str]:
    """The command under strace, which writes to the file; ``stacks`` adds native stacks, which take long.

    No written byte is kept (-s 0). Signals end strace; the guard passes them to the command's processes.
    """
    return ["strace", "--seccomp-bpf", *_options(stacks), "-o", bounded(file), "--", *command]


def attaching(pids: Sequence[int], file: Path, *, stacks: bool) -> list[str]:
    """The strace command that attaches to processes, all their threads, and the processes they will start.

    Each of their system calls stops: the filter that makes strace quick for a command (seccomp) cannot be added
    later.
    """
    return ["strace", *_options(stacks), "-o", bounded(file), *(f"--attach={pid}" for pid in pids)]


def _options(stacks: bool) -> list[str]:
    calls = ",".join(f"?{name}" for name in f"{_WRITES},{_STARTS},{_MARK}".split(","))
    options = ["-f", "-q", "-I", "waiting", "-ttt", "-yy", "-Y", "-s", "0", "-e", f"trace={calls}"]
    whole = ["-e", "abbrev=!sendmmsg"]  # with the length of each of its messages, which -s 0 leaves out
    return [*options, *whole, *(["-k"] if stacks else []), "-e", "signal=none"]


def bounded(file: Path, most_bytes: int = MOST_BYTES) -> str:
    """The -o argument with which strace's file gets at most that many bytes, and one more, which says that it is cut.

    The rest is read and dropped, because a pipe that nobody reads would stop the traced processes. A terminal's
    signals go to strace, which ends when it has written everything.
    """
    ignoring = "trap '' INT TERM HUP QUIT"
    return f"|{ignoring}; exec >{shlex.quote(str(file))}; head -c {most_bytes + 1}; exec cat >/dev/null"


def why_no_command() -> str:
    """Why no command can be traced here, and what to do; empty if nothing is known to prevent it."""
    if why := why_no_tracing():
        return why
    with suppress(OSError, subprocess.TimeoutExpired):
        tried = ["strace", "-f", "--seccomp-bpf", "-q", "-o", "/dev/null", "-e", "trace=?rmdir", "--", "true"]
        done = subprocess.run(tried, capture_output=True, text=True, check=False, timeout=20)
        if done.returncode == 0:
            return ""
        lines = done.stderr.strip().splitlines() or [f"strace ended with {done.returncode}"]
        said = next((line for line in lines if "ptrace" in line.lower()), lines[0])
        return f"ptrace is forbidden here ({said.removeprefix('strace: ')}): {_permission()}"
    return "strace could not be started"


def why_no_tracing() -> str:
    """Why nothing at all can be traced here, and what to do; empty if nothing prevents it."""
    if not shutil.which("strace"):
        return "strace is not installed: install the package strace"
    with suppress(OSError):
        found = re.search(r"version (\d+)\.(\d+)", _about_strace())
        if found and (int(found[1]), int(found[2])) < OLDEST:
            return f"strace {found[1]}.{found[2]} is too old: install {OLDEST[0]}.{OLDEST[1]} or later"
    if ptrace_scope() == 3:
        return "kernel.yama.ptrace_scope = 3 forbids tracing until the next boot"
    return ""


def _permission() -> str:
    if scope := ptrace_scope():
        return f"kernel.yama.ptrace_scope is {scope}; sudo sysctl kernel.yama.ptrace_scope={scope - 1} allows it"
    return "in a container, start that with --cap-add SYS_PTRACE"


def has_stacks() -> bool:
    """Whether this strace can print the stacks of native code."""
    with suppress(OSError):
        return "stack-trace" in _about_strace().partition("Optional features")[2]
    return False


def _about_strace() -> str:
    """What strace prints about its version and how it was built. Raises OSError."""
    return subprocess.run(["strace", "-V"], capture_output=True, text=True, check=False).stdout
