"""The soak: its plan, going on where it was left, its table and its exit code. No run here is a real one."""

import fcntl
import io
import json
import signal
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from rich.console import Console

from nagle_lab.errors import Exit, NagleLabError
from nagle_lab.lab.containers.process import Finished
from nagle_lab.lab.folder import RunFolder
from nagle_lab.lab.scenarios.scenario_file import scenarios
from soak import command
from soak.plan import LOADS, Entry, Soak, Trial, plan, read, write
from soak.table import markdown, show_soak
from support.repository import REFERENCE
from support.waiting import within

ALONE, FOUR = LOADS[-1], LOADS[-2]
STALLED = Trial(ALONE, "nginx-static", "nodelay-off", "STALL")
FIXED = Trial(ALONE, "nginx-static", "nodelay-on", "CLEAN")
BUSY = replace(STALLED, load=FOUR)

# Stands in for `nagle-lab run`: writes a run folder, prints a result, and ends as its variant says.
RUN = """
import json, pathlib, sys, time
_, scenario, variant, _, _, runs = sys.argv
if variant == "slow":
    pathlib.Path(runs, "began").touch()
    time.sleep(60)
if variant == "cut":
    print('{"verdict": "ST')
    sys.exit(0)
if variant == "dies":
    print("nagle-lab: the server does not listen", file=sys.stderr)
    sys.exit(2)
code = {"wrong": 1, "unsure": 3}.get(variant, 0)
folder = pathlib.Path(runs, "20261121T010203.004Z-" + variant)
folder.mkdir()
(folder / "manifest.json").write_text(json.dumps({"timings_s": {"start": 1.5, "load": 0.5}, "versions": {
    "git_revision": "0123456789abcdef-dirty", "kernel": "6.18", "docker": "20.10"}}))
(folder / "witnesses.json").write_text(json.dumps({"captures": {
    "server": {"captured": 90, "received": 100, "dropped": 3, "dropped_by_interface": 0},
    "client": {"captured": 100, "received": 100, "dropped": 0, "dropped_by_interface": 0}}}))
fine = variant == "fine"
checks = [{"name": "load", "ok": True}, {"name": "segments at the server", "ok": fine}, {"name": "noise", "ok": fine}]
verdict = {"wrong": "CLEAN", "unsure": "INCONCLUSIVE"}.get(variant, "STALL")
contradictions = [f"expected STALL, found {verdict}"] if code else []
reason = "timers 30 ms late" if variant == "unsure" else ""
print(json.dumps({"verdict": verdict, "reason": reason, "contradictions": contradictions, "checks": checks}))
sys.exit(code)
"""


def entry(trial: Trial, verdict: str | None = None, code: Exit = Exit.OK, reason: str = "") -> Entry:
    return Entry(
        *trial.key, trial.expected, verdict or trial.expected, code, reason, None, [], 100, 0, {"start": 1.0},
        {"timer_late_us": {"p50": 100, "p99": 900, "max": 12_340}, "handshake_us": None},
        "0123456789abcdef", "Linux 6.18, Docker 20.10, 2 CPUs",
    )  # fmt: skip


def test_the_plan_is_what_it_promises():
    made = plan(list(scenarios().values()))
    count = {(load.name, scenario): 0 for load in LOADS for scenario in scenarios()}
    for trial in made:
        count[trial.load.name, trial.scenario] += 1
    assert {count["none", name] for name in scenarios() if name != "nginx-static"} == {2 * 30}
    assert count["none", "nginx-static"] == 2 * 200
    for load in LOADS[:-1]:
        assert {count[load.name, name] for name in scenarios()} == {2 * 5}
    assert {trial.expected for trial in made} == {"STALL", "CLEAN"}
    assert len(plan(list(scenarios().values()), at_most=1, only=["cpu"])) == 2 * len(scenarios())


def test_a_load_that_there_is_not_is_named():
    with pytest.raises(NagleLabError, match="no load 'moon': choose from cpu, memory, disk, four at once, none"):
        plan([], only=["moon"])


def test_what_is_left_is_what_was_not_made():
    soak = Soak([STALLED, STALLED, FIXED], [entry(FIXED), entry(STALLED)])
    assert soak.left() == [STALLED]


def test_a_run_that_came_to_no_verdict_is_made_again():
    failed = replace(entry(STALLED, code=Exit.UNUSABLE, reason="no engine"), verdict=None)
    assert Soak([STALLED], [failed]).left() == [STALLED]


@pytest.mark.parametrize(
    ("entries", "code"),
    [
        ([entry(STALLED), entry(BUSY)], Exit.OK),
        ([entry(BUSY, "INCONCLUSIVE", Exit.INCONCLUSIVE, "timers 30 ms late")], Exit.OK),
        ([entry(STALLED, "INCONCLUSIVE", Exit.INCONCLUSIVE, "timers 30 ms late")], Exit.INCONCLUSIVE),
        ([entry(BUSY, "CLEAN", Exit.CONTRADICTED, "expected STALL, found CLEAN")], Exit.CONTRADICTED),
        ([entry(BUSY, "INVALID", Exit.UNUSABLE, "lost"), entry(STALLED)], Exit.UNUSABLE),
        ([entry(FIXED, "STALL", Exit.CONTRADICTED, "of another soak")], Exit.OK),
    ],
)
def test_only_under_load_may_a_run_be_inconclusive(entries, code):
    assert Soak([STALLED, BUSY], entries).code is code


