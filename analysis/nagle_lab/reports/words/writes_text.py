"""The two writes of the stalls, in words that the screen, Markdown, JUnit, HTML and the pytest plugin share."""

from collections.abc import Sequence

from nagle_lab.diagnosis.result.spread import plural
from nagle_lab.diagnosis.result.writes import Group, Place, Write, Writes, here, place_text, write_text
from nagle_lab.errors import printable
from nagle_lab.evidence.ladder import Written
from nagle_lab.reports.words.numbers import share

MOST_GROUPS = 5  # pairs of writes that are shown

Rows = list[tuple[str, str]]


def writes_rows(writes: Writes) -> Rows:
    """Names and values: the pairs, a line for each write, and what is known of them."""
    lines = [line for group in writes.groups[:MOST_GROUPS] for line in pair_lines(group)]
    if (more := len(writes.groups) - MOST_GROUPS) > 0:
        lines.append(f"and {more} more pairs, which --json has")
    return [*(("" if i else "writes", line) for i, line in enumerate(lines)), *about_writes(writes)]


def about_writes(writes: Writes) -> Rows:
    """Names and values: who wrote, the true hold, what happened to TCP_NODELAY, and what tracing changed."""
    rows: Rows = []
    if writes.groups:
        rows.append(("written by", _who(writes.groups[0])))
        if spread := writes.true_hold_ms:
            which = "the write" if writes.groups[0].one_write else "the second write"
            rows.append(("true hold", f"p50 {spread.p50:.1f}, max {spread.max:.1f} ms, from {which} to its release"))
        rows.append(("TCP_NODELAY", writes.nodelay))
        rows += [("no line", why) for why in _why_no_line(writes)]
    if writes.exchanges:
        rows.append(("traced", _compared(writes)))
    return rows + [("trace", text) for text in (writes.problem, *writes.notes) if text]


def pair_lines(group: Group) -> list[str]:
    """How many stalls, and both writes: where, the call, and how much it wrote."""
    stalls = f"{group.stalls:,} {plural('stall', group.stalls)}"
    first = f"{stalls}: {shown(group.trigger)}  {_call(group.trigger)} {_bytes(group.trigger_bytes)}"
    if group.one_write:
        return [first, "one write: its last segment was held behind its others"]
    second = f"{shown(group.held)}  {_call(group.held)} {_bytes(group.held_bytes)}"
    return [f"{first},", f"then {second}, {group.between_ms:.2f} ms later"]


def shown(write: Write) -> str:
    """The place of a write, as short as possible: "server.py:16 reply"."""
    return write_text(write, here())


def shown_place(place: Place) -> str:
    """ "server.py:16 reply": the path from the working directory, of other files the last two parts of it."""
    return place_text(place, here())


def place_of(write: Write, most: int, *, same_line: bool = False) -> str:
    """Where a write was made, in at most ``most`` columns of a terminal: if there is no room for both lines, the
    program's; the library's if ``same_line``, because both writes are at one line of the program.
    """
    text = printable(shown(write))
    outer, inner = write.program, write.library
    if len(text) > most and (place := inner or outer if same_line else outer or inner):
        text = printable(shown_place(place))
    return text if len(text) <= most else f"…{text[1 - most :]}"


def call_of(write: Write) -> str:
    """ "sendall 600 B": the call, and how much it wrote."""
    return f"{printable(_call(write))} {write.bytes:,} B"


def written_words(call: Written) -> list[str]:
    """What a ladder says about a call, a line each: its place, bytes, time, system call, process."""
    write = call.write
    who = f"{write.command}, process {write.process}, thread {write.thread}"
    why = f"no line: {write.why_no_line}" if write.why_no_line else ""
    lines = [shown(write), f"{call_of(write)}, at {call.ns / 1e6:.3f} ms", f"system call {write.call}", who, why]
    return [line for line in lines if line]


def _call(write: Write) -> str:
    return write.by or write.call


def _bytes(span: tuple[int, int]) -> str:
    low, high = span
    return f"{low:,} B" if low == high else f"{low:,}–{high:,} B"


def _who(group: Group) -> str:
    ends = (group.trigger, group.held)
    trigger, held = (f"{one.command}, process {one.process}, thread {one.thread}" for one in ends)
    return trigger if trigger == held else f"{trigger}; then {held}"


def _why_no_line(writes: Writes) -> Sequence[str]:
    every = (write.why_no_line for group in writes.groups[:MOST_GROUPS] for write in (group.trigger, group.held))
    return [why for why in dict.fromkeys(every) if why]


def _compared(writes: Writes) -> str:
    here = f"{writes.stalled_exchanges:,} of {writes.exchanges:,} exchanges stalled"
    if writes.untraced_exchanges is None:
        return f"all of this recording; the verdict is that of a traced run, in which {here}"
    if not writes.untraced_exchanges:
        return f"{here}; no exchange passed without tracing, so the verdict is that of a traced run"
    stalled, exchanges = writes.untraced_stalled_exchanges or 0, writes.untraced_exchanges
    shares = (writes.stalled_exchanges / writes.exchanges, stalled / exchanges)
    with_it, without = map(share, shares)
    return f"{here} while traced ({with_it}), {stalled:,} of {exchanges:,} without tracing ({without})"
