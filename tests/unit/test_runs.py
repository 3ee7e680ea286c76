"""What a run amounts to when a witness disagrees, a file is missing, or the expectation is not met."""

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from io import StringIO
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace as replace_fields
from rich.console import Console

from nagle_lab.diagnosis.analysis import analyze
from nagle_lab.diagnosis.result.result import Connection, CountAndTime, Endpoint, Exchange, Result, SentTotals, Stall
from nagle_lab.diagnosis.result.verdict import Verdict
from nagle_lab.errors import Exit, NagleLabError
from nagle_lab.experiments import trials
from nagle_lab.experiments.opened import judged
from nagle_lab.lab.scenarios.scenario_file import find_scenario
from nagle_lab.reports.screens.run import show_run
from nagle_lab.reports.words.writes_text import about_writes
from nagle_lab.runs import noise
from nagle_lab.runs import run as runs
from nagle_lab.runs.checks import Traffic, delayed_acks_check, traffic
from nagle_lab.runs.manifest import CaptureRecord, Expected, Manifest, NamespaceRecord
from nagle_lab.runs.noise import Handshakes, Noise, Timers
from nagle_lab.runs.run import Run, judge_run, store
from nagle_lab.runs.under_test import RunCapture, split_by_port, totals_of
from nagle_lab.runs.witnesses import Counters, Untraced
from support.recorded import slow_release
from support.repository import REFERENCE
from support.run_folders import change, reseal
from support.stories import nodelay, server_held, talk, thinks_then_one_write, two_part_reply
from support.synthetic import MS, SECOND, Conversation, Segment, merge, pcap_bytes

SERVER = ("10.0.0.2", 8080)


@pytest.fixture
def stalled(tmp_path):
    return Path(shutil.copytree(REFERENCE / "nginx-static-nodelay-off", tmp_path / "run"))


def replace_captures(run: Path, packets: Sequence[Segment]) -> None:
    """Both captures of the run have these packets, and the manifest says so."""
    for name in ("server.pcap", "client.pcap"):
        (run / name).write_bytes(pcap_bytes(packets))
        reseal(run, name)


def test_all_is_well_with_the_reference(stalled):
    run = judge_run(stalled)
    assert (run.verdict, run.exit_code()) == (Verdict.STALL, Exit.OK)


def test_storing_writes_what_analysis_gives(stalled):
    for name in ("server.json", "client.json", "result.json"):
        (stalled / name).unlink()
    store(judge_run(stalled))
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
    run = judge_run(stalled)
    assert run.verdict is verdict
    assert reason in run.reason
    assert run.exit_code() is (Exit.UNUSABLE if verdict is Verdict.INVALID else Exit.INCONCLUSIVE)


def test_a_verdict_against_the_expectation_is_exit_1(stalled):
    change(stalled, "manifest.json", lambda m: m["expected"].update(verdict="CLEAN"))
    run = judge_run(stalled)
    assert run.exit_code() is Exit.CONTRADICTED
    assert run.contradictions == ["expected CLEAN, found STALL"]


def test_the_wrong_end_held_is_a_contradiction(stalled):
    change(stalled, "manifest.json", lambda m: m["expected"].update(held_by="client"))
    run = judge_run(stalled)
    assert run.exit_code() is Exit.CONTRADICTED
    assert "expected held_by the client, found the server" in run.contradictions[0]


def test_too_small_a_share_is_a_contradiction(stalled):
    change(stalled, "manifest.json", lambda m: m["expected"].update(min_share_after_first=1.01))
    run = judge_run(stalled)
    assert run.exit_code() is Exit.CONTRADICTED
    assert "found 100.0% (96 of 96)" in run.contradictions[0]


@pytest.mark.parametrize("name", ["server.pcap", "load.txt", "witnesses.json"])
def test_a_file_that_changed_is_refused(stalled, name):
    with (stalled / name).open("ab") as file:
        file.write(b" ")
    with pytest.raises(NagleLabError, match=rf"{name}: changed since it was recorded"):
        judge_run(stalled)


