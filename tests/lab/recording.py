"""Helpers of the lab's tests: recordings in a process of their own, and what is left of them on the engine."""

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from nagle_lab.errors import Exit
from nagle_lab.experiments.opened import judged
from nagle_lab.lab.containers.docker import image_details
from nagle_lab.lab.containers.images import image_names, image_tag
from nagle_lab.lab.scenarios.scenario import Lab
from nagle_lab.lab.scenarios.scenario_file import find_scenario
from nagle_lab.runs.manifest import Expected
from nagle_lab.runs.run import Run
from nagle_lab.runs.witnesses import Counters
from support.command import in_process
from support.repository import REPOSITORY
from support.schemas import check
from support.waiting import within

NAGLE_LAB = REPOSITORY / ".venv" / "bin" / "nagle-lab"
DRIVER = Path(__file__).with_name("driver.py")


class Recording:
    """A running driver.py; ``said`` holds the stages it has announced."""

    def __init__(
        self,
        runs_dir: Path,
        variant: str = "nodelay-off",
        *,
        scenarios: Path = REPOSITORY / "scenarios",
        **environment: str,
    ) -> None:
        self.said: list[str] = []
        self._process = subprocess.Popen(
            [sys.executable, DRIVER, scenarios, runs_dir, variant],
            env=os.environ | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            process_group=0,
        )

    def wait_for(self, stage: str) -> None:
        """Return once the stage that begins with ``stage`` is announced."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.said.append(line.strip())
            if line.startswith(stage):
                return
        raise AssertionError(f"never came to {stage!r}; it said {self.said} and {self.end()}")

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to its whole process group, as a terminal does."""
        os.killpg(self._process.pid, number)

    def end(self) -> tuple[int, str, str]:
        """Wait for its end; return exit code, last line on stdout (the run folder), stderr."""
        stdout, stderr = self._process.communicate(timeout=90)
        self.said += stdout.splitlines()
        return self._process.returncode, "".join(stdout.splitlines()[-1:]), stderr

    def interrupt(self) -> tuple[int, str, str]:
        """Press Ctrl-C and wait for the end."""
        self.signal(signal.SIGINT)
        return self.end()


def well_recorded(runs_dir: Path) -> None:
    """Return once every capture of every live run there shows stalls: some 4 kB, ten exchanges or so.

    The kernel hands packets over up to a second late, and a busy machine later still.
    """

    def captured() -> bool:
        captures = list(runs_dir.glob(".*.partial/*.pcap"))
        return bool(captures) and all(file.stat().st_size > 4096 for file in captures)

    assert within(30, captured)


class HeldDocker:
    """A ``docker`` for one recording, of which ``rm`` waits while it is held and whoever called it lives."""

    SCRIPT = """#!/bin/sh
if [ "$1" = rm ]; then
  while [ -e {held} ] && kill -0 "$PPID"; do sleep 0.1; done
  kill -0 "$PPID" || exit
fi
exec {docker} "$@"
"""

    def __init__(self, place: Path) -> None:
        place.mkdir()
        self._held = place / "held"
        real = shutil.which("docker")
        assert real
        script = place / "docker"
        script.write_text(self.SCRIPT.format(held=shlex.quote(str(self._held)), docker=shlex.quote(real)))
        script.chmod(0o755)
        self.environment = {"PATH": f"{place}:{os.environ['PATH']}"}

    def hold(self) -> None:
        """From now on. A run removes what others have left before it starts its own containers."""
        self._held.touch()

    def let_go(self) -> None:
        self._held.unlink()


def docker(*arguments: str) -> str:
    """Return the stdout of one docker command."""
    return subprocess.run(["docker", *arguments], capture_output=True, text=True, check=True).stdout


def engine_holds(runs_dir: Path) -> tuple[list[str], list[str]]:
    """Return the names of the containers, and of the networks, of runs that record into ``runs_dir``."""
    label = '{{.Label "nagle-lab.lock"}}'
    rows = [
        docker("ps", "--all", "--format", label + " {{.Names}}").splitlines(),
        docker("network", "ls", "--format", label + " {{.Name}}").splitlines(),
    ]
    containers, networks = ([row.split(" ")[1] for row in each if row.startswith(f"{runs_dir}/")] for each in rows)
    return containers, networks


def copy_of_the_lab(place: Path, *server_lines: str) -> Path:
    """Copy what the nginx lab is made of to ``place``, with lines added to the server's Dockerfile.

    Returns the scenarios folder of the copy.
    """
    for name in ("nginx", "client", "scenarios/shared", "scenarios/nginx-static"):
        shutil.copytree(REPOSITORY / name, place / name)
    shutil.copy(REPOSITORY / "compose.yaml", place)
    with (place / "nginx" / "Dockerfile").open("a") as dockerfile:
        dockerfile.write("".join(f"{line}\n" for line in server_lines))
    return place / "scenarios"


def remove_images(lab: Lab, *bases: str) -> None:
    """Remove the images that a test had built for ``lab`` on those bases, as far as they exist."""
    tag = image_tag(lab, {name: image["Id"] for name, image in zip(bases, image_details(bases), strict=True)})
    for name in image_names(lab, tag):
        subprocess.run(["docker", "image", "rm", name], check=False, capture_output=True)


