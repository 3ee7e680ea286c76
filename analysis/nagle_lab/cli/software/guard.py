"""nagle-lab guard: a user's own software under the proof."""

import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from nagle_lab.cli.shared.exports import Exports, require_outputs, write_export
from nagle_lab.cli.shared.options import require_only_one
from nagle_lab.cli.shared.values import LONGEST_S, allowed_server, duration_s
from nagle_lab.cli.software.guard_folder import REPORT, RecordingFolder, recorded_in, recording_folder
from nagle_lab.diagnosis.result.verdict import Verdict, exit_code
from nagle_lab.errors import Exit, NagleLabError, os_problem, tell
from nagle_lab.evidence.examples import Examples, examples, written_ladder
from nagle_lab.experiments.software.guarded import JudgedCommand, Selection, guard, judge_running, recording_gap
from nagle_lab.experiments.writes.running_program import with_writes_beside
from nagle_lab.experiments.writes.traced import no_writes, with_writes
from nagle_lab.guard.recording.job import Target
from nagle_lab.guard.recording.run_command import working_folder
from nagle_lab.guard.tracing.strace_attached import untraced_s
from nagle_lab.host.children import ending_by_signals
from nagle_lab.reports.screens.guard import about_guarded, guard_json, show_guarded, title, to_paste
from nagle_lab.reports.screens.terminal import console
from nagle_lab.reports.words.reported import ReportedCapture


@dataclass(frozen=True)
class GuardOptions:
    """The options of guard, but no files that other commands also write. NagleLabError if some exclude each other."""

    command_line: Sequence[str]
    ports: Sequence[int]
    allowed: Sequence[str]  # servers that may stall
    expect: str
    limit: str | None  # time limit of the command
    both_sides: bool
    trace: bool
    network: bool
    keep: Path | None
    json: Path | None
    seconds: float | None  # how long to record running software
    pid: int | None = None
    container: str | None = None
    service: str | None = None
    interface: str | None = None

    @property
    def target(self) -> Target:
        """What to record if there is no command; on an interface only the requested ports."""
        ports = sorted(set(self.ports)) if self.interface else []
        return Target(self.pid, self.container or "", self.service or "", self.interface or "", ports)

    @property
    def attached(self) -> Mapping[str, int | str]:
        """The target as an option: its name and value."""
        names = ("pid", "container", "service", "interface")
        return {name: value for name in names if (value := getattr(self, name))}

    def __post_init__(self) -> None:
        named = ["--compose-service" if name == "service" else f"--{name}" for name in self.attached]
        if not self.command_line and not named:
            raise NagleLabError(
                "guard needs a command (guard -- COMMAND…), --container, --compose-service, --pid or --interface"
            )
        if self.command_line and named:
            raise NagleLabError(f"{named[0]} records what is already running: leave out the command or {named[0]}")
        if "--nagle" in self.command_line and any(
            Path(part).name in ("pytest", "py.test") for part in self.command_line
        ):
            raise NagleLabError(
                "pytest --nagle makes a network namespace of its own, into which guard cannot see: "
                "run pytest --nagle without guard, or leave out --nagle"
            )
        require_only_one(named)
        for_commands = {"--time-limit": self.limit, "--both-sides": self.both_sides, "--network": self.network}
        for option, value in for_commands.items():
            if named and value:
                raise NagleLabError(f"{option} needs a command, and {named[0]} starts none: leave out {option}")
        if self.trace and self.interface:
            raise NagleLabError("--trace needs a process, and --interface has none: use --pid or --container")
        if self.seconds and not 0 < self.seconds <= LONGEST_S:
            raise NagleLabError(f"--seconds {self.seconds:g}: use at most {LONGEST_S:,} (a year)")
        if self.command_line and self.seconds:
            raise NagleLabError("--seconds is for recording what is already running: for a command use --time-limit")


TIMED_OUT = 124  # as in timeout(1)


def command(junit: Path | None = None, markdown: Path | None = None, html: Path | None = None, **options: Any) -> int:
    """Run or record, judge, show, and write the requested files."""
    asked = GuardOptions(**options)
    working_folder()
    selection = Selection(frozenset(asked.ports), frozenset(map(allowed_server, asked.allowed)))
    limit_s = duration_s(asked.limit) if asked.limit else None
    files = {"junit": junit, "markdown": markdown, "html": html}
    require_outputs([asked.json, *files.values()], recorded_in(asked.keep))
    with (
        Exports(files, suite="guard") as exports,
        ending_by_signals(),
        recording_folder(asked.keep) as folder,
    ):
        if not asked.command_line:
            return _report(_record(folder.path, selection, asked), folder, asked, exports)
        run = _run(folder.path, selection, asked, limit_s)
        outcome = run.guarded.outcome
        if outcome.status and not outcome.started:
            folder.forget()
            program = asked.command_line[0]
            error = NagleLabError(f"{program}: {outcome.problem}: {_not_started(program)}")
            tell(str(error))
            exports.unusable(title(run.guarded), error)
            return outcome.status
        if asked.trace and run.writes is None and run.both_sides is None:
            tell("--trace: there was nothing to trace, because the command did not stall")
        if asked.both_sides and run.both_sides is None:
            tell(f"--both-sides: there was no second run, because {_why_one_run(run)}")
        return _report(run, folder, asked, exports)


