"""A run folder: what is in it, and what its captures and witnesses together amount to.

Everything here is a function of the files in the folder: judging a run again gives the same result.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from nagle_lab.diagnosis.analysis import analyze
from nagle_lab.diagnosis.result import Result, json_text
from nagle_lab.diagnosis.verdict import Verdict, decide, exit_code
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
from nagle_lab.runs.folder import FIRST, MANIFEST, read_manifest, read_witnesses, require_untouched
from nagle_lab.runs.judged import Seen, Share, part
from nagle_lab.runs.noise import Noise, measured
from nagle_lab.runs.noise import check as noise_check

SCHEMA = "nagle-lab-run/2"
RESULT = "result.json"


@dataclass(frozen=True)
class Run:
    """One run of the lab, judged."""

    folder: Path
    manifest: dict[str, Any]
    witnesses: dict[str, Any]
    captures: dict[str, Seen]  # by capture name
    noise: Noise
    checks: list[Check]
    verdict: Verdict
    reason: str
    contradictions: list[str]  # what differs from what the variant expects; empty: as expected

    @property
    def expected(self) -> Verdict:
        """The verdict the variant expects."""
        return Verdict(self.manifest["expected"]["verdict"])

    @property
    def results(self) -> dict[str, Result]:
        """What each capture shows, by its name."""
        return {name: seen.result for name, seen in self.captures.items()}

    @property
    def best(self) -> str:
        """The capture that shows the hold most directly: the one nearest to the held end."""
        return best_capture(self.manifest, self.captures)

    def capture(self, name: str) -> Path:
        """The file of that capture."""
        return self.folder / f"{name}.pcap"

    def traffic(self, namespace: str, capture: str) -> Traffic:
        """What one capture shows of the addresses of one network namespace."""
        inside = self.manifest["captures"][capture]["namespace"] == namespace
        addresses = self.manifest["namespaces"][namespace]["addresses"]
        return traffic(self.captures[capture].connections, addresses, inside=inside)

    def exit_code(self) -> Exit:
        """0 as expected, 1 not, 2 INVALID, 3 INCONCLUSIVE."""
        code = exit_code(self.verdict, self.expected)
        return Exit.CONTRADICTED if code is Exit.OK and self.contradictions else code

    def to_json(self) -> str:
        """The run's result.json: one line, the same bytes for the same folder."""
        m = self.manifest
        whole = {
            "schema": SCHEMA,
            "scenario": m["scenario"],
            "variant": m["variant"],
            "lab": m["lab"],
            "server": m["server"],
            "parameters": m["parameters"],
            "expected": m["expected"],
            "verdict": self.verdict,
            "reason": self.reason,
            "as_expected": not self.contradictions,
            "contradictions": self.contradictions,
            "noise": asdict(self.noise),
            "checks": [asdict(c) for c in self.checks],
            "load": self.witnesses["load"],
            "captures": {name: _brief(seen) for name, seen in self.captures.items()},
        }
        return json_text(whole) + "\n"


def is_run(path: Path) -> bool:
    """Whether that folder is a run of the lab."""
    return (path / MANIFEST).is_file()


def judge(folder: Path) -> Run:
    """Analyse every capture of a run folder and hold the witnesses against them.

    Raises
    ------
    NagleLabError
        A file is missing, is not what the manifest says it is or not of the form nagle-lab writes, or the run never
        completed.
    """
    folder = folder.resolve()
    manifest = _modern(read_manifest(folder))
    require_untouched(folder, manifest, manifest["captures"])
    witnesses = read_witnesses(folder, manifest)
    port = manifest["expected"]["port"]
    captures = {name: part(analyze(folder / f"{name}.pcap"), port) for name in manifest["captures"]}
    checks = _checks(manifest, witnesses, captures)
    verdict, reason = verdict_of(manifest, checks, captures)
    best = best_capture(manifest, captures)
    noise = measured(witnesses, folder / f"{best}.pcap", captures[best])
    if verdict is Verdict.INCONCLUSIVE and noise.is_late:  # whatever the reason, the machine may be at fault
        reason = f"{reason} ({noise})"
    if (checked := noise_check(noise, captures[best], verdict, manifest["expected"])) is not None:
        checks.append(checked)
        if not checked.ok:
            verdict, reason = checked.verdict, f"{checked.name}: {checked.detail}"
    unlike = contradictions(manifest["expected"], verdict, captures, best)
    return Run(folder, manifest, witnesses, captures, noise, checks, verdict, reason, unlike)