@pytest.mark.parametrize("name", ["client.pcap", "witnesses.json", "manifest.json"])
def test_a_missing_file_is_named(stalled, name):
    (stalled / name).unlink()
    with pytest.raises(NagleLabError, match=name):
        judge_run(stalled)


def test_a_run_that_was_cut_off_is_refused_with_its_reason(stalled):
    change(stalled, "manifest.json", lambda m: m.update(complete=False, failure="disk full"))
    with pytest.raises(NagleLabError, match="did not complete \\(disk full\\)"):
        judge_run(stalled)


@pytest.mark.parametrize(
    ("kernel", "early", "ok"),
    [
        (97, 0, False),
        (98, 0, True),
        (100, 0, True),
        (131, 0, True),
        (135, 0, False),
        (93, 5, True),
        (92, 5, False),
        (135, 5, False),
    ],
)
def test_how_far_delayed_acks_may_be_apart(kernel, early, ok):
    """100 seen late and 31 ACKs of bare FINs: the kernel may count any of the latter.

    And it may leave out those of the late ones that came too soon for its timer.
    """
    seen = Traffic(500, 500, delayed_acks=100, fin_acks=31, acks_before_timer=early)
    before = {"Tcp.InSegs": 0, "Tcp.OutSegs": 0, "Tcp.RetransSegs": 0, "TcpExt.DelayedACKs": 5}
    counters = Counters(before, before | {"TcpExt.DelayedACKs": 5 + kernel})
    check = delayed_acks_check("client", counters, seen)
    assert check.ok is ok
    assert ("too soon for a timer" in check.detail) is bool(early)
    # A machine that is late makes more ACKs late, and none of the kernel's fewer.
    assert delayed_acks_check("client", counters, seen, busy=True).ok is (ok or kernel < 100)


@pytest.mark.parametrize(("max_ms", "late", "delays"), [(4.9, False, False), (5, False, True), (20, True, True)])
def test_a_program_may_read_later_than_the_machine_wakes_a_sleeper(max_ms, late, delays):
    measured = Noise(Timers(80, 300, max_ms * 1e3), None)
    assert (measured.is_late, measured.delays_programs) == (late, delays)


def connection(id_: int, client: str, server: str, *, port: int, stalls: int = 0, exchanges: int = 20) -> Connection:
    """A connection whose client sent 30 packets in 31 segments, and whose server sent 20 with 19 delayed ACKs."""
    sent = {
        "client": SentTotals(30, 31, 3000, 1000, 0, 1, 0, 0),
        "server": SentTotals(20, 20, 2000, 900, 19, 0, 2, 0),
    }
    ends = Endpoint(client, 40000 + id_, "client"), Endpoint(server, port, "server")
    first_stalled, repeated = 2 if stalls else None, exchanges - 1
    return Connection(
        id_, *ends, 1, 50, True, 1448, exchanges, repeated, stalls, stalls, stalls, 0, 0, first_stalled, 0, 0, sent
    )


def test_a_proxys_namespace_is_server_of_one_connection_and_client_of_another():
    """Held against the kernel's counters: what the proxy's own address sent and received on both."""
    both = [
        connection(0, "10.0.0.2", "10.0.0.3", port=6380),
        connection(1, "10.0.0.3", "10.0.0.4", port=6379),
    ]
    assert traffic(both, ["10.0.0.3"]) == Traffic(20 + 31, 30 + 20, 19, 1, 2)
    assert traffic(both, ["10.0.0.2"]) == Traffic(31, 20, 0, 1, 0)
    assert traffic(both, ["10.0.0.9"]) == Traffic(0, 0, 0, 0, 0)


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.0.53", "::1"])
def test_on_loopback_every_packet_is_sent_and_received(address):
    looped = [connection(0, address, address, port=6379)]
    assert traffic(looped, []) == Traffic(31 + 20, 30 + 20, 19, 1, 2)
    assert traffic(looped, [], inside=False) == Traffic(0, 0, 0, 0, 0)  # another namespace's loopback


