"""Sums over the connections of a capture."""

from typing import NamedTuple

from nagle_lab.diagnosis.ends import ROLES
from nagle_lab.diagnosis.observed.columns import (
    Column,
    Columns,
    add_all,
    chunks,
    highest,
    pick,
    rows_where,
    select,
    total,
)
from nagle_lab.diagnosis.result.result import Role
from nagle_lab.tcp.durations import Durations
from nagle_lab.tcp.tables import Table


class Sums:
    """Sums over the connections of a capture.

    Attributes
    ----------
    whole : by name; a connection that is seen twice counts once, one that is not wanted does not
    mostly_open : undecided candidates of the connections on which they outnumber the other exchanges
    refused : connections whose SYN was answered without a SYN, as by a port where nobody listens (RFC 9293 §3.5.2)
    both_ways : connections of which both ends are seen to send
    not_held : small segments sent behind unacknowledged small ones, on these connections
    by_role : by name and role, what each side has for itself; packets and bytes of all connections, late ACKs as
        ``whole``
    round_trip : from the capture point to the ends of a role and back, if a handshake shows it
    """

    def __init__(self, connections: Table) -> None:
        self.whole = dict.fromkeys(("syns", "exchanges", "repeat_exchanges", "stalls", "stalled_exchanges"), 0)
        self.mostly_open = self.refused = self.both_ways = self.not_held = 0
        sided = ("packets", "segments", "payload", "wire", "delayed_acks", "fin_acks")
        self.by_role: dict[str, dict[Role, int]] = {name: dict.fromkeys(ROLES, 0) for name in sided}
        self.round_trip: dict[Role, Durations] = {role: Durations(100) for role in ROLES}
        for rows in chunks(connections):
            client, is_judged = rows["client"], 1 - rows["left_out"]
            for name in self.whole:
                self.whole[name] += total(rows[name] * is_judged)
            unresolved = rows["unresolved"] * is_judged
            self.mostly_open += total(unresolved * (2 * unresolved > rows["exchanges"]))
            is_refused = (rows["syn", 0] >= 0) & (rows["syn", 1] < 0) & (rows["packets", 1] > 0)
            is_refused &= rows["payload", 0] + rows["payload", 1] == 0
            self.refused += total(is_refused * is_judged)
            both_ways = (rows["packets", 0] > 0) & (rows["packets", 1] > 0)
            self.both_ways += total(both_ways)
            self.not_held += sum(total(rows["not_held", side] * both_ways * is_judged) for side in (0, 1))
            for name in sided:
                for role, column in zip(ROLES, _by_client(rows, name, client), strict=True):
                    its = column * is_judged if name in ("delayed_acks", "fin_acks") else column
                    self.by_role[name][role] += total(its)
            for role, fastest_ack in zip(ROLES, _by_client(rows, "fastest_ack", client), strict=True):
                seen = rows_where((rows["syns"] > 0) & (fastest_ack > 0))
                add_all(self.round_trip[role], pick(fastest_ack, seen))


def _by_client(rows: Columns, name: str, client: Column) -> tuple[Column, Column]:
    """What a column says of the clients (n,), and of the servers."""
    zero, one = rows[name, 0], rows[name, 1]
    of_clients = select(client, one, zero)
    of_servers = select(client, zero, one)
    return of_clients, of_servers


class Astray(NamedTuple):
    """Data segments that the capture lacks, or has only after their ACKs."""

    sent: int  # all of them
    lost: int = 0
    swapped: int = 0  # captured after their ACKs
    swapped_without_timestamps: int = 0  # of the swapped ones; timestamps would show what had arrived

    @property
    def share(self) -> float:
        """The share of data segments that were lost or swapped."""
        return (self.lost + self.swapped) / max(self.sent, 1)

    @property
    def swapped_share(self) -> float:
        """The share captured after their ACKs."""
        return self.swapped / max(self.sent, 1)


def count_astray(connections: Table) -> Astray:
    """How many data segments the capture lacks, or has only after their ACKs."""
    sent = lost = swapped = without_timestamps = 0
    for rows in chunks(connections):
        for side in (0, 1):
            sent += total(rows["data_segments", side])
            lost += total(rows["lost", side])
            swapped += total(rows["swapped", side])
            without_timestamps += total(rows["swapped", side] * (rows["tsval_clock", side] < 0))
    return Astray(sent, lost, swapped, without_timestamps)


def largest_clock_step(connections: Table) -> int:
    """The largest step, ns, of a clock that the packets of a connection show to be coarse; 0 if none is."""
    return max((highest(rows["clock_step"]) for rows in chunks(connections)), default=0)
