"""The committed captures and what is known to be true of them, per capture and per segment.

A capture's truth comes from how it was made: for captures/lookalikes the truth.json its recorder wrote, for
captures/reference what the run's manifest expected. A segment's truth comes from the programs that made it: when they
wrote its bytes, and when the kernel let it go (writes.json, see maintenance/recorder/programs.py).
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from pathlib import Path

from nagle_lab.diagnosis.result import Result
from nagle_lab.evidence.segments import segments
from nagle_lab.packet.segment import SYN

CAPTURES = Path(__file__).parents[2] / "captures"
MS = 1_000_000  # ns

# A segment was held behind a delayed ACK when it stayed in its sender's TCP (not held, it leaves in microseconds),
# left right behind the ACK of what was sent before it, and that ACK took longer than its path by half of the shortest
# delayed-ACK timer. All three by the sending socket's own timestamps.
HELD = 100_000  # ns
BEHIND_THE_ACK = 1 * MS
LATE = 20 * MS


@dataclass(frozen=True)
class Labelled:
    """One committed capture and its truth."""

    path: Path
    position: str  # where it was taken: "server", "client" or "middle"
    verdict: str
    held_by: str | None
    exchanges: int
    rtt: int = 0  # of the path, ns
    silence: str | None = None  # what causes a silence in every exchange, or in every second

    @property
    def name(self) -> str:
        return f"{self.path.parent.name}/{self.position}"

    @property
    def where(self) -> str:
        """Where it was taken, as seen from the end whose data was or might have been held."""
        if self.position == "middle":
            return "in the middle"
        return "at the sender" if self.position == (self.held_by or "server") else "at the receiver"

    @property
    def has_writes(self) -> bool:
        """Whether its programs logged what they wrote."""
        return (self.path.parent / "writes.json").exists()

    def is_judged_right(self, result: Result) -> bool:
        """Whether the verdict is the true one, and a stall is laid to the right end."""
        return result.verdict == self.verdict and result.summary.held_by == self.held_by


def lookalikes() -> list[Labelled]:
    """Every capture of captures/lookalikes."""
    found = []
    for file in sorted((CAPTURES / "lookalikes").glob("*/truth.json")):
        truth = json.loads(file.read_text())
        known = {name: truth[name] for name in ("verdict", "held_by", "exchanges", "silence")}
        rtt = round((truth["rtt_ms"] or 0) * MS)
        paths = sorted(file.parent.glob("*.pcap.gz"))
        found += [Labelled(path, path.name.split(".")[0], rtt=rtt, **known) for path in paths]
    return found


def references() -> list[Labelled]:
    """Every capture of captures/reference."""
    found = []
    for file in sorted((CAPTURES / "reference").glob("*/manifest.json")):
        manifest = json.loads(file.read_text())
        expected, requests = manifest["expected"], int(manifest["parameters"]["REQUESTS"])
        found += [
            Labelled(path, path.stem, expected["verdict"], expected.get("held_by"), requests)
            for path in sorted(file.parent.glob("*.pcap"))
        ]
    return found


@dataclass
class Score:
    """The segments of one or more captures: what the analyzer named a release, against what was held."""

    right: int = 0  # held, and named
    missed: int = 0  # held, not named
    wrong: int = 0  # not held, but named
    passed: int = 0  # not held, not named
    errors: list[int] = field(default_factory=list)  # ns, the wait reported minus the true hold, of the right ones
    frames: list[str] = field(default_factory=list)  # the missed and the wrong ones, by capture and frame

    def __add__(self, other: "Score") -> "Score":
        return Score(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(Score)))

    @property
    def segments(self) -> int:
        """How many were compared."""
        return self.right + self.missed + self.wrong + self.passed

    @property
    def precision(self) -> float:
        """Of the segments named, the share that was held; 1 when none was named."""
        named = self.right + self.wrong
        return self.right / named if named else 1.0

    @property
    def recall(self) -> float:
        """Of the segments held, the share that was named; 1 when none was held."""
        held = self.right + self.missed
        return self.right / held if held else 1.0


def score(capture: Labelled, result: Result) -> Score:
    """Hold every segment that ends a write against the result; only look-alikes have what that takes."""
    total = Score()
    waits = {stall.release_frame: round(stall.wait_ms * MS) for stall in result.stalls}
    for frame, hold in holds(capture).items():
        wait = waits.pop(frame, None)
        if hold and wait is not None:
            total.right += 1
            total.errors.append(wait - hold)
        elif hold:
            total.missed += 1
            total.frames.append(f"{capture.name} frame {frame}: held {hold / MS:.1f} ms, not named")
        elif wait is not None:
            total.wrong += 1
            total.frames.append(f"{capture.name} frame {frame}: named, but was not held")
        else:
            total.passed += 1
    total.wrong += len(waits)
    total.frames += [f"{capture.name} frame {frame}: named, but ends no write" for frame in waits]
    return total


def holds(capture: Labelled) -> dict[int, int]:
    """Frame → ns it was held behind a delayed ACK, 0 if it was not; of every segment that ends a write.

    A segment carries several writes when the later ones were written while the earlier was held: the kernel has one
    time for all of them, and the segment was held since the first.
    """
    log = json.loads((capture.path.parent / "writes.json").read_text())
    frames = _frames_by_last_byte(capture.path, log["server_port"])
    return {
        frames[connection["port"], end == "server", last]: hold
        for end in ("client", "server")
        for connection in log[end]
        for last, hold in _holds_of(connection["writes"], capture.rtt)
    }


def _holds_of(writes: list[list[int]], rtt: int) -> Iterator[tuple[int, int]]:
    """The end of each segment that one end of a connection wrote, and how long it was held, ns."""
    before_left = before_acked = 0
    oldest = None
    for last, _, sent, left, left_again, acked in writes:
        oldest = oldest or sent
        if left is None:
            continue
        held = left - oldest > HELD
        behind_the_ack = 0 <= left - before_acked < BEHIND_THE_ACK
        late = before_acked - before_left - rtt > LATE
        yield last, left - oldest if held and behind_the_ack and late else 0
        before_left, before_acked, oldest = left_again, acked, None


def _frames_by_last_byte(path: Path, server_port: int) -> dict[tuple[int, bool, int], int]:
    """(client port, sent by the server, bytes from the stream's first to the segment's last) → first such frame."""
    first_byte: dict[tuple[int, bool], int] = {}
    found: dict[tuple[int, bool, int], int] = {}
    for segment in segments(path):
        by_server = segment.sport == server_port
        stream = (segment.dport if by_server else segment.sport, by_server)
        if segment.flags & SYN:
            first_byte[stream] = segment.seq + 1
        if segment.length:
            last = (segment.seq + segment.length - first_byte[stream]) % 2**32
            found.setdefault((*stream, last), segment.frame)
    return found
