"""nagle-lab guard: a user's own software under the proof."""

import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from nagle_lab.cli.shared.exports import Exports, require_different, require_writable, write_whole
from nagle_lab.cli.shared.values import LONGEST_S, allowed_server, duration_s
from nagle_lab.diagnosis.result.verdict import Verdict, exit_code
from nagle_lab.errors import Exit, NagleLabError, os_problem, tell
from nagle_lab.evidence.examples import Examples, examples, written_ladder
from nagle_lab.experiments.software.guarded import WITHOUT, JudgedCommand, Selection, guard, judge_recording, lost
from nagle_lab.experiments.writes.running_program import with_writes_beside
from nagle_lab.experiments.writes.traced import STACKED, TRACED, with_writes
from nagle_lab.guard.command.job import CAPTURE, OUTCOME
from nagle_lab.guard.recording.run_command import working_folder
from nagle_lab.guard.tracing.strace_attached import CALLS, STACKS, THREADS, UNTRACED, untraced_s
from nagle_lab.host.children import ending_by_signals
from nagle_lab.reports.screens.guard import guard_json, show_guarded, title
from nagle_lab.reports.screens.terminal import console

REPORT = "guard.json"
TIMED_OUT = 124  # as timeout(1) has it
_OPTIONS = {"service": "--compose-service"}  # those that are not called like their parameters
_RUNS = (WITHOUT, TRACED, STACKED)  # folders of further runs
_OURS = {CAPTURE, UNTRACED, OUTCOME, REPORT, STACKS, CALLS, THREADS, *_RUNS}


def command(
    command_line: Sequence[str],
    ports: Sequence[int],
    allowed: Sequence[str],
    expect: str,
    limit: str | None,
    both_sides: bool,
    trace: bool,
    network: bool,
    keep: Path | None,
    json: Path | None,
    seconds: float | None,
    **more: Any,
) -> int:
    """Run or record, judge, show, and write the files asked for."""
    attached = {name: more.pop(name) for name in ("pid", "container", "service", "interface")}
    only_one = {"limit": limit, "both_sides": both_sides, "trace": trace, "network": network, "seconds": seconds}
    _check_usage(command_line, attached, **only_one)
    working_folder()
    selection = Selection(frozenset(ports), frozenset(map(allowed_server, allowed)))
    limit_s = duration_s(limit) if limit else None
    require_writable({"json": json})
    require_different([json, *more.values()])
    with Exports(more, slow=not command_line) as exports, ending_by_signals(), _recording(keep) as folder:
        if command_line:
            how: Any = {"limit_s": limit_s, "network": network, "announce": tell}
            run = guard(command_line, folder, selection, both_sides=both_sides, **how)
            if trace:
                run = with_writes(run, command_line, **how)
        else:
            run = _record(folder, selection, attached, seconds, trace=trace)
        outcome = run.guarded.outcome
        if command_line and outcome.status and not outcome.started:
            _forget(folder, keep)
            tell(f"{command_line[0]}: {outcome.problem}: check the command's name or path")
            return outcome.status
        if command_line and trace and run.writes is None and run.both_sides is None:
            tell("--trace: there was nothing to trace, because the command did not stall")
        if both_sides and run.both_sides is None:
            tell(f"--both-sides: there was no second run, because {_why_one_run(run)}")
        return _report(run, command_line, Verdict(expect.upper()), exports, json, keep, network)


def _record(
    folder: Path, selection: Selection, what: Mapping[str, Any], seconds: float | None, *, trace: bool
) -> JudgedCommand:  # fmt: skip
    """Record what runs already."""
    from nagle_lab.guard.recording.record_running import record_running  # noqa: PLC0415 - only for this

    until = f"for {seconds:g} s" if seconds else "until Ctrl-C"
    until += f", the first {untraced_s(seconds):g} s without strace" if trace else ""
    tell(f"recording {next(f'{name} {value}' for name, value in what.items() if value)} {until}")
    ports = sorted(selection.ports) if what["interface"] else []
    of = {name: value for name, value in what.items() if value}
    guarded = record_running(folder, ports=ports, seconds=seconds, trace=trace, **of)
    run = JudgedCommand(guarded, judge_recording(guarded.capture, lost(guarded.outcome), selection), selection)
    return with_writes_beside(run, elsewhere=what["pid"] is None) if trace else run


