"""A connection over time: the held side's bytes as they are sent and acknowledged, and when some were held."""

from collections.abc import Sequence
from dataclasses import dataclass

from nagle_lab.diagnosis.result.result import Connection, Stall
from nagle_lab.evidence.excerpt import Excerpt, Step
from nagle_lab.evidence.ladder import parts_of, words_of
from nagle_lab.tcp.learned import unwrapped


@dataclass(frozen=True)
class Point:
    """A segment of the held side with data, bytes ``begin`` to ``end``; or an ACK, for which both are equal."""

    frame: int
    ms: float  # since the first packet shown
    sent: bool  # by the held side
    begin: int
    end: int
    part: str  # "trigger", "late ACK", "release" or ""
    words: Sequence[str]


@dataclass(frozen=True)
class Held:
    """Bytes that were held, from the trigger to their release."""

    from_ms: float
    to_ms: float
    begin: int
    end: int


@dataclass(frozen=True)
class TimeSequence:
    """Packets ``first`` to ``last`` of a connection, counted from 1; bytes count from the first one shown."""

    connection: Connection
    first: int
    last: int
    held: str  # the role of the side that sent these bytes
    points: Sequence[Point]
    holds: Sequence[Held]


def time_sequence(excerpt: Excerpt, stalls: Sequence[Stall]) -> TimeSequence:
    """An excerpt over time, with the ``stalls`` that are wholly in it; the first of these says which side is held."""
    steps = excerpt.steps
    frames = {step.frame for step in steps}
    whole = [s for s in stalls if parts_of(s).keys() <= frames]
    held = whole[0].held_by.role if whole else "server"
    parts = {frame: part for s in whole for frame, part in parts_of(s).items()}
    points = _points(steps, held, parts)
    at = {point.frame: point for point in points}
    holds = [
        Held(at[s.trigger_frame].ms, at[s.release_frame].ms, at[s.release_frame].begin, at[s.release_frame].end)
        for s in whole
        if s.held_by.role == held
    ]
    return TimeSequence(excerpt.connection, excerpt.first, excerpt.first + len(steps) - 1, held, points, holds)


def _points(steps: Sequence[Step], held: str, parts: dict[int, str]) -> list[Point]:
    base: int | None = None
    points = []
    for step in steps:
        sent = step.from_client == (held == "client")
        if not sent and "ACK" not in step.flags:
            continue
        number = step.seq if sent else step.ack
        if base is None:
            base = number + int(sent and "SYN" in step.flags)
        begin = max(unwrapped(number, base) - base, 0)
        if sent and not step.length:
            continue
        end, ns, part = begin + (step.length if sent else 0), step.ts - steps[0].ts, parts.get(step.frame, "")
        what = f"{held}'s bytes {begin} to {end}" if sent else f"acknowledges {begin} of the {held}'s bytes"
        points.append(Point(step.frame, ns / 1e6, sent, begin, end, part, words_of(step, ns, part, what)))
    return points
