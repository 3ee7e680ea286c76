"""Which peers of a program are looked at by themselves, where that is enough to tell.

Each path has its own times, and what a server does for one client says nothing of another. One address may be that
of several hosts, near and far ones, as behind NAT or a load balancer: connections whose paths differ are looked at as
those of several peers. What a program does with all other peers is looked at together.
"""

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from nagle_lab.diagnosis.observed.columns import (
    Column,
    among,
    as_column,
    chunks,
    distinct,
    groups,
    highest,
    how_often,
    listed,
    lowest,
    pick,
    rows_where,
    select,
)
from nagle_lab.diagnosis.observed.connection_columns import Involved
from nagle_lab.diagnosis.observed.enough import COMPARABLE
from nagle_lab.tcp.events import MS, US
from nagle_lab.tcp.tables import Table, Tables

LEAST_DELAY = 5 * MS  # no ACK that came sooner is a late one
MOST_PEERS = 100  # that are looked at by themselves, in the whole capture
OTHERS = (1 << 32) - 1  # in place of a peer's number: all that are not looked at by themselves
FARTHER = 1 << 31  # in place of a peer's number: the first of those that have its address and a longer path
LONGER = 1_500 * US  # another path; or one that takes twice as long
HARDLY_SOONER = 200 * MS  # a path hardly becomes longer within that time


class Peers:
    """Which peers are looked at by themselves, in the whole capture."""

    def __init__(self, tables: Tables) -> None:
        self._by_themselves = _peers_by_themselves(tables)
        self._farther = _farther_ones(tables)

    def keys_of(self, involved: Involved, side: Column) -> Column:
        """For each row (n,), the key of the program at that ``side`` (n,) of its connection, and of its peer.

        That is the numbers of both in ``connection`` (tcp/engine.h); the latter may be OTHERS, or FARTHER and more.
        """
        program, peer = involved.of_side("program", side), involved.of_side("program", 1 - side)
        pair = program << 32 | peer
        keys = select(among(pair, self._by_themselves), pair, program << 32 | OTHERS)
        if not self._farther:
            return keys
        of_connection = [self._farther.get(int(number), -1) for number in involved.numbers]
        farther = as_column([of_connection[place] for place in involved.of])
        return select(farther < 0, keys, program << 32 | farther)


def _peers_by_themselves(tables: Tables) -> list[int]:
    """The keys, ascending, of programs and peers with five candidates whose ACKs may be late for each chunk of rows.

    Of MOST_PEERS at most, those with the most. Chunks are judged one by one.
    """
    if not _have_several_peers(tables.connection):
        return []
    late: Counter[int] = Counter()
    looked_at = 0
    for rows in chunks(tables.candidate):
        involved, side = Involved(tables.connection, rows["connection"]), rows["side"]
        pair = involved.of_side("program", side) << 32 | involved.of_side("program", 1 - side)
        is_late = rows["trigger_to_ack"] - involved.fastest_ack(1 - side) >= LEAST_DELAY
        late.update(how_often(pick(pair, rows_where(is_late & (involved.rows("left_out") == 0)))))
        looked_at += 1
    return sorted(pair for pair, count in late.most_common(MOST_PEERS) if count >= COMPARABLE * looked_at)


def _have_several_peers(connections: Table) -> bool:
    """Whether any program has: most captures are of one server and one client, and need not be looked through."""
    first: dict[int, int] = {}
    for rows in chunks(connections):
        for side in (0, 1):
            program = rows["program", side]
            pairs = pick(program << 32 | rows["program", 1 - side], rows_where(program >= 0))
            if any(first.setdefault(pair >> 32, pair) != pair for pair in listed(distinct(pairs))):
                return True
    return False


