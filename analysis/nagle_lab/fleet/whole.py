"""A series read to its end: what its stretches found, put together, as `analyze --rotated` would have it."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from nagle_lab.diagnosis.findings import Findings, find
from nagle_lab.diagnosis.result.result import Result
from nagle_lab.diagnosis.summary import summarize
from nagle_lab.fleet.exchanges import ExchangeCounts, counted
from nagle_lab.fleet.results_folder import Folder
from nagle_lab.fleet.stretch import EVENTS, FILES, FileRead, Stretch, as_reads, events_of, resumed
from nagle_lab.tcp import make_engine
from nagle_lab.tcp.engine import EngineTotals
from nagle_lab.tcp.tables import Tables


@dataclass
class SeriesResult:
    """A series read to its end; ``closing`` are its exchanges that ended with it."""

    result: Result
    findings: Findings
    counted: EngineTotals
    closing: ExchangeCounts
    reads: list[FileRead]


def whole(stretches: Sequence[Stretch], out: Folder) -> SeriesResult:
    """What the stretches of a series, all of which are done, amount to: the result of reading it in one piece."""
    tables, reads = Tables(), list[FileRead]()
    for stretch in stretches:
        for which, content in events_of(stretch.key, out, (*range(len(EVENTS)), FILES)):
            if which == FILES:
                reads += as_reads(content)
            else:
                _add(tables, EVENTS[which], content)
    with make_engine(in_place=False) as engine:
        known, _ = resumed(engine, stretches[-1].key, out)
        engine.finish()
        for name in EVENTS:
            table = getattr(engine.tables, name)
            for packed in table.chunks():
                _add(tables, name, packed)
        closing = counted(engine.tables.exchange)
        known.end(engine.clock)
        totals = engine.totals()
    findings = find(tables, totals, answers=known.facts.kernel_answers)
    result = summarize(known, totals, findings, None)
    if not known.facts.formats and known.trouble:  # no file could be read at all: that is the reason
        result = result.concluded(result.verdict, "; ".join(result.quality.damage))
    return SeriesResult(result, findings, totals, closing, joined(reads))


def joined(reads: Sequence[FileRead]) -> list[FileRead]:
    """One for each file, of the parts it was read in."""
    found: list[FileRead] = []
    for read in reads:
        if found and found[-1].goes_on:
            first = found.pop()
            problem = "; ".join(filter(None, (first.problem, read.problem))) or None
            packets = first.packets + read.packets
            read = FileRead(first.path, first.size, first.first_frame, packets, problem, read.goes_on)  # noqa: PLW2901
        found.append(read)
    return found


def _add(tables: Tables, name: str, content: bytes) -> None:
    table = getattr(tables, name)
    if name != "connection":
        table.append(content)
        return
    rows = np.frombuffer(content, table.layout.dtype)
    if not len(rows):
        return
    first, last = int(rows["number"].min()), int(rows["number"].max())
    table.reach(last + 1)
    np.frombuffer(table.view(first, last), table.layout.dtype)[rows["number"] - first] = rows
