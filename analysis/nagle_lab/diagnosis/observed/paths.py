"""How far apart two hosts are, by any of their connections: for connections that began before the capture.

One address may be that of many hosts, behind NAT. Linux from 4.12 to early 2026 counts the timestamps (RFC 7323) of
all connections of two hosts from one offset (secure_tcp_ts_off), at 1 ms: so connections on which both ends' offsets
agree are of the same hosts. Since commit 165573e41f2f each connection has its own offset, and they never agree.
"""

from typing import NamedTuple

from nagle_lab.tcp.connection import NEVER
from nagle_lab.tcp.events import US
from nagle_lab.tcp.tables import Table

MOST_PATHS = 100_000  # are remembered
CLOCK_BITS = 10  # offsets that differ by less than about a second are one: clocks drift, and paths vary
CLOCKS = 1 << (32 - CLOCK_BITS)

SLACK = 300 * US  # a path varies by at least this

Hosts = tuple[bytes, bytes]  # the addresses of two hosts, the lesser first
Clocks = tuple[int, int]  # the offsets of their timestamps, in units of about a second


class KnownPath(NamedTuple):
    """What is known of the path between two hosts."""

    fastest: tuple[int, int]  # the fastest reaction of each host, ns, the one with the lesser address first
    has_handshake: bool


class FromHost(NamedTuple):
    """What is known of one of two hosts."""

    fastest: int  # its fastest reaction, ns; NEVER if not known
    has_handshake: bool  # whether a handshake shows it


class KnownPaths:
    """Known paths, by the addresses of both hosts and by their timestamps."""

    def __init__(self) -> None:
        self._known: dict[tuple[Hosts, Clocks], KnownPath] = {}

    def add(self, connections: Table) -> None:
        """Note what these connections show."""
        if len(self._known) >= MOST_PATHS:
            self._known.clear()
        columns = connections.layout.columns
        clock, fastest, syns = columns["tsval_clock", 0], columns["fastest_ack", 0], columns["syns"]
        address, handshake = columns["address"], columns["handshake"]
        for row in connections.rows():
            if row[clock] >= 0 and row[clock + 1] >= 0:
                shown = tuple(NEVER if ns < 0 else ns for ns in row[fastest : fastest + 2])
                self._note(row[address], row[clock : clock + 2], shown, bool(row[syns] and row[handshake] >= 0))

    def _note(self, addresses: bytes, clocks: Clocks, shown: tuple[int, ...], has_handshake: bool) -> None:
        lesser = 0 if is_in_order(addresses) else 1
        key = hosts_of(addresses), (clocks[lesser] >> CLOCK_BITS, clocks[1 - lesser] >> CLOCK_BITS)
        if key not in self._known and len(self._known) >= MOST_PATHS:
            return
        before = self._known.get(key, KnownPath((NEVER, NEVER), False))
        fastest = min(shown[lesser], before.fastest[0]), min(shown[1 - lesser], before.fastest[1])
        self._known[key] = KnownPath(fastest, has_handshake or before.has_handshake)

    def of(self, addresses: bytes, clocks: Clocks, side: int) -> FromHost:
        """What is known of one of two hosts, which ``side`` selects.

        ``addresses`` are those of both, 16 bytes each, ``clocks`` the offsets of their timestamps, ms.
        """
        soonest, has_handshake = NEVER, False
        if min(clocks) < 0:
            return FromHost(soonest, has_handshake)
        lesser, hosts = 0 if is_in_order(addresses) else 1, hosts_of(addresses)
        for one in _around(clocks[lesser]):
            for other in _around(clocks[1 - lesser]):
                if known := self._known.get((hosts, (one, other))):
                    soonest = min(soonest, known.fastest[0 if side == lesser else 1])
                    has_handshake = has_handshake or known.has_handshake
        return FromHost(soonest, has_handshake)


def _around(clock: int) -> tuple[int, int, int]:
    number = clock >> CLOCK_BITS
    return (number - 1) % CLOCKS, number, (number + 1) % CLOCKS


def is_in_order(addresses: bytes) -> bool:
    """Whether the first of two addresses, 16 bytes each, is the lesser one."""
    return addresses[:16] <= addresses[16:]


def hosts_of(addresses: bytes) -> Hosts:
    """The two hosts, given both addresses, 16 bytes each."""
    one, other = addresses[:16], addresses[16:]
    return (one, other) if is_in_order(addresses) else (other, one)


def slack(round_trip: int) -> int:
    """How much longer or shorter than ``round_trip`` another round trip of that path may be, ns."""
    return SLACK + round_trip // 8


def round_trip_bounds(round_trip: int) -> tuple[float, float]:
    """The shortest and the longest that another round trip of that path may be, ns."""
    return round_trip - slack(round_trip), round_trip + slack(round_trip)
