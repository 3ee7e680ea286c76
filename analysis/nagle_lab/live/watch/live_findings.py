"""What is new in a live view: each stall once, although windows overlap; each finding as it begins and ends."""

import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from nagle_lab.diagnosis.result.result import Number, Role, Share
from nagle_lab.diagnosis.result.verdict import Verdict
from nagle_lab.live.watch.view import Row, View

SCHEMA: Literal["nagle-lab-watch/1"] = "nagle-lab-watch/1"
AGAIN_S = 60.0  # an ongoing finding is reported again after this long
_Count = Annotated[int, Meta(ge=0)]


class Finding(msgspec.Struct, frozen=True, tag="finding", tag_field="event"):
    """A program whose connections stall, as judged live in the window of the last packets."""

    schema: Literal["nagle-lab-watch/1"]
    time: str  # UTC, ISO 8601
    state: Literal["begins", "goes_on", "ended"]
    server: str  # address and port
    process: str  # at the server, with its container; "" if it is not on this host, or not known
    peer: str  # process and address of the clients
    held_by: list[str]  # roles
    sure: Literal["certain", "likely", ""]
    stalls_per_s: Number  # in the window, and so are the next three
    lost_ms_per_s: Number
    wait_ms: Number  # median
    stalled_share: Share
    stalls: _Count  # since it began
    lost_ms: Number  # likewise


class Report(msgspec.Struct, frozen=True, tag="report", tag_field="event"):
    """The verdict on all packets at the end, as `analyze` would give it."""

    schema: Literal["nagle-lab-watch/1"]
    time: str
    verdict: Verdict
    reason: str
    periods: _Count
    packets: _Count
    dropped: _Count  # packets that the recorder says it lost
    exchanges: _Count
    stalled_exchanges: _Count
    stalls: _Count
    lost_ms: Number
    remedy: str | None


class Note(msgspec.Struct, frozen=True, tag="note", tag_field="event"):
    """Something that a person should know: packets were lost, an interface is gone."""

    schema: Literal["nagle-lab-watch/1"]
    time: str
    text: str


Event = Finding | Report | Note


def now() -> str:
    """The present time as text: UTC, to the millisecond."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


@dataclass
class StallSum:
    """How many stalls, and the time lost in them, ms."""

    stalls: int = 0
    lost_ms: float = 0.0

    def add(self, stalls: int, lost_ms: float) -> None:
        """Count more of them."""
        self.stalls, self.lost_ms = self.stalls + stalls, self.lost_ms + lost_ms


@dataclass
class _OngoingFinding(StallSum):
    """An ongoing finding: its stalls so far, and when it was last reported (0: never)."""

    reported_at: float = 0.0


class LiveFindings:
    """Counts each stall once through successive views, and reports when a finding begins, continues and ends."""

    def __init__(self) -> None:
        self.stalls, self.lost_ms = 0, 0.0  # since the beginning; a stall counts when a window first proves it
        self.new: dict[tuple[int, Role], StallSum] = {}  # only in the last view, by connection and role that held
        self._counted: set[int] = set()  # frames of releases that may appear again
        self._ongoing: dict[tuple[str, str, str], _OngoingFinding] = {}

    def take(self, view: View) -> list[Finding]:
        """Count what is new in a view; returns the findings to report.

        A view that is INVALID neither begins a finding nor ends one.
        """
        if view.is_invalid:
            self.new = {}
            return []
        self._count(view)
        said, present = [], set()
        new: dict[tuple[str, str, str], StallSum] = {}  # by key of the row
        for (connection, _), one in self.new.items():
            new.setdefault(view.row_of[connection].key, StallSum()).add(one.stalls, one.lost_ms)
        for row in view.rows:
            if not row.stalls:
                continue
            present.add(row.key)
            more = new.get(row.key, StallSum())
            going = (
                self._ongoing.pop(row.key, None) or self._ongoing.pop((row.server, "", ""), None) or _OngoingFinding()
            )
            self._ongoing[row.key] = going  # its processes may have become known meanwhile
            going.add(more.stalls, more.lost_ms)
            if not going.reported_at or time.monotonic() - going.reported_at >= AGAIN_S:
                said.append(_finding(row, view.seconds, going, "goes_on" if going.reported_at else "begins"))
                going.reported_at = time.monotonic()
        for key in self._ongoing.keys() - present:
            row = next((row for row in view.rows if row.key == key), Row(*key))
            said.append(_finding(row, view.seconds, self._ongoing.pop(key), "ended"))
        return said

    def end_all(self) -> list[Finding]:
        """End each ongoing finding, because the window is empty; returns what to report."""
        self.new = {}
        said = [_finding(Row(*key), 1.0, going, "ended") for key, going in self._ongoing.items()]
        self._ongoing.clear()
        return said

    def _count(self, view: View) -> None:
        frames, self.new = set(), {}
        for stall in view.result.stalls:
            frame = view.frame(stall)
            frames.add(frame)
            if stall.connection in view.row_of and frame not in self._counted:
                self.new.setdefault((stall.connection, stall.held_by.role), StallSum()).add(1, stall.wait_ms)
        self._counted = frames | {frame for frame in self._counted if frame >= view.snapshot.first}
        self.stalls += sum(one.stalls for one in self.new.values())
        self.lost_ms += sum(one.lost_ms for one in self.new.values())


def _finding(
    row: Row, seconds: float, going: _OngoingFinding, state: Literal["begins", "goes_on", "ended"]
) -> Finding:  # fmt: skip
    return Finding(
        SCHEMA, now(), state, row.server, row.process, row.peer, sorted(row.held_by), row.sure,
        round(row.stalls / seconds, 3), round(row.lost_ms / seconds, 3), round(row.wait_ms, 3),
        round(row.share, 4), going.stalls, round(going.lost_ms, 3),
    )  # fmt: skip
