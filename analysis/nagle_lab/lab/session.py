"""One run of the lab, from a scenario's variant to a complete run folder."""

import shlex
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

from nagle_lab.errors import NagleLabError
from nagle_lab.lab.compose import ComposeSearch
from nagle_lab.lab.docker import Container, engine_version
from nagle_lab.lab.folder import RunFolder, anything_recorded, disk_problem
from nagle_lab.lab.images import ready_images, sidecar_image
from nagle_lab.lab.interrupts import deferred
from nagle_lab.lab.leftovers import labels, sweep, variables
from nagle_lab.lab.live import LiveLab
from nagle_lab.lab.load import PARSERS
from nagle_lab.lab.manifest import (
    capture_of,
    git_revision,
    images_of,
    namespace_of,
    new_manifest,
    said,
    write_json,
    write_manifest,
)
from nagle_lab.lab.namespaces import Namespace, namespaces, watched
from nagle_lab.lab.parameters import resolve
from nagle_lab.lab.recorder import HANDED_OVER_S, Recorder
from nagle_lab.lab.scenario import Scenario, Variant
from nagle_lab.lab.witnesses import option_in_effect, parse_counters
from nagle_lab.runs.manifest import BaseImage
from nagle_lab.runs.witnesses import WITNESSES, Counters, LoadRun, OptionRecord, RecordedWitnesses

Stop = Literal["lossless", "naive"]

