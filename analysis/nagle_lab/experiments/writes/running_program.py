"""A running program recorded with strace attached: the two writes of each stall, and what its verdict is worth."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from nagle_lab.diagnosis.result.result import Result
from nagle_lab.diagnosis.result.verdict import TRACED_ONLY, Verdict
from nagle_lab.diagnosis.result.writes import Writes, nothing_found
from nagle_lab.experiments.software.guarded import JudgedCommand, judge_recording
from nagle_lab.experiments.writes import stall_writes
from nagle_lab.experiments.writes.call_sites import sites_in_the_trace, unplaced
from nagle_lab.experiments.writes.joining import join
from nagle_lab.experiments.writes.stall_writes import CallPlaces
from nagle_lab.experiments.writes.traced import what_is_cut
from nagle_lab.guard.tracing.calls import Call, Trace
from nagle_lab.guard.tracing.strace_attached import STACKS, THREADS, UNTRACED
from nagle_lab.guard.tracing.strace_command import CALLS
from nagle_lab.guard.tracing.strace_output import read_trace

_NONE = "stacks are written at the beginning of the trace only, and no call like it was made then"
_SEVERAL = "stacks are written at the beginning of the trace only, and calls like it came from several places then"
_GUESSED = "{} calls have no stack; their place is that of nine tenths or more of the calls like them"


def recorded_trace(folder: Path) -> Trace:
    """What strace wrote to a folder while it was attached: first with stacks, then without. Raises OSError."""
    files = [file for name in (STACKS, CALLS) if (file := folder / name).exists()]
    threads = folder / THREADS
    return read_trace(*files, threads=threads if threads.exists() else None)


def with_writes_beside(run: JudgedCommand, *, elsewhere: bool) -> JudgedCommand:
    """A recording with the two writes of each stall, and the shares before strace was attached and after.

    ``elsewhere``: the files of the traced processes are not those of this machine.
    """
    folder = run.guarded.folder
    trace = recorded_trace(folder)
    trace.io_uring |= run.guarded.outcome.io_uring
    writes = writes_beside([run.guarded.capture], run.result, trace, elsewhere=elsewhere)
    before = judge_recording(folder / UNTRACED, "", run.selection, sha256=False)
    if writes.exchanges:
        writes = stall_writes.compared(writes, before.summary.exchanges, before.summary.stalled_exchanges)
    return replace(run, result=not_clean_if_traced(run.result, before), writes=writes)


def not_clean_if_traced(result: Result, before: Result | None = None) -> Result:
    """The result of the traced part: CLEAN only if the part ``before``, without strace, was CLEAN."""
    if result.verdict is not Verdict.CLEAN or (before and before.verdict is Verdict.CLEAN):
        return result
    why = TRACED_ONLY
    if before and before.summary.stalled_exchanges:
        counts = f"{before.summary.stalled_exchanges:,} of {before.summary.exchanges:,}"
        why = f"{counts} did before strace was attached, which slowed what it recorded"
    return result.concluded(Verdict.INCONCLUSIVE, f"{result.reason}; but {why}")


def writes_beside(
    files: Sequence[Path],
    result: Result,
    trace: Trace,
    *,
    elsewhere: bool = False,
    attached: bool = True,
    why: Callable[[Call], str] | None = None,
) -> Writes:
    """The two writes of each stall of a capture that was recorded while strace ran beside it.

    ``attached``: strace was attached to a running program. ``why`` says why a call has no line.
    """
    found = join(files, result, trace)
    sites = sites_in_the_trace(unplaced(found.pairs), trace, attached=attached, elsewhere=elsewhere)

    def why_none(call: Call) -> str:
        return f"{call.command}: {_SEVERAL if call in sites.ambiguous else _NONE}"

    lines = CallPlaces(sites.found, why or why_none)
    s = result.summary
    notes = [*what_is_cut(trace), *([_GUESSED.format(sites.guessed)] if sites.guessed else [])]
    empty = nothing_found(s.exchanges, s.stalled_exchanges, notes=notes)
    return stall_writes.filled_in(empty, result, found, lines, trace)
