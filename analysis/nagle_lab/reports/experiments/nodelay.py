"""TCP_NODELAY set on open sockets, and its effect: on the screen, and as JSON ``nagle-lab-nodelay/1``."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import msgspec
from rich.console import Console
from rich.text import Text

from nagle_lab.diagnosis.result.json_text import json_text
from nagle_lab.diagnosis.result.result import Count, NamedEnd
from nagle_lab.diagnosis.result.spread import Spread
from nagle_lab.diagnosis.result.verdict import Verdict
from nagle_lab.errors import Exit
from nagle_lab.experiments.comparison import compared
from nagle_lab.experiments.nodelay import Conclusion, ProgramRecording
from nagle_lab.host.sock_diag import LISTEN
from nagle_lab.live.sockets.inventory import HostSocket
from nagle_lab.packet.segment import end_text
from nagle_lab.reports.experiments.comparison import show_comparison
from nagle_lab.reports.screens.sockets import Owner, SocketEnd, owner, whose_and_where

SCHEMA: Literal["nagle-lab-nodelay/1"] = "nagle-lab-nodelay/1"
MOST = 20  # sockets that are named one by one
_STYLE = {Exit.OK: "bold green", Exit.CONTRADICTED: "bold red", Exit.INCONCLUSIVE: "bold yellow"}


@dataclass
class NodelayRun:
    """What has been done so far; at the end it becomes the JSON."""

    program: str
    state: Literal["on", "off"]
    as_json: bool
    set: Sequence[HostSocket] = ()
    taken_back: Sequence[HostSocket] = ()
    before: ProgramRecording | None = None
    after: ProgramRecording | None = None
    conclusion: Conclusion | None = None


class Changed(msgspec.Struct, frozen=True):
    """A socket on which the option was changed."""

    processes: list[Owner]
    container: str | None
    local: SocketEnd
    remote: SocketEnd | None  # None: it listens


class Recorded(msgspec.Struct, frozen=True):
    """What was recorded before the change, or after it, of the program's connections."""

    verdict: Verdict
    reason: str
    nodelay: str  # on how many of the sockets the option was set when the recording began
    exchanges: Count
    stalled_exchanges: Count
    wait_ms: Spread | None
    exchange_ms: Spread | None
    held_ends: list[NamedEnd]


class NodelayReport(msgspec.Struct, frozen=True):
    """TCP_NODELAY tried on a running program."""

    schema: Literal["nagle-lab-nodelay/1"]
    program: str
    state: Literal["on", "off"]  # the requested state
    set: list[Changed]
    taken_back: list[Changed]  # by off, or at the end of --for
    before: Recorded | None  # None, as after: nothing was recorded
    after: Recorded | None
    conclusion: str  # a sentence; "" if nothing was recorded
    exit_code: Annotated[int, msgspec.Meta(ge=0, le=3)]


def nodelay_json(done: NodelayRun, code: Exit) -> str:
    """The JSON object, on one line."""
    report = NodelayReport(
        schema=SCHEMA,
        program=done.program,
        state=done.state,
        set=[Changed(**whose_and_where(one)) for one in done.set],
        taken_back=[Changed(**whose_and_where(one)) for one in done.taken_back],
        before=_recorded(done.before) if done.before else None,
        after=_recorded(done.after) if done.after else None,
        conclusion=done.conclusion.sentence if done.conclusion else "",
        exit_code=int(code),
    )
    return json_text(report) + "\n"


def _recorded(recording: ProgramRecording) -> Recorded:
    result, s = recording.result, recording.result.summary
    return Recorded(
        result.verdict, result.reason, recording.option, s.exchanges, s.stalled_exchanges, s.wait_ms, s.exchange_ms,
        s.held_ends,
    )  # fmt: skip


def names(sockets: Sequence[HostSocket]) -> list[str]:
    """A line for each of the first twenty sockets, and one for the number of others."""
    lines = [_name(one) for one in sockets[:MOST]]
    more = len(sockets) - MOST
    return [*lines, *([f"and {more:,} more"] if more > 0 else [])]


def _name(socket: HostSocket) -> str:
    what = "listens" if socket.listed.state == LISTEN else f"↔ {end_text(*socket.listed.remote)}"
    return f"{owner(socket)}: {end_text(*socket.listed.local)} {what}"


def in_a_line(recording: ProgramRecording) -> str:
    """What was recorded, in a line: the verdict, and why."""
    s, verdict = recording.result.summary, recording.result.verdict
    counts = f"{f'{s.stalled_exchanges:,}' if s.stalled_exchanges else 'none'} of {s.exchanges:,} exchanges stalled"
    said = counts if verdict is Verdict.STALL else recording.result.reason
    return f"{recording.name}: {verdict}, {said}".rstrip(", ")


def show_tried(before: ProgramRecording, after: ProgramRecording, conclusion: Conclusion, screen: Console) -> None:
    """Print both recordings side by side, and the conclusion."""
    show_comparison(compared([before.subject, after.subject]), screen)
    screen.print(
        Text(f"\n{conclusion.sentence[0].upper()}{conclusion.sentence[1:]}", _STYLE.get(conclusion.code, "bold"))
    )
