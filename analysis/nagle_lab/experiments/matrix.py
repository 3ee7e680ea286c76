"""The matrix: every scenario × variant, run one after the other; its outcomes, beside published figures."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from msgspec import to_builtins

from nagle_lab.errors import Exit, worst
from nagle_lab.experiments.trials import TrialOutcome
from nagle_lab.lab.scenarios.scenario import Claim, Scenario, Variant
from nagle_lab.runs.figures import MEASURES, Figures, Measure, medians
from nagle_lab.runs.manifest import Versions


class Reproduction(StrEnum):
    """How far a published figure is reproduced."""

    REPRODUCED = "reproduced"
    PARTLY = "partly"
    NOT = "not reproduced"
    UNKNOWN = "not measured"


@dataclass(frozen=True)
class ClaimResult:
    """A claim and our figure: ``of``, divided by ``against`` where the claim has one; in the measure's unit."""

    claim: Claim
    of: float | None
    against: float | None
    figure: float | None
    mark: Reproduction

    @property
    def measure(self) -> Measure:
        """What ``of`` and ``against`` are."""
        return MEASURES[self.claim.measure]


def weigh(claim: Claim, figures: Mapping[str, Figures | None]) -> ClaimResult:
    """Compare a claim with the figures of its scenario's variants, by name; a variant that was not run has none."""
    of: float | None = getattr(figures.get(claim.of), claim.measure, None)
    if claim.against is None:
        return ClaimResult(claim, of, None, of, _mark(claim, of))
    against: float | None = getattr(figures.get(claim.against), claim.measure, None)
    ratio = of / against if of is not None and against else None
    return ClaimResult(claim, of, against, ratio, _mark(claim, ratio))


def _mark(claim: Claim, figure: float | None) -> Reproduction:
    if figure is None:
        return Reproduction.UNKNOWN
    for span, mark in ((claim.reproduced, Reproduction.REPRODUCED), (claim.partly, Reproduction.PARTLY)):
        if span and span[0] <= figure <= span[1]:
            return mark
    return Reproduction.NOT


SCHEMA = "nagle-lab-matrix/1"


@dataclass
class VariantRow:
    """One variant of a scenario, and the outcome of each of its runs."""

    scenario: Scenario
    variant: Variant
    outcomes: list[TrialOutcome] = field(default_factory=list)

    @property
    def verdicts(self) -> str:
        """The verdict; if runs differ, each verdict with its number of runs."""
        names = [outcome.name for outcome in self.outcomes]
        if len(set(names)) < 2:
            return "".join(names[:1])
        return ", ".join(f"{names.count(name)} {name}" for name in dict.fromkeys(names))

    @property
    def as_expected(self) -> int:
        """How many runs are as expected."""
        return sum(outcome.as_expected for outcome in self.outcomes)

    @property
    def figures(self) -> Figures | None:
        """The medians over the runs that are STALL or CLEAN."""
        return medians([outcome.figures for outcome in self.outcomes if outcome.figures])

    @property
    def reasons(self) -> list[str]:
        """Why runs are not as expected, each reason once."""
        return list(dict.fromkeys(outcome.reason for outcome in self.outcomes if outcome.reason))


@dataclass
class Made:
    """When a matrix was made, how long it took, and on what."""

    started: str = ""  # UTC, ISO 8601
    cpus: int | None = None
    versions: Versions = field(default_factory=Versions)  # those of its first run
    took_s: int = 0

    def to_json(self) -> dict[str, Any]:
        """As JSON, with the versions that are the same in every run."""
        names = ("nagle_lab", "git_revision", "kernel", "docker", "compose")
        return asdict(self) | {"versions": {name: getattr(self.versions, name) for name in names}}


@dataclass
class Matrix:
    """Rows in the order of the scenarios and their variants; ``repeat`` runs each."""

    rows: list[VariantRow]
    repeat: int
    made: Made = field(default_factory=Made)

    @property
    def planned(self) -> int:
        """How many runs there are to make in all."""
        return len(self.rows) * self.repeat

    @property
    def done(self) -> int:
        """How many runs were made, whatever their outcome."""
        return sum(len(row.outcomes) for row in self.rows)

    @property
    def as_expected(self) -> int:
        """How many of these runs are as expected."""
        return sum(row.as_expected for row in self.rows)

    @property
    def code(self) -> Exit:
        """0 all as expected, 2 any error, 1 any contradiction, otherwise 3: some are only INCONCLUSIVE."""
        return worst(outcome.code for row in self.rows for outcome in row.outcomes)

    def by_scenario(self) -> Iterator[tuple[Scenario, list[VariantRow]]]:
        """The rows that have been run, by scenario."""
        for scenario in {row.scenario.name: row.scenario for row in self.rows}.values():
            rows = [row for row in self.rows if row.scenario.name == scenario.name and row.outcomes]
            if rows:
                yield scenario, rows

    def to_json(self) -> dict[str, Any]:
        """The matrix as JSON, for ``--json``."""
        return {
            "schema": SCHEMA,
            **self.made.to_json(),
            "repeat": self.repeat,
            "runs": {"planned": self.planned, "done": self.done},
            "exit_code": int(self.code),
            "scenarios": [
                {
                    "scenario": scenario.name,
                    "variants": [_row(row) for row in rows],
                    "claims": to_builtins(claims_of(scenario, rows)),
                }
                for scenario, rows in self.by_scenario()
            ],
        }


def plan(scenarios: Sequence[Scenario], repeat: int) -> Matrix:
    """A row for every variant of those scenarios, not yet run."""
    return Matrix(
        [VariantRow(scenario, variant) for scenario in scenarios for variant in scenario.variants.values()], repeat
    )


def fill(matrix: Matrix, carry_out: Callable[[VariantRow], TrialOutcome]) -> None:
    """Run every row as often as planned, always the whole matrix before repeating it."""
    for _ in range(matrix.repeat):
        for row in matrix.rows:
            row.outcomes.append(carry_out(row))


def claims_of(scenario: Scenario, rows: Sequence[VariantRow]) -> list[ClaimResult]:
    """The scenario's claims, compared with the figures of its rows."""
    figures: Mapping[str, Figures | None] = {row.variant.name: row.figures for row in rows}
    return [weigh(claim, figures) for claim in scenario.claims]


def _row(row: VariantRow) -> dict[str, Any]:
    figures = row.figures
    return {
        "variant": row.variant.name,
        "expected": row.variant.expected.verdict,
        "as_expected": row.as_expected,
        "medians": asdict(figures) if figures else None,
        "runs": [asdict(outcome) for outcome in row.outcomes],
    }
