"""The processes of this host: name, container, network namespace, and the sockets each has open. proc(5)."""

import os
import re
from collections import defaultdict
from collections.abc import Container, Iterable
from contextlib import suppress
from math import inf
from pathlib import Path

import msgspec

from nagle_lab.errors import NagleLabError
from nagle_lab.host.children import descendants
from nagle_lab.host.docker import container_names, require_docker_rights
from nagle_lab.host.namespace import namespace_of
from nagle_lab.host.proc import NAME_KEPT, every_pid, stat_of
from nagle_lab.live.sockets.rights import AS_ROOT

_ID = re.compile(r"[0-9a-f]{64}")  # Docker, Podman, containerd, CRI-O
_LXC = re.compile(r"/lxc(?:\.payload)?[./]([^/.\n]+)")
_SHORT = 12  # digits of an id, as Docker shows it
_SOCKET = "socket:["


class Process(msgspec.Struct, frozen=True):
    """A process that has sockets, of any kind."""

    pid: int
    name: str
    uid: int
    namespace: int | None  # inode of its network namespace; None: no right to read it
    container: str = ""  # its id, or LXC's name; empty: none


class SocketTable(msgspec.Struct, frozen=True):
    """Which processes have which sockets open."""

    processes: dict[int, Process]
    # inode → process and file descriptor; if several share it, those that began first come first
    holders: dict[int, list[tuple[int, int]]]
    unreadable: list[int]  # processes whose descriptors may not be read

    def of(self, inode: int) -> list[Process]:
        """The processes that have a socket, those that began first come first."""
        return [self.processes[pid] for pid in dict.fromkeys(pid for pid, _ in self.holders.get(inode, ()))]


def processes(only: Iterable[int] | None = None, wanted: Container[int] | None = None) -> SocketTable:
    """The processes, all or ``only`` some, that this user may inspect; one that ends meanwhile is left out.

    With the inodes ``wanted``, only processes that have one of these sockets, and only these sockets.
    """
    every = sorted(every_pid() if only is None else only)
    table = SocketTable({}, defaultdict(list), [])
    for pid in every:
        try:
            sockets = _sockets(pid, wanted)
        except PermissionError:
            table.unreadable.append(pid)
            continue
        except OSError:
            continue
        if sockets and (process := _process(pid)):
            table.processes[pid] = process
            for inode, fd in sockets:
                table.holders[inode].append((pid, fd))
    _put_first_ones_in_front(table)
    return table


def _put_first_ones_in_front(table: SocketTable) -> None:
    """Sort the processes that share a socket by the time they began, because PIDs wrap."""
    began: dict[int, float] = {}
    for holders in table.holders.values():
        sharing = {pid for pid, _ in holders}
        if len(sharing) == 1:
            continue
        for pid in sharing - began.keys():
            ticks = started_at(pid)
            began[pid] = inf if ticks is None else ticks
        holders.sort(key=lambda held: (began[held[0]], held))


def _sockets(pid: int, wanted: Container[int] | None) -> list[tuple[int, int]]:
    """Inode and file descriptor of each socket. Raises OSError."""
    found = []
    folder = os.open(f"/proc/{pid}/fd", os.O_RDONLY | os.O_DIRECTORY)
    try:
        with os.scandir(folder) as descriptors:  # there may be hundreds of thousands of them
            for fd in descriptors:
                with suppress(FileNotFoundError):
                    target = os.readlink(fd.name, dir_fd=folder)
                    if target.startswith(_SOCKET):
                        inode = int(target[len(_SOCKET) : -1])
                        if wanted is None or inode in wanted:
                            found.append((inode, int(fd.name)))
    finally:
        os.close(folder)
    return found


def _process(pid: int) -> Process | None:
    folder = Path(f"/proc/{pid}")
    try:
        uid, cgroup = folder.stat().st_uid, (folder / "cgroup").read_text(errors="replace")
    except OSError:
        return None
    return Process(pid, process_name(pid), uid, namespace_of(pid), container_of(cgroup))


def process_name(pid: int) -> str:
    """The name of a process; empty if it has ended.

    The kernel keeps only the beginning of a long one, which is completed from the command line.
    """
    try:
        name = Path(f"/proc/{pid}/comm").read_text(errors="replace").rstrip("\n")
        command = Path(f"/proc/{pid}/cmdline").read_text(errors="replace").partition("\0")[0]
    except OSError:
        return ""
    whole = Path(command).name
    return whole if len(name.encode()) == NAME_KEPT and whole.startswith(name) else name


def started_at(pid: int) -> int | None:
    """When it began, in ticks since boot; None if it has ended."""
    try:
        _, after_name = stat_of(pid)
    except OSError:
        return None
    return None if after_name[0] in (b"Z", b"X") else int(after_name[19])


def container_of(cgroup: str) -> str:
    """The first digits of the container's id from /proc/PID/cgroup; empty if there is none."""
    if ids := _ID.findall(cgroup):
        return str(ids[-1])[:_SHORT]
    return str(found[1]) if (found := _LXC.search(cgroup)) else ""


def with_children(pid: int) -> set[int]:
    """A process and all its descendants. Raises NagleLabError."""
    if not Path(f"/proc/{pid}").is_dir():
        raise NagleLabError(f"there is no process {pid}: nagle-lab sockets lists those that have sockets")
    return {pid, *descendants(pid)}


def of_container(name: str) -> set[int]:
    """The processes of a container that have sockets, by its name, or by the first digits of its id.

    Raises NagleLabError if there are none.
    """
    names = container_names()
    ids = {id_ for id_, each in names.items() if each == name} or {name}
    found = {
        process.pid for process in processes().processes.values() if any(_same(process.container, id_) for id_ in ids)
    }
    if not found:
        require_docker_rights()
        known = ", ".join(sorted(names.values())) or "none"
        raise NagleLabError(f"no container {name} with sockets is visible here (running: {known}){AS_ROOT}")
    return found


def _same(container: str, id_: str) -> bool:
    """Whether one id is a prefix of the other."""
    return bool(container) and (id_.startswith(container) or container.startswith(id_))
