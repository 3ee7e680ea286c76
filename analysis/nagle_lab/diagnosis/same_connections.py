"""Which connections of two captures are the same one, and which of the two is nearer to each end of it."""

from collections.abc import Container, Iterator, Sequence
from functools import cached_property
from typing import Any, NamedTuple

from nagle_lab.diagnosis.left_out import MAY_BE_RANDOM
from nagle_lab.diagnosis.observed.connection_columns import PackedEnd, packed_end
from nagle_lab.diagnosis.observed.enough import COMPARABLE
from nagle_lab.diagnosis.observed.observed import NEAR
from nagle_lab.diagnosis.proof.release_times import BLIND
from nagle_lab.tcp.events import DELAYED
from nagle_lab.tcp.layout import LAYOUTS
from nagle_lab.tcp.tables import Table, Tables

Row = Sequence[Any]
"""A row of a table, in the order of its layout."""

_CONNECTION = LAYOUTS["connection"].columns

# What the capture nearer to an end shows of that end: fields of ``connection`` for each side.
_OF_SIDE = (
    "fastest_ack", "ahead", "tsval_clock", "timestamp_step", "full_segment", "full_waits", "beside_unacked",
    "stale_echoes", "not_held", "first_not_held",
)  # fmt: skip

FEWER_ACKS = 0.5  # times as many: if a filter left out packets without data, there are hardly any

_HALF = 1 << 31  # of all sequence numbers: one that is this far behind another comes before it (RFC 9293 §3.4)


class Answers(NamedTuple):
    """How soon one side of a connection and its peer answer, ns."""

    side: int  # in the capture nearer to that side
    peer: int  # in the same capture
    side_elsewhere: int  # in the other capture


class SameConnection:
    """A connection that two captures have: its ``own`` row of the connection table, and that of the ``other`` one.

    Attributes
    ----------
    other_number : its number in the other capture
    are_swapped : 1 if side 0 of the own row is side 1 of the other one, else 0
    resolutions : of the clocks of both captures, also as this connection shows them, the own one first, ns
    """

    def __init__(self, own: Row, other: Row, are_swapped: bool, resolutions: tuple[int, int]) -> None:
        self._own, self._other = own, other
        self.are_swapped = int(are_swapped)
        self.other_number: int = other[_CONNECTION["number"]]
        clocks = zip(resolutions, (own, other), strict=True)
        self.resolutions = [max(resolution, row[_CONNECTION["clock_step"]]) for resolution, row in clocks]

    def both(self, name: str, side: int) -> tuple[int, int]:
        """The values of a field of that side in the own and the other row."""
        return self._own[_CONNECTION[name, side]], self._other[_CONNECTION[name, side ^ self.are_swapped]]

    @cached_property
    def is_usable(self) -> bool:
        """Whether each capture has both directions, and neither lacks the ACKs that the other one has."""
        return all(min(self.both("packets", side)) and not self._lacks_acks(side) for side in (0, 1))

    def _lacks_acks(self, side: int) -> bool:
        """Whether one capture has far fewer packets of that side without data, relative to its peer's bytes of data.

        Not to its packets with data: segmentation offload makes one of several, at one end only.
        """
        packets, data = self.both("packets", side), self.both("data_segments", side)
        received = self.both("payload", 1 - side)
        without_data = [packets[at] - data[at] for at in (0, 1)]
        shares = [without_data[at] / max(received[at], 1) for at in (0, 1)]
        return max(without_data) >= COMPARABLE and min(shares) < FEWER_ACKS * max(shares)

    @cached_property
    def is_ack_from_other(self) -> tuple[bool, bool]:
        """For each side of the own row, whether the other capture is nearer to it, because it answers
        sooner there.
        """
        return self._answers_sooner_there(0), self._answers_sooner_there(1)

    def _answers_sooner_there(self, side: int) -> bool:
        own, other = self.both("fastest_ack", side)
        return other >= 0 and not 0 <= own <= other

    @cached_property
    def is_other_nearer(self) -> tuple[bool, bool]:
        """The same for what depends on how soon a side sends: a clock that is too coarse for that is not used."""
        own, other = (resolution > BLIND for resolution in self.resolutions)
        return self.is_ack_from_other if own is other else (own, own)

    def fastest_ack_of(self, side: int) -> int:
        """The fastest acknowledgement of that side, ns, in the capture nearer to it: the way to that end and back.

        0 if perhaps only late ACKs show it, because the connection began before that capture.
        """
        nearer = int(self.is_ack_from_other[side])
        fastest = max(self.both("fastest_ack", side)[nearer], 0)
        has_syns = (self._own, self._other)[nearer][_CONNECTION["syns"]]
        return 0 if fastest >= DELAYED and not has_syns else fastest

    def answers(self, side: int) -> Answers:
        """How soon that side answers, and its peer."""
        nearer = int(self.is_other_nearer[side])
        its, peers = self.both("fastest_ack", side), self.both("fastest_ack", 1 - side)
        return Answers(its[nearer], peers[nearer], its[1 - nearer])

    @property
    def are_both_near(self) -> bool:
        """Whether each side is near one of the captures."""
        return all(self.merged[_CONNECTION["fastest_ack", side]] < NEAR for side in (0, 1))

    @property
    def are_apart(self) -> bool:
        """Whether the captures were taken at different places: each is nearer to one side."""
        return any(self.is_ack_from_other) and not all(self.is_ack_from_other)

    @cached_property
    def merged(self) -> list[Any]:
        """The own row, with what the other shows of ends nearer to it; frames in that are the other capture's."""
        row = list(self._own)
        for side in (0, 1):
            if self.is_other_nearer[side]:
                for name in _OF_SIDE:
                    row[_CONNECTION[name, side]] = self._other[_CONNECTION[name, side ^ self.are_swapped]]
        for name in ("syns", "handshake"):
            row[_CONNECTION[name]] = max(self._own[_CONNECTION[name]], self._other[_CONNECTION[name]])
        return row

    def seq_here(self, side: int, seq: int) -> int:
        """The own sequence number for one of that side in the other capture: a firewall may have changed them."""
        own, other = self.both("syn", side)
        return (seq + own - other) % (1 << 32) if own >= 0 and other >= 0 else seq

    def is_shown_there(self, side: int, seq: int) -> bool:
        """Whether the other capture has that side from its SYN to beyond this own sequence number."""
        _, begins = self.both("syn", side)
        _, ends = self.both("next_seq", side)
        return begins >= 0 and 0 < (self.seq_here(side, ends) - seq) % (1 << 32) < _HALF


