"""Experiments with made-up runs."""

from nagle_lab.experiments.matrix import Made, Matrix, fill, plan
from nagle_lab.experiments.trials import TrialOutcome
from nagle_lab.lab.scenarios.scenario import Scenario
from nagle_lab.runs.manifest import Versions


def filled(scenario: Scenario, *outcomes: TrialOutcome, repeat: int = 1) -> Matrix:
    """The matrix of one scenario with these outcomes of its runs, in order."""
    matrix = plan([scenario], repeat)
    coming = iter(outcomes)
    fill(matrix, lambda row: next(coming))
    matrix.made = Made("2026-11-21T04:00:00+00:00", 2, Versions(kernel="6.18"), took_s=75)
    return matrix
