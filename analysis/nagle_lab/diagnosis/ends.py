"""The ends that held, those that delayed, and those that may have held."""

from collections import Counter
from dataclasses import dataclass, field

from nagle_lab.diagnosis.observed.columns import Column, groups, highest, lowest, pick
from nagle_lab.diagnosis.observed.connection_columns import Involved
from nagle_lab.diagnosis.proof.outcomes import Obstacle
from nagle_lab.diagnosis.result.result import Role, Roles

ROLES: tuple[Role, Role] = ("client", "server")


@dataclass
class End:
    """One end that held or delayed, or may have: a server's address and port, or a client's address."""

    role: Role
    connection: int  # one of its connections, and its side of that
    side: int
    times: int = 0
    unresolved: Counter[Obstacle] = field(default_factory=Counter)  # how many of these times were left open
    ports: set[int] = field(default_factory=set)  # one or two of them


class Ends(dict[int, End]):
    """The ends that held, or delayed, or may have, by program and role."""

    def add(self, involved: Involved, side: Column, rows: Column, obstacle: Obstacle | None = None) -> None:
        """Add the sides of some ``rows``, of the n whose connections are involved; left open for the reason
        ``obstacle``.
        """
        is_server = pick(side != involved.rows("client"), rows)
        program, port = (pick(involved.of_side(name, side), rows) for name in ("program", "port"))
        keys = 2 * program + is_server * 1
        for group in groups(keys):
            key, row = int(keys[group[0]]), int(rows[group[0]])
            role = ROLES[key % 2]
            end = self.setdefault(key, End(role, int(involved.numbers[involved.of[row]]), int(side[row])))
            end.times += len(group)
            if obstacle:
                end.unresolved[obstacle] += len(group)
            ports = pick(port, group)
            end.ports |= {lowest(ports), highest(ports)}

    def most_first(self) -> list[End]:
        """The ends, those with the most first."""
        return sorted(self.values(), key=lambda end: (-end.times, end.connection, end.side))

    @property
    def by_role(self) -> dict[Role, int]:
        """How many there are of each role."""
        return {role: sum(end.role == role for end in self.values()) for role in ROLES}

    @property
    def role(self) -> Roles | None:
        """The role all of them have; "both" when they differ; None when there are none."""
        roles = {end.role for end in self.values()}
        return "both" if len(roles) > 1 else next(iter(roles), None)
