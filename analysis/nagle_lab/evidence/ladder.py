"""The rows and words of a ladder diagram; the views draw it and add nothing."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nagle_lab.diagnosis.result.idle_gaps import Cause
from nagle_lab.diagnosis.result.result import Connection, Result, Stall
from nagle_lab.diagnosis.result.verdict import Verdict
from nagle_lab.diagnosis.result.writes import HeldWrite, Write
from nagle_lab.evidence.excerpt import Excerpt, PacketWindow, Step, excerpts, require_frames
from nagle_lab.tcp.events import DELAYED

_BEFORE, _AFTER = 6, 1  # packets of the connection to show before the trigger and after the release


@dataclass(frozen=True)
class LadderRow:
    """One packet; ``part`` is "trigger", "late ACK" or "release", empty where it is none of them."""

    frame: int
    ns: int  # since the first row
    from_client: bool
    label: str  # "615 B PSH,ACK"
    part: str
    words: Sequence[str]  # everything to say about it
    again: bool = False  # captured already, on another interface
    has_data: bool = False


@dataclass(frozen=True)
class Written:
    """A call at the held side that wrote the trigger or the held data of a stall."""

    ns: int  # since the first row
    write: Write
    part: str  # "trigger", "held", or "both" where one call wrote both


@dataclass(frozen=True)
class Ladder:
    """Packets of one connection in capture order; ``stall`` is None if none is shown, or none may be named."""

    connection: Connection
    rows: Sequence[LadderRow]
    stall: Stall | None = None
    file: str = ""  # that the frames are of
    ends: tuple[str, str] = ("client", "server")  # what to call them
    began: int = 0  # ns since the epoch: the first row
    writes: HeldWrite | None = None  # the calls that wrote this stall's data
    run: str = ""  # name of the capture's run, if it is not the run that was judged
    note: str = ""  # without a stall: what only looks like one

    @property
    def wait_ends(self) -> str:
        """The part of the stall that ends the wait."""
        return "release" if self.stall and self.stall.ack_frame is None else "late ACK"

    def row(self, part: str) -> LadderRow:
        """The row of a part of the stall; raises StopIteration if it is not in the ladder."""
        return next(row for row in self.rows if row.part == part)

    @property
    def waits(self) -> tuple[str, str, str]:
        """The lines about a stall: how long the wait is, who holds what, and who delays the ACK."""
        assert self.stall
        held, delaying = (self.ends[end.role == "server"] for end in (self.stall.held_by, self.stall.delayed_by))
        return (
            f"{self.stall.wait_ms:.1f} ms",
            f"{held} holds {self.stall.released_bytes} B",
            f"{delaying} delays its ACK",
        )

    @property
    def written(self) -> Sequence[Written]:
        """The calls, in order of time; nothing where none are known."""
        if not self.writes:
            return ()
        both = self.writes.one_write
        calls = [(self.writes.trigger, "both" if both else "trigger"), (self.writes.held, "held")][: 1 if both else 2]
        return [Written(_ns(write.at) - self.began, write, part) for write, part in calls]

    @property
    def same_line(self) -> bool:
        """Whether one line of the program made both writes of the stall, such as one that calls a library."""
        return bool(self.writes and self.writes.trigger.program == self.writes.held.program)

    @property
    def hold(self) -> tuple[str, ...]:
        """The line about held bytes: when they were written, and how long they were held since."""
        if not self.writes:
            return self._most_held
        after = (_ns(self.writes.held.at) - self.began - self.row("trigger").ns) / 1e6
        shown = f"{after:.1f}" if after >= 0.1 else f"{after:.2f}"
        when = f"written {shown} ms after the trigger," if after >= 0 else "written before the trigger left,"
        return when, f"held {self.writes.true_hold_ms:.1f} ms,"

    @property
    def _most_held(self) -> tuple[str, ...]:
        """The same if it is not known when they were written: after full segments that left behind the trigger."""
        parts = [row.part for row in self.rows]
        if not self.stall or not {"trigger", "release"} <= set(parts):
            return ()
        trigger, release = (self.rows[parts.index(part)] for part in ("trigger", "release"))
        between = self.rows[parts.index("trigger") + 1 : parts.index("release")]
        full = [row for row in between if row.has_data and row.from_client == trigger.from_client]
        if not full:
            return ()
        most = (release.ns - full[-1].ns) / 1e6
        return f"written after frame {full[-1].frame} left,", f"held {most:.1f} ms at most,"


def _ns(at: str) -> int:
    seconds, _, fraction = at.partition(".")
    return int(seconds) * 10**9 + int(fraction.ljust(9, "0"))


def ladder(connection: Connection, steps: Sequence[Step], stall: Stall | None = None, *, file: str = "") -> Ladder:
    """The ladder of these packets; without a ``stall`` it does not say what they are."""
    parts = parts_of(stall) if stall else {}
    rows = [_row(step, steps[0].ts, parts.get(step.frame, "")) for step in steps]
    return Ladder(connection, rows, stall, file, began=steps[0].ts)


# Another mechanism of TCP held data back, or an ACK takes as long as the path.
_HELD_OTHERWISE = {
    Cause.NAGLE_ROUND_TRIP, Cause.MSG_MORE, Cause.CORK, Cause.LIKELY_CORK, Cause.WINDOW, Cause.ROUND_TRIP,
}  # fmt: skip


def not_this_stall(result: Result, connection: Connection, steps: Sequence[Step]) -> str:
    """A sentence about the first data in ``steps`` that followed a late ACK but had not waited for it; or empty."""
    proved = result.verdict is Verdict.CLEAN and not connection.unresolved
    if not proved or Cause.DELAYED_ACK not in result.idle_gaps or _HELD_OTHERWISE & result.idle_gaps.keys():
        return ""
    for before, ack, after in zip(steps, steps[1:], steps[2:], strict=False):
        late = before.length and ack.flags == "ACK" and not ack.length and ack.ts - before.ts >= DELAYED
        if late and after.length and before.from_client == after.from_client != ack.from_client:
            behind = (after.ts - ack.ts) / 1e6
            return (
                f"Not this stall: TCP held nothing back. Frame {after.frame} left {behind:.2f} ms after the late "
                f"ACK in frame {ack.frame}, when the program wrote it"
            )
    return ""


def ladder_of(files: Sequence[Path], result: Result, stall: Stall) -> Ladder:
    """The ladder of one stall of the capture in ``files``, read as far as needed."""
    (excerpt,) = excerpts(files, [stall_window(result.connections[stall.connection], stall)])
    return stall_ladder(excerpt, stall)


def stall_window(connection: Connection, stall: Stall) -> PacketWindow:
    """The packets that the ladder of a stall is made of."""
    return PacketWindow(connection, stall.trigger_frame, stall.release_frame, _BEFORE, _AFTER)


def stall_ladder(excerpt: Excerpt, stall: Stall) -> Ladder:
    """From the latest data of the delaying side, which the trigger answers, to the packets after the release.

    Raises NagleLabError if the capture changed since it was judged.
    """
    require_frames(excerpt, parts_of(stall))
    from_client = stall.delayed_by.role == "client"
    steps = excerpt.steps
    trigger = next(i for i, step in enumerate(steps) if step.frame >= stall.trigger_frame)
    before = (i for i in range(trigger - 1, -1, -1) if not steps[i].again)
    asked = (i for i in before if steps[i].length and steps[i].from_client == from_client)
    return ladder(excerpt.connection, steps[next(asked, trigger) :], stall, file=excerpt.file)


def parts_of(stall: Stall) -> dict[int, str]:
    """The part that each frame of a stall plays, in capture order; the capture may lack the ACK."""
    parts = {stall.trigger_frame: "trigger", stall.ack_frame: "late ACK", stall.release_frame: "release"}
    return {frame: part for frame, part in parts.items() if frame is not None}


def words_of(step: Step, ns: int, part: str, *more: str) -> list[str]:
    """A packet in words: frame, what it is, time since the first shown, direction, bytes and flags."""
    way = "client → server" if step.from_client else "server → client"
    size = f"{step.length} B of data" if step.length else "no data"
    words = [f"frame {step.frame}", part, f"{ns / 1e6:.6f} ms", way, f"{size}, {step.flags}", *more]
    return [line for line in words if line]


def _row(step: Step, origin: int, part: str) -> LadderRow:
    ns = step.ts - origin
    label = f"{step.length} B {step.flags}" if step.length else step.flags
    more = ["captured before on another interface"] if step.again else []
    words = words_of(step, ns, part, *more)
    return LadderRow(step.frame, ns, step.from_client, label, part, words, step.again, step.length > 0)
