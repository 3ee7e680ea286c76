"""The candidates of one program, as the proof looks at them."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from nagle_lab.diagnosis.connections import Involved
from nagle_lab.diagnosis.population import Column, Columns, chosen, each, groups, most, pick, where


@dataclass(frozen=True)
class Candidates:
    """Candidates of one program; columns (n,), times in ns. See ``candidate`` in tcp/engine.h."""

    row: Column
    connection: Column
    peer: Column  # the number of the peer's program
    wait: Column
    release: Column
    pure: Column
    echo: Column
    alone: Column
    arrival: Column
    trigger_bytes: Column
    released_bytes: Column
    ack_frame: Column
    peer_reaction: Column  # fastest of the peer on that connection; 0 where its handshake is not captured
    full: Column  # payload of a full segment of the sender; 0 not known
    full_waits: Column  # full segments of the sender that waited for an ACK
    pace: Column  # how much later than at its fastest the sender sent it, by its own clock, ms; -1 not known

    def __len__(self) -> int:
        return len(self.row)

    def only(self, condition: Column) -> "Candidates":
        """Those of which it is true."""
        return self.picked(where(condition))

    def picked(self, rows: Column) -> "Candidates":
        """Those rows."""
        return Candidates(*(pick(getattr(self, name), rows) for name in self.__dataclass_fields__))

    def late_by(self, fastest: int) -> Column:
        """How much longer the ACK took than its sender's fastest reaction, which is at least that of all peers."""
        return each(lambda wait, own: wait - most(own, fastest), self.wait, self.peer_reaction)

    @property
    def since(self) -> Column:
        """From trigger to release."""
        return each(lambda wait, release: wait + release, self.wait, self.release)


def by_program(rows: Columns, involved: Involved) -> Iterator[tuple[int, Candidates]]:
    """The numbers of the programs that sent them, each with its candidates."""
    side, peer = rows["side"], each(lambda side: 1 - side, rows["side"])
    of_all = Candidates(
        row=range(len(side)) if isinstance(side, tuple | list) else where(each(lambda side: side >= 0, side)),
        connection=rows["connection"],
        peer=involved.of_side("program", peer),
        peer_reaction=each(lambda reaction, syns: reaction * syns, involved.reaction(peer), involved.rows("syns")),
        full=involved.of_side("full_segment", side),
        full_waits=involved.of_side("full_waits", side),
        pace=each(_pace, involved.of_side("ahead", side), rows["clock"]),
        **{name: rows[name] for name in (
            "wait", "release", "pure", "echo", "alone", "arrival", "trigger_bytes", "released_bytes", "ack_frame",
        )},
    )  # fmt: skip
    of_all = of_all.only(each(lambda again: again == 0, involved.rows("again")))
    program = pick(involved.of_side("program", side), of_all.row)
    for group in groups(program):
        yield int(program[group[0]]), of_all.picked(group)


def _pace(ahead: Any, clock: Any) -> Any:
    """How much later than at its fastest, by the timestamps of both ends (RFC 7323)."""
    return chosen((ahead >= 0) & (clock >= 0), (ahead - clock) & 0xFFFFFFFF, -1)
