"""Which connections of two captures are the same one, and which of the two is nearer to each end of it."""

from collections.abc import Container, Iterator, Sequence
from functools import cached_property
from typing import Any

from nagle_lab.diagnosis.left_out import MAY_BE_RANDOM
from nagle_lab.diagnosis.observed.connection_columns import PackedEnd, packed_end
from nagle_lab.diagnosis.observed.observed import NEAR
from nagle_lab.tcp.layout import LAYOUTS
from nagle_lab.tcp.tables import Table, Tables

Row = Sequence[Any]
"""A row of a table, in the order of its layout."""

_CONNECTION, _CANDIDATE = LAYOUTS["connection"].columns, LAYOUTS["candidate"].columns

# What the capture nearer to an end shows of it: fields of ``connection`` for each side.
_OF_SIDE = (
    "fastest_ack", "ahead", "tsval_clock", "timestamp_step", "full_segment", "full_waits", "beside_unacked",
    "stale_echoes",
)  # fmt: skip

_HALF = 1 << 31  # of all sequence numbers: what is so much behind another one comes before it (RFC 9293 §3.4)


class SameConnection:
    """A connection that two captures have: its ``own`` row of the connection table, and that of the ``other`` one.

    Attributes
    ----------
    other_number : its number in the other capture
    are_swapped : 1 where side 0 of the own row is side 1 of the other one, else 0
    """

    def __init__(self, own: Row, other: Row, are_swapped: bool) -> None:
        self._own, self._other = own, other
        self.are_swapped = int(are_swapped)
        self.other_number: int = other[_CONNECTION["number"]]

    @cached_property
    def is_other_nearer(self) -> tuple[bool, bool]:
        """For each side of the own row, whether the other capture is nearer to it: there it answers sooner."""
        one, two = (self._is_other_nearer(side) for side in (0, 1))
        return one, two

    def _is_other_nearer(self, side: int) -> bool:
        own = self._own[_CONNECTION["fastest_ack", side]]
        other = self._other[_CONNECTION["fastest_ack", side ^ self.are_swapped]]
        return bool(other >= 0 and not 0 <= own <= other)

    def answers(self, side: int) -> tuple[int, int, int]:
        """How soon that side and its peer answer in the capture nearer to the side, and the side in the other; ns."""
        both = (self._own, side), (self._other, side ^ self.are_swapped)
        (near, at), (far, there) = reversed(both) if self.is_other_nearer[side] else both
        return (
            near[_CONNECTION["fastest_ack", at]],
            near[_CONNECTION["fastest_ack", 1 - at]],
            far[_CONNECTION["fastest_ack", there]],
        )

    @property
    def are_both_near(self) -> bool:
        """Whether each side is near one of the captures."""
        return all(self.merged[_CONNECTION["fastest_ack", side]] < NEAR for side in (0, 1))

    @cached_property
    def merged(self) -> list[Any]:
        """The own row, with what the other one shows of the ends nearer to that."""
        row = list(self._own)
        for side in (0, 1):
            if self.is_other_nearer[side]:
                for name in _OF_SIDE:
                    row[_CONNECTION[name, side]] = self._other[_CONNECTION[name, side ^ self.are_swapped]]
        for name in ("syns", "handshake"):
            row[_CONNECTION[name]] = max(self._own[_CONNECTION[name]], self._other[_CONNECTION[name]])
        return row

    def is_shown_there(self, side: int, seq: int) -> bool:
        """Whether the other capture has that side from its SYN to beyond this sequence number."""
        of_other = side ^ self.are_swapped
        behind = (self._other[_CONNECTION["next_seq", of_other]] - seq) % (1 << 32)
        return bool(self._other[_CONNECTION["syn", of_other]] >= 0 and 0 < behind < _HALF)


def pair_connections(own: Tables, other: Tables) -> dict[int, SameConnection]:
    """The connections that both have, by their own numbers.

    They are known by the sequence numbers with which their sides begin or end, which are random: of one side if the
    addresses are the same, of both where addresses were translated in between. Else by those of a candidate.
    """
    pairs: dict[int, SameConnection] = {}
    for keys_of in (_ends_of_streams, _candidates):
        paired_there = {pair.other_number for pair in pairs.values()}
        there = {key: found for key, *found in keys_of(other, paired_there)}
        for key, number, side in keys_of(own, pairs):
            if number not in pairs and key in there:
                its_number, its_side = there[key]
                rows = own.connection.row(number), other.connection.row(its_number)
                pairs[number] = SameConnection(*rows, are_swapped=side != its_side)
    return pairs


def ends_of(row: Row) -> frozenset[PackedEnd]:
    """Both ends of a connection, whichever side they are."""
    return frozenset((packed_end(row, 0), packed_end(row, 1)))


def _ends_of_streams(tables: Tables, paired: Container[int]) -> Iterator[tuple[Any, int, int]]:
    """Keys of each connection but those ``paired``, its number, and a side of it: the same one in each capture.

    The numbers with which a side begins or ends, with the address and port of both; and those of both sides alone.
    """
    for number, row in _but(paired, tables.connection):
        ends = ends_of(row)
        for name in ("syn", "next_seq"):
            both = row[_CONNECTION[name, 0]], row[_CONNECTION[name, 1]]
            for side in (0, 1):
                if both[side] >= 0:
                    yield (name, both[side], packed_end(row, side), ends), number, side
            if min(both) >= MAY_BE_RANDOM and both[0] != both[1]:
                yield (name, frozenset(both)), number, both.index(min(both))


def _candidates(tables: Tables, paired: Container[int]) -> Iterator[tuple[Any, int, int]]:
    """The same of connections with candidates: the sequence numbers of each, with the address and port of both."""
    connections = {number: (row, ends_of(row)) for number, row in _but(paired, tables.connection)}
    for row in tables.candidate.rows() if connections else ():
        number, side = row[_CANDIDATE["connection"]], row[_CANDIDATE["side"]]
        if number in connections:
            connection, ends = connections[number]
            seqs = row[_CANDIDATE["trigger_end"]], row[_CANDIDATE["release_seq"]]
            yield (seqs, packed_end(connection, side), ends), number, side


def _but(paired: Container[int], connections: Table) -> Iterator[tuple[int, Row]]:
    """Those that are not ``paired``, with their numbers; one direction alone shows no end's reactions."""
    for row in connections.rows():
        number, one, two = (row[_CONNECTION[name]] for name in ("number", ("packets", 0), ("packets", 1)))
        if number not in paired and one and two:
            yield number, row
