"""The ladder diagram as SVG: client left, server right, time downwards and to scale.

Segments that lie closer than rows can be drawn are set apart; a thin line leads from each to its moment on the time
axis. Drawn twice, for a wide screen and for a phone; the style sheet shows one.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from nagle_lab.diagnosis.result import Connection, Stall
from nagle_lab.evidence.excerpt import Step
from nagle_lab.reports.html.markup import Html, each, lines, tag

_MICROSECOND = 1_000  # ns
_LEAST, _MOST = 430, 1400  # height of the whole time, px
_ROOM = 170  # for the words in the wait, px
_MARKS = {"trigger": "●", "late": "◆", "release": "▲"}
_WORDS = {"trigger": "trigger", "late": "late ACK", "release": "release"}


@dataclass(frozen=True)
class _Sheet:
    """Where things are, px."""

    kind: str  # class of the SVG
    width: int
    axis: int
    rows: int  # left edge of frame numbers
    client: int
    server: int
    top: int
    step: int  # least distance of two rows
    font: int


_WIDE = _Sheet("wide", 960, 70, 106, 250, 860, 84, 42, 18)
_NARROW = _Sheet("narrow", 380, 30, 50, 112, 352, 92, 42, 13)


def ladder(steps: Sequence[Step], connection: Connection, stall: Stall | None = None) -> Html:
    """The packets ``steps`` of a connection, those of ``stall`` marked: for wide and for narrow screens."""
    return each(*(_drawn(sheet, steps, connection, stall) for sheet in (_WIDE, _NARROW)))


def _drawn(sheet: _Sheet, steps: Sequence[Step], connection: Connection, stall: Stall | None) -> Html:
    scale = _scale(sheet, steps, stall)
    true, rows = _places(sheet, steps, scale)
    height = max(rows[-1], true[-1]) + 34
    parts = [_axis(sheet, steps, true[0], scale), _lifelines(sheet, connection, height - 12)]
    if stall:
        exact, at = ({s.frame: y for s, y in zip(steps, places, strict=True)} for places in (true, rows))
        begin, end = exact[stall.trigger_frame], exact[stall.ack_frame]
        parts.append(tag("rect", x=sheet.axis - 3, y=begin, width=6, height=end - begin, class_="scaled"))
        marked = (at[frame] for frame in (stall.trigger_frame, stall.ack_frame, stall.release_frame))
        parts.append(_hold(sheet, stall, *marked))
    parts += [_row(sheet, steps, i, at, _what(steps[i], stall)) for i, at in enumerate(zip(rows, true, strict=True))]
    label = f"Ladder diagram of {len(steps)} segments between {connection.client} and {connection.server}"
    return tag(
        "svg",
        *parts,
        class_=f"ladder {sheet.kind}",
        viewBox=f"0 0 {sheet.width} {height:.0f}",
        font_size=sheet.font,
        role="group",
        aria_label=label,
    )


def _scale(sheet: _Sheet, steps: Sequence[Step], stall: Stall | None) -> int:
    """Height of the whole time, px: so much that the wait has room, however many rows come before it."""
    for scale in range(_LEAST, _MOST, 50):
        _, rows = _places(sheet, steps, scale)
        at = {step.frame: y for step, y in zip(steps, rows, strict=True)}
        if stall is None or at[stall.ack_frame] - at[stall.trigger_frame] >= _ROOM:
            return scale
    return _MOST


def _places(sheet: _Sheet, steps: Sequence[Step], scale: int) -> tuple[list[float], list[float]]:
    """Of each step its exact place on the time axis, and that of its row."""
    moments = _moments(steps)
    true = [sheet.top + 24 + scale * ns / max(1, moments[-1]) for ns in moments]
    return true, _apart(true, sheet.step)


def _apart(true: Sequence[float], step: float) -> list[float]:
    """The places nearest to ``true`` (least squares), none above the first, that are at least a ``step`` apart."""
    blocks: list[tuple[float, int]] = []  # mean and size, of places less a step for each before: they only grow
    for i, y in enumerate(true):
        mean, size = y - i * step, 1
        while blocks and blocks[-1][0] >= mean:
            before, more = blocks.pop()
            mean, size = (mean * size + before * more) / (size + more), size + more
        blocks.append((mean, size))
    placed = [max(mean, true[0]) for mean, size in blocks for _ in range(size)]
    return [y + i * step for i, y in enumerate(placed)]


def _what(step: Step, stall: Stall | None) -> str:
    if stall is None:
        return ""
    return {stall.trigger_frame: "trigger", stall.ack_frame: "late", stall.release_frame: "release"}.get(
        step.frame, ""
    )


def _axis(sheet: _Sheet, steps: Sequence[Step], top: float, scale: int) -> Html:
    unit, ns = _unit(steps)
    span = _moments(steps)[-1] / ns
    every = _nice(span / 5)
    ticks = [every * i for i in range(math.floor(span / every + 1e-9) + 1)] if span else [0.0]
    marks = []
    for tick in ticks:
        y = top + (scale * tick / span if span else 0)
        marks.append(tag("line", x1=sheet.axis - 6, x2=sheet.axis, y1=y, y2=y, class_="axis"))
        marks.append(tag("text", f"{tick:g}", x=sheet.axis - 9, y=y + 5, text_anchor="end", class_="muted"))
    return each(
        tag("line", x1=sheet.axis, x2=sheet.axis, y1=top, y2=top + scale, class_="axis"),
        tag("text", unit, x=sheet.axis - 9, y=top - 18, text_anchor="end", class_="muted"),
        *marks,
    )


def _unit(steps: Sequence[Step]) -> tuple[str, int]:
    """The unit in which the time of the steps is told, so that few digits tell it, and its ns."""
    span = _moments(steps)[-1]
    return ("µs", _MICROSECOND) if span < 10**6 else ("ms", 10**6) if span < 10**9 else ("s", 10**9)


def _moments(steps: Sequence[Step]) -> list[int]:
    """The time of each step since the first, ns; where the clock was set back, time stands still."""
    return list(accumulate((step.ts - steps[0].ts for step in steps), max))


def _nice(least: float) -> float:
    """The smallest of 1, 2, 5 × 10ⁿ that is no less."""
    if least <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(least))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= least * (1 - 1e-9))


def _lifelines(sheet: _Sheet, connection: Connection, bottom: float) -> Html:
    narrow = sheet.kind == "narrow"
    small = sheet.font - (2 if narrow else 3)
    left = 4 if narrow else sheet.rows
    return each(
        tag("text", "client", x=left, y=26, class_="end"),
        tag("text", "server", x=sheet.width - 4, y=26, text_anchor="end", class_="end"),
        tag("text", str(connection.client), x=left, y=48, font_size=small, class_="muted"),
        tag(
            "text", str(connection.server), x=sheet.width - 4, y=66 if narrow else 48, text_anchor="end",
            font_size=small, class_="muted",
        ),
        *(tag("line", x1=x, x2=x, y1=sheet.top - 10, y2=bottom, class_="life") for x in (sheet.client, sheet.server)),
    )  # fmt: skip


def _hold(sheet: _Sheet, stall: Stall, trigger: float, late: float, release: float) -> Html:
    """Who waits for whom: the held side's bar from trigger to release, the other's from trigger to late ACK."""
    x = {"client": sheet.client, "server": sheet.server}
    held, delaying = stall.held_by.role, stall.delayed_by.role
    middle, centre = (trigger + late) / 2, (sheet.client + sheet.server) / 2
    half = 6 if sheet.kind == "narrow" else 8
    small = sheet.font - 1
    words = [
        (f"{stall.wait_ms:.1f} ms", "big", -14),
        (f"{held} holds {stall.released_bytes} B (Nagle)", "holds", 10),
        (f"{delaying} delays its ACK", "delays", 32),
    ]
    between = sheet.server - sheet.client
    return each(
        tag("rect", x=sheet.client, y=trigger, width=between, height=late - trigger, class_="wait"),
        tag("rect", x=x[held] - half, y=trigger, width=2 * half, height=release - trigger, class_="holding"),
        tag("rect", x=x[delaying] - half, y=trigger, width=2 * half, height=late - trigger, class_="delaying"),
        *(
            tag("text", said, x=centre, y=middle + dy, text_anchor="middle", class_=style,
                font_size=sheet.font + 8 if style == "big" else small)
            for said, style, dy in words
        ),
    )  # fmt: skip


def _row(sheet: _Sheet, steps: Sequence[Step], i: int, at: tuple[float, float], what: str) -> Html:
    """One of the segments: its row and its exact place on the axis are ``at``."""
    step, unit, (y, exact) = steps[i], _unit(steps)[1], at
    ns = step.ts - steps[0].ts
    time = f"{ns / unit:.{1 if unit == _MICROSECOND else 3}f}"
    said = said_of(step, ns / 1e6, _WORDS.get(what, ""))
    begin, end = (sheet.client, sheet.server) if step.from_client else (sheet.server, sheet.client)
    way = 1 if step.from_client else -1
    tip, size = end - way * 2, 7
    head = f"M{tip} {y:.2f}l{-way * 2 * size} {-size}v{2 * size}z"
    label = f"{step.length} B {step.flags}" if step.length else "" if what == "late" else step.flags
    noted = f"{_MARKS[what]} {_WORDS[what]}  " if what else ""
    edge = sheet.rows + (4 if sheet.kind == "narrow" else 0)
    return tag(
        "g",
        tag("rect", x=sheet.rows - 4, y=y - 22, width=sheet.width - sheet.rows, height=36, class_="hit"),
        tag("path", d=f"M{sheet.axis} {exact:.2f}L{sheet.rows - 6} {y:.2f}", class_="leader"),
        tag("text", step.frame, x=edge, y=y - 3, class_="frame"),
        tag("text", time, x=edge, y=y + 13, class_="muted", font_size=sheet.font - 3),
        tag("line", x1=begin, x2=end - way * 14, y1=y, y2=y, class_="arrow"),
        tag("path", d=head, class_="head"),
        tag("text", tag("tspan", noted, class_="noted"), label, x=(begin + end) / 2, y=y - 7, text_anchor="middle"),
        class_=f"seg {what}".strip(),
        tabindex=0,
        role="img",
        data_frame=step.frame,
        data_tip=lines(*said),
        aria_label=", ".join(said),
    )


def said_of(step: Step, ms: float, what: str = "", numbers: str = "") -> list[str]:
    """A segment in words: frame, time in ms since the first shown, direction, bytes and flags, and what it is."""
    way = "client → server" if step.from_client else "server → client"
    size = f"{step.length} B of data" if step.length else "no data"
    return [
        part for part in (f"frame {step.frame}", what, f"{ms:.6f} ms", way, f"{size}, {step.flags}", numbers) if part
    ]
