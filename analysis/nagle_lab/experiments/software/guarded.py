"""A user's own software under the proof: run in a namespace, recorded and judged, with and without TCP_NODELAY."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from ipaddress import ip_address
from pathlib import Path
from typing import Unpack

from nagle_lab.capture.kernel_answers import SocketAddress
from nagle_lab.diagnosis.analysis import analyze
from nagle_lab.diagnosis.result.could_stall import (
    IN_ONE_SEGMENT,
    NOTHING_STALLS,
    Missing,
    cork_text,
    stricter_for_own_software,
    what_is_missing,
)
from nagle_lab.diagnosis.result.result import Connection, Result, ends_text
from nagle_lab.diagnosis.result.verdict import Verdict
from nagle_lab.diagnosis.result.writes import Writes
from nagle_lab.errors import NagleLabError
from nagle_lab.guard.recording import without_nodelay
from nagle_lab.guard.recording.job import Outcome
from nagle_lab.guard.recording.run_command import Guarded, Surroundings, run
from nagle_lab.packet.segment import split_end

WITHOUT = "without-nodelay"  # the folder of the second run, in that of the first run


@dataclass(frozen=True)
class Selection:
    """Which connections are judged: those to some ports, or to any, except those allowed to stall."""

    ports: frozenset[int] = frozenset()
    allowed: frozenset[SocketAddress] = frozenset()  # address and port of a server; "" for any address
    only: frozenset[tuple[SocketAddress, SocketAddress]] | None = None  # client and server of each; None: any
    without: frozenset[tuple[SocketAddress, SocketAddress]] = frozenset()

    def wants(self, client: SocketAddress, server: SocketAddress) -> bool:
        """Whether a connection is judged, by address and port of its ends."""
        ends = client, server
        if ends in self.without or (self.only is not None and ends not in self.only):
            return False
        if self.ports and server[1] not in self.ports:
            return False
        return server not in self.allowed and ("", server[1]) not in self.allowed

    def of(self, result: Result) -> list[Connection]:
        """The connections of a result that are selected."""
        return [connection for connection in result.connections if self.wants(*connection.ends)]


def allowed_end(text: str) -> tuple[str, int]:
    """ "127.0.0.1:5432", "[::1]:5432" or ":5432" as address and port. Raises ValueError."""
    if (end := split_end(text)) is None:
        raise ValueError(f"{text!r} is not an address and a port: write it as 127.0.0.1:5432 or :5432")
    address, port = end
    if not address:
        return end
    try:
        ip = ip_address(address.strip("[]"))
    except ValueError:
        raise ValueError(
            f"{text!r}: {address} is not an IP address; use :{port} for that port on any address"
        ) from None
    if ip.is_unspecified:
        raise ValueError(f"{text!r}: no connection goes to {address}; use :{port} for that port on any address")
    return str(ip), port


def recording_gap(outcome: Outcome) -> str:
    """What the recording lacks; empty if it is complete according to the kernel's count of segments sent."""
    if outcome.problem:
        return outcome.problem
    if outcome.dropped:
        return (
            f"{outcome.dropped:,} TCP segments were lost while recording: the machine was too busy; run it again, or "
            "with less traffic"
        )
    if outcome.sent is not None and outcome.captured < outcome.sent:
        return (
            f"the kernel sent {outcome.sent:,} TCP segments, but {outcome.captured:,} were recorded: run it again; "
            "what passes an interface that the command itself makes is not recorded"
        )
    return ""


def judge_recording(capture: Path | str, loss: str, selection: Selection, *, sha256: bool = True) -> Result:
    """The result of a recording of one's own software, on the connections selected."""
    if loss and not (Path(capture).exists() and Path(capture).stat().st_size):
        raise NagleLabError(loss)
    only = None if selection == Selection() else selection.wants
    result = analyze(capture, sha256=sha256, only=only)
    return stricter_for_own_software(result, selection.of(result), loss)


