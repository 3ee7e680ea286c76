"""A command that stalled, run again under strace: which two writes caused each stall, and what tracing changed."""

import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Unpack

import msgspec

from nagle_lab.diagnosis.result.result import Result
from nagle_lab.diagnosis.result.verdict import Verdict
from nagle_lab.diagnosis.result.writes import Writes, nothing_found
from nagle_lab.errors import NagleLabError
from nagle_lab.experiments.software.guarded import JudgedCommand, TracedCommand, judge_recording, recording_gap
from nagle_lab.experiments.writes import stall_writes
from nagle_lab.experiments.writes.call_sites import sites_in_another_run, unplaced
from nagle_lab.experiments.writes.joining import CallPair, join
from nagle_lab.experiments.writes.stall_writes import CallPlaces
from nagle_lab.guard.recording.run_command import Guarded, Surroundings, run
from nagle_lab.guard.tracing import hooking, strace_command
from nagle_lab.guard.tracing.calls import Call, Trace
from nagle_lab.guard.tracing.native_frames import CallSite
from nagle_lab.guard.tracing.strace_lines import MOST_BYTES
from nagle_lab.guard.tracing.strace_output import read_trace

TRACED, STACKED = "traced", "stacks"  # folders of the second and the third run, in that of the first
_PROGRAMS = "programs"  # in the third folder: copies of programs, until their lines are known
_SLOWER, _AT_LEAST_S = 20, 60.0
_NOT_AGAIN = "the command was interrupted, so it did not run again; to trace one that does not end, use --time-limit"


def with_writes(
    first: JudgedCommand,
    *,
    limit_s: float | None = None,
    network: bool = False,
    announce: Callable[[str], None] = lambda _: None,
    **surroundings: Unpack[Surroundings],
) -> JudgedCommand:
    """The run, with the two writes of each stall if it is a STALL; the verdict is that of the first run.

    The command runs once more; twice if some of it is native code, or its interpreter loaded no hook. Raises
    KeyboardInterrupt if a signal such as Ctrl-C's came to one of these runs. If one came to the first, there is no
    other.
    """
    if first.result.verdict is not Verdict.STALL:
        return first
    if first.guarded.outcome.interrupted:
        return replace(first, writes=no_writes(first.result, _NOT_AGAIN))
    if why := strace_command.why_no_command():
        return replace(first, writes=no_writes(first.result, why))
    most_s = longest_s(first.guarded.outcome.took_s) if limit_s is None else limit_s
    under_strace = _UnderStrace(first.guarded, most_s, network, announce, surroundings)
    try:
        guarded, trace = under_strace.run(TRACED, stacks=False)
        result = judge_recording(guarded.capture, recording_gap(guarded.outcome), first.selection, sha256=False)
    except NagleLabError as error:
        return replace(first, writes=no_writes(first.result, f"the traced run failed: {error}"))
    writes = writes_of_traced(first.result, guarded.capture, result, trace, under_strace.stacked)
    shutil.rmtree(first.guarded.folder / STACKED / _PROGRAMS, ignore_errors=True)
    writes = msgspec.structs.replace(writes, notes=[*_ended(first, guarded), *writes.notes])
    return replace(first, writes=writes, traced=TracedCommand(guarded.capture, result, guarded.outcome.took_s))


@dataclass(frozen=True)
class _UnderStrace:
    """The command of the ``first`` run under strace, for at most so many seconds."""

    first: Guarded
    most_s: float
    network: bool
    announce: Callable[[str], None]
    surroundings: Surroundings

    def run(self, name: str, *, stacks: bool) -> tuple[Guarded, Trace]:
        """Run it with the hooks, or with native stacks. Raises NagleLabError if nothing was traced."""
        folder = self.first.folder / name
        folder.mkdir()
        environment = dict(self.surroundings.get("environment", {}))
        environment |= hooking.loading({**os.environ, **environment}, stacks=stacks)
        where: Surroundings = {**self.surroundings, "environment": environment}
        programs = folder / _PROGRAMS if stacks else None
        if programs:
            programs.mkdir()
        command = strace_command.traced(self.first.command, folder / strace_command.CALLS, stacks=stacks)
        self.announce(f"running it again under strace{', with native stacks' if stacks else ''}")
        guarded = run(
            command, folder, limit_s=self.most_s, network=self.network, programs=programs, under_strace=True, **where
        )
        if guarded.outcome.interrupted:
            raise KeyboardInterrupt
        try:
            trace = read_trace(folder / strace_command.CALLS)
        except OSError:
            raise NagleLabError(f"strace wrote nothing, and ended with {guarded.outcome.status}") from None
        trace.programs = guarded.outcome.programs
        return guarded, trace

    def stacked(self) -> tuple[Trace, str]:
        """Run it with native stacks: the trace, and notes about it. Raises NagleLabError."""
        guarded, trace = self.run(STACKED, stacks=True)
        ended = f"the run with native stacks was ended after {guarded.outcome.took_s:.0f} s"
        return trace, ended if guarded.outcome.timed_out else ""


