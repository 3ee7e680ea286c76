"""nagle-lab bisect, but for the installing: which releases there are, and where the verdict changes."""

import json
import signal
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
from rich.console import Console

from nagle_lab.diagnosis.analysis import analyze
from nagle_lab.diagnosis.result.verdict import Verdict
from nagle_lab.errors import Exit, NagleLabError
from nagle_lab.experiments.software import installs, releases
from nagle_lab.experiments.software.guarded import BothSides, JudgedCommand, Protection
from nagle_lab.experiments.software.releases import ReleaseSpan, TriedRelease, code_of, flips, span
from nagle_lab.guard.recording.job import Outcome
from nagle_lab.guard.recording.run_command import Guarded
from nagle_lab.reports.experiments.releases import show_releases
from support.repository import REFERENCE

KNOWN = ["0.9", "0.10", "0.11", "0.12", "1.0"]


@pytest.fixture(autouse=True)
def registry(monkeypatch):
    monkeypatch.setattr(releases, "releases", lambda ecosystem, name: KNOWN)


def test_a_span_is_in_the_order_of_the_releases():
    assert span("pypi:x", "0.9..0.11").versions == ["0.9", "0.10", "0.11"]
    assert span("npm:@scope/x", "1.0..1.0").versions == ["1.0"]


def test_zeros_at_the_end_of_a_version_do_not_matter():
    assert span("pypi:x", "0.12.0..1").versions == ["0.12", "1.0"]


@pytest.mark.parametrize(
    ("package", "between", "says"),
    [
        ("x", "0.9..1.0", "name a package as pypi:NAME or npm:NAME"),
        ("gem:x", "0.9..1.0", "name a package as pypi:NAME or npm:NAME"),
        ("pypi:x", "0.9", "name the first and the last release"),
        ("pypi:x", "0.9..2.0", "no release 2.0 for this machine; its newest are 0.9, 0.10, 0.11, 0.12, 1.0"),
        ("pypi:x", "1.0..0.9", "1.0 is newer than 0.9"),
    ],
)
def test_a_span_that_is_none(package, between, says):
    with pytest.raises(NagleLabError, match=says):
        span(package, between)


def test_what_a_tool_says_is_told_by_its_name(monkeypatch):
    failed = SimpleNamespace(returncode=1, stderr="ERROR: No matching distribution found for x\n", stdout="")
    monkeypatch.setattr(installs.subprocess, "run", lambda *_, **__: failed)
    with pytest.raises(NagleLabError, match=r"^pip: No matching distribution found for x \(check the name and the"):
        installs.releases("pypi", "x")


def tried(*verdicts: str) -> list[TriedRelease]:
    runs = {"STALL": "nginx-static-nodelay-off", "CLEAN": "nginx-static-nodelay-on"}
    results = {verdict: analyze(REFERENCE / run / "server.pcap") for verdict, run in runs.items()}
    made = []
    for number, verdict in enumerate(verdicts):
        if verdict == "failed":
            made.append(TriedRelease(str(number), results["STALL"], "the command ended with 1"))
        elif verdict == "absent":
            made.append(TriedRelease(str(number), None, "cannot be installed"))
        else:
            result = results.get(verdict) or msgspec.structs.replace(results["CLEAN"], verdict=Verdict(verdict))
            made.append(TriedRelease(str(number), result))
    return made


@pytest.mark.parametrize(
    ("verdicts", "changes", "code"),
    [
        (["STALL", "CLEAN", "STALL", "STALL", "CLEAN"], ["1", "2", "4"], Exit.OK),
        (["CLEAN", "CLEAN"], [], Exit.OK),
        (["CLEAN", "failed", "STALL"], ["2"], Exit.INCONCLUSIVE),
        (["STALL", "INCONCLUSIVE", "CLEAN"], ["1"], Exit.INCONCLUSIVE),
        (["STALL", "absent", "INVALID", "STALL"], [], Exit.INCONCLUSIVE),
        (["INCONCLUSIVE", "failed"], [], Exit.INCONCLUSIVE),
        (["absent", "failed", "INVALID"], [], Exit.UNUSABLE),
    ],
)
def test_where_the_verdict_changes(verdicts, changes, code):
    ones = tried(*verdicts)
    assert [after.version for _, after in flips(ones)] == changes
    assert code_of(ones) == code