def _not_started(program: str) -> str:
    if Path(program).is_file() and not os.access(program, os.X_OK):
        return "make it executable (chmod +x), or name its interpreter before it"
    if " " in program and shutil.which(program.split(maxsplit=1)[0]):
        return "in quotation marks it is one word: leave them out, or write sh -c before it"
    return "check the command's name or path"


def _run(folder: Path, selection: Selection, asked: GuardOptions, limit_s: float | None) -> JudgedCommand:
    how: Any = {"limit_s": limit_s, "network": asked.network, "announce": tell}
    run = guard(asked.command_line, folder, selection, both_sides=asked.both_sides, **how)
    if not asked.trace:
        return run
    try:
        return with_writes(run, **how)
    except KeyboardInterrupt:  # what the first run has shown is said all the same
        return replace(run, writes=no_writes(run.result, "the traced run was interrupted"))


def _record(folder: Path, selection: Selection, asked: GuardOptions) -> JudgedCommand:
    from nagle_lab.guard.recording.record_running import record_running  # noqa: PLC0415 - only for this

    ((name, value),) = asked.attached.items()
    until = f"for {asked.seconds:g} s" if asked.seconds else "until Ctrl-C"
    until += f", the first {untraced_s(asked.seconds):g} s without strace" if asked.trace else ""
    guarded = record_running(
        folder, asked.target, seconds=asked.seconds, trace=asked.trace,
        begins=lambda: tell(f"recording {name} {value} {until}"),
    )  # fmt: skip
    result = judge_running(guarded.capture, recording_gap(guarded.outcome), selection)
    run = JudgedCommand(guarded, result, selection)
    return with_writes_beside(run, elsewhere=asked.pid is None) if asked.trace else run


def _report(run: JudgedCommand, folder: RecordingFolder, asked: GuardOptions, exports: Exports) -> int:
    result, outcome = run.result, run.guarded.outcome
    expected = Verdict(asked.expect.upper())
    code = exit_code(result.verdict, expected)
    folder.is_wanted = folder.is_named or (code is not Exit.OK and outcome.captured > 0)
    packets = _packets(run, exports)
    reported = ReportedCapture(
        result.of_file(run.guarded.capture.name), packets, code, expected, run.writes,
        title=title(run.guarded), about=about_guarded(run), took_s=outcome.took_s,
        failure=outcome.failure,
        slow=not asked.command_line, to_paste=to_paste(run, packets.software),
    )  # fmt: skip
    exports.capture(reported)
    report = guard_json(run, expected)
    unwritten = _write({asked.json, run.guarded.folder / REPORT if asked.keep else None}, report, exports)
    show_guarded(run, reported, console(stderr=True))
    _explain_exit_code(run, asked, code, expected)
    if unwritten:
        tell(str(os_problem(unwritten)))
        code = Exit.UNUSABLE
        folder.is_wanted |= outcome.captured > 0
    _keep_or_forget(run, folder)
    return TIMED_OUT if outcome.timed_out else outcome.status or code


def _explain_exit_code(run: JudgedCommand, asked: GuardOptions, code: Exit, expected: Verdict) -> None:
    result, outcome = run.result, run.guarded.outcome
    if outcome.timed_out:
        tell("the command ran longer than --time-limit and was ended")
    elif outcome.status:
        more = ""
        if not asked.network and not result.source.tcp_packets and not outcome.signal:
            how = " as an ordinary user" if os.geteuid() == 0 else ""
            more = f"; the command could reach only loopback: if it needs the network, use --network{how}"
        tell(f"the exit code is the command's own, {outcome.status}; the verdict is {result.verdict}{more}")
    elif code is Exit.CONTRADICTED:
        tell(f"expected {expected}, found {result.verdict}")


def _keep_or_forget(run: JudgedCommand, folder: RecordingFolder) -> None:
    """Say where the capture is, or remove it, unless it is wanted."""
    if not folder.is_wanted:
        folder.forget()
        return
    folder.keep()
    captures = f"the capture is {run.guarded.capture}"
    if run.traced:
        captures += f" (the traced run's: {run.traced.capture.relative_to(run.guarded.folder)} beside it)"
    tell(
        captures if folder.is_named else f"{captures}; delete its folder when you are done, or choose one with --keep"
    )


def _write(files: Iterable[Path | None], report: str, exports: Exports) -> OSError | None:
    """Write the files before anything is shown, because the reader of a pipe may go away; returns what failed."""
    try:
        for file in filter(None, files):
            write_export(file, report)
        exports.write()
    except OSError as error:
        return error
    return None


def _why_one_run(run: JudgedCommand) -> str:
    if run.result.verdict is Verdict.STALL:
        return "the command stalls with TCP_NODELAY left as it is"
    return "the command failed" if run.guarded.outcome.status else f"the first one is {run.result.verdict}"


def _packets(run: JudgedCommand, exports: Exports) -> Examples:
    """The packets to draw; for a traced run those of the stall whose two writes are known."""
    result, traced = run.result, run.traced
    packets = examples([run.guarded.capture] if result.stalls else [], result, typical_only=exports.typical_only)
    if not run.writes:
        return packets
    capture, of = (traced.capture, traced.result) if traced else (run.guarded.capture, result)
    ladder = written_ladder([capture], of, run.writes)
    if ladder and traced:
        ladder = replace(ladder, run="the traced run", file=str(capture.relative_to(run.guarded.folder)))
    return replace(packets, written=ladder)
