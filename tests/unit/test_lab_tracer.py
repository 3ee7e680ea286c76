"""What of a lab is traced, and which calls. Runs under strace: tests/lab/test_traced_runs.py."""

from pathlib import Path

import pytest

from nagle_lab.guard.tracing import strace_command
from nagle_lab.lab.scenarios.scenario_file import find_scenario
from nagle_lab.lab.tracer import traced_service
from support.repository import REPOSITORY


@pytest.mark.parametrize(
    ("scenario", "variant", "service"),
    [("nginx-static", "nodelay-off", "server"), ("nginx-static", "nodelay-on", "server"),
     ("redis-proxy", "nginx-nagle", "proxy"), ("message-queue", "two-writes", "client")],
)  # fmt: skip
def test_which_service_is_traced(scenario, variant, service):
    found = find_scenario(scenario)
    chosen = found.variants.get(variant) or found.variants[found.stalled]
    assert traced_service(found, chosen) == service


def test_the_sidecar_traces_the_calls_that_the_guard_traces():
    script = (REPOSITORY / "scenarios/shared/tracer/trace").read_text()
    asked = {word.strip("?,'\"") for line in script.splitlines() if line.startswith("calls=")
             for word in line.partition("=")[2].replace("$calls", "").split(",")}  # fmt: skip
    (option,) = [word for word in strace_command.attaching([1], Path("x"), stacks=False) if word.startswith("trace=")]
    assert asked - {""} == {name.strip("?") for name in option.removeprefix("trace=").split(",")}