def store(run: Run) -> None:
    """Write the result of each capture and of the run beside the captures, each file whole or not at all."""
    texts = {f"{name}.json": result.to_json() for name, result in run.results.items()}
    for name, text in {**texts, RESULT: run.to_json()}.items():
        unfinished = run.folder / f".{name}.part"
        unfinished.write_text(text, encoding="utf-8")
        unfinished.replace(run.folder / name)


def _modern(manifest: dict[str, Any]) -> dict[str, Any]:
    """A manifest as it is written now; the first kind knew two ends, and judged every connection between them."""
    if manifest["schema"] != FIRST:
        return manifest
    ends = manifest["ends"]
    about = ("congestion_control", "sysctls")
    return {
        **manifest,
        "lab": "bridge",
        "server": {"service": "server", "port": None},
        "expected": {**manifest["expected"], "port": None},
        "captures": {end: {"service": f"{end}-capture", "namespace": end, "mtu": ends[end]["mtu"]} for end in ends},
        "namespaces": {
            end: {"services": [end], "addresses": [of["ip"]], **{key: of[key] for key in about}}
            for end, of in ends.items()
        },
    }


def _checks(manifest: dict[str, Any], witnesses: dict[str, Any], captures: dict[str, Seen]) -> list[Check]:
    checks = [load_check(witnesses["load"])]
    if witnesses["option"] is not None:
        checks.append(option_check(witnesses["option"]))
    checks += [lossless_check(name, witnesses["captures"][name]) for name in captures]
    for namespace, about in manifest["namespaces"].items():
        inside = [name for name in captures if manifest["captures"][name]["namespace"] == namespace]
        connections = [connection for name in inside for connection in captures[name].connections]
        seen = traffic(connections, about["addresses"])
        checks += kernel_checks(namespace, witnesses["counters"][namespace], seen)
    return checks


def best_capture(manifest: dict[str, Any], captures: dict[str, Seen]) -> str:
    """The capture to show: nearest to the end that was held, else the first that holds judged connections."""
    judged = [name for name, seen in captures.items() if seen.judged.connections]
    stalled = [name for name in judged if captures[name].judged.stalls]
    stalled = stalled or [name for name, seen in captures.items() if seen.result.stalls]
    for name in stalled:
        held = captures[name].result.stalls.typical().held_by
        if is_own(held.ip, manifest["namespaces"][manifest["captures"][name]["namespace"]]["addresses"]):
            return name
    return next(iter([*stalled, *judged, *captures]))


def verdict_of(manifest: dict[str, Any], checks: list[Check], captures: dict[str, Seen]) -> tuple[Verdict, str]:
    """The verdict on the judged connections, if every witness and capture agrees; or STALL for one elsewhere."""
    judged = {name: _on_judged(seen) for name, seen in captures.items() if seen.judged.connections}
    whole = {name: (Verdict(seen.result.verdict), seen.result.reason) for name, seen in captures.items()}
    for verdict, spoken in ((Verdict.INVALID, whole | judged), (Verdict.INCONCLUSIVE, judged)):
        problems = [f"{c.name}: {c.detail}" for c in checks if not c.ok and c.verdict is verdict]
        problems += [_of_file(name, why) for name, (said, why) in spoken.items() if said is verdict]
        if problems:
            return verdict, "; ".join(problems)
    if not judged:
        return Verdict.INCONCLUSIVE, f"no capture holds a connection to port {manifest['expected']['port']}"
    if len({verdict for verdict, _ in judged.values()}) > 1:
        said = ", ".join(f"{name} {verdict}" for name, (verdict, _) in judged.items())
        return Verdict.INCONCLUSIVE, f"the captures disagree: {said}"
    best = best_capture(manifest, captures)
    verdict, reason = judged.get(best) or next(iter(judged.values()))
    elsewhere = _elsewhere(captures)
    if not elsewhere:
        return verdict, reason
    return Verdict.STALL, "; ".join([reason, *elsewhere])


