"""The TCP sockets of this host: the screen, and JSON ``nagle-lab-sockets/1``."""

from collections import Counter
from collections.abc import Sequence
from typing import Any, Literal

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from nagle_lab.diagnosis.result.json_text import json_text
from nagle_lab.diagnosis.result.spread import plural
from nagle_lab.errors import printable
from nagle_lab.host.sock_diag import LISTEN
from nagle_lab.live.sockets.inventory import HostSocket, Inventory
from nagle_lab.live.sockets.socket_options import Waits
from nagle_lab.packet.segment import end_text
from nagle_lab.reports.screens.terminal import ruled_table
from nagle_lab.reports.words.numbers import NONE, shortened

SCHEMA: Literal["nagle-lab-sockets/1"] = "nagle-lab-sockets/1"
MOST = 40  # rows, unless all are asked for
_WIDEST = 112  # from this width on ACKs have a column
_STYLE = {Waits.HELD: "bold red", Waits.MAYBE_HELD: "yellow", Waits.CORKED: "yellow"}


class Owner(msgspec.Struct, frozen=True):
    """A process that has a socket open."""

    pid: int
    name: str
    uid: int


class SocketEnd(msgspec.Struct, frozen=True):
    """An end of a connection, or the only end of a listener."""

    ip: str
    port: int


class Socket(msgspec.Struct, frozen=True):
    """A TCP socket."""

    processes: list[Owner]  # several may share it; none: no right to see them, or no process has it (TIME-WAIT)
    container: str | None  # name, or the id if Docker does not know the name
    namespace: int  # inode of its network namespace
    state: str  # of RFC 9293
    local: SocketEnd
    remote: SocketEnd | None  # None: it listens
    nodelay: bool | None  # TCP_NODELAY; None, as in the next two: no right to read it
    cork: bool | None  # TCP_CORK
    delays_acks: bool | None  # its kernel is in interactive ("pingpong") mode: TCP_QUICKACK reads 0
    unacknowledged_bytes: int  # sent
    unsent_bytes: int  # written by the program, and not sent
    in_flight: int | None  # segments sent and not acknowledged; None, as the next: not in this state
    mss: int | None  # bytes of a full segment
    waits: Waits | None  # why a small segment waits in it


class Sockets(msgspec.Struct, frozen=True):
    """Every TCP socket of this host, those that hold data first."""

    schema: Literal["nagle-lab-sockets/1"]
    missing: list[str]  # lines about what this user may not see
    sockets: list[Socket]


def sockets_json(inventory: Inventory) -> str:
    """An inventory as JSON, on one line."""
    return json_text(Sockets(SCHEMA, inventory.missing, [_socket(one) for one in inventory.sockets])) + "\n"


def whose_and_where(socket: HostSocket) -> dict[str, Any]:
    """A socket's processes, container and ends, by the fields of a :class:`Socket`."""
    listed = socket.listed
    return {
        "processes": [Owner(process.pid, process.name, process.uid) for process in socket.processes],
        "container": socket.container or None,
        "local": SocketEnd(*listed.local),
        "remote": None if listed.state == LISTEN else SocketEnd(*listed.remote),
    }


def _socket(socket: HostSocket) -> Socket:
    listed, options, info = socket.listed, socket.options, socket.listed.info
    return Socket(
        **whose_and_where(socket),
        namespace=socket.namespace,
        state=listed.state,
        nodelay=options.nodelay if options else None,
        cork=options.cork if options else None,
        delays_acks=options.interactive if options and listed.state != LISTEN else None,
        unacknowledged_bytes=listed.unacknowledged,
        unsent_bytes=listed.unsent,
        in_flight=info.in_flight if info else None,
        mss=info.mss if info else None,
        waits=socket.waits,
    )


def show_sockets(
    inventory: Inventory, screen: Console, most: int | None = MOST, as_root: str = "sudo nagle-lab"
) -> None:
    """Print a table, and below it the number of sockets: ``most`` rows without TIME-WAIT, or all.

    ``as_root`` is how to type a command that needs root.
    """
    rows = inventory.sockets
    waiting = 0
    if most is not None:
        others = [one for one in rows if one.listed.state != "TIME-WAIT"]
        rows, waiting = others[:most], len(rows) - len(others)
    table = _table(rows, screen.width)
    if table.rows:
        screen.print(table)
    if more := len(inventory.sockets) - len(rows):
        which = f"{more:,} more" if not waiting else f"{waiting:,} in TIME-WAIT"
        if waiting and more > waiting:
            which = f"{more:,} more, {waiting:,} of them in TIME-WAIT"
        screen.print(Text(f"… and {which}: --all shows them", "dim"))
    screen.print(Text(totals(inventory.sockets), "bold"))
    if step := _next(inventory.sockets, as_root):
        screen.print(Text(step))


def _next(sockets: Sequence[HostSocket], as_root: str) -> str:
    """How to prove that the program with most holds stalls, and to try the fix on it; or how to see more."""
    pids = Counter(one.processes[0].pid for one in sockets if one.waits is Waits.HELD and one.processes)
    if pids:
        return f"next: prove and try it: {as_root} nodelay --pid {pids.most_common(1)[0][0]} on --for 30s"
    if any(_may_hold(one) for one in sockets) and not any(one.waits for one in sockets):
        return f"next: this is one moment only: look again, or see what stalls meanwhile: {as_root} watch"
    return ""


