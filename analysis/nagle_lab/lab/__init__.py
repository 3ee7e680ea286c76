"""The lab: turns one variant of a scenario into a run folder. It records packets and never interprets them."""

from nagle_lab.lab.scenario import (
    ChoiceParameter,
    Expected,
    IntParameter,
    Load,
    Parameter,
    Scenario,
    Server,
    Source,
    Variant,
    scenarios,
)
from nagle_lab.lab.session import record

__all__ = [
    "ChoiceParameter",
    "Expected",
    "IntParameter",
    "Load",
    "Parameter",
    "Scenario",
    "Server",
    "Source",
    "Variant",
    "record",
    "scenarios",
]
