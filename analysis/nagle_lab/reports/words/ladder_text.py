"""The ladder diagram for the terminal: client left, server right, time downwards.

One line per segment, whatever the time between two: the diagram says that it is not to scale, and shows the time
behind a segment that comes long after the one above. The wait of a stall is a break between two lines. A call that
wrote is a square on the line of the end that wrote, at its time, with its line of code inside.
"""

import textwrap
from collections.abc import Iterator
from dataclasses import dataclass

from rich.text import Text

from nagle_lab.evidence.ladder import Ladder, LadderRow, Written
from nagle_lab.reports.words.phrases import answers_as
from nagle_lab.reports.words.writes_text import call_of, place_of

_INSIDE, _LEAST = 38, 20  # columns between the two ends; the least in a narrow terminal
_RIGHT = 18  # columns to the right of the right end: its line, and the part of a segment
_NARROW = 58  # columns below which frame number and time stand close together
_LONG = 10**6  # ns: a segment so long after the one above shows the time
_PARTS = {"trigger": "trigger", "held": "release"}  # of the stall, that a call wrote
STYLES = {"": "", "trigger": "cyan", "late ACK": "bold yellow", "release": "bold cyan"}


def ladder_text(ladder: Ladder, width: int = 100) -> Text:
    """Lines of at most so many columns: frame, ms since the first row, arrow with size and flags, part of the stall.

    Below 76 columns the arrows are shorter, below 58 the figures closer, so that nothing is folded down to some 48.
    """
    last = ladder.rows[-1]
    left = _Left() if width >= _NARROW else _Left(max(len("frame"), len(str(last.frame))), len(_ms(last.ns)))
    return Text("\n").join(_lines(ladder, left, max(min(_INSIDE, width - left.columns - _RIGHT), _LEAST)))


def _ms(ns: int) -> str:
    return f"{ns / 1e6:.3f}"


@dataclass(frozen=True)
class _Left:
    """What is left of the ladder: the columns of a frame's number and of its time."""

    frame: int = 8
    ms: int = 9

    @property
    def columns(self) -> int:
        return self.frame + self.ms + 3

    def text(self, frame: int | str, ms: str) -> str:
        return f"{frame:>{self.frame}} {ms:>{self.ms}}  "


def _lines(ladder: Ladder, at: _Left, inside: int) -> Iterator[Text]:
    client, server = str(ladder.connection.client), str(ladder.connection.server)
    left, right = ladder.ends
    scale = "  not to scale" if at == _Left() else ""
    yield Text(f"{at.text('frame', 'ms')}{left.ljust(inside + 2 - len(right))}{right}{scale}", style="dim")
    width = max(inside + 2 - len(server), len(client) + 1)
    yield Text(f"{'':{at.columns - 1}}{client:<{width}}{server}", style="dim")
    if translated := answers_as(ladder.connection):
        yield Text(f"{'':{at.columns - 1}}{translated:>{inside + 2}}", style="dim")
    before = ladder.rows[0]
    calls = list(ladder.written)
    for row in ladder.rows:
        later = row.ns - before.ns
        while calls and calls[0].ns <= row.ns:
            from_client = ladder.stall is not None and ladder.stall.held_by.role == "client"
            place = place_of(calls[0].write, inside - 3, same_line=ladder.same_line)
            yield _call(calls.pop(0), place, at, inside, from_client=from_client)
        if ladder.stall and row.part == ladder.wait_ends:
            wait, holds, delays = ladder.waits
            said = (f"{wait}: {holds},", *ladder.hold, delays)
            for words in (line for text in said for line in textwrap.wrap(text, inside)):
                yield Text.assemble(" " * at.columns, "┊", (words.center(inside), STYLES[row.part]), "┊")
            later = 0  # the wait has been shown
        yield _arrow(row, later, at, inside, dim=ladder.stall is not None and not row.part)
        before = row


def _call(call: Written, place: str, at: _Left, columns: int, *, from_client: bool) -> Text:
    """A call that wrote, at that place, followed by its name and how much it wrote."""
    style = STYLES["trigger" if call.part == "both" else _PARTS[call.part]]
    inside = f"■ {place}".ljust(columns + 1) + "│" if from_client else "│" + f"{place} ■".rjust(columns + 1)
    text = Text(at.text("", _ms(call.ns)), style="dim")
    return text.append(inside, style=style).append("  ").append(call_of(call.write), style=style)


def _arrow(row: LadderRow, later: int, at: _Left, columns: int, *, dim: bool) -> Text:
    style = STYLES[row.part]
    text = Text(f"{at.text(row.frame, _ms(row.ns))}│", style="dim" if dim else "")
    text.append(arrow(row.label, columns, from_client=row.from_client), style=style).append("│  ")
    if later >= _LONG:
        text.append(f"+{later / 1e6:.1f} ms " if later < 10**9 else f"+{later / 1e9:.1f} s ", style="dim")
    return text.append("seen again", style="dim") if row.again else text.append(row.part, style=style)


def arrow(label: str, columns: int, *, from_client: bool) -> str:
    """An arrow in so many columns, from the left if it is the client's, with its label near its beginning."""
    if from_client:
        return f"── {label} ".ljust(columns - 1, "─") + "▶"
    return "◀" + f" {label} ──".rjust(columns - 1, "─")