def _farther_ones(tables: Tables) -> dict[int, int]:
    """By number, the connections that take a longer path than others of the same two addresses: FARTHER and more.

    Those of one path have the same number. They are looked at by themselves where COMPARABLE of their candidates may
    have late ACKs, or more.
    """
    paths = [path for pair in _pairs_that_differ(tables.connection) for path in _farther_paths(pair)]
    if not paths:
        return {}
    late: Counter[int] = Counter()
    for rows in chunks(tables.candidate):
        involved = Involved(tables.connection, rows["connection"])
        is_late = rows["trigger_to_ack"] - involved.fastest_ack(1 - rows["side"]) >= LEAST_DELAY
        late.update(how_often(pick(rows["connection"], rows_where(is_late))))
    enough = [path for path in paths if sum(late[number] for number in path) >= COMPARABLE]
    return {number: FARTHER + place for place, path in enumerate(enough[:MOST_PEERS]) for number in path}


class _Path(NamedTuple):
    """The path of one connection, and when that began; ns."""

    round_trip: int  # its handshake's, or that of the fastest ACKs of both ends
    number: int  # the connection's
    begin: int


def _pairs_that_differ(connections: Table) -> list[list[_Path]]:
    """The paths of the connections of each two addresses that are surely not always as far apart."""
    shortest: dict[int, int] = {}
    longer: set[int] = set()
    for pair, round_trips, _ in _round_trips(connections) if len(connections) > 1 else ():
        shortest[pair] = min(shortest.get(pair, int(round_trips[0])), lowest(round_trips))
    for pair, round_trips, _ in _round_trips(connections) if shortest else ():
        if highest(round_trips) > _longest_alike(shortest[pair]):
            longer.add(pair)
    found: dict[int, list[_Path]] = {pair: [] for pair in longer}
    for pair, _, paths in _round_trips(connections) if longer else ():
        if pair in longer:
            found[pair] += (_Path(*map(int, path)) for path in zip(*paths, strict=True))
    return list(found.values())


def _round_trips(connections: Table) -> Iterator[tuple[int, Column, list[Column]]]:
    """Of some connections of two programs: the key of both, their round trips (n,), ns, and all columns of _Path."""
    for rows in chunks(connections):
        server, one, other = 1 - rows["client"], rows["program", 0], rows["program", 1]
        pair = select(server, other << 32 | one, one << 32 | other)
        fastest = rows["fastest_ack", 0], rows["fastest_ack", 1]
        both = fastest[0] + fastest[1]
        is_sooner = (fastest[0] >= 0) & (fastest[1] >= 0) & (both < rows["handshake"])
        round_trip = select(is_sooner, both, rows["handshake"])
        known = rows_where((one >= 0) & (other >= 0) & (rows["syns"] > 0) & (rows["handshake"] >= 0))
        shown = pair, round_trip, rows["number"], rows["first_ts"]
        pairs, *paths = (pick(column, known) for column in shown)
        for group in groups(pairs):
            of_pair = [pick(column, group) for column in paths]
            yield int(pairs[group[0]]), of_pair[0], of_pair


def _farther_paths(of_pair: list[_Path]) -> list[list[int]]:
    """The connections of each path but the shortest, where shorter ones began beside them.

    What begins after all of these may be on the same path, which became longer.
    """
    by_length: list[list[_Path]] = []
    for one in sorted(of_pair):
        if not by_length or one.round_trip > _longest_alike(by_length[-1][-1].round_trip):
            by_length.append([])
        by_length[-1].append(one)
    shorter, *longer = by_length
    farther: list[list[int]] = []
    for path in longer:
        if _are_beside(path, shorter):
            farther.append([each.number for each in path])
        shorter = shorter + path
    return farther


def _are_beside(path: list[_Path], shorter: list[_Path]) -> bool:
    """Whether any on a shorter path began later than the first of these, or hardly sooner."""
    return max(one.begin for one in shorter) > min(one.begin for one in path) - HARDLY_SOONER


def _longest_alike(round_trip: int) -> int:
    """How long another round trip of the same path may be, ns."""
    return max(2 * round_trip, round_trip + LONGER)