def pair_connections(own: Tables, other: Tables, resolutions: tuple[int, int]) -> dict[int, SameConnection]:
    """The connections that both have, by their own numbers; ``resolutions`` are those of both clocks, ns.

    They are known by the sequence numbers with which their sides begin or end, which are random: of one side if the
    addresses are the same, of both if addresses were translated in between. Otherwise by those of data in the middle.
    """
    pairs: dict[int, SameConnection] = {}
    for keys_of in (_ends_of_streams, _releases):
        paired_there = {pair.other_number for pair in pairs.values()}
        there = {one.key: one for one in keys_of(other, paired_there)}
        for key, number, side in keys_of(own, pairs):
            if number not in pairs and (same := there.get(key)):
                rows = own.connection.row(number), other.connection.row(same.number)
                pairs[number] = SameConnection(*rows, side != same.side, resolutions)
    return pairs


def have_common_ends(one: Table, two: Table) -> bool:
    """Whether any connection of both is between the same ends: it may be the same one, or a later one."""
    return not {ends_of(row) for row in one.rows()}.isdisjoint(ends_of(row) for row in two.rows())


def ends_of(row: Row) -> frozenset[PackedEnd]:
    """Both ends of a connection, whichever side they are."""
    return frozenset((packed_end(row, 0), packed_end(row, 1)))


class _Keyed(NamedTuple):
    """A connection and a key that it has in each capture, with the same side of it."""

    key: Any
    number: int  # of the connection
    side: int


def _ends_of_streams(tables: Tables, paired: Container[int]) -> Iterator[_Keyed]:
    """Keys of each connection that is not ``paired``: the number with which a side begins or ends, with address and
    port of both; or those of both sides alone.
    """
    for number, row in _but(paired, tables.connection):
        ends = ends_of(row)
        for name in ("syn", "next_seq"):
            both = row[_CONNECTION[name, 0]], row[_CONNECTION[name, 1]]
            for side in (0, 1):
                if both[side] >= 0:
                    yield _Keyed((name, both[side], packed_end(row, side), ends), number, side)
            if min(both) >= MAY_BE_RANDOM and both[0] != both[1]:
                yield _Keyed((name, frozenset(both)), number, both.index(min(both)))


def _releases(tables: Tables, paired: Container[int]) -> Iterator[_Keyed]:
    """Other keys: the sequence number of small data that followed other data, with address and port of both."""
    connections = {number: (row, ends_of(row)) for number, row in _but(paired, tables.connection)}
    for table in (tables.candidate, tables.no_wait) if connections else ():
        connection, side, release = (table.layout.columns[name] for name in ("connection", "side", "release_seq"))
        for row in table.rows():
            if row[connection] in connections:
                of_connection, ends = connections[row[connection]]
                key = row[release], packed_end(of_connection, row[side]), ends
                yield _Keyed(key, row[connection], row[side])


def _but(paired: Container[int], connections: Table) -> Iterator[tuple[int, Row]]:
    """Those that are not ``paired``, with their numbers."""
    numbered = ((row[_CONNECTION["number"]], row) for row in connections.rows())
    return ((number, row) for number, row in numbered if number not in paired)
