"""Two captures of the same traffic: each end as the capture nearer to it shows it.

How soon an end reacts shows where that end is; elsewhere the path is in each time. So the proof of one capture takes
from the other one what that shows better (:class:`BothEnds`): how soon the end nearer to it reacts and sends what it
held, and how long that end delayed an ACK. Each time is between two packets of one file: the clocks are not compared.
docs/proof.md, "Two captures of the same traffic".
"""

from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cached_property
from operator import itemgetter
from typing import Any, NamedTuple

from nagle_lab.diagnosis.observed.connection_columns import PackedEnd, packed_end, socket_address
from nagle_lab.diagnosis.observed.observed import NEAR, SOONER_AT_HOME, late_margin
from nagle_lab.tcp.events import Echo
from nagle_lab.tcp.layout import LAYOUTS
from nagle_lab.tcp.tables import Table, Tables

Row = Sequence[Any]

_CONNECTION, _CANDIDATE = LAYOUTS["connection"].columns, LAYOUTS["candidate"].columns
_NO_WAIT = LAYOUTS["no_wait"].columns

# What the capture nearer to an end shows of it: fields of ``connection`` for each side.
_OF_SIDE = (
    "fastest_ack", "ahead", "tsval_clock", "timestamp_step", "full_segment", "full_waits", "beside_unacked",
    "stale_echoes",
)  # fmt: skip
# The same of the sender of a candidate, and of its peer: fields of ``candidate``.
_OF_SENDER = (
    "trigger_to_ack", "ack_to_release", "since_host_busy", "arrival", "ahead", "release_clock", "echo", "since_data",
    "since_full", "trigger_not_held",
)  # fmt: skip
_OF_PEER = ("ack_clock", "beyond_full")

_HALF = 1 << 31  # of all sequence numbers: what is so much behind another one comes before it (RFC 9293 §3.4)


class Sender(NamedTuple):
    """Who sent a segment: two ends in order, and which of them; the same in both captures."""

    ends: tuple[PackedEnd, PackedEnd]
    is_second: bool


SegmentKey = tuple[Sender, int, int]
"""A candidate as both captures know it: the sender, and the sequence numbers of trigger and release."""


