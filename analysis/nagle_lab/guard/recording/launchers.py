"""Launching a program of ours inside a network namespace, in the ways that this machine has, tried in turn."""

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from nagle_lab.errors import NagleLabError
from nagle_lab.guard.recording.job import NamespaceState
from nagle_lab.host.privileges import CAP_NET_RAW, CAP_SYS_ADMIN, CAP_SYS_PTRACE, has_capability, may_make_network

SETTINGS = Path("/proc/sys")
EMPTY_IMAGE = "nagle-lab-guard:empty"
RIGHTS = {"SYS_ADMIN": CAP_SYS_ADMIN, "SYS_PTRACE": CAP_SYS_PTRACE, "NET_RAW": CAP_NET_RAW}  # to record elsewhere
_SYSTEM = ("proc", "sys", "dev")  # folders of which a container has its own


@dataclass(frozen=True)
class Way:
    """One way to a network namespace."""

    name: str  # in the screen's words
    before: tuple[str, ...] = ()  # the command that starts the program inside
    namespace: NamespaceState = NamespaceState.TO_MAKE

    @property
    def is_container(self) -> bool:
        """Whether that is a container."""
        return "docker" in self.before


def ways() -> Iterator[Way]:
    """The ways that may work here, cheapest first; each is looked for only after the one before it failed.

    Raises NagleLabError if this is not Linux.
    """
    if platform.system() != "Linux":
        raise NagleLabError("guard needs Linux network namespaces: run it in a Linux virtual machine or container")
    if may_make_network():
        yield Way("a network namespace, as root")
        return
    yield Way("a user namespace, without root")
    if sudo_works():
        yield Way("sudo without a password", ("sudo", "-n", "--"))
    terminal = ["--tty"] if sys.stdin and sys.stdin.isatty() and sys.stdout.isatty() else []
    with suppress(NagleLabError):
        yield docker_with_folders("a Docker container", "--network=none", *terminal)


def program(module: str, argument: str) -> list[str]:
    """The program that calls ``main`` of a module beside this one; it finds the package, whoever starts it.

    It collects garbage as rarely as the command line does (cli/main.py): otherwise that would take a tenth of such a
    short program.
    """
    paths = [path for path in sys.path if path]
    find = f"import gc, sys; gc.set_threshold(50_000); sys.path[:0] = {paths!r}"
    start = f"from nagle_lab.guard.recording.{module} import main; main({argument!r}); gc.freeze()"
    return [sys.executable, "-P", "-c", f"{_CTRL_C_ENDS_IT}; {find}; {start}"]


# Ctrl-C before it waits gives no traceback; signals that are ignored (nohup, a background job) stay ignored
_CTRL_C_ENDS_IT = "import signal as s; s.getsignal(s.SIGINT) is s.SIG_IGN or s.signal(s.SIGINT, s.SIG_DFL)"


def no_interpreter() -> str:
    """Why this user cannot start Python, though it runs already (started by another one), and what to do; or ""."""
    if os.access(sys.executable, os.X_OK, effective_ids=True):
        return ""
    return (
        f"this user cannot execute {os.path.realpath(sys.executable)}, which nagle-lab runs on; install Python and "
        "nagle-lab where this user may read (not below /root), or run this as root"
    )


def why_not_allowed() -> str:
    """What to do where another process's network namespace may not be joined and recorded."""
    if unusable := no_interpreter():
        return unusable
    if os.geteuid() != 0:
        return "run this as root"
    lacks = [name for name, number in RIGHTS.items() if not has_capability(number)]
    if not lacks:
        return "it has more rights than this process, or a security policy forbids it; run this as root of its host"
    options = " ".join(f"--cap-add {name}" for name in lacks)
    return f"root lacks {' and '.join(lacks)}; in a container, start that with {options}, or run this on its host"


def why_no_namespace() -> str:
    """Why no user namespace can be made here, and what to do, as far as the machine shows it."""
    if unusable := no_interpreter():
        return unusable
    settings = {
        "kernel.apparmor_restrict_unprivileged_userns": ("1", "0"),  # Ubuntu from 23.10 on
        "kernel.unprivileged_userns_clone": ("0", "1"),  # Debian up to 10, Arch
        "user.max_user_namespaces": ("0", "15000"),
        "user.max_net_namespaces": ("0", "15000"),
    }
    for name, (forbids, allows) in settings.items():
        with suppress(OSError):
            if SETTINGS.joinpath(*name.split(".")).read_text().strip() == forbids:
                return f"{name} = {forbids} forbids it; allow it (sudo sysctl {name}={allows}), or run this as root"
    if is_container():
        return (
            "a container forbids it; start that with --cap-add SYS_ADMIN --cap-add NET_ADMIN, or run this on its host"
        )
    return "run this as root, or as a user with passwordless sudo or with access to Docker"


def is_container() -> bool:
    """Whether this runs in a container of Docker, Podman or Kubernetes."""
    return Path("/.dockerenv").exists() or Path("/run/.containerenv").exists() or "KUBERNETES_PORT" in os.environ


def sudo_works() -> bool:
    """Whether sudo asks for no password."""
    return shutil.which("sudo") is not None and _works(["sudo", "-n", "true"])


def _works(command: list[str]) -> bool:
    with suppress(OSError, subprocess.TimeoutExpired):
        done = subprocess.run(command, timeout=20, check=False, stdin=subprocess.DEVNULL, capture_output=True)
        return done.returncode == 0
    return False


def docker_with_folders(name: str, *options: str) -> Way:
    """A container of an empty image with all folders of this machine in it, so that programs run there as here.

    Raises NagleLabError if there is no Docker, or it may not be used.
    """
    if not shutil.which("docker") or not _works(["docker", "info"]):
        raise NagleLabError("Docker is not reachable: start it, or add yourself to the group docker")
    if not _works(["docker", "image", "inspect", EMPTY_IMAGE]) and not _works(
        ["sh", "-c", f"tar -c -T /dev/null | docker import - {EMPTY_IMAGE}"]
    ):
        raise NagleLabError(f"Docker could not make the image {EMPTY_IMAGE}: try docker import by hand")
    folders = sorted(path for path in Path("/").iterdir() if path.name not in _SYSTEM)
    # Links become folders. A Docker on another machine has no such folders, and refuses.
    mounts = [f"--mount=type=bind,source={path},target={path}" for path in folders if path.is_dir()]
    rights = ("--cap-add=NET_ADMIN", "--cap-add=NET_RAW")
    command = ("docker", "run", "--rm", "--interactive", *options, *rights, *mounts, EMPTY_IMAGE)
    return Way(name, command, NamespaceState.THERE)