_NOTHING_PASSED = "no TCP segment passed; record for longer, or another port, or elsewhere"


def judge_running(capture: Path, loss: str, selection: Selection) -> Result:
    """The result for a recording of what already ran, in which another place or time may show more."""
    result = judge_recording(capture, loss, selection)
    if result.verdict is Verdict.INCONCLUSIVE and not result.source.tcp_packets:
        return result.concluded(result.verdict, _NOTHING_PASSED)
    return result


class Protection(StrEnum):
    """What keeps a clean program from stalling."""

    OPTION = "option"  # TCP_NODELAY: without it, the same stalls
    ONE_WRITE = "one_write"  # no small segment follows another: without TCP_NODELAY the same is clean
    CORK = "cork"  # not known: TCP_CORK lets several writes leave as one segment, after 200 ms
    NOT_THE_OPTION = "not_the_option"  # clean without TCP_NODELAY, too: for example ACKs come at once
    NOTHING_NEEDED = "nothing_needed"  # nothing in it could have stalled
    UNKNOWN = "unknown"  # TCP_NODELAY could not be taken away, or the command fails without it


@dataclass(frozen=True)
class BothSides:
    """The same command without TCP_NODELAY, and what that says about the first run."""

    run: Guarded
    result: Result
    protection: Protection
    sentence: str


@dataclass(frozen=True)
class TracedCommand:
    """The same command under strace: the run to which its frames belong."""

    capture: Path
    result: Result
    took_s: float


@dataclass(frozen=True)
class JudgedCommand:
    """A guarded command, and its outcome."""

    guarded: Guarded
    result: Result  # its verdict is that on the command
    selection: Selection = field(default_factory=Selection)
    both_sides: BothSides | None = None
    writes: Writes | None = None  # if the first run stalled and was then traced
    traced: TracedCommand | None = None  # that second run

    @property
    def interrupted(self) -> bool:
        """Whether a signal such as Ctrl-C's came to the run, or to that without TCP_NODELAY."""
        second = self.both_sides.run.outcome.interrupted if self.both_sides else False
        return self.guarded.outcome.interrupted or second

    @property
    def missing(self) -> Missing | None:
        """Why nothing in it could have stalled; None: something could."""
        return what_is_missing(self.result, self.selection.of(self.result))

    @property
    def second_writes(self) -> int:
        """How often a small segment followed another: what Nagle's algorithm held, or would have held."""
        return sum(one.chances for one in self.selection.of(self.result))


def guard(
    command: Sequence[str],
    folder: Path,
    selection: Selection,
    *,
    limit_s: float | None = None,
    network: bool = False,
    both_sides: bool = False,
    announce: Callable[[str], None] = lambda _: None,
    **surroundings: Unpack[Surroundings],
) -> JudgedCommand:
    """Run a command and judge it; ``folder`` exists and is empty. Raises NagleLabError.

    ``announce`` is called before each further run; ``surroundings`` is where and how it runs, see
    :func:`nagle_lab.guard.recording.run_command.run`.
    """
    if both_sides and not without_nodelay.is_possible():
        raise NagleLabError("--both-sides works on x86-64 and arm64 only: leave it out on this processor")
    first = run(command, folder, limit_s=limit_s, network=network, **surroundings)
    result = _of_failed(first.outcome, judge_recording(first.capture, recording_gap(first.outcome), selection))
    if not both_sides or first.outcome.status or result.verdict in (Verdict.STALL, Verdict.INVALID):
        return JudgedCommand(first, result, selection)
    (folder / WITHOUT).mkdir()
    announce("running it again with TCP_NODELAY taken away")
    second = run(command, folder / WITHOUT, limit_s=limit_s, network=network, without_nodelay=True, **surroundings)
    other = judge_recording(second.capture, recording_gap(second.outcome), selection)
    sides = _compared(result, second, other, selection)
    return JudgedCommand(first, _concluded(result, sides), selection, sides)


