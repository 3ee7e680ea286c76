"""Two captures of the same traffic: each end as the capture nearer to it shows it.

How soon an end reacts is seen where that end is; elsewhere each time includes the path. So the proof of one capture
takes from the other one what that shows better (:class:`BothEnds`): how soon the end nearer to it reacts and sends
what it held, and how long that end delayed an ACK. Each time is between two packets of one file: the clocks are not
compared. docs/proof.md, "Two captures of the same traffic".
"""

from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator
from operator import itemgetter
from typing import Any, NamedTuple, cast

from nagle_lab.diagnosis.observed.observed import NEAR, SOONER_AT_HOME
from nagle_lab.diagnosis.same_connections import Row, SameConnection, have_common_ends, pair_connections
from nagle_lab.tcp.events import Echo
from nagle_lab.tcp.layout import LAYOUTS
from nagle_lab.tcp.tables import Table, Tables

_CONNECTION, _CANDIDATE = LAYOUTS["connection"].columns, LAYOUTS["candidate"].columns
_NO_WAIT = LAYOUTS["no_wait"].columns

# What the capture nearer to a candidate's sender shows of it, and what the one nearer to its peer shows.
_OF_SENDER = (
    "trigger_to_ack", "ack_to_release", "since_host_busy", "arrival", "ahead", "release_clock", "echo", "since_data",
    "since_full", "trigger_not_held",
)  # fmt: skip
_OF_PEER = ("ack_clock", "beyond_full")

CandidateKey = tuple[int, int, int, int]
"""A candidate in both captures: own numbers of its connection and its side, and both sequence numbers."""
_key = itemgetter(*(_CANDIDATE[name] for name in ("connection", "side", "trigger_end", "release_seq")))


def candidate_key(row: Row) -> CandidateKey:
    """The key of a row of the own candidates."""
    return cast(CandidateKey, _key(row))


class _Release(NamedTuple):
    """Data that followed other data, by the own numbers."""

    connection: int
    side: int
    seq: int


class _NotWaiting(NamedTuple):
    """Columns of a row of no_wait: data that was sent while the data before it was unacknowledged."""

    echo: Echo
    trigger_to_release: int  # ns
    trigger_bytes: int


