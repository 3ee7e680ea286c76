"""Candidates → decided candidates: the proof of a whole capture, program by program.

It needs every connection to be known: how fast each end reacts, and whether it waits for acknowledgements at all.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from nagle_lab.capture.kernel_answers import KernelAnswer
from nagle_lab.diagnosis.both_ends import BothEnds
from nagle_lab.diagnosis.observed.candidates import Candidates, by_program
from nagle_lab.diagnosis.observed.columns import Column, Columns, as_column, chunks, distinct, highest, total
from nagle_lab.diagnosis.observed.connection_columns import Involved, socket_address
from nagle_lab.diagnosis.observed.enough import REPEATED
from nagle_lab.diagnosis.observed.kernel_answers import AnswersBySocket
from nagle_lab.diagnosis.observed.observed import Setting
from nagle_lab.diagnosis.observed.paths import KnownPaths
from nagle_lab.diagnosis.observed.programs import Programs
from nagle_lab.diagnosis.proof.behaviours import prove_by_behaviour
from nagle_lab.diagnosis.proof.outcomes import Judged, Obstacle
from nagle_lab.diagnosis.proof.relays import leave_open_asked_elsewhere, reject_relayed
from nagle_lab.diagnosis.sums import Astray
from nagle_lab.tcp.tables import Table, Tables


class Decided(NamedTuple):
    """Candidates, n of them, and what the proof decided about them."""

    candidates: Columns
    involved: Involved  # in these
    judged: Judged
    asked: set[int]  # rows of those about which the kernel was asked while the capture was recorded
    ack_delay: Column  # (n,) int64, ns: how long each ACK was late, without the way to the delaying end and back


class _Evidence(NamedTuple):
    """What the proof of some candidates rests on: what their own capture shows of them, or what two do."""

    rows: Columns
    involved: Involved  # in these rows
    programs: Programs
    set_aside: Column  # the rows that are not judged by this evidence
    both_ends: BothEnds | None = None


class Judge:
    """The proof of all candidates in the tables of an engine that has finished.

    Parameters
    ----------
    tables : the engine's
    setting : what holds for all candidates
    coarsest : the largest step of the capture's clocks, ns; of one connection it may be smaller
    answers : what the kernel said of sockets while the capture was recorded
    paths : what was known before the capture
    both_ends : what it shows together with another capture of the same traffic
    """

    def __init__(
        self,
        tables: Tables,
        setting: Setting,
        coarsest: int,
        answers: Sequence[KernelAnswer],
        paths: KnownPaths,
        both_ends: BothEnds | None,
    ) -> None:
        self._connections, self._candidates = tables.connection, tables.candidate
        self._setting, self._coarsest = setting, coarsest
        self._both_ends = both_ends
        self._programs = [Programs(tables, paths)]  # by the own capture, and by both if there are two
        if both_ends:
            self._programs.append(Programs(both_ends.tables, KnownPaths()))
        self._answers = AnswersBySocket(answers, tables.connection)

    def decide(self) -> Iterator[Decided]:
        """All candidates in order of their releases, a chunk at a time, so that memory stays bounded.

        A row of the table may be overwritten once the chunk it was in has been yielded.
        """
        count, done = len(self._candidates), 0
        for candidates in chunks(self._candidates):
            begin, done = done, done + len(candidates)
            for each in self._programs:
                each.look_at_no_waits(int(candidates["release_frame"][-1]) if done < count else None)
            answers = self._answers.of(candidates)
            setting = replace(self._setting, chunk_share=len(candidates) / count, kernel_answers=answers)
            involved = Involved(self._connections, candidates["connection"])
            evidence = self._evidence(candidates, involved, begin)
            judged = self._judge(candidates, involved, evidence, setting)
            best = evidence[0].rows
            on_path = best["under_way"] if self._both_ends else involved.fastest_ack(1 - candidates["side"])
            yield Decided(candidates, involved, judged, answers.rows, best["trigger_to_ack"] - on_path)

    def _evidence(self, candidates: Columns, involved: Involved, begin: int) -> list[_Evidence]:
        """What the proof of these candidates rests on, the best first; the first of them is row ``begin``."""
        if not self._both_ends:
            return [_Evidence(candidates, involved, self._programs[0], as_column([]))]
        both_ends, end = self._both_ends, begin + len(candidates)
        together = {row - begin for row in both_ends.together if begin <= row < end}
        denied = {row - begin for row in both_ends.denied if begin <= row < end}
        others = {*range(len(candidates))} - together
        rows = Columns(self._candidates.layout, both_ends.tables.candidate.read(begin, end))
        of_rows = Involved(both_ends.tables.connection, rows["connection"])
        return [
            _Evidence(rows, of_rows, self._programs[1], as_column(sorted(others)), both_ends),
            _Evidence(candidates, involved, self._programs[0], as_column(sorted(together | denied))),
        ]

    def _judge(
        self, candidates: Columns, involved: Involved, evidence: Sequence[_Evidence], setting: Setting
    ) -> Judged:
        judged, unproved = Judged(), set[int]()  # the keys of programs: what two captures do not prove of these
        for some in evidence:
            for key, of_one in by_program(some.rows, some.involved, some.programs, some.set_aside):
                its_setting = self._setting_of(of_one, setting, some.both_ends)
                of_program = prove_by_behaviour(of_one, some.programs[key], its_setting)
                left_open = sum(len(rows) for _, rows in of_program.unresolved)
                if some.both_ends and not of_program.stall_count and left_open >= REPEATED:
                    unproved.add(key)
                # What two captures do not prove, one does not prove either.
                judged += of_program.all_open(Obstacle.LIKE_A_PROGRAM) if key in unproved else of_program
        reject_relayed(candidates, involved, judged, self._coarsest)
        leave_open_asked_elsewhere(candidates, involved, judged)
        return judged

    def _setting_of(self, c: Candidates, setting: Setting, both_ends: BothEnds | None) -> Setting:
        """The setting by the connections of these candidates only: their ends, their clock, and segments astray."""
        setting = replace(setting, is_on_loopback=_are_on_loopback(self._connections, c.connection))
        if not both_ends and not setting.astray_share and self._coarsest == setting.resolution:
            return setting
        its = Involved(self._connections, c.connection)
        sent, lost, swapped = (
            sum(total(its.column((name, side))) for side in (0, 1)) for name in ("data_segments", "lost", "swapped")
        )
        astray = Astray(sent, lost, swapped)
        setting = replace(setting, astray_share=astray.share, swapped_share=astray.swapped_share)
        if not both_ends:
            return replace(setting, resolution=max(setting.resolution, highest(its.column("clock_step"))))
        sides = {(int(number), int(side)) for number, side in zip(c.connection, c.side, strict=True)}
        return replace(setting, is_at_sender=both_ends.is_at(sides), resolution=both_ends.resolution(sides))


def _are_on_loopback(connections: Table, numbers: Column) -> bool:
    """Whether both ends of each of these connections have one address, or the first one is of 127.0.0.0/8."""
    for number in map(int, distinct(numbers)):
        row = connections.row(number)
        (one, _), (other, _) = socket_address(row, 0), socket_address(row, 1)
        if one != other and not one.startswith("127."):
            return False
    return True
