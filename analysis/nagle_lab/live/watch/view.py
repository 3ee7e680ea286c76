"""The last packets judged: what a live view shows for each program, by the ordinary analysis of a snapshot."""

import time
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import nlargest
from pathlib import Path
from typing import Literal

from nagle_lab.capture.capture import open_capture
from nagle_lab.capture.take import records
from nagle_lab.capture.writer import Pcapng
from nagle_lab.diagnosis.analysis import Analysis
from nagle_lab.diagnosis.observed.enough import REPEATED
from nagle_lab.diagnosis.proof.outcomes import Ground
from nagle_lab.diagnosis.result.part import Part
from nagle_lab.diagnosis.result.result import Connection, Result, Role, Stall
from nagle_lab.diagnosis.result.spread import nearest_rank
from nagle_lab.diagnosis.result.verdict import Verdict
from nagle_lab.evidence.excerpt import EndPair, segments, ways_of
from nagle_lab.evidence.ladder import Ladder, ladder_of
from nagle_lab.live.watch.program_names import UNKNOWN, ProgramName, ProgramNames
from nagle_lab.live.watch.ring import Snapshot

MOST_LOST = 0.001  # share of the packets; if more were lost, nothing is called CLEAN
_SERVER_FIRST: tuple[Role, Role] = ("server", "client")
MOST_ROWS = 1_000  # rows with stalls, and as many without
MOST_CONNECTIONS = 100_000  # if there are more, only the last ones are judged
MOST_PIDS = 9  # at each end of a row
OTHERS = "other servers"


Sure = Literal["certain", "likely", ""]


@dataclass
class Row(Part):
    """One server and a group of clients, or one connection, in the window.

    Times in ms; ``waits`` has one value per stall.
    """

    server: str  # its address and port
    process: str  # at that end; empty if it is not on this host, or not known
    client: str  # the process at the other end, if none is known at the server's; likewise
    where: str = ""  # address of the client, or the number of clients
    clients: str = ""  # the process of all clients that are on this host; empty if there are several
    connections: "array[int]" = field(default_factory=lambda: array("q"))  # their numbers
    lost_ms: float = 0.0
    waits: list[float] = field(default_factory=list)
    held_by: set[str] = field(default_factory=set)
    verdict: Verdict = Verdict.INCONCLUSIVE
    reason: str = ""
    certain: bool = False  # how sure the stalls are
    pids: dict[Role, set[int]] = field(default_factory=dict)  # processes at each end, MOST_PIDS of them

    def prove_nothing(self) -> None:
        """Forget the stalls: the times of the window cannot be compared."""
        self.stalled = self.stalls = self.unresolved = 0
        self.lost_ms = 0.0
        self.waits.clear()
        self.held_by.clear()

    @property
    def key(self) -> tuple[str, str, str]:
        """The key that identifies the row from window to window."""
        return (self.server, self.process, self.client)

    @property
    def peer(self) -> str:
        """The clients of the row in words: a process, an address, or how many."""
        return f"{self.clients} {self.where}".strip()

    @property
    def wait_ms(self) -> float:
        """The median wait, ms; 0 without stalls."""
        return nearest_rank(sorted(self.waits), 50) if self.waits else 0.0

    @property
    def share(self) -> float:
        """The share of the exchanges that stalled, 0 to 1."""
        return min(self.stalled / self.exchanges, 1.0) if self.exchanges else 0.0

    @property
    def sure(self) -> Sure:
        """How sure the stalls are, in one word; empty without stalls."""
        return ("certain" if self.certain else "likely") if self.stalls else ""

    def take(self, connection: Connection, ends: tuple[ProgramName, ProgramName]) -> None:
        """Count a connection, with the processes at its server and its client."""
        self.add(connection)
        for role, end in zip(_SERVER_FIRST, ends, strict=True):
            known = self.pids.setdefault(role, set())
            if end is not UNKNOWN and len(known) < MOST_PIDS:
                known.add(end.pid)
        self.connections.append(connection.id)
        self.lost_ms += connection.lost_ms


