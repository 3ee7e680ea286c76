"""Reading the report of a load tool."""

import re
import shlex
from collections.abc import Callable
from typing import Any

import msgspec

from nagle_lab.errors import NagleLabError
from nagle_lab.runs.witnesses import Load


def parse_ab(command: str, output: str) -> tuple[str, Load]:
    """Version and figures of ``command``, an ``ab -n …``; NagleLabError if ``output`` is not a report of ab,
    or the command has no ``-n``.
    """

    def figure(label: str, absent: str | None = None) -> str:
        match = re.search(rf"^{label}:\s+([\d.]+)", output, re.MULTILINE)
        if match is None and absent is None:
            raise NagleLabError(f"ab's report has no line '{label}': check load.command in scenario.toml")
        return match[1] if match else str(absent)

    asked = re.search(r" -n ?(\d+)(?!\S)", " ".join(shlex.split(command)))
    if asked is None:
        raise NagleLabError(f"{command}: ab's number of requests is not in it: write -n NUMBER in load.command")
    version = re.search(r"This is ApacheBench, Version (\S+)", output)
    load = Load(
        tool="ab",
        command=command,
        exit_code=0,
        requests=int(asked[1]),
        complete=int(figure("Complete requests")),
        failed=int(figure("Failed requests")),
        non_2xx=int(figure("Non-2xx responses", "0")),  # printed only when there are any
        keepalive=int(figure("Keep-Alive requests", "0")),  # printed only with -k
        requests_per_s=float(figure("Requests per second")),
        mean_ms=float(figure("Time per request")),
        duration_s=float(figure("Time taken for tests")),
        percentiles_ms={p: float(ms) for p, ms in re.findall(r"^ +(\d+)% +(\d+)", output, re.MULTILINE)},
    )
    return f"ApacheBench {version[1]}" if version else "ApacheBench", load


def parse_json(command: str, output: str) -> tuple[str, Load]:
    """Version and figures in the last line of ``output`` that begins with ``{``: Load's fields as JSON.

    Raises NagleLabError, naming the tool and the field, if there is no such line or a field is wrong.
    """
    tool = shlex.split(command)[0]
    last = next((line for line in reversed(output.splitlines()) if line.startswith("{")), "")
    try:
        report = msgspec.json.decode(last, type=dict[str, Any])
    except msgspec.DecodeError:
        raise NagleLabError(f"the last line of {tool}'s output is not a JSON object: check the load tool") from None
    if not isinstance(version := report.pop("version", None), str):
        raise NagleLabError(f"{tool}'s report has version = {version!r}, which is not a string: check the load tool")
    try:
        return version, msgspec.convert({**report, "tool": "json", "command": command, "exit_code": 0}, Load)
    except msgspec.ValidationError as error:
        raise NagleLabError(f"{tool}'s report is not valid: {error}: check the load tool") from error


PARSERS: dict[str, Callable[[str, str], tuple[str, Load]]] = {"ab": parse_ab, "json": parse_json}
