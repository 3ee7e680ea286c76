"""Before and after: a round of the stalled run and one of the fixed run, side by side on one time scale."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby, pairwise, zip_longest
from pathlib import Path

from rich.text import Text

from nagle_lab.diagnosis.result.result import Result
from nagle_lab.evidence.excerpt import Step, packets_of
from nagle_lab.evidence.ladder import Ladder, LadderRow, ladder
from nagle_lab.reports.words.ladder_text import STYLES, arrow
from nagle_lab.runs.run import Run

_INSIDE = 27  # columns between the two ends
_TIME = 9  # columns of the time, and a blank
_MOST_STEPS = 6  # of the time scale, from the first row to the last
_MOST_ROWS = 6  # of the fixed run in one step; further rows are left out
_MS = 1_000_000  # ns
_MORE = "⋮"
_Line = LadderRow | str | int | None  # an arrow, "more", the moment (ns) of a step without any, or nothing


def before_and_after(before: Run, after: Run, ends: tuple[str, str]) -> Text | None:
    """Both rounds drawn, at most 78 columns wide; None if the first did not stall, or one has no complete round."""
    name = before.best
    if not before.results[name].stalls or name not in after.results:
        return None
    stalled = _stalled_round(before.capture(name), before.results[name])
    asks_from_client = before.results[name].stalls.typical().delayed_by.role == "client"
    port = after.manifest.expected.port
    fixed = _middle_round(after.capture(name), after.results[name], port, asks_from_client=asks_from_client)
    if stalled is None or fixed is None:
        return None
    left, right = (replace(of, ends=ends) for of in (stalled, fixed))
    titles = f"before: {before.manifest.variant}", f"after: {after.manifest.variant}"
    return Text("\n").join(_lines(left, right, titles))


def _stalled_round(capture: Path, result: Result) -> Ladder | None:
    """The round of a typical stall."""
    stall = result.stalls.typical()
    connection = result.connections[stall.connection]
    for steps in _rounds(list(packets_of(capture, connection)), asks_from_client=stall.delayed_by.role == "client"):
        if steps[0].frame < stall.trigger_frame < stall.release_frame <= steps[-1].frame:
            return ladder(connection, steps, stall)
    return None


def _middle_round(capture: Path, result: Result, port: int, *, asks_from_client: bool) -> Ladder | None:
    """A round in the middle of the connection under test with the most exchanges."""
    tested = [connection for connection in result.connections if connection.server.port == port]
    if not tested:
        return None
    connection = max(tested, key=lambda of: of.exchanges)
    rounds = _rounds(list(packets_of(capture, connection)), asks_from_client=asks_from_client)
    return ladder(connection, rounds[len(rounds) // 2]) if rounds else None


def _rounds(steps: Sequence[Step], *, asks_from_client: bool) -> list[Sequence[Step]]:
    """Rounds: from data of the end that delays its ACKs, after which the other end sends, to its next such data."""
    data = [i for i, step in enumerate(steps) if step.length]
    turns = [
        i for i, following in pairwise(data)
        if steps[i].from_client == asks_from_client != steps[following].from_client
    ]  # fmt: skip
    return [steps[begin : end + 1] for begin, end in pairwise([*turns, len(steps) - 1]) if end > begin]


def _lines(left: Ladder, right: Ladder, titles: tuple[str, str]) -> Iterator[Text]:
    step = _step(max(left.rows[-1].ns, right.rows[-1].ns))
    width = _TIME + _INSIDE + 2
    yield Text("  ").join(Text(f"{'':{_TIME}}{title}"[:width].ljust(width), "bold") for title in titles)
    yield Text("  ").join(Text(_heading(of.ends).ljust(width), "dim") for of in (left, right))
    for one, other in zip(*_columns(left, right, step), strict=True):
        yield Text.assemble(one, "  ", other)
    yield Text(f"{'':{_TIME}}Same time scale on both sides: a line per {step / _MS:g} ms without a packet.", "dim")


def _step(span: int) -> int:
    """The duration of a line without a packet, ns."""
    tens = (int(10**power) for power in range(4, 12))
    return next(factor * ten for ten in tens for factor in (1, 2, 5) if span < _MOST_STEPS * factor * ten)


def _heading(ends: tuple[str, str]) -> str:
    return f"{'ms':>{_TIME - 1}} {ends[0].ljust(_INSIDE + 2 - len(ends[1]))}{ends[1]}"


def _columns(left: Ladder, right: Ladder, step: int) -> tuple[list[Text], list[Text]]:
    """The lines of both sides: those of one step of the time scale begin and end side by side.

    A step without packets has one line, with its time at the left.
    """
    sides = _by_step(left, step), _by_step(right, step)
    rows: tuple[list[_Line], list[_Line]] = ([], [])
    for at in range(max(map(max, sides)) + 1):
        beside = list(zip_longest(*(side.get(at, []) for side in sides))) or [(at * step, None)]
        for column, more in zip(rows, zip(*beside, strict=True), strict=True):
            column.extend(more)
    return _column(left, rows[0]), _column(right, rows[1])


def _by_step(ladder: Ladder, step: int) -> dict[int, list[_Line]]:
    """The rows by their step; consecutive rows that look the same are merged."""
    steps: dict[int, list[_Line]] = defaultdict(list)
    alike = groupby(ladder.rows, key=lambda row: (max(row.ns, 0) // step, row.from_client, row.label, row.part))
    for (at, *_), group in alike:
        first, *more = group
        label = first.label.partition(" PSH")[0]
        steps[at].append(replace(first, label=f"{1 + len(more)} × {label}" if more else label))
    return steps if ladder.stall else {at: _shortened(rows) for at, rows in steps.items()}


def _shortened(rows: list[_Line]) -> list[_Line]:
    return rows if len(rows) <= _MOST_ROWS else [*rows[: _MOST_ROWS - 2], _MORE, rows[-1]]


def _column(ladder: Ladder, rows: Sequence[_Line]) -> list[Text]:
    """One side: its arrows, and between trigger and late ACK who waits for what; nothing after the last arrow."""
    last = max(i for i, row in enumerate(rows) if isinstance(row, LadderRow))
    words: Iterator[str] | None = None  # while somebody waits
    lines = []
    for i, row in enumerate(rows):
        time = Text(f"{row / _MS:>{_TIME - 1}g} " if isinstance(row, int) else " " * _TIME, "dim")
        if isinstance(row, LadderRow):
            lines.append(_arrow(row))
            if row.part in ("trigger", ladder.wait_ends):
                words = iter(ladder.waits) if row.part == "trigger" else None
        elif i > last:
            lines.append(time + Text(" " * (_INSIDE + 2)))
        elif words:
            lines.append(Text.assemble(time, "┊", (next(words, "").center(_INSIDE), "bold yellow"), "┊"))
        else:
            more = row if isinstance(row, str) else ""
            lines.append(time + Text(f"│{more.center(_INSIDE)}│"))
    return lines


def _arrow(row: LadderRow) -> Text:
    said = row.part if row.part == "late ACK" else f"{row.label} {row.part}".rstrip()
    line = arrow(said, _INSIDE, from_client=row.from_client)
    return Text.assemble(f"{row.ns / _MS:>{_TIME - 1}.3f} │", (line, STYLES[row.part]), "│")
