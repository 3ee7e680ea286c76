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
    packets: NDArray[np.int64]  # (connections, 2) sent by each side
    segments: NDArray[np.int64]  # (connections, 2) the same, packets made by segmentation offload counted in parts
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

    def delayed_acks(self) -> dict[str, int]:
        """Delayed ACKs sent by each role."""
        late = self.late_acks
        kept = is_late(late.conn, late.side, late.wait, self.connections)
        return self._by_role(late.conn[kept], late.side[kept])

    def fin_acks(self) -> dict[str, int]:
        """ACKs of bare FINs that each role's timer sent, but did not delay."""
        return self._by_role(self.late_fin_acks.conn, self.late_fin_acks.side)

    def packets_sent(self) -> dict[str, int]:
        """Packets sent by each role: what the receiving kernel counts as InSegs."""
        return self._sent(self.packets)

    def segments_sent(self) -> dict[str, int]:
        """Segments sent by each role: what the sending kernel counts as OutSegs."""
        return self._sent(self.segments)

    def _sent(self, counts: NDArray[np.int64]) -> dict[str, int]:
        conn, side = np.nonzero(counts)
        return self._by_role(conn, side, counts[conn, side])

    def _by_role(self, conn: Ints, side: Ints, counts: Ints | None = None) -> dict[str, int]:
        is_server = (side != self.client[conn]).astype(np.int64)
        totals = np.bincount(is_server, weights=counts, minlength=2)
        return {role: int(total) for role, total in zip(ROLES, totals, strict=True)}


def _distinct(keys: Ints) -> Ints:
    """Each key once, sorted; np.unique hashes them first, which costs three times as much."""
    ordered = np.sort(keys)
    return ordered[np.flatnonzero(np.diff(ordered, prepend=-1))]