@pytest.mark.parametrize(
    ("verdicts", "says"),
    [
        (["CLEAN", "CLEAN"], "The verdict is the same in all of them.\n"),
        (["CLEAN", "failed"], "The verdict is the same in all of them that could be tried.\n"),
        (["CLEAN", "INCONCLUSIVE"], "No change between STALL and CLEAN was seen, but not all of them are decided.\n"),
        (["absent"], "None of them could be tried.\n"),
    ],
)
def test_what_is_said_if_nothing_changes(capsys, verdicts, says):
    ones = tried(*verdicts)
    show_releases(ReleaseSpan("pypi", "x", [one.version for one in ones]), ones, Console(width=100))
    assert capsys.readouterr().out.endswith(says)


def test_the_screen_and_the_json(monkeypatch, run, tmp_path):
    ones = dict(zip(KNOWN, tried("STALL", "CLEAN", "absent", "STALL", "STALL"), strict=True))
    made = (TriedRelease(version, one.result, one.problem) for version, one in ones.items())
    monkeypatch.setattr("nagle_lab.cli.software.bisect.try_each", lambda *_, **__: made)
    out_file = tmp_path / "out.json"
    code, out, _ = run("bisect", "--json", out_file, "pypi:x", "0.9..1.0", "--", "python", "-c", "pass")
    assert code == 3
    assert "0.10: STALL → CLEAN, after 0.9\n" in out
    assert "0.12: CLEAN → STALL, after 0.10 (the releases between are undecided)" in out
    said = json.loads(out_file.read_text())
    assert said["command"] == ["python", "-c", "pass"]
    assert [change["version"] for change in said["changes"]] == ["0.10", "0.12"]


@pytest.mark.parametrize("comes", ["first", "without TCP_NODELAY"])
def test_a_signal_to_the_program_ends_the_bisection(monkeypatch, run, comes):
    """It goes to the program that is tried, whose exit code tells of it; what was tried before is shown."""
    (result,) = (one.result for one in tried("STALL"))
    ended, interrupted = (
        Guarded(Path(), "a namespace", outcome)
        for outcome in (
            Outcome(status=128 + signal.SIGTERM),
            Outcome(status=0, interrupted=True),
        )  # the first by itself
    )
    runs = [JudgedCommand(ended, result), JudgedCommand(interrupted, result)]
    if comes != "first":
        runs[1] = JudgedCommand(ended, result, both_sides=BothSides(interrupted, result, Protection.UNKNOWN, ""))
    guarded = iter(runs)
    monkeypatch.setattr(releases, "install_release", lambda *_: SimpleNamespace(environment={}))
    monkeypatch.setattr(releases, "guard", lambda *_, **__: next(guarded))
    code, out, err = run("bisect", "pypi:x", "0.9..1.0", "--", "true")
    assert code == 130 and err.splitlines()[-1] == "nagle-lab: interrupted"
    assert [line.split()[0] for line in out.splitlines() if line[:1].isdigit()] == ["0.9"]


def test_what_cannot_be_recorded_costs_itself(monkeypatch, run):
    """A disk that was full for a moment."""
    result = tried("STALL")[0].result
    outcomes = [NagleLabError("no space left on device"), *[Outcome(status=0)] * (len(KNOWN) - 1)]

    def guarded(*_: object, **__: object) -> JudgedCommand:
        if isinstance(outcome := outcomes.pop(0), NagleLabError):
            raise outcome
        return JudgedCommand(Guarded(Path(), "a namespace", outcome), result)

    monkeypatch.setattr(releases, "install_release", lambda *_: SimpleNamespace(environment={}))
    monkeypatch.setattr(releases, "guard", guarded)
    code, out, _ = run("bisect", "pypi:x", "0.9..1.0", "--", "true")
    assert code == 3 and "no space left on device" in out and not outcomes


def test_which_signal_ended_a_command():
    assert Outcome(status=128 + signal.SIGSEGV).signal == signal.SIGSEGV
    assert Outcome(status=1).signal is None and Outcome().signal is None


def test_bisect_with_no_command_is_one_line(run):
    code, _, err = run("bisect", "pypi:x", "0.9..1.0")
    assert code == 2 and err.startswith("nagle-lab: bisect needs a command: ")


def test_an_option_behind_the_releases_is_one_line(run):
    """Else it would be the command, of each release once more."""
    code, _, err = run("bisect", "pypi:x", "0.9..1.0", "--json", "out.json", "--", "true")
    assert code == 2 and err.startswith("nagle-lab: bisect takes --json for the command: options go before")
