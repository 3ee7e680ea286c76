"""A run folder: its content, and the verdict of its captures and witnesses together.

Everything here is a function of the files in the folder: judging a run again gives the same result.
"""

from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from nagle_lab.capture.stored import write_whole
from nagle_lab.diagnosis.analysis import analyze
from nagle_lab.diagnosis.result.json_text import json_text
from nagle_lab.diagnosis.result.part import Part
from nagle_lab.diagnosis.result.reason import stall_text, while_traced
from nagle_lab.diagnosis.result.result import Result, ends_text
from nagle_lab.diagnosis.result.spread import nearest_rank
from nagle_lab.diagnosis.result.verdict import Verdict, exit_code
from nagle_lab.diagnosis.result.writes import Writes
from nagle_lab.errors import Exit
from nagle_lab.runs.checks import (
    Check,
    Traffic,
    is_own,
    kernel_checks,
    load_check,
    lossless_check,
    option_check,
    traffic,
)
from nagle_lab.runs.folder import read_manifest, read_witnesses, require_untouched
from nagle_lab.runs.manifest import MANIFEST, Expected, Manifest
from nagle_lab.runs.noise import Noise, measure_noise, noise_check
from nagle_lab.runs.result import RESULT, SCHEMA, CaptureResult, RunResult
from nagle_lab.runs.under_test import RunCapture, split_by_port
from nagle_lab.runs.witnesses import Untraced, Witnesses


@dataclass(frozen=True)
class Run:
    """One run of the lab, judged."""

    folder: Path
    manifest: Manifest
    witnesses: Witnesses
    captures: dict[str, RunCapture]  # by capture name
    noise: Noise
    checks: list[Check]
    verdict: Verdict
    reason: str
    contradictions: list[str]  # what differs from what the variant expects; empty: as expected
    writes: Writes | None = None  # the two writes of each stall of the capture to show, if the run was traced

    @property
    def expected(self) -> Verdict:
        """The verdict the variant expects."""
        return Verdict(self.manifest.expected.verdict)

    @property
    def results(self) -> dict[str, Result]:
        """What each capture shows, by its name."""
        return {name: capture.result for name, capture in self.captures.items()}

    @property
    def best(self) -> str:
        """The capture that shows the hold most directly: the one nearest to the held end."""
        return best_capture(self.manifest, self.captures)

    def capture(self, name: str) -> Path:
        """The path of the capture file called ``name``."""
        return self.folder / f"{name}.pcap"

    def traffic(self, namespace: str, capture: str) -> Traffic | None:
        """What one capture shows for the addresses of one network namespace; None if it has no packet of them."""
        inside = self.manifest.captures[capture].namespace == namespace
        addresses = self.manifest.namespaces[namespace].addresses
        seen = traffic(self.captures[capture].connections, addresses, inside=inside)
        return seen if seen.segments_sent or seen.packets_received else None

    def exit_code(self) -> Exit:
        """0 as expected, 1 not, 2 INVALID, 3 INCONCLUSIVE."""
        code = exit_code(self.verdict, self.expected)
        return Exit.CONTRADICTED if code is Exit.OK and self.contradictions else code

    def to_json(self) -> str:
        """The run's result.json: one line, the same bytes for the same folder."""
        m = self.manifest
        result = RunResult(
            schema=SCHEMA,
            scenario=m.scenario,
            variant=m.variant,
            lab=m.lab,
            server=m.server,
            parameters=m.parameters,
            expected=m.expected,
            verdict=self.verdict,
            reason=self.reason,
            as_expected=not self.contradictions,
            contradictions=self.contradictions,
            noise=self.noise,
            checks=self.checks,
            load=self.witnesses.load,
            captures={name: CaptureResult.of(capture) for name, capture in self.captures.items()},
            writes=self.writes,
        )
        return json_text(result) + "\n"


def is_run(path: Path) -> bool:
    """Whether that folder is a run of the lab."""
    return (path / MANIFEST).is_file()


