"""The bad halves of the museum under ``guard --trace``: are the two writes those that their sources name?"""

import re
import tempfile
from dataclasses import dataclass
from pathlib import Path

from nagle_lab.diagnosis.result.writes import Group, Place, Write, Writes
from nagle_lab.errors import Exit, NagleLabError
from nagle_lab.experiments.software.guarded import Selection, guard
from nagle_lab.experiments.software.museum import LIMIT_S, Exhibit, ExpectedWrites, against, install_half
from nagle_lab.experiments.writes.traced import with_writes

_EXPECTED = re.compile(r"(?P<file>\S+?)(?::(?P<line>\d+))?(?: (?P<function>\S.*))?")


@dataclass(frozen=True)
class TracedExhibit:
    """A bad half that was traced, and what its exhibit says about it."""

    exhibit: Exhibit
    writes: Writes | None
    problem: str  # why there are no writes; empty if there are
    untraced_s: float = 0.0  # how long the run without tracing took
    traced_s: float = 0.0
    could_run: bool = True

    @property
    def expected(self) -> ExpectedWrites:
        """Where the source makes the two writes."""
        assert self.exhibit.writes, f"{self.exhibit.name} does not say where its writes are"
        return self.exhibit.writes

    @property
    def group(self) -> Group | None:
        """The most frequent pair of writes."""
        return self.writes.groups[0] if self.writes and self.writes.groups else None

    @property
    def right(self) -> tuple[bool, bool]:
        """Whether the trigger and the held write are those of the exhibit, or of one of the pairs it allows."""
        if not self.group:
            return False, False
        found = [
            (is_at(trigger, self.group.trigger), is_at(held, self.group.held))
            for trigger, held in self.expected.pairs
        ]
        return next((pair for pair in found if all(pair)), found[0])

    @property
    def code(self) -> Exit:
        """OK if both are right; CONTRADICTED; INCONCLUSIVE if it could not run here."""
        if not self.could_run:
            return Exit.INCONCLUSIVE
        return Exit.OK if all(self.right) else Exit.CONTRADICTED


def is_at(expected: str, write: Write) -> bool:
    """Whether a write was made at a place such as "thrift/transport/TSocket.py:176 write".

    The file may be the end of a longer path; line and function may be left out; without debug information there is
    only the function. A write that names a line of the program and one of a library is at both.
    """
    found = _EXPECTED.fullmatch(expected)
    assert found, expected
    return any(_is(found, place) for place in (write.program, write.library) if place)


def _is(expected: re.Match[str], place: Place) -> bool:
    if not place.file:
        return expected[0] == place.function
    file, line, function = expected["file"], expected["line"], expected["function"]
    same_file = place.file == file or place.file.endswith(f"/{file}")
    return same_file and (not line or place.line == int(line)) and (not function or place.function == function)


def trace(exhibit: Exhibit) -> TracedExhibit:
    """Install the bad half of an exhibit that says where its writes are, guard it, and trace it.

    Raises KeyboardInterrupt if a signal such as Ctrl-C's came to a run of it.
    """
    try:
        installed = install_half(exhibit, exhibit.bad)
        with tempfile.TemporaryDirectory(prefix="nagle-lab-museum-", ignore_cleanup_errors=True) as folder:
            return _traced(exhibit, installed.folder, installed.environment, Path(folder))
    except (NagleLabError, OSError) as error:  # a full disk, say: the others still have their rows
        return TracedExhibit(exhibit, None, str(error), could_run=False)


def _traced(exhibit: Exhibit, cwd: Path, environment: dict[str, str], folder: Path) -> TracedExhibit:
    command, output = exhibit.bad.run, folder / "output.txt"
    first = guard(
        command, folder, Selection(), limit_s=LIMIT_S, cwd=cwd, environment=environment, output=output
    )  # fmt: skip
    outcome = first.guarded.outcome
    if outcome.interrupted:
        raise KeyboardInterrupt
    if problem := against(exhibit, exhibit.bad, first.result, outcome.status, folder):
        return TracedExhibit(exhibit, None, problem)
    run = with_writes(first, cwd=cwd, environment=environment, output=output)
    problem = run.writes.problem if run.writes and not run.writes.groups else ""
    traced_s = run.traced.took_s if run.traced else 0.0
    return TracedExhibit(exhibit, run.writes, problem, outcome.took_s, traced_s)
