"""A guarded command: its screen, and its JSON ``nagle-lab-guard/1``."""

import re
import shlex
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal

import msgspec
from rich.console import Console

from nagle_lab.diagnosis.result.could_stall import Missing
from nagle_lab.diagnosis.result.json_text import json_text
from nagle_lab.diagnosis.result.remedy import cleared
from nagle_lab.diagnosis.result.spread import plural
from nagle_lab.diagnosis.result.verdict import ENOUGH_EXCHANGES, Verdict
from nagle_lab.diagnosis.result.writes import Write, Writes
from nagle_lab.evidence.software import NodelaySetting, setting_by_file, setting_by_library, setting_by_name
from nagle_lab.experiments.software.guarded import JudgedCommand, Protection, recording_gap
from nagle_lab.guard.recording.job import Outcome
from nagle_lab.guard.recording.run_command import Guarded
from nagle_lab.reports.screens.terminal import facts, show_capture
from nagle_lab.reports.words.next_steps import CAPTURED_HOST, IN_THE_CAPTURE, commands, ends, setting_of
from nagle_lab.reports.words.phrases import server_ports
from nagle_lab.reports.words.reported import ReportedCapture
from nagle_lab.reports.words.writes_text import MOST_GROUPS

SCHEMA: Literal["nagle-lab-guard/1"] = "nagle-lab-guard/1"
_SHELLS = {"sh", "bash", "dash", "ksh", "zsh"}
_LONGEST = 60  # characters of a command in a headline


class RecordedSegments(msgspec.Struct, frozen=True):
    """How many TCP segments were recorded, sent and lost."""

    captured: int
    dropped: int
    sent_by_kernel: int | None  # segments, by the count of the namespace's kernel; None: not known


class OtherSide(msgspec.Struct, frozen=True):
    """What the same command did without TCP_NODELAY."""

    protection: Protection
    sentence: str
    status: int | None
    verdict: Verdict
    reason: str
    exchanges: int
    stalled_exchanges: int


class GuardReport(msgspec.Struct, frozen=True):
    """A guarded command, or a recording of running software."""

    schema: Literal["nagle-lab-guard/1"]
    command: list[str]
    verdict: Verdict
    reason: str
    expected: Verdict
    status: int | None  # of the command, as in a shell
    timed_out: bool
    took_s: float
    way: str
    recorded: RecordedSegments
    both_sides: OtherSide | None
    writes: Writes | None  # the two writes of each stall, with --trace
    result: msgspec.Raw  # nagle-lab/1, of the capture


def guard_json(run: JudgedCommand, expected: Verdict) -> str:
    """A guarded command as JSON, on one line."""
    outcome, sides = run.guarded.outcome, run.both_sides
    other = None
    if sides:
        s = sides.result.summary
        other = OtherSide(
            sides.protection, sides.sentence, sides.run.outcome.status, sides.result.verdict, sides.result.reason,
            s.exchanges, s.stalled_exchanges,
        )  # fmt: skip
    report = GuardReport(
        schema=SCHEMA,
        command=[part.encode("utf-8", "backslashreplace").decode() for part in run.guarded.command],
        verdict=run.result.verdict,
        reason=run.result.reason,
        expected=expected,
        status=outcome.status,
        timed_out=outcome.timed_out,
        took_s=outcome.took_s,
        way=run.guarded.way,
        recorded=RecordedSegments(outcome.captured, outcome.dropped, outcome.sent),
        both_sides=other,
        writes=run.writes,
        result=msgspec.Raw(run.result.to_json().encode()),
    )
    return json_text(report) + "\n"


def about_guarded(run: JudgedCommand) -> list[tuple[str, str]]:
    """Names and values: how it was recorded, which connections were judged, and what the second run showed."""
    outcome = run.guarded.outcome
    about = [("ran in", run.guarded.way), ("segments", _segments(outcome))]
    if not run.guarded.command:
        about[0] = ("recorded", f"{run.guarded.way}, for {outcome.took_s:.1f} s")
    if run.result.verdict is Verdict.STALL and (gap := recording_gap(outcome)):  # otherwise it is the reason
        about.append(("incomplete", gap))
    judged = run.selection.of(run.result)
    if len(judged) < len(run.result.connections):
        every = len(run.result.connections)
        others = "" if judged else f"; {server_ports(run.result)}"
        about.append(("judged", f"{len(judged)} of {every} {plural('connection', every)}{others}"))
    if run.result.verdict is Verdict.CLEAN and 0 < run.second_writes < ENOUGH_EXCHANGES:
        writes = f"{run.second_writes} second {plural('write', run.second_writes)}"
        about.append(("rests on", f"{writes}: Nagle's algorithm had nothing else to hold; ten would say more"))
    if run.both_sides:
        other = run.both_sides.result
        about.append(("second run", f"with TCP_NODELAY taken away: {other.verdict}, {other.reason}"))
    if outcome.ended_by_us:
        about.append(("ended with it", ", ".join(outcome.ended_by_us)))
    return about


def show_guarded(run: JudgedCommand, reported: ReportedCapture, screen: Console) -> None:
    """Print the verdict, its basis, and what to do next."""
    show_capture(reported, screen, [*reported.about, *ends(run.result, reported.packets.software)])
    if run.guarded.command and (step := _next(run)):
        screen.print(facts([("next", step)]))