def test_only_connections_to_the_port_are_under_test():
    story = stalled_result([connection(0, "c", "p", port=80), connection(1, "p", "s", port=81, stalls=19)])
    capture = split_by_port(story, 81)
    total = capture.under_test
    assert (total.connections, total.exchanges, total.stalls) == (1, 20, 19)
    assert (total.held_by, total.delayed_by) == ("client", "server")
    assert total.stalled_after_first == 1.0
    assert (capture.others.connections, capture.others.stalls, capture.other_ports) == (1, 0, [])
    assert (total.packets, total.wire_bytes, total.payload_bytes) == (50, 5000, 1900)
    assert ([c.id for c in capture.tested], len(capture.tested_stalls())) == ([1], 19)
    assert totals_of(story.connections, story.stalls).connections == 2
    assert split_by_port(story, 80).other_ports == [81]


@cache
def some_result() -> Result:
    return analyze(REFERENCE / "nginx-static-nodelay-off" / "client.pcap")


def stalled_result(connections: list[Connection]) -> Result:
    """A result that holds those connections and, for each of their stalls, one held by the client."""
    stalls = [
        Stall(c.id, 2, c.client, c.server, 1, 2, 3, 43.0, 20.0, 30, 30) for c in connections for _ in range(c.stalls)
    ]
    return replace_fields(some_result(), connections=connections, stalls=ListedStalls(stalls))


class ListedStalls(list[Stall]):
    def typical(self) -> Stall:
        return self[0]


def test_a_stall_on_another_connection_is_never_expected(stalled):
    """The reference judged on a port nobody used, and on the real one as if the stalls were elsewhere."""
    change(stalled, "manifest.json", lambda m: m["expected"].update(port=81))
    run = judge_run(stalled)
    assert (run.verdict, run.exit_code()) == (Verdict.INCONCLUSIVE, Exit.INCONCLUSIVE)
    assert run.reason == "no capture holds a connection to port 81"


def seen_by(*connections: Connection, port: int) -> RunCapture:
    result = stalled_result(list(connections))
    stalled = any(c.stalls for c in connections)
    return split_by_port(
        replace_fields(result, verdict=Verdict.STALL if stalled else Verdict.CLEAN, reason="whole capture"), port
    )


EXPECTED = Expected("STALL", 81, "client", "server", 0.9)


def manifest_of(**captures: str) -> Manifest:
    """The reference's manifest, with those captures (name → namespace), and a proxy's and a server's namespace."""
    reference = (REFERENCE / "nginx-static-nodelay-off" / "manifest.json").read_bytes()
    addresses = {"proxy": "10.0.0.3", "server": "10.0.0.4"}
    return replace_fields(
        msgspec.json.decode(reference, type=Manifest),
        expected=EXPECTED,
        captures={name: CaptureRecord("", "eth0", namespace, 1500, {}) for name, namespace in captures.items()},
        namespaces={name: NamespaceRecord([], [ip], {}) for name, ip in addresses.items()},
    )


MANIFEST = manifest_of(proxy="proxy", server="server")
TO_PROXY = connection(0, "10.0.0.2", "10.0.0.3", port=80)
TO_SERVER = connection(1, "10.0.0.3", "10.0.0.4", port=81)
TO_SERVER_STALLED = connection(1, "10.0.0.3", "10.0.0.4", port=81, stalls=19)


