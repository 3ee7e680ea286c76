"""A guarded command: its screen, and its JSON ``nagle-lab-guard/1``."""

import shlex
from collections.abc import Sequence
from typing import Literal

import msgspec
from rich.console import Console

from nagle_lab.diagnosis.verdict import Verdict
from nagle_lab.evidence.ladder import Ladder
from nagle_lab.evidence.software import Setting
from nagle_lab.experiments.guarded import Protection, Run
from nagle_lab.experiments.writes import Group, Write, Writes, shown
from nagle_lab.guard.job import Outcome
from nagle_lab.reports.next_steps import commands, ends, setting_of
from nagle_lab.reports.terminal import facts, show_capture

SCHEMA: Literal["nagle-lab-guard/1"] = "nagle-lab-guard/1"
_LONGEST = 60  # characters of a command in a headline
_MOST_GROUPS = 5  # pairs of writes on the screen


class Recorded(msgspec.Struct, frozen=True):
    """What was recorded of TCP."""

    captured: int
    dropped: int
    sent_by_kernel: int | None  # segments, by the count of the namespace's kernel; None: not known


class OtherSide(msgspec.Struct, frozen=True):
    """The same command without TCP_NODELAY."""

    protection: Protection
    sentence: str
    status: int | None
    verdict: Verdict
    reason: str
    exchanges: int
    stalled_exchanges: int


class Report(msgspec.Struct, frozen=True):
    """A guarded command, or a recording of what ran already."""

    schema: Literal["nagle-lab-guard/1"]
    command: list[str]
    verdict: Verdict
    reason: str
    expected: Verdict
    status: int | None  # of the command, as a shell says it
    timed_out: bool
    took_s: float
    way: str
    recorded: Recorded
    both_sides: OtherSide | None
    writes: Writes | None  # the two writes of each stall, with --trace
    result: msgspec.Raw  # nagle-lab/1, of the capture


def guard_json(run: Run, command: Sequence[str], expected: Verdict) -> str:
    """The JSON object, on one line."""
    outcome, sides = run.guarded.outcome, run.both_sides
    other = None
    if sides:
        s = sides.result.summary
        other = OtherSide(
            sides.protection, sides.sentence, sides.run.outcome.status, sides.result.verdict, sides.result.reason,
            s.exchanges, s.stalled_exchanges,
        )  # fmt: skip
    report = Report(
        schema=SCHEMA,
        command=[part.encode("utf-8", "backslashreplace").decode() for part in command],
        verdict=run.result.verdict,
        reason=run.result.reason,
        expected=expected,
        status=outcome.status,
        timed_out=outcome.timed_out,
        took_s=outcome.took_s,
        way=run.guarded.way,
        recorded=Recorded(outcome.captured, outcome.dropped, outcome.sent),
        both_sides=other,
        writes=run.writes,
        result=msgspec.Raw(run.result.to_json().encode()),
    )
    return msgspec.json.encode(report).decode() + "\n"


def show_guarded(
    run: Run, command: Sequence[str], ladder: Ladder | None, to: Console, software: Setting | None = None
) -> None:
    """The verdict on it, what it rests on, and what to do next; ``software`` held the data, where it names itself."""
    outcome = run.guarded.outcome
    about = [("ran in", run.guarded.way), ("segments", _segments(outcome))]
    if not command:
        about[0] = ("recorded", f"{run.guarded.way}, for {outcome.took_s:.1f} s")
    judged = run.selection.of(run.result)
    if len(judged) < len(run.result.connections):
        about.append(("judged", f"{len(judged)} of {len(run.result.connections)} connections"))
    if run.both_sides:
        other = run.both_sides.result
        about.append(("second run", f"with TCP_NODELAY taken away: {other.verdict}, {other.reason}"))
    if outcome.ended_by_us:
        about.append(("ended with it", ", ".join(outcome.ended_by_us)))
    about += ends(run.result, software, judged)
    to_paste = _to_paste(run, command, software)
    show_capture(run.result, ladder, to, title=title(run, command), about=about, to_paste=to_paste, slow=False)
    if run.writes:
        to.print(facts(_writes(run.writes)))
    elif run.result.stalls and command:
        to.print(facts([("next", "run it again with --trace: it names the two lines of code behind each stall")]))


