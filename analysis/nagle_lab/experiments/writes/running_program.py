"""What ran already, recorded with strace attached: the two writes of each stall, and what its verdict is worth."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from nagle_lab.diagnosis.result.result import Result
from nagle_lab.diagnosis.result.verdict import TRACED_ONLY, Verdict
from nagle_lab.diagnosis.result.writes import Writes, nothing_found
from nagle_lab.experiments.software.guarded import JudgedCommand, judge_recording
from nagle_lab.experiments.writes import stall_writes
from nagle_lab.experiments.writes.joining import CallPair, join
from nagle_lab.experiments.writes.stall_writes import Lines
from nagle_lab.experiments.writes.traced import missing_calls, what_is_cut
from nagle_lab.guard.tracing.native_frames import CallSite, where
from nagle_lab.guard.tracing.strace_attached import CALLS, STACKS, THREADS, UNTRACED
from nagle_lab.guard.tracing.strace_output import Call, Trace, read_trace

_NEARLY_ALL = 0.9  # of the calls like one without a stack, that were made in one place
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

    ``elsewhere``: the files of what was traced are not those of this machine.
    """
    folder = run.guarded.folder
    trace = recorded_trace(folder)
    trace.io_uring |= run.guarded.outcome.io_uring
    writes = writes_beside([run.guarded.capture], run.result, trace, elsewhere=elsewhere)
    before = judge_recording(folder / UNTRACED, "", run.selection, sha256=False)
    if before.summary.exchanges and writes.exchanges:
        writes = stall_writes.compared(writes, before.summary.exchanges, before.summary.stalled_exchanges)
    return replace(run, result=of_traced(run.result, before), writes=writes)


def of_traced(result: Result, before: Result | None = None) -> Result:
    """The result of what was traced: CLEAN only where it was CLEAN ``before``, without strace."""
    if result.verdict is not Verdict.CLEAN or (before and before.verdict is Verdict.CLEAN):
        return result
    why = TRACED_ONLY
    if before and before.summary.stalled_exchanges:
        counts = f"{before.summary.stalled_exchanges} of {before.summary.exchanges}"
        why = f"{counts} did before strace was attached, which slowed what it recorded"
    reason = f"{result.reason}; but {why}"
    return msgspec.structs.replace(result, verdict=Verdict.INCONCLUSIVE, reason=reason)


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

    ``attached``: strace came when the program ran already. ``why`` says why a call has no line.
    """
    found = join(files, result, trace)
    places, guessed, whys = _places(found.pairs, trace, elsewhere=elsewhere, attached=attached)
    lines = Lines(places, why or (lambda call: f"{call.command}: {whys.get(call, _NONE)}"))
    s = result.summary
    notes = [*what_is_cut(trace), *([_GUESSED.format(guessed)] if guessed else [])]
    empty = nothing_found(s.exchanges, s.stalled_exchanges, notes=notes)
    return stall_writes.filled_in(empty, result, found.pairs, lines, missing_calls(found, trace))


def _places(
    pairs: Sequence[CallPair], trace: Trace, *, elsewhere: bool, attached: bool
) -> tuple[dict[Call, CallSite], int, dict[Call, str]]:
    """Where calls were made: each by its stack, or by those of nearly all calls like it.

    Also of how many calls there is no stack while those like them do not all agree; and why the others have no place.
    """
    every = [call for streams in trace.streams.values() for stream in streams for call in stream.calls()]
    stacked = {call: tuple(call.stack) for call in every if call.stack}
    stacks = list(dict.fromkeys(stacked.values()))
    places = dict(zip(stacks, where(stacks, attached=attached, elsewhere=elsewhere), strict=True))
    alike: dict[object, Counter[CallSite]] = defaultdict(Counter)
    for call in every:
        if call.stack:
            for kind in _kinds(call):
                alike[kind][places[stacked[call]]] += 1
    found: dict[Call, CallSite] = {}
    whys: dict[Call, str] = {}
    guessed = 0
    for call in stall_writes.unplaced(pairs, ()):
        same = next((alike[kind] for kind in _kinds(call) if kind in alike), Counter[CallSite]())
        if stack := stacked.get(call):
            found[call] = places[stack]
        elif same and same.most_common(1)[0][1] >= _NEARLY_ALL * same.total():
            found[call] = same.most_common(1)[0][0]
            guessed += len(same) > 1
        else:
            whys[call] = _SEVERAL if same else _NONE
    return found, guessed, whys


def _kinds(call: Call) -> Iterable[object]:
    """What makes calls alike: the same command, and what it did, if possible to the byte."""
    what = (call.command, call.name, call.option, call.value)
    return (*what, call.wrote), what
