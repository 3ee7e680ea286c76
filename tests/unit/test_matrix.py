"""The matrix: what comes of many runs, its figures, claims, tables and exit codes. No run here is a real one."""

import io
import json
import math
from dataclasses import fields, replace

import pytest
from msgspec import structs
from rich.console import Console

from nagle_lab.cli.lab import matrix as command
from nagle_lab.diagnosis.result.verdict import Verdict
from nagle_lab.errors import Exit, NagleLabError, worst
from nagle_lab.experiments import trials
from nagle_lab.experiments.matrix import Reproduction, claims_of, fill, plan, weigh
from nagle_lab.experiments.trials import TrialOutcome, attempt, outcome_of
from nagle_lab.lab.scenarios.scenario import Claim, Scenario
from nagle_lab.lab.scenarios.scenario_file import find_scenario
from nagle_lab.reports.experiments.matrix import claim_in_words, heading, markdown, show_matrix
from nagle_lab.reports.words.numbers import delayed_acks, number, share
from nagle_lab.runs.figures import MEASURES, Figures, figures_of, medians
from nagle_lab.runs.run import judge_run
from support.experiments import filled
from support.repository import REFERENCE

FIGURES = Figures(1.0, 43.2, 47.9, 2358.0, 42.4, 42.0, 48.0, 5.7, 1.4, 900, 900)
CLEAN = Figures(0.0, None, None, 31188.0, 3.2, 3.0, 9.0, 4.8, 1.33, 0, 0)


def fine(verdict: Verdict = Verdict.STALL, figures: Figures = FIGURES) -> TrialOutcome:
    return TrialOutcome(Exit.OK, verdict, "", "a-run", figures)


CONTRADICTED = TrialOutcome(Exit.CONTRADICTED, Verdict.CLEAN, "expected STALL, found CLEAN", "a-run", CLEAN)
UNABLE = TrialOutcome(
    Exit.INCONCLUSIVE, Verdict.INCONCLUSIVE, "this machine cannot run it: it has no moon", None, None
)
FAILED = TrialOutcome(Exit.UNUSABLE, None, "the server does not listen", None, None)


@pytest.fixture
def two(nginx: Scenario) -> Scenario:
    """nginx's scenario with two variants only."""
    names = ("nodelay-off", "nodelay-on")
    return structs.replace(nginx, variants={name: nginx.variants[name] for name in names})


def screen(matrix, width: int = 100) -> str:
    to = Console(file=io.StringIO(), width=width, color_system=None)
    show_matrix(matrix, to)
    return to.file.getvalue()


@pytest.mark.parametrize(
    ("outcomes", "code"),
    [
        ((fine(), fine()), Exit.OK),
        ((fine(), CONTRADICTED), Exit.CONTRADICTED),
        ((UNABLE, CONTRADICTED), Exit.CONTRADICTED),
        ((CONTRADICTED, FAILED), Exit.UNUSABLE),
        ((fine(), UNABLE), Exit.INCONCLUSIVE),
        ((UNABLE, FAILED), Exit.UNUSABLE),
    ],
)
def test_the_worst_run_decides_the_exit_code(two, outcomes, code):
    assert filled(two, *outcomes).code is code


def test_no_code_is_ok():
    assert worst([]) is Exit.OK


def test_the_whole_matrix_is_run_before_any_of_it_again(two):
    order = []
    fill(plan([two], 2), lambda row: order.append(row.variant.name) or fine())
    assert order == ["nodelay-off", "nodelay-on"] * 2


def test_repeats_show_how_many_are_as_expected_and_the_median(two):
    runs = [fine(figures=replace(FIGURES, requests_per_s=rate)) for rate in (1000.0, 3000.0, 2000.0)]
    clean = fine(Verdict.CLEAN, CLEAN)
    matrix = filled(two, runs[0], clean, runs[1], clean, runs[2], CONTRADICTED, repeat=3)
    first, second = matrix.rows
    assert (first.as_expected, second.as_expected) == (3, 2)
    assert first.figures.requests_per_s == 2000.0
    shown = screen(matrix)
    words = " ".join(shown.split())
    assert "nodelay-off STALL 3/3 100% 43.2 / 47.9 2,000 5.70" in words and "nodelay-on CLEAN 2/3 0%" in words
    assert "5 of 6 runs as expected, in 1 min 15 s" in shown


