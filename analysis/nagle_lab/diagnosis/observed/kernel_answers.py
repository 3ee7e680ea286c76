"""What the kernel said while a capture was recorded, matched to the candidates that it is about."""

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, field
from operator import attrgetter

from nagle_lab.capture.kernel_answers import SLOWEST_NS, KernelAnswer, SocketAddress
from nagle_lab.diagnosis.observed.columns import Columns
from nagle_lab.diagnosis.observed.connection_columns import answers_as, socket_address
from nagle_lab.tcp.events import MS
from nagle_lab.tcp.tables import Table

SURELY = 1 * MS  # before the ACK: a segment that is already on its way out of the host leaves sooner


@dataclass(frozen=True)
class AnswersByCandidate:
    """What the kernel said about candidates while the capture was recorded (sock_diag(7)).

    Attributes
    ----------
    waited : by row, how long before the ACK it first said that the data waited in the socket, ns
    unwritten : by row, how long before the ACK it last said that nothing waited yet, ns
    until : time of the very last answer, ns since 1970; about later candidates the kernel said nothing
    """

    waited: dict[int, int] = field(default_factory=dict)
    unwritten: dict[int, int] = field(default_factory=dict)
    until: int = 0

    @property
    def rows(self) -> set[int]:
        """Those about which it said anything."""
        return {*self.waited, *self.unwritten}


class AnswersBySocket:
    """Whether data waited in sockets, and when, by the connections of a capture."""

    def __init__(self, answers: Iterable[KernelAnswer], connections: Table) -> None:
        by_ends: dict[tuple[SocketAddress, SocketAddress], list[KernelAnswer]] = {}
        for answer in sorted(answers, key=attrgetter("at")):
            by_ends.setdefault((answer.sender, answer.receiver), []).append(answer)
        self._by_side: dict[tuple[int, int], list[KernelAnswer]] = {}  # by connection
        self._until = max((one[-1].at for one in by_ends.values()), default=0)
        if not by_ends:
            return
        columns = connections.layout.columns
        for row in connections.rows():
            one, other = (socket_address(row, side) for side in (0, 1))
            sockets = (one, answers_as(row) or other), (other, one)
            for side, ends in enumerate(sockets):
                if ends in by_ends:
                    self._by_side[row[columns["number"]], side] = by_ends[ends]

    def of(self, candidates: Columns) -> AnswersByCandidate:
        """What the kernel said about candidates after the trigger and before the ACK."""
        found = AnswersByCandidate(until=self._until)
        if not self._by_side:
            return found
        names = ("connection", "side", "at", "ack_to_release", "trigger_to_ack", "released_bytes")
        for row, (connection, side, at, release, wait, released) in enumerate(
            zip(*(candidates[name] for name in names), strict=True)
        ):
            answers = self._by_side.get((int(connection), int(side)))
            if not answers:
                continue
            ack = int(at) - int(release)
            first = bisect_left(answers, ack - int(wait) + SLOWEST_NS, key=attrgetter("at"))
            for one in answers[first : bisect_left(answers, ack - SURELY, key=attrgetter("at"))]:
                if one.unsent == 0:
                    found.unwritten[row] = ack - one.at
                elif one.unsent <= released:
                    found.waited.setdefault(row, ack - one.at)
        return found