def test_the_verdict_is_that_of_the_connections_under_test_and_the_capture_at_the_held_end_is_shown():
    captures = {
        "server": seen_by(TO_SERVER_STALLED, port=81),
        "proxy": seen_by(TO_PROXY, TO_SERVER_STALLED, port=81),
    }
    verdict, reason = runs.verdict_of(MANIFEST, [], captures)
    assert (verdict, runs.best_capture(MANIFEST, captures)) == (Verdict.STALL, "proxy")
    assert reason.startswith("19 of 20 exchanges on port 81 waited for a delayed ACK: the client held")
    assert runs.contradictions(EXPECTED, verdict, captures, "proxy") == []


def test_a_capture_without_connections_under_test_does_not_speak():
    captures = {
        "client": seen_by(TO_PROXY, port=81),
        "server": seen_by(TO_SERVER_STALLED, port=81),
    }
    manifest = manifest_of(proxy="proxy", server="server", client="proxy")
    assert runs.verdict_of(manifest, [], captures)[0] is Verdict.STALL


def test_captures_that_disagree_on_the_connections_under_test_are_inconclusive():
    captures = {"proxy": seen_by(TO_SERVER, port=81), "server": seen_by(TO_SERVER_STALLED, port=81)}
    said = runs.verdict_of(MANIFEST, [], captures)
    assert said == (Verdict.INCONCLUSIVE, "the captures disagree: proxy CLEAN, server STALL")


@pytest.mark.parametrize("expected", [Expected("CLEAN", 81), EXPECTED])
def test_a_stall_elsewhere_is_a_stall_and_a_contradiction(expected):
    elsewhere = connection(0, "10.0.0.2", "10.0.0.3", port=80, stalls=3)
    tested = TO_SERVER if expected.verdict == "CLEAN" else TO_SERVER_STALLED
    captures = {"proxy": seen_by(elsewhere, tested, port=81)}
    verdict, reason = runs.verdict_of(MANIFEST, [], captures)
    told = "proxy.pcap: 3 stalls on connections to port 80, where none is expected"
    assert verdict is Verdict.STALL
    assert reason.endswith(told)
    assert told in runs.contradictions(expected, verdict, captures, "proxy")


def test_too_few_exchanges_on_the_connections_under_test_are_inconclusive_however_many_others_there_are():
    few = connection(1, "10.0.0.3", "10.0.0.4", port=81, exchanges=9)
    verdict, reason = runs.verdict_of(MANIFEST, [], {"proxy": seen_by(TO_PROXY, few, port=81)})
    assert verdict is Verdict.INCONCLUSIVE
    assert reason.startswith("proxy.pcap: 9 answered exchanges, none stalled")


LATE = {"interval_us": 5000, "count": 90, "p50_us": 80, "p99_us": 21000, "max_us": 65400}


def test_a_run_states_its_noise(stalled):
    change(stalled, "witnesses.json", lambda w: w.update(timers=LATE))
    run = judge_run(stalled)
    check = run.checks[-1]
    assert json.loads(run.to_json())["noise"]["timer_late_us"] == {"p50": 80, "p99": 21000, "max": 65400}
    assert (check.name, check.ok) == ("noise", True)
    assert check.detail.startswith("timers 0.08 ms late (p99 21, max 65.4), handshake 0.00")
    assert (run.verdict, run.exit_code()) == (Verdict.STALL, Exit.OK)  # proved, on whatever machine


def test_a_run_recorded_before_noise_was_measured_is_judged_without_it(stalled):
    run = judge_run(stalled)
    assert run.noise.timer_late_us is None
    assert run.noise.handshake_us is not None
    assert "noise" not in [check.name for check in run.checks]