def test_what_the_machine_cannot_run_and_what_failed_is_shown_with_its_reason_and_never_as_passed(two):
    shown = screen(filled(two, UNABLE, FAILED))
    lines = {line.split()[0]: line.split() for line in shown.splitlines() if line.startswith("nodelay-")}
    assert lines["nodelay-off"] == ["nodelay-off", "INCONCLUSIVE", *"–––––––"]
    assert lines["nodelay-on"] == ["nodelay-on", "error", "NO", *"––––––"]
    assert "0 of 2 runs as expected" in shown
    assert "nginx-static nodelay-off: this machine cannot run it: it has no moon" in shown
    assert "nginx-static nodelay-on: the server does not listen" in shown


def test_verdicts_that_differ_are_all_shown(two):
    matrix = filled(two, fine(), fine(Verdict.CLEAN, CLEAN), UNABLE, FAILED, repeat=2)
    assert [row.verdicts for row in matrix.rows] == ["1 STALL, 1 INCONCLUSIVE", "1 CLEAN, 1 error"]


@pytest.mark.parametrize("width", [100, 140])
def test_the_tables_fit_the_screen_and_no_figure_is_broken(nginx, width):
    slow = replace(FIGURES, wait_p50_ms=143.6, wait_p99_ms=147.4)
    outcomes = [UNABLE, fine(figures=slow), *[fine(Verdict.CLEAN, CLEAN)] * (len(nginx.variants) - 2)]
    shown = screen(filled(nginx, *outcomes), width)
    assert max(map(len, shown.splitlines())) <= width
    for name in nginx.variants:
        assert any(line.startswith(f"{name} ") for line in shown.splitlines())
    row = next(line for line in shown.splitlines() if line.startswith("nodelay-on "))
    assert row.split() == [
        "nodelay-on",
        "STALL",
        "yes",
        "100%",
        "144",
        "/",
        "147",
        "2,358",
        "5.70",
        "1.40",
        "900/900",
    ]


def test_an_interrupted_matrix_shows_what_is_done_and_says_what_is_not(two):
    matrix = plan([two], 1)

    def once(row):
        if matrix.done:
            raise KeyboardInterrupt
        return fine()

    with pytest.raises(KeyboardInterrupt):
        fill(matrix, once)
    shown = screen(matrix)
    assert "1 of 1 runs as expected, 1 not made" in shown
    assert not any(line.startswith("nodelay-on ") for line in shown.splitlines())


def test_the_page_of_markdown_has_the_same_figures(two):
    page = markdown(filled(two, fine(), UNABLE))
    assert "| nodelay-off | STALL | yes | 100% | 43.2 / 47.9 | 2,358 | 5.70 | 1.40 | 900/900 |" in page
    assert "| nodelay-on | INCONCLUSIVE | – | – | – | – | – | – | – |" in page
    assert "- nginx-static nodelay-on: this machine cannot run it: it has no moon" in page
    assert "2026-11-21, Linux 6.18, 2 CPUs." in page
    assert "| **not measured** |" in page and "| **reproduced** |" in page
    rows = [line for line in page.splitlines() if line.startswith("|")]
    assert {line.count(" | ") for line in rows} == {8, 3}


def test_json_holds_every_run(two):
    content = json.loads(json.dumps(filled(two, fine(), FAILED).to_json()))
    assert (content["schema"], content["exit_code"], content["runs"]) == (
        "nagle-lab-matrix/1",
        2,
        {"planned": 2, "done": 2},
    )
    variants = content["scenarios"][0]["variants"]
    assert variants[0]["medians"]["requests_per_s"] == 2358.0
    assert variants[1]["runs"][0] == {
        "code": 2,
        "verdict": None,
        "reason": "the server does not listen",
        "folder": None,
        "figures": None,
    }


CLAIM = Claim("44.6 ms", "mean_ms", "nodelay-off", (38.0, 52.0), "x", partly=(30.0, 70.0))
RATIO = structs.replace(CLAIM, against="nodelay-on", reproduced=(10.0, 14.0), partly=None)


@pytest.mark.parametrize(
    ("ms", "mark"),
    [
        (38.0, Reproduction.REPRODUCED),
        (52.0, Reproduction.REPRODUCED),
        (30.0, Reproduction.PARTLY),
        (52.1, Reproduction.PARTLY),
        (29.9, Reproduction.NOT),
    ],
)
def test_the_mark_of_a_claim(ms, mark):
    result = weigh(CLAIM, {"nodelay-off": replace(FIGURES, mean_ms=ms)})
    assert (result.mark, result.figure) == (mark, ms)


