"""The runs of a soak, on a busy and on an otherwise idle machine, and their outcomes."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from nagle_lab.diagnosis.result.verdict import Verdict
from nagle_lab.errors import Exit, NagleLabError, worst
from nagle_lab.lab.scenarios.scenario import Scenario
from soak.pressure import PRESSURE

MAIN = "nginx-static"  # the lab of the README, which runs most often


@dataclass(frozen=True)
class Load:
    """The load of the machine besides one run: ``pressure`` (see ``soak.pressure``), or more runs ``at_once``."""

    name: str
    pressure: str | None = None
    at_once: int = 1

    @property
    def alone(self) -> bool:
        """Whether the machine has nothing else to do."""
        return self.pressure is None and self.at_once == 1

    @property
    def title(self) -> str:
        """For a table."""
        return f"{self.name} load" if self.pressure else self.name


LOADS = (*(Load(kind, pressure=kind) for kind in PRESSURE), Load("four at once", at_once=4), Load("none"))


@dataclass(frozen=True)
class Trial:
    """One run to make."""

    load: Load
    scenario: str
    variant: str
    expected: str

    @property
    def key(self) -> tuple[str, str, str]:
        """The key that trials of the same kind share."""
        return self.load.name, self.scenario, self.variant


@dataclass(frozen=True)
class Entry:
    """The record of a run. Counts are over all its captures; ``stages_s`` are seconds by stage of the run.

    ``code`` is the exit code of the command, ``verdict`` is None if there was none; ``reason`` is empty for a run
    that is as expected. ``noise`` are the machine's own delays during the run, as the run measured them.
    """

    load: str
    scenario: str
    variant: str
    expected: str
    verdict: str | None
    code: int
    reason: str
    folder: str | None
    disagreeing: list[str]  # the checks that failed: witnesses that contradict the captures
    captured: int
    lost: int
    stages_s: dict[str, float]
    noise: dict[str, Any] | None
    revision: str | None
    machine: str

    @property
    def key(self) -> tuple[str, str, str]:
        """As :attr:`Trial.key`."""
        return self.load, self.scenario, self.variant

    @property
    def wrong(self) -> bool:
        """Whether it is STALL for a variant that does not stall, or CLEAN for one that does."""
        return self.verdict in (Verdict.STALL, Verdict.CLEAN) and self.verdict != self.expected


@dataclass
class Soak:
    """The planned runs, in order, and the records of those that were made."""

    trials: list[Trial]
    entries: list[Entry] = field(default_factory=list)

    def left(self) -> list[Trial]:
        """The trials still to be made; a trial without a verdict is repeated."""
        made, left = Counter(entry.key for entry in self.entries if entry.verdict), []
        for trial in self.trials:
            if made[trial.key]:
                made[trial.key] -= 1
            else:
                left.append(trial)
        return left

    def of_plan(self) -> list[Entry]:
        """The entries of planned trials: a log may also contain other loads."""
        keys = {trial.key for trial in self.trials}
        return [entry for entry in self.entries if entry.key in keys]

    @property
    def code(self) -> Exit:
        """0 all as expected, otherwise the worst; on a busy machine INCONCLUSIVE is accepted."""
        quiet = {load.name for load in LOADS if load.alone}
        return worst(
            Exit(entry.code) for entry in self.of_plan() if entry.code != Exit.INCONCLUSIVE or entry.load in quiet
        )

    def rows(self) -> "list[Row]":
        """A row for each load; for the idle machine a row for each variant."""
        rows = []
        for load in LOADS:
            mine = [trial for trial in self.trials if trial.load == load]
            for names in dict.fromkeys((t.scenario, t.variant) for t in mine) if load.alone else [None]:
                planned = [t for t in mine if names in (None, (t.scenario, t.variant))]
                keys = {t.key for t in planned}
                if planned:
                    what = " ".join(names) if names else f"{load.title}: {_what(planned)}"
                    rows.append(Row(what, len(planned), [e for e in self.entries if e.key in keys]))
        return rows


@dataclass(frozen=True)
class Row:
    """Runs that belong together."""

    what: str
    planned: int
    entries: list[Entry]

    @property
    def verdicts(self) -> dict[str, int]:
        """How often each verdict occurred; ``error`` for a run without one."""
        return dict(Counter(entry.verdict or "error" for entry in self.entries))

    @property
    def as_expected(self) -> int:
        """The number of runs that are as their variant expects."""
        return sum(entry.code == Exit.OK for entry in self.entries)

    @property
    def wrong(self) -> int:
        """The number of runs with a wrong verdict."""
        return sum(entry.wrong for entry in self.entries)

    @property
    def disagreeing(self) -> int:
        """Checks that failed, over all runs."""
        return sum(len(entry.disagreeing) for entry in self.entries)

    @property
    def packets(self) -> tuple[int, int]:
        """Packets captured, and lost."""
        return sum(entry.captured for entry in self.entries), sum(entry.lost for entry in self.entries)

    @property
    def late_ms(self) -> float | None:
        """The most that the machine woke a sleeper late; None if no run measured it."""
        timers = [entry.noise["timer_late_us"] for entry in self.entries if entry.noise]
        return max((each["max"] / 1e3 for each in timers if each), default=None)

    @property
    def slowest_stage(self) -> tuple[str, float, float] | None:
        """The stage that took the most time in all: its name, mean and maximum in seconds."""
        times: dict[str, list[float]] = {}
        for entry in self.entries:
            for stage, seconds in entry.stages_s.items():
                times.setdefault(stage, []).append(seconds)
        if not times:
            return None
        stage = max(times, key=lambda name: sum(times[name]))
        return stage, sum(times[stage]) / len(times[stage]), max(times[stage])


def plan(scenarios: Sequence[Scenario], at_most: int | None = None, only: Sequence[str] = ()) -> list[Trial]:
    """Return the runs of a soak, in order: the loads first, then the machine left alone.

    Each scenario's stalled and fixed variant runs 5 times under each load and 30 times without, nginx's 200 times;
    ``at_most`` limits each number. ``only`` names the loads. Raises NagleLabError for an unknown load.
    """
    for name in only:
        if name not in (known := [load.name for load in LOADS]):
            raise NagleLabError(f"there is no load {name!r}: choose from {', '.join(known)}")
    trials = []
    for load in LOADS:
        if only and load.name not in only:
            continue
        for scenario in scenarios:
            often = 5 if not load.alone else 200 if scenario.name == MAIN else 30
            for variant in scenario.story:
                trial = Trial(load, scenario.name, variant.name, variant.expected.verdict)
                trials += [trial] * min(often, at_most or often)
    return trials


def read(log: Path) -> list[Entry]:
    """Return the entries of a soak's log; none if there is no log. NagleLabError for a file that is not a log."""
    if not log.exists():
        return []
    try:
        return [Entry(**json.loads(line)) for line in log.read_text(encoding="utf-8").splitlines()]
    except (ValueError, TypeError) as error:
        raise NagleLabError(f"{log}: not a log of this version's soak: begin another with --fresh") from error


def write(log: Path, entries: Iterable[Entry]) -> None:
    """Write the log, whole or not at all."""
    part = log.with_name(f".{log.name}.part")
    part.write_text("".join(json.dumps(asdict(e), ensure_ascii=False) + "\n" for e in entries), encoding="utf-8")
    part.replace(log)


def distinct(values: Iterable[str | None]) -> Iterator[str]:
    """Each value once, in order."""
    yield from (value for value in dict.fromkeys(values) if value)


def _what(trials: Sequence[Trial]) -> str:
    variants = len({(trial.scenario, trial.variant) for trial in trials})
    return f"{variants} variant{'s' * (variants != 1)}"
