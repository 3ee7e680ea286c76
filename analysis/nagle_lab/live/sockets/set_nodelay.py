"""TCP_NODELAY set on a program's open sockets, and taken back. Nothing is restarted or stopped."""

import errno
import socket
from collections.abc import Iterable, Sequence
from contextlib import suppress

import msgspec

from nagle_lab.errors import NagleLabError
from nagle_lab.host.namespace import inside, namespace_of
from nagle_lab.host.privileges import CAP_SYS_PTRACE
from nagle_lab.host.proc import every_pid
from nagle_lab.host.sock_diag import LISTEN, tcp_sockets
from nagle_lab.live.sockets.inventory import HostSocket, inventory
from nagle_lab.live.sockets.processes import started_at
from nagle_lab.live.sockets.rights import AS_ROOT, REFUSED, needs
from nagle_lab.live.sockets.socket_options import TCP, GoneError, borrow, cookie
from nagle_lab.live.sockets.undo_log import Changes, Entry, changes

_OPEN = ("ESTABLISHED", "CLOSE-WAIT", LISTEN)  # the states in which a program may still write


class TargetProgram(msgspec.Struct, frozen=True):
    """The program whose sockets are to be changed."""

    name: str  # in the screen's words
    started: dict[int, int]  # each of its processes, and when it began, because a PID may be reused
    port: int | None  # at either end
    options: str  # the options that name it on the command line


class UndoPlan(msgspec.Struct, frozen=True):
    """What taking the change back does."""

    back: list[HostSocket]  # sockets that lose TCP_NODELAY again
    kept: list[HostSocket]  # sockets accepted meanwhile, left as they are


def sockets(program: TargetProgram) -> list[HostSocket]:
    """A program's sockets that may carry data, and its listeners. Raises NagleLabError if none can be reached."""
    pids = living(program)
    namespace, found = namespace_of(pids[0]), inventory(pids, program.port)
    mine = [one for one in found.sockets if one.namespace == namespace and one.listed.state in _OPEN]
    if mine and all(one.options is None for one in mine):
        raise NagleLabError(f"{program.name}: no permission to reach its sockets ({needs(CAP_SYS_PTRACE)}){AS_ROOT}")
    if not mine and found.missing:
        raise NagleLabError(f"{program.name}: no socket of it can be reached: {'; '.join(found.missing)}{AS_ROOT}")
    if not mine:
        port = f" with port {program.port}" if program.port else ""
        raise NagleLabError(f"{program.name} has no TCP socket{port}: nagle-lab sockets lists all")
    return [one for one in mine if one.options]


def living(program: TargetProgram) -> list[int]:
    """The living processes of a program. Raises NagleLabError if there are none."""
    if found := sorted(pid for pid, at in program.started.items() if started_at(pid) == at):
        return found
    raise NagleLabError(f"{program.name} has ended: start nagle-lab nodelay again for another process")


def those_without_nodelay(sockets: Iterable[HostSocket]) -> list[HostSocket]:
    """The sockets on which TCP_NODELAY is not set, listeners first."""
    found = [one for one in sockets if one.options and not one.options.nodelay]
    return sorted(found, key=lambda one: (one.listed.state != LISTEN, one.listed.local, one.listed.remote))


def turn_on(program: TargetProgram, sockets: Iterable[HostSocket], to_set: Sequence[HostSocket]) -> list[HostSocket]:
    """Set the option on sockets of a program; returns those that still exist.

    Their earlier settings are written down first. If it raises NagleLabError, those that were set are as before.
    """
    wanted = {_key(one) for one in to_set}
    with changes() as known:
        entries = _living(known, program)
        ours = _listeners_of_ours(entries)
        before = set(entries)
        there = {_key(one): one for one in sockets if _key(one) in wanted or _inherited_from(one, ours) is None}
        for key, one in there.items():
            entries.setdefault(key, _entry(one, key not in wanted, there.values()))
        known.entries = list(entries.values())
    try:
        return _set(to_set, True)
    except NagleLabError:
        with changes() as known:
            known.entries = [one for one in known.entries if (one.namespace, one.cookie) in before]
        raise


