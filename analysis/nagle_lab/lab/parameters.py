"""The parameter values of one run: what the variant fixes, then --set, then the environment, then defaults."""

import os
from collections.abc import Mapping

from nagle_lab.errors import NagleLabError
from nagle_lab.lab.scenario import IntParameter, Scenario, Variant


def resolve(
    scenario: Scenario,
    variant: Variant,
    settings: Mapping[str, str],
    environment: Mapping[str, str] = os.environ,
) -> dict[str, str]:
    """Return the value of every parameter of ``scenario``, by name.

    ``settings`` are the user's NAME → VALUE. Raises NagleLabError for a name that is no parameter, for a value
    (from settings or environment) that its parameter does not take, and for one that contradicts the variant.
    """
    for name in settings:
        if name not in scenario.parameters:
            names = ", ".join(scenario.parameters)
            raise NagleLabError(f"{name} is not a parameter of {scenario.name}: choose from {names}")
    asked = {name: environment[name] for name in scenario.parameters if environment.get(name)} | dict(settings)
    values = {name: str(parameter.default) for name, parameter in scenario.parameters.items()}
    values |= {name: scenario.parameters[name].checked(value) for name, value in asked.items()}
    for name, value in variant.fixed.items():
        if asked.get(name, value) != value:
            raise NagleLabError(
                f"{name}={asked[name]} contradicts variant {variant.name}, which fixes {name}={value}: "
                f"leave {name} out or choose another variant"
            )
        values[name] = scenario.parameters[name].checked(value)
    for name, parameter in scenario.parameters.items():
        limit = parameter.max if isinstance(parameter, IntParameter) else None
        named = f"{limit}={values[limit]}" if isinstance(limit, str) else str(limit)
        if limit is not None and int(values[name]) > int(values[limit] if isinstance(limit, str) else limit):
            raise NagleLabError(f"{name}={values[name]} is more than {named}: lower {name}")
    return values