@pytest.mark.parametrize(("rtt_ms", "longer_ms"), [(0.2, 0), (20, 0), (20, 30)])
def test_handshakes_are_timed_from_syn_to_the_clients_ack(tmp_path, rtt_ms, longer_ms):
    """Without the one whose SYN was sent again, a second later."""
    talks = [
        Conversation(("10.0.0.1", 40001), rtt_ns=int(rtt_ms * MS)),
        Conversation(("10.0.0.1", 40002), rtt_ns=int((rtt_ms + longer_ms) * MS)),
        Conversation(("10.0.0.1", 40003), rtt_ns=int(rtt_ms * MS)),
    ]
    for conversation in talks:
        conversation.handshake()
        conversation.client_sends(100)
        conversation.server_sends(200)
    seen = [conversation.seen_at("client") for conversation in talks]
    again = replace(seen[2][0], ts_ns=seen[2][0].ts_ns - SECOND)
    capture = tmp_path / "client.pcap"
    capture.write_bytes(pcap_bytes(merge([again], *seen)))
    took = noise.measure_noise(None, split_by_port(analyze(capture), 80)).handshake_us
    assert took is not None
    assert took.min == pytest.approx(rtt_ms * 1e3, abs=200)
    assert took.max == pytest.approx((rtt_ms + longer_ms) * 1e3, abs=200)


def went(
    *, stalled: int = 0, quick: int = 0, paused: int = 0, slow: int = 0, busy: int = 0, first: int = 1
) -> RunCapture:
    """A capture on a path of 2 ms, of one connection after its first exchange, or of ``first`` with no more.

    So many exchanges stalled, were quick, were asked for 45 ms late, or took 45 ms with or without a pause.
    """
    kinds = [
        "quick",
        *["stalled"] * stalled,
        *["quick"] * quick,
        *["paused"] * paused,
        *["slow"] * slow,
        *["busy"] * busy,
    ]
    ends, exchanges, now = ("10.0.0.2", "10.0.0.3"), [], 0.0
    for number, kind in enumerate(kinds, 1):
        now += 0.045 if kind == "paused" else 0.021  # the path is part of it
        took = 45.0 if kind in ("stalled", "slow", "busy") else 5.0
        exchanges.append(Exchange(0, number, round(now, 6), None, None, took, kind == "stalled"))
        now += took / 1e3
    connections = [connection(0, *ends, port=80, stalls=stalled, exchanges=len(kinds))]
    for other in range(1, first):
        connections.append(connection(other, *ends, port=80, exchanges=1))
        exchanges.append(Exchange(other, 1, 0.0, None, None, 5.0, stalled=False))
    silent = {"nagle_delayed_ack": stalled, "round_trip": 3, "client_think": paused, "server_think": slow}
    idle_gaps = {cause: CountAndTime(count, 45.0 * count) for cause, count in silent.items()}
    return split_by_port(replace_fields(stalled_result(connections), exchanges=exchanges, idle_gaps=idle_gaps), 80)


STALLS, CLEAN = Expected("STALL", 80, min_share_after_first=0.9), Expected("CLEAN", 80)


