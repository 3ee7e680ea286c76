"""The way through: a capture, its records, segments and connections → findings → verdict → result."""

import reprlib
from collections.abc import Iterator, Sequence
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING

from nagle_lab.capture.capture import open_capture
from nagle_lab.diagnosis.observed.columns import is_large
from nagle_lab.diagnosis.observed.paths import KnownPaths
from nagle_lab.diagnosis.record_tap import RecordSink, RecordTap
from nagle_lab.errors import NagleLabError
from nagle_lab.tcp import make_engine
from nagle_lab.tcp.engine import Engine

if TYPE_CHECKING:
    from nagle_lab.diagnosis.both_ends import BothEnds
    from nagle_lab.diagnosis.left_out import Wanted
    from nagle_lab.diagnosis.pair import Pair
    from nagle_lab.diagnosis.result.result import Result

Paths = str | Path | Sequence[str | Path]


def analyze(path: Paths, *, exchanges: bool = True, sha256: bool = True, only: "Wanted | None" = None) -> "Result":
    """Diagnose one capture file, several rotated ones as one, or standard input ("-").

    Parameters
    ----------
    path : the file, or files in order of time
    exchanges : whether the result lists each exchange
    sha256 : whether its source has a checksum, which the JSON needs
    only : which connections are to be judged, by address and port of client and server; the others still show how
        fast their ends are, and what arrived where

    Raises
    ------
    NagleLabError
        The input is missing, empty or not a capture.
    """
    analysis = Analysis(path, exchanges=exchanges, sha256=sha256, only=only)
    for _ in analysis:
        pass
    return analysis.result()


def analyze_same_traffic(one: Paths, two: Paths, *, exchanges: bool = True, sha256: bool = True) -> "Pair":
    """Diagnose two captures of the same traffic together, taken at both ends for example.

    Each shows the end that it is nearer to. So it is known how late an ACK was, and how soon it released what was
    held, even if the path would hide one of these in each capture. Parameters: see :func:`analyze`.

    Raises
    ------
    NagleLabError
        An input is missing, empty or not a capture, or the two have no connection in common.
    """
    analyses = tuple(Analysis(path, exchanges=exchanges, sha256=sha256) for path in (one, two))
    for analysis in analyses:
        for _ in analysis:
            pass
    return analyses[0].pair_with(analyses[1])


