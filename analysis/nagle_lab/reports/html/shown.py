"""What a report shows of one capture or run, and the packets of it that are read again."""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from nagle_lab.diagnosis.analysis import analyze
from nagle_lab.diagnosis.result import Connection, Result, Stall
from nagle_lab.evidence.excerpt import Step, packets_of
from nagle_lab.runs.run import Run, is_run, judge

EXTREMES = ("The longest", "The shortest")
_WHOLE = 40  # packets up to which all of a connection is shown
_BEFORE = 12  # of a longer one, that many before a trigger


@dataclass(frozen=True)
class Shown:
    """One capture, or a run of the lab shown by its capture nearest the held end.

    ``files`` are read again for ladders; a capture that came through a pipe has none.
    """

    name: str
    verdict: str
    reason: str
    result: Result
    files: Sequence[Path]
    run: Run | None = None

    @property
    def port(self) -> int | None:
        """The server's port of the judged connections; None: all are."""
        return self.run.manifest["expected"]["port"] if self.run else None


def shown_capture(result: Result, files: Sequence[Path]) -> Shown:
    """One diagnosed capture, of ``files``."""
    return Shown(result.source.file, result.verdict, result.reason, result, files)


def shown_run(run: Run) -> Shown:
    """One judged run."""
    name = f"{run.manifest['scenario']} / {run.manifest['variant']}"
    return Shown(name, run.verdict, run.reason, run.results[run.best], [run.capture(run.best)], run)


def shown_at(path: Path) -> Shown:
    """The run folder or capture file there; raises NagleLabError where it is neither."""
    return shown_run(judge(path)) if is_run(path) else shown_capture(analyze(path), [path])


@dataclass(frozen=True)
class Chosen:
    """A stall to show: why this one, and its number from 1 in order of the late ACK."""

    why: str
    number: int
    stall: Stall


def chosen(result: Result) -> list[Chosen]:
    """The typical stall; one held by the other end, if there is one; the :data:`EXTREMES`."""
    if not result.stalls:
        return []
    middle = result.stalls.typical()
    found: dict[str, tuple[int, Stall]] = {}
    for number, stall in enumerate(result.stalls, 1):
        if stall == middle:
            found["A typical stall"] = number, stall
        elif stall.held_by.role != middle.held_by.role:
            found.setdefault(f"Held by the {stall.held_by.role}", (number, stall))
        for why, sign in zip(EXTREMES, (1, -1), strict=True):
            best = found.get(why)
            if best is None or sign * stall.wait_ms > sign * best[1].wait_ms:
                found[why] = number, stall
    order = sorted(found, key=lambda why: (why in EXTREMES, why))
    seen: dict[int, Chosen] = {}
    for why in order:
        seen.setdefault(found[why][0], Chosen(why, *found[why]))
    return list(seen.values())


@dataclass(frozen=True)
class Stretch:
    """Consecutive packets of one connection; ``first`` is the how-manieth of it the first is, from 1."""

    connection: Connection
    steps: list[Step]
    first: int
    stalls: list[Stall]  # those with all three segments among the steps


def stretch_around(of: Shown, stall: Stall) -> Stretch:
    """The connection of a stall, read again: all of it, or its packets around the trigger."""
    connection = of.result.connections[stall.connection]
    before: deque[Step] = deque(maxlen=_BEFORE if connection.packets > _WHOLE else _WHOLE)
    packets, count = packets_of(of.files, connection), 0
    for step in packets:
        before.append(step)
        count += 1
        if step.frame >= stall.trigger_frame:
            break
    steps = [*before, *islice(packets, _WHOLE - len(before))]
    frames = {step.frame for step in steps}
    mine = [
        s
        for s in of.result.stalls
        if s.connection == stall.connection and {s.trigger_frame, s.ack_frame, s.release_frame} <= frames
    ]
    return Stretch(connection, steps, count - len(before) + 1, mine)


def quiet_exchange(of: Shown) -> tuple[Connection, list[Step]] | None:
    """An exchange of the connection that has most of them, its second where it has two; None where there is none."""
    mine = [c for c in of.result.connections if of.port in (None, c.server.port) and c.exchanges]
    if not mine or not of.files:
        return None
    connection = max(mine, key=_exchanges)
    wanted = min(2, connection.exchanges)
    steps = [step for number, step in _numbered(packets_of(of.files, connection), wanted) if number == wanted]
    return connection, steps[:_MOST_ROWS]


_MOST_ROWS = 16


def _exchanges(connection: Connection) -> int:
    return connection.exchanges


def _numbered(packets: Iterator[Step], last: int) -> Iterator[tuple[int, Step]]:
    """Packets with the number, from 1, of the exchange they are of, up to the ``last``; 0 before the first."""
    number, answered = 0, True
    for step in packets:
        if step.length and step.from_client and answered:
            number, answered = number + 1, False
            if number > last:
                return
        elif step.length and not step.from_client:
            answered = True
        yield number, step
