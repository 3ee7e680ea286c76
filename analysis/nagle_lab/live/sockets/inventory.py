"""Every TCP socket of this host with its process, container, options, and whether data waits in it."""

from collections.abc import Collection

import msgspec

from nagle_lab.errors import NagleLabError
from nagle_lab.host.docker import container_names
from nagle_lab.host.privileges import CAP_SYS_ADMIN, CAP_SYS_PTRACE
from nagle_lab.host.sock_diag import LISTEN, ListedSocket
from nagle_lab.live.sockets.owners import Namespaces, namespaces
from nagle_lab.live.sockets.processes import Process, SocketTable, processes
from nagle_lab.live.sockets.rights import AS_ROOT, missing, needs
from nagle_lab.live.sockets.socket_options import GoneError, Options, Waits, borrow, read, waits


class HostSocket(msgspec.Struct, frozen=True):
    """A socket."""

    listed: ListedSocket
    namespace: int  # inode of its network namespace
    processes: list[Process]  # the processes that have it; several may share it
    holders: list[tuple[int, int]]  # process and file descriptor of each
    container: str  # name, or id if no engine knows the name; empty: none
    options: Options | None  # None: they may not be read, or no process has it
    waits: Waits | None


class Inventory(msgspec.Struct, frozen=True):
    """All sockets, those that hold data first; and lines about what this user may not see."""

    sockets: list[HostSocket]
    missing: list[str]


def inventory(only: Collection[int] | None = None, port: int | None = None) -> Inventory:
    """The sockets of some processes, those with a port at either end, or all.

    Raises NagleLabError if processes were named and none can be inspected.
    """
    table = processes(only)
    of = {one.pid: one.namespace for one in table.processes.values()}
    looked = namespaces(of, None if only is None else set(of.values()))
    if only is not None:
        _require_visible(table, looked)
    found, refused = _read(table, looked, port, only_owned=only is not None)
    nameless = sum(1 for one in found if one.listed.inode and not one.processes)
    if only is not None:  # the sockets of a named process that may not be inspected are not found at all
        nameless += len(table.unreadable)
    last = refused[-1] if refused else None
    things = missing(table.unreadable, nameless, len(refused), len(looked.refused), last)
    return Inventory(sorted(found, key=_order), things)


def _require_visible(table: SocketTable, looked: Namespaces) -> None:
    """Raises NagleLabError if nothing of the named processes may be seen."""
    if table.unreadable and not table.processes:
        raise NagleLabError(f"process {table.unreadable[0]} cannot be inspected ({needs(CAP_SYS_PTRACE)}){AS_ROOT}")
    if looked.refused and not looked.sockets:
        first = next(iter(table.processes))
        raise NagleLabError(f"process {first} is in another network namespace ({needs(CAP_SYS_ADMIN)}){AS_ROOT}")


def _read(
    table: SocketTable, looked: Namespaces, port: int | None, *, only_owned: bool
) -> tuple[list[HostSocket], list[OSError]]:
    """The sockets with ``port`` at one of their ends, or all; and why, if the options of one may not be read."""
    has_containers = any(process.container for process in table.processes.values())
    names = container_names() if has_containers else {}
    found, refused = list[HostSocket](), list[OSError]()
    for namespace, sockets in looked.sockets.items():
        for one in sockets:
            holders, those, options = table.holders.get(one.inode, []), table.of(one.inode), None
            if port not in (None, one.local[1], one.remote[1]) or (only_owned and not holders):
                continue
            try:
                with borrow(holders, one.inode) as copy:
                    options = read(copy)
            except GoneError:  # or no process has it
                pass
            except OSError as error:
                refused.append(error)
            container = those[0].container if those else ""
            name = names.get(container, container)
            found.append(HostSocket(one, namespace, those, holders, name, options, waits(one, options)))
    return found, refused


_RANK: dict[Waits | None, int] = {Waits.HELD: 0, Waits.MAYBE_HELD: 1, Waits.CORKED: 2, None: 3}


def _order(socket: HostSocket) -> tuple[object, ...]:
    """Held first, then by bytes that wait; connections before listeners, those without a process last."""
    listed, first = socket.listed, socket.processes[0] if socket.processes else None
    return (
        _RANK[socket.waits], -listed.unsent, -listed.unacknowledged, first is None, listed.state == LISTEN,
        socket.options is None or socket.options.nodelay, first.name if first else "", first.pid if first else 0,
        listed.local, listed.remote,
    )  # fmt: skip