def _of_failed(outcome: Outcome, result: Result) -> Result:
    """The result of a command that failed; if there is too little to judge, the reason begins with the failure."""
    if result.verdict is not Verdict.INCONCLUSIVE or not outcome.failure:
        return result
    return result.concluded(result.verdict, f"{outcome.failure}; {result.reason}")


def _compared(result: Result, second: Guarded, other: Result, selection: Selection) -> BothSides:
    """What keeps the command from stalling, by both runs."""
    s = other.summary
    before, missing = (what_is_missing(one, selection.of(one)) for one in (result, other))
    if other.verdict is Verdict.STALL:
        share = f"{s.stalled_exchanges:,} of {s.exchanges:,} exchanges"
        stalled = f"with TCP_NODELAY taken away, {share} stalled, held by {ends_text(s.held_by)}"
        protection, why = Protection.OPTION, f"the option protects it: {stalled}"
        if not _not_held(result, selection):  # with the option, small segments follow one another at once
            protection = Protection.UNKNOWN
            why = f"{stalled}, but the first run does not show that the option was on: what protects it is not known"
    elif reason := _why_unknown(second, other, selection, missing, before):
        protection, why = Protection.UNKNOWN, f"{reason}: what protects it is not known"
    elif Missing.UNCORKED_WRITE in (missing, before):  # on a busy machine it may be told in one run only
        protection = Protection.CORK
        cork = cork_text(other) or cork_text(result)
        why = f"whether one write protects it cannot be told: {cork}, and run it again"
    elif missing is Missing.SECOND_WRITE:
        protection = Protection.ONE_WRITE
        why = (
            f"one write protects it: with TCP_NODELAY taken away, {s.exchanges:,} exchanges, each message in one "
            "write, or in several that TCP_CORK or MSG_MORE joined, and none stalled"
        )
    elif other.verdict is Verdict.CLEAN:  # even if the first run had no second write, or too few exchanges
        protection = Protection.NOT_THE_OPTION
        why = f"it is clean without TCP_NODELAY, too: {s.exchanges:,} exchanges, none stalled"
    else:
        protection = Protection.NOTHING_NEEDED
        reason = other.reason.removeprefix(f"{NOTHING_STALLS}: ")
        why = f"nothing here could have stalled, not even without TCP_NODELAY: {reason}"
    return BothSides(second, other, protection, why)


def _not_held(result: Result, selection: Selection) -> int:
    """How many small segments were sent behind unacknowledged small ones, as Nagle's algorithm never does."""
    return sum(sent.not_held for one in selection.of(result) for sent in one.sent.values())


def _why_unknown(
    second: Guarded, other: Result, selection: Selection, missing: Missing | None, before: Missing | None
) -> str:  # fmt: skip
    """Why the run without TCP_NODELAY decides nothing; empty if it does."""
    not_held = _not_held(other, selection)
    if second.outcome.status:
        return f"without TCP_NODELAY the command ended with {second.outcome.status}"
    if other.verdict is Verdict.INVALID or other.quality.unresolved:
        return f"the run without TCP_NODELAY says nothing ({other.reason})"
    if not_held:
        return f"TCP_NODELAY could not be taken away: {not_held} small segments still followed one another at once"
    if missing is not before and missing is not None and {missing, before} != IN_ONE_SEGMENT:
        return f"the run without TCP_NODELAY was another one ({other.reason})"
    return ""


def _concluded(result: Result, sides: BothSides) -> Result:
    """The first run's result, with what the second run says about it."""
    protected = (Protection.OPTION, Protection.ONE_WRITE, Protection.NOT_THE_OPTION)
    if sides.protection in protected and not result.quality.unresolved:
        return result.concluded(Verdict.CLEAN, sides.sentence)
    if sides.protection in (Protection.CORK, Protection.NOTHING_NEEDED):
        return result.concluded(Verdict.INCONCLUSIVE, sides.sentence)
    return result.concluded(result.verdict, f"{result.reason}; {sides.sentence}")
