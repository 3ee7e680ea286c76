"""The parameter values of one run: what the variant fixes, then --set, then the environment, then defaults."""

import os
from collections.abc import Iterable, Mapping
from difflib import get_close_matches

from nagle_lab.errors import NagleLabError
from nagle_lab.lab.scenarios.scenario import IntParameter, Parameter, Scenario, Variant

# Variables that the Makefile reads; in ON_COMMAND_LINE it passes the names of those given on make's command line.
MAKE_VARIABLES = frozenset(
    (
        *("AGAIN", "ANSWERS", "BASE_IMAGE", "EXHIBIT", "INTO", "LONG", "PACKETS", "QUICK", "REPEAT", "SLIDES"),
        *("SCENARIO", "SECONDS", "SERVER_IMAGE", "SIZE", "TRACE", "VARIANT", "VARIANTS", "WITHOUT_LAB"),
    )
)
ON_COMMAND_LINE = "NAGLE_LAB_MAKE_VARIABLES"
_LIKE, _NEARLY_THE_SAME = 0.77, 0.85  # difflib's ratio: NODELAY for TCP_NODELAY is 0.78, REQUESTZ for REQUESTS 0.875


def resolve(
    scenario: Scenario,
    variant: Variant,
    settings: Mapping[str, str],
    environment: Mapping[str, str] = os.environ,
) -> dict[str, str]:
    """The value of every parameter of ``scenario``, by name.

    ``settings`` are the user's NAME → VALUE. Raises NagleLabError for a name that is not a parameter, for a value
    (from settings or environment) that its parameter does not accept, and for a value that contradicts the variant.
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
            raise NagleLabError(f"{name}={values[name]} exceeds {named}: lower {name}")
    return values


def refuse_misspelled(scenarios: Iterable[Scenario], environment: Mapping[str, str] = os.environ) -> None:
    """Raise NagleLabError for a variable that looks like a misspelled parameter of ``scenarios``.

    On make's command line that is any name similar to a known one. Elsewhere in the environment, where most variables
    are not ours, the name must be nearly that of a parameter, and the parameter must accept the value.
    """
    parameters = {name: each for scenario in scenarios for name, each in scenario.parameters.items()}
    known = parameters.keys() | MAKE_VARIABLES
    for name in environment.get(ON_COMMAND_LINE, "").split():
        if name not in known and (like := get_close_matches(name.upper(), sorted(known), 1, _LIKE)):
            raise NagleLabError(f"{name} is not a variable of make: did you mean {like[0]}?")
    for name, value in environment.items():
        if name in known:
            continue
        for like_name in get_close_matches(name.upper(), list(parameters), 1, _NEARLY_THE_SAME):
            if _takes(parameters[like_name], value):
                raise NagleLabError(
                    f"the environment variable {name}={value} is not a parameter: did you mean {like_name}? "
                    f"If it is not for nagle-lab: env -u {name} …"
                )


def _takes(parameter: Parameter, value: str) -> bool:
    try:
        parameter.checked(value)
    except NagleLabError:
        return False
    return True
