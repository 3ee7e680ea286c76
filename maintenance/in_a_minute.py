"""How long it takes from the command to the name of the program that stalls, in each of the five incidents.

As root, with Docker, on a machine where nothing else stalls: .venv/bin/python maintenance/in_a_minute.py
"""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[1]
NAGLE_LAB = REPOSITORY / ".venv" / "bin" / "nagle-lab"
BEGUN_S, MOST_S = 4, 60  # seconds: from the first request on; the most for each way


@dataclass(frozen=True)
class Case:
    """An incident that lasts some minutes; ``program`` holds the data, in the container of ``service``."""

    scenario: str
    variant: str
    settings: tuple[str, ...]
    service: str
    program: str


CASES = (
    Case("nginx-static", "nodelay-off", ("REQUESTS=100000", "CONCURRENCY=10"), "server", "nginx"),
    Case("redis-proxy", "nginx-nagle", ("REQUESTS=100000", "CONNECTIONS=8"), "proxy", "nginx"),
    Case("message-queue", "sockets-nagle", ("MESSAGES=100000", "CONNECTIONS=2"), "client", "python3"),
    Case("node-keepalive", "agent-nagle", ("REQUESTS=100000", "CONNECTIONS=2"), "client", "node"),
    Case("unbuffered-proxy", "unbuffered-nagle", ("REQUESTS=100000",), "proxy", "nginx"),
)


def main() -> None:
    """Print a table in Markdown."""
    print("| incident | holds | `sockets` | `watch` | `watch --container` |\n|---|---|---|---|---|", flush=True)
    for case in CASES:
        with going_on(case) as container:
            times = [
                until_named_by_sockets(container, case.program),
                until_named_by_watch(container, case.program),
                until_named_by_watch(container, case.program, "--container", container),
            ]
        said = [f"{seconds:.1f} s" if seconds else "not named" for seconds in times]
        print(f"| {case.scenario} {case.variant} | {case.program} | {' | '.join(said)} |", flush=True)


@contextmanager
def going_on(case: Case) -> Any:
    """Run the incident; yields the container of the program that holds. At the end the lab is ended as by Ctrl-C."""
    settings = [part for each in case.settings for part in ("--set", each)]
    command = [NAGLE_LAB, "run", case.scenario, case.variant, *settings]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as run:
        try:
            assert run.stderr
            before = stage = ""
            for line in run.stderr:
                before, stage = stage, line.strip()
                if "captures" in before:  # the stage after that is the load
                    break
            time.sleep(BEGUN_S)
            if run.poll() is not None:
                sys.exit(f"{case.scenario}: the run ended: {stage}")
            yield container_of(case.service)
        finally:
            run.send_signal(signal.SIGINT)
            run.stderr.read()


def container_of(service: str) -> str:
    """The newest container of that service that this checkout started."""
    show = '{{.Names}} {{.Label "com.docker.compose.project.working_dir"}}'
    command = ["docker", "ps", f"--filter=label=com.docker.compose.service={service}", f"--format={show}"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    return next(line.split()[0] for line in listed if str(REPOSITORY) in line)


def until_named_by_sockets(container: str, program: str) -> float | None:
    """Seconds until the list, printed repeatedly, says that this program holds data now."""
    began = time.monotonic()
    while time.monotonic() - began < MOST_S:
        done = subprocess.run([NAGLE_LAB, "sockets", "--json"], capture_output=True, text=True, check=True)
        for one in json.loads(done.stdout)["sockets"]:
            names = [each["name"] for each in one["processes"]]
            if one["container"] == container and program in names and one["waits"] == "held now":
                return time.monotonic() - began
    return None


def until_named_by_watch(container: str, program: str, *options: str) -> float | None:
    """Seconds until the first finding or note that names this program in that container, by name or id."""
    shown = ["docker", "inspect", "--format={{.Id}}", container]
    number = subprocess.run(shown, capture_output=True, text=True, check=True).stdout[:12]
    names = {f"{container}/{program}", f"{number}/{program}"}
    began = time.monotonic()
    command = [NAGLE_LAB, "watch", "--json", "--seconds", str(MOST_S), *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as watch:
        assert watch.stdout
        named = None
        for line in watch.stdout:
            event = json.loads(line)
            said = {event["process"], event["peer"].split(" ")[0]} if event["event"] == "finding" else set()
            said |= {event["text"].split(" ")[0]} if event["event"] == "note" else set()  # that it holds data
            if names & said:
                named = time.monotonic() - began
                break
        watch.send_signal(signal.SIGINT)
        watch.stdout.read()
    return named


if __name__ == "__main__":
    if os.geteuid():
        sys.exit("run this as root")
    main()
