"""The sweep: edges located by bisection, and what is said of them. No run here is a real one."""

import io
import json
from dataclasses import replace

import pytest
from msgspec import structs
from rich.console import Console

from nagle_lab.cli.lab import sweep as command
from nagle_lab.diagnosis.result.verdict import Verdict
from nagle_lab.errors import Exit, NagleLabError
from nagle_lab.experiments.sweep import (
    Bursts,
    Edge,
    SweepPoint,
    SweepSeries,
    asked_range,
    bursts_of,
    code_of,
    doubled,
    explanation,
    run_through,
)
from nagle_lab.experiments.trials import TrialOutcome
from nagle_lab.reports.experiments.sweep import show_sweep
from nagle_lab.runs.figures import Figures
from nagle_lab.runs.run import judge_run
from support.repository import REFERENCE

MSS, MTU, CHUNK = 1448, 1500, 1424
FIGURES = Figures(0.0, None, None, 9000.0, 0.4, 0.1, 1.0, 4.0, 1.3, 0, 0)


def told(size: int, share: float, bursts: tuple[int, ...] = (), held: tuple[int, int] | None = None) -> SweepPoint:
    """A run whose client sends ``bursts``; ``held`` are the bytes unacknowledged and those that waited."""
    verdict = Verdict.STALL if share else Verdict.CLEAN
    outcome = TrialOutcome(Exit.OK, verdict, "", "a-run", replace(FIGURES, stalled_share=share))
    sent = Bursts(bursts, 1.0, *(held or (None, None)), MSS, MTU)
    answer = Bursts((5,), 1.0, None, None, MSS, MTU)
    return SweepPoint(size, outcome, {"client": sent, "server": answer}, {"CHUNK_BYTES": CHUNK})


def mute(size: int, code: Exit = Exit.INCONCLUSIVE) -> SweepPoint:
    verdict = Verdict.INCONCLUSIVE if code is Exit.INCONCLUSIVE else None
    return SweepPoint(size, TrialOutcome(code, verdict, "no moon", None, None), {}, {})


def series(measure, low: int = 64, high: int = 16384) -> SweepSeries:
    found = SweepSeries("writes", "nagle", 6379)
    run_through(found, low, high, measure)
    return found


def band(first: int, last: int):
    """Stalls from ``first`` to ``last``, both included."""
    return lambda size: told(size, 0.97 if first <= size <= last else 0.0)


@pytest.mark.parametrize(
    ("low", "high", "sizes"),
    [(64, 1024, [64, 128, 256, 512, 1024]), (100, 500, [100, 200, 400, 500]), (1, 2, [1, 2])],
)
def test_sizes_double(low, high, sizes):
    assert doubled(low, high) == sizes


@pytest.mark.parametrize(("first", "last"), [(1387, 2834), (65, 8191), (129, 255 + 1), (64, 1447), (3000, 16384)])
def test_every_edge_is_located_exactly(first, last):
    found = series(band(first, last))
    edges = [(edge.below.size, edge.above.size) for edge in found.edges]
    assert edges == [(first - 1, first)] * (first > 64) + [(last, last + 1)] * (last < 16384)
    assert [edge.blurs for edge in found.edges] == [[]] * len(edges)


def test_an_interrupted_search_says_between_which_sizes_the_edge_is():
    found = SweepSeries("writes", "nagle", 6379)
    asked = iter(range(12))  # nine doubling sizes, and three steps of the search

    def measure(size: int) -> SweepPoint:
        if next(asked, None) is None:
            raise KeyboardInterrupt
        return band(64, 1447)(size)

    with pytest.raises(KeyboardInterrupt):
        run_through(found, 64, 16384, measure)
    text = shown(found)
    assert "stops stalling between VALUE_BYTES=1408 and 1536: interrupted while locating where" in text
    assert "no stall at any size" not in text


def test_a_band_between_two_doublings_is_not_seen_and_that_is_not_denied():
    found = series(band(1387, 1500))
    assert found.edges == []
    assert "no stall at any size measured, 64 to 16384" in shown(found)


def test_a_search_takes_no_more_runs_than_foreseen():
    foreseen, made = [], []

    def measure(size):
        made.append(size)
        return band(1387, 2834)(size)

    run_through(SweepSeries("writes", "nagle", 6379), 64, 16384, measure, foreseen.append)
    assert len(made) == 9 + sum(foreseen)


def test_both_sides_of_an_edge_are_run_again_and_must_say_the_same():
    before = set()

    def wavering(size):
        again = size in before
        before.add(size)
        return told(size, 0.0 if size < 1000 or (again and size == 1000) else 0.97)

    found = series(wavering)
    assert [(edge.below.size, edge.above.size) for edge in found.edges] == [(999, 1000)]
    assert found.edges[0].blurs == ["1000 was STALL at first and CLEAN when run again"]
    assert [point.size for point in found.again] == [999, 1000]
    assert "NOT SHARP: 1000 was STALL at first and CLEAN when run again" in shown(found)