_LOAD_POLL_S = 0.05
_ASK_S = 5.0  # how often the captures are asked whether the load still sends packets
_PATIENCE_S = 60.0  # longer than the load tools' own patience with a server, 30 s
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
    """Run ``variant`` once, record every capture of its lab, and return the complete run folder under ``runs_dir``.

    ``settings`` are parameters (NAME → VALUE) on top of the environment's; ``progress`` is called with one short
    line per stage. ``stop="naive"`` stops tcpdump right after the load, as a person would, and loses packets: it
    is there to show that the loss is seen.

    Raises NagleLabError in one line; what was recorded until then is kept as ``<name>.failed``. Raises
    KeyboardInterrupt on SIGINT, SIGTERM or SIGHUP: before all captures are complete nothing is kept, after that
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
        self._scenario, self._lab, self._values = scenario, scenario.lab(variant), values
        self._progress, self._stop = progress, stop
        self._manifest = new_manifest(scenario, variant, values)

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
            self._manifest.timings_s[name] = round(time.perf_counter() - started, 3)

    def run(self, runs_dir: Path) -> Path:
        """Make the run folder; see ``record``."""
        with self._stage("check"):
            search = ComposeSearch()
            versions = self._manifest.versions
            versions.docker, versions.git_revision = engine_version(), git_revision()
            sweep(runs_dir)
            compose = search.result()
            versions.compose = compose.version
        with self._stage("images"):
            tag, bases = ready_images(self._lab, compose, self._values, self._announce)
        folder = RunFolder.create(runs_dir, f"{self._scenario.name}-{self._manifest.variant}")
        marks = labels(folder.lock_path)
        environment = {**self._values, **variables(marks), "NAGLE_LAB_TAG": tag}
        lab = LiveLab(self._lab, self._scenario.server.service, compose, marks, environment)
        try:
            self._record(lab, sidecar_image(tag), bases, folder.path)
        except KeyboardInterrupt:
            if (folder.path / WITNESSES).exists():  # all captures are complete: the load had failed
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
            write_manifest(self._manifest, folder.path)
        return NagleLabError(f"{error}; what was recorded is in {folder.fail()}", error.exit_code)

    def _record(self, lab: LiveLab, sidecar: str, bases: Mapping[str, BaseImage], folder: Path) -> None:
        write_manifest(self._manifest, folder)  # says that the run was killed, until it ends in another way
        try:
            with self._stage("require"):
                lab.require(f"{self._scenario.name} {self._manifest.variant}", sidecar)
            with self._stage("start", "starting the containers"):
                lab.start()
                for step in self._lab.prepare:
                    lab.prepare(step.service, self._scenario.rendered(step.command, self._values))
            self._measure(lab, bases, folder)
        except NagleLabError:
            lab.require_services()  # the end of one explains all that failed after it
            raise
        finally:
            with self._stage("remove", "removing the containers"):
                lab.remove()
        self._manifest.complete, self._manifest.failure = True, None
        write_manifest(self._manifest, folder)

    def _measure(self, lab: LiveLab, bases: Mapping[str, BaseImage], folder: Path) -> None:
        self._announce("starting the captures")
        with _recorders(lab, self._lab.captures, folder) as recorders:
            with self._stage("ready"):
                option, found = self._ready(lab, recorders, bases, folder)
                write_manifest(self._manifest, folder)
            before = _counters(found, recorders)
            any_of_them = next(iter(recorders.values()))  # all run on the machine that the ends run on
            any_of_them.watch_lateness()
            load = self._load(lab, recorders, folder / "load.txt")
            late = any_of_them.lateness()
            if self._stop == "lossless":
                with self._stage("settle", "waiting for the last packets"):
                    for recorder in recorders.values():
                        recorder.settle()
            after = _counters(found, recorders)
            with self._stage("stop"):
                captures = {name: recorder.stop() for name, recorder in recorders.items()}
        # From here on nothing waits for a signal: all captures are complete, so the run is finished.
        counters = {name: Counters(before[name], after[name]) for name in found}
        write_json(folder / WITNESSES, RecordedWitnesses(captures, counters, load, option, late))
        if load.exit_code != 0:
            program, last = shlex.split(load.command)[0], _last_line(folder / "load.txt")
            raise NagleLabError(f"{program} ended with exit code {load.exit_code}: {last}")

    def _ready(
        self, lab: LiveLab, recorders: Mapping[str, Recorder], bases: Mapping[str, BaseImage], folder: Path
    ) -> tuple[OptionRecord | None, dict[str, Namespace]]:
        """Wait until all captures run and every port is listened on; describe the lab.

        Returns the option's witness, and the namespaces that are captured.
        """
        for recorder in recorders.values():
            recorder.wait_until_capturing()
        details = lab.details()
        found = namespaces(details, self._lab.captures)
        self._wait_for_listeners(lab, recorders, found)
        version = lab.exec(self._scenario.server.service, self._scenario.server.version)
        proof = self._lab.option
        asked = lab.exec(proof.service, proof.configuration) if proof else None
        described = {name: recorder.describe() for name, recorder in recorders.items()}
        self._describe(details, bases, found, described)
        self._manifest.versions.server = version.finish(_ANSWER_S).last_words().rpartition(": ")[2]
        option = self._option(asked.finish(_ANSWER_S).stdout, folder) if asked else None
        return option, found

    def _wait_for_listeners(
        self, lab: LiveLab, recorders: Mapping[str, Recorder], found: Mapping[str, Namespace]
    ) -> None:
        server = self._scenario.server
        lab.wait_until_listening([server.service], server.port, recorders[watched(found, server.service).captures[0]])
        sidecars = {point.service for point in self._lab.captures.values()}
        for listener in self._lab.ready:
            namespace = watched(found, listener.service)
            services = [service for service in namespace.services if service not in sidecars]
            lab.wait_until_listening(services, listener.port, recorders[namespace.captures[0]])

    def _describe(
        self,
        details: Mapping[str, Container],
        bases: Mapping[str, BaseImage],
        found: Mapping[str, Namespace],
        described: Mapping[str, list[str]],
    ) -> None:
        """Put into the manifest what the engine and the sidecars say of the lab."""
        home = {capture: namespace.name for namespace in found.values() for capture in namespace.captures}
        points, any_of_them = self._lab.captures, next(iter(described.values()))
        self._manifest.versions.kernel = said(any_of_them, "kernel")
        self._manifest.versions.tcpdump = said(any_of_them, "tcpdump")
        self._manifest.images = images_of(details.values(), bases)
        self._manifest.captures = {name: capture_of(points[name], home[name], described[name]) for name in points}
        self._manifest.namespaces = {
            name: namespace_of(namespace.services, described[namespace.captures[0]])
            for name, namespace in found.items()
        }

    def _option(self, configuration: str, folder: Path) -> OptionRecord:
        """Keep the configuration in effect, and return the witness that the demanded line stands in it."""
        assert self._lab.option
        file = f"{self._lab.option.service}.conf"
        (folder / file).write_text(configuration, encoding="utf-8")
        demanded = self._scenario.rendered(self._lab.option.line, self._values)
        return OptionRecord(file, demanded, option_in_effect(configuration, demanded))

    def _load(self, lab: LiveLab, recorders: Mapping[str, Recorder], output: Path) -> LoadRun:
        """Run the load to its end, keep what it says in ``output``, and return its witness."""
        tool, command = self._scenario.load.tool, self._scenario.rendered(self._scenario.load.command, self._values)
        with self._stage("load", command):
            child = lab.exec(self._scenario.load.service, command)
            silence = _Silence(recorders)
            while (finished := child.ended_within(_LOAD_POLL_S)) is None:
                for recorder in recorders.values():
                    recorder.check()
                if silence.lasts():
                    paused = ", ".join(lab.paused())
                    why = f"paused containers: {paused}" if paused else "it hangs"
                    raise NagleLabError(f"no packet for {_PATIENCE_S:g} s, and {tool} does not end: {why}")
        output.write_text(finished.stdout + finished.stderr, encoding="utf-8")  # the last words last
        if finished.exit_code != 0:
            return LoadRun(tool, command, finished.exit_code)
        self._manifest.versions.load, load = PARSERS[tool](command, finished.stdout)
        return load


class _Silence:
    """For how long no capture has received a packet."""

    def __init__(self, recorders: Mapping[str, Recorder]) -> None:
        self._recorders = recorders
        self._received: list[int] = []
        self._since = self._asked = time.monotonic()

    def lasts(self) -> bool:
        """Whether it has lasted longer than a load may pause; asks the captures from time to time."""
        now = time.monotonic()
        if now - self._asked < _ASK_S:
            return False
        self._asked = now
        received = [recorder.numbers().received for recorder in self._recorders.values()]
        if received != self._received:
            self._received, self._since = received, now
        return now - self._since > _PATIENCE_S


@contextmanager
def _recorders(lab: LiveLab, names: Iterable[str], folder: Path) -> Iterator[dict[str, Recorder]]:
    """Run the captures within the block, by name; after a failure keep what the kernel still holds of them."""
    recorders: dict[str, Recorder] = {}
    try:
        for name in names:
            recorders[name] = lab.recorder(name, folder / f"{name}.pcap")
        yield recorders
    except NagleLabError:
        for recorder in recorders.values():
            with suppress(NagleLabError):
                recorder.settle(HANDED_OVER_S)  # the load may go on: it need not fall silent
        raise
    finally:
        for recorder in recorders.values():
            recorder.abandon()


def _counters(found: Mapping[str, Namespace], recorders: Mapping[str, Recorder]) -> dict[str, dict[str, int]]:
    """Return the kernel's TCP counters by namespace."""
    return {name: parse_counters(recorders[each.captures[0]].counters()) for name, each in found.items()}


def _last_line(file: Path) -> str:
    return next(
        (line.strip() for line in reversed(file.read_text(encoding="utf-8").splitlines()) if line.strip()),
        "no message",
    )
