"""What the proof decides of a candidate: a stall and its ground, no stall and the reason, or unresolved and why."""

from collections import Counter
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import NamedTuple, Self

from nagle_lab.diagnosis.observed.candidates import Candidates
from nagle_lab.diagnosis.observed.columns import Column, among, maximum, pick, rows_where, select


class Rejected(StrEnum):
    """Why a candidate is no stall."""

    NAGLE_OFF = "nagle_off"  # its sender is seen not to wait for ACKs
    NOT_LATE = "not_late"  # the ACK took only a round trip, or longer than any delayed ACK
    LATER_RELEASE = "later_release"  # the program's own pause
    NOT_READ = "not_read"  # the ACK came late because the peer's program did not read
    RELAYED = "relayed"  # data of another connection arrived at the sender between ACK and release
    CORKED = "corked"  # its sender had announced more (MSG_MORE): the kernel sends that with the ACK, too
    COINCIDENCE = "coincidence"  # close to the ACK, but no more often than by chance


class Ground(StrEnum):
    """What a program's stalls are proved by."""

    SEEN_WAITING = "seen_waiting"  # the kernel said while recording, before the ACK came, that the data waited
    REPETITION_AT_SENDER = "repetition_at_sender"  # as soon after the ACK as only a kernel sends, three times or more
    REPETITION_NEARBY = "repetition_nearby"  # the same, but so late or varied that a woken program may be as quick
    PROMPTNESS = "promptness"  # as soon as only a kernel sends, once or twice
    REPETITION_ON_PATH = "repetition_on_path"  # one of the sender's round trips after the ACK, again and again
    TIMESTAMPS = "timestamps"  # the capture lacks the ACK; the release echoes it, and is as late as proved ones
    DATA_ACKS = "data_acks"  # piggybacked ACKs: an end that also speaks unasked sends as soon after them as a kernel
    MERGED_WRITES = "merged_writes"  # piggybacked ACKs, and writes were merged while they waited

    @property
    def is_certain(self) -> bool:
        """Whether nothing else would explain what it proves; otherwise the proof is only likely."""
        return self in (Ground.SEEN_WAITING, Ground.REPETITION_AT_SENDER, Ground.TIMESTAMPS)


class Obstacle(StrEnum):
    """Why a candidate is undecided: whether its ACK released what followed."""

    LIKE_A_PROGRAM = "like_a_program"  # it took longer than a kernel, but shows no pause of a program
    OWN_PACE = "own_pace"  # as late after early ACKs, or piece by piece: the program itself may wait for something
    NAGLE_OFF_ELSEWHERE = "nagle_off_elsewhere"  # on other connections, or at other times, that end waits for no ACK
    CONNECTIONS_DIFFER = "connections_differ"  # data seems held on some connections by themselves, not on others
    ROUND_TRIP_UNKNOWN = "round_trip_unknown"  # that from the capture point to the sender and back
    WINDOW_UNKNOWN = "window_unknown"  # the ACK may have opened a full window: no SYN shows how that is scaled
    NO_HANDSHAKE = "no_handshake"  # none shows how far away the peer is, and all of its ACKs may be late
    PATH_VARIES = "path_varies"  # ACKs came late, but so does everything from that end
    COARSE_CLOCK = "coarse_clock"  # its steps hide the time from ACK to release
    COINCIDENCE = "coincidence"  # so few releases, among pauses of any length, may be chance
    CAPTURE_INCOMPLETE = "capture_incomplete"  # ACKs are missing or out of order
    ACK_ON_DATA = "ack_on_data"  # the ACK came with data: what follows is an answer to that, or a release


@dataclass(frozen=True)
class Hold:
    """Bounds of how long a program's data was held, for each of its stalls; columns (n,), ns.

    The hold begins with the write, which may have come after a pause: so it is the wait less that pause. Early ACKs
    show how long the same program pauses; if there are none, the hold is anything up to the wait.
    """

    least: Column  # the waits less the longest such pause; 0 if none is known
    most: Column  # the waits less the shortest

    @classmethod
    def after_pause(cls, waits: Column, shortest: float, longest: float) -> Self:
        """Of those waits behind a pause between ``shortest`` and ``longest``, ns."""
        return cls(maximum(waits - round(longest), 0), waits - round(shortest))

    @classmethod
    def up_to(cls, waits: Column) -> Self:
        """Anything up to those waits."""
        return cls(waits * 0, waits)

    def at_least(self, ns: float) -> Self:
        """The same where data is known to have waited for ``ns``; but no longer than at most."""
        known = select(self.most < ns, self.most, round(ns))
        return replace(self, least=maximum(self.least, known))

    def picked(self, rows: Column) -> Self:
        """Of the stalls in those places."""
        return replace(self, least=pick(self.least, rows), most=pick(self.most, rows))


class Accepted(NamedTuple):
    """Stalls of one program: their rows (n,), what proves them, and how long its data was held."""

    rows: Column
    ground: Ground
    hold: Hold


class PassedOn(NamedTuple):
    """Data of one connection that immediately followed that of another one, as at a relay."""

    connection: int
    brought_by: int  # the number of the other connection