@dataclass
class View:
    """What the last packets show."""

    snapshot: Snapshot
    result: Result
    rows: list[Row]  # programs, those that lose most time first
    connections: list[Row]  # the same, a row for each connection, but no more than MOST_ROWS
    row_of: dict[int, Row]  # in ``rows``, of each connection with stalls
    latest: Ladder | None  # of the latest stall
    is_cut: bool  # there were too many connections, so only the last ones are in it
    took_s: float  # to judge it

    @property
    def seconds(self) -> float:
        """Between its first packet and its last."""
        return max(self.result.source.duration_s, 0.001)

    @property
    def is_invalid(self) -> bool:
        """Whether nothing in the window counts, because its clock was set back, or it is damaged."""
        return self.result.verdict is Verdict.INVALID

    def stalls_of(self, row: Row) -> list[Stall]:
        """The stalls of a row, in order of release."""
        numbers = set(row.connections) if row.stalls else set()
        return [stall for stall in self.result.stalls if stall.connection in numbers]

    def connections_of(self, row: Row) -> list[Connection]:
        """The connections of a row, in order of appearance."""
        return [self.result.connections[number] for number in row.connections]

    def ladder(self, stall: Stall) -> Ladder:
        """The ladder of a stall of the view."""
        return ladder_of([self.snapshot.path], self.result, stall)

    def frame(self, stall: Stall) -> int:
        """The frame of a stall's release in the whole stream."""
        return self.snapshot.first + stall.release_frame - 1


def judge_snapshot(
    snapshot: Snapshot,
    names: ProgramNames,
    lost: int,
    wanted: Callable[[Connection], bool],
    *,
    exchanges: bool = False,
) -> View | None:
    """Judge a snapshot; None if it has no TCP packet.

    ``lost`` is how many packets were lost while it was recorded; connections that are not wanted are not shown;
    ``exchanges`` says whether the result lists each exchange.
    """
    began = time.monotonic()
    if not snapshot.path.stat().st_size:
        return None
    result, is_cut = _judge_last(snapshot.path, exchanges)
    if not result.source.tcp_packets:
        return None
    lossy = lost > MOST_LOST * (result.source.packets + lost)
    programs = _Programs(names)
    single = _single_rows(programs.adding(filter(wanted, result.connections)), result, names)
    latest = _count_stalls(result.stalls, programs.of)
    if result.verdict is Verdict.INVALID:
        latest = None
        programs.of.clear()
    rows, single_rows = (_judged(some, result, lossy) for some in (programs.rows(), single))
    ladder = ladder_of([snapshot.path], result, latest) if latest else None
    return View(snapshot, result, rows, single_rows, programs.of, ladder, is_cut, time.monotonic() - began)


def _judge_last(path: Path, exchanges: bool) -> tuple[Result, bool]:
    """Judge the packets of a snapshot, or only the last of them if they have too many connections; returns whether
    that was so.
    """
    analysis, before = Analysis(path, exchanges=exchanges, sha256=False), None
    for _ in analysis:
        if analysis.connections > MOST_CONNECTIONS:
            before = analysis.end_period()
    result = analysis.result()
    if before and result.source.packets < before.source.packets / 2:
        result = before  # what came afterwards is too little to show
    return result, before is not None


