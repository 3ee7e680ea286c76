"""What a whole capture shows: the stalls proved, and everything counted by connection and in all.

What the engine found is processed once, now that every connection is known: how fast each end reacts, and whether it
waits for acknowledgements at all. Every step takes a chunk of rows, so memory stays bounded.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum
from typing import Any, NamedTuple, TypeVar

from nagle_lab.capture.kernel_answers import KernelAnswer
from nagle_lab.diagnosis.both_ends import BothEnds
from nagle_lab.diagnosis.ends import ROLES, Ends
from nagle_lab.diagnosis.left_out import Unwanted, Wanted, leave_out_others, mark_seen_again
from nagle_lab.diagnosis.observed.candidates import Candidates, by_program
from nagle_lab.diagnosis.observed.columns import (
    Column,
    Columns,
    add_all,
    among,
    as_column,
    chunks,
    counts,
    distinct,
    highest,
    in_order,
    is_full,
    pick,
    replaced,
    rows_where,
    select,
    sums,
    total,
)
from nagle_lab.diagnosis.observed.connection_columns import Involved, socket_address
from nagle_lab.diagnosis.observed.enough import REPEATED
from nagle_lab.diagnosis.observed.kernel_answers import AnswersBySocket
from nagle_lab.diagnosis.observed.observed import NEAR, Setting
from nagle_lab.diagnosis.observed.paths import KnownPaths
from nagle_lab.diagnosis.observed.programs import Programs
from nagle_lab.diagnosis.proof.behaviours import prove_by_behaviour
from nagle_lab.diagnosis.proof.late_acks import is_before_timer, is_delayed_ack
from nagle_lab.diagnosis.proof.outcomes import Ground, Hold, Judged, Obstacle, Rejected
from nagle_lab.diagnosis.proof.relays import leave_open_asked_elsewhere, reject_relayed
from nagle_lab.diagnosis.result import idle_gaps
from nagle_lab.diagnosis.result.result import Role
from nagle_lab.diagnosis.servers import Servers
from nagle_lab.diagnosis.sums import Astray, Sums, count_astray, count_sent_late, largest_clock_step
from nagle_lab.tcp.durations import Durations
from nagle_lab.tcp.events import IDLE
from nagle_lab.tcp.tables import Table, Tables

Name = TypeVar("Name", bound=StrEnum)


class _Evidence(NamedTuple):
    """What the proof of some candidates rests on: what their own capture shows of them, or what two do."""

    rows: Columns
    involved: Involved  # in these rows
    programs: Programs
    set_aside: Column  # the rows that are not judged by this evidence
    both_ends: BothEnds | None = None


class Findings:
    """What a capture shows, from the tables of an engine that has finished; times in ns.

    Making it runs the proof (:meth:`_prove_all`); afterwards it only holds what was found.

    Attributes
    ----------
    connections : the engine's, filled in
    stalls : the engine's candidates, of which only the stalls are left, in order of their releases
    wait, release : of the stalls
    ack_timer : waits less the way to the delaying end and back: its delayed-ACK timer
    rejected : candidates that are not stalls, by reason
    obstacles : undecided candidates, by reason
    asked : about how many of these the kernel was asked while the capture was recorded, by reason
    servers : stalls and undecided candidates by the server of the connection
    grounds : what the stalls are proved by
    holds : of the stalls of each program, and of each peer that is looked at by itself
    behind_full : stalls whose trigger was a full segment
    unresolved_exchanges : undecided exchanges: one of their candidates is undecided, and none is a stall
    relays : how often data of a connection followed that of another one, as at a relay
    round_trips : how long Nagle's algorithm waited for ACKs that were not delayed
    waited_by : how often that happened, by the role of the end whose data waited
    resolution : of the capture's clock; the coarsest if there are several
    astray : data segments that the capture lacks, or has after their acknowledgement
    sent_late : how often data was sent late behind unacknowledged data; 0 if there is any late ACK
    idle : idle gaps by cause
    held, delayed, undecided : the ends that held, that delayed, and that may have held
    unwanted : connections that are not to be judged
    sums : over all connections
    """

    def __init__(
        self,
        tables: Tables,
        resolution: int = 1,
        only: Wanted | None = None,
        *,
        copied: bool = False,
        answers: Sequence[KernelAnswer] = (),
        paths: KnownPaths | None = None,
        both_ends: BothEnds | None = None,
    ) -> None:
        self._both_ends = both_ends
        self.connections = tables.connection
        self.stalls = tables.candidate  # only the stalls are kept
        self._kept = 0
        self.wait, self.release, self.ack_timer = Durations(1_000), Durations(1), Durations(1_000)
        self.rejected: Counter[Rejected] = Counter(dict.fromkeys(Rejected, 0))
        self.grounds: Counter[Ground] = Counter()
        self.obstacles: Counter[Obstacle] = Counter()
        self.asked: Counter[Obstacle] = Counter()
        self.relays: Counter[tuple[int, int]] = Counter()
        self.holds: list[Hold] = []
        self.behind_full = self.unresolved_exchanges = 0
        self.round_trips = Durations(1_000)
        self.waited_by: Counter[Role] = Counter(dict.fromkeys(ROLES, 0))
        self.idle: idle_gaps.CauseTotals = {}
        self.held, self.delayed, self.undecided = Ends(), Ends(), Ends()
        self.servers = Servers()
        seen_again = mark_seen_again(tables.connection)
        self.unwanted = leave_out_others(tables.connection, only) if only else Unwanted()
        self._are_some_left_out = bool(seen_again or self.unwanted.connections)
        self.sent_late = 0 if len(tables.delayed_ack) else count_sent_late(tables.no_wait)
        self._count_before_judging(tables)
        self.astray = count_astray(tables.connection)
        self.resolution = max(resolution, largest_clock_step(tables.connection))
        setting = Setting(
            resolution=resolution,
            astray_share=self.astray.share,
            swapped_share=self.astray.swapped_share,
            copied=copied,
            seen_again=seen_again,
        )
        programs = [Programs(tables, paths or KnownPaths())]
        if both_ends:
            both_ends.leave_out(seen_again)
            programs.append(Programs(both_ends.tables, KnownPaths()))
        self._prove_all(tables, programs, setting, AnswersBySocket(answers, tables.connection))
        self.servers.sum_up(self.connections)
        self.sums = Sums(self.connections)

    @property
    def is_of_both_ends(self) -> bool:
        """Whether the proof rests on two captures of the same traffic, one at each end."""
        return self._both_ends is not None and self._both_ends.are_at_both

    @property
    def late_without_stall(self) -> int:
        """How often data followed a late ACK and was no stall, by the proof."""
        return self.rejected.total() - self.rejected[Rejected.NOT_LATE]

    def _count_before_judging(self, tables: Tables) -> None:
        for gaps in chunks(tables.idle_gap):
            self._count_idle(gaps)
        for late in chunks(tables.delayed_ack):
            self._count_delayed_acks(late)
        for counted in (tables.idle_gap, tables.delayed_ack):
            counted.cut(0)  # the proof needs the memory

    def _prove_all(
        self, tables: Tables, programs: Sequence[Programs], setting: Setting, by_socket: AnswersBySocket
    ) -> None:
        count, done = len(tables.candidate), 0
        for candidates in chunks(tables.candidate):
            begin, done = done, done + len(candidates)
            for each in programs:
                each.look_at_no_waits(int(candidates["release_frame"][-1]) if done < count else None)
            of_these = replace(setting, chunk_share=len(candidates) / count, kernel_answers=by_socket.of(candidates))
            self._prove(candidates, begin, programs, of_these)
        self.grounds = _in_order_of(Ground, self.grounds)
        self.obstacles = _in_order_of(Obstacle, self.obstacles)
        self.stalls.cut(self._kept)

    def _count_idle(self, gaps: Columns) -> None:
        judged = {name: gaps[name] for name in ("connection", *idle_gaps.COLUMNS)}
        if self._are_some_left_out:
            rows = rows_where(Involved(self.connections, gaps["connection"]).rows("left_out") == 0)
            if not len(rows):
                return
            judged = {name: pick(column, rows) for name, column in judged.items()}
        involved = Involved(self.connections, judged["connection"])
        idle_gaps.add_totals(self.idle, idle_gaps.totals_by_cause(_with_their_ends(judged, involved)))

    def _prove(self, candidates: Columns, begin: int, programs: Sequence[Programs], setting: Setting) -> None:
        involved = Involved(self.connections, candidates["connection"])
        evidence = self._evidence(candidates, involved, begin, programs)
        judged = self._judge(candidates, involved, evidence, setting)
        self._count_judged(judged, candidates, involved, setting.kernel_answers.rows)
        stalls, round_trips = in_order(judged.stalls), in_order(judged.round_trips)
        gaps = _idle_gaps_ended(candidates, involved)
        for rows, cause in (
            (stalls, idle_gaps.Cause.NAGLE_DELAYED_ACK),
            (round_trips, idle_gaps.Cause.NAGLE_ROUND_TRIP),
            (_kept_by_msg_more(judged, candidates, involved), idle_gaps.Cause.MSG_MORE),
        ):
            long = pick(rows, rows_where(pick(gaps["gap"], rows) >= IDLE))
            these = {name: pick(column, long) for name, column in gaps.items()}
            idle_gaps.add_totals(self.idle, idle_gaps.recategorized(these, cause))
        self._count_round_trips(round_trips, candidates, involved)
        if len(stalls):
            self._keep(candidates.packed, stalls)
            self._count_stalls(stalls, candidates, involved)
            rows = evidence[-1].rows
            on_path = rows["under_way"] if self._both_ends else involved.fastest_ack(1 - candidates["side"])
            add_all(self.ack_timer, pick(rows["trigger_to_ack"] - on_path, stalls))

    def _evidence(
        self, candidates: Columns, involved: Involved, begin: int, programs: Sequence[Programs]
    ) -> list[_Evidence]:
        """What the proof of these candidates rests on; the first of them is row ``begin``."""
        if not self._both_ends:
            return [_Evidence(candidates, involved, programs[0], as_column([]))]
        both_ends, end = self._both_ends, begin + len(candidates)
        together, denied = (
            {row - begin for row in some if begin <= row < end} for some in (both_ends.together, both_ends.denied)
        )
        rows = Columns(self.stalls.layout, both_ends.tables.candidate.read(begin, end))
        of_rows = Involved(both_ends.tables.connection, rows["connection"])
        others = as_column(sorted({*range(len(candidates))} - together))
        return [
            _Evidence(candidates, involved, programs[0], as_column(sorted(together | denied))),
            _Evidence(rows, of_rows, programs[1], others, both_ends),
        ]

    def _judge(
        self, candidates: Columns, involved: Involved, evidence: Sequence[_Evidence], setting: Setting
    ) -> Judged:
        judged, not_held = Judged(), set[int]()
        for some in reversed(evidence):
            for key, of_one in by_program(some.rows, some.involved, some.programs, some.set_aside):
                some.programs[key].is_on_loopback = _are_on_loopback(self.connections, of_one.connection)
                its_setting = self._setting_of(of_one, setting, some.both_ends)
                of_program = prove_by_behaviour(of_one, some.programs[key], its_setting)
                left_open = sum(len(rows) for _, rows in of_program.unresolved)
                if some.both_ends and not of_program.stall_count and left_open >= REPEATED:
                    not_held.add(key)  # what two captures do not prove, one does not prove either
                judged += of_program.all_open(Obstacle.LIKE_A_PROGRAM) if key in not_held else of_program
        reject_relayed(candidates, involved, judged, self.resolution)
        leave_open_asked_elsewhere(candidates, involved, judged)
        return judged

    def _setting_of(self, c: Candidates, setting: Setting, both_ends: BothEnds | None) -> Setting:
        """The setting by the connections of these candidates only: their clock, and segments astray."""
        if both_ends:
            sides = {(int(number), int(side)) for number, side in zip(c.connection, c.side, strict=True)}
            at_sender, resolution = both_ends.is_at(sides), both_ends.resolution(sides)
            return replace(self._with_astray(c, setting), is_at_sender=at_sender, resolution=resolution)
        if not setting.astray_share and self.resolution == setting.resolution:
            return setting
        columns, numbers = self.connections.layout.columns, map(int, distinct(c.connection))
        steps = [self.connections.row(number)[columns["clock_step"]] for number in numbers]
        return replace(self._with_astray(c, setting), resolution=max(setting.resolution, *steps))

    def _with_astray(self, c: Candidates, setting: Setting) -> Setting:
        """The setting with the share of segments that are astray on the connections of these candidates."""
        columns = self.connections.layout.columns
        sent = lost = swapped = 0
        for number in map(int, distinct(c.connection)):
            row = self.connections.row(number)
            for side in (0, 1):
                sent += row[columns["data_segments", side]]
                lost += row[columns["lost", side]]
                swapped += row[columns["swapped", side]]
        astray = Astray(sent, lost, swapped)
        return replace(setting, astray_share=astray.share, swapped_share=astray.swapped_share)

    def _count_judged(self, judged: Judged, candidates: Columns, involved: Involved, asked: set[int]) -> None:
        """Count what is no stall; the kernel was ``asked`` about the candidates of these rows."""
        full = involved.of_side("full_segment", candidates["side"])
        second_writes = (candidates["pure"] > 0) & (is_full(candidates["trigger_bytes"], full) == 0)
        _increase(involved, "followed", pick(involved.of, rows_where(second_writes)))
        self.rejected.update(judged.rejected_by)
        self.servers.add(candidates, involved, judged, asked)
        self.holds += judged.holds
        self.grounds += judged.grounds
        for obstacle, unsure in judged.unresolved:
            self.obstacles[obstacle] += len(unsure)
            self.undecided.add(involved, candidates["side"], unsure, obstacle)
            self.asked[obstacle] += sum(int(row) in asked for row in unsure) if asked else 0
            _increase(involved, "unresolved", pick(involved.of, unsure))
        in_view = len(self.connections)  # connections that only another capture shows are not named
        self.relays += Counter({both: times for both, times in judged.relays.items() if both[1] < in_view})
        self.unresolved_exchanges += _unresolved_exchanges(candidates, judged)

    def _count_round_trips(self, rows: Column, candidates: Columns, involved: Involved) -> None:
        """How long data was held until an ACK that was not delayed."""
        since = candidates["trigger_to_ack"] + candidates["ack_to_release"]
        waits = pick(since, rows)  # at the peer most of the round trip is from the ACK to the release
        add_all(self.round_trips, waits)
        _sum_up(involved, "round_trips", pick(involved.of, rows), waits)
        by_server = total(pick(candidates["side"] != involved.rows("client"), rows))
        self.waited_by.update({"client": len(rows) - by_server, "server": by_server})

    def _count_stalls(self, rows: Column, candidates: Columns, involved: Involved) -> None:
        side, wait = candidates["side"], pick(candidates["trigger_to_ack"], rows)
        full, trigger = involved.of_side("full_segment", side), candidates["trigger_bytes"]
        self.behind_full += total(pick(is_full(trigger, full), rows))
        _sum_up(involved, "held", pick(involved.of, rows), wait)
        add_all(self.wait, wait)
        add_all(self.release, pick(candidates["ack_to_release"], rows))
        self.servers.add_stalls(side, involved, rows)
        self.held.add(involved, side, rows)
        self.delayed.add(involved, 1 - side, rows)
        _count_stalled_exchanges(involved, pick(involved.of, rows), pick(candidates["exchange"], rows))

    def _keep(self, packed: bytes | memoryview, rows: Column) -> None:
        """Keep these of the ``packed`` rows, which are read already, behind those already kept."""
        size = self.stalls.layout.struct.size
        if rows[-1] == len(rows) - 1:  # all that come first
            self._kept = self.stalls.keep(self._kept, memoryview(packed)[: len(rows) * size])
        else:
            chosen = b"".join(packed[row * size : (row + 1) * size] for row in map(int, rows))
            self._kept = self.stalls.keep(self._kept, chosen)

    def _count_delayed_acks(self, late: Columns) -> None:
        involved, side, wait = Involved(self.connections, late["connection"]), late["side"], late["wait"]
        fastest_ack = involved.fastest_ack(side)
        delayed = is_delayed_ack(wait, fastest_ack)
        early = delayed & is_before_timer(wait, fastest_ack)
        for name, kept in (("delayed_acks", delayed), ("acks_before_timer", early)):
            for which in (0, 1):
                rows = rows_where(kept & (side == which))
                _increase(involved, (name, which), pick(involved.of, rows))


def _kept_by_msg_more(judged: Judged, candidates: Columns, involved: Involved) -> Column:
    """The rows whose sender had announced more (MSG_MORE), and that left right after the ACK they had waited for."""
    announced = in_order([rows for why, rows in judged.rejected if why is Rejected.CORKED])
    after_ack = candidates["ack_to_release"] - involved.fastest_ack(candidates["side"])
    return pick(announced, rows_where(pick(after_ack, announced) < NEAR))


def _idle_gaps_ended(candidates: Columns, involved: Involved) -> dict[str, Column]:
    """The idle gaps that the candidates' ACKs ended, or their data where the capture lacks the ACK: see ``Gaps``."""
    gaps = {name: candidates["gap_" + name] for name in ("ended_by", "small", "reply")}
    side = candidates["side"]
    gaps |= {"gap": candidates["gap"], "side": select(candidates["ack_frame"] > 0, 1 - side, side)}
    return _with_their_ends(gaps, involved)