def test_a_claim_of_two_variants_is_a_ratio():
    result = weigh(RATIO, {"nodelay-off": FIGURES, "nodelay-on": CLEAN})
    assert (result.mark, round(result.figure, 2)) == (Reproduction.REPRODUCED, 13.25)
    assert (
        weigh(RATIO, {"nodelay-off": FIGURES, "nodelay-on": replace(CLEAN, mean_ms=0.0)}).mark is Reproduction.UNKNOWN
    )
    assert weigh(RATIO, {"nodelay-off": FIGURES, "nodelay-on": FIGURES}).mark is Reproduction.NOT


def test_what_was_not_run_is_not_measured(two):
    assert weigh(CLAIM, {}).mark is Reproduction.UNKNOWN
    assert weigh(CLAIM, {"nodelay-off": None}).mark is Reproduction.UNKNOWN
    matrix = filled(two, UNABLE, fine(Verdict.CLEAN, CLEAN))
    marks = {result.claim.of: result.mark for result in claims_of(two, matrix.rows) if not result.claim.against}
    assert marks == {"nodelay-off": Reproduction.UNKNOWN, "nodelay-on": Reproduction.PARTLY}


def test_every_measure_is_a_figure():
    assert list(MEASURES) == [field.name for field in fields(Figures)]


def test_the_figures_of_a_run_are_those_of_its_captures_witnesses_and_load():
    run = judge_run(REFERENCE / "nginx-static-nodelay-off")
    figures = figures_of(run)
    summary = run.results[run.best].summary
    assert figures.stalled_share == 1.0
    assert (figures.wait_p50_ms, figures.wait_p99_ms) == (summary.wait_ms.p50, summary.wait_ms.p99)
    assert (figures.delayed_acks, figures.kernel_delayed_acks) == (96, 96)
    load = run.witnesses.load
    assert (figures.requests_per_s, figures.mean_ms) == (load.requests_per_s, load.mean_ms)
    assert figures.packets_per_request == sum(summary.packets_by.values()) / 100
    assert figures.wire_bytes_per_payload_byte == summary.wire_bytes / summary.payload_bytes


def test_where_an_end_is_not_captured_its_kernel_does_not_count():
    run = judge_run(REFERENCE / "nginx-static-nodelay-off")
    manifest = structs.replace(run.manifest, namespaces={"server": run.manifest.namespaces["server"]})
    figures = figures_of(replace(run, manifest=manifest))
    assert (figures.delayed_acks, figures.kernel_delayed_acks) == (96, None)
    assert delayed_acks(figures) == "96/–"


def test_only_a_run_that_tells_has_figures():
    run = judge_run(REFERENCE / "nginx-static-nodelay-off")
    assert outcome_of(run) == TrialOutcome(Exit.OK, Verdict.STALL, "", run.folder.name, figures_of(run))
    invalid = outcome_of(replace(run, verdict=Verdict.INVALID, reason="lossy"))
    assert (invalid.code, invalid.reason, invalid.figures) == (Exit.UNUSABLE, "lossy", None)
    unlike = outcome_of(replace(run, contradictions=["the wrong end"]))
    assert (unlike.code, unlike.reason, unlike.as_expected) == (Exit.CONTRADICTED, "the wrong end", False)


def test_medians_leave_out_what_a_run_has_not():
    several = [FIGURES, CLEAN, replace(FIGURES, wait_p50_ms=45.2, requests_per_s=10.0)]
    found = medians(several)
    assert (found.wait_p50_ms, found.requests_per_s) == (pytest.approx(44.2), 2358.0)
    assert medians([]) is None
    assert medians([CLEAN]).wait_p50_ms is None


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (NagleLabError("no moon", Exit.INCONCLUSIVE), (Exit.INCONCLUSIVE, Verdict.INCONCLUSIVE, "no moon")),
        (NagleLabError("no server"), (Exit.UNUSABLE, None, "no server")),
        (ValueError("a mistake"), (Exit.UNUSABLE, None, "ValueError: a mistake")),
    ],
)
def test_whatever_goes_wrong_in_a_run_is_its_outcome(error, outcome):
    def make():
        raise error

    run, found = attempt(make)
    assert run is None
    assert (found.code, found.verdict, found.reason) == outcome


def test_an_interruption_is_no_outcome():
    def make():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        attempt(make)


@pytest.mark.parametrize(
    ("value", "text"),
    [(1.0, "100%"), (0.9996, "99.9%"), (0.98, "98%"), (0.0001, "0.1%"), (0.0, "0%"), (0.004, "0.4%")],
)
def test_a_share_is_not_rounded_to_all_or_nothing(value, text):
    assert share(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (0.0, "0"),
        (0.00253, "0.00253"),
        (0.25, "0.25"),
        (4.75, "4.75"),
        (43.94, "43.9"),
        (9513.2, "9,513"),
    ],
)
def test_numbers_have_three_figures(value, text):
    assert number(value) == text


