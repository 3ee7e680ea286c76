"""The engines that must agree to the last bit, and all their output, for comparison."""

import itertools
from collections.abc import Callable, Iterable
from functools import lru_cache, partial
from typing import Any

import pytest

from nagle_lab.capture.pcap import MAGICS, PcapReader
from nagle_lab.capture.pcapng import PcapngReader
from nagle_lab.capture.records import Facts, StoppedError
from nagle_lab.capture.window import WINDOW_BYTES, Window
from nagle_lab.diagnosis.findings import find
from nagle_lab.tcp import compiled
from nagle_lab.tcp.engine import EngineTotals
from nagle_lab.tcp.layout import LAYOUTS
from nagle_lab.tcp.plain import PlainEngine
from nagle_lab.tcp.tables import Tables

ENGINES: dict[str, Callable[..., Any]] = {"plain": PlainEngine}
if compiled.LIBRARY is not None:
    ENGINES["compiled"] = partial(compiled.CompiledEngine, compiled.LIBRARY)
needs_compiled = pytest.mark.skipif(
    compiled.LIBRARY is None, reason="there is no C compiler here: plain Python does it"
)


class Pieces:
    """A source (nagle_lab.capture.compression) that gives a file's bytes up to one cut after the other."""

    def __init__(self, content: bytes, cuts: Iterable[int] = ()) -> None:
        self._content, self._at = content, 0
        self._ends = itertools.chain(sorted({cut for cut in cuts if 0 < cut < len(content)}), [len(content)])
        self._end = next(self._ends)

    def readinto(self, view: memoryview) -> int:
        """Fill ``view`` from its start, up to the next cut; 0 at the end."""
        if self._at == self._end:
            self._end = next(self._ends, self._end)
        piece = self._content[self._at : min(self._end, self._at + len(view))]
        view[: len(piece)] = piece
        self._at += len(piece)
        return len(piece)


def followed(
    make: Callable[..., Any],
    content: bytes,
    cuts: Iterable[int] = (),
    *,
    window_bytes: int = WINDOW_BYTES,
    exchanges: bool = True,
) -> dict[str, Any]:
    """Everything an engine finds in the bytes of a pcap or pcapng file that arrive in pieces."""
    facts, stopped = Facts(), None
    window = Window(Pieces(content, cuts), size=window_bytes)
    reader = (PcapReader if content[:4] in MAGICS else PcapngReader)(window, facts, "capture")
    with make(exchanges=exchanges) as engine:
        engine.clock.new_file()
        try:
            for _ in reader.read(engine):
                engine.drain()
        except StoppedError as error:
            stopped = (error.kind, error.position, error.what)
        engine.drain()
        engine.finish()
        totals = engine.totals()
        return {
            **{name: list(table.rows()) for name, table in engine.tables.by_name()},
            "durations": {name: (dict(of.counts), of.total) for name, of in totals.durations.items()},
            "not decoded": dict(totals.not_decoded),
            "counts": (engine.frames, totals.connections, totals.segments, totals.copies, totals.pure_acks),
            "times": (totals.first_ts, totals.last_ts, totals.resolution),
            "clock": (engine.clock.epoch, engine.clock.set_back),
            "facts": (stopped, facts.dropped, facts.untimed, list(facts.link_types)),
        }


@lru_cache(maxsize=2000)
def plainly(content: bytes, *, exchanges: bool = True) -> dict[str, Any]:
    """What plain Python finds in a whole file, computed once, because several engines and cuts are compared with
    it.
    """
    return followed(PlainEngine, content, exchanges=exchanges)


def found_in(said: dict[str, Any]) -> dict[str, Any]:
    """What the diagnosis finds in that."""
    _, connections, segments, copies, pure_acks = said["counts"]
    totals = EngineTotals(connections, segments, copies, pure_acks, *said["times"], durations={}, not_decoded={})
    findings = find(tables_of(said), totals)
    return {
        "stalls": list(findings.stalls.rows()),
        "connections": list(findings.connections.rows()),
        "durations": [(dict(of.counts), of.total) for of in (findings.wait, findings.release, findings.ack_timer)],
        "sums": (findings.sums.whole, findings.sums.by_role),
        "round trips": [dict(of.counts) for of in findings.sums.round_trip.values()],
        "idle": findings.idle,
        "rejected": dict(findings.rejected),
        "ends": [sorted(map(repr, ends.values())) for ends in (findings.held, findings.delayed)],
    }


def contents_of(said: dict[str, Any], table: str) -> list[dict[Any, Any]]:
    """The rows of an output table, by column."""
    columns = LAYOUTS[table].columns
    return [{name: row[place] for name, place in columns.items()} for row in said[table]]


def tables_of(said: dict[str, Any]) -> Tables:
    """The output in tables again, as the diagnosis needs it."""
    tables = Tables()
    for name, table in tables.by_name():
        for row in said.get(name, ()):
            table.add(*row)
    return tables
