"""One program against release after release of a package: where does the verdict change?"""

import re
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from nagle_lab.diagnosis.result.result import Result
from nagle_lab.diagnosis.result.verdict import Verdict
from nagle_lab.errors import Exit, NagleLabError, last_line
from nagle_lab.experiments.software.guarded import Selection, guard
from nagle_lab.experiments.software.installs import install_release, releases

REGISTRIES = ("pypi", "npm")


@dataclass(frozen=True)
class ReleaseSpan:
    """Releases of a package, from one to another."""

    ecosystem: str
    name: str
    versions: list[str]


@dataclass(frozen=True)
class TriedRelease:
    """One release."""

    version: str
    result: Result | None  # None: it could not be installed, or recorded
    problem: str = ""  # why there is no verdict: it could not be installed or recorded, or the command failed

    @property
    def verdict(self) -> Verdict | None:
        """The run's verdict; None if there is none."""
        return None if self.problem or self.result is None else self.result.verdict


def span(package: str, between: str) -> ReleaseSpan:
    """The releases of "pypi:NAME" or "npm:NAME" from "A..B", both included. Raises NagleLabError."""
    ecosystem, colon, name = package.partition(":")
    if not colon or ecosystem not in REGISTRIES or not name:
        raise NagleLabError(f"{package}: name a package as pypi:NAME or npm:NAME")
    first, dots, last = between.partition("..")
    if not dots or not first or not last:
        raise NagleLabError(
            f"{between}: name the first and the last release with two dots between them, as 1.2.0..1.4.0"
        )
    known = releases(ecosystem, name)
    by_short = {_short(version): version for version in known}
    first, last = (each if each in known else by_short.get(_short(each), each) for each in (first, last))
    for version in (first, last):
        if version not in known:
            near = ", ".join(known[-5:]) or "none"
            raise NagleLabError(f"{package} has no release {version} for this machine; its newest are {near}")
    begin, end = known.index(first), known.index(last)
    if begin > end:
        raise NagleLabError(f"{between}: {first} is newer than {last}: name the older one first")
    return ReleaseSpan(ecosystem, name, known[begin : end + 1])


def _short(version: str) -> str:
    """The version without zeros at its end, with which it is the same one (PEP 440): 1.2 is 1.2.0."""
    return re.sub(r"(\.0)+$", "", version)


def try_each(
    span: ReleaseSpan,
    command: Sequence[str],
    selection: Selection,
    *,
    limit_s: float | None,
    both_sides: bool,
) -> Iterator[TriedRelease]:
    """Install and guard one release after the other, oldest first. Raises KeyboardInterrupt."""
    for version in span.versions:
        with tempfile.TemporaryDirectory(prefix="nagle-lab-bisect-", ignore_cleanup_errors=True) as name:
            folder = Path(name)
            try:
                installed = install_release(span.ecosystem, span.name, version, folder / "installed")
            except (NagleLabError, OSError) as error:
                yield TriedRelease(version, None, f"cannot be installed: {error}")
                continue
            try:
                (folder / "run").mkdir()
                run = guard(
                    command, folder / "run", selection, limit_s=limit_s, both_sides=both_sides,
                    environment=installed.environment, output=folder / "output.txt",
                )  # fmt: skip
            except (NagleLabError, OSError) as error:  # a full disk, say: the others still have their rows
                yield TriedRelease(version, None, str(error))
                continue
            if run.interrupted:
                raise KeyboardInterrupt
            status = run.guarded.outcome.status
            problem = run.guarded.outcome.problem or _failed(status, folder / "output.txt")
            yield TriedRelease(version, run.result, problem if status else "")


def _failed(status: int | None, output: Path) -> str:
    said = last_line(output.read_text(errors="replace")) if output.exists() else ""
    return f"the command ended with {status}{': ' + said[:160] if said else ''}"


def flips(tried: Sequence[TriedRelease]) -> list[tuple[TriedRelease, TriedRelease]]:
    """Neighbouring releases of which only one stalls; releases without a verdict are left out."""
    decided = [one for one in tried if one.verdict in (Verdict.STALL, Verdict.CLEAN, Verdict.INCONCLUSIVE)]
    return [
        (before, after)
        for before, after in pairwise(decided)
        if (before.verdict is Verdict.STALL) != (after.verdict is Verdict.STALL)
    ]


def code_of(tried: Sequence[TriedRelease]) -> Exit:
    """OK if every release stalls or is clean; UNUSABLE if none could be judged; otherwise INCONCLUSIVE."""
    verdicts = [one.verdict for one in tried]
    if all(one in (None, Verdict.INVALID) for one in verdicts):
        return Exit.UNUSABLE
    return Exit.OK if all(one and one.is_conclusive for one in verdicts) else Exit.INCONCLUSIVE
