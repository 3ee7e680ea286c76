"""The workshop: its data, its screens, its score and its exit codes, without a lab."""

import fcntl
import io
import os
import pty
import re
import select
import shutil
import struct
import subprocess
import sys
import termios
import time
from contextlib import chdir, suppress
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from nagle_lab.cli.lab import demo as command
from nagle_lab.cli.workshop import script
from nagle_lab.cli.workshop.answers import Person, Prepared, Quit, prepared
from nagle_lab.cli.workshop.before_after import _lines
from nagle_lab.cli.workshop.pages import Page, Prose
from nagle_lab.cli.workshop.screens import WIDTH, print_screen, screens
from nagle_lab.cli.workshop.script import workshop
from nagle_lab.cli.workshop.slides import slides_page
from nagle_lab.cli.workshop.walk import Walk
from nagle_lab.diagnosis.analysis import analyze
from nagle_lab.diagnosis.result.result import Stall
from nagle_lab.errors import Exit, NagleLabError
from nagle_lab.evidence.excerpt import Step, packets_of
from nagle_lab.evidence.ladder import ladder
from nagle_lab.experiments.trials import TrialOutcome
from nagle_lab.lab.scenarios.scenario_file import scenarios
from support.command import in_process
from support.repository import REPOSITORY

TOLD = workshop()
NAGLE_LAB = Path(sys.executable).with_name("nagle-lab")


def walked(answers, told=TOLD, play=command._stored) -> tuple[str, Walk, Exit]:
    """A whole walk; what it has shown, itself, and its exit code."""
    shown = io.StringIO()
    walk = Walk(told, answers, play, Console(file=shown, width=WIDTH, highlight=False, markup=False, emoji=False))
    code = walk.go()
    return shown.getvalue(), walk, code


@pytest.fixture(scope="module")
def good() -> tuple[str, Walk, Exit]:
    """The walk of whoever knows all answers."""
    return walked(prepared("good", TOLD.questions))


PUBLISHED = {"nginx-static", "redis-proxy", "message-queue", "node-keepalive", "unbuffered-proxy"}


def test_every_published_incident_is_told_and_every_verdict_is_among_the_mysteries():
    told = {incident.scenario.name for incident in TOLD.incidents}
    assert told >= PUBLISHED
    assert told == {name for name in scenarios() if (REPOSITORY / "scenarios" / name / "demo.toml").exists()}
    assert {mystery.verdict for mystery in TOLD.mysteries} == {"STALL", "CLEAN"}
    assert {mystery.truth for mystery in TOLD.mysteries} >= {"server", "client", "server_think"}


GAP = re.compile(r"(\d+) (ms|µs) (?:after|later)|after (\d+) (ms|µs)")


@pytest.mark.parametrize("mystery", TOLD.mysteries, ids=lambda mystery: mystery.capture.parent.name)
def test_times_in_the_lesson_of_a_mystery_are_those_of_its_capture(mystery):
    """Each lies between packets shown, at most one of them in between; the end of a range may be that of others."""
    lesson, (first, last) = mystery.question.lesson, mystery.frames
    steps = list(packets_of(mystery.capture, analyze(mystery.capture).connections[0]))
    shown = [step for step in steps if first <= step.frame <= last]
    for said in GAP.finditer(lesson):
        figure, unit = int(said[1] or said[3]), {"ms": 1e6, "µs": 1e3}[said[2] or said[4]]
        among = steps if " to " in lesson[: said.start()][-4:] else shown
        gaps = {round((b.ts - a.ts) / unit) for apart in (1, 2) for a, b in zip(among, among[apart:], strict=False)}
        assert figure in gaps, said[0]


def test_what_a_learner_reads_is_spread_over_the_numbers():
    """Nobody scores by always typing the same number."""
    right = [question.right for question in TOLD.questions]
    assert max(map(right.count, right)) <= len(right) // 2 + 1
    assert all(choice.text for question in TOLD.questions for choice in question.choices)


def test_the_good_answers_score_all_of_it_and_every_run_is_as_expected(good):
    shown, walk, code = good
    assert code is Exit.OK
    asked = len(TOLD.questions)
    assert (walk.right, walk.asked) == (asked, asked)
    assert f"Score: {asked} of {asked}" in shown
    for incident in TOLD.incidents:
        assert f" STALL   {incident.scenario.name} / {incident.scenario.stalled}" in shown
        assert f" CLEAN   {incident.scenario.name} / {incident.scenario.fixed}" in shown
    assert len(re.findall(r"│  .*trigger\n", shown)) == len(re.findall(r"│  .*late ACK\n", shown)) == 7
    assert "The answer is" not in shown
    assert "\x1b" not in shown


