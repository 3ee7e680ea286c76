"""Which connections are not judged: those not wanted, and those seen a second time, before or after NAT."""

from array import array
from collections.abc import Callable
from dataclasses import dataclass

from nagle_lab.diagnosis.observed.columns import (
    Column,
    Columns,
    as_column,
    chunks,
    distinct,
    listed,
    maximum,
    pick,
    rows_where,
    select,
)
from nagle_lab.diagnosis.observed.connection_columns import socket_address
from nagle_lab.tcp.events import MS
from nagle_lab.tcp.tables import Table

MAY_BE_RANDOM = 1 << 20  # from here on: if all begin at 0 (ns-3), a number is the bytes sent, which are usually fewer
CLOCKS_APART = 1_000 * MS  # the most by which clocks of hosts differ whose captures were merged
# Whether a connection is to be judged, by address and port of its client and of its server.
Wanted = Callable[[tuple[str, int], tuple[str, int]], bool]


@dataclass
class Unwanted:
    """How many connections were not wanted, and how many of these have their handshake in the capture."""

    connections: int = 0
    handshakes: int = 0


def leave_out_others(connections: Table, wanted: Wanted) -> Unwanted:
    """Mark connections that are not wanted: what they show about programs counts, what happens on them does not."""
    columns, unwanted = connections.layout.columns, Unwanted()
    for row in connections.rows():
        client = row[columns["client"]]
        if not wanted(socket_address(row, client), socket_address(row, 1 - client)):
            connections.fill_in(row[columns["number"]], "left_out", 1)
            unwanted.connections += 1
            unwanted.handshakes += 0 if row[columns["left_out"]] else row[columns["syns"]]
    return unwanted


def mark_seen_again(connections: Table) -> set[int]:
    """Mark, and return, connections that are another one seen elsewhere, before or after NAT, by sequence numbers.

    Each end chooses its 32 bits at random (RFC 9293 §3.4.1). Those of the SYNs are compared, or without SYNs those
    behind the last segments. The clocks of two hosts whose captures were merged may differ.
    """
    found = array("q")
    for rows in chunks(connections):
        numbers = _both_numbers(rows)
        found.extend(listed(pick(numbers, rows_where(numbers >= 0))))
    seen_again: set[int] = set()
    if len(distinct(as_column(found))) == len(found):
        return seen_again
    seen: dict[int, tuple[int, int]] = {}
    for rows in chunks(connections):
        both_numbers = listed(_both_numbers(rows))
        for number, at, both in zip(listed(rows["number"]), listed(rows["first_ts"]), both_numbers, strict=True):
            first, began = seen.setdefault(both, (number, at))
            if both >= 0 and number != first and abs(at - began) <= CLOCKS_APART:
                connections.fill_in(number, "left_out", 1)
                seen_again.add(number)
    return seen_again


def _both_numbers(rows: Columns) -> Column:
    """The sequence numbers of both sides in one number; -1 if one is missing, or they are not random (ns-3 begins at
    0).

    Without SYNs it is not known which side is the client: then the greater one comes first.
    """
    one, two = rows["syn", 0], rows["syn", 1]
    syns = select((one >= 0) & (two >= 0) & (one != two), (one << 31) ^ two, -1)
    one, two = rows["next_seq", 0], rows["next_seq", 1]
    greater = maximum(one, two)
    less = one + two - greater
    return select((rows["syns"] > 0) | (less < MAY_BE_RANDOM), syns, (greater << 31) ^ less)
