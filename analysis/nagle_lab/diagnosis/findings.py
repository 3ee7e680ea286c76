"""What a whole capture shows: the stalls proved, and everything counted by connection and in all.

What the engine found is gone through once, now that every connection is known: how fast each end reacts, and whether
it waits for acknowledgements at all. Every step takes a chunk of rows, so memory stays bounded.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Any

from nagle_lab.diagnosis import idle
from nagle_lab.diagnosis.connections import Involved
from nagle_lab.diagnosis.durations import add_all
from nagle_lab.diagnosis.population import (
    Column,
    Columns,
    chosen,
    counts,
    distinct,
    each,
    extended,
    highest,
    lowest,
    pick,
    replaced,
    total,
    where,
)
from nagle_lab.diagnosis.proof import Proof, is_before_timer, is_late, prove
from nagle_lab.diagnosis.result import Role, Roles
from nagle_lab.tcp.durations import Durations
from nagle_lab.tcp.tables import Table, Tables

ROLES: tuple[Role, Role] = ("client", "server")


class Findings:
    """What a capture shows, from the tables of an engine that has finished; times in ns.

    Attributes
    ----------
    connections : the engine's, filled in
    stalls : the engine's candidates, of which only the stalls are left, in order of their releases
    wait, release : of the stalls
    ack_timer : waits less the way to the delaying end and back: its delayed-ACK timer
    rejected : candidates that are no stall, by why
    idle : idle gaps by cause
    held, delayed : the ends that held and that delayed
    sums : over all connections
    """

    def __init__(self, tables: Tables) -> None:
        self.connections = tables.connection
        self.stalls = tables.candidate  # of which only they are kept
        self._kept = 0
        self.wait, self.release, self.ack_timer = Durations(1_000), Durations(1), Durations(1_000)
        self.rejected: Counter[str] = Counter(nagle_off=0, not_late=0, later_release=0, coincidence=0)
        self.idle: idle.CauseTotals = {}
        self.held, self.delayed = Named(), Named()
        for gaps, _ in _chunks(tables.idle_gap):
            self._count_idle(gaps)
        for candidates, packed in _chunks(tables.candidate):
            self._prove(candidates, packed)
        self.stalls.cut(self._kept)
        for late, _ in _chunks(tables.late_ack):
            self._count_late(late)
        self.sums = Sums(self.connections)

    def _count_idle(self, gaps: Columns) -> None:
        involved = Involved(self.connections, gaps["connection"])
        idle.add(self.idle, idle.causes(gaps, involved.reaction(gaps["side"]), involved.rows("client")))

    def _prove(self, candidates: Columns, packed: bytes) -> None:
        involved, side = Involved(self.connections, candidates["connection"]), candidates["side"]
        ends = involved.ends(side)
        proof = prove(candidates, ends)
        self.rejected.update({name: getattr(proof, name) for name in self.rejected})
        self._explain_idle(candidates["idle"], ends.peer_reaction, proof)
        rows = proof.stalls
        if not len(rows):
            return
        self._keep(packed, rows)
        wait = pick(candidates["wait"], rows)
        add_all(self.wait, wait)
        add_all(self.release, pick(candidates["release"], rows))
        add_all(self.ack_timer, each(_less, wait, pick(ends.peer_reaction, rows)))
        self.held.add(involved, side, rows)
        self.delayed.add(involved, each(lambda side: 1 - side, side), rows)
        _count_stalls(involved, pick(involved.of, rows), pick(candidates["exchange"], rows))

    def _keep(self, packed: bytes, rows: Column) -> None:
        size, last = self.stalls.layout.struct.size, len(rows) - 1
        if rows[last] == last:  # all of them so far
            self._kept = self.stalls.keep(self._kept, memoryview(packed)[: (last + 1) * size])
            return
        chosen_rows = b"".join(packed[row * size : (row + 1) * size] for row in map(int, rows))
        self._kept = self.stalls.keep(self._kept, chosen_rows)

    def _explain_idle(self, gaps: Column, peer_reaction: Column, proof: Proof) -> None:
        """The gaps before late ACKs that a proof explains."""
        for rows, cause in (
            (proof.stalls, idle.Cause.NAGLE_DELAYED_ACK),
            (proof.round_trips, idle.Cause.NAGLE_ROUND_TRIP),
        ):
            idle.add(self.idle, idle.explained(pick(gaps, rows), pick(peer_reaction, rows), cause))

    def _count_late(self, late: Columns) -> None:
        involved, side, wait = Involved(self.connections, late["connection"]), late["side"], late["wait"]
        reaction = involved.reaction(side)
        delayed = each(is_late, wait, reaction)
        early = each(lambda late, before: late & before, delayed, each(is_before_timer, wait, reaction))
        for name, kept in (("delayed_acks", delayed), ("early_acks", early)):
            for which in (0, 1):
                rows = where(each(lambda kept, side: kept & (side == which), kept, side))  # noqa: B023 - at once
                _increase(involved, (name, which), pick(involved.of, rows))


def _count_stalls(involved: Involved, connection: Column, exchange: Column) -> None:
    """Stalls and stalled exchanges of each connection; an unanswered exchange counts once it has stalled.

    The stalls are (n,); ``connection`` is which of those involved each belongs to.
    """
    _increase(involved, "stalls", connection)
    span = highest(exchange) + 1
    stalled = distinct(each(lambda connection, exchange: connection * span + exchange, connection, exchange))
    connection, exchange = each(lambda key: key // span, stalled), each(lambda key: key % span, stalled)
    before = involved.column("last_stalled")
    new = where(each(_differ, exchange, pick(before, connection)))  # not in the chunk before
    if not len(new):
        return
    connection, exchange = pick(connection, new), pick(exchange, new)
    _increase(involved, "stalled", connection)
    begins = where(each(_differ, connection, extended([-1], connection[:-1], [])))
    ends = where(each(_differ, connection, extended([], connection[1:], [-1])))
    involved.fill_in("last_stalled", replaced(before, pick(connection, ends), pick(exchange, ends)))
    first = involved.column("first_stalled")
    lowest_of = replaced(first, pick(connection, begins), pick(exchange, begins))
    involved.fill_in("first_stalled", each(lambda old, new: chosen(old < 0, new, old), first, lowest_of))
    open_ones, greeted = (pick(involved.column(name), connection) for name in ("open", "greeted"))
    unanswered = where(each(_is_unanswered, exchange, open_ones, greeted))
    connection, exchange = pick(connection, unanswered), pick(exchange, unanswered)
    _increase(involved, "answered", connection)
    _increase(involved, "repeat", pick(connection, where(each(lambda number: number > 0, exchange))))


def _increase(involved: Involved, name: Any, connections: Column) -> None:
    """Add one for each of those of the connections involved, which may repeat."""
    more = counts(connections, len(involved.numbers))
    involved.fill_in(name, each(lambda old, more: old + more, involved.column(name), more))


class Named:
    """The ends that held, or those that delayed: their roles, and which one it is where there is only one."""

    def __init__(self) -> None:
        self.roles: set[Role] = set()
        self.only: tuple[int, int] | None = None  # a connection and its side: the one end there is
        self._ends: set[int] = set()

    def add(self, involved: Involved, side: Column, rows: Column) -> None:
        """Add the sides of some ``rows`` of those (n,) whose connections are involved."""
        is_server = pick(each(_differ, side, involved.rows("client")), rows)
        servers = total(is_server)
        self.roles |= {"client"} if servers < len(rows) else set()
        self.roles |= {"server"} if servers else set()
        program, port = (pick(involved.of_side(name, side), rows) for name in ("program", "port"))
        ends = each(_end_number, program, port, is_server)
        self._ends |= {lowest(ends), highest(ends)}
        one = int(rows[0])
        self.only = (int(involved.numbers[involved.of[one]]), int(side[one])) if len(self._ends) == 1 else None

    @property
    def role(self) -> Roles | None:
        """The role all of them have; "both" when they differ; None when there are none."""
        return "both" if len(self.roles) > 1 else next(iter(self.roles), None)


class Sums:
    """Sums over the connections of a capture.

    Attributes
    ----------
    whole : by name
    by_role : by name and role, of what each side has its own
    round_trip : from the capture point to the ends of a role and back, where a handshake shows it
    """

    def __init__(self, connections: Table) -> None:
        self.whole = dict.fromkeys(("syns", "answered", "repeat", "stalls", "stalled"), 0)
        sided = ("packets", "segments", "payload", "wire", "delayed_acks", "fin_acks")
        self.by_role: dict[str, dict[Role, int]] = {name: dict.fromkeys(ROLES, 0) for name in sided}
        self.round_trip: dict[Role, Durations] = {role: Durations(100) for role in ROLES}
        for rows, _ in _chunks(connections):
            client = rows["client"]
            for name in self.whole:
                self.whole[name] += total(rows[name])
            for name in sided:
                for role, column in zip(ROLES, by_client(rows, name, client), strict=True):
                    self.by_role[name][role] += total(column)
            for role, reaction in zip(ROLES, by_client(rows, "reaction", client), strict=True):
                seen = where(each(lambda seen, reaction: (seen > 0) & (reaction > 0), rows["syns"], reaction))
                add_all(self.round_trip[role], pick(reaction, seen))


def by_client(rows: Columns, name: str, client: Column) -> tuple[Column, Column]:
    """What a column says of the clients (n,), and of the servers."""
    zero, one = rows[name, 0], rows[name, 1]
    of_clients = each(lambda client, zero, one: zero * (1 - client) + one * client, client, zero, one)
    of_servers = each(lambda client, zero, one: zero * client + one * (1 - client), client, zero, one)
    return of_clients, of_servers


def _chunks(table: Table) -> Iterator[tuple[Columns, bytes]]:
    for begin, end in table.chunks():
        packed = table.read(begin, end)
        yield Columns(table.layout, packed), packed


def _less(wait: Any, reaction: Any) -> Any:
    return wait - reaction


def _differ(one: Any, other: Any) -> Any:
    return one != other


def _end_number(program: Any, port: Any, is_server: Any) -> Any:
    return (program << 17) | (port << 1) | (is_server * 1)


def _is_unanswered(number: Any, open_number: Any, greeted: Any) -> Any:
    return (number == open_number) | ((greeted > 0) & (number == 0))