def test_the_figures_of_a_run_say_what_the_share_is_of(good):
    assert len(re.findall(r"^stalled, of requests that can stall  +(100|\d\d?)%", good[0], re.MULTILINE)) == 10


def test_each_fix_shows_before_and_after_on_one_time_scale(good):
    """One below the other in time: what the stalled run sends after the wait is below all of the fixed one."""
    shown, _, _ = good
    for incident in TOLD.incidents:
        begin = shown.index(f"before: {incident.scenario.stalled}")
        lines = shown[begin : shown.index("Same time scale on both sides", begin)].splitlines()[2:-1]
        before, after = (
            [side.rstrip() for side in sides] for sides in zip(*((x[:38], x[40:]) for x in lines), strict=True)
        )
        late = next(i for i, line in enumerate(before) if "late ACK" in line)
        assert "release" in before[late + 1]
        assert after[0].endswith("│")
        assert not any(after[late - 1 :])
        assert len({len(line) for line in before}) == 1


def test_in_before_and_after_a_line_in_which_nobody_sends_has_its_time():
    """What stands beside arrows of the other side is no time, and says none."""
    connection = analyze(TOLD.mysteries[0].capture).connections[0]
    stall = Stall(0, 2, connection.client, connection.server, 1, 2, 3, 43.0, 1.0, 5, 5)
    waited = [Step(i, ms * 1_000_000, i % 2 == 0, 5, "PSH,ACK", 0, 0) for i, ms in enumerate((0, 1, 43, 44, 45))]
    fixed = [Step(i, i * 1000, i % 2 == 0, 5, "PSH,ACK", 0, 0) for i in range(6)]
    lines = [str(line) for line in _lines(ladder(connection, waited, stall), ladder(connection, fixed), ("a", "b"))]
    silent = [line for line in lines[2:-1] if "▶" not in line and "◀" not in line]
    assert [line[:8].strip() for line in silent] == ["10", "20", "30"]
    assert "per 10 ms without a packet" in lines[-1]


def test_a_long_round_of_the_fixed_run_is_shortened():
    """Its drawing must not push the words off the screen: writes of 8k may be acknowledged one by one."""
    connection = analyze(TOLD.mysteries[0].capture).connections[0]
    steps = [Step(i, i * 1000, i % 2 == 0, 8192 + i, "PSH,ACK", 0, 0) for i in range(20)]
    stall = Stall(0, 2, connection.client, connection.server, 1, 2, 3, 40.0, 1.0, 5, 5)
    waited = [Step(i, i * 20_000_000, i % 2 == 1, 5, "PSH,ACK", 0, 0) for i in range(5)]
    lines = [str(line) for line in _lines(ladder(connection, waited, stall), ladder(connection, steps), ("a", "b"))]
    assert sum("⋮" in line for line in lines) == 1
    assert sum("81" in line[40:] or "82" in line[40:] for line in lines) == 5


def test_ladders_and_verdicts_name_the_programs_at_the_ends(good):
    shown, _, _ = good
    flat = " ".join(shown.split())
    for incident in TOLD.incidents:
        client, server = incident.programs.ends
        assert len(re.findall(rf"frame +ms +{re.escape(client)} +{re.escape(server)}(  |\n)", shown)) == 1
        assert re.search(rf"ms +{re.escape(client)} +{re.escape(server)} +ms ", shown)
        assert incident.programs.named("the client and the server") == (
            f"{incident.programs.client} and {incident.programs.server}"
        )
    assert "the proxy (nginx) held a small segment until Redis acknowledged" in flat
    assert "proxy (nginx) holds 613 B" in flat
    incidents = flat[: flat.index("Mystery 1")]
    assert "client holds" not in re.sub("Node client holds", "", incidents)


def test_wrong_answers_score_nothing_are_told_why_and_change_no_exit_code():
    wrong = [question.right % len(question.choices) + 1 for question in TOLD.questions]
    shown, walk, code = walked(Prepared(wrong))
    assert (walk.right, walk.asked, code) == (0, 17, Exit.OK)
    flat = " ".join(shown.split())
    for question, chosen in zip(TOLD.questions, wrong, strict=True):
        right = question.choices[question.right - 1].text
        assert " ".join(f"You said {chosen}. The answer is {question.right}: {right}".split()) in flat
        assert " ".join((question.choices[chosen - 1].wrong or "").split()) in flat


