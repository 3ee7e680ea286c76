"""What the workshop says and asks: ``scenarios/NAME/demo.toml`` and ``captures/mysteries.toml``.

Each ``StrictRecord`` class is a table in these files, and its fields are the keys; an incident also has its scenario.
"""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgspec import field
from msgspec.structs import asdict

from nagle_lab.errors import NagleLabError
from nagle_lab.lab.scenarios.parameters import resolve
from nagle_lab.lab.scenarios.scenario import REPOSITORY, Scenario
from nagle_lab.lab.scenarios.scenario_file import find_scenario, scenario_files
from nagle_lab.lab.scenarios.toml import Text, convert, mistake, read_toml
from nagle_lab.runs.record import StrictRecord

MYSTERIES = "mysteries"  # used instead of a scenario's name for the captures to diagnose

LONGEST_NAME = 13  # of a program: two of them stand above a ladder


class Choice(StrictRecord):
    """One answer to choose; ``wrong`` says why it is wrong; only the right answer has none."""

    text: Text
    wrong: str | None = None


class Question(StrictRecord):
    """``[stalled]``, ``[fixed]``: a question about the scenario's variant of that name, answered by running it."""

    asks: Text
    choices: tuple[Choice, ...]
    lesson: Text  # what to remember

    def __post_init__(self) -> None:
        """Raise ValueError unless there are two to four choices and one of them is right."""
        right = [choice.wrong for choice in self.choices].count(None)
        if not 2 <= len(self.choices) <= 4 or right != 1:
            raise ValueError(f"choices must be two to four, one of them right: {len(self.choices)}, {right} right")

    @property
    def right(self) -> int:
        """The number of the right choice, counted from 1."""
        return 1 + [choice.wrong for choice in self.choices].index(None)

    @property
    def numbers(self) -> list[str]:
        """The numbers of the choices, as text."""
        return [str(number) for number in range(1, len(self.choices) + 1)]

    @property
    def answer(self) -> str:
        """The text of the right choice."""
        return self.choices[self.right - 1].text


class ScriptPrograms(StrictRecord):
    """``[programs]``: what is at each end of the connection under test, with its article: "the proxy", "Redis"."""

    client: Text
    server: Text

    def __post_init__(self) -> None:
        """Raise ValueError for a name that is too long for a ladder."""
        if max(map(len, self.ends)) > LONGEST_NAME:
            raise ValueError(f"client and server must have at most {LONGEST_NAME} characters, without the article")

    @property
    def ends(self) -> tuple[str, str]:
        """Both programs, as labels of a ladder."""
        return self.client.removeprefix("the "), self.server.removeprefix("the ")

    def named(self, text: str) -> str:
        """The text of a verdict with the programs in place of the roles."""
        return re.sub(r"\bthe (client|server)\b", lambda role: str(getattr(self, role[1])), text)


class DemoFile(StrictRecord):
    """``demo.toml``, one incident."""

    number: int = field(name="incident")  # they are told in this order
    minutes: int  # with a group
    story: Text  # what happened, for people who have not read the scenario's page
    programs: ScriptPrograms
    settings: dict[str, str]  # parameters of both runs, smaller than the defaults
    change: Text  # what is different in the second run
    stalled: Question
    fixed: Question


class Guess(StrictRecord):
    """A choice of a mystery; it is right if its ``truth`` agrees with ``truth.json``."""

    text: Text
    truth: Text  # ``held_by``, the end that waited for a delayed ACK, otherwise ``idle_gap``, the cause of that


class MysteryEntry(StrictRecord):
    """``[[mysteries]]``: a capture, beside which ``truth.json`` is the answer."""

    capture: Text  # a file under ``captures``
    frames: tuple[int, int]  # which to show, first and last
    story: Text  # where it was recorded, and what the complaint was
    choices: tuple[Guess, ...]
    lesson: Text


class MysteriesFile(StrictRecord):
    """``mysteries.toml``."""

    minutes: int  # for all of them
    asks: Text
    mysteries: tuple[MysteryEntry, ...]


