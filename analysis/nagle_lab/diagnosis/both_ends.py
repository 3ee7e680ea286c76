"""Two captures of the same traffic: each end as the capture nearer to it shows it.

How soon an end reacts shows where that end is; elsewhere the path is in each time. So the proof of one capture takes
from the other one what that shows better (:class:`BothEnds`): how soon the end nearer to it reacts and sends what it
held, and how long that end delayed an ACK. Each time is between two packets of one file: the clocks are not compared.
docs/proof.md, "Two captures of the same traffic".
"""

from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator
from operator import itemgetter
from typing import Any, cast

from nagle_lab.diagnosis.observed.connection_columns import socket_address
from nagle_lab.diagnosis.observed.observed import NEAR, SOONER_AT_HOME, late_margin
from nagle_lab.diagnosis.same_connections import Row, SameConnection, ends_of, pair_connections
from nagle_lab.tcp.events import MS, Echo
from nagle_lab.tcp.layout import LAYOUTS
from nagle_lab.tcp.tables import Table, Tables

_CONNECTION, _CANDIDATE = LAYOUTS["connection"].columns, LAYOUTS["candidate"].columns
_NO_WAIT = LAYOUTS["no_wait"].columns

# What the capture nearer to the sender of a candidate shows of it, and that nearer to its peer.
_OF_SENDER = (
    "trigger_to_ack", "ack_to_release", "since_host_busy", "arrival", "ahead", "release_clock", "echo", "since_data",
    "since_full", "trigger_not_held",
)  # fmt: skip
_OF_PEER = ("ack_clock", "beyond_full")

COARSE_FOR_ACKS = 1 * MS  # a fifth of what an ACK is late by at least

CandidateKey = tuple[int, int, int, int]
"""A candidate in both captures: the own numbers of its connection and of the side, and both sequence numbers."""
_key = itemgetter(*(_CANDIDATE[name] for name in ("connection", "side", "trigger_end", "release_seq")))


def candidate_key(row: Row) -> CandidateKey:
    """The key of a row of the own candidates."""
    return cast(CandidateKey, _key(row))


