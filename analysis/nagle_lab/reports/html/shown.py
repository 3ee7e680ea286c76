"""What a report shows: a capture, or a run by its capture nearest the held end, with packets chosen from it.

Of two writes it shows the lines of source around them, where their files can be read here and now.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from nagle_lab.diagnosis.result.result import Result
from nagle_lab.diagnosis.result.writes import Group, Writes
from nagle_lab.evidence.examples import Examples, examples
from nagle_lab.experiments.opened import examples_of_run
from nagle_lab.reports.words.reported import ReportedCapture
from nagle_lab.reports.words.writes_text import MOST_GROUPS
from nagle_lab.runs.run import Run

_AROUND = 3  # lines before and after
_LONGEST_FILE, _LONGEST_LINE = 4_000_000, 200  # bytes, characters


@dataclass(frozen=True)
class SourceLine:
    """A line of a file; ``part`` is "trigger", "held" or "both" if it wrote that, otherwise empty."""

    number: int
    text: str
    part: str = ""


@dataclass(frozen=True)
class SourceLines:
    """Consecutive lines of a file."""

    file: str
    lines: Sequence[SourceLine]


@dataclass(frozen=True)
class Shown:
    """One capture or run; ``examples`` are empty if the capture came through a pipe."""

    name: str
    verdict: str
    reason: str
    result: Result
    examples: Examples
    run: Run | None = None
    writes: Writes | None = None  # the two writes of each stall, if they are known
    sources: Sequence[Sequence[SourceLines]] = ()  # for each pair of writes the lines around both
    slow: bool = True  # whether the reader looks because it is slow, which is not so for a guarded command
    failure: str = ""  # how that command failed; empty if it did not
    to_paste: Sequence[tuple[str, Sequence[str]]] | None = None  # None: the commands that the result suggests
    about: Sequence[tuple[str, str]] = ()  # further names and values


def shown_capture(of: ReportedCapture) -> Shown:
    """What to show of a diagnosed capture."""
    reason = of.result.reason.removeprefix(f"{of.failure}; ")
    groups = of.writes.groups[:MOST_GROUPS] if of.writes else []
    sources = [sources_of(group, of.below) for group in groups]
    return Shown(
        of.name, of.result.verdict, reason, of.result, of.packets, None, of.writes, sources, of.slow, of.failure,
        of.to_paste, of.about,
    )  # fmt: skip


def shown_run(run: Run, packets: Examples) -> Shown:
    """What to show of a judged run."""
    name = f"{run.manifest.scenario} / {run.manifest.variant}"
    writes = run.writes
    none = [()] * min(len(writes.groups), MOST_GROUPS) if writes else ()  # its sources are in a container
    return Shown(name, run.verdict, run.reason, run.results[run.best], packets, run, writes, none)


def shown_of(source: Run | Result, path: Path) -> Shown:
    """What to show of the run or capture at ``path``, which is already judged; reads its packets."""
    if isinstance(source, Run):
        return shown_run(source, examples_of_run(source))
    return shown_capture(ReportedCapture(source, examples([path], source)))


def sources_of(group: Group, below: Path | None) -> list[SourceLines]:
    """The lines around both writes, in one piece if they are close; nothing from files that cannot be read.

    Outside the folder ``below`` no file is read: for a trace that others recorded, with names of their choice.
    """
    parts: dict[tuple[str, int], str] = {}
    for write, part in ((group.trigger, "trigger"), (group.held, "held")):
        for place in (write.library, write.program):
            if place and place.line and place.file.startswith("/"):
                at = place.file, place.line
                parts[at] = part if parts.get(at, part) == part else "both"
    found = []
    for file in dict.fromkeys(file for file, _ in parts):
        lines = _read(Path(file), below)
        marks = {number: part for (of, number), part in parts.items() if of == file and number <= len(lines)}
        found += [SourceLines(file, _lines(lines, piece, marks)) for piece in _pieces(marks)]
    return found


def _pieces(marks: Iterable[int]) -> list[range]:
    """Line numbers around the marked ones; pieces that overlap or nearly touch are joined."""
    pieces: list[range] = []
    for number in sorted(marks):
        begin, end = max(number - _AROUND, 1), number + _AROUND + 1
        if pieces and begin <= pieces[-1].stop + 1:
            pieces[-1] = range(pieces[-1].start, end)
        else:
            pieces.append(range(begin, end))
    return pieces


def _lines(lines: Sequence[str], piece: range, marks: dict[int, str]) -> list[SourceLine]:
    numbers = [number for number in piece if number <= len(lines)]
    return [SourceLine(number, lines[number - 1][:_LONGEST_LINE], marks.get(number, "")) for number in numbers]


def _read(path: Path, below: Path | None) -> list[str]:
    """The lines of a file; none if it is not a file, is too long, or may not be read."""
    try:
        path = path.resolve()
        if (below and not path.is_relative_to(below.resolve())) or not path.is_file():
            return []
        with path.open("rb") as file:
            content = file.read(_LONGEST_FILE + 1)
    except (OSError, ValueError, RuntimeError):
        return []
    if len(content) > _LONGEST_FILE:
        return []
    return [line.expandtabs(4) for line in content.decode("utf-8", "replace").split("\n")]
