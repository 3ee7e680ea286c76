"""What a whole capture shows: the stalls proved, and everything counted by connection and in all.

:func:`find` goes once through what the engine noted, a chunk of rows at a time, so memory stays bounded.
"""

from collections import Counter
from collections.abc import Sequence
from enum import StrEnum
from functools import cached_property
from typing import Any, TypeVar

from nagle_lab.capture.kernel_answers import KernelAnswer
from nagle_lab.diagnosis.both_ends import BothEnds
from nagle_lab.diagnosis.ends import ROLES, Ends
from nagle_lab.diagnosis.judging import Decided, Judge
from nagle_lab.diagnosis.left_out import Unwanted, Wanted, leave_out_others, mark_seen_again
from nagle_lab.diagnosis.observed.columns import (
    Column,
    Columns,
    add_all,
    among,
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
from nagle_lab.diagnosis.observed.connection_columns import Involved
from nagle_lab.diagnosis.observed.observed import NEAR, Setting
from nagle_lab.diagnosis.observed.paths import KnownPaths
from nagle_lab.diagnosis.proof.late_acks import is_before_timer, is_delayed_ack
from nagle_lab.diagnosis.proof.outcomes import Ground, Judged, Obstacle, PassedOn, Rejected
from nagle_lab.diagnosis.result import idle_gaps
from nagle_lab.diagnosis.result.result import Role
from nagle_lab.diagnosis.servers import Servers
from nagle_lab.diagnosis.sums import Sums, count_astray, largest_clock_step
from nagle_lab.tcp.durations import Durations
from nagle_lab.tcp.engine import EngineTotals
from nagle_lab.tcp.events import IDLE, EndedBy
from nagle_lab.tcp.tables import Tables

Name = TypeVar("Name", bound=StrEnum)


def find(
    tables: Tables,
    totals: EngineTotals,
    only: Wanted | None = None,
    *,
    answers: Sequence[KernelAnswer] = (),
    paths: KnownPaths | None = None,
    both_ends: BothEnds | None = None,
) -> "Findings":
    """What a capture shows, from what an engine found that has finished: the proof runs here.

    Parameters
    ----------
    tables, totals : the engine's; of the candidates only the stalls are kept
    only : which connections are to be judged; None: all
    answers : what the kernel said of sockets while the capture was recorded
    paths : what was known before the capture
    both_ends : what it shows together with another capture of the same traffic
    """
    seen_again = mark_seen_again(tables.connection)
    unwanted = leave_out_others(tables.connection, only) if only else Unwanted()
    findings = Findings(
        tables,
        totals,
        unwanted,
        are_some_left_out=bool(seen_again or unwanted.connections),
        is_of_both_ends=both_ends is not None and both_ends.are_at_both,
    )
    setting = Setting(
        resolution=totals.resolution,
        astray_share=findings.astray.share,
        swapped_share=findings.astray.swapped_share,
        copied=totals.is_copied,
        seen_again=seen_again,
    )
    if both_ends:
        both_ends.leave_out(seen_again)
    judge = Judge(tables, setting, findings.resolution, answers, paths or KnownPaths(), both_ends)
    for decided in judge.decide():
        findings.add(decided)
    findings.finish()
    return findings


class Findings:
    """What a capture shows, by :func:`find`; times in ns.

    Attributes
    ----------
    connections : the engine's, filled in
    stalls : the engine's candidates, of which only the stalls are left, in order of their releases
    is_of_both_ends : whether the proof rests on two captures of the same traffic, one at each end
    wait, release : of the stalls
    ack_timer : waits less the way to the delaying end and back: its delayed-ACK timer
    rejected : candidates that are not stalls, by reason
    obstacles : undecided candidates, by reason
    asked : about how many of these the kernel was asked while the capture was recorded, by reason
    servers : stalls and undecided candidates by the server of the connection
    grounds : what the stalls are proved by
    held_at_least, held_at_most : of the stalls, how long their data was held
    behind_full : stalls whose trigger was a full segment
    unresolved_exchanges : undecided exchanges, of those answered: one of their candidates is undecided, and none is a
        stall
    relays : how often data of a connection followed that of another one, as at a relay
    round_trips : how long Nagle's algorithm waited for ACKs that were not delayed
    waited_by : how often that happened, by the role of the end whose data waited
    resolution : of the capture's clock; the coarsest if there are several
    astray : data segments that the capture lacks, or has after their acknowledgement
    sent_late : how often data was sent late behind data whose ACK a filter may have left out
    idle : idle gaps by cause
    held, delayed, undecided : the ends that held, that delayed, and that may have held
    unwanted : connections that are not to be judged
    """

    def __init__(
        self,
        tables: Tables,
        totals: EngineTotals,
        unwanted: Unwanted,
        *,
        are_some_left_out: bool,
        is_of_both_ends: bool,
    ) -> None:
        self.connections = tables.connection
        self.stalls = tables.candidate  # each chunk of candidates is replaced by its stalls: see _keep
        self._kept = 0
        self.is_of_both_ends = is_of_both_ends
        self.wait, self.release, self.ack_timer = Durations(1_000), Durations(1), Durations(1_000)
        self.rejected: Counter[Rejected] = Counter(dict.fromkeys(Rejected, 0))
        self.grounds: Counter[Ground] = Counter()
        self.obstacles: Counter[Obstacle] = Counter()
        self.asked: Counter[Obstacle] = Counter()
        self.relays: Counter[PassedOn] = Counter()
        self.held_at_least, self.held_at_most = Durations(1_000), Durations(1_000)
        self.behind_full = self.unresolved_exchanges = 0
        self.round_trips = Durations(1_000)
        self.waited_by: Counter[Role] = Counter(dict.fromkeys(ROLES, 0))
        self.idle: idle_gaps.CauseTotals = {}
        self.held, self.delayed, self.undecided = Ends(), Ends(), Ends()
        self.servers = Servers(tables.connection)
        self.unwanted, self._are_some_left_out = unwanted, are_some_left_out
        self.sent_late, self._is_data_only = 0, totals.is_data_only
        for gaps in chunks(tables.idle_gap):
            self._count_idle(gaps)
        for late in chunks(tables.delayed_ack):
            self._count_delayed_acks(late)
        for counted in (tables.idle_gap, tables.delayed_ack):
            counted.cut(0)  # the proof needs the memory
        self.astray = count_astray(tables.connection)
        self.resolution = max(totals.resolution, largest_clock_step(tables.connection))

    def add(self, decided: Decided) -> None:
        """Count what the proof decided about some candidates, and keep the stalls."""
        candidates, involved, judged, asked, ack_delay = decided
        self._count_judged(judged, candidates, involved, asked)
        stalls, round_trips = in_order(judged.stalls), in_order(judged.round_trips)
        gaps = _idle_gaps_ended(candidates, involved)
        for rows, cause in (
            (stalls, idle_gaps.Cause.NAGLE_DELAYED_ACK),
            (round_trips, idle_gaps.Cause.NAGLE_ROUND_TRIP),
            (_kept_by_msg_more(judged, candidates, involved), idle_gaps.Cause.MSG_MORE),
            (_open_without_ack(judged, candidates), idle_gaps.Cause.UNKNOWN),
        ):
            long = pick(rows, rows_where(pick(gaps["gap"], rows) >= IDLE))
            these = {name: pick(column, long) for name, column in gaps.items()}
            idle_gaps.add_totals(self.idle, idle_gaps.recategorized(these, cause))
        self._count_round_trips(round_trips, candidates, involved)
        if len(stalls):
            self._keep(candidates.packed, stalls)
            self._count_stalls(stalls, candidates, involved)
            add_all(self.ack_timer, pick(ack_delay, stalls))

    def finish(self) -> None:
        """Keep only the stalls, and order the counts, after the last candidates."""
        self.grounds = _in_order_of(Ground, self.grounds)
        self.obstacles = _in_order_of(Obstacle, self.obstacles)
        self.stalls.cut(self._kept)

    @cached_property
    def sums(self) -> Sums:
        """Over all connections, once all candidates are decided."""
        return Sums(self.connections)

    @property
    def late_without_stall(self) -> int:
        """How often data followed a late ACK and was no stall, by the proof."""
        return self.rejected.total() - self.rejected[Rejected.NOT_LATE]

    def _count_idle(self, gaps: Columns) -> None:
        counted = {name: gaps[name] for name in ("connection", *idle_gaps.COLUMNS)}
        if self._are_some_left_out:
            rows = rows_where(Involved(self.connections, gaps["connection"]).rows("left_out") == 0)
            if not len(rows):
                return
            counted = {name: pick(column, rows) for name, column in counted.items()}
        involved = Involved(self.connections, counted["connection"])
        if self._is_data_only:
            goes_on = _may_follow_ack(counted, involved)
            self.sent_late += total(goes_on)
            counted["ended_by"] = select(goes_on, int(EndedBy.OTHER), counted["ended_by"])
        idle_gaps.add_totals(self.idle, idle_gaps.totals_by_cause(_with_their_ends(counted, involved)))

    def _count_judged(self, judged: Judged, candidates: Columns, involved: Involved, asked: set[int]) -> None:
        """Count what is no stall; the kernel was ``asked`` about the candidates of these rows."""
        full = involved.of_side("full_segment", candidates["side"])
        second_writes = (candidates["pure"] > 0) & (is_full(candidates["trigger_bytes"], full) == 0)
        _increase(involved, "followed", pick(involved.of, rows_where(second_writes)))
        late = in_order([rows for why, rows in judged.rejected if why is not Rejected.NOT_LATE])
        _increase(involved, "late_without_stall", pick(involved.of, late))
        self.rejected.update(judged.rejected_by)
        self.servers.add(candidates, involved, judged, asked)
        for hold in judged.holds:
            add_all(self.held_at_least, hold.least)
            add_all(self.held_at_most, hold.most)
        self.grounds += judged.grounds
        for obstacle, unsure in judged.unresolved:
            self.obstacles[obstacle] += len(unsure)
            self.undecided.add(involved, candidates["side"], unsure, obstacle)
            self.asked[obstacle] += sum(int(row) in asked for row in unsure) if asked else 0
            _increase(involved, "unresolved", pick(involved.of, unsure))
        in_view = len(self.connections)  # connections that only another capture shows are not named
        self.relays += Counter({one: times for one, times in judged.relays.items() if one.brought_by < in_view})
        self.unresolved_exchanges += _unresolved_exchanges(candidates, involved, judged)

    def _count_round_trips(self, rows: Column, candidates: Columns, involved: Involved) -> None:
        """How long data was held until an ACK that was not delayed."""
        # At the peer most of the round trip is from the ACK to the release.
        waits = pick(candidates["trigger_to_ack"] + candidates["ack_to_release"], rows)
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


def _open_without_ack(judged: Judged, candidates: Columns) -> Column:
    """The undecided rows whose ACK the capture lacks, so that what ended with the data seems to be its program's."""
    unsure = in_order([rows for _, rows in judged.unresolved])
    return pick(unsure, rows_where(pick(candidates["ack_frame"], unsure) == 0))


def _idle_gaps_ended(candidates: Columns, involved: Involved) -> dict[str, Column]:
    """The idle gaps that the candidates' ACKs ended, or their data where the capture lacks the ACK: see ``Gaps``."""
    gaps = {name: candidates["gap_" + name] for name in ("ended_by", "small", "reply")}
    side = candidates["side"]
    gaps |= {"gap": candidates["gap"], "side": select(candidates["ack_frame"] > 0, 1 - side, side)}
    return _with_their_ends(gaps, involved)


def _may_follow_ack(gaps: dict[str, Column], involved: Involved) -> Column:
    """Which gaps ended with data without timestamps after data of the same end: the ACK between them may be missing.

    Without that ACK a release looks like a loss probe, too, if the ACK timer takes 200 ms.
    """
    goes_on = (gaps["ended_by"] == EndedBy.CONTINUATION) | (gaps["ended_by"] == EndedBy.RETRANSMISSION)
    return goes_on & (involved.of_side("tsval_clock", gaps["side"]) < 0)


def _with_their_ends(gaps: dict[str, Column], involved: Involved) -> dict[str, Column]:
    """These idle gaps with the other columns that their causes follow from: see ``Gaps``."""
    fastest_ack = involved.fastest_ack(gaps["side"])
    return gaps | {"fastest_ack": fastest_ack, "syns": involved.rows("syns"), "client": involved.rows("client")}


def _unresolved_exchanges(candidates: Columns, involved: Involved, judged: Judged) -> int:
    """Answered exchanges with an unresolved candidate and no stall; an exchange may have several."""
    connection, exchange = candidates["connection"], candidates["exchange"]
    span = highest(exchange) + 1
    keys = connection * span + exchange
    is_answered = _is_unanswered(exchange, involved.rows("open_exchange"), involved.rows("server_first")) == 0
    rows = in_order([rows for _, rows in judged.unresolved])
    unsure = distinct(pick(keys, pick(rows, rows_where(pick(is_answered, rows)))))
    stalled = pick(keys, in_order(judged.stalls))
    return len(unsure) - total(among(unsure, stalled)) if len(unsure) else 0


def _is_unanswered(exchange: Column, open_exchange: Column, server_first: Column) -> Column:
    """Which exchanges are not among the answered ones: the last one of a connection, or a greeting, its first."""
    return (exchange == open_exchange) | ((server_first > 0) & (exchange == 0))


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