@pytest.mark.parametrize(
    ("seen", "expected", "max_ms", "unsafe"),
    [
        (went(stalled=50, paused=50), STALLS, 65, "only 50.0% stalled, but in 50 exchanges an end paused for 20 ms"),
        (went(stalled=50, slow=50), STALLS, 65, "only 50.0% stalled, but in 50 exchanges an end paused for 20 ms"),
        (went(stalled=50, quick=5, slow=45), STALLS, 65, "in 45 exchanges an end paused"),
        (went(stalled=50, quick=6, slow=44), STALLS, 65, ""),  # 50 of the 56 that tell are too few
        (went(stalled=50, quick=50), STALLS, 65, ""),
        (went(stalled=90, quick=10), STALLS, 65, ""),  # as expected
        (
            went(quick=9, paused=90),
            STALLS,
            65,
            "9 exchanges without a pause of 20 ms, but 10 are",
        ),
        (went(quick=9, slow=90), CLEAN, 65, "9 exchanges without a pause of 20 ms, but 10 are"),
        (went(quick=10, slow=90), CLEAN, 65, ""),
        (went(busy=10, slow=90), CLEAN, 65, ""),  # a large page is no pause
        (went(stalled=50, busy=50), STALLS, 65, ""),
        (went(quick=10, slow=90), STALLS, 65, ""),  # really gone
        (went(slow=20, first=50), STALLS, 65, "0 exchanges without a pause"),  # first ones never stall
        (went(first=50), CLEAN, 65, ""),  # one connection for each request
        (went(stalled=9, quick=90), CLEAN, 65, "9 stalls where none is expected, on a machine that was 65 ms late"),
        (went(stalled=9, quick=90), CLEAN, 19, ""),
        # On a machine that was in time the pauses are the programs' own.
        (went(stalled=50, paused=50), STALLS, 4.9, ""),
        (went(stalled=50, paused=50), STALLS, 5, "in 50 exchanges an end paused"),  # programs wait longer than timers
        (went(quick=9, paused=90), STALLS, 19, ""),
        (went(quick=9, slow=90), CLEAN, 19, ""),
        (went(stalled=10, quick=90), CLEAN, 65, ""),
    ],
)
def test_when_noise_makes_a_verdict_unsafe(seen, expected, max_ms, unsafe):
    measured = Noise(Timers(80, 300, max_ms * 1e3), Handshakes(2000, 2100, 2200))
    verdict = Verdict.STALL if seen.under_test.stalls else Verdict.CLEAN
    check = noise.noise_check(measured, seen, verdict, expected)
    assert check is not None
    assert check.ok is not bool(unsafe)
    assert check.verdict is Verdict.INCONCLUSIVE
    assert unsafe in check.detail
    assert f"timers 0.08 ms late (p99 0.3, max {max_ms}), handshake 2.1 ms (max 2.2)" in check.detail


def test_slow_handshakes_decide_nothing():
    measured = Noise(Timers(80, 300, 900), Handshakes(2000, 2100, 65e3))
    check = noise.noise_check(measured, went(stalled=9, quick=90), Verdict.STALL, CLEAN)
    assert check is not None
    assert check.ok


def test_pauses_on_other_connections_excuse_nothing():
    seen = went(stalled=50, quick=50)
    seen = replace(seen, result=replace_fields(seen.result, idle_gaps={"server_think": CountAndTime(50, 2250.0)}))
    check = noise.noise_check(Noise(Timers(80, 300, 65e3), Handshakes(2000, 2100, 2200)), seen, Verdict.STALL, STALLS)
    assert check is not None
    assert check.ok


@pytest.mark.parametrize("seen_from", [0, 3])
def test_a_capture_and_its_connections_count_the_same_exchanges(tmp_path, seen_from):
    """With the handshake in the capture, and without."""
    file = tmp_path / "server.pcap"
    file.write_bytes(pcap_bytes(talk(server_held).segments[seen_from:]))
    result = analyze(file)
    total = totals_of(list(result.connections), result.stalls)
    assert (total.exchanges, total.repeat_exchanges) == (result.summary.exchanges, result.summary.repeat_exchanges)
    assert total.repeat_exchanges < total.exchanges


def test_an_unsafe_verdict_is_inconclusive_and_says_why(stalled, monkeypatch):
    """The reference, as if half of its exchanges had been slow instead of stalled, is no contradiction."""
    change(stalled, "witnesses.json", lambda w: w.update(timers=LATE))
    seen = went(stalled=50, slow=50)
    monkeypatch.setattr(runs, "split_by_port", lambda *_: seen)
    monkeypatch.setattr(runs, "_checks", lambda *_: [])
    run = judge_run(stalled)
    assert (run.verdict, run.exit_code()) == (Verdict.INCONCLUSIVE, Exit.INCONCLUSIVE)
    assert run.reason.startswith(
        "noise: only 50.0% stalled, but in 50 exchanges an end paused for 20 ms (timers 0.08"
    )