def _to_paste(run: Run, command: Sequence[str], software: Setting | None) -> list[tuple[str, list[str]]]:
    """Of what runs on, all lines; a command and its namespace are gone, so only what its code has to say."""
    if not run.result.stalls:
        return []
    return [setting_of(software)] if command else commands(run.result, software)


def _writes(writes: Writes) -> list[tuple[str, str]]:
    """The two writes of the stalls, what became of TCP_NODELAY, and what tracing did to the command."""
    rows = []
    if writes.groups:
        pairs = [_pair(group) for group in writes.groups[:_MOST_GROUPS]]
        if (more := len(writes.groups) - len(pairs)) > 0:
            pairs.append(f"and {more} more pairs, which --json has")
        rows = [("" if i else "writes", pair) for i, pair in enumerate(pairs)]
        rows.append(("written by", _who(writes.groups[0])))
        if spread := writes.true_hold_ms:
            which = "the write" if writes.groups[0].one_write else "the second write"
            rows.append(("true hold", f"p50 {spread.p50:.1f}, max {spread.max:.1f} ms, from {which} to its release"))
        rows.append(("TCP_NODELAY", writes.nodelay))
        rows += [("no line", why) for why in _why_no_line(writes)]
    if writes.exchanges:
        rows.append(("traced", _compared(writes)))
    return rows + [("trace", text) for text in (writes.problem, *writes.notes) if text]


def _pair(group: Group) -> str:
    stalls = f"{group.stalls} stall{'s' * (group.stalls > 1)}"
    trigger = f"{shown(group.trigger)}  {_call(group.trigger)} {_bytes(group.trigger_bytes)}"
    if group.one_write:
        return f"{stalls}: {trigger}: one write, whose last segment was held behind its others"
    held = f"{shown(group.held)}  {_call(group.held)} {_bytes(group.held_bytes)}"
    return f"{stalls}: {trigger}, then {held}, {group.between_ms:.2f} ms later"


def _call(write: Write) -> str:
    return write.by or write.call


def _bytes(span: tuple[int, int]) -> str:
    low, high = span
    return f"{low:,} B" if low == high else f"{low:,}–{high:,} B"


def _who(group: Group) -> str:
    ends = (group.trigger, group.held)
    trigger, held = (f"{one.command}, process {one.process}, thread {one.thread}" for one in ends)
    return trigger if trigger == held else f"{trigger}; then {held}"


def _why_no_line(writes: Writes) -> list[str]:
    every = (write.why_no_line for group in writes.groups[:_MOST_GROUPS] for write in (group.trigger, group.held))
    return [why for why in dict.fromkeys(every) if why]


def _compared(writes: Writes) -> str:
    if writes.untraced_exchanges is None:
        return "all of this recording; the verdict is that of a traced run"
    here = f"{writes.stalled_exchanges} of {writes.exchanges} exchanges stalled there"
    return f"a second run; {here}, {writes.untraced_stalled_exchanges} of {writes.untraced_exchanges} without tracing"


def title(run: Run, command: Sequence[str]) -> str:
    """What was guarded, in a few words."""
    return shown_command(command) or run.guarded.way


def shown_command(command: Sequence[str]) -> str:
    """As a shell would have it, cut where it is long."""
    text = shlex.join(command)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def _segments(outcome: Outcome) -> str:
    sent = "" if outcome.sent is None else f", {outcome.sent:,} sent by the namespace's kernel"
    return f"{outcome.captured:,} of TCP recorded{sent}, {outcome.dropped:,} lost"