def _may_hold(socket: HostSocket) -> bool:
    """Whether it is a connection known to be without TCP_NODELAY."""
    options = socket.options
    return socket.listed.state == "ESTABLISHED" and options is not None and not options.nodelay


def _table(rows: Sequence[HostSocket], width: int) -> Table:
    """The two ends side by side if there is room, or one below the other, or both below their process; only names of
    containers are cut.
    """
    acks = width >= _WIDEST
    figures = [[nodelay(one), *([_acks(one)] if acks else []), *_waiting(one)] for one in rows]
    headings = ["NODELAY", *(["ACKs"] if acks else []), "unacked", "unsent", ""]
    taken = sum(_columns(headings[i], [cells[i] for cells in figures]) for i in range(len(headings)))
    for names in (["local", "remote"], ["local, remote"]):
        beside = len(names) > 1
        ends = [_ends(one, len(names)) for one in rows]
        room = width - taken - sum(_columns(names[i], [both[i] for both in ends]) for i in range(len(names)))
        if room >= max((len(_process(one)) + (_CONTAINER if one.container else 0) for one in rows), default=0):
            break
    cells = [[_named(one, room, beside=beside), *of_ends] for one, of_ends in zip(rows, ends, strict=True)]
    names.insert(0, "process")
    if room < max((len(_process(one)) for one in rows), default=0):
        names, cells = ["process, local, remote"], [["\n".join(one)] for one in cells]
    table = ruled_table(*names, *headings, words=len(names) + len(headings) - 3)
    table.columns[-1].justify = "left"
    for one, what, others in zip(rows, cells, figures, strict=True):
        table.add_row(*map(Text, [*what, *others]), style=_STYLE[one.waits] if one.waits else "")
    return table


_BETWEEN = 3  # columns between two columns of a ruled table
_CONTAINER = len(" in ") + 12  # columns for a container: its id has so many, and a longer name is cut to them


def _columns(heading: str, cells: Sequence[str]) -> int:
    """The width of a column, with the space before it."""
    return max(len(line) for cell in (heading, *cells) for line in cell.split("\n")) + _BETWEEN


def _named(socket: HostSocket, room: int, *, beside: bool) -> str:
    """Process and container, on one line or two, and in so many columns if the process fits."""
    name, container = _process(socket), printable(socket.container)
    if not container:
        return name
    before = f"{name} in " if beside else "in "
    within = shortened(container, max(room - len(before), _CONTAINER - len(" in ")))
    return f"{before}{within}" if beside else f"{name}\n{before}{within}"


def _waiting(socket: HostSocket) -> list[str]:
    return [_bytes(socket.listed.unacknowledged), _bytes(socket.listed.unsent), socket.waits or ""]


def _ends(socket: HostSocket, columns: int) -> list[str]:
    """Local and remote end, in two columns or in one; with the state, unless that is the usual one."""
    state = socket.listed.state
    if state == LISTEN:
        remote = "listens"
    else:
        remote = end_text(*socket.listed.remote) + ("" if state == "ESTABLISHED" else f" {state}")
    ends = [end_text(*socket.listed.local), remote]
    return ends if columns == len(ends) else ["\n".join(ends)]


def _acks(socket: HostSocket) -> str:
    if socket.options is None or socket.listed.state == LISTEN:
        return ""
    return "delayed" if socket.options.interactive else "at once"


def owner(socket: HostSocket) -> str:
    """The cell with a socket's process, how many others share it, and the container."""
    return _process(socket) + (f" in {printable(socket.container)}" if socket.container and socket.processes else "")


def _process(socket: HostSocket) -> str:
    if not socket.processes:
        return "?" if socket.listed.inode else NONE
    first, *others = socket.processes
    return printable(f"{first.name} {first.pid}" + (f" +{len(others)}" if others else ""))


def nodelay(socket: HostSocket) -> str:
    """The cell with TCP_NODELAY, and TCP_CORK where it is set."""
    if socket.options is None:
        return "?" if socket.listed.inode else ""
    return ("on" if socket.options.nodelay else "off") + (", cork" if socket.options.cork else "")


def totals(sockets: Sequence[HostSocket]) -> str:
    """A line: how many sockets there are, and how many hold data."""
    connections = [one for one in sockets if one.listed.state == "ESTABLISHED"]
    without = sum(map(_may_hold, connections))
    unknown = sum(one.options is None for one in connections)
    held, maybe = (sum(1 for one in sockets if one.waits is waits) for waits in (Waits.HELD, Waits.MAYBE_HELD))
    return (
        f"{len(sockets):,} {plural('TCP socket', len(sockets))}, {len(connections):,} established; "
        f"{without:,} of these without TCP_NODELAY"
        + (f" ({unknown:,} may not be read)" if unknown else "")
        + f", {held:,} held now by Nagle's algorithm"
        + (f", {maybe:,} perhaps" if maybe else "")
    )


def _bytes(count: int) -> str:
    return f"{count:,} B" if count else ""
