"""The workshop: its data, its screens, its score and its exit codes, without a lab."""

import io
import os
import pty
import re
import select
import shutil
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from rich.console import Console

from nagle_lab.cli import demo as command
from nagle_lab.cli.workshop.answers import Person, Prepared, Quit, prepared
from nagle_lab.cli.workshop.screens import WIDTH
from nagle_lab.cli.workshop.script import workshop
from nagle_lab.cli.workshop.walk import Walk
from nagle_lab.errors import Exit, NagleLabError
from nagle_lab.experiments.trials import Outcome
from nagle_lab.lab.scenario import REPOSITORY
from nagle_lab.lab.scenario_file import scenarios

TOLD = workshop()
NAGLE_LAB = Path(sys.executable).with_name("nagle-lab")
PROMPT = "\x00"  # stands for whatever is asked, in what a walk has shown


def walked(answers, told=TOLD, play=command._stored) -> tuple[str, Walk, Exit]:
    """A whole walk; what it has shown, itself, and its exit code."""
    shown = io.StringIO()
    walk = Walk(told, answers, play, Console(file=shown, width=WIDTH, highlight=False, markup=False, emoji=False))
    code = walk.go()
    return shown.getvalue(), walk, code


PUBLISHED = {"nginx-static", "redis-proxy", "message-queue", "node-keepalive", "unbuffered-proxy"}


def test_every_published_incident_is_told_and_every_verdict_is_among_the_mysteries():
    told = {incident.scenario.name for incident in TOLD.incidents}
    assert told >= PUBLISHED
    assert told == {name for name in scenarios() if (REPOSITORY / "scenarios" / name / "demo.toml").exists()}
    assert {mystery.verdict for mystery in TOLD.mysteries} == {"STALL", "CLEAN"}
    assert {mystery.truth for mystery in TOLD.mysteries} >= {"server", "client", "server_think"}


def test_what_a_learner_reads_is_spread_over_the_numbers():
    """Nobody scores by always typing the same number."""
    right = [question.right for question in TOLD.questions]
    assert max(map(right.count, right)) <= len(right) // 2 + 1
    assert all(choice.text for question in TOLD.questions for choice in question.choices)


def test_the_good_answers_score_all_of_it_and_every_run_is_as_expected():
    shown, walk, code = walked(prepared("good", TOLD.questions))
    assert code is Exit.OK
    asked = len(TOLD.questions)
    assert (walk.right, walk.asked) == (asked, asked)
    assert f"Score: {asked} of {asked}" in shown
    for incident in TOLD.incidents:
        assert f" STALL   {incident.scenario.name} / {incident.scenario.stalled}" in shown
        assert f" CLEAN   {incident.scenario.name} / {incident.scenario.fixed}" in shown
    assert len(re.findall(r"│  trigger\n", shown)) == len(re.findall(r"│  late ACK\n", shown)) == 7
    assert not re.search(r"You said \d\. It is", shown)


def test_wrong_answers_score_nothing_are_told_why_and_change_no_exit_code():
    wrong = [question.right % len(question.choices) + 1 for question in TOLD.questions]
    shown, walk, code = walked(Prepared(wrong))
    assert (walk.right, walk.asked, code) == (0, 17, Exit.OK)
    flat = " ".join(shown.split())
    for question, chosen in zip(TOLD.questions, wrong, strict=True):
        right = question.choices[question.right - 1].text
        assert " ".join(f"You said {chosen}. It is {question.right}: {right}".split()) in flat
        assert " ".join((question.choices[chosen - 1].wrong or "").split()) in flat


@pytest.mark.parametrize("number", [1, 2, 3, 4, None], ids=str)
def test_every_screen_fits_80_columns_and_24_lines(number):
    """Whatever is answered: what is shown between two prompts, with the line of the prompt itself."""
    shown = io.StringIO()
    screen = Console(file=shown, width=WIDTH, highlight=False, markup=False, emoji=False)

    class Reader:
        def choose(self, question):
            shown.write(f"\n{PROMPT}")
            return min(number or question.right, len(question.choices))

        def go_on(self):
            shown.write(f"\n{PROMPT}")

    Walk(TOLD, Reader(), command._stored, screen, without_lab=True).go()
    pages = shown.getvalue().split(PROMPT)
    assert len(pages) > 40
    for page in pages:
        assert len(page.splitlines()) <= 24, page
        assert max(map(len, page.splitlines()), default=0) < 80, page


