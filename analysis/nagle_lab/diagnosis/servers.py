"""What is left open of each server: in a capture of several, the others must not hide how much that is."""

from collections import Counter, defaultdict

from nagle_lab.diagnosis.observed.columns import Columns, chunks, how_often, pick, rows_where
from nagle_lab.diagnosis.observed.connection_columns import Involved, PackedEnd, packed_end
from nagle_lab.diagnosis.observed.programs import LEAST_DELAY
from nagle_lab.diagnosis.proof.outcomes import Judged, Obstacle
from nagle_lab.diagnosis.result.verdict import VerdictInput
from nagle_lab.packet.segment import address_text, end_text
from nagle_lab.tcp.tables import Table


class OpenByServer:
    """How many candidates are left open, and how many had a late ACK, by the server of their connection."""

    def __init__(self) -> None:
        self._open: dict[int, Counter[Obstacle]] = defaultdict(Counter)  # by the number of its program
        self._late: Counter[int] = Counter()
        self._connection: dict[int, int] = {}  # one of each

    def add(self, candidates: Columns, involved: Involved, judged: Judged) -> None:
        """Add what was decided of these candidates."""
        server = involved.of_side("program", 1 - involved.rows("client"))
        is_late = candidates["trigger_to_ack"] - involved.fastest_ack(1 - candidates["side"]) >= LEAST_DELAY
        late = rows_where(is_late & (candidates["pure"] > 0) & (involved.rows("left_out") == 0))
        self._late.update(how_often(pick(server, late)))
        for obstacle, unsure in judged.unresolved:
            for number, count in how_often(pick(server, unsure)).items():
                self._open[number][obstacle] += count
            for row in map(int, unsure):
                self._connection.setdefault(int(server[row]), int(involved.numbers[involved.of[row]]))

    def evidence(self, connections: Table) -> dict[str, VerdictInput]:
        """What there is of each server with two or more that are left open, by its address and port, most first.

        Nothing where there is one server only.
        """
        columns = connections.layout.columns
        numbers: dict[PackedEnd, int] = {}
        for number, left_open in sorted(self._open.items(), key=lambda item: (-item[1].total(), item[0])):
            if left_open.total() > 1:  # one may be an accident
                row = connections.row(self._connection[number])
                numbers[packed_end(row, 1 - row[columns["client"]])] = number
        exchanges, chances, are_others = _totals(connections, set(numbers))
        if len(numbers) == 1 and not are_others:
            return {}
        return {
            end_text(address_text(server[0]), server[1]): VerdictInput(
                tcp_packets=1,  # there were some
                exchanges=exchanges[server],
                stalls=0,
                unresolved=self._open[number],
                late_without_stall=max(self._late[number] - self._open[number].total(), 0),
                chances=chances[server],
            )
            for server, number in numbers.items()
        }


def _totals(connections: Table, servers: set[PackedEnd]) -> tuple[Counter[PackedEnd], Counter[PackedEnd], bool]:
    """Exchanges of these, how often data followed an ACK or did not wait for one; whether there are other servers."""
    exchanges: Counter[PackedEnd] = Counter()
    chances: Counter[PackedEnd] = Counter()
    are_others = False
    if not servers:
        return exchanges, chances, are_others
    columns, unpack = connections.layout.columns, connections.layout.struct.iter_unpack
    for _, packed in chunks(connections):
        for row in unpack(packed):
            if row[columns["left_out"]]:
                continue
            server = packed_end(row, 1 - row[columns["client"]])
            if server not in servers:  # there may be any number of these
                are_others = True
                continue
            exchanges[server] += row[columns["exchanges"]]
            not_held = row[columns["not_held", 0]] + row[columns["not_held", 1]]
            chances[server] += row[columns["followed"]] + not_held
    return exchanges, chances, are_others
