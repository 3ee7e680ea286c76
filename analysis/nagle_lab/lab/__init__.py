"""The lab: turns one variant of a scenario into a run folder. It records packets and never interprets them."""

from nagle_lab.lab.scenario import (
    ChoiceParameter,
    Claim,
    IntParameter,
    Lab,
    Load,
    Parameter,
    Scenario,
    Server,
    Source,
    Sweep,
    Variant,
)
from nagle_lab.lab.scenario_file import find_scenario, scenarios
from nagle_lab.lab.session import record
from nagle_lab.runs.manifest import Expected

__all__ = [
    "ChoiceParameter",
    "Claim",
    "Expected",
    "IntParameter",
    "Lab",
    "Load",
    "Parameter",
    "Scenario",
    "Server",
    "Source",
    "Sweep",
    "Variant",
    "find_scenario",
    "record",
    "scenarios",
]
