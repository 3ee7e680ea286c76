"""The way through: a capture, its records, segments and connections → findings → verdict → result."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from nagle_lab.capture.capture import open_capture
from nagle_lab.diagnosis.findings import Findings, Wanted
from nagle_lab.diagnosis.result import Result
from nagle_lab.diagnosis.summary import summarize
from nagle_lab.tcp import make_engine

Paths = str | Path | Sequence[str | Path]


def analyze(path: Paths, *, exchanges: bool = True, sha256: bool = True, only: Wanted | None = None) -> Result:
    """Diagnose one capture file, several rotated ones as one, or standard input ("-").

    Parameters
    ----------
    path : the file, or files in order of time
    exchanges : whether the result lists each exchange
    sha256 : whether its source has a checksum, which the JSON needs
    only : which connections are to be judged, by address and port of client and server; the others still tell how
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


class Analysis:
    """A diagnosis that goes on as packets come: of a pipe from tcpdump, say.

    Iterating over it takes what the input has, a window at a time, and yields how many packets there were so far.
    :meth:`result` then says what they show, whether or not the input has ended: leave the loop when it is enough.

        analysis = Analysis("-")
        for packets in analysis:
            print(packets, "packets", end="\\r")
        print(analysis.result().verdict)

    Parameters, and what is raised: see :func:`analyze`.
    """

    def __init__(
        self, path: Paths, *, exchanges: bool = True, sha256: bool = True, only: Wanted | None = None
    ) -> None:
        self._only = only
        self._capture = open_capture(path, sha256=sha256)
        self._engine = make_engine(exchanges=exchanges)
        self._result: Result | None = None

    def __iter__(self) -> Iterator[int]:
        for _ in self._capture.read(self._engine):
            self._engine.drain()
            yield self._engine.frames

    def was_interrupted(self) -> None:
        """The input ended because its user ended it: in the middle of a packet, perhaps, and that is no damage."""
        self._capture.was_interrupted()

    def result(self) -> Result:
        """What the packets so far show; none are taken after it."""
        if self._result is None:
            with self._capture, self._engine:
                self._engine.finish()
                tables = self._engine.tables
                listed = tables.exchange if self._engine.lists_exchanges else None
                self._result = summarize(
                    self._capture,
                    self._engine.totals(),
                    Findings(tables, self._engine.totals().step, self._only),
                    listed,
                )
        return self._result
