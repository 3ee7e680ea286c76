"""The command: the same runs repeated on an otherwise idle and on a busy machine."""

import fcntl
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import click

from nagle_lab.cli.commands import NoReaderError
from nagle_lab.cli.lab.matrix import named_scenarios
from nagle_lab.cli.shared.exports import require_writable, write_export
from nagle_lab.cli.shared.options import RUNS, markdown_option, runs_option
from nagle_lab.cli.shared.progress import RunsProgress
from nagle_lab.diagnosis.result.verdict import Verdict
from nagle_lab.errors import Exit, NagleLabError, printable, tell
from nagle_lab.lab.containers.interrupts import deferred, interruptible
from nagle_lab.lab.containers.process import Child, Finished
from nagle_lab.lab.folder import claimed, disk_problem
from nagle_lab.reports.screens import terminal
from nagle_lab.runs.manifest import MANIFEST
from nagle_lab.runs.witnesses import WITNESSES
from soak.plan import LOADS, Entry, Soak, Trial, plan, read, write
from soak.pressure import pressure
from soak.table import markdown, show_soak

_LOG = "soak.jsonl"
_ENOUGH = 3  # runs in a row without a verdict: something is wrong with the lab itself
_RUN = [sys.executable, "-c", "from nagle_lab.cli.main import main; main()", "run"]


