"""One run of the lab, from a scenario's variant to a complete run folder."""

import shlex
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

from nagle_lab.errors import NagleLabError
from nagle_lab.lab.compose import ComposeSearch
from nagle_lab.lab.docker import engine_version
from nagle_lab.lab.folder import RunFolder, anything_recorded, disk_problem
from nagle_lab.lab.images import Base, ready_images
from nagle_lab.lab.interrupts import deferred
from nagle_lab.lab.leftovers import labels, sweep
from nagle_lab.lab.live import LiveLab
from nagle_lab.lab.load import PARSERS
from nagle_lab.lab.manifest import Manifest, end_of, git_revision, images_of, said, write_json
from nagle_lab.lab.parameters import rendered, resolve
from nagle_lab.lab.recorder import Recorder
from nagle_lab.lab.scenario import Scenario, Variant
from nagle_lab.lab.witnesses import option_in_effect, parse_counters

Stop = Literal["lossless", "naive"]

_ENDS = ("server", "client")
_CONFIGURATION = "server.conf"
_WITNESSES = "witnesses.json"
_LOAD_POLL_S = 0.05
_ANSWER_S = 60.0


def record(
    scenario: Scenario,
    variant: Variant,
    settings: Mapping[str, str],
    runs_dir: Path,
    progress: Callable[[str], None],
    *,
    stop: Stop = "lossless",
) -> Path:
    """Run ``variant`` once, record both ends, and return the complete run folder under ``runs_dir``.

    ``settings`` are parameters (NAME → VALUE) on top of the environment's; ``progress`` is called with one short
    line per stage. ``stop="naive"`` stops tcpdump right after the load, as a person would, and loses packets: it
    is there to show that the loss is seen.

    Raises NagleLabError in one line; what was recorded until then is kept as ``<name>.failed``. Raises
    KeyboardInterrupt on SIGINT, SIGTERM or SIGHUP: before both captures are complete nothing is kept, after that
    the run is finished first. No container and no network is left in any case.
    """
    session = _Session(scenario, variant, resolve(scenario, variant, settings), progress, stop)
    with deferred():
        return session.run(runs_dir.absolute())  # its path goes into labels that other runs read