def test_the_table_counts_and_says_what_was_not_as_expected():
    wrong = entry(BUSY, "CLEAN", Exit.CONTRADICTED, "expected STALL, found CLEAN\x1b[31m")
    soak = Soak([BUSY, BUSY, STALLED, FIXED], [entry(BUSY), replace(wrong, lost=7), entry(STALLED)])
    to = Console(file=io.StringIO(), width=100, color_system=None)
    show_soak(soak, to)
    shown = to.file.getvalue()
    assert "3 runs: 2 as expected, 1 wrong verdict, 0 INCONCLUSIVE; 1 still to be made" in shown
    assert "load four at once, nginx-static nodelay-off: CLEAN: expected STALL, found CLEAN\\x1b[31m" in shown
    page = markdown(soak)
    assert "| four at once: 1 variant | 2 | 1 STALL, 1 CLEAN | 1 | 1 | 0 | 200 | 7 | 12.3 | start 1.0/1.0 |" in page
    assert "| nginx-static nodelay-on | 0 of 1 | – | 0 | 0 | 0 | 0 | 0 | – | – |" in page
    assert "Linux 6.18, Docker 20.10, 2 CPUs. Revisions: 0123456789." in page


def test_a_log_is_read_as_it_was_written_and_another_file_is_refused(tmp_path: Path):
    log = tmp_path / "soak.jsonl"
    assert read(log) == []
    write(log, [entry(STALLED), entry(BUSY)])
    assert [asdict(e) for e in read(log)] == [asdict(entry(STALLED)), asdict(entry(BUSY))]
    log.write_text(log.read_text()[:-20])
    with pytest.raises(NagleLabError, match="not a log of this version's soak: begin another with --fresh"):
        read(log)


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch) -> Path:
    """A folder of runs; what is run there is the stand-in."""
    script = tmp_path / "run.py"
    script.write_text(RUN)
    monkeypatch.setattr(command, "_RUN", [sys.executable, str(script)])
    return tmp_path / "runs"


def soaked(runs: Path, monkeypatch, *trials: Trial, fresh: bool = False) -> tuple[Exit, list[Entry]]:
    monkeypatch.setattr(command, "plan", lambda *_: list(trials))
    code = command.run_soak((), runs, at_most=None, only=(), fresh=fresh, markdown_file=None)
    return code, read(runs / "soak.jsonl")


def of(variant: str, *, at_once: bool = False) -> Trial:
    return Trial(FOUR if at_once else ALONE, "nginx-static", variant, "STALL")


def test_runs_are_made_once_and_only_those_not_as_expected_are_kept(stand_in: Path, monkeypatch, capsys):
    code, entries = soaked(stand_in, monkeypatch, of("fine"), of("wrong"), of("dies"))
    assert code is Exit.UNUSABLE
    fine, wrong, dies = entries
    assert (fine.verdict, fine.reason, fine.captured, fine.lost, fine.disagreeing) == ("STALL", "", 190, 13, [])
    assert (fine.stages_s, fine.revision) == ({"start": 1.5, "load": 0.5}, "0123456789abcdef-dirty")
    assert (wrong.verdict, wrong.wrong, wrong.reason) == ("CLEAN", True, "expected STALL, found CLEAN")
    assert wrong.disagreeing == ["segments at the server"]
    assert (dies.verdict, dies.code, dies.reason, dies.captured) == (None, 2, "the server does not listen", 0)
    assert {path.name for path in stand_in.iterdir()} == {".soak.lock", "soak.jsonl", str(wrong.folder)}
    assert (stand_in / str(wrong.folder) / "manifest.json").exists()

    assert "3/3 load: none, nginx-static dies: error, the server does not listen" in capsys.readouterr().err
    assert soaked(stand_in, monkeypatch, of("fine"), of("wrong"), of("fine"))[1][:3] == entries
    assert "2 of 3 runs are made already" in capsys.readouterr().err
    assert len(soaked(stand_in, monkeypatch, of("fine"), fresh=True)[1]) == 1


@pytest.mark.parametrize("ended", [RunFolder.complete, RunFolder.fail])
def test_the_folder_of_a_run_is_found_be_it_complete_or_failed(tmp_path: Path, ended):
    assert command._recorded_in(tmp_path) is None
    run = RunFolder.create(tmp_path, "a-b")
    assert command._recorded_in(tmp_path) is None
    assert ended(run) == command._recorded_in(tmp_path)


