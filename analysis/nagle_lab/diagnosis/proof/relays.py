"""Relays: a release that only passes on what another stall's release has just brought to its host was not held.

The ACK timers on both sides of a relay fire in the same tick, so the relay's own connection shows trigger, late ACK
and release, too. Where both connections are captured, the data is seen to arrive at the relay just before, whether
that is before the ACK or after it. docs/proof.md, rule 6.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Sequence
from typing import NamedTuple

from nagle_lab.diagnosis.observed.columns import Column, Columns, among, lowest, percentile, pick, rows_where
from nagle_lab.diagnosis.observed.connection_columns import Involved, PackedEnd, packed_end
from nagle_lab.diagnosis.observed.enough import MOST_LOOKED_AT, NEARLY_ALL, REPEATED
from nagle_lab.diagnosis.proof.outcomes import Accepted, Ground, Judged, Obstacle, PassedOn
from nagle_lab.diagnosis.proof.pauses import is_more_than_chance
from nagle_lab.diagnosis.proof.release_times import FINE
from nagle_lab.tcp.events import US

PASSED_ON = 300 * US  # by then a program that waits for data has read it, and written
SOONEST = 20 * US  # no sooner: a woken thread takes 25 µs and more, a kernel on connections in step less than 20
BETWEEN_TICKS = 2_500 * US  # that long before is between two ticks (HZ=100, 250, 1000): what comes then is chance
MOST_ROUTES = 10  # connections of a program whose ends are looked at
MOST_STALLING = 50  # programs that stall: with more, relays between networks are not looked for
MOST_EACH = 3  # segments for each stall, at most: if a connection has more, one follows any ACK by chance
MOSTLY = 0.5  # share of the releases right behind such data: if connections are in step some are by chance


class _Route(NamedTuple):
    """From which address to which stalls were sent, and the server of those connections."""

    sender: bytes
    receiver: bytes
    server: PackedEnd


def reject_relayed(candidates: Columns, involved: Involved, judged: Judged, resolution: int) -> None:
    """Reject the stalls, and the unresolved candidates, of programs that pass on what other stalls released.

    The capture's clock has that ``resolution``, ns.
    """
    open_ones = judged.left_open(Obstacle.LIKE_A_PROGRAM)
    if not judged.accepted or len(judged.accepted) + len(open_ones) < 2:
        return  # it takes one program that holds, and another that passes on
    brought = _Brought(candidates, involved, judged.accepted, SOONEST if resolution <= FINE else 0)
    for one in tuple(judged.accepted):
        passed = brought.passed_on(one.rows, MOST_LOOKED_AT)
        if len(passed) > MOSTLY * min(len(one.rows), MOST_LOOKED_AT):
            judged.resolve_as_relayed(one.rows, passed)
        elif len(passed) >= REPEATED:
            passed = brought.passed_on(one.rows, len(one.rows))
            if REPEATED <= len(passed) < len(one.rows) and _are_later(passed, one.rows, candidates["ack_to_release"]):
                judged.take_back_some(one, passed)
    for rows in open_ones:
        passed = brought.passed_on(rows, MOST_LOOKED_AT)
        if len(passed) > MOSTLY * min(len(rows), MOST_LOOKED_AT):
            judged.resolve_as_relayed(rows, passed)


def _are_later(passed: Collection[int], rows: Column, ack_to_release: Column) -> bool:
    """Whether those that may pass on data came later after their ACK than nearly all of the others, which
    were held.
    """
    is_passed = among(rows, sorted(passed))
    later, sooner = (pick(ack_to_release, pick(rows, rows_where(is_passed == value))) for value in (1, 0))
    return lowest(later) > percentile(sooner, 90)


def leave_open_asked_elsewhere(candidates: Columns, involved: Involved, judged: Judged) -> None:
    """Leave stalls open that were captured away from the sender, if another connection may have asked for their data.

    That is so if a segment of that connection, such as a control connection, went to the sender's host behind nearly
    every late ACK, and hardly anything else passed on it. Connections that stall themselves do not count: they are in
    step by chance.
    """
    segments = involved.table.layout.columns["data_segments", 0]
    stalling = {number for one in judged.accepted for number in _connections(one.rows[:MOST_LOOKED_AT], candidates)}
    for one in tuple(judged.accepted):
        if one.ground is not Ground.REPETITION_ON_PATH:
            continue
        rows = one.rows[:MOST_LOOKED_AT]
        arrivals = [int(number) for number in pick(candidates["arrival"], rows)]
        behind = [number for number in arrivals if number >= 0 and number not in stalling]
        passed = sum(max(involved.table.row(number)[segments : segments + 2]) for number in set(behind))
        if len(behind) <= NEARLY_ALL * len(rows) or passed > MOST_EACH * len(one.rows):
            continue
        judged.take_back_as_open(one, Obstacle.OWN_PACE)
        own = _connections(rows, candidates)
        for other in tuple(judged.accepted):  # proved only by being like these stalls
            if other.ground is Ground.TIMESTAMPS and own.issuperset(_connections(other.rows, candidates)):
                judged.take_back_as_open(other, Obstacle.OWN_PACE)


def _connections(rows: Column, candidates: Columns) -> set[int]:
    return {int(number) for number in pick(candidates["connection"], rows)}


class _Brought:
    """Which stalls' releases brought data to which hosts."""

    def __init__(self, candidates: Columns, involved: Involved, accepted: Sequence[Accepted], soonest: int) -> None:
        self._candidates, self._involved, self._soonest = candidates, involved, soonest
        # By the id of their rows: a column cannot be a key.
        self._routes = {id(one.rows): _routes(one.rows, candidates, involved) for one in accepted}
        self._to: dict[bytes, list[Column]] = {}  # the rows that brought data to an address
        for one in accepted:
            for address in {route.receiver for route in self._routes[id(one.rows)]}:
                self._to.setdefault(address, []).append(one.rows)
        self._all = [one.rows for one in accepted] if len(accepted) <= MOST_STALLING else []
        self._on_loopback = [one.rows for one in accepted if _is_one_address(self._routes[id(one.rows)])]

    def passed_on(self, rows: Column, most: int) -> dict[int, PassedOn]:
        """Which of the first ``most`` rows pass on data."""
        its_own = self._routes.get(id(rows)) or _routes(rows, self._candidates, self._involved)
        near = [*self._on_loopback, *(other for route in its_own for other in self._to.get(route.sender, ()))]
        passed = self._between_networks(rows[:most], its_own)
        for other in {id(other): other for other in near}.values():
            theirs = self._routes[id(other)]
            if {route.server for route in theirs} != {route.server for route in its_own}:
                is_one_here, is_one_there = _is_one_address(its_own), _is_one_address(theirs)
                soonest = self._soonest if is_one_here and is_one_there else 0
                is_either_way = is_one_here or is_one_there
                passed |= _behind(rows[:most], other, self._candidates, soonest, is_either_way=is_either_way)
        return passed

    def _between_networks(self, rows: Column, its_own: set[_Route]) -> dict[int, PassedOn]:
        """As :meth:`passed_on`, for a relay with an address in each of two networks: nearly all rows must pass on
        data.

        Nothing shows that both addresses are its own. But the connections have no address in common. If the rows
        carry replies, their connections are the client's, which are seen first; if requests, the origin's, which are
        seen last.
        """
        ends, carries_replies = _addresses(its_own), _carry_replies(its_own)
        first = lowest(pick(self._candidates["connection"], rows))
        for others in self._all:
            theirs = self._routes[id(others)]
            is_first = first < lowest(pick(self._candidates["connection"], others))
            are_one_way = _carry_replies(theirs) == carries_replies and carries_replies == {is_first}
            if are_one_way and ends.isdisjoint(_addresses(theirs)):
                found = _behind(rows, others, self._candidates, SOONEST, is_either_way=True)
                if len(found) > NEARLY_ALL * len(rows):
                    return found
        return {}