def _of_file(capture: str, why: str) -> str:
    """The reason, with the file's name before it once."""
    file = f"{capture}.pcap: "
    return file + why.removeprefix(file)


def _on_judged(seen: Seen) -> tuple[Verdict, str]:
    """The analyzer's rule, applied to the judged connections of a capture alone."""
    result, mine = seen.result, seen.judged
    if not seen.elsewhere.connections or result.verdict is Verdict.INVALID:
        return Verdict(result.verdict), result.reason
    verdict, reason = decide(result.source.tcp_packets, mine.exchanges, mine.stalls, result.quality.damage)
    if verdict is not Verdict.STALL:
        return verdict, reason
    held, delayed = ("both ends" if role == "both" else f"the {role}" for role in (mine.held_by, mine.delayed_by))
    wait = None if seen.elsewhere.stalls else result.summary.wait_ms
    return verdict, (
        f"{mine.stalled_exchanges} of {mine.exchanges} exchanges on port {seen.port} waited for a delayed ACK: "
        f"{held} held a small segment until {delayed} acknowledged the one before it"
        + (f", {wait.p50:.1f} ms later (median)" if wait else "")
    )


def _elsewhere(captures: dict[str, Seen]) -> list[str]:
    """What stalls on connections that are not judged: nobody expects any there."""
    return [
        f"{name}.pcap: {seen.elsewhere.stalls} stalls on connections to port "
        f"{', '.join(map(str, seen.ports_elsewhere))}, where none is expected"
        for name, seen in captures.items()
        if seen.elsewhere.stalls
    ]


def contradictions(expected: dict[str, Any], verdict: Verdict, captures: dict[str, Seen], best: str) -> list[str]:
    """How a run differs from what its variant expects; empty: as expected.

    Every capture must name the ends expected; the share is that of the ``best`` one, nearest to the held end: on the
    way to another, releases may be late enough to be left unproved.
    """
    found = _elsewhere(captures)
    if verdict != expected["verdict"]:
        return [f"expected {expected['verdict']}, found {verdict}", *found]
    if verdict is not Verdict.STALL:
        return found
    for name, seen in captures.items():
        if seen.judged.connections:
            found += [f"{name}.pcap: {why}" for why in _other_ends(expected, seen.judged)]
    return found + [f"{best}.pcap: {why}" for why in _too_few(expected, captures[best].judged)]


def _other_ends(expected: dict[str, Any], found: Share) -> Iterator[str]:
    """Which ends of the judged connections are not those that a stalling variant expects."""
    for role in ("held_by", "delayed_by"):
        if expected.get(role) and getattr(found, role) != expected[role]:
            yield f"expected {role} the {expected[role]}, found the {getattr(found, role)}"


def _too_few(expected: dict[str, Any], found: Share) -> Iterator[str]:
    """Whether fewer of the judged connections' exchanges stalled than a stalling variant expects."""
    wanted = expected.get("min_share_after_first") or 0.0
    if found.stalled_after_first < wanted:
        yield (
            f"expected at least {wanted:.0%} of the exchanges after a connection's first to stall, "
            f"found {found.stalled_after_first:.1%} ({found.stalled_exchanges} of {found.repeat_exchanges})"
        )


def _brief(seen: Seen) -> dict[str, Any]:
    result = seen.result
    return {
        "source": asdict(result.source),
        "quality": asdict(result.quality),
        "verdict": result.verdict,
        "reason": result.reason,
        "summary": asdict(result.summary),
        "judged": asdict(seen.judged),
        "elsewhere": asdict(seen.elsewhere),
    }
