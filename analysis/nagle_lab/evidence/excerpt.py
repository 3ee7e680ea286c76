"""The packets around one stall, read again from the capture: what a ladder diagram shows."""

import ipaddress
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from nagle_lab.capture import open_capture
from nagle_lab.diagnosis.result import Connection, Result, Stall
from nagle_lab.packet import Packets, Tally, decode
from nagle_lab.tcp.columns import ACK, FIN, PSH, RST, SYN

_BEFORE, _AFTER = 6, 1  # rows of the connection to look back at and to show on
_WINDOW = 1 << 20  # bytes; mostly it is found near the beginning
_FLAGS = ((SYN, "SYN"), (FIN, "FIN"), (RST, "RST"), (PSH, "PSH"), (ACK, "ACK"))


@dataclass(frozen=True)
class Step:
    """One packet of the excerpt."""

    frame: int
    ts: int  # ns since the epoch
    from_client: bool
    length: int  # payload bytes
    flags: str  # "PSH,ACK"
    seq: int  # as on the wire, modulo 2**32
    ack: int


def around(path: Path | Sequence[Path], result: Result, stall: Stall) -> list[Step]:
    """The packets of the stalled connection from what the held side answers to what follows the release.

    ``path`` is the capture file, or the rotated ones, that ``result`` is of.
    """
    connection = result.connections[stall.connection]
    before: deque[Step] = deque(maxlen=_BEFORE)
    steps: list[Step] = []
    after = 0
    for step in packets_of(path, connection):
        if step.frame < stall.trigger_frame:
            before.append(step)
        elif step.frame <= stall.release_frame:
            steps.append(step)
        elif after < _AFTER:
            steps.append(step)
            after += 1
        else:
            break
    return [*_asked(before, stall), *steps]


def _asked(before: deque[Step], stall: Stall) -> list[Step]:
    """From the latest data of the delaying side on: what the trigger answers."""
    rows = list(before)
    from_client = stall.delayed_by.role == "client"
    for i in range(len(rows) - 1, -1, -1):
        if rows[i].length and rows[i].from_client == from_client:
            return rows[i:]
    return []


def packets_of(path: Path | Sequence[Path], connection: Connection) -> Iterator[Step]:
    """Every packet of the connection, in capture order."""
    with open_capture(path, window_bytes=_WINDOW, sha256=False) as capture:
        for records in capture:
            packets = decode(records, Tally())
            yield from _of_connection(packets, connection)


def _of_connection(p: Packets, connection: Connection) -> Iterator[Step]:
    hi, lo = _halves(connection.client.ip)
    peer_hi, peer_lo = _halves(connection.server.ip)
    port, peer_port = connection.client.port, connection.server.port
    sent = (p.src_hi == hi) & (p.src_lo == lo) & (p.sport == port)
    sent &= (p.dst_hi == peer_hi) & (p.dst_lo == peer_lo) & (p.dport == peer_port)
    received = (p.dst_hi == hi) & (p.dst_lo == lo) & (p.dport == port)
    received &= (p.src_hi == peer_hi) & (p.src_lo == peer_lo) & (p.sport == peer_port)
    for i in (sent | received).nonzero()[0].tolist():
        if p.frame[i] >= connection.first_frame:
            flags = ",".join(name for bit, name in _FLAGS if p.flags[i] & bit)
            numbers = int(p.seq[i]), int(p.ack[i])
            yield Step(int(p.frame[i]), int(p.ts[i]), bool(sent[i]), int(p.length[i]), flags, *numbers)


def _halves(ip: str) -> tuple[int, int]:
    """The address as two 64-bit halves, IPv4 mapped into IPv6, as the packet table has it."""
    address = ipaddress.ip_address(ip)
    whole = int(address) | 0xFFFF << 32 if address.version == 4 else int(address)
    return whole >> 64, whole & (1 << 64) - 1
