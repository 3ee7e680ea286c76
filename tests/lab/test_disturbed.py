"""Runs that something disturbs: they may come to no verdict, but never to a wrong one."""

import json

import pytest
from lab.recording import docker, engine_holds

from nagle_lab.lab.recorder import Recorder
from nagle_lab.lab.scenarios.scenario_file import find_scenario
from nagle_lab.lab.session import record
from nagle_lab.runs.run import judge_run


def test_stopping_tcpdump_naively_loses_packets_and_the_run_says_so(runs_dir, monkeypatch):
    """libpcap hands over its last block late; a capture stopped before that is INVALID, and is kept."""
    monkeypatch.setattr(Recorder, "settle", lambda *_: None)  # right after the load, as a person would
    scenario, seen = find_scenario("nginx-static"), []
    for _ in range(4):
        folder = record(scenario, scenario.variant("nodelay-off"), {}, runs_dir, lambda _: None)
        judged, counted = judge_run(folder), json.loads((folder / "witnesses.json").read_text())["captures"]
        seen.append({end: (numbers["captured"], numbers["received"]) for end, numbers in counted.items()})
        if any(captured < received for captured, received in seen[-1].values()):
            break
        # A busy machine took a second to stop it: nothing is missing, and the run says nothing else.
        assert judged.verdict == "STALL"
    else:
        pytest.fail(f"no run lost a packet: captured and received were {seen}")
    assert (judged.verdict, judged.exit_code()) == ("INVALID", 2)
    assert "lossless at the" in judged.reason
    assert (folder / "server.pcap").stat().st_size > 24


def test_ends_that_are_kept_waiting_for_a_processor_never_contradict(runs_dir):
    """All containers get 1 ms of every 100: the ends pause longer than the ACK timer, many exchanges cannot stall."""

    def throttle(stage: str) -> None:
        if stage.startswith("ab "):
            for name in engine_holds(runs_dir)[0]:
                docker("update", "--cpus", "0.01", name)

    scenario = find_scenario("nginx-static")
    folder = record(scenario, scenario.variant("nodelay-off"), {}, runs_dir, throttle)
    judged = judge_run(folder)
    assert judged.noise.is_late  # the sidecar that measures waits as the ends do
    assert judged.contradictions == [] or judged.exit_code() == 3, judged.contradictions
    least = judged.manifest.expected.min_share_after_first
    assert least
    too_few = judged.captures[judged.best].under_test.stalled_after_first < least
    assert ("an end paused for 20 ms" in judged.reason) is too_few