def test_the_answers_of_a_file_are_checked_before_anything_runs(tmp_path):
    file = tmp_path / "answers.txt"
    for text, says in {
        "1\n2\n": "2 answers for 17 questions",
        "# a comment\n\n9\n": "line 3: '9' is no answer: 1 to 4",
        "one\n": "line 1: 'one' is no answer",
        "1\n" * 18: "18 answers for 17 questions",
    }.items():
        file.write_text(text)
        with pytest.raises(NagleLabError, match=re.escape(says)):
            prepared(str(file), TOLD.questions)
    with pytest.raises(NagleLabError, match="cannot be read"):
        prepared(str(tmp_path / "none"), TOLD.questions)


def test_a_file_may_leave_early(tmp_path):
    file = tmp_path / "answers.txt"
    file.write_text("2\n3\nq\n")
    shown, walk, code = walked(prepared(str(file), TOLD.questions))
    assert (walk.right, walk.asked, code) == (2, 2, Exit.OK)
    assert "left early" in shown
    assert "Score: 2 of 2" in shown


def typing(*lines: str) -> Person:
    """Somebody who types those lines, and then Ctrl-D."""
    left = list(lines)

    def ask(prompt: str) -> str:
        if not left:
            raise EOFError
        return left.pop(0)

    return Person(ask)


def test_a_person_is_asked_until_there_is_an_answer(capsys):
    question = TOLD.questions[0]
    assert typing("", "x", "0", "5", " 2 ").choose(question) == 2
    for lines in (["q"], ["Q"], []):
        with pytest.raises(Quit):
            typing(*lines).choose(question)
    with pytest.raises(Quit):
        typing("q").go_on()
    typing("").go_on()


@pytest.mark.parametrize("code", [Exit.CONTRADICTED, Exit.INCONCLUSIVE, Exit.UNUSABLE])
def test_a_run_that_is_not_as_expected_is_the_exit_code_and_the_walk_goes_on(code):
    def play(scenario, variant, settings):
        if variant.name == "nodelay-off":
            return None, Outcome(code, None, "said why", None, None)
        return command._stored(scenario, variant, settings)

    shown, walk, ended = walked(prepared("good", TOLD.questions), play=play)
    assert ended is code
    assert "said why" in shown
    assert walk.asked == 17


def test_a_run_that_contradicts_says_so():
    told = TOLD.part(("nginx-static",))

    def swapped(scenario, variant, settings):
        other = {"nodelay-off": "nodelay-on", "nodelay-on": "nodelay-off"}[variant.name]
        run, outcome = command._stored(scenario, scenario.variants[other], settings)
        run.contradictions.append("expected STALL, found CLEAN")
        return run, Outcome(
            run.exit_code(), *[getattr(outcome, f) for f in ("verdict", "reason", "folder", "figures")]
        )

    shown, _, code = walked(prepared("good", told.questions), told, swapped)
    assert code is Exit.CONTRADICTED
    assert "NOT AS EXPECTED: expected STALL, found CLEAN" in shown


def test_a_part_of_it(run):
    code, out, _ = run("demo", "--answers", "good", "--without-lab", "--scenario", "redis-proxy")
    assert code == 0
    assert "Score: 2 of 2" in out
    assert "Mystery" not in out
    assert "WITHOUT THE LAB: nothing is run." in out
    assert "Committed, not run now: captures/workshop/redis-proxy-nginx-nagle" in out
    code, out, _ = run("demo", "--answers", "good", "--scenario", "mysteries")  # needs no lab: nothing is run
    assert (code, "Score: 7 of 7" in out) == (0, True)
    code, out, err = run("demo", "--answers", "good", "--scenario", "no-such")
    assert (code, out) == (Exit.UNUSABLE, "")
    assert "nginx-static, redis-proxy" in err


def test_nobody_to_ask_is_an_error_of_one_line(run, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO())
    code, out, err = run("demo", "--without-lab")
    assert (code, out) == (Exit.UNUSABLE, "")
    assert "--answers good" in err
    assert err.count("\n") == 1


