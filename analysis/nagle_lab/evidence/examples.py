"""The packets that views show of one capture: chosen stalls and their connection over time, or an exchange."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from nagle_lab.diagnosis.result.result import Connection, Result, Stall
from nagle_lab.diagnosis.result.which_connections import busiest
from nagle_lab.diagnosis.result.writes import HeldWrite, Write, Writes
from nagle_lab.evidence.excerpt import PacketWindow, Step, excerpts, packets_of
from nagle_lab.evidence.file_names import file_names
from nagle_lab.evidence.ladder import Ladder, ladder, ladder_of, not_this_stall, stall_ladder, stall_window
from nagle_lab.evidence.sequence import TimeSequence, time_sequence
from nagle_lab.evidence.software import NodelaySetting, software_seen
from nagle_lab.tcp.events import MS

_WHOLE = 40  # a connection with at most so many packets is shown whole over time
_BEFORE = 11  # of a longer connection, packets shown before the trigger
_MOST_ROWS = 16  # of an exchange without a stall
_LOOKED_THROUGH = 1_000  # exchanges of a connection, to find a typical one
_LONGEST, _SHORTEST = "The longest", "The shortest"


@dataclass(frozen=True)
class ChosenStall:
    """A stall to show: why this one, and its number from 1 in the result."""

    why: str
    number: int
    stall: Stall

    @property
    def extreme(self) -> bool:
        """Whether it is shown only for its wait, the longest or the shortest."""
        return self.why in (_LONGEST, _SHORTEST)


@dataclass(frozen=True)
class Examples:
    """What there is to draw; nothing for a capture that cannot be read again."""

    typical: Ladder | None = None
    stalls: Sequence[tuple[ChosenStall, Ladder]] = ()
    over_time: TimeSequence | None = None
    exchange: Ladder | None = None  # where there is no stall
    software: NodelaySetting | None = None  # of the end that held, or of the busiest server, if it names itself
    written: Ladder | None = None  # a stall with the two calls that wrote it, where system calls were recorded


def examples(
    files: Sequence[Path], result: Result, port: int | None = None, *, typical_only: bool = False
) -> Examples:
    """Read the capture in ``files`` once more; if only the typical stall is wanted, no further than that.

    ``port`` is the server's, if only connections to it are judged.
    """
    if not files:
        return Examples()
    if typical_only:
        typical_ladder = ladder_of(files, result, result.stalls.typical()) if result.stalls else None
        return Examples(typical_ladder, software=software_seen(files, result))
    if not result.stalls:
        return Examples(exchange=_exchange(files, result, port), software=software_seen(files, result))
    choices = chosen_stalls(result)
    typical = choices[0].stall
    wanted = [stall_window(result.connections[one.stall.connection], one.stall) for one in choices]
    over_time, *around = excerpts(files, [_over_time(result.connections[typical.connection], typical), *wanted])
    ladders = [stall_ladder(excerpt, one.stall) for one, excerpt in zip(choices, around, strict=True)]
    same = [stall for stall in result.stalls if stall.connection == typical.connection]
    return Examples(
        ladders[0],
        list(zip(choices, ladders, strict=True)),
        time_sequence(over_time, same),
        software=software_seen(files, result),
    )


def written_ladder(files: Sequence[Path], result: Result, writes: Writes) -> Ladder | None:
    """A stall of the most frequent pair of writes, with both calls; None where no call was found."""
    pair = _typical_pair(writes)
    if not pair:
        return None
    frames = pair.trigger_frame, pair.release_frame
    stall = next(stall for stall in result.stalls if (stall.trigger_frame, stall.release_frame) == frames)
    return replace(ladder_of(files, result, stall), writes=pair)


def _typical_pair(writes: Writes) -> HeldWrite | None:
    """Among the stalls of the most frequent places, the one with the median hold."""
    if not writes.groups:
        return None
    places = _places(writes.groups[0].trigger), _places(writes.groups[0].held)
    alike = [pair for pair in writes.pairs if (_places(pair.trigger), _places(pair.held)) == places]
    ordered = sorted(alike or writes.pairs, key=lambda pair: pair.true_hold_ms)
    return ordered[len(ordered) // 2]


def _places(write: Write) -> tuple[object, ...]:
    return write.call, write.by, write.program, write.library


def chosen_stalls(result: Result) -> list[ChosenStall]:
    """The typical stall; one held by the other end, if there is one; the longest and the shortest."""
    if not result.stalls:
        return []
    typical = result.stalls.typical()
    choices: dict[str, ChosenStall] = {}
    for number, stall in enumerate(result.stalls, 1):
        if stall == typical:
            choices["A typical stall"] = ChosenStall("A typical stall", number, stall)
        elif stall.held_by.role != typical.held_by.role:
            why = f"Held by the {stall.held_by.role}"
            choices.setdefault(why, ChosenStall(why, number, stall))
        for why, sign in ((_LONGEST, 1), (_SHORTEST, -1)):
            if why not in choices or sign * stall.wait_ms > sign * choices[why].stall.wait_ms:
                choices[why] = ChosenStall(why, number, stall)
    once: dict[int, ChosenStall] = {}
    for choice in sorted(choices.values(), key=lambda choice: (choice.extreme, choice.why)):
        once.setdefault(choice.number, choice)
    return list(once.values())


def _over_time(connection: Connection, stall: Stall) -> PacketWindow:
    """All packets of a short connection; of a longer one those around the trigger."""
    before = _BEFORE if connection.packets > _WHOLE else _WHOLE - 1
    return PacketWindow(connection, stall.trigger_frame, 1 << 62, before, at_most=_WHOLE)


def _exchange(files: Sequence[Path], result: Result, port: int | None) -> Ladder | None:
    """The exchange of the busiest connection whose duration is nearest to the capture's median."""
    connection = busiest(result, (c for c in result.connections if port in (None, c.server.port)))
    if connection is None:
        return None
    exchanges = islice(_exchanges(packets_of(files, connection)), _LOOKED_THROUGH)
    middle = result.summary.exchange_ms
    typical = min(exchanges, key=lambda one: abs(one.took_ms - middle.p50) if middle else 0.0, default=None)
    if typical is None:
        return None
    note = not_this_stall(result, connection, typical.steps)
    return replace(ladder(connection, typical.steps, file=file_names(files)), note=note)


@dataclass
class _Exchange:
    """One exchange: its first packets, and how long it took."""

    steps: list[Step]
    took_ms: float = math.inf  # from the request's first data to the answer's last; infinite: no answer was captured

    def add(self, step: Step) -> None:
        """Add its next packet."""
        if len(self.steps) < _MOST_ROWS:
            self.steps.append(step)
        if step.length and not step.from_client:
            self.took_ms = (step.ts - self.steps[0].ts) / MS


def _exchanges(steps: Iterator[Step]) -> Iterator[_Exchange]:
    """Each exchange of a connection: it begins with the client's first data after an answer.

    It ends before the next exchange, or where an end closes the connection after the answer.
    """
    exchange: _Exchange | None = None
    answered = True
    for step in steps:
        if exchange and answered and not step.length and ("FIN" in step.flags or "RST" in step.flags):
            break
        if step.length and step.from_client and answered:
            if exchange:
                yield exchange
            exchange, answered = _Exchange([step]), False
        elif exchange:
            exchange.add(step)
            answered = answered or (step.length > 0 and not step.from_client)
    if exchange:
        yield exchange
