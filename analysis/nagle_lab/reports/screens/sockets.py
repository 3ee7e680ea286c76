"""The TCP sockets of this host: the screen, and JSON ``nagle-lab-sockets/1``."""

from collections.abc import Sequence
from typing import Literal

import msgspec
from rich.console import Console
from rich.text import Text

from nagle_lab.diagnosis.result.json_text import json_text
from nagle_lab.diagnosis.result.schema import schema_of, schema_text
from nagle_lab.errors import printable
from nagle_lab.live.sockets.diag import LISTEN, End
from nagle_lab.live.sockets.inventory import Found, Inventory, Waits
from nagle_lab.reports.screens.terminal import ruled_table
from nagle_lab.reports.words.numbers import NONE

SCHEMA: Literal["nagle-lab-sockets/1"] = "nagle-lab-sockets/1"
MOST = 40  # rows, unless all are asked for
_WIDE, _WIDEST = 100, 112  # columns from which on the two ends stand side by side, and ACKs have a column
_STYLE = {Waits.HELD: "bold red", Waits.MAYBE_HELD: "yellow", Waits.CORKED: "yellow"}


class Owner(msgspec.Struct, frozen=True):
    """A process that has the socket."""

    pid: int
    name: str
    uid: int


class Endpoint(msgspec.Struct, frozen=True):
    """An end of a connection, or the one of a listener."""

    ip: str
    port: int


class Socket(msgspec.Struct, frozen=True):
    """A TCP socket."""

    processes: list[Owner]  # several share it; none: they may not be looked into, or no process has it (TIME-WAIT)
    container: str | None  # name, or the id where Docker does not tell the name
    namespace: int  # inode of its network namespace
    state: str  # of RFC 9293
    local: Endpoint
    remote: Endpoint | None  # None: it listens
    nodelay: bool | None  # TCP_NODELAY; None, as the next two: it may not be read
    cork: bool | None  # TCP_CORK
    delays_acks: bool | None  # its kernel is in interactive ("pingpong") mode: TCP_QUICKACK reads 0
    unacknowledged_bytes: int  # sent
    unsent_bytes: int  # written by the program, and not sent
    in_flight: int | None  # segments sent and not acknowledged; None, as the next: not in this state
    mss: int | None  # bytes of a full segment
    waits: Waits | None  # why a small segment waits in it


class Sockets(msgspec.Struct, frozen=True):
    """All of them, those that hold data first."""

    schema: Literal["nagle-lab-sockets/1"]
    missing: list[str]  # what this user may not see
    sockets: list[Socket]


def sockets_json(inventory: Inventory) -> str:
    """The JSON object, on one line."""
    return json_text(Sockets(SCHEMA, inventory.missing, [_socket(one) for one in inventory.sockets])) + "\n"


def json_schema() -> str:
    """Its JSON Schema: ``schema/sockets.schema.json``."""
    return schema_text(schema_of(Sockets, "nagle-lab: the TCP sockets of a host"))


def _socket(one: Found) -> Socket:
    listed, options, info = one.listed, one.options, one.listed.info
    return Socket(
        processes=[Owner(process.pid, process.name, process.uid) for process in one.processes],
        container=one.container or None,
        namespace=one.namespace,
        state=listed.state,
        local=Endpoint(*listed.local),
        remote=None if listed.state == LISTEN else Endpoint(*listed.remote),
        nodelay=options.nodelay if options else None,
        cork=options.cork if options else None,
        delays_acks=options.interactive if options and listed.state != LISTEN else None,
        unacknowledged_bytes=listed.unacknowledged,
        unsent_bytes=listed.unsent,
        in_flight=info.in_flight if info else None,
        mss=info.mss if info else None,
        waits=one.waits,
    )


def show_sockets(inventory: Inventory, to: Console, most: int | None = MOST) -> None:
    """A table, and below it how many there are; at most so many rows, and then none of TIME-WAIT, or all."""
    rows = inventory.sockets
    if most is not None:
        rows = [one for one in rows if one.listed.state != "TIME-WAIT"][:most]
    ends, acks = (["local", "remote"] if to.width >= _WIDE else ["local, remote"]), ["ACKs"] * (to.width >= _WIDEST)
    table = ruled_table(
        "process", *ends, "NODELAY", *acks, "unacked", "unsent", "", words=3 + len(ends) + len(acks) - 1
    )
    table.columns[-1].justify = "left"
    for one in rows:
        cells = [owner(one), *_ends(one, len(ends)), nodelay(one), *(_acks(one) for _ in acks)]
        cells += [_bytes(one.listed.unacknowledged), _bytes(one.listed.unsent), one.waits or ""]
        table.add_row(*map(Text, cells), style=_STYLE[one.waits] if one.waits else "")
    if table.rows:
        to.print(table)
    if more := len(inventory.sockets) - len(rows):
        to.print(Text(f"… and {more:,} more: --all shows them", "dim"))
    to.print(Text(totals(inventory.sockets), "bold"))


def _ends(one: Found, columns: int) -> list[str]:
    """Local and remote end, in two columns or in one; with the state, unless that is the usual one."""
    state = one.listed.state
    if state == LISTEN:
        remote = "listens"
    else:
        remote = end(one.listed.remote) + ("" if state == "ESTABLISHED" else f" {state}")
    ends = [end(one.listed.local), remote]
    return ends if columns == len(ends) else ["\n".join(ends)]


def _acks(one: Found) -> str:
    if one.options is None or one.listed.state == LISTEN:
        return ""
    return "delayed" if one.options.interactive else "at once"


def owner(one: Found) -> str:
    """Its process, how many share it with that one, and the container."""
    if not one.processes:
        return "?" if one.listed.inode else NONE
    first, *others = one.processes
    container = f" in {one.container}" if one.container else ""
    return printable(f"{first.name} {first.pid}" + (f" +{len(others)}" if others else "") + container)


def end(of: End) -> str:
    """Address and port; an IPv6 address in brackets (RFC 5952)."""
    ip, port = of
    return f"[{ip}]:{port}" if ":" in ip else f"{ip}:{port}"


def nodelay(one: Found) -> str:
    """TCP_NODELAY, and TCP_CORK where it is set."""
    if one.options is None:
        return "?" if one.listed.inode else ""
    return ("on" if one.options.nodelay else "off") + (", cork" if one.options.cork else "")


def totals(sockets: Sequence[Found]) -> str:
    """How many there are, and hold data."""
    connections = sum(1 for one in sockets if one.listed.state == "ESTABLISHED")
    without = sum(
        1 for one in sockets if one.options and not one.options.nodelay and one.listed.state == "ESTABLISHED"
    )
    held = sum(1 for one in sockets if one.waits is Waits.HELD)
    many = "s" * (len(sockets) != 1)
    return (
        f"{len(sockets):,} TCP socket{many}, {connections:,} established; {without:,} of these without TCP_NODELAY, "
        f"{held:,} held now by Nagle's algorithm"
    )


def _bytes(count: int) -> str:
    return f"{count:,} B" if count else ""
