"""A diagnosed capture to report: what the screen, JUnit, Markdown and HTML say about it besides its result."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nagle_lab.diagnosis.result.result import Result
from nagle_lab.diagnosis.result.writes import Writes
from nagle_lab.errors import Exit
from nagle_lab.evidence.examples import Examples
from nagle_lab.evidence.ladder import Ladder


@dataclass(frozen=True)
class ReportedCapture:
    """A diagnosed capture, of a file or of a guarded command."""

    result: Result
    packets: Examples
    code: Exit = Exit.OK
    expected: str | None = None
    writes: Writes | None = None  # the two writes of each stall, if they are known
    below: Path | None = None  # the folder outside which no source is shown; None: no limit
    title: str = ""  # the heading instead of the file's name
    about: Sequence[tuple[str, str]] = ()  # further names and values, for Markdown and HTML
    took_s: float = 0.0  # how long a command ran, for JUnit
    failure: str = ""  # how it failed; empty if it did not
    slow: bool = True  # whether the reader looks because it is slow; in a guarded test, pauses need no next step
    to_paste: Sequence[tuple[str, Sequence[str]]] | None = None  # what to do, and its lines; None: as commands() says

    @property
    def name(self) -> str:
        """What to call it: its title, otherwise the file."""
        return self.title or self.result.source.file

    @property
    def ladder(self) -> Ladder | None:
        """A stall, if possible with the calls that wrote its data; None if the capture came through a pipe."""
        return self.packets.written or self.packets.typical

    @property
    def against(self) -> str:
        """The expectation that it contradicts, and what was found; empty if it contradicts none."""
        return f"expected {self.expected}, found {self.result.verdict}" if self.code is Exit.CONTRADICTED else ""