class BothEnds:
    """What the proof of one capture rests on, its ``own`` tables; ``other`` are those of the same traffic elsewhere.

    Attributes
    ----------
    tables : connections, reactions and candidates as both captures show them, in the rows of the own ones
    set_aside : rows of the candidates that are not judged, for the other capture does not have them; ascending
    not_in_both : those of them that may be stalls all the same: the other capture lacks their segments
    """

    def __init__(self, own: Tables, other: Tables) -> None:
        self._own, self._other = own, other
        self._senders, self._senders_there = senders_of(own.connection), senders_of(other.connection)
        self._pairs: dict[int, _Pair] = {}  # by the number of the own connection
        self._pair_by_ends_of_streams()
        counterparts = self._find_counterparts()
        self.set_aside: list[int] = []
        self.not_in_both: list[int] = []
        self.tables = Tables()
        self._numbers = {pair.other_number: number for number, pair in self._pairs.items()}  # by the other capture's
        self._merge_connections()
        self._merge_reactions()
        self._merge_no_waits(counterparts)
        self._merge_candidates(counterparts)

    def leave_out(self, connections: Collection[int]) -> None:
        """Do not judge these."""
        for number in connections:
            self.tables.connection.fill_in(number, "left_out", 1)

    @property
    def are_at_both(self) -> bool:
        """Whether each end of each connection in both captures is near one of them."""
        return all(pair.are_both_near for pair in self._pairs.values())

    def is_at(self, sides: Iterable[tuple[int, int]]) -> bool:
        """Whether one of the captures was taken at the host of these sides of connections, by their numbers.

        There the peers answer later than they, or they themselves do in the other capture.
        """
        answers = [self._pairs[number].answers(side) for number, side in sides if number in self._pairs]
        if not answers:
            return False
        its, peers, elsewhere = map(min, zip(*answers, strict=True))
        return bool(peers >= NEAR or 0 <= its <= SOONER_AT_HOME * max(peers, elsewhere))

    def _pair_by_ends_of_streams(self) -> None:
        """Pair connections of which a side begins or ends with the same sequence number, which is random."""
        there = {
            key: number
            for number, row in _by_number(self._other.connection)
            for key in _ends_of_streams(row, self._senders_there[number])
        }
        for number, row in _by_number(self._own.connection):
            known = (key for key in _ends_of_streams(row, self._senders[number]) if key in there)
            if (key := next(known, None)) is not None:
                self._pair(number, there[key])

    def _pair(self, own: int, other: int) -> None:
        are_swapped = self._senders[own] != self._senders_there[other]
        self._pairs[own] = _Pair(self._own.connection.row(own), self._other.connection.row(other), are_swapped)

    def _find_counterparts(self) -> list[int | None]:
        """For each own candidate the row of the other capture's; None where that has none.

        Pairs the connections that this shows to be one.
        """
        columns, there = _CANDIDATE, {}
        for place, row in enumerate(self._other.candidate.rows()):
            there[segment_key(row, self._senders_there)] = place
        found: list[int | None] = []
        for row in self._own.candidate.rows():
            found.append(there.get(segment_key(row, self._senders)))
            if found[-1] is not None and row[columns["connection"]] not in self._pairs:  # its ends are in one of them
                self._pair(row[columns["connection"]], self._other.candidate.row(found[-1])[columns["connection"]])
        return found

    def _merge_connections(self) -> None:
        for number, row in _by_number(self._own.connection):
            pair = self._pairs.get(number)
            self.tables.connection.put(number, pair.merged if pair else row)

    def _merge_reactions(self) -> None:
        """Those of each side from the capture nearer to it."""
        for row in self._of_nearer_here(self._own.reaction):
            self.tables.reaction.add(*row)
        for row in self._of_nearer_there(self._other.reaction):
            self.tables.reaction.add(*row)

    def _of_nearer_here(self, table: Table) -> Iterator[Row]:
        """The own rows of sides that the other capture is not nearer to."""
        connection, side = table.layout.columns["connection"], table.layout.columns["side"]
        for row in table.rows():
            pair = self._pairs.get(row[connection])
            if not pair or not pair.is_other_nearer[row[side]]:
                yield row

    def _of_nearer_there(self, table: Table) -> Iterator[list[Any]]:
        """The other capture's rows of sides that it is nearer to, with the own numbers of connections and sides."""
        connection, side = table.layout.columns["connection"], table.layout.columns["side"]
        for row in table.rows():
            number = self._numbers.get(row[connection], -1)
            pair = self._pairs.get(number)
            if pair and pair.is_other_nearer[row[side] ^ pair.are_swapped]:
                ours = list(row)
                ours[connection], ours[side] = number, row[side] ^ pair.are_swapped
                yield ours

    def _merge_no_waits(self, counterparts: list[int | None]) -> None:
        """Those of each side from the capture nearer to it, in order of the own frames.

        The others stand behind the own release next before them: so they were sent before and after the same ones.
        """
        release, rows = _NO_WAIT["release_frame"], list(self._of_nearer_here(self._own.no_wait))
        frames = sorted(self._frames_of_both(counterparts))
        for ours in self._of_nearer_there(self._other.no_wait):
            before = bisect_right(frames, ours[release], key=itemgetter(0)) - 1
            ours[release] = frames[before][1] + 1 if before >= 0 else 1
            rows.append(tuple(ours))
        for row in sorted(rows, key=itemgetter(release)):
            self.tables.no_wait.add(*row)

    def _frames_of_both(self, counterparts: list[int | None]) -> Iterator[tuple[int, int]]:
        """The frames of the releases that both show: the other capture's, and the own one."""
        frame = _CANDIDATE["release_frame"]
        for row, place in zip(self._own.candidate.rows(), counterparts, strict=True):
            if place is not None:
                yield self._other.candidate.row(place)[frame], row[frame]

    def _merge_candidates(self, counterparts: list[int | None]) -> None:
        sent_before = set(self._sent_before_there())
        ends_there = {one.ends for one, _ in self._senders_there.values()}
        for place, (row, counterpart) in enumerate(zip(self._own.candidate.rows(), counterparts, strict=True)):
            merged, pair = list(row), self._pairs.get(row[_CANDIDATE["connection"]])
            sender, _, release = segment_key(row, self._senders)
            if pair and counterpart is not None:
                theirs = list(self._other.candidate.row(counterpart))
                theirs[_CANDIDATE["arrival"]] = self._number_here(theirs[_CANDIDATE["arrival"]])
                pair.merge_candidate(merged, theirs)
            elif (sender, release) in sent_before:
                merged[_CANDIDATE["echo"]] = Echo.BEFORE
            else:
                self.set_aside.append(place)
                if sender.ends in ends_there and self._may_be_a_stall(row, pair):
                    self.not_in_both.append(place)
            self.tables.candidate.add(*merged)

    def _number_here(self, other: int) -> int:
        """The own number of a connection of the other capture; one that only that has is added to the connections."""
        if other >= 0 and other not in self._numbers:
            self._numbers[other] = number = len(self.tables.connection)
            row = list(self._other.connection.row(other))
            row[_CONNECTION["number"]] = number
            self.tables.connection.put(number, row)
        return self._numbers.get(other, -1)

    def _sent_before_there(self) -> Iterator[tuple[Sender, int]]:
        """Who sent data before the ACK of what was before it arrived, as the other capture shows; and its number."""
        for row in self._other.no_wait.rows():
            senders = self._senders_there[row[_NO_WAIT["connection"]]]
            yield senders[row[_NO_WAIT["side"]]], row[_NO_WAIT["release_seq"]]

    def _may_be_a_stall(self, row: Row, pair: "_Pair | None") -> bool:
        """Whether a candidate that the other capture does not have may be a stall all the same.

        Not where that shows its segments: behind an early ACK they are less than SHORT apart there, and none.
        """
        side = row[_CANDIDATE["side"]]
        if pair and pair.is_shown_there(side, row[_CANDIDATE["release_seq"]]):
            return False
        connection = self._own.connection.row(row[_CANDIDATE["connection"]])
        fastest = max(connection[_CONNECTION["fastest_ack", 1 - side]], 0)
        late_by = row[_CANDIDATE["trigger_to_ack"]] - max(fastest, row[_CANDIDATE["under_way"]])
        return bool(late_by >= late_margin(fastest))