class BothEnds:
    """What the proof of one capture rests on, its ``own`` tables; ``other`` are those of the same traffic elsewhere.

    ``other_resolution`` is that of the other one's clock, ns.

    Attributes
    ----------
    tables : connections, reactions and candidates as both captures show them, in the rows of the own ones
    set_aside : rows of the candidates that are not judged, for the other capture does not have them; ascending
    not_in_both : those of them that may be stalls all the same: the other capture lacks their segments
    """

    def __init__(self, own: Tables, other: Tables, other_resolution: int) -> None:
        self._own, self._other, self._other_resolution = own, other, other_resolution
        self._pairs = pair_connections(own, other)
        self._numbers = {pair.other_number: number for number, pair in self._pairs.items()}
        counterparts = self._find_counterparts()
        self.set_aside: list[int] = []
        self.not_in_both: list[int] = []
        self.tables = Tables()
        self._merge_connections()
        self._merge_reactions()
        self._merge_no_waits(counterparts)
        self._merge_candidates(counterparts)

    def shared(self) -> set[frozenset[tuple[str, int]]]:
        """Both ends, each an address and a port, of the own connections that the other capture has, too.

        So are those between the same ends of which it may have another part.
        """
        there = {ends_of(row) for row in self._other.connection.rows()}
        return {
            frozenset(socket_address(row, side) for side in (0, 1))
            for row in self._own.connection.rows()
            if row[_CONNECTION["number"]] in self._pairs or ends_of(row) in there
        }

    def leave_out(self, connections: Collection[int]) -> None:
        """Do not judge these."""
        for number in connections:
            self.tables.connection.fill_in(number, "left_out", 1)

    @property
    def connections(self) -> int:
        """How many of the own connections the other capture has, too, with both directions."""
        return len(self._pairs)

    @property
    def are_at_both(self) -> bool:
        """Whether each end of each connection in both captures is near one of them."""
        return bool(self._pairs) and all(pair.are_both_near for pair in self._pairs.values())

    def is_at(self, sides: Iterable[tuple[int, int]]) -> bool:
        """Whether one of the captures was taken at the host of these sides of connections, by their numbers.

        There the peers answer later than they, or they themselves do in the other capture.
        """
        answers = [self._pairs[number].answers(side) for number, side in sides if number in self._pairs]
        if not answers:
            return False
        its, peers, elsewhere = map(min, zip(*answers, strict=True))
        return bool(peers >= NEAR or 0 <= its <= SOONER_AT_HOME * max(peers, elsewhere))

    def resolution(self, sides: Iterable[tuple[int, int]], own: int) -> int:
        """The resolution of the clock that tells how soon these sides of connections send, ns; ``own`` is the own's.

        Where ACKs are stamped more coarsely than by COARSE_FOR_ACKS, that of the clock that tells how late they are.
        """
        pairs = [(self._pairs[number], side) for number, side in sides if number in self._pairs]

        def coarser(of_peers: int) -> int:
            nearer = {pair.is_other_nearer[side ^ of_peers] for pair, side in pairs}
            return max((self._other_resolution if is_other else own for is_other in nearer), default=own)

        of_senders, of_peers = coarser(0), coarser(1)
        return max(of_senders, of_peers) if of_peers > COARSE_FOR_ACKS else of_senders

    def key_there(self, row: Row) -> CandidateKey | None:
        """The key of a row of the other capture's candidates; None where the own one lacks the connection."""
        number, side, trigger, release = candidate_key(row)
        own = self._numbers.get(number)
        return None if own is None else (own, side ^ self._pairs[own].are_swapped, trigger, release)

    def _find_counterparts(self) -> list[int | None]:
        """For each own candidate the row of the other capture's; None where that has none."""
        there = {self.key_there(row): place for place, row in enumerate(self._other.candidate.rows())}
        return [there.get(candidate_key(row)) for row in self._own.candidate.rows()]

    def _merge_connections(self) -> None:
        for row in self._own.connection.rows():
            number = row[_CONNECTION["number"]]
            self.tables.connection.put(number, self._pairs[number].merged if number in self._pairs else row)

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
            rows.append(ours)
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
        ends_there = {ends_of(row) for row in self._other.connection.rows()}
        for place, (row, counterpart) in enumerate(zip(self._own.candidate.rows(), counterparts, strict=True)):
            number, side, _, release = candidate_key(row)
            merged, pair = list(row), self._pairs.get(number)
            if pair and counterpart is not None:
                theirs = list(self._other.candidate.row(counterpart))
                theirs[_CANDIDATE["arrival"]] = self._number_here(theirs[_CANDIDATE["arrival"]])
                _merge_candidate(merged, theirs, pair)
            elif (number, side, release) in sent_before:
                merged[_CANDIDATE["echo"]] = Echo.BEFORE
            elif self._pairs:  # without any, each is judged by itself
                self.set_aside.append(place)
                connection = self._own.connection.row(number)
                is_shared = pair or ends_of(connection) in ends_there
                if is_shared and not (pair and pair.is_shown_there(side, release)) and _is_late(row, connection):
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

    def _sent_before_there(self) -> Iterator[tuple[int, int, int]]:
        """What was sent before the ACK of the data before it arrived, as the other capture shows.

        The own number of the connection, the side, and the sequence number.
        """
        for row in self._other.no_wait.rows():
            if (number := self._numbers.get(row[_NO_WAIT["connection"]])) is not None:
                side = row[_NO_WAIT["side"]] ^ self._pairs[number].are_swapped
                yield number, side, row[_NO_WAIT["release_seq"]]


def _merge_candidate(row: list[Any], other: Row, pair: SameConnection) -> None:
    """Put into an own candidate what the ``other`` one shows better: of its sender, and how late its ACK was."""
    side, wait, under_way = (_CANDIDATE[name] for name in ("side", "trigger_to_ack", "under_way"))
    is_sender_there, is_peer_there = pair.is_other_nearer[row[side]], pair.is_other_nearer[1 - row[side]]
    near_peer = other if is_peer_there else row
    ack_delay = near_peer[wait] - near_peer[under_way]
    if is_sender_there:
        for name in _OF_SENDER:
            row[_CANDIDATE[name]] = other[_CANDIDATE[name]]
    if is_peer_there:
        for name in _OF_PEER:
            row[_CANDIDATE[name]] = other[_CANDIDATE[name]]
    row[under_way] = max(row[wait] - ack_delay, 0)


def _is_late(row: Row, connection: Row) -> bool:
    """Whether the ACK of a candidate of that connection is a late one, as far as its own capture shows."""
    fastest = max(connection[_CONNECTION["fastest_ack", 1 - row[_CANDIDATE["side"]]]], 0)
    late_by = row[_CANDIDATE["trigger_to_ack"]] - max(fastest, row[_CANDIDATE["under_way"]])
    return bool(late_by >= late_margin(fastest))
