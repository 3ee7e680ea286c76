"""One run of the lab, from a scenario's variant to a complete run folder."""

import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from nagle_lab.errors import NagleLabError, last_line
from nagle_lab.lab import tracer
from nagle_lab.lab.containers.compose import ComposeSearch
from nagle_lab.lab.containers.docker import Container, engine_version
from nagle_lab.lab.containers.images import ready_images, sidecar_image
from nagle_lab.lab.containers.interrupts import deferred
from nagle_lab.lab.containers.process import Child
from nagle_lab.lab.folder import RunFolder, anything_recorded, disk_problem
from nagle_lab.lab.manifest import (
    capture_record,
    first_value,
    git_revision,
    image_records,
    namespace_record,
    new_manifest,
    write_json,
    write_manifest,
)
from nagle_lab.lab.namespaces import Namespace, captured_namespace, captured_namespaces
from nagle_lab.lab.recorder import HANDED_OVER_S, Recorder
from nagle_lab.lab.run_containers import LiveLab, sweep
from nagle_lab.lab.scenarios.load import PARSERS
from nagle_lab.lab.scenarios.parameters import resolve
from nagle_lab.lab.scenarios.scenario import Scenario, Variant
from nagle_lab.lab.tracer import traced_service, with_tracer
from nagle_lab.lab.witnesses import option_in_effect, parse_counters
from nagle_lab.runs.manifest import BaseImage
from nagle_lab.runs.witnesses import WITNESSES, Counters, LoadRun, OptionRecord, RecordedWitnesses, Untraced

_LOAD_POLL_S = 0.05
_LOOK_S = 5.0  # how often to check whether the load still sends packets
_PATIENCE_S = 60.0  # longer than the load tools' own patience with a server, 30 s
_ANSWER_S = 60.0


def record(
    scenario: Scenario,
    variant: Variant,
    settings: Mapping[str, str],
    runs_dir: Path,
    progress: Callable[[str], None],
    *,
    untraced: Untraced | None = None,
) -> Path:
    """Run ``variant`` once, record every capture of its lab, and return the complete run folder under ``runs_dir``.

    ``settings`` are parameters (NAME → VALUE) on top of the environment's; ``progress`` is called with one short
    line per stage. With ``untraced``, the outcome of the same run without strace, strace runs beside the service that
    holds.

    Raises NagleLabError, in one line; what was recorded until then is kept as ``<name>.failed``. Raises
    KeyboardInterrupt on SIGINT, SIGTERM or SIGHUP: nothing is kept before all captures are complete; after that the
    run is finished first. No container or network is left in any case.
    """
    session = _Session(scenario, variant, resolve(scenario, variant, settings), progress, untraced)
    with deferred():
        return session.run(runs_dir.absolute())  # other runs read its path in labels