class Terminal(Console):
    """A terminal of 80 columns and 24 lines; ``screens`` is what stands on it whenever something is asked."""

    def __init__(self) -> None:
        plain = {"highlight": False, "markup": False, "emoji": False, "color_system": None}
        super().__init__(file=io.StringIO(), force_terminal=True, width=WIDTH, height=24, **plain)
        self.screens: list[str] = []

    def asked(self) -> None:
        since_cleared = self.file.getvalue().split("\x1b[2J\x1b[H")[-1]
        self.screens.append(since_cleared + "the prompt")


class Reader:
    """Somebody who answers with that number, or else the right one."""

    turns = True

    def __init__(self, terminal: Terminal, number: int | None) -> None:
        self.terminal, self.number = terminal, number

    def choose(self, question):
        self.terminal.asked()
        return min(self.number or question.right, len(question.choices))

    def go_on(self):
        self.terminal.asked()


@pytest.mark.parametrize("number", [1, 2, 3, 4, None], ids=str)
def test_every_screen_fits_80_columns_and_24_lines(number):
    """Whatever is answered: what is shown after the screen is cleared, with the line of the prompt itself."""
    terminal = Terminal()
    Walk(TOLD, Reader(terminal, number), command._stored, terminal, without_lab=True).go()
    assert len(terminal.screens) > 50
    for screen in terminal.screens:
        assert len(screen.splitlines()) <= 24, screen
        assert max(map(len, screen.splitlines())) < 80, screen
        assert screen.startswith("───")  # from its title on


def test_the_ladder_is_in_view_while_its_words_are_read():
    terminal = Terminal()
    Walk(TOLD, Reader(terminal, None), command._stored, terminal, without_lab=True).go()
    for question in TOLD.questions:
        last_words = question.lesson[-60:]
        (screen,) = (of for of in terminal.screens if last_words in " ".join(of.split()))
        assert "▶│" in screen


def test_a_page_that_is_too_long_is_split_and_keeps_its_top():
    terminal = Terminal()
    long = Page("title", [Prose("the top")], [Prose(f"paragraph {n}\n" * 8) for n in range(3)], pause=True)
    shown = []
    for screen in screens(long, terminal):
        print_screen(screen, terminal, clear=True)
        terminal.asked()
        shown.append(re.findall(r"the top|paragraph \d", terminal.screens[-1]))
        assert len(terminal.screens[-1].splitlines()) <= 24
    assert [sorted(set(words)) for words in shown] == [
        ["the top"], ["paragraph 0", "paragraph 1", "the top"], ["paragraph 2", "the top"],
    ]  # fmt: skip


