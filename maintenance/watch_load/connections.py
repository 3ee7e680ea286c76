"""A capture of very many connections, for memory.py: all open at once, or one after the other.

    .venv/bin/python maintenance/watch_load/connections.py at-once|in-turn|syn-flood COUNT FILE

Each has a handshake, four exchanges and an end; in a flood, only a SYN. Every tenth goes to a server that stalls: its
answers are two segments, of which the second waits 40 ms for a delayed ACK.
"""

import struct
import sys
from collections.abc import Iterator
from heapq import heappop, heappush
from itertools import product
from pathlib import Path
from typing import NamedTuple

FIN, SYN, PUSH, ACK = 1, 2, 8, 16
SERVER, PORT, STALLING = 0x0A00_0001, 80, 8080
EXCHANGES = 4
MSS = bytes((2, 4, 5, 180))  # 1460 bytes
STEP_US, HOLD_US = 20, 40_000
SNAPLEN = 128


class Packet(NamedTuple):
    """A packet of a connection, so long after the previous one."""

    to_server: bool
    flags: int
    size: int = 0
    after_us: int = STEP_US


SECOND = [Packet(False, ACK | PUSH, 600), Packet(True, ACK)]
ASKED = [Packet(True, ACK | PUSH, 100), Packet(False, ACK | PUSH, 200)]
EXCHANGE = {PORT: [*ASKED, *SECOND], STALLING: [*ASKED, Packet(True, ACK, after_us=HOLD_US), *SECOND]}
BEGIN = [Packet(True, SYN), Packet(False, SYN | ACK), Packet(True, ACK)]
END = [Packet(True, FIN | ACK), Packet(False, FIN | ACK), Packet(True, ACK)]
ROUNDS = EXCHANGES + 2


class Connection:
    """A connection, whose frames are made in order."""

    def __init__(self, number: int, only: list[Packet] | None = None) -> None:
        port = PORT if number % 10 else STALLING
        self._ends = [(SERVER, port), (0x0A01_0000 + number // 50_000, 10_000 + number % 50_000)]
        self._at = 0
        self._next = [number * 40_503 % (1 << 32), number * 20_011 % (1 << 32)]  # sequence numbers
        self._rounds = iter([only] if only else [BEGIN, *[EXCHANGE[port]] * EXCHANGES, END])

    def next_round(self, now: int) -> Iterator[tuple[int, bytes]]:
        """The next frames, with their times in microseconds, not before ``now``."""
        self._at = max(now, self._at)
        for packet in next(self._rounds):
            self._at += packet.after_us
            yield self._at, self._frame(packet)

    def _frame(self, packet: Packet) -> bytes:
        side = int(packet.to_server)
        (source, from_port), (target, to_port) = self._ends[side], self._ends[1 - side]
        options = MSS if packet.flags & SYN else b""
        ack = self._next[1 - side] if packet.flags & ACK else 0
        head = (20 + len(options)) << 2
        tcp = struct.pack("!HHIIBBHHH", from_port, to_port, self._next[side], ack, head, packet.flags, 60_000, 0, 0)
        size = 20 + len(tcp) + len(options) + packet.size
        ip = struct.pack("!BBHHHBBHII", 0x45, 0, size, 0, 0x4000, 64, 6, 0, source, target)
        self._next[side] = (self._next[side] + packet.size + bool(packet.flags & (SYN | FIN))) & 0xFFFF_FFFF
        return bytes(12) + b"\x08\x00" + ip + tcp + options + bytes(packet.size)


def at_once(count: int) -> Iterator[Connection]:
    """The connection of each round; all connections begin before the first one ends."""
    connections = [Connection(number) for number in range(count)]
    for _, connection in product(range(ROUNDS), connections):
        yield connection


def in_turn(count: int) -> Iterator[Connection]:
    """Each connection begins when the previous one has ended, except for data it still holds."""
    for number in range(count):
        connection = Connection(number)
        for _ in range(ROUNDS):
            yield connection


def syn_flood(count: int) -> Iterator[Connection]:
    """Each connection begins, and is never answered."""
    for number in range(count):
        yield Connection(number, only=[Packet(True, SYN)])


def packets(order: Iterator[Connection]) -> Iterator[tuple[int, bytes]]:
    """The packets of all connections, in order of time."""
    waiting: list[tuple[int, int, bytes]] = []
    now, made = 1_700_000_000_000_000, 0
    for connection in order:
        for at, frame in connection.next_round(now):
            heappush(waiting, (at, made, frame))
            made, now = made + 1, now + STEP_US
        while waiting and waiting[0][0] <= now:
            at, _, frame = heappop(waiting)
            yield at, frame
    yield from ((at, frame) for at, _, frame in sorted(waiting))


def main(how: str, count: str, file: str) -> None:
    """Write them, 128 bytes of each packet."""
    order = {"at-once": at_once, "in-turn": in_turn, "syn-flood": syn_flood}[how](int(count))
    with Path(file).open("wb") as out:
        out.write(struct.pack("<IHHiIII", 0xA1B2_C3D4, 2, 4, 0, 0, SNAPLEN, 1))
        for at, frame in packets(order):
            kept = frame[:SNAPLEN]
            out.write(struct.pack("<IIII", at // 1_000_000, at % 1_000_000, len(kept), len(frame)) + kept)


if __name__ == "__main__":
    main(*sys.argv[1:])
