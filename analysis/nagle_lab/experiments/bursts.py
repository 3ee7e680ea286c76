"""What one end of the connections under test sends at a time, and the sizes that rule it: MSS and MTU."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby

from nagle_lab.evidence.excerpt import Step, packets_of
from nagle_lab.runs.run import Run


@dataclass(frozen=True)
class Bursts:
    """What one end sends in one run, at the capture nearest the held end.

    ``usual`` is the commonest burst, the payload bytes of the segments that it sends on one connection without the
    other end's data in between; ``share`` is its share of all, 0 to 1. Where this end was held, ``held_bytes`` waited
    behind ``unacknowledged_bytes`` in a typical stall. ``mss`` is the payload of a full segment, ``mtu`` that of the
    captured interface.
    """

    usual: tuple[int, ...]
    share: float
    unacknowledged_bytes: int | None
    held_bytes: int | None
    mss: int
    mtu: int | None


def bursts_of(run: Run) -> dict[str, Bursts]:
    """What each end of a connection under test sends in a run, by role; empty where none was captured."""
    capture = run.captures[run.best]
    if not capture.tested:
        return {}
    stalls = sorted(capture.tested_stalls(), key=lambda stall: stall.wait_ms)
    typical = stalls[len(stalls) // 2] if stalls else None
    shown = capture.connections[typical.connection] if typical else max(capture.tested, key=lambda c: c.exchanges)
    steps = list(packets_of(run.capture(run.best), shown))
    bursts = {}
    for role in ("client", "server"):
        counted = Counter(_bursts(steps, from_client=role == "client"))
        usual, times = counted.most_common(1)[0] if counted else ((), 0)
        held = typical if typical and typical.held_by.role == role else None
        bursts[role] = Bursts(
            usual=usual,
            share=times / max(1, counted.total()),
            unacknowledged_bytes=held.trigger_bytes if held else None,
            held_bytes=held.released_bytes if held else None,
            mss=shown.full_segment_bytes,
            mtu=run.manifest.captures[run.best].mtu,
        )
    return bursts


def _bursts(steps: Iterable[Step], *, from_client: bool) -> list[tuple[int, ...]]:
    """The payload sizes that one end sends in a row, without the other end's data in between."""
    rows = groupby((step for step in steps if step.length), key=lambda step: step.from_client)
    return [tuple(step.length for step in row) for sender, row in rows if sender == from_client]