def test_the_command_of_a_run_is_nagle_lab_run(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(command, "_RUN", [*command._RUN, "--set", "COLOUR=red"])  # so that nothing is started
    entry = command._make(STALLED, tmp_path, set())
    assert (entry.verdict, entry.code) == (None, Exit.UNUSABLE)
    assert entry.reason.startswith("COLOUR is not a parameter of nginx-static")
    assert list(tmp_path.iterdir()) == []


def test_what_is_kept_of_a_run_is_what_a_run_writes(run):
    """The stand-in is held to a real run folder."""
    folder = REFERENCE / "nginx-static-nodelay-off"
    finished = Finished((), Exit.OK, run("show", "--json", folder).out, "")
    kept = command._entry(STALLED, finished, folder, None)
    assert (kept.verdict, kept.reason, kept.disagreeing, kept.lost) == ("STALL", "", [], 0)
    assert kept.captured == 2 * 528 and kept.stages_s["load"] > 0 and kept.noise and kept.revision
    assert "None" not in kept.machine


def test_why_a_run_is_inconclusive_is_kept(stand_in: Path, monkeypatch):
    code, entries = soaked(stand_in, monkeypatch, of("unsure"))
    assert (code, entries[0].verdict, entries[0].reason) == (3, "INCONCLUSIVE", "timers 30 ms late")


def test_a_run_whose_output_is_cut_has_no_verdict(stand_in: Path, monkeypatch):
    assert soaked(stand_in, monkeypatch, of("cut"))[1][0].verdict is None


def test_a_soak_whose_runs_come_to_nothing_ends(stand_in: Path, monkeypatch, capsys):
    with pytest.raises(
        NagleLabError, match=r"^3 runs in a row came to no verdict: the server does not listen; then "
    ):
        soaked(stand_in, monkeypatch, of("fine"), *[of("dies")] * 5)
    assert [e.verdict for e in read(stand_in / "soak.jsonl")] == ["STALL", None, None, None]
    assert "4 runs: 1 as expected" in capsys.readouterr().out


def test_runs_count_only_while_the_load_is_there(stand_in: Path, monkeypatch):
    """It ends during the second run: that one does not count."""
    ends = iter([False, True])

    @contextmanager
    def pressure(*_):
        def require() -> None:
            if next(ends):
                raise NagleLabError("the stress ended with exit code 137")

        yield require

    monkeypatch.setattr(command, "pressure", pressure)
    busy = replace(of("fine"), load=LOADS[0])
    with pytest.raises(NagleLabError, match="the stress ended with exit code 137; then the same command continues"):
        soaked(stand_in, monkeypatch, *[busy] * 3)
    assert len(read(stand_in / "soak.jsonl")) == 1


def test_what_a_killed_soak_left_is_cleared_away_but_not_under_a_run_that_goes_on(stand_in: Path):
    over, live = stand_in / "now-over", stand_in / "now-live"
    for folder in (over, live):
        folder.mkdir(parents=True)
        (folder / ".a.lock").touch()
    with (live / ".a.lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with command._only_soak(stand_in):
            assert (over.exists(), live.exists()) == (False, True)
    with command._only_soak(stand_in):
        assert not live.exists()


def test_several_at_once_all_arrive(stand_in: Path, monkeypatch):
    code, entries = soaked(stand_in, monkeypatch, *[of("fine", at_once=True)] * 9)
    assert (code, len(entries)) == (Exit.OK, 9)


def test_a_second_soak_in_the_same_folder_is_refused(stand_in: Path, monkeypatch):
    with command._only_soak(stand_in), pytest.raises(NagleLabError, match="another soak records into"):
        soaked(stand_in, monkeypatch, of("fine"))


INTERRUPTED = """
import sys
sys.path.insert(0, sys.argv[3])
from soak import command
from soak.plan import LOADS, Trial
command._RUN = [sys.executable, sys.argv[1]]
command.plan = lambda *_: [Trial(LOADS[-1], "nginx-static", name, "STALL") for name in ("fine", "slow")]
from pathlib import Path
sys.exit(command.run_soak((), Path(sys.argv[2]), at_most=None, only=(), fresh=False, markdown_file=None))
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_an_interrupted_soak_ends_its_run_and_goes_on_later(stand_in: Path, number: signal.Signals):
    process = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED, stand_in.parent / "run.py", stand_in, Path(command.__file__).parents[1]],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,
    )
    assert within(30, lambda: list(stand_in.glob("now-*/began")) or process.poll() is not None)
    process.send_signal(number)
    shown, errors = process.communicate(timeout=30)
    assert process.returncode == 130, errors
    assert errors.splitlines()[-1] == "nagle-lab: interrupted: the same command continues from here"
    assert "1 run: 1 as expected, 0 wrong verdicts, 0 INCONCLUSIVE; 1 still to be made" in shown
    assert [e.variant for e in read(stand_in / "soak.jsonl")] == ["fine"]
    assert list(stand_in.glob("now-*")) == []
    assert json.loads((stand_in / "soak.jsonl").read_text())["verdict"] == "STALL"
