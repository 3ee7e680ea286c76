"""The committed captures and what is known to be true of them, per capture and per segment.

A capture's truth comes from how it was made: for captures/lookalikes and captures/families the truth.json that its
recorder wrote, for captures/reference what the run's manifest expected. A segment's truth comes from the programs
that made it: when they wrote its bytes, and when the kernel sent it (writes.json, see
maintenance/recorder/programs.py).
"""

import json
from dataclasses import dataclass, field, fields
from enum import StrEnum
from pathlib import Path
from typing import Any

from nagle_lab.diagnosis.result.result import Result
from nagle_lab.evidence.excerpt import segments
from nagle_lab.packet.segment import SYN
from recorder.holds import LATE, MS, holds_of
from support.repository import CAPTURES, REFERENCE

SOON, NEVER = 4 * MS, 2**62  # lateness in the families; and where no end ever delays an ACK


class Judgement(StrEnum):
    """How right a verdict is."""

    RIGHT = "right"
    UNSURE = "unsure"  # another verdict than the true one, but an honest one
    WRONG = "wrong"


@dataclass(frozen=True)
class Labelled:
    """One committed capture and its truth."""

    path: Path
    position: str  # where it was taken: "server", "client" or "middle"; "both": at the server, its origin in view
    verdict: str
    held_by: str | None
    exchanges: int
    rtt: int = 0  # of the path, ns
    idle_gap: str | None = None  # the cause of the idle gap in every exchange, or in every second
    late: int = LATE  # an ACK that takes so much longer than the path is late, ns
    family: str = "look-alike"
    also: tuple[str, ...] = ()  # other verdicts that are honest from this capture alone
    stalls: tuple[int, int] | None = None  # at least, at most; None: not counted

    @property
    def name(self) -> str:
        return f"{self.path.parent.name}/{self.position}"

    @property
    def where(self) -> str:
        """Where it was taken, relative to the end whose data was or might have been held."""
        if self.position == "middle":
            return "in the middle"
        if self.position == "both":
            return "at the sender"
        return "at the sender" if self.position == (self.held_by or "server") else "at the receiver"

    @property
    def has_writes(self) -> bool:
        """Whether its programs logged what they wrote."""
        return (self.path.parent / "writes.json").exists()

    def is_judged_right(self, result: Result) -> bool:
        """Whether the verdict is true, and a stall is attributed to the right end."""
        return result.verdict == self.verdict and result.summary.held_by == self.held_by

    def judge(self, result: Result) -> Judgement:
        """The same with the number of stalls; and whether the verdict is at least honest."""
        least, most = self.stalls or (0, result.summary.stalls)
        if self.is_judged_right(result) and least <= result.summary.stalls <= most:
            return Judgement.RIGHT
        return Judgement.UNSURE if result.verdict in self.also else Judgement.WRONG


def lookalikes() -> list[Labelled]:
    """Every capture of captures/lookalikes."""
    found = []
    for file in sorted((CAPTURES / "lookalikes").glob("*/truth.json")):
        truth = json.loads(file.read_text())
        known = {name: truth[name] for name in ("verdict", "held_by", "exchanges", "idle_gap")}
        rtt = round((truth["rtt_ms"] or 0) * MS)
        paths = sorted(file.parent.glob("*.pcap.gz"))
        found += [Labelled(path, path.name.split(".")[0], rtt=rtt, **known) for path in paths]
    return found


def families() -> list[Labelled]:
    """Every capture of captures/families."""
    found = []
    for file in sorted((CAPTURES / "families").glob("*/truth.json")):
        case = json.loads(file.read_text())
        late = NEVER if case["acks_at_once"] else SOON
        for position, truth in case["captures"].items():
            most = truth["stalls"] + truth["held_for_less"]
            capture = Labelled(
                file.parent / f"{position}.pcap.gz", position, truth["verdict"], truth["held_by"], case["exchanges"],
                round(case["longest_path_ms"] * MS), late=late, family=case["family"],
                also=tuple(truth["also_acceptable"]),
                stalls=tolerated(truth["stalls"], most) if case.get("counted", True) else None,
            )  # fmt: skip
            found.append(capture)
    return found


def both_ends(captures: list[Labelled]) -> list[tuple[Labelled, Labelled]]:
    """Pairs of captures of the same traffic, at its client and at its server."""
    at_client = {capture.path.parent: capture for capture in captures if capture.position == "client"}
    return [
        (at_client[capture.path.parent], capture)
        for capture in captures
        if capture.position == "server" and capture.path.parent in at_client
    ]


