"""A run folder: what is in it, and what its captures and witnesses together amount to.

Everything here is a function of the files in the folder: judging a run again gives the same result.
"""

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from nagle_lab.analysis import analyze
from nagle_lab.errors import Exit, NagleLabError
from nagle_lab.findings import ROLES
from nagle_lab.result import Result
from nagle_lab.verdict import Verdict, exit_code

SCHEMA = "nagle-lab-run/1"
MANIFEST, WITNESSES, RESULT = "manifest.json", "witnesses.json", "result.json"
ENDS = ROLES  # in the lab the client is the client's container, the server the server's

# Delayed ACKs in a capture and in the kernel's counter agree when they differ by no more than this count or share:
# a timer may fire while the counters are read, or together with data (equal within 1 in almost every run). The kernel
# also counts ACKs of bare FINs that its timer sent, but did not delay (stalls.late_fin_acks).
DELAYED_ACKS_APART = 2
DELAYED_ACKS_SHARE = 0.02


@dataclass(frozen=True)
class Check:
    """One witness held against the captures; ``verdict`` is what the run becomes when it fails."""

    name: str
    ok: bool
    detail: str
    verdict: Verdict


@dataclass(frozen=True)
class Run:
    """One run of the lab, judged."""

    folder: Path
    manifest: dict[str, Any]
    witnesses: dict[str, Any]
    results: dict[str, Result]  # by end: "client", "server"
    checks: list[Check]
    verdict: Verdict
    reason: str
    contradictions: list[str]  # what differs from what the variant expects; empty: as expected

    @property
    def expected(self) -> Verdict:
        """The verdict the variant expects."""
        return Verdict(self.manifest["expected"]["verdict"])

    @property
    def best(self) -> str:
        """The end whose capture shows the hold most directly: the held one."""
        return str(self.manifest["expected"].get("held_by") or self.results["server"].summary.held_by or "server")

    def capture(self, end: str) -> Path:
        """The capture taken at that end."""
        return self.folder / f"{end}.pcap"

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
            "parameters": m["parameters"],
            "expected": m["expected"],
            "verdict": self.verdict,
            "reason": self.reason,
            "as_expected": not self.contradictions,
            "contradictions": self.contradictions,
            "checks": [asdict(c) for c in self.checks],
            "load": self.witnesses["load"],
            "captures": {end: _brief(result) for end, result in self.results.items()},
        }
        return json.dumps(whole, ensure_ascii=False, separators=(",", ":"), allow_nan=False) + "\n"


def is_run(path: Path) -> bool:
    """Whether that folder is a run of the lab."""
    return (path / MANIFEST).is_file()


def judge(folder: Path) -> Run:
    """Analyse both captures of a run folder and hold the witnesses against them.

    Raises
    ------
    NagleLabError
        A file is missing, is not what the manifest says it is, or the run never completed.
    """
    folder = folder.resolve()
    manifest = _read(folder, MANIFEST)
    if not manifest.get("complete"):
        why = manifest.get("failure") or "it was cut off"
        raise NagleLabError(
            f"{folder.name}: this run did not complete ({why}); analyse its .pcap files one by one, or run it again"
        )
    _require_untouched(folder, manifest)
    witnesses = _read(folder, WITNESSES)
    results = {end: analyze(folder / f"{end}.pcap") for end in ENDS}
    checks = _checks(witnesses, results)
    verdict, reason = _verdict(checks, results)
    return Run(
        folder,
        manifest,
        witnesses,
        results,
        checks,
        verdict,
        reason,
        _contradictions(manifest, verdict, results),
    )


def store(run: Run) -> None:
    """Write the result of each capture and of the run beside the captures, each file whole or not at all."""
    texts = {f"{end}.json": result.to_json() for end, result in run.results.items()}
    for name, text in {**texts, RESULT: run.to_json()}.items():
        part = run.folder / f".{name}.part"
        part.write_text(text, encoding="utf-8")
        part.replace(run.folder / name)


def _read(folder: Path, name: str) -> dict[str, Any]:
    try:
        content = json.loads((folder / name).read_text(encoding="utf-8"))
    except (OSError, ValueError) as e:
        raise NagleLabError(
            f"{folder / name}: cannot be read ({e}); this run folder is incomplete, run it again"
        ) from e
    if not isinstance(content, dict):
        raise NagleLabError(f"{folder / name}: not what nagle-lab wrote; run it again")
    return content


def _require_untouched(folder: Path, manifest: dict[str, Any]) -> None:
    for name, about in manifest["files"].items():
        try:
            digest = hashlib.sha256((folder / name).read_bytes()).hexdigest()
        except OSError as e:
            raise NagleLabError(f"{folder / name}: {e.strerror}; this run folder is incomplete, run it again") from e
        if digest != about["sha256"]:
            raise NagleLabError(f"{folder / name}: changed since it was recorded (checksum differs); run it again")


