"""What is found about each server: in a capture of several, the others must not hide it."""

from collections import Counter, defaultdict
from collections.abc import Mapping
from functools import cached_property

from nagle_lab.diagnosis.ends import ROLES
from nagle_lab.diagnosis.observed.columns import Column, Columns, groups, how_often, pick, rows_where
from nagle_lab.diagnosis.observed.connection_columns import Involved, PackedEnd, packed_end
from nagle_lab.diagnosis.observed.peers import LEAST_DELAY
from nagle_lab.diagnosis.proof.outcomes import Judged, Obstacle
from nagle_lab.diagnosis.result.result import Role, Server
from nagle_lab.diagnosis.result.verdict import VerdictInput
from nagle_lab.packet.segment import address_text, end_text
from nagle_lab.tcp.tables import Table

MOST_LISTED = 20


class Servers:
    """Stalls, and candidates that are left open or had a late ACK, by the server of their connection.

    Servers are known by the numbers of their programs. ``connections`` are all those of the capture.
    """

    def __init__(self, connections: Table) -> None:
        self._connections = connections
        self._stalls: dict[int, Counter[Role]] = defaultdict(Counter)  # by who held
        self._open: dict[int, Counter[Obstacle]] = defaultdict(Counter)
        self._asked: dict[int, Counter[Obstacle]] = defaultdict(Counter)  # of these, how often the kernel was asked
        self._late: Counter[int] = Counter()
        self._connection: dict[int, int] = {}  # one of each server that has stalls, or something open

    def add(self, candidates: Columns, involved: Involved, judged: Judged, asked: set[int]) -> None:
        """Add what was decided about these candidates, except the stalls; the kernel was ``asked`` about
        these rows.
        """
        server = _server_of(involved)
        is_late = candidates["trigger_to_ack"] - involved.fastest_ack(1 - candidates["side"]) >= LEAST_DELAY
        late = rows_where(is_late & (candidates["pure"] > 0) & (involved.rows("left_out") == 0))
        self._late.update(how_often(pick(server, late)))
        for obstacle, unsure in judged.unresolved:
            for number, count in how_often(pick(server, unsure)).items():
                self._open[number][obstacle] += count
            for row in asked.intersection(map(int, unsure)) if asked else ():
                self._asked[int(server[row])][obstacle] += 1
            self._add_connections(server, involved, unsure)

    def add_stalls(self, side: Column, involved: Involved, stalls: Column) -> None:
        """Add the rows of these candidates that are ``stalls``; ``side`` (n,) is the one that held."""
        server, is_client = _server_of(involved), side == involved.rows("client")
        for role, is_role in zip(ROLES, (is_client, is_client == 0), strict=True):
            held = pick(stalls, rows_where(pick(is_role, stalls)))
            for number, count in how_often(pick(server, held)).items():
                self._stalls[number][role] += count
        self._add_connections(server, involved, stalls)

    def _add_connections(self, server: Column, involved: Involved, rows: Column) -> None:
        for group in groups(pick(server, rows)):
            row = int(rows[group[0]])
            self._connection.setdefault(int(server[row]), int(involved.numbers[involved.of[row]]))

    @cached_property
    def _totals(self) -> "_Totals":
        """Over the connections of these servers, once all candidates are decided."""
        client = self._connections.layout.columns["client"]
        rows = ((number, self._connections.row(one)) for number, one in self._connection.items())
        return _Totals({packed_end(row, 1 - row[client]): number for number, row in rows}, self._connections)

    def evidence(self) -> dict[str, VerdictInput]:
        """The input of a verdict for each server with two or more candidates left open, by address and port, most
        first.

        Empty if there is only one server.
        """
        totals = self._totals
        if not totals.are_several:
            return {}
        most_first = sorted(self._open.items(), key=lambda item: (-item[1].total(), item[0]))
        return {
            end_text(*totals.ends[number]): VerdictInput(
                tcp_packets=1,  # there were some
                exchanges=totals.exchanges[number],
                stalls=0,
                unresolved=left_open,
                asked=self._asked[number],
                late_without_stall=max(self._late[number] - left_open.total(), 0),
                chances=totals.chances[number],
            )
            for number, left_open in most_first
            if left_open.total() > 1  # one may be an accident
        }

    def listed(self) -> list[Server]:
        """Servers with stalls or something open, the most stalls first; empty if only one server was asked."""
        totals = self._totals
        if len(self._connection) < 2 and not totals.other_exchanges:
            return []
        servers = (
            Server(
                *totals.ends[number],
                exchanges=totals.exchanges[number],
                stalled_exchanges=totals.stalled[number],
                stalls_by={role: self._stalls[number][role] for role in ROLES},
                unresolved=self._open[number].total(),
            )
            for number in self._connection
        )
        return sorted(servers, key=_most_first)[:MOST_LISTED]


def _most_first(server: Server) -> tuple[int, int, str, int]:
    return -sum(server.stalls_by.values()), -server.unresolved, server.ip, server.port


def _server_of(involved: Involved) -> Column:
    """For each row (n,) the number of its server's program."""
    return involved.of_side("program", 1 - involved.rows("client"))


class _Totals:
    """Sums over the connections of some servers, by the numbers of their programs.

    Attributes
    ----------
    ends : their addresses and ports
    exchanges, stalled : of these
    chances : how often data followed an ACK, or did not wait for one
    are_several : whether there are several servers in the capture
    other_exchanges : exchanges of all other servers
    """

    def __init__(self, servers: Mapping[PackedEnd, int], connections: Table) -> None:
        self.ends = {number: (address_text(address), port) for (address, port), number in servers.items()}
        self.exchanges: Counter[int] = Counter()
        self.stalled: Counter[int] = Counter()
        self.chances: Counter[int] = Counter()
        self.are_several = len(servers) > 1
        self.other_exchanges = 0
        columns = connections.layout.columns
        for row in connections.rows() if servers else ():
            if row[columns["left_out"]]:
                continue
            number = servers.get(packed_end(row, 1 - row[columns["client"]]))
            if number is None:  # there may be any number of these
                self.are_several = True
                self.other_exchanges += row[columns["exchanges"]]
                continue
            self.exchanges[number] += row[columns["exchanges"]]
            self.stalled[number] += row[columns["stalled_exchanges"]]
            self.chances[number] += row[columns["followed"]]
            # Of one direction alone all data seems to be ahead of its ACK.
            if row[columns["packets", 0]] and row[columns["packets", 1]]:
                self.chances[number] += row[columns["not_held", 0]] + row[columns["not_held", 1]]