class _Pair:
    """One connection in both captures: its rows of the connection table, and whether their sides are swapped."""

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

    def merge_candidate(self, row: list[Any], other: list[Any]) -> None:
        """Put into an own candidate what the ``other`` one shows better: of its sender, and how late its ACK was."""
        side, wait, under_way = (_CANDIDATE[name] for name in ("side", "trigger_to_ack", "under_way"))
        is_sender_there, is_peer_there = self.is_other_nearer[row[side]], self.is_other_nearer[1 - row[side]]
        near_peer = other if is_peer_there else row
        ack_delay = near_peer[wait] - near_peer[under_way]
        if is_sender_there:
            for name in _OF_SENDER:
                row[_CANDIDATE[name]] = other[_CANDIDATE[name]]
        if is_peer_there:
            for name in _OF_PEER:
                row[_CANDIDATE[name]] = other[_CANDIDATE[name]]
        row[under_way] = max(row[wait] - ack_delay, 0)


def common_ends(one: Table, two: Table) -> set[frozenset[tuple[str, int]]]:
    """Both ends, each an address and a port, of the connections that are in both tables, whatever side they are."""
    of_one, of_two = (
        {frozenset(socket_address(row, side) for side in (0, 1)) for row in connections.rows()}
        for connections in (one, two)
    )
    return of_one & of_two


def senders_of(connections: Table) -> dict[int, tuple[Sender, Sender]]:
    """Each side of each connection, by its number."""
    return {number: _senders(row) for number, row in _by_number(connections)}


def _senders(row: Row) -> tuple[Sender, Sender]:
    one, two = packed_end(row, 0), packed_end(row, 1)
    if one <= two:
        return Sender((one, two), is_second=False), Sender((one, two), is_second=True)
    return Sender((two, one), is_second=True), Sender((two, one), is_second=False)


def segment_key(row: Row, senders: dict[int, tuple[Sender, Sender]]) -> SegmentKey:
    """The key of a candidate, given those of :func:`senders_of`."""
    sender = senders[row[_CANDIDATE["connection"]]][row[_CANDIDATE["side"]]]
    return sender, row[_CANDIDATE["trigger_seq"]], row[_CANDIDATE["release_seq"]]


def _by_number(connections: Table) -> Iterator[tuple[int, Row]]:
    return ((row[_CONNECTION["number"]], row) for row in connections.rows())


def _ends_of_streams(row: Row, senders: tuple[Sender, Sender]) -> Iterator[tuple[Sender, str, int]]:
    """The sequence numbers with which each side of a connection begins and ends, as far as they are captured."""
    for side, sender in enumerate(senders):
        for name in ("syn", "next_seq"):
            if (number := row[_CONNECTION[name, side]]) >= 0:
                yield sender, name, number
