"""Proved stalls and measured exchanges of a whole capture, and the counts drawn from them."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from nagle_lab.connections import Connections
from nagle_lab.exchanges import Exchanges, key_of
from nagle_lab.silences import Silences
from nagle_lab.stalls import LateAcks, Proof, is_late
from nagle_lab.timeline import Ints

ROLES = ("client", "server")


@dataclass(frozen=True)
class Findings:
    """What a whole capture shows, as columns; times in ns."""

    connections: Connections
    exchanges: Exchanges
    proof: Proof
    late_acks: LateAcks
    late_fin_acks: LateAcks
    silences: Silences
    tcp_packets: int
    first_ts: int | None
    last_ts: int

    @cached_property
    def client(self) -> NDArray[np.int8]:
        """Which side of each connection is the client, (connections,)."""
        return self.connections.client_side()

    @cached_property
    def stalled(self) -> Ints:
        """Keys of the stalled exchanges, sorted."""
        return _distinct(key_of(self.proof.stalls.conn, self.proof.stalls.exchange))

    @cached_property
    def counted(self) -> Ints:
        """Keys of the exchanges that count, sorted: the answered ones, and stalled ones whose answer is cut off."""
        return _distinct(np.concatenate([self.exchanges.key, self.stalled]))

    @cached_property
    def delayed_acks(self) -> Ints:
        """Delayed ACKs sent by each side, (connections, 2)."""
        late = self.late_acks
        return self._count(late, is_late(late.conn, late.side, late.wait, self.connections))

    @cached_property
    def fin_acks(self) -> Ints:
        """ACKs of bare FINs that each side's timer sent, but did not delay, (connections, 2)."""
        return self._count(self.late_fin_acks, np.ones(len(self.late_fin_acks.conn), np.bool_))

    def by_role(self, counts: Ints) -> dict[str, int]:
        """Sums of a count per side, (connections, 2), over the sides of each role."""
        conn = np.arange(len(self.client))
        sides = (self.client, 1 - self.client)
        return {role: int(counts[conn, side].sum()) for role, side in zip(ROLES, sides, strict=True)}

    def _count(self, acks: LateAcks, kept: NDArray[np.bool_]) -> Ints:
        count = self.connections.count
        half = 2 * acks.conn[kept].astype(np.int64) + acks.side[kept]
        return np.bincount(half, minlength=2 * count).reshape(count, 2)


def _distinct(keys: Ints) -> Ints:
    """Each key once, sorted; np.unique hashes them first, which costs three times as much."""
    ordered = np.sort(keys)
    return ordered[np.flatnonzero(np.diff(ordered, prepend=-1))]