def judge_run(folder: Path) -> Run:
    """Analyse every capture of a run folder and compare the witnesses with them.

    Raises NagleLabError if a file is missing, differs from the manifest or is not of the form that nagle-lab writes,
    or if the run never completed.
    """
    folder = folder.resolve()
    manifest = read_manifest(folder)
    require_untouched(folder, manifest)
    witnesses = read_witnesses(folder, manifest)
    expected = manifest.expected
    if manifest.traced:  # strace changes how often it stalls
        expected = replace(expected, min_share_after_first=None)
    captures = {name: split_by_port(_analyzed(folder, manifest, name), expected.port) for name in manifest.captures}
    best = best_capture(manifest, captures)
    noise = measure_noise(witnesses.timers, captures[best])
    checks = _checks(manifest, witnesses, captures, noise)
    verdict, reason = verdict_of(manifest, checks, captures)
    if verdict is Verdict.INCONCLUSIVE and noise.is_late:  # whatever the reason, the machine may be at fault
        reason = f"{reason} ({noise})"
    of_noise = noise_check(noise, captures[best], verdict, expected)
    if of_noise is not None:
        checks.append(of_noise)
        if not of_noise.ok:
            verdict, reason = of_noise.verdict, f"{of_noise.name}: {of_noise.detail}"
    contradicting = contradictions(expected, verdict, captures, best)
    untraced = witnesses.untraced
    if untraced is not None:
        verdict, reason = _after_tracing(verdict, reason, untraced)
        contradicting += [f"without tracing: {each}" for each in untraced.contradictions]
    return Run(folder, manifest, witnesses, captures, noise, checks, verdict, reason, contradicting)


def _after_tracing(verdict: Verdict, reason: str, untraced: Untraced) -> tuple[Verdict, str]:
    """A traced run's verdict: strace does not weaken a proved stall, but may hide one, so it is never CLEAN."""
    if verdict is not Verdict.CLEAN:
        return verdict, while_traced(reason)
    before = f"{untraced.stalled_exchanges:,} of {untraced.exchanges:,} did without tracing ({untraced.run})"
    return Verdict.INCONCLUSIVE, f"{reason}; but {before}: strace slowed what it recorded"


def _analyzed(folder: Path, manifest: Manifest, name: str) -> Result:
    """What a capture shows; its checksum is that of the manifest, against which it was checked."""
    file = f"{name}.pcap"
    result = analyze(folder / file, sha256=False)
    return replace(result, source=replace(result.source, sha256=manifest.files[file].sha256))


def store(run: Run) -> None:
    """Write the result of each capture and of the run beside the captures, each file whole or not at all."""
    for name, result in run.results.items():
        write_whole(run.folder / f"{name}.json", result.to_json().encode())
    write_whole(run.folder / RESULT, run.to_json().encode())


def _checks(
    manifest: Manifest, witnesses: Witnesses, captures: dict[str, RunCapture], noise: Noise
) -> list[Check]:  # fmt: skip
    checks = [load_check(witnesses.load)]
    if witnesses.option:
        checks.append(option_check(witnesses.option))
    checks += [lossless_check(name, witnesses.captures[name]) for name in captures]
    for namespace, about in manifest.namespaces.items():
        inside = [name for name in captures if manifest.captures[name].namespace == namespace]
        connections = [connection for name in inside for connection in captures[name].connections]
        captured = traffic(connections, about.addresses)
        checks += kernel_checks(namespace, witnesses.counters[namespace], captured, busy=noise.delays_programs)
    return checks


def best_capture(manifest: Manifest, captures: dict[str, RunCapture]) -> str:
    """The capture to show: nearest to the end that was held, else the first with connections under test."""
    tested = [name for name, capture in captures.items() if capture.tested]
    stalled = [name for name in tested if captures[name].under_test.stalls]
    stalled = stalled or [name for name, capture in captures.items() if capture.result.stalls]
    for name in stalled:
        held = captures[name].result.stalls.typical().held_by
        if is_own(held.ip, manifest.namespaces[manifest.captures[name].namespace].addresses):
            return name
    return next(iter([*stalled, *tested, *captures]))


def verdict_of(manifest: Manifest, checks: list[Check], captures: dict[str, RunCapture]) -> tuple[Verdict, str]:
    """The verdict on the connections under test, if every witness and capture agrees; or STALL for one elsewhere."""
    tested = _without_unsure(
        {name: _on_tested(capture) for name, capture in captures.items() if capture.tested}, captures
    )
    whole = {name: (of.result.verdict, of.result.reason) for name, of in captures.items()}
    for verdict, verdicts in ((Verdict.INVALID, whole | tested), (Verdict.INCONCLUSIVE, tested)):
        problems = [f"{c.name}: {c.detail}" for c in checks if not c.ok and c.verdict is verdict]
        for name, (of_capture, why) in verdicts.items():
            if of_capture is verdict:
                problems.append(f"{name}.pcap: {why.removeprefix(f'{name}.pcap: ')}")
        if problems:
            return verdict, "; ".join(problems)
    if not tested:
        return Verdict.INCONCLUSIVE, f"no capture holds a connection to port {manifest.expected.port}"
    if len({verdict for verdict, _ in tested.values()}) > 1:
        each = ", ".join(f"{name} {verdict}" for name, (verdict, _) in tested.items())
        return Verdict.INCONCLUSIVE, f"the captures disagree: {each}"
    verdict, reason = tested.get(best_capture(manifest, captures)) or next(iter(tested.values()))
    elsewhere = _elsewhere(captures)
    return (Verdict.STALL, "; ".join([reason, *elsewhere])) if elsewhere else (verdict, reason)