def _addresses(routes: set[_Route]) -> set[bytes]:
    return {address for route in routes for address in (route.sender, route.receiver)}


def _carry_replies(routes: set[_Route]) -> set[bool]:
    """Whether servers send on these routes; True and False if only some do."""
    return {route.sender == route.server[0] for route in routes}


def _behind(
    one: Column, other: Column, candidates: Columns, soonest: int, *, is_either_way: bool
) -> dict[int, PassedOn]:
    """The rows of ``one`` whose release came just behind a release of ``other``, with their connections.

    None if it is often the other way round, too, and addresses do not show which brings what (``is_either_way``):
    then they are in step by chance. None either if half as many would come just behind one between the ticks of the
    kernel's timers, when nothing is passed on: then there are so many releases that this is chance.
    """
    connection, at = candidates["connection"], candidates["at"]
    others = other[: bisect_right(other, int(one[-1])) + 1]
    times = [int(ts) for ts in pick(at, others)]  # in order, as their releases are
    found: dict[int, PassedOn] = {}
    ahead = by_chance = 0
    for row in map(int, one):
        ts = int(at[row])
        place = bisect_left(times, ts - soonest)
        if place and ts - times[place - 1] <= PASSED_ON:
            found[row] = PassedOn(int(connection[row]), int(connection[int(others[place - 1])]))
        place = bisect_left(times, ts - BETWEEN_TICKS - soonest)
        if place and ts - BETWEEN_TICKS - times[place - 1] <= PASSED_ON:
            by_chance += 1
        place = bisect_left(times, ts)
        if place < len(times) and times[place] - ts <= PASSED_ON:
            ahead += 1
    if 2 * by_chance > len(found) or not is_more_than_chance(len(found), by_chance):
        return {}
    return {} if is_either_way and 2 * ahead > len(found) else found


def _routes(rows: Column, candidates: Columns, involved: Involved) -> set[_Route]:
    table, connection, side = involved.table, candidates["connection"], candidates["side"]
    columns = table.layout.columns
    connections = {int(connection[row]): int(side[row]) for row in map(int, rows[:MOST_LOOKED_AT])}
    routes = set()
    for number, sender in list(connections.items())[:MOST_ROUTES]:
        row = table.row(number)
        (from_, _), (to, _) = packed_end(row, sender), packed_end(row, 1 - sender)
        routes.add(_Route(from_, to, packed_end(row, 1 - row[columns["client"]])))
    return routes


def _is_one_address(routes: set[_Route]) -> bool:
    """Whether any of the data arrives at the address that it is sent from, as on loopback."""
    return any(route.sender == route.receiver for route in routes)