def _report(
    run: JudgedCommand,
    command_line: Sequence[str],
    expected: Verdict,
    exports: Exports,
    json: Path | None,
    keep: Path | None,
    network: bool,
) -> int:
    result, outcome, screen = run.result, run.guarded.outcome, console(stderr=True)
    code = exit_code(result.verdict, expected)
    packets = _packets(run, exports)
    named = msgspec.structs.replace(
        result, source=msgspec.structs.replace(result.source, file=title(run, command_line))
    )
    exports.capture(named, packets, code, expected, run.writes)
    report = guard_json(run, command_line, expected)
    unwritten = _write({json, run.guarded.folder / REPORT if keep else None}, report, exports)
    show_guarded(run, command_line, packets.written or packets.typical, screen, packets.software)
    if outcome.timed_out:
        tell("the command ran longer than --time-limit and was ended")
    elif outcome.status:
        how = " as an ordinary user" if os.geteuid() == 0 else ""
        only = "; the command had loopback only: if it needs the network, use --network" + how
        more = "" if network or result.source.tcp_packets else only
        tell(f"the exit code is the command's own, {outcome.status}; the verdict is {result.verdict}{more}")
    elif code is Exit.CONTRADICTED:
        tell(f"expected {expected}, found {result.verdict}")
    if unwritten:
        tell(str(os_problem(unwritten)))
        code = Exit.UNUSABLE
    captures = f"the capture is {run.guarded.capture}"
    if run.traced:
        captures += f" (the traced run's: {run.traced.capture.relative_to(run.guarded.folder)} beside it)"
    if keep:
        tell(captures)
    elif code is not Exit.OK and outcome.captured:
        tell(f"{captures}; delete its folder when you are done, or choose one with --keep")
    else:
        _forget(run.guarded.folder, keep)
    return TIMED_OUT if outcome.timed_out else outcome.status or code


def _write(files: Iterable[Path | None], report: str, exports: Exports) -> OSError | None:
    """Write the files asked for, before anything is shown: a reader of that may go away. Why it failed, if it did."""
    try:
        for file in filter(None, files):
            write_whole(file, report)
        exports.write()
    except OSError as error:
        return error
    return None


def _why_one_run(run: JudgedCommand) -> str:
    if run.result.verdict is Verdict.STALL:
        return "the command stalls with TCP_NODELAY left as it is"
    return "the command failed" if run.guarded.outcome.status else f"the first one is {run.result.verdict}"


def _packets(run: JudgedCommand, exports: Exports) -> Examples:
    """The packets to draw; of a traced run those of the stall whose two writes are known."""
    result, traced = run.result, run.traced
    packets = examples([run.guarded.capture] if result.stalls else [], result, typical_only=exports.typical_only)
    if not run.writes:
        return packets
    capture, of = (traced.capture, traced.result) if traced else (run.guarded.capture, result)
    ladder = written_ladder([capture], of, run.writes)
    if ladder and traced:
        ladder = replace(ladder, run="the traced run", file=str(capture.relative_to(run.guarded.folder)))
    return replace(packets, written=ladder)


def _check_usage(command_line: Sequence[str], attached: Mapping[str, Any], **only_one: Any) -> None:
    named = [_OPTIONS.get(name, f"--{name}") for name, value in attached.items() if value]
    if not command_line and not named:
        raise NagleLabError(
            "guard needs a command (guard -- COMMAND…), --container, --compose-service, --pid or --interface"
        )
    if command_line and named:
        raise NagleLabError(f"{named[0]} records what is already running: leave out the command or {named[0]}")
    if "--nagle" in command_line and any(Path(part).name in ("pytest", "py.test") for part in command_line):
        raise NagleLabError(
            "pytest --nagle makes a network namespace of its own, into which guard cannot see: "
            "run pytest --nagle without guard, or leave out --nagle"
        )
    if len(named) > 1:
        raise NagleLabError(f"{' and '.join(named)} exclude each other: use one of them")
    for_commands = {"limit": "--time-limit", "both_sides": "--both-sides", "network": "--network"}
    for name, option in for_commands.items():
        if named and only_one[name]:
            raise NagleLabError(f"{option} needs a command, and {named[0]} starts none: leave out {option}")
    if only_one["trace"] and attached["interface"]:
        raise NagleLabError("--trace needs a process, and --interface has none: use --pid or --container")
    if only_one["seconds"] and not 0 < only_one["seconds"] <= LONGEST_S:
        raise NagleLabError(f"--seconds {only_one['seconds']:g}: use at most {LONGEST_S:,} (a year)")
    if command_line and only_one["seconds"]:
        raise NagleLabError("--seconds is for recording what is already running: for a command use --time-limit")


@contextmanager
def _recording(keep: Path | None) -> Iterator[Path]:
    """The folder of a recording; whatever ends the block early, nothing stays of it that is not to be kept."""
    folder = _folder(keep)
    try:
        yield folder
    except BaseException:
        _forget(folder, keep)
        raise


def _folder(keep: Path | None) -> Path:
    """Where the recording goes: a folder of its own, or the one to keep."""
    if keep is None:
        return Path(tempfile.mkdtemp(prefix="nagle-lab-guard-"))
    try:
        keep.mkdir(parents=True, exist_ok=True)
        if others := sorted(path.name for path in keep.iterdir() if path.name not in _OURS):
            raise NagleLabError(
                f"--keep {keep}: holds other files ({others[0]}): name a new folder, or an earlier recording's"
            )
    except OSError as error:
        raise NagleLabError(f"--keep {keep}: {(error.strerror or '').lower()}: name another folder") from None
    if not os.access(keep, os.W_OK | os.X_OK):
        raise NagleLabError(f"--keep {keep}: no permission to write there: name another folder")
    for name in _RUNS:
        shutil.rmtree(keep / name, ignore_errors=True)
    for name in _OURS.difference(_RUNS):
        (keep / name).unlink(missing_ok=True)
    return keep.resolve()


def _forget(folder: Path, keep: Path | None) -> None:
    if keep is None:
        shutil.rmtree(folder, ignore_errors=True)