def test_a_share_that_grows_over_many_sizes_is_no_sharp_edge():
    found = series(lambda size: told(size, min(1.0, max(0.0, (size - 1000) / 500))), 512, 2048)
    assert [edge.above.size for edge in found.edges] == [1001]
    assert found.edges[0].blurs == ["at 1001 only 0.2% stall, at 2048 100.0%"]


def test_an_edge_next_to_a_run_that_does_not_tell_is_left_between_those_that_do():
    found = series(lambda size: mute(size) if size == 1280 else band(1200, 16384)(size), 512, 2048)
    assert [(edge.below.size, edge.above.size) for edge in found.edges] == [(1024, 1536)]
    assert found.edges[0].blurs == ["between 1024 and 1536, not located: 1280 is INCONCLUSIVE"]
    assert code_of([found]) is Exit.INCONCLUSIVE


def test_a_doubling_size_that_does_not_tell_is_stepped_over():
    found = series(lambda size: mute(size, Exit.UNUSABLE) if size == 1024 else band(1200, 16384)(size), 512, 2048)
    assert [(edge.below.size, edge.above.size) for edge in found.edges] == [(1199, 1200)]
    assert code_of([found]) is Exit.UNUSABLE
    assert [line.split() for line in shown(found).splitlines() if "error" in line] == [["1024", *"–––", "error"]]


def test_nothing_tells():
    found = series(mute, 512, 1024)
    assert found.edges == []
    assert "no run tells" in shown(found)


def test_a_verdict_unlike_the_variants_own_is_what_a_sweep_is_for():
    contradicted = replace(told(64, 0.97), outcome=replace(told(64, 0.97).outcome, code=Exit.CONTRADICTED))
    assert code_of([SweepSeries("writes", "nagle", 6379, [contradicted])]) is Exit.OK


def proxied(size: int) -> SweepPoint:
    """A proxy with a buffer of 1424 bytes: a rest waits unless it is a full segment."""
    command = size + 38
    if command <= CHUNK:
        return told(size, 0.0, (command,))
    rest = command - CHUNK
    if rest < MSS:
        return told(size, 0.97, (CHUNK, rest), (CHUNK, rest))
    return told(size, 0.0, (CHUNK, MSS, rest - MSS) if rest > MSS else (CHUNK, MSS))


def test_a_cliff_is_explained_by_the_sizes_on_the_wire():
    begins, ends = series(proxied).edges
    assert (begins.above.size, ends.below.size) == (1387, 2833)
    assert explanation(begins, "VALUE_BYTES") == [
        "At 1386 the client sends 1424 B (CHUNK_BYTES) (CLEAN).",
        "At 1387 the client sends 1424 B (CHUNK_BYTES) + 1 B (STALL).",
        "At 1387, 1 B is held behind 1424 B (CHUNK_BYTES) not yet acknowledged.",
        "Up to 1386 it leaves as 1 segment, from 1387 on as 2.",
    ]
    assert explanation(ends, "VALUE_BYTES") == [
        "At 2833 the client sends 1424 B (CHUNK_BYTES) + 1447 B (STALL).",
        "At 2834 the client sends 1424 B (CHUNK_BYTES) + 1448 B (MSS) (CLEAN).",
        "At 2833, 1447 B is held behind 1424 B (CHUNK_BYTES) not yet acknowledged.",
        "From 2834 on a full segment follows (MSS 1448, MTU 1500): Nagle's algorithm never holds one.",
    ]


def test_a_stall_that_begins_behind_a_full_segment_is_not_ascribed_to_one():
    clean = told(4235, 0.0, (CHUNK, MSS, 1400))
    stalled = told(4236, 0.5, (CHUNK, MSS, 1400, 1), (1400, 1))
    said = explanation(Edge(clean, stalled, []), "VALUE_BYTES")
    assert said[-1] == "Up to 4235 it leaves as 3 segments, from 4236 on as 4."
    assert not any("never holds" in line for line in said)


def test_where_nothing_is_known_nothing_is_explained():
    def bare(size):
        return replace(proxied(size), bursts={})

    assert explanation(series(bare).edges[0], "VALUE_BYTES") == []


def shown(*found: SweepSeries) -> str:
    to = Console(file=io.StringIO(), width=100, color_system=None)
    show_sweep("A proxy", "VALUE_BYTES", found, to)
    return to.file.getvalue()


def test_the_table_has_the_doubling_sizes_and_both_sides_of_each_edge():
    text = shown(series(proxied))
    sizes = [line.split()[0] for line in text.splitlines() if line.strip()[:1].isdigit()]
    assert list(map(int, sizes)) == [64, 128, 256, 512, 1024, 1386, 1387, 2048, 2833, 2834, 4096, 8192, 16384]
    assert "starts to stall at VALUE_BYTES=1387 (last clean: 1386)" in text
    assert "stops stalling at VALUE_BYTES=2834, the first clean size (last stalled: 2833)" in text
    assert max(map(len, text.splitlines())) <= 100


