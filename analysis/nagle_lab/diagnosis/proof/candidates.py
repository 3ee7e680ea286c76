"""The candidates of one program, as the proof looks at them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nagle_lab.diagnosis.proof.connections import Involved
from nagle_lab.diagnosis.proof.population import (
    Column,
    Columns,
    among,
    chosen,
    counts,
    each,
    groups,
    most,
    pick,
    where,
)
from nagle_lab.tcp.events import MS

LATER = 5 * MS  # data so much later than the ACK and a round trip of its sender was not released by it


class Candidates:
    """Some candidates of one program; columns (n,), times in ns, made when first asked for.

    Attributes
    ----------
    row : their numbers among all candidates looked at, in order
    connection, exchange, at, wait, release, alone, arrival, trigger_bytes, released_bytes, ack_frame, pure, echo,
        announced : ``candidate`` in tcp/engine.h
    peer : the number of the peer's program
    peer_reaction : the fastest of the peer on that connection; 0 where its handshake is not captured
    full : payload of a full segment of the sender; 0 not known
    full_waits : full segments of the sender that waited for an ACK
    pace : how much later than at its fastest the sender sent it, by its own clock, ms; -1 not known
    peer_own_accord : how often on that connection the peer sent more long after all was acknowledged, and nothing had
        come
    not_held : how often on that connection the sender put a small segment right behind an unacknowledged small one
    beside : how often it sent data of any size while other data was unacknowledged
    """

    def __init__(self, columns: Mapping[str, Column], row: Column) -> None:
        self._columns = columns
        self.row = row

    def __len__(self) -> int:
        return len(self.row)

    def __getattr__(self, name: str) -> Column:
        column = pick(self._columns[name], self.row)
        setattr(self, name, column)
        return column

    def only(self, condition: Column) -> "Candidates":
        """Those of which it is true."""
        rows = where(condition)
        return self if len(rows) == len(self) else self.picked(rows)

    def picked(self, rows: Column) -> "Candidates":
        """Those of these (n,), by number from 0."""
        return Candidates(self._columns, pick(self.row, rows))

    @property
    def since(self) -> Column:
        """From trigger to release."""
        return each(lambda wait, release: wait + release, self.wait, self.release)

    def late_by(self, fastest: int) -> Column:
        """How much longer the ACK took than its sender's fastest reaction, which is at least that of all peers."""
        return each(lambda wait, own: wait - most(own, fastest), self.wait, self.peer_reaction)


class _Joined(Mapping[str, Column]):
    """Columns of candidates, and what their connections say of their senders and peers."""

    def __init__(self, rows: Columns, involved: Involved, without_echoes: Sequence[int]) -> None:
        side = rows["side"]
        peer = each(lambda side: 1 - side, side)
        self._rows = rows
        self._joined = {
            "program": involved.of_side("program", side),
            "left_out": involved.rows("left_out"),
            "peer": involved.of_side("program", peer),
            "peer_reaction": each(
                lambda reaction, syns: reaction * syns, involved.reaction(peer), involved.rows("syns")
            ),
            "full": involved.of_side("full_segment", side),
            "full_waits": involved.of_side("full_waits", side),
            "pace": each(_pace, involved.of_side("ahead", side), rows["clock"]),
            "peer_own_accord": _times_spoke(rows, involved, peer),
            "not_held": involved.of_side("not_held", side),
            "beside": involved.of_side("beside", side),
        }
        if without_echoes:
            says_nothing = among(self["program"], without_echoes)
            for name in ("echo", "pace"):
                self._joined[name] = each(lambda unknown, value: chosen(unknown, -1, value), says_nothing, self[name])

    def __getitem__(self, name: str) -> Column:
        return self._joined[name] if name in self._joined else self._rows[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._joined)

    def __len__(self) -> int:
        return len(self._joined)


def by_program(
    rows: Columns, involved: Involved, without_echoes: Sequence[int]
) -> Iterator[tuple[int, Candidates]]:  # fmt: skip
    """The numbers of the programs that sent them, each with its candidates; none of a connection that is left out.

    The timestamps of the programs ``without_echoes`` tell nothing (Echo.UNKNOWN).
    """
    columns = _Joined(rows, involved, without_echoes)
    counting = where(each(lambda left_out: left_out == 0, columns["left_out"]))
    program = pick(columns["program"], counting)
    for group in groups(program):
        yield int(program[group[0]]), Candidates(columns, pick(counting, group))


def times_peer_spoke(c: Candidates) -> int:
    """How often the peers sent data by themselves, on the connections of these candidates: see LATER."""
    connections, count = c.connection, c.peer_own_accord
    return sum(int(count[int(group[0])]) for group in groups(connections))


def _times_spoke(rows: Columns, involved: Involved, sides: Column) -> Column:
    """How often these sides (n,) sent data by themselves on the connection of each row: see LATER."""
    late = each(lambda release, own: release - own >= LATER, rows["release"], involved.reaction(rows["side"]))
    keys = each(lambda of, side: 2 * of + side, involved.of, rows["side"])
    since = late, rows["pure"], rows["ack_frame"]
    by_itself = where(each(lambda late, pure, ack: late & (pure > 0) & (ack > 0), *since))
    counted = counts(pick(keys, by_itself), 2 * len(involved.numbers))
    return pick(counted, each(lambda of, side: 2 * of + side, involved.of, sides))


def _pace(ahead: Any, clock: Any) -> Any:
    """How much later than at its fastest, by the timestamps of both ends (RFC 7323)."""
    return chosen((ahead >= 0) & (clock >= 0), (ahead - clock) & 0xFFFFFFFF, -1)


@dataclass(frozen=True)
class KernelAnswers:
    """What the kernel said of candidates, by row; how long before the ACK, ns.

    Attributes
    ----------
    waited : their data waited; when it said so first
    unwritten : nothing waited yet; when it said so last
    until : when it spoke last, ns since 1970: it says no more than capture/waiting.py reads
    """

    waited: dict[int, int] = field(default_factory=dict)
    unwritten: dict[int, int] = field(default_factory=dict)
    until: int = 0
