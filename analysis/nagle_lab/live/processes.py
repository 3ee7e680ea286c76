"""The processes of this host: name, container, network namespace, and the sockets each has open. proc(5)."""

import os
import re
import shutil
import subprocess
from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import msgspec

from nagle_lab.live.namespaces import namespace_of

_ID = re.compile(r"[0-9a-f]{64}")  # Docker, Podman, containerd, CRI-O
_LXC = re.compile(r"/lxc(?:\.payload)?[./]([^/.\n]+)")
_SHORT = 12  # digits of an id, as Docker shows it
_SOCKET = "socket:["


class Process(msgspec.Struct, frozen=True):
    """A process that has sockets, of any kind."""

    pid: int
    name: str
    uid: int
    namespace: int | None  # inode of its network namespace; None: it may not be known
    container: str = ""  # its id, or LXC's name; empty: none


class Table(msgspec.Struct, frozen=True):
    """Who has which socket."""

    processes: dict[int, Process]
    holders: dict[int, list[tuple[int, int]]]  # inode → process and file descriptor; several where it is shared
    unreadable: list[int]  # processes whose descriptors may not be read

    def of(self, inode: int) -> list[Process]:
        """The processes that have a socket, those that began first in front."""
        return [self.processes[pid] for pid in dict.fromkeys(pid for pid, _ in self.holders.get(inode, ()))]


def processes(only: Iterable[int] | None = None) -> Table:
    """All of them, or some, that this user may look into. One that ends meanwhile is left out."""
    every = sorted(int(name) for name in _folders()) if only is None else sorted(only)
    table = Table({}, defaultdict(list), [])
    for pid in every:
        try:
            sockets = _sockets(pid)
        except PermissionError:
            table.unreadable.append(pid)
            continue
        except OSError:
            continue
        if sockets and (process := _process(pid)):
            table.processes[pid] = process
            for inode, fd in sockets:
                table.holders[inode].append((pid, fd))
    return table


def _folders() -> list[str]:
    with os.scandir("/proc") as entries:
        return [entry.name for entry in entries if entry.name.isdigit()]


def _sockets(pid: int) -> list[tuple[int, int]]:
    """Inode and file descriptor of each socket. Raises OSError."""
    found = []
    folder = os.open(f"/proc/{pid}/fd", os.O_RDONLY | os.O_DIRECTORY)
    try:
        for fd in os.listdir(folder):  # noqa: PTH208 - tens of thousands of them, by descriptor
            with suppress(FileNotFoundError):
                target = os.readlink(fd, dir_fd=folder)
                if target.startswith(_SOCKET):
                    found.append((int(target[len(_SOCKET) : -1]), int(fd)))
    finally:
        os.close(folder)
    return found


def _process(pid: int) -> Process | None:
    folder = Path(f"/proc/{pid}")
    try:
        name, uid = (folder / "comm").read_text(errors="replace").rstrip("\n"), folder.stat().st_uid
        cgroup = (folder / "cgroup").read_text(errors="replace")
    except OSError:
        return None
    return Process(pid, name, uid, namespace_of(pid), container_of(cgroup))


def container_of(cgroup: str) -> str:
    """The container's id from /proc/PID/cgroup, its first digits; empty where there is none."""
    if ids := _ID.findall(cgroup):
        return str(ids[-1])[:_SHORT]
    return str(found[1]) if (found := _LXC.search(cgroup)) else ""


def container_names() -> dict[str, str]:
    """Id → name of the running containers, as Docker tells; nothing where there is none, or it does not answer."""
    if not shutil.which("docker"):
        return {}
    with suppress(OSError, subprocess.TimeoutExpired):
        done = subprocess.run(
            ["docker", "ps", "--format", "{{.ID}} {{.Names}}"],
            capture_output=True, text=True, timeout=5, check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        return dict(line.split(" ", 1) for line in done.stdout.splitlines() if " " in line)
    return {}