@pytest.mark.parametrize(
    ("text", "range_"),
    [
        (None, ("PAGE_BYTES", 64, 16384)),
        ("size=100..200", ("PAGE_BYTES", 100, 200)),
        ("SIZE=100..200", ("PAGE_BYTES", 100, 200)),
        ("page_bytes=1..2", ("PAGE_BYTES", 1, 2)),
        ("Requests=10..20", ("REQUESTS", 10, 20)),
    ],
)
def test_the_range(nginx, text, range_):
    assert asked_range(nginx, text) == range_


@pytest.mark.parametrize(
    "text", ["size", "size=5", "size=5..5", "size=9..5", "size=0..5", "size=a..b", "size=1...5", "size=1..²"]
)
def test_a_range_that_is_none_is_refused(nginx, text):
    with pytest.raises(NagleLabError, match=r"NAME=LO\.\.HI"):
        asked_range(nginx, text)


@pytest.mark.parametrize("name", ["moon", "KEEPALIVE", ""])
def test_a_parameter_that_is_no_whole_number_is_refused(nginx, name):
    with pytest.raises(NagleLabError, match="size, or one of REQUESTS, CONCURRENCY, PAGE_BYTES"):
        asked_range(nginx, f"{name}=1..2")


def test_a_scenario_without_a_sweep_says_so(nginx):
    with pytest.raises(NagleLabError, match=r"nginx-static has no \[sweep\]"):
        asked_range(structs.replace(nginx, sweep=None), None)


def test_bursts_are_read_from_the_capture():
    run = judge_run(REFERENCE / "nginx-static-nodelay-off")
    stall = run.results[run.best].stalls.typical()
    sent = bursts_of(run)
    assert sent["server"].usual == (stall.trigger_bytes, stall.released_bytes)
    assert (sent["server"].unacknowledged_bytes, sent["server"].held_bytes) == sent["server"].usual
    assert sent["server"].share == 1.0
    assert (sent["client"].unacknowledged_bytes, len(sent["client"].usual)) == (None, 1)
    assert (sent["server"].mss, sent["server"].mtu) == (1448, 1500)


# ------------------------------------------------------------------------------------- the command


@pytest.fixture
def asked(monkeypatch):
    """Pages of 615 bytes and more stall with nodelay off, until 1448: the reference runs. Gives what was asked."""
    made = []

    def make_run(scenario, variant, settings, runs, progress):
        made.append((variant.name, settings))
        stalls = variant.name == "nodelay-off" and int(settings["PAGE_BYTES"]) < 1448
        return judge_run(REFERENCE / f"nginx-static-nodelay-{'off' if stalls else 'on'}")

    monkeypatch.setattr(command, "make_run", make_run)
    return made


def test_the_command_locates_the_edge_and_prints_it(run, asked):
    code, out, err = run(
        "sweep", "nginx-static", "size=512..4096", "--series", "nodelay-off", "--set", "REQUESTS=200"
    )
    assert code == Exit.OK
    assert "stops stalling at PAGE_BYTES=1448, the first clean size (last stalled: 1447)" in out
    assert {name for name, _ in asked} == {"nodelay-off"}
    assert all(settings["REQUESTS"] == "200" for _, settings in asked)
    assert len(err.splitlines()) == len(asked)


def test_json_is_alone_on_stdout(run, asked):
    code, out, _ = run("sweep", "nginx-static", "size=1024..2048", "--json")
    content = json.loads(out)
    assert (code, content["schema"], content["parameter"]) == (Exit.OK, "nagle-lab-sweep/1", "PAGE_BYTES")
    off, on = content["series"]
    assert off["edges"] == [{"below": 1447, "above": 1448, "sharp": True, "blurs": []}]
    sizes = [point["size"] for point in off["points"]]
    assert sizes == sorted(sizes) and len(off["again"]) == 2
    assert (on["name"], on["edges"]) == ("nodelay-on", [])


def test_ctrl_c_ends_with_what_is_done(run, monkeypatch):
    def make_run(scenario, variant, settings, *rest):
        if settings["PAGE_BYTES"] != "64":
            raise KeyboardInterrupt
        return judge_run(REFERENCE / "nginx-static-nodelay-off")

    monkeypatch.setattr(command, "make_run", make_run)
    code, out, err = run("sweep", "nginx-static")
    assert code == Exit.INTERRUPTED
    assert [line.split()[0] for line in out.splitlines() if "100%" in line] == ["64"]
    assert err.splitlines()[-1] == "nagle-lab: interrupted"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["moon"], "no scenario 'moon'"),
        (["nginx-static", "size=2..1"], "write the sizes as NAME=LO..HI"),
        (["nginx-static", "--series", "moon"], "no series 'moon'; choose from nodelay-off, nodelay-on"),
        (["nginx-static", "--set", "REQUESTS"], "not NAME=VALUE"),
        (["nginx-static", "--set", "SIZE=3"], "SIZE is not a parameter of nginx-static"),
    ],
)
def test_wrong_usage_is_one_line_before_any_run(run, asked, arguments, says):
    code, out, err = run("sweep", *arguments)
    assert (code, out, asked) == (Exit.UNUSABLE, "", [])
    assert says.replace("; choose", ": choose") in err and err.count("\n") == 1
