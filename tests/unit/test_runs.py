"""What a run amounts to when a witness disagrees, a file is missing, or the expectation is not met."""

import hashlib
import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from nagle_lab.analysis import analyze
from nagle_lab.errors import Exit, NagleLabError
from nagle_lab.runs import delayed_acks_check, judge, store
from nagle_lab.verdict import Verdict

REFERENCE = Path(__file__).parents[2] / "captures" / "reference"


@pytest.fixture
def stalled(tmp_path):
    return Path(shutil.copytree(REFERENCE / "nginx-static-nodelay-off", tmp_path / "run"))


def change(run: Path, name: str, edit) -> None:
    """Edit one JSON file of the run, and keep the manifest's checksum of it right."""
    content = json.loads((run / name).read_text())
    edit(content)
    (run / name).write_text(json.dumps(content))
    if name != "manifest.json":
        digest = hashlib.sha256((run / name).read_bytes()).hexdigest()
        change(run, "manifest.json", lambda m: m["files"][name].update(sha256=digest))


def test_all_is_well_with_the_reference(stalled):
    run = judge(stalled)
    assert (run.verdict, run.exit_code()) == (Verdict.STALL, Exit.OK)


def test_storing_writes_what_analysis_gives(stalled):
    for name in ("server.json", "client.json", "result.json"):
        (stalled / name).unlink()
    store(judge(stalled))
    for name in ("server.json", "client.json", "result.json"):
        assert (stalled / name).read_bytes() == (REFERENCE / "nginx-static-nodelay-off" / name).read_bytes()
    assert not list(stalled.glob(".*"))


@pytest.mark.parametrize(
    ("edit", "verdict", "reason"),
    [
        (lambda w: w["captures"]["client"].update(received=9999), Verdict.INVALID, "lossless at the client"),
        (lambda w: w["captures"]["server"].update(dropped=1), Verdict.INVALID, "1 dropped"),
        (
            lambda w: w["counters"]["server"]["after"].update({"Tcp.InSegs": 7}),
            Verdict.INVALID,
            "segments at the server",
        ),
        (lambda w: w["option"].update(in_effect=False), Verdict.INVALID, "not found in server.conf"),
        (lambda w: w["load"].update(failed=3), Verdict.INVALID, "3 failed"),
        (lambda w: w["load"].update(complete=0), Verdict.INVALID, "0 of 100 requests complete"),
        (
            lambda w: w["counters"]["client"]["after"].update({"TcpExt.DelayedACKs": 50}),
            Verdict.INCONCLUSIVE,
            "96 in the capture, 50 in the kernel",
        ),
    ],
    ids=["lost", "dropped", "segments", "option", "failed requests", "no requests", "delayed ACKs"],
)
def test_a_witness_that_disagrees_is_never_hidden(stalled, edit, verdict, reason):
    change(stalled, "witnesses.json", edit)
    run = judge(stalled)
    assert run.verdict is verdict
    assert reason in run.reason
    assert run.exit_code() is (Exit.UNUSABLE if verdict is Verdict.INVALID else Exit.INCONCLUSIVE)


def test_a_verdict_against_the_expectation_is_exit_1(stalled):
    change(stalled, "manifest.json", lambda m: m["expected"].update(verdict="CLEAN"))
    run = judge(stalled)
    assert run.exit_code() is Exit.CONTRADICTED
    assert run.contradictions == ["expected CLEAN, found STALL"]


def test_the_wrong_end_held_is_a_contradiction(stalled):
    change(stalled, "manifest.json", lambda m: m["expected"].update(held_by="client"))
    run = judge(stalled)
    assert run.exit_code() is Exit.CONTRADICTED
    assert "expected held_by the client, found the server" in run.contradictions[0]


def test_too_small_a_share_is_a_contradiction(stalled):
    change(stalled, "manifest.json", lambda m: m["expected"].update(min_share_after_first=1.01))
    run = judge(stalled)
    assert run.exit_code() is Exit.CONTRADICTED
    assert "found 100.0% (96 of 96)" in run.contradictions[0]


@pytest.mark.parametrize("name", ["server.pcap", "load.txt", "witnesses.json"])
def test_a_file_that_changed_is_refused(stalled, name):
    with (stalled / name).open("ab") as file:
        file.write(b" ")
    with pytest.raises(NagleLabError, match=rf"{name}: changed since it was recorded"):
        judge(stalled)


@pytest.mark.parametrize("name", ["client.pcap", "witnesses.json", "manifest.json"])
def test_a_missing_file_is_named(stalled, name):
    (stalled / name).unlink()
    with pytest.raises(NagleLabError, match=name):
        judge(stalled)


def test_a_run_that_was_cut_off_is_refused_with_its_reason(stalled):
    change(stalled, "manifest.json", lambda m: m.update(complete=False, failure="disk full"))
    with pytest.raises(NagleLabError, match="did not complete \\(disk full\\)"):
        judge(stalled)


@pytest.mark.parametrize("content", ["", "{", "[]", '"text"'])
def test_a_damaged_manifest_is_one_line_not_a_traceback(stalled, content):
    (stalled / "manifest.json").write_text(content)
    with pytest.raises(NagleLabError, match=r"manifest\.json"):
        judge(stalled)


@pytest.mark.parametrize(("kernel", "ok"), [(97, False), (98, True), (100, True), (131, True), (135, False)])
def test_how_far_delayed_acks_may_be_apart(kernel, ok):
    """100 seen late and 31 ACKs of FINs that the timer sent: the kernel may count any of the latter."""
    result = analyze(REFERENCE / "nginx-static-nodelay-off" / "client.pcap")
    summary = replace(result.summary, delayed_acks_by={"client": 100}, fin_acks_by_timer={"client": 31})
    counters = {"before": {"TcpExt.DelayedACKs": 5}, "after": {"TcpExt.DelayedACKs": 5 + kernel}}
    assert delayed_acks_check("client", counters, replace(result, summary=summary)).ok is ok