@click.command("soak", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("names", nargs=-1, metavar="[SCENARIO]…")
@click.option("--at-most", type=click.IntRange(1), metavar="N", help="No more than N runs of each kind.")
@click.option("--only", multiple=True, metavar="LOAD", help="Only under this load of the machine.")
@click.option("--fresh", is_flag=True, help="Discard the runs made so far and start over.")
@markdown_option
@runs_option(RUNS / "soak")
def soak(
    names: tuple[str, ...],
    at_most: int | None,
    only: tuple[str, ...],
    *,
    fresh: bool,
    markdown: Path | None,
    runs: Path,
) -> Exit:
    """Run the stalled and the fixed variant of the SCENARIOs, or of all, again and again, and print what came of it.

    First with the CPUs, the memory and the disk kept busy and four labs at once (the loads cpu, memory, disk, "four
    at once"), then alone (none). After an interruption the same command continues; runs that are
    not as expected are kept.

    Exit codes: 0 all as expected (under load a run may be inconclusive), 1 a verdict contradicts, 2 a run failed or
    is INVALID, 3 a run is inconclusive.
    """
    try:
        return run_soak(names, runs, at_most=at_most, only=only, fresh=fresh, markdown_file=markdown)
    except BrokenPipeError as error:
        raise NoReaderError from error


def run_soak(
    names: Sequence[str],
    runs: Path,
    *,
    at_most: int | None,
    only: Sequence[str],
    fresh: bool,
    markdown_file: Path | None,
) -> Exit:
    """Make the remaining runs of the soak in the folder ``runs``, print its table, and write it to ``markdown_file``.

    ``names`` are the scenarios, all if it is empty; ``at_most`` and ``only`` are those of :func:`soak.plan.plan`.
    """
    require_writable([markdown_file])
    trials = plan(named_scenarios(names), at_most, only)
    with _only_soak(runs) as lock:
        if fresh:
            (runs / _LOG).unlink(missing_ok=True)
        soak, ended = Soak(trials, read(runs / _LOG)), None
        if made := len(trials) - len(soak.left()):
            said = f"{made} of {len(trials)} runs are made already (--fresh starts over)"
            terminal.console(stderr=True).print(said)
        try:
            with deferred():
                _carry_out(soak, runs, lock)
        except (KeyboardInterrupt, NagleLabError) as error:
            ended = error
    show_soak(soak, terminal.console(at_most=140))
    if markdown_file:
        write_export(markdown_file, markdown(soak))
    if ended is None:
        return soak.code
    goes_on = f"the same command{' without --fresh' * fresh} continues from here"
    if isinstance(ended, NagleLabError):
        raise NagleLabError(f"{ended}; then {goes_on}", ended.exit_code) from ended
    tell(f"interrupted: {goes_on}")
    return Exit.INTERRUPTED


@contextmanager
def _only_soak(runs: Path) -> Iterator[Path]:
    """Hold the folder's lock, and remove what a killed soak left in it."""
    lock = runs / ".soak.lock"
    try:
        runs.mkdir(parents=True, exist_ok=True)
        file = lock.open("a")
    except OSError as error:
        raise disk_problem(error, "the soak's log", runs) from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise NagleLabError(f"another soak records into {runs}: wait for it, or name another --runs") from error
        for abandoned in runs.glob("now-*"):
            if all(_is_over(run) for run in abandoned.glob(".*.lock")):
                shutil.rmtree(abandoned)
        yield lock


def _is_over(lock: Path) -> bool:
    """Whether the run that holds ``lock`` has ended, because a run outlives a killed soak."""
    with claimed(lock) as over:
        return over


def _carry_out(soak: Soak, runs: Path, lock: Path) -> None:
    left = soak.left()
    with RunsProgress(len(left)) as progress:
        for load in LOADS:
            mine = [trial for trial in left if trial.load == load]
            if not mine:
                continue
            kept_busy = pressure(load.pressure, lock, progress.begin(f"load: {load.name}")) if load.pressure else None
            with kept_busy or nullcontext(lambda: None) as require_load:
                progress.begin(f"load: {load.name}")("running")
                for trial, entry in _made(mine, load.at_once, runs):
                    require_load()
                    soak.entries.append(entry)
                    write(runs / _LOG, soak.entries)
                    progress.begin(f"load: {load.name}, {trial.scenario} {trial.variant}")
                    said = f"{entry.verdict or 'error'}, {printable(entry.reason) or 'as expected'}"
                    progress.end(said, notable=bool(entry.reason))
                    if not any(each.verdict for each in soak.entries[-_ENOUGH:]) and len(soak.entries) >= _ENOUGH:
                        raise NagleLabError(f"{_ENOUGH} runs in a row came to no verdict: {entry.reason}")
                    progress.begin(f"load: {load.name}")("running")


def _made(trials: Sequence[Trial], at_once: int, runs: Path) -> Iterator[tuple[Trial, Entry]]:
    """Make the trials, so many at once, and yield each with its outcome; after a signal, those under way are finished
    first.
    """
    children: set[Child] = set()
    with ThreadPoolExecutor(at_once) as pool:
        coming: dict[Future[Entry], Trial] = {pool.submit(_make, trial, runs, children): trial for trial in trials}
        try:
            while coming:
                with interruptible():
                    done, _ = wait(coming, return_when=FIRST_COMPLETED)
                for future in done:
                    yield coming.pop(future), future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for child in list(children):
                child.interrupt()
            raise


def _make(trial: Trial, runs: Path, children: set[Child]) -> Entry:
    """Make one run with the ordinary command, in a folder of its own that is kept if it is not as expected."""
    folder = Path(tempfile.mkdtemp(prefix="now-", dir=runs))
    child = Child([*_RUN, trial.scenario, trial.variant, "--json", "--runs", str(folder)])
    children.add(child)
    try:
        finished = child.wait()
    finally:
        children.discard(child)
    recorded = _recorded_in(folder)
    kept = None
    if recorded and finished.exit_code != Exit.OK:
        kept = runs / recorded.name
        recorded = recorded.rename(kept)
    entry = _entry(trial, finished, recorded, kept)
    with suppress(FileNotFoundError):
        shutil.rmtree(folder)
    return entry


def _recorded_in(folder: Path) -> Path | None:
    """The run folder, complete or failed, in the ``--runs`` of one run; None if that recorded nothing."""
    for path in folder.glob("[!.]*"):
        if path.is_dir() and not path.is_symlink():
            return path
    return None


def _entry(trial: Trial, finished: Finished, recorded: Path | None, kept: Path | None) -> Entry:
    result = _json(finished.stdout)
    manifest = _read(recorded, MANIFEST)
    captures = _read(recorded, WITNESSES).get("captures", {}).values()
    versions = manifest.get("versions", {})
    kernel, docker = versions.get("kernel"), versions.get("docker")
    return Entry(
        *trial.key,
        expected=trial.expected,
        verdict=result.get("verdict"),
        code=finished.exit_code if finished.exit_code in list(Exit) else Exit.UNUSABLE,  # killed by a signal
        reason="" if finished.exit_code == Exit.OK else _reason(result, finished),
        folder=kept.name if kept else None,
        disagreeing=[c["name"] for c in result.get("checks", []) if not c["ok"] and c["name"] != "noise"],
        captured=sum(capture["captured"] for capture in captures),
        lost=sum(max(0, c["received"] - c["captured"]) + c["dropped"] + c["dropped_by_interface"] for c in captures),
        stages_s=manifest.get("timings_s", {}),
        noise=result.get("noise"),
        revision=versions.get("git_revision"),
        machine=f"Linux {kernel}, Docker {docker}, {os.cpu_count()} CPUs",
    )


def _read(folder: Path | None, name: str) -> dict[str, Any]:
    """A JSON file in a run folder; empty if the run did not get that far."""
    if folder is None or not (folder / name).exists():
        return {}
    return _json((folder / name).read_text(encoding="utf-8"))


def _json(text: str) -> dict[str, Any]:
    """The object that a run has written; empty if it was killed before."""
    try:
        content: dict[str, Any] = json.loads(text)
    except ValueError:
        return {}
    return content


def _reason(result: dict[str, Any], finished: Finished) -> str:
    """Why a run is not as expected."""
    if result and result["verdict"] in (Verdict.STALL, Verdict.CLEAN):
        return "; ".join(result["contradictions"])
    if result:
        return str(result["reason"])
    return finished.last_line().removeprefix("nagle-lab: ")