class Incident(DemoFile):
    """One scenario as the workshop shows it: its ``demo.toml``, and the scenario itself."""

    scenario: Scenario

    @property
    def simulated(self) -> str:
        """The address of the simulator with this incident, beside the same with TCP_NODELAY at the end that holds."""
        held_by = self.scenario.variants[self.scenario.stalled].held_by
        return f"index.html#preset={self.scenario.name}/{self.scenario.stalled}&compare={held_by}-nodelay"


@dataclass(frozen=True)
class Mystery:
    """One capture to diagnose."""

    capture: Path
    verdict: str
    truth: str
    story: str
    frames: tuple[int, int]
    question: Question


@dataclass(frozen=True)
class Workshop:
    """The whole workshop, or the part of it that was asked for."""

    incidents: tuple[Incident, ...]
    mysteries: tuple[Mystery, ...]
    mystery_minutes: int

    @property
    def questions(self) -> list[Question]:
        """Every question, in the order asked."""
        questions = [question for incident in self.incidents for question in (incident.stalled, incident.fixed)]
        return questions + [mystery.question for mystery in self.mysteries]

    @property
    def minutes(self) -> int:
        """How long it takes with a group."""
        return sum(incident.minutes for incident in self.incidents) + (self.mystery_minutes if self.mysteries else 0)

    def part(self, names: tuple[str, ...]) -> "Workshop":
        """Only the named scenarios, or :data:`MYSTERIES`; NagleLabError lists the existing ones."""
        parts = [*(incident.scenario.name for incident in self.incidents), MYSTERIES]
        for name in names:
            if name not in parts:
                raise NagleLabError(f"the workshop has no part {name!r}; it has: {', '.join(parts)}")
        chosen = tuple(incident for incident in self.incidents if incident.scenario.name in names)
        return Workshop(chosen, self.mysteries if MYSTERIES in names else (), self.mystery_minutes)


def workshop(repository: Path = REPOSITORY) -> Workshop:
    """The whole workshop; NagleLabError names the file and key where something is wrong with it."""
    files = [file.with_name("demo.toml") for file in scenario_files(repository / "scenarios")]
    unordered = [_incident(file) for file in files if file.exists()]
    incidents = tuple(sorted(unordered, key=lambda incident: incident.number))
    if [incident.number for incident in incidents] != list(range(1, len(incidents) + 1)) or not incidents:
        raise NagleLabError(f"{repository / 'scenarios'}: the incidents of demo.toml are not numbered 1, 2, 3 …")
    mysteries, minutes = _mysteries(repository / "captures" / "mysteries.toml")
    return Workshop(incidents, mysteries, minutes)


def _incident(file: Path) -> Incident:
    scenario = find_scenario(file.parent.name, file.parent.parent)
    demo = convert(read_toml(file), DemoFile, file)
    if scenario.is_control:
        raise NagleLabError(
            f"{file}: an incident is a stall and its fix, but every variant of {scenario.name} expects CLEAN: "
            "remove this file, or add a variant that expects STALL"
        )
    for name in (scenario.stalled, scenario.fixed):
        resolve(scenario, scenario.variant(name), demo.settings, environment={})
    return Incident(**asdict(demo), scenario=scenario)


def _mysteries(file: Path) -> tuple[tuple[Mystery, ...], int]:
    content = convert(read_toml(file), MysteriesFile, file)
    mysteries = (
        _mystery(entry, content.asks, file, f"mysteries[{number}]")
        for number, entry in enumerate(content.mysteries, 1)
    )
    return tuple(mysteries), content.minutes


def _mystery(entry: MysteryEntry, asks: str, file: Path, key: str) -> Mystery:
    capture = file.parent / entry.capture
    try:
        answer: dict[str, Any] = json.loads((capture.parent / "truth.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise mistake(file, f"{key}.capture", f"has no truth.json beside it that can be read ({error})") from error
    truth = answer["held_by"] or answer["idle_gap"]
    choices = [Choice(guess.text, None if guess.truth == truth else "") for guess in entry.choices]
    question = convert({"asks": asks, "choices": choices, "lesson": entry.lesson}, Question, file, key)
    return Mystery(capture, answer["verdict"], truth, entry.story, entry.frames, question)