# ------------------------------------------------------------------------------------- the command


@pytest.fixture
def recorded(monkeypatch):
    """Instead of recording, the reference run of the same name; a variant without one fails. Gives what was asked."""
    asked = []

    def make_run(scenario, variant, settings, runs, progress):
        asked.append(variant.name)
        folder = REFERENCE / f"{scenario.name}-{variant.name}"
        if not folder.exists():
            raise NagleLabError(f"no {folder.name}", Exit.INCONCLUSIVE)
        return judge_run(folder)

    monkeypatch.setattr(command, "make_run", make_run)
    return asked


def test_the_command_prints_tables_on_stdout_and_a_line_per_run_on_stderr(run, recorded, nginx, tmp_path):
    files = tmp_path / "m.json", tmp_path / "m.md"
    code, out, err = run("matrix", "nginx-static", "--json", files[0], "--markdown", files[1])
    assert code == Exit.INCONCLUSIVE  # all but the reference runs
    assert recorded == list(nginx.variants)
    assert len(err.splitlines()) == len(nginx.variants)
    assert f"1/{len(nginx.variants)} nginx-static nodelay-off: STALL, as expected" in err
    assert "nodelay-off            STALL" in out
    content = json.loads(files[0].read_text())
    assert content["scenarios"][0]["variants"][0]["runs"][0]["verdict"] == "STALL"
    assert content["cpus"] and content["versions"]["kernel"]
    assert files[1].read_text().startswith("# Matrix: every variant of nginx-static\n")


def test_ctrl_c_ends_with_what_is_done(run, monkeypatch):
    def make_run(scenario, variant, *rest):
        if variant.name != "nodelay-off":
            raise KeyboardInterrupt
        return judge_run(REFERENCE / "nginx-static-nodelay-off")

    monkeypatch.setattr(command, "make_run", make_run)
    code, out, err = run("matrix", "nginx-static")
    assert code == Exit.INTERRUPTED
    assert "nodelay-off" in out and "nodelay-on " not in out.split("published")[0]
    assert "nagle-lab: interrupted after 1 of" in err.splitlines()[-1]


@pytest.mark.parametrize("name", ["", "missing/m.json"])
def test_a_file_that_cannot_be_written_is_refused_before_any_run(run, recorded, tmp_path, name):
    code, _, err = run("matrix", "nginx-static", "--json", tmp_path / name)
    assert (code, recorded) == (Exit.UNUSABLE, [])
    assert "cannot be written" in err and err.count("\n") == 1


@pytest.mark.parametrize("arguments", [["moon"], ["--repeat", "0"]])
def test_wrong_usage_is_refused_before_any_run(run, recorded, arguments):
    code, _, err = run("matrix", *arguments)
    assert (code, recorded) == (Exit.UNUSABLE, [])
    assert err.count("\n") == 1


def test_the_run_is_judged_and_stored(monkeypatch, nginx, tmp_path):
    done = []
    monkeypatch.setattr(trials, "record", lambda *_, **__: REFERENCE / "nginx-static-nodelay-off")
    monkeypatch.setattr(trials, "store", done.append)
    made = trials.make_run(nginx, nginx.variant("nodelay-off"), {}, tmp_path, lambda stage: None)
    assert done == [made]
    assert math.isclose(figures_of(made).stalled_share, 1.0)


def test_a_unit_is_said_once():
    """In the words of a measure, or behind its figure."""
    rate = structs.replace(CLAIM, measure="requests_per_s")
    said = [claim_in_words(weigh(claim, {"nodelay-off": FIGURES})) for claim in (rate, CLAIM)]
    assert (said[0].figure, said[0].what) == ("2,358", "requests per second, nodelay-off")
    assert said[1].figure.endswith(" ms") and said[1].what == "mean time of a request, nodelay-off"


def test_the_heading_names_what_was_run():
    several = [find_scenario(name) for name in ("redis-proxy", "nginx-static", "node-keepalive")]
    assert heading(plan(several[:1], 1)) == "Matrix: every variant of redis-proxy"
    assert heading(plan(several[:2], 1)) == "Matrix: every variant of redis-proxy and nginx-static"
    assert heading(plan(several, 1)).endswith("redis-proxy, nginx-static and node-keepalive")
