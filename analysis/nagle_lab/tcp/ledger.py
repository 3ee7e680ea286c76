"""The ledger: what is left of every connection once it is over, one row each, numbered in order of appearance.

Its first columns are written when the connection is put away, the others when the stalls are proved.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nagle_lab.tcp.columns import Ints, ranked
from nagle_lab.tcp.connections import NO_REACTION, Connections
from nagle_lab.tcp.shelf import Shelf

ENTRY = np.dtype(
    [
        ("hi", "u8", 2), ("lo", "u8", 2), ("port", "u2", 2), ("first_frame", "i8"), ("size", "i4"), ("client", "i1"),
        ("handshake", "?"), ("packets", "i8", 2), ("segments", "i8", 2), ("payload", "i8", 2), ("wire", "i8", 2),
        ("reaction", "i8", 2),  # ns, each side's fastest; 0 unknown
        ("nagle_off", "i4", 2),  # how often that side put a small segment behind an unacknowledged small one
        ("fin_acks", "i4", 2),
        ("answered", "i4"),  # exchanges with request and answer
        ("repeat", "i4"),  # those of them that follow another
        ("greeted", "?"),  # exchange 0 has no request: the server spoke first
        ("open", "i4"),  # number of the exchange without an answer; -1 none
        ("delayed_acks", "i4", 2),
        ("early_acks", "i4", 2),  # of the delayed ones, those too early for a timer
        ("stalls", "i4"), ("stalled", "i4"),
        ("first_stalled", "i4"), ("last_stalled", "i4"),
    ]
)  # fmt: skip


@dataclass(frozen=True)
class Known:
    """What the ledger says of the connection of each of n rows: each connection's entry once, and which is whose."""

    numbers: Ints  # of the connections, sorted
    entries: NDArray[np.void]  # theirs
    of: Ints  # (n,) index of each row's own

    def column(self, name: str) -> NDArray[Any]:
        """A column (n,)."""
        return np.asarray(np.ascontiguousarray(self.entries[name])[self.of])

    def side(self, name: str, side: NDArray[np.int8]) -> NDArray[Any]:
        """A column of ``side`` (n,), where each side has its own."""
        column = self.entries[name].ravel()  # contiguous: gathering from wide entries takes twice as long
        return np.asarray(column[2 * self.of + side])

    def where(self, rows: Ints) -> "Known":
        """For those rows only."""
        return Known(self.numbers, self.entries, self.of[rows])


class Ledger(Shelf):
    """Rows of :data:`ENTRY`."""

    def __init__(self) -> None:
        super().__init__(ENTRY, in_memory=8 << 20)

    def of(self, connections: Ints) -> Known:
        """What is known of those connections (n,)."""
        numbers, of = ranked(np.ascontiguousarray(connections))
        return Known(numbers, self.take(numbers), of)


def entries(connections: Connections, places: Ints) -> NDArray[np.void]:
    """The entries of connections as they are in memory now, without what other stages know of them."""
    f = connections.facts
    entry = np.zeros(len(places), ENTRY)
    for name in ("hi", "lo", "port", "first_frame", "size", "packets", "segments", "payload", "wire"):
        entry[name] = getattr(f, name)[places]
    entry["client"] = connections.client_side(places)
    entry["handshake"] = connections.handshakes(places)
    reaction = f.reaction[places]
    entry["reaction"] = np.where(reaction == NO_REACTION, 0, reaction)
    entry["first_stalled"] = entry["last_stalled"] = -1
    return entry
