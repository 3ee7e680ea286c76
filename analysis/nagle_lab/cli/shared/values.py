"""Parsing values of options."""

import re
import shlex
from collections.abc import Sequence

from nagle_lab.errors import NagleLabError
from nagle_lab.experiments.software.guarded import allowed_end

LONGEST_S = 365 * 24 * 3600


def parsed_settings(pairs: Sequence[str]) -> dict[str, str]:
    """The values of ``--set NAME=VALUE``, by name."""
    settings = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise NagleLabError(f"--set {pair}: not NAME=VALUE, as in --set REQUESTS=200")
        settings[name] = value
    return settings


def allowed_server(text: str) -> tuple[str, int]:
    """The server that --allow names, which may stall. Raises NagleLabError."""
    try:
        return allowed_end(text)
    except ValueError as error:
        raise NagleLabError(f"--allow {error}") from None


def duration_s(text: str, option: str = "--time-limit") -> float:
    """A duration in seconds, written as for timeout(1): 90, 90s, 2m, 1h. Raises NagleLabError."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smh]?)", text)
    if not found or not float(found[1]):
        raise NagleLabError(f"{option} {shlex.quote(text)} is not a duration: write it as 90s, 2m or 1h")
    seconds = float(found[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[found[2]]
    if seconds > LONGEST_S:
        raise NagleLabError(f"{option} {text} is longer than a year: leave it out")
    return seconds