class BothEnds:
    """What the proof of one capture rests on, its ``own`` tables; ``other`` are those of the same traffic elsewhere.

    ``resolutions`` are those of both clocks, the own one first, ns.

    Attributes
    ----------
    tables : connections, reactions and candidates as both captures show them, in the rows of the own tables
    is_one, may_be_one : whether a connection is in both, so they are of the same traffic; or at least the ends of one
    together : rows of the candidates that both captures show, ascending: these are judged by both
    denied : rows of those that are no candidates by the other capture; the rest is judged by the own one alone
    """

    def __init__(self, own: Tables, other: Tables, resolutions: tuple[int, int]) -> None:
        self._own, self._other = own, other
        pairs = pair_connections(own, other, resolutions)
        self.is_one = bool(pairs)
        self.may_be_one = self.is_one or have_common_ends(own.connection, other.connection)
        self._pairs = {number: pair for number, pair in pairs.items() if pair.is_usable}
        self._numbers = {pair.other_number: number for number, pair in self._pairs.items()}
        self._added: dict[int, int] = {}  # numbers of those that only the other capture has
        counterparts = self._find_counterparts()
        self._frames = sorted(self._frames_of_both(counterparts))
        self.together: list[int] = []
        self.denied: list[int] = []
        self.tables = Tables()
        self._merge_connections()
        self._merge_reactions()
        self._merge_no_waits()
        self._merge_candidates(counterparts)

    def leave_out(self, connections: Collection[int]) -> None:
        """Do not judge these."""
        for number in connections:
            self.tables.connection.fill_in(number, "left_out", 1)

    @property
    def connections(self) -> int:
        """How many of the own connections are judged by both captures."""
        return len(self._pairs)

    @property
    def are_at_both(self) -> bool:
        """Whether each end of each of these connections is near one of the captures."""
        return bool(self._pairs) and all(pair.are_both_near for pair in self._pairs.values())

    @property
    def are_apart(self) -> bool:
        """Whether the captures were taken at different places."""
        return any(pair.are_apart for pair in self._pairs.values())

    def is_at(self, sides: Iterable[tuple[int, int]]) -> bool:
        """Whether one of the captures was taken at the host of these sides of connections, by their numbers.

        There the peers answer later than these sides, or these sides answer later in the other capture.
        """
        answers = [self._pairs[number].answers(side) for number, side in sides]
        soonest = min(one.side for one in answers)
        peers, elsewhere = min(one.peer for one in answers), min(one.side_elsewhere for one in answers)
        return peers >= NEAR or 0 <= soonest <= SOONER_AT_HOME * max(peers, elsewhere)

    def resolution(self, sides: Iterable[tuple[int, int]]) -> int:
        """The resolution of the clock, ns, that shows how soon these sides of connections send."""
        pairs = ((self._pairs[number], side) for number, side in sides)
        coarsest: int = max(pair.resolutions[pair.is_other_nearer[side]] for pair, side in pairs)
        return coarsest

    def key_there(self, row: Row) -> CandidateKey | None:
        """The key of a row of the other capture's candidates; None if its connection is not in both."""
        number, side, trigger, release = candidate_key(row)
        if (own := self._numbers.get(number)) is None:
            return None
        pair = self._pairs[own]
        side ^= pair.are_swapped
        return own, side, pair.seq_here(side, trigger), pair.seq_here(side, release)

    def _find_counterparts(self) -> list[int | None]:
        """For each own candidate the row of the other capture's; None if one of them lacks it, or its ACK."""
        ack = _CANDIDATE["ack_frame"]
        there = {self.key_there(row): place for place, row in enumerate(self._other.candidate.rows()) if row[ack]}
        return [there.get(candidate_key(row)) if row[ack] else None for row in self._own.candidate.rows()]

    def _merge_connections(self) -> None:
        for own in self._own.connection.rows():
            number = own[_CONNECTION["number"]]
            pair = self._pairs.get(number)
            row = list(pair.merged if pair else own)
            for side in (0, 1):
                first = _CONNECTION["first_not_held", side]
                if pair and pair.is_other_nearer[side] and row[first]:
                    row[first] = self._frame_here(row[first])
            self.tables.connection.put(number, row)

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

    def _merge_no_waits(self) -> None:
        """Those of each side from the capture nearer to it, in order of the own frames."""
        release, rows = _NO_WAIT["release_frame"], list(self._of_nearer_here(self._own.no_wait))
        for ours in self._of_nearer_there(self._other.no_wait):
            ours[release] = self._frame_here(ours[release])
            rows.append(ours)
        for row in sorted(rows, key=itemgetter(release)):
            self.tables.no_wait.add(*row)

    def _frame_here(self, other: int) -> int:
        """An own frame for one of the other capture: right behind the last release before it that is in both.

        So it comes before and after the same releases.
        """
        before = bisect_right(self._frames, other, key=itemgetter(0)) - 1
        return self._frames[before][1] + 1 if before >= 0 else 1

    def _frames_of_both(self, counterparts: list[int | None]) -> Iterator[tuple[int, int]]:
        """The frames of the releases that both show: the other capture's, and the own one."""
        frame = _CANDIDATE["release_frame"]
        for row, place in zip(self._own.candidate.rows(), counterparts, strict=True):
            if place is not None:
                yield self._other.candidate.row(place)[frame], row[frame]

    def _merge_candidates(self, counterparts: list[int | None]) -> None:
        candidate = self._other.candidate
        not_waiting = {
            release: _NotWaiting(*values)
            for release, values in self._releases_there(self._other.no_wait, *_NotWaiting._fields)
        }
        # Of these it may lack the ACK
        lacks_ack = {release for release, there in not_waiting.items() if there.echo == Echo.UNKNOWN}
        lacks_ack |= {release for release, (frame,) in self._releases_there(candidate, "ack_frame") if not frame}
        for place, (row, counterpart) in enumerate(zip(self._own.candidate.rows(), counterparts, strict=True)):
            merged = dict(zip(_CANDIDATE, row, strict=True))
            release = _Release(merged["connection"], merged["side"], merged["release_seq"])
            if counterpart is not None:
                theirs = dict(zip(_CANDIDATE, candidate.row(counterpart), strict=True))
                theirs["arrival"] = self._number_here(theirs["arrival"])
                _take_what_is_better(merged, theirs, self._pairs[release.connection])
                self.together.append(place)
            else:
                own = self._own.connection.row(release.connection)
                merged["under_way"] = max(own[_CONNECTION["fastest_ack", 1 - release.side]], 0)
                if release in not_waiting and self._was_before_ack(merged, not_waiting[release]):
                    merged["echo"] = Echo.BEFORE
                    self.together.append(place)
                elif merged["ack_frame"] and release not in lacks_ack and self._is_shown_there(release):
                    self.denied.append(place)
            self.tables.candidate.add(*merged.values())

    def _was_before_ack(self, own: dict[str, Any], there: _NotWaiting) -> bool:
        """Whether an own candidate was sent before its ACK had arrived, as the other capture shows it.

        By timestamps; or the other capture is nearer to the sender, and has the data sooner behind its trigger than
        the own one has the ACK: at the sender that ACK comes later still, because both were under way to here.
        """
        if there.echo == Echo.BEFORE:
            return True
        pair = self._pairs[own["connection"]]
        is_same = there.trigger_bytes == own["trigger_bytes"]
        latest = there.trigger_to_release + sum(pair.resolutions)
        return pair.is_other_nearer[own["side"]] and is_same and latest < own["trigger_to_ack"]

    def _is_shown_there(self, release: _Release) -> bool:
        pair = self._pairs.get(release.connection)
        return pair is not None and pair.is_shown_there(release.side, release.seq)

    def _number_here(self, other: int) -> int:
        """The own number of a connection of the other capture; if only the other has it, it is added to the
        connections.
        """
        numbers = self._numbers if other in self._numbers else self._added
        if other >= 0 and other not in numbers:
            numbers[other] = number = len(self.tables.connection)
            row = list(self._other.connection.row(other))
            row[_CONNECTION["number"]] = number
            self.tables.connection.put(number, row)
        return numbers.get(other, -1)

    def _releases_there(self, table: Table, *names: str) -> Iterator[tuple[_Release, tuple[Any, ...]]]:
        """The releases in the rows of a table of the other capture, with what is in the columns of these names."""
        columns = table.layout.columns
        connection, side, release = columns["connection"], columns["side"], columns["release_seq"]
        wanted = [columns[name] for name in names]
        for row in table.rows():
            if row[connection] in self._numbers:
                number = self._numbers[row[connection]]
                pair = self._pairs[number]
                at = row[side] ^ pair.are_swapped
                yield _Release(number, at, pair.seq_here(at, row[release])), tuple(row[column] for column in wanted)


def _take_what_is_better(own: dict[str, Any], other: dict[str, Any], pair: SameConnection) -> None:
    """Put into an own candidate what the ``other`` one shows better: times at its sender, and how late its ACK was.

    The ACK's delay is what it surely was: without the possible error of the clock, and without the way between the
    peer and the capture nearer to it.
    """
    sender, peer = own["side"], 1 - own["side"]
    is_ack_from_other = pair.is_ack_from_other[peer]
    near_peer = other if is_ack_from_other else own
    resolution = pair.resolutions[is_ack_from_other]
    ack_delay = near_peer["trigger_to_ack"] - max(near_peer["under_way"], pair.fastest_ack_of(peer)) - resolution
    if pair.is_other_nearer[sender]:
        own |= {name: other[name] for name in _OF_SENDER}
    if is_ack_from_other:
        own |= {name: other[name] for name in _OF_PEER}
    own["under_way"] = own["trigger_to_ack"] - max(ack_delay, 0)