@dataclass
class Judged:
    """What was decided about the candidates of some programs; a candidate is named by the number of its row.

    Some candidates are not decided, and not counted: full segments, which Nagle's algorithm never holds; what follows
    data that carried an ACK, if the ACK was in time, or nothing shows a hold (piggybacked.py); data that came early,
    and whose ACK the capture lacks. Functions named ``set_aside_…`` return the candidates that they do not decide,
    and add the others here.

    Attributes
    ----------
    accepted : the stalls
    round_trips : for each program, rows (n,) that were held until an ACK that was not delayed; they are rejected, too
    rejected : rows (n,) of candidates that are no stalls, each with the reason
    unresolved : rows (n,) of undecided candidates, each with the reason
    relays : how often data of one connection immediately followed that of another
    """

    accepted: list[Accepted] = field(default_factory=list)
    round_trips: list[Column] = field(default_factory=list)
    rejected: list[tuple[Rejected, Column]] = field(default_factory=list)
    unresolved: list[tuple[Obstacle, Column]] = field(default_factory=list)
    relays: Counter[PassedOn] = field(default_factory=Counter)

    @property
    def stalls(self) -> list[Column]:
        """The rows (n,) of each program's stalls."""
        return [one.rows for one in self.accepted]

    @property
    def stall_count(self) -> int:
        """How many stalls there are."""
        return sum(len(rows) for rows in self.stalls)

    @property
    def grounds(self) -> Counter[Ground]:
        """How many stalls, by what they are proved by."""
        found: Counter[Ground] = Counter()
        for one in self.accepted:
            found[one.ground] += len(one.rows)
        return found

    @property
    def rejected_by(self) -> Counter[Rejected]:
        """How many candidates are no stalls, by reason."""
        found: Counter[Rejected] = Counter()
        for why, rows in self.rejected:
            found[why] += len(rows)
        return found

    @property
    def holds(self) -> list[Hold]:
        """How long the data of each program with stalls was held."""
        return [one.hold for one in self.accepted]

    def left_open(self, obstacle: Obstacle) -> list[Column]:
        """The rows (n,) of each program's candidates that are undecided for that reason."""
        return [rows for why, rows in self.unresolved if why is obstacle]

    def accept(self, held: Candidates, ground: Ground, hold: Hold) -> None:
        """Count these as stalls that ``ground`` proves."""
        self.accepted.append(Accepted(held.row, ground, hold))

    def resolve_as_relayed(self, rows: Column, passed: dict[int, PassedOn]) -> None:
        """Count all stalls of a program, or unresolved ones, as rejected: their data came from other connections.

        ``rows`` is the column of these: the object itself, not an equal one. ``passed``: what some of them passed on,
        by row.
        """
        self.accepted = [one for one in self.accepted if one.rows is not rows]
        self.unresolved = [(obstacle, other) for obstacle, other in self.unresolved if other is not rows]
        self.rejected.append((Rejected.RELAYED, rows))
        self.relays += Counter(passed.values())

    def take_back_some(self, one: Accepted, passed: dict[int, PassedOn]) -> None:
        """Count as relayed only the stalls in ``passed``, by row."""
        is_passed_on = among(one.rows, sorted(passed))
        stay = rows_where(is_passed_on == 0)
        held = pick(one.rows, stay)
        rest = Accepted(held, one.ground, one.hold.picked(stay))
        self.accepted = [rest if other is one else other for other in self.accepted]
        self.rejected.append((Rejected.RELAYED, pick(one.rows, rows_where(is_passed_on))))
        self.relays += Counter(passed.values())

    def take_back_as_open(self, one: Accepted, obstacle: Obstacle) -> None:
        """Count stalls as unresolved after all, for the reason ``obstacle``."""
        self.accepted = [other for other in self.accepted if other is not one]
        self.unresolved.append((obstacle, one.rows))

    def __iadd__(self, other: "Judged") -> Self:
        """Add what was decided of other candidates."""
        self.accepted += other.accepted
        self.round_trips += other.round_trips
        self.rejected += other.rejected
        self.unresolved += other.unresolved
        self.relays += other.relays
        return self

    def __add__(self, other: "Judged") -> "Judged":
        """What was decided of these candidates and of the other's."""
        both = Judged()
        both += self
        both += other
        return both

    def all_open(self, obstacle: Obstacle) -> "Judged":
        """The same without stalls: these are unresolved, for the reason ``obstacle``."""
        stalls = [(obstacle, rows) for rows in self.stalls]
        return replace(self, accepted=[], unresolved=self.unresolved + stalls)

    def leave_open(self, unsure: Candidates, obstacle: Obstacle) -> None:
        """Count these as unresolved, for the reason ``obstacle``."""
        if len(unsure):
            self.unresolved.append((obstacle, unsure.row))

    def leave_open_after_all(self, rejected: Candidates, why: Rejected, obstacle: Obstacle) -> None:
        """Count candidates that were rejected, for ``why``, as unresolved, for the reason ``obstacle``."""
        self.rejected = [
            (reason, pick(rows, rows_where(among(rows, rejected.row) == 0)) if reason is why else rows)
            for reason, rows in self.rejected
        ]
        self.leave_open(rejected, obstacle)

    def reject(self, some: Candidates, why: Rejected) -> None:
        """Count these as no stalls."""
        if len(some):
            self.rejected.append((why, some.row))