def test_without_docker_it_says_how_to_go_on(run, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    code, out, err = run("demo", "--answers", "good", "--scenario", "nginx-static")
    assert (code, out) == (Exit.UNUSABLE, "")
    assert "Docker is not installed" in err
    assert "--without-lab" in err


def test_the_outline_has_every_question_and_its_answer(run):
    code, out, _ = run("demo", "--outline")
    assert code == 0
    flat = " ".join(out.split())
    for question in TOLD.questions:
        assert f"{question.right} {question.choices[question.right - 1].text}" in flat
    assert f"{TOLD.minutes} min" in flat


@pytest.mark.parametrize(
    ("file", "change", "says"),
    [
        ("scenarios/nginx-static/demo.toml", ("incident = 1", "incident = 7"), "not numbered"),
        (
            "scenarios/nginx-static/demo.toml",
            ("minutes = 10", "hours = 1"),
            "demo.toml: Object contains unknown field `hours`",
        ),
        (
            "scenarios/nginx-static/demo.toml",
            ("minutes = 10", "minutes = 10\nhue = 1"),
            "demo.toml: Object contains unknown field `hue`",
        ),
        ("scenarios/nginx-static/demo.toml", ('REQUESTS = "200"', 'REQUEST = "200"'), "REQUEST is not a parameter"),
        (
            "scenarios/nginx-static/demo.toml",
            ('text = "All but the first one"', 'text = "x"\nwrong = "y"'),
            "0 right",
        ),
        ("captures/mysteries.toml", ('truth = "cork"', 'truth = "duck"'), "0 right"),
        ("captures/mysteries.toml", ("lookalikes/cork/", "lookalikes/quark/"), "no truth.json"),
    ],
    ids=lambda value: value if isinstance(value, str) and "/" not in value else "",
)
def test_a_mistake_in_the_data_is_named_by_file_and_key(tmp_path, file, change, says):
    for name in ("scenarios", "captures/lookalikes", "captures/mysteries.toml"):
        source, target = REPOSITORY / name, tmp_path / name
        target.parent.mkdir(exist_ok=True)
        if name == "captures/lookalikes":
            target.symlink_to(source)
        elif source.is_dir():
            shutil.copytree(source, target)
        else:
            shutil.copy(source, target)
    for name in ("compose.yaml", "nginx", "client"):
        (tmp_path / name).symlink_to(REPOSITORY / name)
    assert len(workshop(tmp_path).questions) == 17
    text = (tmp_path / file).read_text()
    assert change[0] in text
    (tmp_path / file).write_text(text.replace(*change))
    with pytest.raises(NagleLabError, match=re.escape(says)):
        workshop(tmp_path)


def on_a_terminal(*typed: bytes) -> tuple[int, str]:
    """The demo in a plain terminal, each piece typed when the screen is quiet; exit code and all that it showed."""
    mine, its = pty.openpty()
    login = ["setsid", "--ctty", "--wait"]  # Ctrl-C is a signal then
    environment = {**os.environ, "TERM": "dumb"}
    process = subprocess.Popen(
        [*login, NAGLE_LAB, "demo", "--without-lab"], stdin=its, stdout=its, stderr=its, env=environment
    )
    os.close(its)
    shown = _typed(mine, list(typed), process)
    os.close(mine)
    return process.wait(10), shown.decode()


def _typed(terminal: int, left: list[bytes], process: subprocess.Popen[bytes]) -> bytes:
    """All that appears while those are typed, each at a prompt, until it has ended or says nothing for 30 s."""
    shown = b""
    with suppress(OSError):  # how a terminal's end is read
        while select.select([terminal], [], [], 30)[0]:
            shown += os.read(terminal, 65536)
            if left and shown.endswith((b"leave) ", b"leave): ")):
                time.sleep(0.3)  # as a person: a signal between the prompt and the wait for a key would be lost
                os.write(terminal, left.pop(0))
        process.kill()
    return shown


def test_at_a_plain_terminal():
    code, shown = on_a_terminal(b"\n", b"2\n", b"\n", b"q\n")
    assert code == 0
    assert "You said 2. Right" in shown
    assert "Score: 1 of 1" in shown
    assert "\x1b" not in shown


def test_ctrl_c_ends_it_cleanly():
    code, shown = on_a_terminal(b"\n", b"\x03")
    assert code == 130
    assert shown.rstrip().endswith("nagle-lab: interrupted")
    assert "Traceback" not in shown
