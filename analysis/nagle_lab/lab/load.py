"""What the load tool says about the load it made."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from nagle_lab.errors import NagleLabError


@dataclass(frozen=True)
class LoadReport:
    """A load tool's own figures; times as the client saw them.

    ``duration_s`` is in seconds, ``mean_ms`` and ``percentiles_ms`` (percent → time within which that share of
    the requests was served) in milliseconds; ``keepalive`` counts requests on connections kept alive.
    """

    version: str
    requests: int
    complete: int
    failed: int
    non_2xx: int
    keepalive: int
    requests_per_s: float
    mean_ms: float
    duration_s: float
    percentiles_ms: dict[str, float]


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


PARSERS: dict[str, Callable[[Sequence[str], str], LoadReport]] = {"ab": parse_ab}
