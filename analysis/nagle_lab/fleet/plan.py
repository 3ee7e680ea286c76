"""What a run has to do, kept beside its work until it has ended: so a question can tell that a store is not whole."""

from collections.abc import Mapping, Sequence

import msgspec

from nagle_lab.fleet.results_folder import Folder

_NAME = "work/plan.json"


class Plan(msgspec.Struct, frozen=True):
    """What a run reads: its sources; the partition of each series, and the file that says that it is done."""

    sources: list[str]
    series: dict[str, str]


class Unfinished(msgspec.Struct, frozen=True):
    """A run that has not ended: what it reads, and how many of its series are judged."""

    sources: list[str]
    judged: int
    series: int


def begin(sources: Sequence[str], series: Mapping[str, str], out: Folder) -> None:
    """Note what a run is to do."""
    out.write(_NAME, msgspec.json.encode(Plan(list(sources), dict(series))))


def end(out: Folder) -> None:
    """Note that the run has ended: what is stored is all there is."""
    out.remove(_NAME)


def unfinished(out: Folder) -> Unfinished | None:
    """The latest run, if it has not ended; None if it has, or if ``work`` was removed."""
    try:
        plan = msgspec.json.decode(out.read(_NAME), type=Plan)
    except FileNotFoundError:
        return None
    there, stored = out.names("work"), out.names("series")
    judged = sum(partition in stored and done in there for partition, done in plan.series.items())
    return Unfinished(plan.sources, judged, len(plan.series)) if judged < len(plan.series) else None
