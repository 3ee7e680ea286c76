"""The committed runs of the lab: what is in captures/reference must be found again, byte for byte."""

import json

import pytest

from nagle_lab.diagnosis.analysis import analyze
from nagle_lab.diagnosis.result.verdict import Verdict
from nagle_lab.runs.run import judge_run
from support.repository import REFERENCE
from support.schemas import check

RUNS = sorted(p.parent for p in REFERENCE.glob("*/manifest.json"))
CAPTURES = sorted(REFERENCE.glob("*/*.pcap"))


def test_all_variants_are_here():
    assert [r.name for r in RUNS] == [
        "nginx-static-no-keepalive",
        "nginx-static-nodelay-off",
        "nginx-static-nodelay-on",
        "nginx-static-nopush",
        "nginx-static-rtt-20-nodelay-off",
    ]
    assert len(CAPTURES) == 10


@pytest.mark.parametrize("run", RUNS, ids=lambda r: r.name)
def test_a_run_is_judged_as_when_it_was_recorded(run):
    judged = judge_run(run)
    assert judged.to_json() == (run / "result.json").read_text()
    assert judged.verdict is judged.expected
    assert judged.contradictions == []
    assert all(c.ok for c in judged.checks), judged.checks
    check("run", json.loads(judged.to_json()))


@pytest.mark.parametrize("capture", CAPTURES, ids=lambda c: f"{c.parent.name}/{c.stem}")
def test_a_capture_gives_the_stored_result(capture):
    result = analyze(capture)
    assert result.to_json() == capture.with_suffix(".json").read_text()
    check("result", json.loads(result.to_json()))


def test_the_stalled_run_stalls_on_all_but_the_first_exchanges():
    for end in ("server", "client"):
        summary = analyze(REFERENCE / "nginx-static-nodelay-off" / f"{end}.pcap").summary
        assert summary.exchanges == 100
        assert summary.stalled_exchanges == summary.repeat_exchanges == 96
        assert (summary.held_by, summary.delayed_by) == ("server", "client")
        assert summary.wait_ms is not None
        assert 35 < summary.wait_ms.p50 < 60  # one delayed-ACK timer of Linux, not two


def test_the_jitter_of_a_far_end_hides_no_stall():
    """20 ms away from the server, releases come up to 0.6 ms late, those of ten connections together."""
    for end in ("server", "client"):
        summary = analyze(REFERENCE / "nginx-static-rtt-20-nodelay-off" / f"{end}.pcap").summary
        assert (summary.stalled_exchanges, summary.repeat_exchanges) == (190, 190)
        assert summary.captured_near == end


@pytest.mark.parametrize("variant", ["nodelay-on", "no-keepalive", "nopush"])
def test_the_other_runs_are_clean(variant):
    for end in ("server", "client"):
        result = analyze(REFERENCE / f"nginx-static-{variant}" / f"{end}.pcap")
        assert result.verdict is Verdict.CLEAN
        assert result.summary.exchanges == 100
        assert result.summary.delayed_acks == 0