def _with_their_ends(gaps: dict[str, Column], involved: Involved) -> dict[str, Column]:
    """These idle gaps with the other columns that their causes follow from: see ``Gaps``."""
    fastest_ack = involved.fastest_ack(gaps["side"])
    return gaps | {"fastest_ack": fastest_ack, "syns": involved.rows("syns"), "client": involved.rows("client")}


def _are_on_loopback(connections: Table, numbers: Column) -> bool:
    """Whether both ends of each of these connections have one address, or the first one is of 127.0.0.0/8."""
    rows = map(connections.row, map(int, distinct(numbers)))
    ends = ([address for address, _ in (socket_address(row, side) for side in (0, 1))] for row in rows)
    return all(one == other or one.startswith("127.") for one, other in ends)


def _unresolved_exchanges(candidates: Columns, judged: Judged) -> int:
    """Exchanges with an unresolved candidate and no stall; an exchange may have several."""
    connection, exchange = candidates["connection"], candidates["exchange"]
    span = highest(exchange) + 1
    unsure, stalled = (
        pick(connection * span + exchange, rows)
        for rows in (in_order([rows for _, rows in judged.unresolved]), in_order(judged.stalls))
    )
    keys = distinct(unsure)
    return len(keys) - total(among(keys, stalled)) if len(keys) else 0


