"""TCP_NODELAY tried on a running program: recordings before and after the change, compared."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from nagle_lab.capture.kernel_answers import SocketAddress
from nagle_lab.diagnosis.result.could_stall import Missing, what_is_missing
from nagle_lab.diagnosis.result.result import Connection, Result, Role
from nagle_lab.diagnosis.result.verdict import Verdict
from nagle_lab.errors import Exit
from nagle_lab.experiments.comparison import Subject, subject_of_capture
from nagle_lab.experiments.software.guarded import Selection, judge_running, recording_gap
from nagle_lab.guard.recording.job import Target
from nagle_lab.guard.recording.record_running import record_running
from nagle_lab.host.sock_diag import LISTEN
from nagle_lab.live.sockets.inventory import HostSocket
from nagle_lab.live.sockets.set_nodelay import TargetProgram, living, sockets, those_without_nodelay
from nagle_lab.runs.under_test import totals_of

ENDED_EARLY = 0.9  # of the requested time: less was recorded because a signal came
FEWER = 0.4  # segments per stalled exchange: at most so many fewer mean that the program writes as before


@dataclass(frozen=True)
class ProgramConnections(Selection):
    """The connections of a program: those to its listeners, and those that it had open at some time."""

    listening: frozenset[SocketAddress] = frozenset()  # "" for any address
    open: frozenset[SocketAddress] = frozenset()  # local ends

    def wants(self, client: SocketAddress, server: SocketAddress) -> bool:
        """Whether one end of a connection is the program's."""
        return (
            server in self.listening
            or ("", server[1]) in self.listening
            or client in self.open
            or server in self.open
        )


def selection(sockets: Iterable[HostSocket]) -> ProgramConnections:
    """The connections of those sockets, and those that their listeners accept."""
    those = [one.listed for one in sockets]
    return ProgramConnections(
        listening=frozenset(_any_address(one.local) for one in those if one.state == LISTEN),
        open=frozenset(one.local for one in those if one.state != LISTEN),
    )


def _any_address(end: SocketAddress) -> SocketAddress:
    return ("", end[1]) if end[0] in ("0.0.0.0", "::") else end


@dataclass(frozen=True)
class ProgramRecording:
    """What a program sent and received for some seconds."""

    name: str
    result: Result
    judged: list[Connection]
    option: str  # on how many of its sockets TCP_NODELAY was set at the beginning

    @property
    def subject(self) -> Subject:
        """The recording as a subject of a comparison."""
        subject = subject_of_capture(self.result, self.judged)
        return replace(subject, facts={"socket": {"TCP_NODELAY": self.option}, **subject.facts})


def record_program(program: TargetProgram, folder: Path, seconds: float) -> ProgramRecording:
    """Record the program's network namespace for some seconds, and judge its connections; named after the folder.

    Raises KeyboardInterrupt if a signal ended the recording; NagleLabError.
    """
    folder.mkdir()
    at_first = sockets(program)
    ports = [] if program.port is None else [program.port]
    guarded = record_running(folder, Target(pid=living(program)[0], ports=ports), seconds=seconds)
    if guarded.outcome.took_s < ENDED_EARLY * seconds:
        raise KeyboardInterrupt
    those = selection([*at_first, *sockets(program)])
    result = judge_running(guarded.capture, recording_gap(guarded.outcome), those)
    option = f"on for {len(at_first) - len(those_without_nodelay(at_first))} of {len(at_first)} sockets"
    return ProgramRecording(folder.name, result.of_file(folder.name), those.of(result), option)


def beside(recording: ProgramRecording, other: ProgramRecording) -> ProgramRecording:
    """Judge a recording again, now that the other one is known.

    By itself it may be INCONCLUSIVE because it shows no second write: in a connection whose handshake was not
    recorded, only segments below 536 bytes are surely small. If the other recording proves a stall, the program does
    write again behind a small segment. If the end that held data there sends as many segments per exchange here, it
    still does, so an exchange without a stall could have stalled. Joined writes would save one segment in each
    exchange that stalled there, however many segments it has, so the limit is not a share of all segments.
    """
    result, held_by = recording.result, other.result.summary.held_by
    if other.result.verdict is not Verdict.STALL or result.quality.unresolved or held_by not in ("client", "server"):
        return recording
    if (
        result.verdict is not Verdict.INCONCLUSIVE
        or what_is_missing(result, recording.judged) is not Missing.SECOND_WRITE
    ):
        return recording
    if _segments(recording, held_by) < _segments(other, held_by) - FEWER * totals_of(other.judged, ()).stalled_share:
        return recording
    return replace(recording, result=result.concluded(Verdict.CLEAN, ""))


def _segments(recording: ProgramRecording, role: Role) -> float:
    """How many segments that end sends per exchange."""
    exchanges = sum(each.exchanges for each in recording.judged)
    return sum(each.sent[role].segments for each in recording.judged) / exchanges if exchanges else 0.0


@dataclass(frozen=True)
class Conclusion:
    """What setting the option did."""

    code: Exit
    sentence: str


def conclude(before: ProgramRecording, after: ProgramRecording) -> Conclusion:
    """0 if the stall is gone, 1 if it stays, 3 if that is not known, 2 if a recording is unusable."""
    for one in (before, after):
        if one.result.verdict is Verdict.INVALID:
            return Conclusion(Exit.UNUSABLE, f"what was recorded {one.name} is unusable: {one.result.reason}")
    was, now = before.result, after.result
    if was.verdict is not Verdict.STALL:
        why = was.reason or f"{_stalled(was)} exchanges stalled"
        return Conclusion(Exit.INCONCLUSIVE, f"there was no stall to remove: {why}")
    if now.verdict is Verdict.STALL:
        return Conclusion(Exit.CONTRADICTED, f"the stall stays: {now.summary.who_held} still holds data")
    if now.verdict is Verdict.CLEAN:
        return Conclusion(
            Exit.OK, f"the stall is gone: {_stalled(was)} exchanges stalled before, {_stalled(now)} after"
        )
    return Conclusion(Exit.INCONCLUSIVE, f"whether the stall is gone cannot be told: {now.reason}")


def conclude_back(before: ProgramRecording, after: ProgramRecording) -> Conclusion:
    """What taking the option back did, without an expectation."""
    was, now = before.result, after.result
    counts = f"{_stalled(was)} exchanges stalled before, {_stalled(now)} after"
    if now.verdict is Verdict.STALL:
        return Conclusion(Exit.OK, f"the stall is back: {counts}")
    why = f" ({now.reason})" if now.verdict is not Verdict.CLEAN else ""
    return Conclusion(Exit.OK, f"taken back: {counts}{why}")


def _stalled(result: Result) -> str:
    s = result.summary
    return f"{s.stalled_exchanges or 'none'} of {s.exchanges:,}"
