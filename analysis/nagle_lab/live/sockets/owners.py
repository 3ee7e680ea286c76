"""The TCP sockets of every network namespace, and the process of each connection, by its two ends as in packets."""

import os
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from functools import partial
from ipaddress import ip_address

import msgspec

from nagle_lab.capture.kernel_answers import SocketAddress
from nagle_lab.host.namespace import inside, namespace_of
from nagle_lab.host.proc import every_pid
from nagle_lab.host.sock_diag import LISTEN, ListedSocket, tcp_sockets
from nagle_lab.live.sockets.processes import Process, SocketTable, processes
from nagle_lab.live.sockets.socket_options import GoneError, Waits, borrow, read, waits


class Namespaces(msgspec.Struct, frozen=True):
    """Sockets by network namespace (its inode)."""

    sockets: dict[int, list[ListedSocket]]
    refused: list[int]  # namespaces that may not be examined


def namespaces(
    of: Mapping[int, int | None],
    only: Collection[int | None] | None = None,
    look: Callable[[], list[ListedSocket]] = tcp_sockets,
) -> Namespaces:
    """This network namespace, and those ``of`` some processes; or ``only`` some. ``look`` lists the sockets."""
    by = {namespace: pid for pid, namespace in sorted(of.items(), reverse=True)}
    here = namespace_of("self")
    by[here] = os.getpid()
    found = Namespaces({}, [])
    for namespace, pid in sorted(by.items(), key=lambda one: (one[0] != here, one[1])):
        if namespace is None or (only is not None and namespace not in only):
            continue
        try:
            found.sockets[namespace] = inside(pid, look)
        except FileNotFoundError:
            continue  # its last process has ended
        except OSError:
            found.refused.append(namespace)
    return found


class Owners(msgspec.Struct, frozen=True):
    """Who has which connection."""

    by_ends: dict[tuple[SocketAddress, SocketAddress], Process]  # local and remote end; ("", 0) of one that listens
    held_elsewhere: list[Process]  # hold data now on another namespace's loopback, whose packets are not seen


def owners(pid: int | None = None, most: int | None = None) -> Owners:
    """The process of each connection, among the processes that this user may inspect.

    Only for the network namespace of process ``pid``; without it for all namespaces, and this one has precedence,
    because on loopback two namespaces may have the same ends. If several processes have a socket, the one with the
    lowest number counts. A connection on this host has two entries, one for each end. Ends are (IP address, port);
    IPv4 mapped into IPv6 is IPv4. At most ``most`` sockets of each namespace and family are read.
    """
    here, only = namespace_of("self"), None if pid is None else {namespace_of(pid)}
    of = {number: namespace_of(number) for number in every_pid()}
    listed = namespaces(of, only, partial(tcp_sockets, most)).sockets
    table = processes(wanted={one.inode for sockets in listed.values() for one in sockets})
    found = Owners({}, [])
    for namespace, sockets in listed.items():
        for one in sockets:
            if not (those := table.of(one.inode)):
                continue
            ends = (one.local, ("", 0) if one.state == LISTEN else one.remote)
            found.by_ends.setdefault(ends, those[0])
            if pid is None and namespace != here and _is_held_on_loopback(one, table):
                found.held_elsewhere.append(those[0])
    return found


def _is_held_on_loopback(listed: ListedSocket, table: SocketTable) -> bool:
    if not waits(listed, None) or not ip_address(listed.local[0]).is_loopback:
        return False
    with suppress(OSError, GoneError), borrow(table.holders[listed.inode], listed.inode) as copy:
        return waits(listed, read(copy)) is Waits.HELD
    return False
