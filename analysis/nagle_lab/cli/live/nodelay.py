"""nagle-lab nodelay: TCP_NODELAY set on a program's open sockets, and taken back."""

import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

import click

from nagle_lab.cli.live.sockets import pids_of
from nagle_lab.cli.shared.values import duration_s
from nagle_lab.diagnosis.result.spread import plural
from nagle_lab.errors import Exit, NagleLabError, tell
from nagle_lab.experiments.nodelay import (
    Conclusion,
    ProgramRecording,
    beside,
    conclude,
    conclude_back,
    record_program,
)
from nagle_lab.host.children import TAKEN, ending_by_signals
from nagle_lab.live.sockets.inventory import HostSocket
from nagle_lab.live.sockets.processes import process_name, started_at
from nagle_lab.live.sockets.set_nodelay import (
    TargetProgram,
    sockets,
    those_without_nodelay,
    to_take_back,
    turn_back,
    turn_on,
)
from nagle_lab.reports.experiments.nodelay import NodelayRun, in_a_line, names, nodelay_json, show_tried
from nagle_lab.reports.screens.terminal import console


def command(
    state: str,
    pid: int | None,
    container: str | None,
    port: int | None,
    limit: str | None,
    seconds: float,
    yes: bool,
    as_json: bool,
) -> Exit:
    """Record, ask, change, record again, and show the difference; as JSON at the end."""
    limit_s = _check_usage(state, pid, container, limit)
    program = _program(pid, container, port)
    done = NodelayRun(program.name, "off" if state == "off" else "on", as_json)
    with ending_by_signals(), tempfile.TemporaryDirectory(prefix="nagle-lab-nodelay-") as folder:
        if state == "off":
            code = _off(program, Path(folder), seconds, yes, done)
        else:
            code = _on(program, Path(folder), seconds, limit_s, yes, done)
    if as_json:
        sys.stdout.write(nodelay_json(done, code))
    return code


def _on(
    program: TargetProgram, folder: Path, seconds: float, limit_s: float | None, yes: bool, done: NodelayRun
) -> Exit:
    _without(program)
    _require_terminal(yes)
    if before := _watch(program, folder / "before", seconds):
        tell(in_a_line(before))
    if not _agreed("Set TCP_NODELAY on", _without(program), yes):
        return Exit.INCONCLUSIVE
    with ExitStack() as taking_back:  # however this ends
        taking_back.callback(_take_back_undisturbed, program, done)
        until = time.monotonic() + (limit_s or 0)
        those = sockets(program)
        done.set = turn_on(program, those, those_without_nodelay(those))
        _log("set", done.set)
        after = _watch(program, folder / "after", seconds if limit_s is None else min(seconds, limit_s))
        code = _concluded(done, before, after, conclude)
        if limit_s is None:
            taking_back.pop_all()
            tell("connections that its listeners accept from now on have it too; those it opens itself do not")
            tell(f"to take it back: nagle-lab nodelay {program.options} off")
        else:
            time.sleep(max(until - time.monotonic(), 0))
    return code


def _off(program: TargetProgram, folder: Path, seconds: float, yes: bool, done: NodelayRun) -> Exit:
    _changed(program)
    _require_terminal(yes)
    if before := _watch(program, folder / "before", seconds):
        tell(in_a_line(before))
    if not _agreed("Take TCP_NODELAY back from", _changed(program), yes):
        return Exit.INCONCLUSIVE
    _take_back(program, done)
    return _concluded(done, before, _watch(program, folder / "after", seconds), conclude_back)


def _check_usage(state: str, pid: int | None, container: str | None, limit: str | None) -> float | None:
    """Seconds of --for. Raises NagleLabError."""
    if not pid and not container:
        raise NagleLabError("nodelay needs --pid or --container: nagle-lab sockets shows which program holds data")
    if limit and state == "off":
        raise NagleLabError("--for works with on only, which it takes back: leave it out")
    return duration_s(limit, "--for") if limit else None


def _program(pid: int | None, container: str | None, port: int | None) -> TargetProgram:
    pids = pids_of(pid, container) or set()
    started = {each: at for each in pids if (at := started_at(each)) is not None}
    if container:
        return TargetProgram(f"container {container}", started, port, f"--container {container}")
    return TargetProgram(f"{process_name(pid or 0)} {pid}", started, port, f"--pid {pid}")


def _without(program: TargetProgram) -> list[HostSocket]:
    """The program's sockets without TCP_NODELAY. Raises NagleLabError if there are none."""
    those = sockets(program)
    if found := those_without_nodelay(those):
        return found
    raise NagleLabError(
        f"{program.name}: TCP_NODELAY is already set ({_count(those)}): if data is held, the other end holds it"
    )


def _changed(program: TargetProgram) -> list[HostSocket]:
    """The program's sockets on which nagle-lab set TCP_NODELAY. Raises NagleLabError if there are none."""
    if found := to_take_back(program, sockets(program)).back:
        return found
    raise NagleLabError(f"nothing to take back: nagle-lab nodelay on has changed no open socket of {program.name}")


def _watch(program: TargetProgram, folder: Path, seconds: float) -> ProgramRecording | None:
    """Record the program for so many seconds; returns None for 0 seconds."""
    if not seconds:
        return None
    tell(f"recording the network namespace of {program.name} for {seconds:g} s")
    try:
        return record_program(program, folder, seconds)
    except NagleLabError as error:
        raise NagleLabError(f"{error}; with --seconds 0 nothing is recorded") from None


def _require_terminal(yes: bool) -> None:
    """Raise NagleLabError if the user must be asked, but cannot be, before anything is recorded."""
    if not yes and (sys.stdin is None or not sys.stdin.isatty()):
        raise NagleLabError("there is no terminal to ask at: use --yes to continue without asking")


def _agreed(what: str, sockets: list[HostSocket], yes: bool) -> bool:
    if yes:
        return True
    for line in names(sockets):
        tell(line)
    question = f"{what} {_count(sockets)}, and connections accepted meanwhile?"
    if click.confirm(question, default=False, err=True):
        return True
    tell("nothing was changed")
    return False


def _take_back_undisturbed(program: TargetProgram, done: NodelayRun) -> None:
    """Take the change back while signals wait."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, TAKEN)
    try:
        _take_back(program, done)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _take_back(program: TargetProgram, done: NodelayRun) -> None:
    try:
        those = sockets(program)
    except NagleLabError as error:  # the program has ended, or closed them all
        tell(f"nothing is left to take back: {error}")
        return
    turned = turn_back(program, those)
    done.taken_back = turned.back
    _log("taken back", turned.back)
    if turned.kept:
        tell(
            f"{_count(turned.kept)} accepted meanwhile with TCP_NODELAY left alone: "
            "the program may have set it itself"
        )


def _log(what: str, sockets: Sequence[HostSocket]) -> None:
    for line in names(sockets):
        tell(f"TCP_NODELAY {what}: {line}")


def _concluded(
    done: NodelayRun,
    before: ProgramRecording | None,
    after: ProgramRecording | None,
    conclude_: Callable[[ProgramRecording, ProgramRecording], Conclusion],
) -> Exit:
    if before is None or after is None:
        return Exit.OK
    done.before, done.after = beside(before, after), beside(after, before)
    done.conclusion = conclude_(done.before, done.after)
    if not done.as_json:
        show_tried(done.before, done.after, done.conclusion, console())
        sys.stdout.flush()
    return done.conclusion.code


def _count(sockets: list[HostSocket]) -> str:
    return f"{len(sockets):,} {plural('socket', len(sockets))}"