class _Programs:
    """A row for each server; for a server on another host, a row for each program here that uses it.

    If there are too many, one row has the rest.
    """

    def __init__(self, names: ProgramNames) -> None:
        self.of: dict[int, Row] = {}  # by number of each connection with stalls
        self._names = names
        self._rows: dict[tuple[str, str, str], Row] = {}
        self._clients: dict[tuple[str, str, str], tuple[set[str], set[str]]] = {}  # addresses and processes

    def adding(self, connections: Iterable[Connection]) -> Iterator[Connection]:
        """Count each of the connections while passing it on."""
        for connection in connections:
            self._add(connection)
            yield connection

    def _add(self, connection: Connection) -> None:
        ends = self._names.ends_of(connection)
        process, client = (end.name for end in ends)
        key = (str(connection.server), process, "" if process else client)
        if key not in self._rows:
            if len(self._rows) >= (2 if connection.stalls else 1) * MOST_ROWS:
                key, client = (OTHERS, "", ""), ""
            if key not in self._rows:
                self._rows[key], self._clients[key] = Row(*key), (set(), set())
        self._rows[key].take(connection, ends)
        self._clients[key][0].add(connection.client.ip)
        self._clients[key][1].update([client] if client else [])
        if connection.stalls:
            self.of[connection.id] = self._rows[key]

    def rows(self) -> list[Row]:
        """All rows, with their clients in words."""
        for key, row in self._rows.items():
            addresses, processes = self._clients[key]
            row.where = next(iter(addresses)) if len(addresses) == 1 else f"{len(addresses)} addresses"
            row.clients = next(iter(processes)) if len(processes) == 1 else ""
        return list(self._rows.values())


def _single_rows(connections: Iterable[Connection], result: Result, names: ProgramNames) -> list[Row]:
    """A row for each connection that lost most time, or was most in use, with the waits of its stalls."""
    rows: dict[int, Row] = {}
    for connection in nlargest(MOST_ROWS, connections, lambda one: (one.lost_ms, one.exchanges, one.id)):
        ends = names.ends_of(connection)
        process, client = (end.name for end in ends)
        row = rows[connection.id] = Row(str(connection.server), process, client, str(connection.client), client)
        row.take(connection, ends)
    _count_stalls(result.stalls, rows)
    return list(rows.values())


def _count_stalls(stalls: Iterable[Stall], rows: Mapping[int, Row]) -> Stall | None:
    """Add waits, and who held, to the rows of the connections; returns the latest of these stalls."""
    latest = None
    for stall in stalls:
        if row := rows.get(stall.connection):
            row.waits.append(stall.wait_ms)
            row.held_by.add(stall.held_by.role)
            latest = stall
    return latest


def _judged(rows: list[Row], result: Result, lossy: bool) -> list[Row]:
    """The rows with their verdicts, those that lose most time first."""
    grounds = set(result.summary.grounds)
    for row in rows:
        row.verdict, row.reason = _judge(row, result, lossy)
        if result.verdict is Verdict.INVALID:
            row.prove_nothing()
        row.certain = result.summary.is_certain and (row.stalls >= REPEATED or grounds == {Ground.SEEN_WAITING})
    return sorted(rows, key=lambda row: (-row.lost_ms, -row.exchanges))


def _judge(row: Row, result: Result, lossy: bool) -> tuple[Verdict, str]:
    """The verdict on the connections of the row, and its reason."""
    verdict, reason, _ = row.decide(result)
    if lossy and verdict is Verdict.CLEAN:
        return Verdict.INCONCLUSIVE, "packets were lost while recording"
    return verdict, reason


def write_packets(capture: Path, connections: Sequence[Connection], out: Path) -> int:
    """Write the packets of some connections of a capture to ``out``, a new file; returns how many.

    The kernel's answers about their data are written, too.

    Raises OSError; FileExistsError if ``out`` exists.
    """
    ends: set[EndPair] = {max(way, way[2:] + way[:2]) for one in connections for way in ways_of(one)}
    frames = {segment.frame for segment in segments(capture, ends=ends)}
    with out.open("xb") as file:
        writer, numbers = Pcapng(file), dict[tuple[int, int], int]()
        with open_capture(capture, sha256=False) as opened:
            for record in records(opened):
                if record.frame not in frames:
                    continue
                key = (record.interface, record.link_type)
                if key not in numbers:
                    numbers[key] = len(numbers)
                    writer.add_interface(f"interface {record.interface}", link_type=record.link_type)
                writer.add(record.ts, numbers[key], record.original, record.data)
            wanted = {frozenset(socket) for one in connections for socket in one.sockets}
            for answer in opened.facts.kernel_answers if numbers else ():
                if frozenset((answer.sender, answer.receiver)) in wanted:
                    writer.add_answer(answer)
    return len(frames)
