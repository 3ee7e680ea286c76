"""What the load tool says about the load it made."""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from nagle_lab.errors import NagleLabError


@dataclass(frozen=True)
class LoadReport:
    """A load tool's own figures; times as the client saw them.

    ``duration_s`` is in seconds, ``mean_ms`` and ``percentiles_ms`` (percent → time within which that share of
    the requests was served) in milliseconds; ``keepalive`` counts requests on connections kept alive. None: it
    does not say.
    """

    version: str
    requests: int
    complete: int
    failed: int
    requests_per_s: float
    mean_ms: float
    duration_s: float
    percentiles_ms: dict[str, float]
    non_2xx: int | None = None
    keepalive: int | None = None


def parse_ab(command: Sequence[str], output: str) -> LoadReport:
    """Return the figures of ``command``, an ``ab -n …``; NagleLabError if ``output`` is not a report of ab's."""

    def figure(label: str, absent: str | None = None) -> str:
        found = re.search(rf"^{label}:\s+([\d.]+)", output, re.MULTILINE)
        if found is None and absent is None:
            raise NagleLabError(f"ab's report has no line '{label}'")
        return found[1] if found else str(absent)

    version = re.search(r"This is ApacheBench, Version (\S+)", output)
    return LoadReport(
        version=f"ApacheBench {version[1]}" if version else "ApacheBench",
        requests=int(command[command.index("-n") + 1]),
        complete=int(figure("Complete requests")),
        failed=int(figure("Failed requests")),
        non_2xx=int(figure("Non-2xx responses", "0")),  # said only when there are any
        keepalive=int(figure("Keep-Alive requests", "0")),  # said only with -k
        requests_per_s=float(figure("Requests per second")),
        mean_ms=float(figure("Time per request")),
        duration_s=float(figure("Time taken for tests")),
        percentiles_ms={p: float(ms) for p, ms in re.findall(r"^ +(\d+)% +(\d+)", output, re.MULTILINE)},
    )


_KINDS: dict[str, type | tuple[type, ...]] = {
    "version": str,
    "requests": int,
    "complete": int,
    "failed": int,
    "requests_per_s": (int, float),
    "mean_ms": (int, float),
    "duration_s": (int, float),
    "percentiles_ms": dict,
}
_OPTIONAL = ("non_2xx", "keepalive")


def parse_json(command: Sequence[str], output: str) -> LoadReport:
    """Return the figures in the last line of ``output`` that begins with ``{``: LoadReport's fields as JSON.

    Raises NagleLabError, naming the tool and the field, where there is no such line or a field is wrong.
    """
    tool = command[0]
    last = next((line for line in reversed(output.splitlines()) if line.startswith("{")), "")
    try:
        said = json.loads(last)
    except ValueError:
        raise NagleLabError(f"{tool}'s report is not one line of JSON at the end of what it prints") from None
    for name, kind in {**_KINDS, **{name: int for name in _OPTIONAL if name in said}}.items():
        if not isinstance(said.get(name), kind) or isinstance(said[name], bool):
            raise NagleLabError(f"{tool}'s report has {name} = {said.get(name)!r}, which is not its figure")
    unknown = said.keys() - _KINDS.keys() - set(_OPTIONAL)
    if unknown:
        raise NagleLabError(f"{tool}'s report has {min(unknown)}, which is not a field of a load's report")
    return LoadReport(**said)


PARSERS: dict[str, Callable[[Sequence[str], str], LoadReport]] = {"ab": parse_ab, "json": parse_json}