def _checks(witnesses: dict[str, Any], results: dict[str, Result]) -> list[Check]:
    checks = [_load(witnesses["load"]), _option(witnesses["option"])]
    for end in ENDS:
        checks.append(_lossless(end, witnesses["captures"][end]))
        counters = witnesses["counters"][end]
        checks.append(_segments(end, counters, results[end]))
        checks.append(delayed_acks_check(end, counters, results[end]))
    return checks


def _load(load: dict[str, Any]) -> Check:
    ok = (
        load["exit_code"] == 0 and load["complete"] == load["requests"] and not load["failed"] and not load["non_2xx"]
    )
    detail = f"{load['complete']} of {load['requests']} requests complete, {load['failed']} failed"
    return Check("load", ok, detail, Verdict.INVALID)


def _option(option: dict[str, Any]) -> Check:
    where = "in effect" if option["in_effect"] else "not found"
    return Check(
        "option",
        bool(option["in_effect"]),
        f"'{option['demanded']}' {where} in {option['file']}",
        Verdict.INVALID,
    )


def _lossless(end: str, c: dict[str, int]) -> Check:
    dropped = c["dropped"] + c["dropped_by_interface"]
    detail = f"{c['captured']} packets captured, {c['received']} received, {dropped} dropped"
    return Check(f"lossless at the {end}", c["captured"] == c["received"] and not dropped, detail, Verdict.INVALID)


def grown(counters: dict[str, dict[str, int]], name: str) -> int:
    """How much a kernel counter grew over the load."""
    return counters["after"][name] - counters["before"][name]


def segments_sent(counters: dict[str, dict[str, int]]) -> int:
    """Segments an end's kernel sent; OutSegs leaves out retransmissions (RFC 4022)."""
    return grown(counters, "Tcp.OutSegs") + grown(counters, "Tcp.RetransSegs")


def _segments(end: str, counters: dict[str, dict[str, int]], result: Result) -> Check:
    sent = result.summary.segments_by.get(end, 0)
    received = sum(n for sender, n in result.summary.packets_by.items() if sender != end)
    out, into = segments_sent(counters), grown(counters, "Tcp.InSegs")
    detail = f"{sent} sent and {received} received in the capture, {out} and {into} in the kernel"
    return Check(f"segments at the {end}", (sent, received) == (out, into), detail, Verdict.INVALID)


def delayed_acks_check(end: str, counters: dict[str, dict[str, int]], result: Result) -> Check:
    """Delayed ACKs that an end's capture shows, held against its kernel's counter."""
    seen = result.summary.delayed_acks_by.get(end, 0)
    undelayed = result.summary.fin_acks_by_timer.get(end, 0)
    kernel = grown(counters, "TcpExt.DelayedACKs")
    apart = max(DELAYED_ACKS_APART, DELAYED_ACKS_SHARE * kernel)
    ok = seen - apart <= kernel <= seen + undelayed + apart
    fins = f" and {undelayed} of a FIN sent by the timer at once" if undelayed else ""
    detail = f"{seen} in the capture{fins}, {kernel} in the kernel"
    return Check(f"delayed ACKs of the {end}", ok, detail, Verdict.INCONCLUSIVE)


def _verdict(checks: list[Check], results: dict[str, Result]) -> tuple[Verdict, str]:
    for verdict in (Verdict.INVALID, Verdict.INCONCLUSIVE):
        failed = [f"{c.name}: {c.detail}" for c in checks if not c.ok and c.verdict is verdict]
        failed += [f"{end}.pcap: {r.reason}" for end, r in results.items() if r.verdict == verdict]
        if failed:
            return verdict, "; ".join(failed)
    server, client = results["server"], results["client"]
    if server.verdict != client.verdict:
        return (
            Verdict.INCONCLUSIVE,
            f"the captures disagree: server {server.verdict}, client {client.verdict}",
        )
    return Verdict(server.verdict), server.reason


def _contradictions(manifest: dict[str, Any], verdict: Verdict, results: dict[str, Result]) -> list[str]:
    expected = manifest["expected"]
    if verdict != expected["verdict"]:
        return [f"expected {expected['verdict']}, found {verdict}"]
    if verdict is not Verdict.STALL:
        return []
    found = []
    for end, result in results.items():
        s = result.summary
        found += [
            f"{end}.pcap: expected {role} the {expected[role]}, found the {getattr(s, role)}"
            for role in ("held_by", "delayed_by")
            if expected.get(role) and getattr(s, role) != expected[role]
        ]
        share = s.stalled_exchanges / s.repeat_exchanges if s.repeat_exchanges else 0.0
        wanted = expected.get("min_share_after_first", 0.0)
        if share < wanted:
            found.append(
                f"{end}.pcap: expected at least {wanted:.0%} of the exchanges after a connection's first to stall, "
                f"found {share:.1%} ({s.stalled_exchanges} of {s.repeat_exchanges})"
            )
    return found


def _brief(result: Result) -> dict[str, Any]:
    return {
        "source": asdict(result.source),
        "quality": asdict(result.quality),
        "verdict": result.verdict,
        "reason": result.reason,
        "summary": asdict(result.summary),
    }
