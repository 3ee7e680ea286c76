"""How far apart hosts are, by the handshakes of any of their connections: for those that began before the capture."""

from nagle_lab.diagnosis.observed.columns import chunks, rows_where
from nagle_lab.tcp.tables import Table

MOST_PATHS = 100_000  # that are remembered from one period to the next

Pair = tuple[bytes, bytes]  # the addresses of two hosts, the lesser first


class KnownPaths:
    """The longest round trip of any handshake between two hosts, ns, by their addresses.

    No reaction to a segment takes longer than that on their path alone, wherever it is captured.
    """

    def __init__(self) -> None:
        self._longest: dict[Pair, int] = {}

    def add(self, connections: Table) -> None:
        """Note the handshakes among these connections; they stand in place of what was known of the same hosts."""
        longest: dict[Pair, int] = {}
        size, (_, place) = connections.layout.struct.size, connections.layout.places["address"]
        for rows, packed in chunks(connections):
            handshakes = rows["handshake"]
            for row in map(int, rows_where(handshakes >= 0)):
                at = row * size + place
                pair = pair_of(packed[at : at + 32])
                longest[pair] = max(int(handshakes[row]), longest.get(pair, 0))
        self._longest |= longest
        if len(self._longest) > MOST_PATHS:
            self._longest = longest

    def between(self, addresses: bytes) -> int | None:
        """The round trip between two hosts, ns, given both addresses, 16 bytes each; None not known."""
        return self._longest.get(pair_of(addresses))


def pair_of(addresses: bytes) -> Pair:
    """The two hosts, given both addresses, 16 bytes each."""
    one, other = addresses[:16], addresses[16:]
    return (one, other) if one <= other else (other, one)
