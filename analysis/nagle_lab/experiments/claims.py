"""Published figures beside ours: how far each claim of a scenario is reproduced."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from nagle_lab.lab.scenarios.scenario import Claim
from nagle_lab.runs.figures import MEASURES, Figures, Measure


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
    """Hold a claim against the figures of its scenario's variants, by name; a variant not run has none."""
    of = _measured(figures.get(claim.of), claim.measure)
    if claim.against is None:
        return ClaimResult(claim, of, None, of, _mark(claim, of))
    against = _measured(figures.get(claim.against), claim.measure)
    ratio = of / against if of is not None and against else None
    return ClaimResult(claim, of, against, ratio, _mark(claim, ratio))


def _measured(figures: Figures | None, measure: str) -> float | None:
    value: float | None = getattr(figures, measure) if figures else None
    return value


def _mark(claim: Claim, figure: float | None) -> Reproduction:
    if figure is None:
        return Reproduction.UNKNOWN
    for span, mark in ((claim.reproduced, Reproduction.REPRODUCED), (claim.partly, Reproduction.PARTLY)):
        if span and span[0] <= figure <= span[1]:
            return mark
    return Reproduction.NOT