def _count_stalled_exchanges(involved: Involved, connection: Column, exchange: Column) -> None:
    """Stalls and stalled exchanges of each connection; an unanswered exchange counts once it has stalled.

    ``connection`` (n,) says to which of those involved each stall belongs.
    """
    _increase(involved, "stalls", connection)
    span = highest(exchange) + 1
    stalled = distinct(connection * span + exchange)
    connection, exchange = (stalled // span), (stalled % span)
    before = involved.column("last_stalled")
    new = rows_where(exchange != pick(before, connection))  # not in the chunk before
    connection, exchange = pick(connection, new), pick(exchange, new)
    _increase(involved, "stalled_exchanges", connection)
    # They are in order; of several on one connection the last one written stays.
    first = involved.column("first_stalled")
    earliest = replaced(first, connection[::-1], exchange[::-1])
    involved.fill_in("first_stalled", select(first < 0, earliest, first))
    involved.fill_in("last_stalled", replaced(before, connection, exchange))
    open_ones, server_first = (pick(involved.column(name), connection) for name in ("open_exchange", "server_first"))
    unanswered = rows_where(_is_unanswered(exchange, open_ones, server_first))
    connection, exchange = pick(connection, unanswered), pick(exchange, unanswered)
    _increase(involved, "exchanges", connection)
    _increase(involved, "repeat_exchanges", pick(connection, rows_where(exchange > 0)))


def _increase(involved: Involved, name: Any, connections: Column) -> None:
    """Add one for each of these of the connections involved; they may repeat."""
    more = counts(connections, len(involved.numbers))
    involved.fill_in(name, involved.column(name) + more)


def _sum_up(involved: Involved, name: str, connections: Column, ns: Column) -> None:
    """Add times to these of the connections involved; they may repeat."""
    more = sums(connections, ns, len(involved.numbers))
    involved.fill_in(name, involved.column(name) + more)


def _in_order_of(names: type[Name], counted: Counter[Name]) -> Counter[Name]:
    """The same counts in the order of their names, whichever program had them first."""
    return Counter({name: counted[name] for name in names if counted[name]})


def _is_unanswered(number: Column, open_number: Column, server_first: Column) -> Column:
    return (number == open_number) | ((server_first > 0) & (number == 0))