def traced(
    runs: Path,
    scenario: str,
    variant: str,
    *options: str | Path,
    meanwhile: Callable[[], None] = lambda: None,
    **parameters: str,
) -> tuple[int, str, Run, dict[str, Any]]:
    """Run that variant with --trace; gives exit code, stderr, the run in the folder ``runs``, and its JSON.

    Where it was not traced, stderr ends with the verdict without strace and its reason. ``meanwhile`` is called once
    the run has begun.
    """
    command = [NAGLE_LAB, "run", scenario, variant, "--trace", "--json", "--runs", runs, *options]
    with ThreadPoolExecutor(1) as pool:
        begun = pool.submit(
            subprocess.run, command, env=os.environ | parameters, capture_output=True, text=True, timeout=300
        )
        meanwhile()
        done = begun.result()
    assert done.stdout, done.stderr
    result = json.loads(done.stdout)
    check("run", result)
    run = judged((runs / f"latest-{scenario}-{variant}").resolve())
    if run.manifest.traced:
        compared_with_the_run_before(run, result["writes"])
        return done.returncode, done.stderr, run, result
    return done.returncode, f"{done.stderr}{run.verdict}: {run.reason}", run, result


def compared_with_the_run_before(run: Run, writes: dict[str, Any]) -> None:
    """The same without strace: a complete run beside it, whose counts the traced one has."""
    before = run.witnesses.untraced
    assert before
    without = judged(run.folder.parent / before.run)
    summary = without.results[without.best].summary
    assert (without.manifest.traced, without.verdict) == (None, before.verdict) == (None, "STALL")
    assert without.contradictions == before.contradictions
    counts = (writes["untraced_exchanges"], writes["untraced_stalled_exchanges"])
    assert counts == (summary.exchanges, summary.stalled_exchanges) == (before.exchanges, before.stalled_exchanges)
    changed = writes["stalled_exchanges"] / writes["exchanges"] - summary.stalled_exchanges / summary.exchanges
    assert (abs(changed) > 0.05) == any("tracing changed the share" in note for note in writes["notes"])


def assert_its_story(result: dict[str, Any], expected: Expected) -> None:
    """Verdict, who held and who delayed, and the share on the connections under test; every witness agrees.

    ``result`` is what ``nagle-lab run --json`` prints.
    """
    assert (result["verdict"], result["contradictions"]) == (expected.verdict, [])
    assert [c["name"] for c in result["checks"] if not c["ok"]] == []
    captures = result["captures"].values()
    sure = [
        capture
        for capture in captures
        if capture["under_test"]["stalls"] or not capture["quality"]["unresolved"] or capture["verdict"] == "CLEAN"
    ]
    totals = [capture["under_test"] for capture in sure if capture["under_test"]["connections"]]
    assert totals
    for total in totals:
        assert (total["held_by"], total["delayed_by"]) == (expected.held_by, expected.delayed_by)
        assert bool(total["stalls"]) is (expected.verdict == "STALL")
    stalled = max(total["stalled_exchanges"] / (total["repeat_exchanges"] or 1) for total in totals)
    assert stalled >= (expected.min_share_after_first or 0)  # of the best capture; the other may see fewer
    assert all(not capture["others"]["stalls"] for capture in captures)


def newest(runs: Path, variant: str) -> Path:
    """The folder of the newest run of that variant of nginx-static."""
    return (runs / f"latest-nginx-static-{variant}").resolve(strict=True)


def assert_recorded_as_published(folder: Path, variant: str, verdict: str) -> None:
    """1000 requests on 100 connections; all but the first of a connection stall, or none does."""
    result = json.loads((folder / "result.json").read_text())
    check("run", result)
    expected = find_scenario("nginx-static").variant(variant).expected
    assert (result["verdict"], result["as_expected"]) == (verdict, True)
    assert_its_story(result, expected)
    for figures in result["noise"].values():
        assert 0 < figures["p50"] <= figures["max"]
    counters = Counters(**json.loads((folder / "witnesses.json").read_text())["counters"]["client"])
    for end in ("server", "client"):
        summary = result["captures"][end]["summary"]
        assert summary["exchanges"] == 1000
        most = summary["repeat_exchanges"] if verdict == "STALL" else 0
        # On a busy machine releases may reach the client too late to tell them from pauses: it leaves those open.
        open_ones = sum(result["captures"][end]["quality"]["unresolved"].values()) if end == "client" else 0
        assert most * (expected.min_share_after_first or 0) <= summary["stalled_exchanges"] + open_ones
        assert summary["stalled_exchanges"] <= most
        # A client that reads late on a busy machine acknowledges then, sooner than the timer would.
        waits = [stall["wait_ms"] for stall in json.loads((folder / f"{end}.json").read_text())["stalls"]]
        assert counters.grown("TcpExt.DelayedACKs") >= sum(wait >= 38 for wait in waits)
        stored = (folder / f"{end}.json").read_text()
        assert in_process("analyze", "--json", folder / f"{end}.pcap").out == stored


def assert_never_wrong(verdict: str | None, code: int, expected: str, said: str = "") -> None:
    """What a run may come to beside other work: as expected, or INCONCLUSIVE; never wrong, never INVALID."""
    assert (verdict, code) in [(expected, Exit.OK), ("INCONCLUSIVE", Exit.INCONCLUSIVE)], said


def undisturbed(run: Callable[[], subprocess.CompletedProcess[str]]) -> subprocess.CompletedProcess[str]:
    """How a run ends that the machine leaves in peace: one of three, where the others say that it did not.

    Only INCONCLUSIVE for the noise that the run measured is run again. Whatever else a run comes to, it has come to.
    """
    for _ in range(2):
        done = run()
        if "INCONCLUSIVE: noise:" not in done.stderr:
            return done
    return run()


def left_on_engine(runs_dir: Path) -> list[str]:
    """Return the containers and networks of runs that recorded into ``runs_dir``."""
    containers, networks = engine_holds(runs_dir)
    return containers + networks