class _Session:
    """One run: the state that its stages share."""

    def __init__(
        self,
        scenario: Scenario,
        variant: Variant,
        values: dict[str, str],
        progress: Callable[[str], None],
        untraced: Untraced | None,
    ) -> None:
        self._scenario, self._lab, self._values = scenario, scenario.lab(variant), values
        self._progress, self._untraced = progress, untraced
        self._manifest = new_manifest(scenario, variant, values)
        self._variables = dict(values)  # of the Compose files
        if untraced:
            service = self._manifest.traced = traced_service(scenario, variant)
            self._lab, self._variables = with_tracer(self._lab, service), {**values, **tracer.variables(service)}
        self._recorders: dict[str, Recorder] = {}  # by capture
        self._namespaces: dict[str, Namespace] = {}  # those that are captured, by name
        self._bases: dict[str, BaseImage] = {}

    def _announce(self, stage: str) -> None:
        with suppress(OSError):  # nobody reads it any more (`| head`): the run continues
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
            tag, self._bases = ready_images(self._lab, compose, self._variables, self._announce)
        folder = RunFolder.create(runs_dir, f"{self._scenario.name}-{self._manifest.variant}")
        variables = {**self._variables, "NAGLE_LAB_TAG": tag}
        lab = LiveLab(self._lab, self._scenario.server.service, compose, folder.lock_path, variables)
        try:
            self._record(lab, sidecar_image(tag), folder.path)
        except KeyboardInterrupt:
            if (folder.path / WITNESSES).exists():  # all captures are complete: it was the load that failed
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
        with suppress(OSError):  # the disk may still be full: then the manifest still says "killed"
            write_manifest(self._manifest, folder.path)
        return NagleLabError(f"{error}; what was recorded is in {folder.fail()}", error.exit_code)

    def _record(self, lab: LiveLab, sidecar: str, folder: Path) -> None:
        write_manifest(self._manifest, folder)  # it says that the run was killed, until it ends otherwise
        try:
            with self._stage("require"):
                lab.require(f"{self._scenario.name} {self._manifest.variant}", sidecar)
            with self._stage("start", "starting the containers"):
                lab.start()
                for step in self._lab.prepare:
                    lab.prepare(step.service, self._scenario.rendered(step.command, self._values))
            self._announce("starting the captures")
            with self._capturing(lab, folder):
                self._measure(lab, folder)
        except NagleLabError:
            lab.require_services()  # if one has ended, that explains every later failure
            raise
        finally:
            with self._stage("remove", "removing the containers"):
                lab.remove()
        self._manifest.complete, self._manifest.failure = True, None
        write_manifest(self._manifest, folder)

    @contextmanager
    def _capturing(self, lab: LiveLab, folder: Path) -> Iterator[None]:
        """Run the captures within the block; after a failure keep packets that the kernel still holds."""
        try:
            for name in self._lab.captures:
                self._recorders[name] = lab.recorder(name, folder / f"{name}.pcap")
            yield
        except NagleLabError:
            for recorder in self._recorders.values():
                with suppress(NagleLabError):
                    recorder.settle(HANDED_OVER_S)  # the load may continue: no silence is needed
            raise
        finally:
            for recorder in self._recorders.values():
                recorder.abandon()

    def _measure(self, lab: LiveLab, folder: Path) -> None:
        with self._stage("ready"):
            option = self._ready(lab, folder)
            write_manifest(self._manifest, folder)
        before = self._counters()
        timers = next(iter(self._recorders.values()))  # any one will do: all run on the machine of the ends
        timers.watch_lateness()
        with self._tracing(lab, folder) as held_back:
            load = self._load(lab, folder / "load.txt", held_back)
        late = timers.lateness()
        with self._stage("settle", "waiting for the last packets"):
            for recorder in self._recorders.values():
                recorder.settle()
        after = self._counters()
        with self._stage("stop"):
            captures = {name: recorder.stop() for name, recorder in self._recorders.items()}
        # From here on no signal interrupts: all captures are complete, so the run is finished.
        counters = {name: Counters(before[name], after[name]) for name in before}
        write_json(folder / WITNESSES, RecordedWitnesses(captures, counters, load, option, late, self._untraced))
        if load.exit_code != 0:
            last = last_line((folder / "load.txt").read_text(encoding="utf-8"), "no message")
            raise NagleLabError(f"{shlex.split(load.command)[0]} ended with exit code {load.exit_code}: {last}")

    @contextmanager
    def _tracing(self, lab: LiveLab, folder: Path) -> Iterator[Child | None]:
        """Attach strace within the block, if that was asked for; also to the load, if that is the end that holds."""
        traced, load = self._manifest.traced, None
        if not traced:
            yield None
            return
        if traced == self._scenario.load.service == tracer.HOOKED:
            load = lab.held_back(traced, self._command())
        running = lab.tracer(folder, waits_for_load=load is not None)
        try:
            with self._stage("attach", f"attaching strace to the {traced}"):
                running.wait_until_tracing()
            self._manifest.versions.strace = running.version()
            yield load
        except BaseException:
            running.abandon()
            raise
        with self._stage("detach"):
            running.stop()

    def _ready(self, lab: LiveLab, folder: Path) -> OptionRecord | None:
        """Wait until captures run and servers listen; describe the lab, and return the proof of its option."""
        for recorder in self._recorders.values():
            recorder.wait_until_capturing()
        details = lab.details()
        observed = {service: of for service, of in details.items() if service != tracer.SERVICE}
        self._namespaces = captured_namespaces(observed, self._lab.captures)
        server, option = self._scenario.server, self._lab.option
        self._wait_until_listening(lab, server.service, server.port, [server.service])
        for listener in self._lab.ready:
            self._wait_until_listening(lab, listener.service, listener.port)
        version = lab.exec(server.service, server.version)
        configuration = lab.exec(option.service, option.configuration) if option else None
        self._describe(details)
        self._manifest.versions.server = version.finish(_ANSWER_S).last_line().rpartition(": ")[2]
        if not option or not configuration:
            return None
        text, file = configuration.finish(_ANSWER_S).stdout, f"{option.service}.conf"
        (folder / file).write_text(text, encoding="utf-8")
        demanded = self._scenario.rendered(option.line, self._values)
        return OptionRecord(file, demanded, option_in_effect(text, demanded))

    def _wait_until_listening(self, lab: LiveLab, at: str, port: int, services: Sequence[str] | None = None) -> None:
        """Wait for a port in the namespace of the service ``at``; ``services`` may listen, by default all except
        sidecars.
        """
        namespace = captured_namespace(at, self._namespaces.values())
        sidecars = {point.service for point in self._lab.captures.values()}
        services = services or [service for service in namespace.services if service not in sidecars]
        lab.wait_until_listening(services, port, self._recorders[namespace.captures[0]])

    def _describe(self, containers: Mapping[str, Container]) -> None:
        """Put into the manifest what the engine and the sidecars report about the lab."""
        described = {name: recorder.describe() for name, recorder in self._recorders.items()}
        any_of_them = next(iter(described.values()))
        self._manifest.versions.kernel = first_value(any_of_them, "kernel")
        self._manifest.versions.tcpdump = first_value(any_of_them, "tcpdump")
        self._manifest.images = image_records(containers.values(), self._bases)
        for name, namespace in self._namespaces.items():
            lines = described[namespace.captures[0]]
            self._manifest.namespaces[name] = namespace_record(namespace.services, lines)
        for name, point in self._lab.captures.items():
            at = captured_namespace(point.service, self._namespaces.values()).name
            self._manifest.captures[name] = capture_record(point, at, described[name])

    def _counters(self) -> dict[str, dict[str, int]]:
        """The kernel's TCP counters by namespace."""
        recorders = {name: self._recorders[each.captures[0]] for name, each in self._namespaces.items()}
        return {name: parse_counters(recorder.counters()) for name, recorder in recorders.items()}

    def _command(self) -> str:
        """The load's command line."""
        return self._scenario.rendered(self._scenario.load.command, self._values)

    def _load(self, lab: LiveLab, output: Path, started: Child | None) -> LoadRun:
        """Run the load to its end, write its output to ``output``, and return its witness."""
        tool, command = self._scenario.load.tool, self._command()
        with self._stage("load", command):
            child = started or lab.exec(self._scenario.load.service, command)
            received, now = list[int](), time.monotonic()
            last_packet = last_look = now
            while (finished := child.ended_within(_LOAD_POLL_S)) is None:
                for recorder in self._recorders.values():
                    recorder.check()
                now = time.monotonic()
                if now - last_look < _LOOK_S:
                    continue
                last_look, before = now, received
                received = [recorder.numbers().received for recorder in self._recorders.values()]
                if received != before:
                    last_packet = now
                elif now - last_packet > _PATIENCE_S:
                    paused = ", ".join(lab.paused())
                    why = f"paused containers: {paused}" if paused else "it hangs"
                    raise NagleLabError(f"no packet for {_PATIENCE_S:g} s, and {tool} does not end: {why}")
        output.write_text(finished.stdout + finished.stderr, encoding="utf-8")  # errors last
        if finished.exit_code != 0:
            return LoadRun(tool, command, finished.exit_code)
        self._manifest.versions.load, load = PARSERS[tool](command, finished.stdout)
        return load
