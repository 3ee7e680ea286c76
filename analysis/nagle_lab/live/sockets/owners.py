"""The TCP sockets of every network namespace, and which process has a connection, by its two ends as in packets."""

import os
from collections.abc import Collection

import msgspec

from nagle_lab.live.sockets.diag import LISTEN, End, Listed, tcp_sockets
from nagle_lab.live.sockets.namespaces import inside, namespace_of
from nagle_lab.live.sockets.processes import Process, Table, processes


class Namespaces(msgspec.Struct, frozen=True):
    """Sockets by network namespace (its inode)."""

    sockets: dict[int, list[Listed]]
    refused: list[int]  # those that may not be looked into


def namespaces(table: Table, only: Collection[int | None] | None = None) -> Namespaces:
    """This network namespace, and those of all processes; or ``only`` some of them."""
    by = {process.namespace: process.pid for process in reversed(table.processes.values())}
    here = namespace_of("self")
    by[here] = os.getpid()
    found = Namespaces({}, [])
    for namespace, pid in sorted(by.items(), key=lambda one: (one[0] != here, one[1])):
        if namespace is None or (only is not None and namespace not in only):
            continue
        try:
            found.sockets[namespace] = inside(pid, tcp_sockets)
        except FileNotFoundError:
            continue  # its last process has ended
        except OSError:
            found.refused.append(namespace)
    return found


def owners(pid: int | None = None) -> dict[tuple[End, End], Process]:
    """Local and remote end of each connection → the process that has it, of those that this user may look into.

    Of the network namespace of process ``pid`` alone; without it, of all there are, this one's first, for on loopback
    two namespaces may have the same ends. Of a socket that several processes have, the one with the lowest number.
    A connection on this host has two entries, one for each end. Ends are (IP address, port); IPv4 mapped into IPv6 is
    IPv4. Listening sockets are under their local end and ("", 0).
    """
    table = processes()
    found: dict[tuple[End, End], Process] = {}
    for sockets in namespaces(table, None if pid is None else {namespace_of(pid)}).sockets.values():
        for one in sockets:
            if those := table.of(one.inode):
                found.setdefault((one.local, ("", 0) if one.state == LISTEN else one.remote), those[0])
    return found