def _entry(socket: HostSocket, had: bool, sockets: Iterable[HostSocket]) -> Entry:
    """A socket as it is; for a listener also whether its connections are without the option."""
    if socket.listed.state != LISTEN:
        return Entry(*_key(socket), had)
    port = socket.listed.local[1]
    accepted = [each.options for each in sockets if each.listed.state != LISTEN and each.listed.local[1] == port]
    passes_on = bool(accepted) and not any(options and options.nodelay for options in accepted)
    return Entry(*_key(socket), had, port, passes_on)


def to_take_back(program: TargetProgram, sockets: Iterable[HostSocket]) -> UndoPlan:
    """The sockets that :func:`turn_back` would change."""
    with changes() as known:
        return _plan(_living(known, program), sockets)


def turn_back(program: TargetProgram, sockets: Sequence[HostSocket]) -> UndoPlan:
    """Take the change back, and remove it from the log. Raises NagleLabError."""
    with changes() as known:
        entries = _living(known, program)
        plan = _plan(entries, sockets)
        done = _set(plan.back, False)
        here = {_key(one) for one in sockets}
        known.entries = [entry for key, entry in entries.items() if key not in here]
    return UndoPlan(done, plan.kept)


def _plan(entries: dict[tuple[int, int], Entry], sockets: Iterable[HostSocket]) -> UndoPlan:
    """A connection accepted meanwhile has TCP_NODELAY from its listener, or because the program set it.

    It counts as the listener's if there were earlier connections and none had it; otherwise the connection keeps the
    option.
    """
    ours, plan = _listeners_of_ours(entries), UndoPlan([], [])
    for one in sockets:
        entry = entries.get(_key(one))
        if entry is not None and not entry.had:
            plan.back.append(one)
        elif entry is None and (listener := _inherited_from(one, ours)):
            (plan.back if listener.passes_on else plan.kept).append(one)
    return plan


def _key(socket: HostSocket) -> tuple[int, int]:
    return socket.namespace, socket.listed.cookie


def _living(known: Changes, program: TargetProgram) -> dict[tuple[int, int], Entry]:
    """The entries without namespaces that have ended and sockets that the program has closed since."""
    first, there = living(program)[0], {namespace_of(pid) for pid in every_pid()}
    namespace, cookies = namespace_of(first), {one.cookie for one in inside(first, tcp_sockets)}
    return {
        (entry.namespace, entry.cookie): entry
        for entry in known.entries
        if entry.namespace in there and (entry.namespace != namespace or entry.cookie in cookies)
    }


def _listeners_of_ours(entries: dict[tuple[int, int], Entry]) -> dict[tuple[int, int], Entry]:
    """The listeners that were changed, by namespace and port."""
    return {(one.namespace, one.listens_on): one for one in entries.values() if one.listens_on and not one.had}


def _inherited_from(socket: HostSocket, ours: dict[tuple[int, int], Entry]) -> Entry | None:
    """The changed listener from which a connection may have TCP_NODELAY."""
    has = socket.options is not None and socket.options.nodelay and socket.listed.state != LISTEN
    return ours.get((socket.namespace, socket.listed.local[1])) if has else None


def _unchanged(one: HostSocket, error: OSError) -> NagleLabError:
    """The error that says why a socket cannot be changed."""
    first, why = one.processes[0], needs(CAP_SYS_PTRACE, error)
    if error.errno in (*REFUSED, errno.ENOSYS):
        return NagleLabError(f"{first.name} {first.pid}: no permission to change its sockets ({why}){AS_ROOT}")
    return NagleLabError(f"{first.name} {first.pid}: its sockets cannot be changed: {why}")


def _set(sockets: Iterable[HostSocket], value: bool) -> list[HostSocket]:
    """Set or clear the option; returns the sockets that still exist.

    Raises NagleLabError, after giving those that were changed the option back that they had.
    """
    done = []
    for one in sockets:
        try:
            if _set_one(one, value):
                done.append(one)
        except OSError as error:
            for changed in done:
                with suppress(OSError):
                    _set_one(changed, changed.options.nodelay if changed.options else not value)
            raise _unchanged(one, error) from None
    return done


def _set_one(one: HostSocket, value: bool) -> bool:
    """Set or clear the option of a socket, if it still exists; returns whether it does. Raises OSError."""
    with suppress(GoneError), borrow(one.holders, one.listed.inode) as copy:
        if cookie(copy) == one.listed.cookie:
            copy.setsockopt(TCP, socket.TCP_NODELAY, value)
            return True
    return False