class Analysis:
    """A diagnosis that continues as packets come, for example through a pipe from tcpdump.

    Iterating over it reads the input, a window at a time, and yields how many packets there were so far.
    :meth:`result` then says what they show, whether or not the input has ended: leave the loop when you have enough.

        analysis = Analysis("-")
        for packets in analysis:
            print(packets, "packets", end="\\r")
        print(analysis.result().verdict)

    Parameters, and what is raised: see :func:`analyze`. In addition, ``path`` may be an open file, and ``onlooker``
    receives all records unchanged, and what the kernel said.
    """

    def __init__(
        self,
        path: Paths | FileIO,
        *,
        exchanges: bool = True,
        sha256: bool = True,
        only: "Wanted | None" = None,
        onlooker: RecordSink | None = None,
    ) -> None:
        if not isinstance(path, str | Path | FileIO | Sequence) or isinstance(path, bytes):
            raise TypeError(f"path is {reprlib.repr(path)}: give a str, a pathlib.Path, or a sequence of them")
        self._only, self._exchanges = only, exchanges
        self._capture = open_capture(path, sha256=sha256)
        self._paths: KnownPaths | None = None  # by the periods before
        self._records = RecordTap(make_engine(exchanges=exchanges), onlooker)
        self._onlooker, self._passed_on = onlooker, 0  # how many of the kernel's answers in this period
        self._result: Result | None = None
        self._is_over = False

    def __iter__(self) -> Iterator[int]:
        if self._is_over:
            return
        for _ in self._capture.read(self._records):
            self._records.engine.drain()
            if self._onlooker and self.kernel_answer_count > self._passed_on:
                self._onlooker.kernel_answers(self._capture.facts.kernel_answers[self._passed_on :])
                self._passed_on = self.kernel_answer_count
            yield self._records.frames
            if self._is_over:  # its engine is gone
                return

    @property
    def bytes_read(self) -> int:
        """Bytes read so far of the file or files, as they are stored."""
        return self._capture.byte_count

    @property
    def dropped(self) -> int:
        """Packets that the capturing program says it lost so far."""
        return self._capture.dropped

    @property
    def connections(self) -> int:
        """How many there were so far in this period."""
        return self._records.engine.connections

    @property
    def rows(self) -> int:
        """How much has been noted so far in this period, in rows of tables: memory and disk grow with it."""
        return self._records.engine.tables.rows

    @property
    def is_large(self) -> bool:
        """Whether there is so much of one kind in this period that NumPy will be needed."""
        return any(is_large(len(table)) for _, table in self._records.engine.tables.by_name())

    @property
    def kernel_answer_count(self) -> int:
        """How often the kernel said so far in this period whether data waits in a socket."""
        return len(self._capture.facts.kernel_answers)

    def note_interrupted(self) -> None:
        """Note that the user ended the input: if it ends in the middle of a packet, that is no damage."""
        self._capture.note_interrupted()

    def end_period(self) -> "Result":
        """What the packets since the last call show; the analysis continues with the next one, as if it were the
        first.

        So it needs bounded memory, however long the input. A connection that continues begins anew, without its
        handshake; how long that took is remembered for the two hosts. Frames are counted on.
        """
        with self._records.engine as ended:
            self._records.engine = make_engine(exchanges=self._exchanges)
            self._records.engine.frames = ended.frames
            result = self._summarize(ended)
            self._paths = self._paths or KnownPaths()
            self._paths.add(ended.tables.connection)
        self._capture.begin_period()
        self._passed_on = 0
        return result

    def result(self) -> "Result":
        """What the packets so far show, or those since the last period; no packets are read after this call."""
        if self._result is None:
            self._end()
            with self._capture, self._records.engine as engine:
                self._result = self._summarize(engine)
        return self._result

    def pair_with(self, other: "Analysis") -> "Pair":
        """What this and another capture of the same traffic show; no packets are read after this call.

        Raises
        ------
        NagleLabError
            They have no connection in common.
        """
        from nagle_lab.diagnosis.both_ends import BothEnds  # noqa: PLC0415 - as in _summarize
        from nagle_lab.diagnosis.pair import pair_of  # noqa: PLC0415

        for analysis in (self, other):
            analysis._end()
        with self._capture, other._capture, self._records.engine as own, other._records.engine as its:
            for engine in (own, its):
                engine.finish()
            resolution, its_resolution = own.totals().resolution, its.totals().resolution
            seen = BothEnds(own.tables, its.tables, (resolution, its_resolution))
            seen_there = BothEnds(its.tables, own.tables, (its_resolution, resolution))
            if not seen.may_be_one:
                raise NagleLabError(_why_not_the_same(self, other, own, its))
            results = self._summarize(own, seen), other._summarize(its, seen_there)
            return pair_of(results, (own.tables, its.tables), seen)

    def _end(self) -> None:
        """No packets are read after this. RuntimeError if that is so already, and there is no result of its own."""
        if self._is_over:
            raise RuntimeError("this analysis has ended: make a new one")
        self._is_over = True

    def _summarize(self, engine: Engine, both_ends: "BothEnds | None" = None) -> "Result":
        """The result of what the engine found; with two captures of the same traffic, by what both show."""
        # Imported this late, so that a caller can import them while a large capture is being read.
        from nagle_lab.diagnosis.findings import find  # noqa: PLC0415
        from nagle_lab.diagnosis.summary import summarize  # noqa: PLC0415

        engine.finish()
        self._capture.end_period()
        listed = engine.tables.exchange if engine.lists_exchanges else None
        totals = engine.totals()
        answers = self._capture.facts.kernel_answers
        findings = find(engine.tables, totals, self._only, answers=answers, paths=self._paths, both_ends=both_ends)
        return summarize(self._capture, totals, findings, listed)


def _why_not_the_same(one: Analysis, two: Analysis, *engines: Engine) -> str:
    """Why two captures whose engines found no connection in common are not of the same traffic."""
    names = [" ".join(analysis._capture.names) for analysis in (one, two)]
    for name, engine in zip(names, engines, strict=True):
        if not engine.connections:
            return f"{name}: no TCP connection in it; capture with the filter 'tcp', and at least -s 128"
    return (
        f"{names[0]} and {names[1]} have no connection in common, neither by addresses nor by sequence numbers: not "
        "the same traffic, or not at the same time"
    )
