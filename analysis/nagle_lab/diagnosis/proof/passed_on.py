"""Across connections: a release that only passes on what another stall's release has just brought was not held.

The ACK timers on both sides of a relay fire in the same tick, so its own connection shows trigger, late ACK and
release, too. Where both connections are in view, that the data arrived at that very host just before tells, whether
it came before the ACK or after.
"""

from bisect import bisect_left, bisect_right
from collections import Counter
from typing import NamedTuple

from nagle_lab.diagnosis.proof.connections import Involved
from nagle_lab.diagnosis.proof.judged import Accepted, Judged
from nagle_lab.diagnosis.proof.population import Columns, pick
from nagle_lab.diagnosis.proof.timing import MANY, MOST_LOOKED_AT, US

PASSED_ON = 300 * US  # a program that waits for data has read it, and written, by then
MOSTLY = 0.5  # of the releases come so soon behind such data; some do by chance, where connections are in step


class _Way(NamedTuple):
    """From which address stalls were sent to which, and of which server that is a connection: address and port."""

    sender: bytes
    receiver: bytes
    server: tuple[bytes, int]


def set_aside_passed_on(candidates: Columns, involved: Involved, judged: Judged) -> None:
    """Take back the stalls of programs that are seen to pass on what others had held."""
    if len(judged.accepted) < 2:  # where it is held, and where it is passed on
        return
    ways = {id(one): _ways(one, candidates, involved) for one in judged.accepted}
    bringing: dict[bytes, list[Accepted]] = {}  # to an address
    for one in judged.accepted:
        for address in {way.receiver for way in ways[id(one)]}:
            bringing.setdefault(address, []).append(one)
    on_loopback = [one for one in judged.accepted if _is_on_loopback(ways[id(one)])]  # at the host of all nearby
    for one in tuple(judged.accepted):
        its_own = ways[id(one)]
        sources: Counter[tuple[int, int]] = Counter()
        near = [*on_loopback, *(other for way in its_own for other in bringing.get(way.sender, ()))]
        for other in {id(other): other for other in near}.values():
            theirs = ways[id(other)]
            if {way.server for way in theirs} != {way.server for way in its_own}:
                sources += _sources(one, other, candidates, _is_on_loopback(its_own | theirs))
        if sources.total() > MOSTLY * min(len(one.rows), MOST_LOOKED_AT):
            judged.take_back(one, sources)


def _sources(
    one: Accepted, other: Accepted, candidates: Columns, is_either_way: bool
) -> Counter[tuple[int, int]]:  # fmt: skip
    """How often a release of the one came just behind one of the other, by their connections.

    None where addresses do not tell which of them brings what (``is_either_way``), and it is often the other way
    round, too: then they are in step by chance.
    """
    connection, at = candidates["connection"], candidates["at"]
    looked_at = one.rows[:MOST_LOOKED_AT]
    others = other.rows[: bisect_right(other.rows, int(looked_at[-1])) + 1]  # in order, as their releases are
    times = [int(ts) for ts in pick(at, others)]
    behind: Counter[tuple[int, int]] = Counter()
    ahead = 0
    for row in map(int, looked_at):
        ts = int(at[row])
        place = bisect_left(times, ts)
        if place and ts - times[place - 1] <= PASSED_ON:
            behind[int(connection[row]), int(connection[int(others[place - 1])])] += 1
        ahead += place < len(times) and times[place] - ts <= PASSED_ON
    return Counter() if is_either_way and 2 * ahead > behind.total() else behind


def _ways(one: Accepted, candidates: Columns, involved: Involved) -> set[_Way]:
    table, connection, side = involved.table, candidates["connection"], candidates["side"]
    columns = table.layout.columns
    connections = {int(connection[row]): int(side[row]) for row in map(int, one.rows[:MOST_LOOKED_AT])}
    ways = set()
    for number, sender in list(connections.items())[:MANY]:
        row = table.row(number)
        addresses = row[columns["address"]][:16], row[columns["address"]][16:]
        server = 1 - row[columns["client"]]
        ways.add(
            _Way(addresses[sender], addresses[1 - sender], (addresses[server], row[columns["port", server]]))
        )  # fmt: skip
    return ways


def _is_on_loopback(ways: set[_Way]) -> bool:
    return any(way.sender == way.receiver for way in ways)
