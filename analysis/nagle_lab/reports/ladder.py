"""The ladder diagram of one stall, for the terminal: client left, server right, time downwards."""

from rich.text import Text

from nagle_lab.diagnosis.result import Connection, Stall
from nagle_lab.evidence.excerpt import Step

_INSIDE = 38  # columns between the two ends
_LEFT = 20  # columns of frame number and time
_NOTE = {"trigger": "trigger", "ack": "late ACK", "release": "release"}


def ladder(steps: list[Step], connection: Connection, stall: Stall | None = None) -> Text:
    """Lines of at most 100 columns: frame, ms since the first step, arrow with size and flags, what it is.

    Without a ``stall`` nothing is said of what the packets are.
    """
    lines = [_heads(connection)]
    for step in steps:
        if stall and step.frame == stall.ack_frame:
            held, delaying = stall.held_by.role, stall.delayed_by.role
            lines += _silence(f"{stall.wait_ms:.1f} ms: {held} holds {stall.released_bytes} B,", "bold yellow")
            lines += _silence(f"{delaying} delays its ACK", "bold yellow")
        lines.append(_arrow(step, steps[0].ts, _what(step, stall)))
    return Text("\n").join(lines)


def _heads(connection: Connection) -> Text:
    client, server = str(connection.client), str(connection.server)
    names = f"{'frame':>8} {'ms':>9}  {'client':<{_INSIDE - 4}}server\n"
    ends = f"{'':{_LEFT - 1}}{client:<{max(_INSIDE + 2 - len(server), len(client) + 1)}}{server}"
    return Text(names + ends, style="dim")


def _what(step: Step, stall: Stall | None) -> str | None:
    """What the packet is in the stall, nothing special being ""; None where there is no stall."""
    if stall is None:
        return None
    frames = {stall.trigger_frame: "trigger", stall.ack_frame: "ack", stall.release_frame: "release"}
    return frames.get(step.frame, "")


def _arrow(step: Step, origin: int, what: str | None) -> Text:
    style = {"": "", "trigger": "cyan", "ack": "bold yellow", "release": "bold cyan"}[what or ""]
    label = f" {step.length} B {step.flags} " if step.length else f" {step.flags} "
    line = (
        f"──{label}".ljust(_INSIDE - 1, "─") + "▶" if step.from_client else "◀" + f"{label}──".rjust(_INSIDE - 1, "─")
    )
    text = Text(f"{step.frame:>8} {(step.ts - origin) / 1e6:>9.3f}  │", style="dim" if what == "" else "")
    text.append(line, style=style)
    text.append("│")
    text.append(f"  {_NOTE.get(what or '', '')}", style=style)
    return text


def _silence(words: str, style: str) -> list[Text]:
    text = Text(" " * _LEFT + "┊")
    text.append(words.center(_INSIDE), style=style)
    text.append("┊")
    return [text]
