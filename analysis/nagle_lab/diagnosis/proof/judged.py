"""What is decided of candidates, and in which words."""

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from nagle_lab.diagnosis.proof.candidates import Candidates
from nagle_lab.diagnosis.proof.population import Column


class Rejected(StrEnum):
    """Why a candidate is no stall."""

    NAGLE_OFF = "nagle_off"  # its sender is seen not to wait for ACKs
    NOT_LATE = "not_late"  # the ACK took only a round trip, or longer than any delayed ACK
    LATER_RELEASE = "later_release"  # the program's own pause
    RELAYED = "relayed"  # data of another connection arrived at the sender between ACK and release
    CORKED = "corked"  # its sender had announced more (MSG_MORE, TCP_CORK): the kernel sends that with the ACK, too
    COINCIDENCE = "coincidence"  # close to the ACK, but not more often than chance puts it there


class Ground(StrEnum):
    """What a program's stalls are proved by."""

    SEEN_WAITING = "seen_waiting"  # while it was recorded, the kernel said that the data waited, before the ACK came
    REPETITION_AT_SENDER = "repetition_at_sender"  # so soon behind the ACK as only a kernel is, again and again
    PROMPTNESS = "promptness"  # the same, a few times
    REPETITION_ON_PATH = "repetition_on_path"  # a round trip behind the ACK, again and again
    TIMESTAMPS = "timestamps"  # the capture lacks the ACK; the release echoes it, and was as late as proved ones
    DATA_ACKS = "data_acks"  # the ACKs rode on data; an end that speaks of its own accord, as soon behind as a kernel
    MERGED_WRITES = "merged_writes"  # the ACK rode on data, and writes were merged meanwhile


class Obstacle(StrEnum):
    """Why it cannot be told whether an ACK released what followed it."""

    LIKE_A_PROGRAM = "like_a_program"  # between what a kernel takes and what a program takes
    OWN_PACE = "own_pace"  # as late where the ACK came early, or piece by piece: the program waits for something
    NAGLE_OFF_ELSEWHERE = "nagle_off_elsewhere"  # on other connections the same two wait for no ACK
    ROUND_TRIP_UNKNOWN = "round_trip_unknown"
    PATH_VARIES = "path_varies"  # ACKs came late, but so does everything of that end
    COARSE_CLOCK = "coarse_clock"
    COINCIDENCE = "coincidence"  # one release, among pauses of any length
    CAPTURE_INCOMPLETE = "capture_incomplete"  # ACKs are missing or out of order
    ACK_ON_DATA = "ack_on_data"  # an answer, or a release


@dataclass(frozen=True)
class Hold:
    """How long one program's data was held, of how long it waited: its program wrote it after a pause, perhaps.

    Where the ACK came early the same program shows when it writes; else the hold is anything up to the wait.
    """

    stalls: int
    low: float  # ns, the median wait less the longest such pause; 0 where none is known
    high: float  # the median wait less the shortest


class Accepted(NamedTuple):
    """Stalls of one program: numbers of rows, what they are proved by, and for how long its data was held."""

    rows: Column
    ground: Ground
    hold: Hold


@dataclass
class Judged:
    """What was decided of the candidates of some programs.

    Attributes
    ----------
    accepted : the stalls
    round_trips : numbers of rows, which were held until an ACK that was not delayed
    rejected : how many, by why
    unresolved : numbers of rows of which it cannot be told, by why
    relays : how often data of a connection followed that of another one, by both
    """

    accepted: list[Accepted] = field(default_factory=list)
    round_trips: list[Column] = field(default_factory=list)
    rejected: Counter[Rejected] = field(default_factory=Counter)
    unresolved: list[tuple[Obstacle, Column]] = field(default_factory=list)
    relays: Counter[tuple[int, int]] = field(default_factory=Counter)

    @property
    def stalls(self) -> list[Column]:
        """Numbers of rows."""
        return [one.rows for one in self.accepted]

    @property
    def grounds(self) -> Counter[Ground]:
        """How many stalls, by what they are proved by."""
        found: Counter[Ground] = Counter()
        for one in self.accepted:
            found[one.ground] += len(one.rows)
        return found

    @property
    def holds(self) -> list[Hold]:
        """Of each program with stalls."""
        return [one.hold for one in self.accepted]

    def accept(self, held: Candidates, ground: Ground, hold: Hold) -> None:
        """They are stalls."""
        self.accepted.append(Accepted(held.row, ground, hold))

    def take_back(self, one: Accepted, sources: Counter[tuple[int, int]]) -> None:
        """They are none after all: their data came from other connections."""
        self.accepted = [other for other in self.accepted if other is not one]
        self.reject(len(one.rows), Rejected.RELAYED)
        self.relays += sources

    def resolve_as_relayed(self, rows: Column, sources: Counter[tuple[int, int]]) -> None:
        """These, which were unresolved, are no stalls: their data came from other connections."""
        self.unresolved = [(obstacle, other) for obstacle, other in self.unresolved if other is not rows]
        self.reject(len(rows), Rejected.RELAYED)
        self.relays += sources

    def leave(self, unsure: Candidates, obstacle: Obstacle) -> None:
        """It cannot be told whether these are stalls."""
        if len(unsure):
            self.unresolved.append((obstacle, unsure.row))

    def reject(self, count: int, why: Rejected) -> None:
        """So many are no stalls."""
        if count > 0:
            self.rejected[why] += count