def stacks() -> list[Labelled]:
    """Every capture of captures/stacks."""
    found = []
    for file in sorted((CAPTURES / "stacks").glob("*/truth.json")):
        truth = json.loads(file.read_text())
        stalls = None if truth["stalls"] is None else tolerated(truth["stalls"], truth["stalls"])
        capture = Labelled(
            file.parent / "capture.pcap.gz", "capture", truth["verdict"], truth["held_by"], truth["exchanges"],
            family="other stacks", also=tuple(truth["also_acceptable"]), stalls=stalls,
        )  # fmt: skip
        found.append(capture)
    return found


# What the proof is known to judge wrong, and why: docs/proof.md, "What cannot be told apart".
_AT_A_SLOW_PEER = "held, but captured at its peer on a slow machine, where a kernel takes as long as a program"
_WAITS_FOR_THE_ACK = "away from a program that waits for the ACK itself, it looks held"
_RIDES = "away from the sender, what is always held until data carries the ACK is INCONCLUSIVE: an answer, perhaps"
KNOWN_LIMITS = {
    "chain-database-beside/both": _AT_A_SLOW_PEER,
    "chain-proxy-beside/both": _AT_A_SLOW_PEER,
    "two-programs/server": _AT_A_SLOW_PEER,
    "two-writes+without-syn/client": _AT_A_SLOW_PEER,
    "wait-drained-rtt-10/client": _WAITS_FOR_THE_ACK,
    "wait-drained-rtt-10/middle": _WAITS_FOR_THE_ACK,
    "duplex-ticks-rtt-10/server": _RIDES,
    "duplex-ticks-rtt-10/middle": _RIDES,
}


def tolerated(least: int, most: int) -> tuple[int, int]:
    """The numbers of stalls that count as right for a true number: 2 more or fewer, or 5 %; 0 only for 0."""
    if not most:
        return 0, 0
    return least - max(2, least // 20), most + max(2, most // 20)


def references() -> list[Labelled]:
    """Every capture of captures/reference."""
    found = []
    for file in sorted(REFERENCE.glob("*/manifest.json")):
        manifest = json.loads(file.read_text())
        expected, requests = manifest["expected"], int(manifest["parameters"]["REQUESTS"])
        found += [
            Labelled(path, path.stem, expected["verdict"], expected.get("held_by"), requests, family="reference")
            for path in sorted(file.parent.glob("*.pcap"))
        ]
    return found


@dataclass
class Score:
    """The segments of one or more captures: those that the analyzer called a release, compared with those held."""

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
    """Compare every segment that ends a write with the result; only look-alikes have the log for that."""
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
    """Frame → ns that it was held behind a delayed ACK, 0 if it was not; for every segment that ends a write."""
    log = json.loads((capture.path.parent / "writes.json").read_text())
    frames = _frames_by_last_byte(capture.path, _server_ports(log))
    found = {}
    for end in ("client", "server"):
        for connection in log[end]:
            port, server_port = connection["port"], connection.get("server_port", log["server_port"])
            for last, hold in holds_of(connection["writes"], capture.rtt, capture.late):
                frame = frames.get((port, server_port, end == "server", last))
                if frame is not None:
                    found[frame] = hold
    return found


def _server_ports(log: dict[str, Any]) -> set[int]:
    """The ports that servers listened on."""
    connections = [*log["client"], *log["server"]]
    return {log["server_port"], *(connection.get("server_port", log["server_port"]) for connection in connections)}


def _frames_by_last_byte(path: Path, server_ports: set[int]) -> dict[tuple[int, int, bool, int], int]:
    """(client port, server port, sent by the server, bytes from the stream's first) → first such frame."""
    first_byte: dict[tuple[int, int, bool], int] = {}
    found: dict[tuple[int, int, bool, int], int] = {}
    for segment in segments(path):
        by_server = segment.sport in server_ports
        ports = (segment.dport, segment.sport) if by_server else (segment.sport, segment.dport)
        stream = (*ports, by_server)
        if segment.flags & SYN:
            first_byte[stream] = segment.seq + 1
        if segment.length:
            last = (segment.seq + segment.length - first_byte[stream]) % 2**32
            found.setdefault((*stream, last), segment.frame)
    return found
