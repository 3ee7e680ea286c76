"""Which peers of a program are looked at by themselves, if they show enough.

Each path has its own times, and what a server does for one client says nothing about another. One address may be that
of several hosts, near and far ones, as behind NAT or a load balancer: connections whose paths differ are treated as
those of several peers. What a program does with all other peers is looked at together.
"""

from collections import Counter, defaultdict
from typing import NamedTuple

from nagle_lab.diagnosis.observed.columns import (
    Column,
    Columns,
    among,
    as_column,
    chunks,
    distinct,
    how_often,
    least,
    listed,
    pick,
    ranks,
    rows_where,
    select,
)
from nagle_lab.diagnosis.observed.connection_columns import Involved
from nagle_lab.diagnosis.observed.enough import COMPARABLE
from nagle_lab.tcp.events import MS, US
from nagle_lab.tcp.tables import Table, Tables

LEAST_DELAY = 5 * MS  # an ACK that came sooner is not late
MOST_PEERS = 100  # are looked at by themselves, in the whole capture
OTHERS = (1 << 32) - 1  # in place of a peer's number: all peers that are not looked at by themselves
FARTHER = 1 << 31  # in place of a peer's number, and from here on: peers with its address and a longer path
FARTHER_TIMES, FARTHER_BY = 2, 1_500 * US  # the round trip of another path is so many times as long, and this longer
HARDLY_SOONER = 200 * MS  # a path hardly becomes longer within that time


class Peers:
    """Which peers are looked at by themselves, in the whole capture."""

    def __init__(self, tables: Tables) -> None:
        self._by_themselves = _peers_by_themselves(tables)
        self._farther = _farther_ones(tables)

    def keys_of(self, involved: Involved, side: Column) -> Column:
        """For each row (n,), the key of the program at that ``side`` (n,) of its connection, and of its peer.

        The key holds the numbers of both in ``connection`` (tcp/engine.h); the peer's may be OTHERS, or FARTHER and
        more.
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
    """The keys, ascending, of programs and peers with at least five candidates per chunk of rows whose ACKs may be
    late.

    Of more than MOST_PEERS, those with the most candidates. Chunks are judged one by one.
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
    """Whether any program has several peers: most captures are of one server and one client, and need no search."""
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

    Those of one path have the same number. They are looked at by themselves if COMPARABLE or more of their candidates
    may have late ACKs.
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
    """The path of one connection, and when the connection began; ns."""

    round_trip: int
    number: int  # the connection's
    begin: int


def _pairs_that_differ(connections: Table) -> list[list[_Path]]:
    """For each server and client that are surely not always equally far apart, the paths of their connections.

    Connections that began at the same time are in one chunk of the table, at least nearly all of them.
    """
    found: dict[int, list[_Path]] = defaultdict(list)
    for rows in chunks(connections) if len(connections) > 1 else ():
        known = _with_handshake(rows)
        server, one, other = 1 - rows["client"], rows["program", 0], rows["program", 1]
        pairs = pick(select(server, other << 32 | one, one << 32 | other), known)
        round_trips = pick(rows["handshake"], known)
        differ = rows_where(among(pairs, _pairs_with_longer_ones(pairs, round_trips)))
        numbers, begins = pick(rows["number"], known), pick(rows["first_ts"], known)
        columns = (pick(column, differ) for column in (pairs, round_trips, numbers, begins))
        for pair, round_trip, number, begin in zip(*columns, strict=True):
            found[int(pair)].append(_Path(int(round_trip), int(number), int(begin)))
    return list(found.values())


def _with_handshake(connections: Columns) -> Column:
    """The rows of connections of programs whose handshake shows how long their path is.

    Without those whose handshake was slow by chance, as the fastest ACKs of both ends show.
    """
    handshake, acks = connections["handshake"], (connections["fastest_ack", 0], connections["fastest_ack", 1])
    was_slow = (acks[0] >= 0) & (acks[1] >= 0) & _is_longer(handshake, acks[0] + acks[1])
    are_programs = (connections["program", 0] >= 0) & (connections["program", 1] >= 0)
    is_known = are_programs & (connections["syns"] > 0) & (handshake >= 0)
    return rows_where(is_known & (was_slow == 0))


def _pairs_with_longer_ones(pairs: Column, round_trips: Column) -> Column:
    """Which of the pairs have round trips, ns, of different paths; both columns are (n,)."""
    if not len(pairs):
        return pairs
    each = distinct(pairs)
    place = ranks(pairs, each)
    shortest = pick(least(place, round_trips, len(each)), place)
    return distinct(pick(pairs, rows_where(_is_longer(round_trips, shortest))))


def _is_longer(round_trips: Column, others: Column) -> Column:
    """Whether these round trips (n,), ns, are of another path than the others."""
    return (round_trips > FARTHER_TIMES * others) & (round_trips > others + FARTHER_BY)


def _farther_paths(of_pair: list[_Path]) -> list[list[int]]:
    """The connections of each path except the shortest, if connections on a shorter path began beside them.

    A connection that begins after all of these may be on the same path, which became longer.
    """
    by_length: list[list[_Path]] = []
    for one in sorted(of_pair):
        if not by_length or _is_longer(one.round_trip, by_length[-1][-1].round_trip):
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
    """Whether any connection on a shorter path began later than the first of these, or hardly sooner."""
    return max(one.begin for one in shorter) > min(one.begin for one in path) - HARDLY_SOONER