_LET_IT_CONNECT = (
    "see that it opens a TCP connection over loopback: a test that is skipped or cached (go test without -count=1) "
    "opens none, and what runs in containers, in namespaces of its own (pytest --nagle) or over UNIX sockets is "
    "not recorded"
)


def _next(run: JudgedCommand) -> str:
    """Which further run would show more, or what to see to before it."""
    is_silent = run.missing is Missing.TRAFFIC and not run.guarded.outcome.status
    if run.writes:
        return "make one of these changes and run it again, with --both-sides to see what protects it then"
    if run.result.stalls:
        return "run it again with --trace: it names the two lines of code behind each stall"
    if run.both_sides:
        return _LET_IT_CONNECT if is_silent else ""
    if run.result.verdict is Verdict.CLEAN:
        return "run it once with --both-sides: it says whether TCP_NODELAY is what protects this"
    if run.missing is Missing.SECOND_WRITE and not run.guarded.outcome.status:
        return "if single writes are your fix, run it again with --both-sides: CLEAN then proves that they protect it"
    return _LET_IT_CONNECT if is_silent else ""


def to_paste(run: JudgedCommand, software: NodelaySetting | None) -> list[tuple[str, list[str]]]:
    """The lines to paste; for a guarded command, which has ended with its namespace, only what its code must set."""
    if not run.guarded.command:
        traced = _languages(run.writes) if run.writes and not software else []
        what, known_by = traced[0] if traced else (software, IN_THE_CAPTURE)
        blocks = commands(run.result, what, known_by=known_by)
        return [_entered(*block, run.guarded.enter) for block in blocks] if run.guarded.enter else blocks
    if cleared(run.writes):
        return []  # it was set already: the remedy says what takes it away
    if run.writes and run.writes.groups:
        known = _languages(run.writes)
        return [setting_of(*each) for each in known] or commands(run.result, software, running=False)
    if not software and (named := language_of_command(run.guarded.command)):
        return commands(
            run.result, named[0], running=False, known_by=f"the language of {named[1]}, if that holds the data"
        )
    return commands(run.result, software, running=False)


_COMMAND = re.compile(r"(?<![^(; ])(?=(?:ip|ss|tcpdump|nagle-lab) )")  # where one begins in a line to paste


def _entered(about: str, lines: list[str], enter: str) -> tuple[str, list[str]]:
    """What to paste, for the network namespace that was recorded: its loopback is not that of this host."""
    if CAPTURED_HOST not in about:
        return about, lines
    return about.replace(CAPTURED_HOST, "this host"), [_COMMAND.sub(lambda _: enter, line) for line in lines]


def language_of_command(command: Sequence[str]) -> tuple[NodelaySetting, str] | None:
    """The language of what a command names, and of which word; None where its words name several, or none.

    A test in one language may start a server in another.
    """
    words = [Path(word).name for word in _words(command) if not word.startswith("-")]
    named = [(found, word) for word in words if (found := setting_by_name(word) or setting_by_file(word))]
    if len({setting.software for setting, _ in named}) != 1:
        return None
    return next(
        (one for one in named if setting_by_file(one[1])), named[0]
    )  # rather the program than its interpreter


def _words(command: Sequence[str]) -> Iterator[str]:
    """The words of a command, and of the script in it, if a shell runs one (sh -c)."""
    for at, word in enumerate(command):
        is_script = at >= 2 and command[at - 1].startswith("-") and command[at - 1].endswith("c")
        if is_script and Path(command[at - 2]).name in _SHELLS:
            with suppress(ValueError):  # a quotation mark without its counterpart
                yield from shlex.split(word, comments=True)
        else:
            yield word


def _languages(writes: Writes) -> list[tuple[NodelaySetting, str]]:
    """The language of each program that held, the most frequent pair of writes first; each language once."""
    of_groups = (language(group.held, group.trigger) for group in writes.groups[:MOST_GROUPS])
    by_name: dict[str, tuple[NodelaySetting, str]] = {}
    for setting, known_by in filter(None, of_groups):
        by_name.setdefault(setting.software, (setting, known_by))
    return list(by_name.values())


def language(held: Write, trigger: Write) -> tuple[NodelaySetting, str] | None:
    """How TCP_NODELAY is set where these writes were made, and whether a file or the program shows that.

    A server's own setting comes first: who wrote an application for it does not have the socket.
    """
    for write, what in ((held, "what was held"), (trigger, "the trigger")):
        if write.library and (setting := setting_by_library(write.library.file)):
            return setting, f"which wrote {what} ({write.library.file})"
    for place in (held.program, held.library):
        if place and (setting := setting_by_file(place.file)):
            return setting, f"the language of {Path(place.file).name}"
    setting_there = setting_by_name(held.command)
    return (setting_there, f"which wrote what was held ({held.command})") if setting_there else None


def title(guarded: Guarded) -> str:
    """What was guarded: the command as in a shell, shortened if it is long, or the running software."""
    if not guarded.command:
        return guarded.what
    text = shlex.join(guarded.command)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def _segments(outcome: Outcome) -> str:
    sent = "" if outcome.sent is None else f", {outcome.sent:,} sent by the namespace's kernel"
    return f"{outcome.captured:,} of TCP recorded{sent}, {outcome.dropped:,} lost"