@pytest.mark.parametrize(
    ("max_us", "verdict", "code"),
    [(900, Verdict.CLEAN, Exit.CONTRADICTED), (65400, Verdict.INCONCLUSIVE, Exit.INCONCLUSIVE)],
)
def test_a_server_that_now_thinks_is_hidden_by_a_late_machine_alone(stalled, monkeypatch, max_us, verdict, code):
    """It pauses for 45 ms and writes once, where it stalled before."""
    change(stalled, "witnesses.json", lambda w: w.update(timers={**LATE, "p99_us": 300, "max_us": max_us}))
    replace_captures(stalled, talk(thinks_then_one_write, 40, server=SERVER).segments)
    monkeypatch.setattr(runs, "_checks", lambda *_: [])
    run = judge_run(stalled)
    assert (run.verdict, run.exit_code()) == (verdict, code)
    assert run.contradictions == [f"expected STALL, found {verdict}"]


def screen(run: Run) -> str:
    """All its words, at 100 columns."""
    said = StringIO()
    show_run(run, None, Console(file=said, width=100, highlight=False, markup=False, emoji=False), run.contradictions)
    return said.getvalue()


def test_a_capture_that_cannot_tell_does_not_say_that_none_stalled(stalled, monkeypatch):
    replace_captures(stalled, talk(slow_release, 40, server=SERVER).segments)
    monkeypatch.setattr(runs, "_checks", lambda *_: [])
    (row,) = (line.split() for line in screen(judge_run(stalled)).splitlines() if line.strip().startswith("stalled "))
    assert row[1:5] == ["cannot", "tell", "cannot", "tell"]


BEFORE = {"run": "without", "verdict": "STALL", "exchanges": 101, "stalled_exchanges": 100, "contradictions": []}


def now_and_then(c: Conversation, number: int) -> None:
    """Every other exchange stalls."""
    if number % 2:
        server_held(c, number)
    else:
        c.client_sends(84)
        c.server_sends(800)


@pytest.fixture
def traced(stalled, monkeypatch) -> Path:
    """A run that stalls half as often as the one without strace, which its witnesses name."""
    replace_captures(stalled, talk(now_and_then, 101, server=SERVER).segments)
    monkeypatch.setattr(runs, "_checks", lambda *_: [])
    for name in ("strace.txt", "strace-threads.txt"):
        (stalled / name).write_text("")
        reseal(stalled, name)
    change(stalled, "manifest.json", lambda m: m.update(traced="server"))
    change(stalled, "witnesses.json", lambda w: w.update(untraced=BEFORE))
    return stalled


def test_a_traced_run_that_stalls_less_often_is_no_contradiction_and_says_so(traced):
    """strace slows what it traces: that it stalls holds, and how often is for the run without."""
    run = judged(traced)
    assert (run.verdict, run.exit_code(), run.contradictions) == (Verdict.STALL, Exit.OK, [])
    assert run.writes and (run.writes.untraced_exchanges, run.writes.untraced_stalled_exchanges) == (101, 100)
    assert run.writes.notes == ["tracing changed the share of stalled exchanges by -50 points"]  # no line is
    shown = screen(run)
    assert "50 of 101 exchanges stalled while traced (50%), 100 of 101 without tracing (99%)" in " ".join(
        shown.split()
    )
    assert str(traced.parent / "without") in "".join(shown.split())
    change(traced, "manifest.json", lambda m: m.update(traced=None))
    change(traced, "witnesses.json", lambda w: w.update(untraced=None))
    assert judged(traced).exit_code() is Exit.CONTRADICTED


def test_a_share_below_one_is_never_all(traced):
    writes = replace_fields(judged(traced).writes, exchanges=200, stalled_exchanges=199)
    assert "199 of 200 exchanges stalled while traced (99.5%)" in dict(about_writes(writes))["traced"]


def test_what_takes_longer_than_the_stalls_is_said_to_do_so_while_traced(traced):
    """strace slows the server: its own time is no news of the software."""

    def slowly(c: Conversation, number: int) -> None:
        two_part_reply(c, header=300 * MS, ack=41 * MS)

    replace_captures(traced, talk(slowly, 101, server=SERVER).segments)
    assert "; but another cause took more time while it was traced (" in judged(traced).reason