def longest_s(untraced_s: float, at_least_s: float = _AT_LEAST_S) -> float:
    """How long a command that took ``untraced_s`` may take under strace, s."""
    return max(_SLOWER * untraced_s, at_least_s)


@dataclass(frozen=True)
class NamedWrites:
    """The two writes of each stall, and the run to which they belong; without a run they say why there are none."""

    writes: Writes
    capture: Path | None = None
    result: Result | None = None


def no_writes(first: Result, problem: str) -> Writes:
    """No writes, and why; ``first`` is the result without tracing."""
    s = first.summary
    return nothing_found(0, 0, problem=problem, untraced=(s.exchanges, s.stalled_exchanges))


def writes_of_traced(
    first: Result, capture: Path, result: Result, trace: Trace, stacked: Callable[[], tuple[Trace, str]]
) -> Writes:
    """The writes of a traced run's stalls; ``first`` is the result without tracing.

    ``stacked`` runs the same once more with native stacks; it is called if lines are missing.
    """
    s, traced, notes = first.summary, result.summary, what_is_cut(trace)
    if not result.stalls:
        ended = f" ({result.reason})" if result.verdict is Verdict.INVALID else ""
        problem = f"the traced run did not stall{ended}: tracing slows what it traces, and may hide a stall"
        if not result.source.tcp_packets:
            problem = "no TCP segment passed in the traced run: see whether the command did the same a second time"
        nothing = nothing_found(traced.exchanges, traced.stalled_exchanges, problem=problem, notes=notes)
        return stall_writes.compared(nothing, s.exchanges, s.stalled_exchanges)
    found = join([capture], result, trace)
    native, note = _native(found.pairs, trace, stacked)
    lines = CallPlaces(native, lambda call: _why_no_line(call, trace))
    notes += [note] if note else []
    empty = nothing_found(traced.exchanges, traced.stalled_exchanges, notes=notes)
    writes = stall_writes.filled_in(empty, result, found, lines, trace)
    return stall_writes.compared(writes, s.exchanges, s.stalled_exchanges)


def _native(
    pairs: Sequence[CallPair], trace: Trace, stacked: Callable[[], tuple[Trace, str]]
) -> tuple[dict[Call, CallSite], str]:  # fmt: skip
    """Places of the calls for which no hook gave one, and what went wrong."""
    calls = unplaced(pairs, trace.hooked)
    if not calls:
        return {}, ""
    if not strace_command.has_stacks():
        return {}, "this strace was built without stack traces (libunwind): native code has no lines"
    try:
        other, note = stacked()
    except NagleLabError as error:
        return {}, f"the run with native stacks failed: {error}"
    return sites_in_another_run(calls, trace, other), note


def _why_no_line(call: Call, trace: Trace) -> str:
    if call.process in trace.hooked:
        return f"{call.command}: a library in native code wrote, and the run with stacks had no such call"
    return f"{call.command}: the run with stacks had no such call"


def _ended(first: JudgedCommand, guarded: Guarded) -> list[str]:
    """How the traced run ended, if differently from the first."""
    outcome, before = guarded.outcome, first.guarded.outcome
    if outcome.timed_out and not before.timed_out:
        return [f"the traced run was ended after {outcome.took_s:.0f} s; it is judged up to there"]
    if outcome.status != before.status:
        return [f"the command ended with {outcome.status} when traced, with {before.status} without"]
    return []


def what_is_cut(trace: Trace) -> list[str]:
    """A sentence if a trace is incomplete; otherwise empty."""
    if not trace.cut:
        return []
    return [f"only the first {MOST_BYTES // 1_000_000} MB of the trace were kept, or its last line is cut"]