def _without_unsure(
    tested: dict[str, tuple[Verdict, str]], captures: dict[str, RunCapture]
) -> dict[str, tuple[Verdict, str]]:
    """Leave out captures from points where a stall cannot be decided, if another capture decides."""
    sure = {
        name: said for name, said in tested.items()
        if said[0] is not Verdict.INCONCLUSIVE or not captures[name].result.quality.unresolved
    }  # fmt: skip
    return sure if any(verdict.is_conclusive for verdict, _ in sure.values()) else tested


def _on_tested(capture: RunCapture) -> tuple[Verdict, str]:
    """The verdict on the connections under test of a single capture, by the analyzer's rule."""
    part, total = Part(), capture.under_test
    for connection in capture.tested:
        part.add(connection)
    verdict, reason, _ = part.decide(capture.result)
    if reason:
        return verdict, reason
    exchanges = f"{total.stalled_exchanges:,} of {total.exchanges:,} exchanges on port {capture.port}"
    wait_ms = nearest_rank(sorted(stall.wait_ms for stall in capture.tested_stalls()), 50)
    return verdict, stall_text(exchanges, ends_text(total.held_by), ends_text(total.delayed_by), wait_ms)


def _elsewhere(captures: dict[str, RunCapture]) -> list[str]:
    """Stalls on connections that are not under test, where no variant expects one."""
    return [
        f"{name}.pcap: {capture.others.stalls} stalls on connections to port "
        f"{', '.join(map(str, capture.other_ports))}, where none is expected"
        for name, capture in captures.items()
        if capture.others.stalls
    ]


def contradictions(expected: Expected, verdict: Verdict, captures: dict[str, RunCapture], best: str) -> list[str]:
    """How a run differs from what its variant expects; empty: as expected.

    Every capture whose position allows it must name the expected ends. The share is that of the ``best`` capture,
    nearest to the held end: at another one, releases may come late enough to stay unproved.
    """
    elsewhere = _elsewhere(captures)
    if verdict != expected.verdict:
        return [f"expected {expected.verdict}, found {verdict}", *elsewhere]
    if verdict is not Verdict.STALL:
        return elsewhere
    differences = elsewhere
    for name, capture in captures.items():
        is_sure = capture.under_test.stalls or not capture.result.quality.unresolved
        for role in ("held_by", "delayed_by") if capture.tested and is_sure else ():
            wanted, actual = getattr(expected, role), getattr(capture.under_test, role)
            if wanted and actual != wanted:
                differences.append(f"{name}.pcap: expected {role} the {wanted}, found the {actual}")
    total, least = captures[best].under_test, expected.min_share_after_first or 0.0
    if total.stalled_after_first < least:
        differences.append(
            f"{best}.pcap: expected at least {least:.0%} of the exchanges after a connection's first to stall, "
            f"found {total.stalled_after_first:.1%} ({total.stalled_exchanges} of {total.repeat_exchanges})"
        )
    return differences


def services(run: Run) -> dict[str, str]:
    """The service at each end of a typical stall, by role, if the run says so and the name is not just the role's."""
    m, stall = run.manifest, run.results[run.best].stalls.typical()
    sidecars = {capture.service for capture in m.captures.values()}
    here = m.captures[run.best].namespace
    by_role: dict[str, str] = {}
    for end in (stall.held_by, stall.delayed_by):
        homes = [of for name, of in m.namespaces.items() if is_own(end.ip, of.addresses, inside=name == here)]
        names = {service for of in homes for service in of.services} - sidecars
        is_server = end.role == "server" and end.port == m.server.port
        names = {m.server.service} if is_server else names - {m.server.service}
        if len(names) == 1 and names != {end.role}:
            by_role[end.role] = names.pop()
    return by_role