def test_what_the_run_without_strace_contradicts_the_traced_one_does_too(traced):
    change(traced, "witnesses.json", lambda w: w["untraced"].update(contradictions=["too few stalled"]))
    run = judged(traced)
    assert (run.verdict, run.exit_code()) == (Verdict.STALL, Exit.CONTRADICTED)
    assert run.contradictions == ["without tracing: too few stalled"]


def test_a_stall_that_strace_hides_is_not_called_clean(traced):
    replace_captures(traced, talk(nodelay, 40, server=SERVER).segments)
    run = judged(traced)
    assert (run.verdict, run.exit_code()) == (Verdict.INCONCLUSIVE, Exit.INCONCLUSIVE)
    assert run.reason.endswith("; but 100 of 101 did without tracing (without): strace slowed what it recorded")


def test_a_traced_run_needs_the_one_without(traced):
    change(traced, "witnesses.json", lambda w: w.pop("untraced"))
    with pytest.raises(NagleLabError, match="untraced is missing, and the run was traced"):
        judge_run(traced)
    change(traced, "witnesses.json", lambda w: w.update(untraced={**BEFORE, "run": "../elsewhere"}))
    with pytest.raises(NagleLabError, match=r"untraced\.run"):
        judge_run(traced)


@pytest.mark.parametrize(("trace", "slow_ack", "recorded"), [(True, True, 2), (True, False, 1), (False, True, 1)])
def test_what_stalls_without_strace_runs_again_under_it(stalled, monkeypatch, tmp_path, trace, slow_ack, recorded):
    """And the first run's counts are given to the second."""
    monkeypatch.setattr(runs, "_checks", lambda *_: [])
    if not slow_ack:
        replace_captures(stalled, talk(nodelay, 40, server=SERVER).segments)
    given = []

    def record(*_: object, untraced: Untraced | None) -> Path:
        given.append(untraced)
        return stalled

    monkeypatch.setattr(trials, "record", record)
    scenario = find_scenario("nginx-static")
    trials.make_run(scenario, scenario.variant("nodelay-off"), {}, tmp_path, lambda _: None, trace=trace)
    assert len(given) == recorded and given[0] is None
    if recorded == 2:
        s = judged(stalled).results["server"].summary
        assert given[1] == Untraced(stalled.name, Verdict.STALL, s.exchanges, s.stalled_exchanges, [])


@pytest.mark.parametrize("timers", [None, LATE])
def test_captures_without_a_packet_are_invalid(stalled, timers):
    if timers:
        change(stalled, "witnesses.json", lambda w: w.update(timers=timers))
    replace_captures(stalled, [])
    run = judge_run(stalled)
    assert (run.verdict, run.exit_code()) == (Verdict.INVALID, Exit.UNUSABLE)
    assert "server.pcap: no TCP packet in it" in run.reason
    assert run.noise.handshake_us is None
    assert "timers" not in run.reason  # an invalid run is not the noise's doing


@pytest.mark.parametrize(
    ("max_us", "said"), [(19000, ""), (65400, " (timers 0.08 ms late (p99 21, max 65.4), handsh")]
)
def test_an_inconclusive_run_says_how_late_the_machine_was(stalled, max_us, said):
    """Whatever made it inconclusive: here a witness that disagrees."""
    change(stalled, "witnesses.json", lambda w: w.update(timers={**LATE, "max_us": max_us}))
    change(stalled, "witnesses.json", lambda w: w["counters"]["client"]["after"].update({"TcpExt.DelayedACKs": 150}))
    run = judge_run(stalled)
    assert run.verdict is Verdict.INCONCLUSIVE
    assert run.reason.startswith("delayed ACKs of the client: 96 in the capture and 4 of bare FINs, ")
    assert f", 150 in the kernel{said}" in run.reason
    assert run.reason.count("timers") == bool(said)