class _Session:
    """What the stages of a run share."""

    def __init__(
        self,
        scenario: Scenario,
        variant: Variant,
        values: dict[str, str],
        progress: Callable[[str], None],
        stop: Stop,
    ) -> None:
        self._scenario, self._values = scenario, values
        self._progress, self._stop = progress, stop
        self._manifest = Manifest(scenario, variant, values)

    def _announce(self, stage: str) -> None:
        with suppress(OSError):  # whoever watched has gone away (`| head`): the run goes on
            self._progress(stage)

    @contextmanager
    def _stage(self, name: str, announcement: str | None = None) -> Iterator[None]:
        if announcement:
            self._announce(announcement)
        started = time.perf_counter()
        try:
            yield
        finally:
            self._manifest.timings_s[name] = time.perf_counter() - started

    def run(self, runs_dir: Path) -> Path:
        """Make the run folder; see ``record``."""
        with self._stage("check"):
            search = ComposeSearch()
            self._manifest.versions |= {"docker": engine_version(), "git_revision": git_revision()}
            sweep(runs_dir)
            compose = search.result()
            self._manifest.versions["compose"] = compose.version
        with self._stage("images"):
            tag, bases = ready_images(self._scenario, compose, self._values, self._announce)
        folder = RunFolder.create(runs_dir, f"{self._scenario.name}-{self._manifest.variant.name}")
        variables = {**self._values, **labels(folder.lock_path), "NAGLE_LAB_TAG": tag}
        try:
            self._record(LiveLab(self._scenario, compose, variables), bases, folder.path)
        except KeyboardInterrupt:
            if (folder.path / _WITNESSES).exists():  # both captures are complete: the load had failed
                self._failed(folder, NagleLabError("interrupted"))
            else:
                folder.discard()
            raise
        except OSError as error:
            raise self._failed(folder, disk_problem(error, "the run folder", runs_dir)) from error
        except NagleLabError as error:
            raise self._failed(folder, error) from error
        return folder.complete()

    def _failed(self, folder: RunFolder, error: NagleLabError) -> NagleLabError:
        folder.free_reserve()
        if not anything_recorded(folder.path):
            folder.discard()
            return error
        self._manifest.failure = str(error)
        with suppress(OSError):  # the disk may still be full: then the manifest goes on saying "killed"
            self._manifest.write(folder.path)
        return NagleLabError(f"{error}; what was recorded is in {folder.fail()}", error.exit_code)

    def _record(self, lab: LiveLab, bases: Mapping[str, Base], folder: Path) -> None:
        self._manifest.write(folder)  # says that the run was killed, until it ends in another way
        try:
            with self._stage("start", "starting server and client"):
                lab.start()
            self._measure(lab, bases, folder)
        except NagleLabError:
            lab.require_server()  # its end explains all that failed after it
            raise
        finally:
            with self._stage("remove", "removing the containers"):
                lab.remove()
        self._manifest.complete, self._manifest.failure = True, None
        self._manifest.write(folder)

    def _measure(self, lab: LiveLab, bases: Mapping[str, Base], folder: Path) -> None:
        self._announce("starting the captures")
        with _recorders(lab, folder) as recorders:
            with self._stage("ready"):
                option = self._ready(lab, recorders, bases, folder)
                self._manifest.write(folder)
            before = {end: parse_counters(recorder.counters()) for end, recorder in recorders.items()}
            load = self._load(lab, recorders, folder / "load.txt")
            if self._stop == "lossless":
                with self._stage("settle", "waiting for the last packets"):
                    for recorder in recorders.values():
                        recorder.settle()
            after = {end: parse_counters(recorder.counters()) for end, recorder in recorders.items()}
            with self._stage("stop"):
                captures = {end: asdict(recorder.stop()) for end, recorder in recorders.items()}
        # From here on nothing waits for a signal: both captures are complete, so the run is finished.
        counters = {end: {"before": before[end], "after": after[end]} for end in _ENDS}
        witnesses = {"captures": captures, "counters": counters, "load": load, "option": option}
        write_json(folder / _WITNESSES, witnesses)
        if load["exit_code"] != 0:
            raise NagleLabError(
                f"{load['tool']} ended with exit code {load['exit_code']}: {_last_line(folder / 'load.txt')}"
            )

    def _ready(
        self, lab: LiveLab, recorders: Mapping[str, Recorder], bases: Mapping[str, Base], folder: Path
    ) -> dict[str, Any]:
        """Wait until both captures run and the server listens; describe the lab and return the option's witness."""
        for recorder in recorders.values():
            recorder.wait_until_capturing()
        lab.wait_until_listening(recorders["server"])
        asked = [
            lab.exec("server", command)
            for command in (self._scenario.server.version, self._scenario.server.configuration)
        ]
        details = lab.details()
        described = {end: recorder.describe() for end, recorder in recorders.items()}
        version, configuration = (child.finish(_ANSWER_S) for child in asked)
        self._manifest.versions |= {
            "kernel": said(described["server"], "kernel"),
            "tcpdump": said(described["server"], "tcpdump"),
            "server": version.last_words().rpartition(": ")[2],
        }
        self._manifest.images = images_of(details.values(), bases)
        self._manifest.ends = {end: end_of(details[end], described[end]) for end in _ENDS}
        (folder / _CONFIGURATION).write_text(configuration.stdout, encoding="utf-8")
        demanded = rendered(self._scenario.server.option, self._scenario, self._values)
        in_effect = option_in_effect(configuration.stdout, demanded)
        return {"file": _CONFIGURATION, "demanded": demanded, "in_effect": in_effect}

    def _load(self, lab: LiveLab, recorders: Mapping[str, Recorder], output: Path) -> dict[str, Any]:
        """Run the load to its end, keep what it says in ``output``, and return its witness."""
        tool, command = self._scenario.load.tool, rendered(self._scenario.load.command, self._scenario, self._values)
        with self._stage("load", command):
            child = lab.exec("client", command, one_stream=True)
            while (finished := child.ended_within(_LOAD_POLL_S)) is None:
                for recorder in recorders.values():
                    recorder.check()
        output.write_text(finished.stdout, encoding="utf-8")
        witness = {"tool": tool, "command": command, "exit_code": finished.exit_code}
        if finished.exit_code != 0:
            return witness
        report = asdict(PARSERS[tool](shlex.split(command), finished.stdout))
        self._manifest.versions["load"] = report.pop("version")
        return witness | report


@contextmanager
def _recorders(lab: LiveLab, folder: Path) -> Iterator[dict[str, Recorder]]:
    """Capture both ends within the block, by end; after a failure keep what the kernel still holds of them."""
    recorders = {end: lab.recorder(end, folder / f"{end}.pcap") for end in _ENDS}
    try:
        yield recorders
    except NagleLabError:
        for recorder in recorders.values():
            with suppress(NagleLabError):
                recorder.settle()
        raise
    finally:
        for recorder in recorders.values():
            recorder.abandon()


def _last_line(file: Path) -> str:
    return next(
        (line.strip() for line in reversed(file.read_text(encoding="utf-8").splitlines()) if line.strip()),
        "no message",
    )