def test_the_answers_of_a_file_are_checked_before_anything_runs(tmp_path):
    file = tmp_path / "answers.txt"
    for text, says in {
        "1\n2\n": "2 answers for 17 questions",
        "# a comment\n\n9\n": "line 3: '9' is not a valid answer; write 1, 2, 3, 4 or q",
        "one\n": "line 1: 'one' is not a valid answer",
        "1\n" * 18: "18 answers for 17 questions",
    }.items():
        file.write_text(text)
        with pytest.raises(NagleLabError, match=re.escape(says)):
            prepared(str(file), TOLD.questions)
    with pytest.raises(
        NagleLabError, match="none: no such file or directory: name a file with an answer per line, or good"
    ):
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
    said = capsys.readouterr().out.splitlines()
    assert said[1] == "'x' is not a valid answer; type 1, 2, 3 or 4"
    assert len(said) == 5
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
            return None, TrialOutcome(code, None, "said why", None, None)
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
        return run, TrialOutcome(
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


def test_idle_gaps_have_the_names_that_every_screen_has(run):
    _, out, _ = run("demo", "--scenario", "mysteries", "--answers", "good", "--without-lab")
    words = " ".join(out.split())
    assert "40 × server processing (40 ms each)" in words and "think (" not in words
    assert "Nagle's algorithm waiting for a delayed ACK (43 ms each)" in words


def test_the_outline_has_every_question_and_its_answer(run):
    code, out, _ = run("demo", "--outline")
    assert code == 0
    flat = " ".join(out.split())
    for question in TOLD.questions:
        assert f"{question.right} {question.choices[question.right - 1].text}" in flat
    assert f"{TOLD.minutes} min" in flat


def test_an_incident_of_a_control_says_what_to_do(run, monkeypatch):
    """A scenario that only expects CLEAN has no stall to tell of."""
    told = scenarios()["nginx-static"]
    clean = {name: variant for name, variant in told.variants.items() if variant.verdict == "CLEAN"}
    control = msgspec.structs.replace(told, variants=clean, stalled="", fixed="")
    monkeypatch.setattr(script, "find_scenario", lambda *_: control)
    code, out, err = run("demo", "--outline")
    assert (code, out, err.count("\n")) == (Exit.UNUSABLE, "", 1)
    assert "demo.toml: an incident is a stall and its fix" in err and "remove this file" in err


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
        (
            "scenarios/nginx-static/demo.toml",
            ('client = "ab"', 'client = "the Apache benchmark"'),
            "at most 13 characters",
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


def on_a_terminal(*typed: bytes, kind: str = "dumb", ahead: bytes = b"") -> tuple[int, str]:
    """The demo in a terminal, each piece typed when the screen is quiet; exit code and all that it showed.

    ``ahead`` is typed before anything is asked.
    """
    mine, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    os.write(mine, ahead)
    login = ["setsid", "--ctty", "--wait"]  # Ctrl-C is a signal then
    environment = {**os.environ, "TERM": kind}
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
            if left and shown.endswith((b"quit) ", b"quit): ")):
                time.sleep(0.3)  # as a person: a signal between the prompt and the wait for a key would be lost
                os.write(terminal, left.pop(0))
        process.kill()
    return shown


def test_at_a_plain_terminal():
    code, shown = on_a_terminal(b"\n", b"2\n", b"\n", b"\n", b"q\n")
    assert code == 0
    assert "You said 2. Right" in shown
    assert "Score: 1 of 1" in shown
    assert "\x1b" not in shown


def test_each_screen_begins_on_an_empty_terminal():
    code, shown = on_a_terminal(b"\n", b"z\n", b"2\n", b"\n", b"q\n", kind="xterm")
    assert code == 0
    assert "'z' is not a valid answer; type 1, 2, 3 or 4" in shown
    first, *pages = shown.split("\x1b[2J\x1b[H")
    assert first == ""
    assert len(pages) == 5  # welcome, question, verdict, ladder; score
    for page in pages:
        assert len(page.splitlines()) <= 24, page


def test_what_is_typed_before_a_question_does_not_answer_it():
    code, shown = on_a_terminal(b"q\n", ahead=b"\n1\n\n\n")
    assert code == 0
    assert "Incident 1" not in shown
    assert "Score: 0 of 0" in shown


def test_ctrl_c_ends_it_cleanly():
    code, shown = on_a_terminal(b"\n", b"\x03")
    assert code == 130
    assert shown.rstrip().endswith("nagle-lab: interrupted")
    assert "Traceback" not in shown


class Slides(HTMLParser):
    """The slides of a page: what each says, and every tag and attribute there is."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.slides: list[str] = []
        self.drawings: list[list[str]] = []  # of each slide, by class
        self.kinds: list[str] = []
        self.attributes: set[tuple[str, str]] = set()
        self.tags: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes |= {(tag, name) for name, _ in attrs}
        if tag == "section":
            self.slides.append("")
            self.drawings.append([])
            self.kinds.append(dict(attrs)["class"].split()[0])
        if tag == "svg":
            self.drawings[-1].append(dict(attrs)["class"])

    def handle_data(self, data):
        if self.slides:
            self.slides[-1] = " ".join((self.slides[-1] + data).split()) + " "


@pytest.fixture(scope="module")
def slides(tmp_path_factory) -> str:
    """The page with all slides, made in another folder than the checkout's."""
    with chdir(tmp_path_factory.mktemp("slides")):
        assert in_process("demo", "--slides", "slides.html") == (0, "", "")
        return Path("slides.html").read_text(encoding="utf-8")


def test_slides_ask_first_and_answer_on_the_next_one(slides):
    of = Slides(slides)
    asked = [i for i, kind in enumerate(of.kinds) if kind == "question"]
    assert len(asked) == len(TOLD.questions)
    for at, question in zip(asked, TOLD.questions, strict=True):
        lesson = " ".join(question.lesson.split())
        assert " ".join(question.asks.split()) in of.slides[at]
        assert lesson not in of.slides[at]
        following = at + 1
        if of.kinds[following] == "ladder":
            assert of.drawings[following]
            assert question.answer not in of.slides[following] and lesson not in of.slides[following]
            following += 1
        assert of.kinds[following] == "answer"
        assert f"{question.right}: {question.answer}" in of.slides[following]
        assert lesson in of.slides[following]
        assert of.drawings[following]
    assert of.kinds.count("ladder") == 2 * len(TOLD.incidents)
    assert "proxy (nginx)" in slides


def test_slides_set_code_as_code_and_name_the_incidents_by_their_titles(slides):
    of = Slides(slides)
    assert "`" not in "".join(of.slides[:-1])  # the script stands behind the last
    assert "<code>ab -k</code>" in slides
    for incident in TOLD.incidents:
        assert incident.scenario.title in of.slides[0] and incident.scenario.name not in of.slides[0]


def test_slides_show_the_stall_of_an_incident_to_scale(slides):
    of = Slides(slides)
    to_scale = [i for i, classes in enumerate(of.drawings) if "ladder" in classes]
    assert [of.kinds[i] for i in to_scale] == ["ladder", "answer"] * len(TOLD.incidents)
    for i in to_scale:
        assert re.search(r"\d\d\.\d ms .* holds \d+ B .* delays its ACK", of.slides[i]) and "late ACK" in of.slides[i]


def test_slides_name_no_folder_of_the_machine_they_were_made_on(slides):
    assert str(REPOSITORY) not in slides
    assert "Committed, not run now: captures/workshop/redis-proxy-nginx-nagle" in slides


def test_each_incident_names_a_page_of_the_simulator(run, good):
    """The preset and the comparison are those that the simulator knows, and the comparison is the end that holds."""
    compared = set(re.findall(r'"([a-z]+-nodelay)":', (REPOSITORY / "site" / "controls.js").read_text()))
    shown, _, _ = good
    _, outline, _ = run("demo", "--outline")
    for incident in TOLD.incidents:
        found = re.fullmatch(r"index\.html#preset=([a-z-]+)/([a-z-]+)&compare=(.*)", incident.simulated)
        assert found and found[3] in compared
        assert found[2] in scenarios()[found[1]].variants
        pages = (REPOSITORY / "scenarios" / incident.scenario.name / "README.md").read_text(), shown, outline
        assert all(incident.simulated in "".join(page.split()) for page in pages)


def test_slides_are_one_file_that_loads_nothing(run, tmp_path):
    file = tmp_path / "slides.html"
    assert run("demo", "--slides", str(file), "--scenario", "nginx-static")[0] == 0
    page = file.read_text(encoding="utf-8")
    of = Slides(page)
    assert not {name for _, name in of.attributes} & {"src", "href", "style", "srcset", "onclick"}
    assert not {"link", "img", "iframe", "object"} & set(of.tags)
    assert "url(" not in page
    assert "@import" not in page
    assert "default-src 'none'" in page
    assert "Mystery" not in page


def test_text_on_slides_is_never_markup():
    (incident,) = TOLD.part(("nginx-static",)).incidents
    evil = "<script>alert(1)</script> & \"'<img src=x onerror=alert(1)> \x1b[31m"
    choices = tuple(replace_text(choice, evil) for choice in incident.stalled.choices)
    asked = type(incident.stalled)(asks=evil, choices=choices, lesson=evil)
    programs = type(incident.programs)(client="<b>&'\"</b>", server="<i>\x1b[0m")
    incident = msgspec.structs.replace(incident, story=evil, stalled=asked, programs=programs)
    page = slides_page(replace(TOLD.part(("nginx-static",)), incidents=(incident,)), command._stored)
    of = Slides(page)
    assert of.tags.count("script") == 1
    assert "img" not in of.tags
    assert "\x1b" not in page
    assert "<script>alert(1)" in " ".join(of.slides)


def replace_text(choice, text: str):
    return type(choice)(text=text, wrong=choice.wrong and text)


def test_slides_that_cannot_be_written_are_an_error_of_one_line(run, tmp_path):
    code, out, err = run("demo", "--slides", str(tmp_path / "none" / "slides.html"))
    assert (code, out, err.count("\n")) == (Exit.UNUSABLE, "", 1)
    assert "cannot be written" in err
