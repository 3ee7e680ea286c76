"""What the workshop says and asks: data, read key by key, so that a mistake is named by file and key.

``scenarios/NAME/demo.toml`` is one incident:

``incident``                   its number; incidents are told in this order
``minutes``                    how long it takes with a group
``story``                      what happened, for people who have not read the scenario's page
``[settings]``                 parameters of both runs, smaller than the defaults
``[stalled]``, ``[fixed]``     a question about the scenario's variant of that name, answered by running it:
  ``asks``                     one question; what will the run show?
  ``choices``                  two to four: ``text``, and ``wrong``: why it is not; the right one alone has none
  ``lesson``                   what to remember of it

``captures/mysteries.toml`` holds ``minutes`` for all and ``[[mysteries]]``:

``capture``                    a file under ``captures``; the ``truth.json`` beside it is the answer
``story``                      where it was recorded, and what was complained of
``frames``                     first and last frame to show
``choices``                    two to four: ``text``, and ``truth``: what ``truth.json`` says where it is right:
                               ``held_by``, the end that waited for a delayed ACK, or else the cause of ``silence``
``lesson``                     how to tell
"""

import json
import tomllib
from dataclasses import dataclass
from pathlib import Path

from nagle_lab.errors import NagleLabError
from nagle_lab.lab import Scenario, find_scenario
from nagle_lab.lab.parameters import resolve
from nagle_lab.lab.scenario import REPOSITORY
from nagle_lab.lab.scenario_file import scenario_files
from nagle_lab.lab.table import Table

MYSTERIES = "mysteries"  # what takes the place of a scenario's name for the captures to diagnose


@dataclass(frozen=True)
class Choice:
    """One answer to choose; ``wrong`` says why it is not the right one."""

    text: str
    wrong: str | None = None


@dataclass(frozen=True)
class Question:
    """What is asked; ``right`` counts from 1."""

    asks: str
    choices: tuple[Choice, ...]
    right: int
    lesson: str


@dataclass(frozen=True)
class Incident:
    """One scenario as the workshop tells it."""

    number: int
    minutes: int
    scenario: Scenario
    story: str
    settings: dict[str, str]
    stalled: Question
    fixed: Question


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
    """All of it, or the part that was asked for."""

    incidents: tuple[Incident, ...]
    mysteries: tuple[Mystery, ...]
    mystery_minutes: int

    @property
    def questions(self) -> list[Question]:
        """Every question, in the order asked."""
        told = [question for incident in self.incidents for question in (incident.stalled, incident.fixed)]
        return told + [mystery.question for mystery in self.mysteries]

    @property
    def minutes(self) -> int:
        """How long it takes with a group."""
        return sum(incident.minutes for incident in self.incidents) + (self.mystery_minutes if self.mysteries else 0)

    def part(self, names: tuple[str, ...]) -> "Workshop":
        """Only the scenarios, or :data:`MYSTERIES`, of those names; NagleLabError names those there are."""
        known = [*(incident.scenario.name for incident in self.incidents), MYSTERIES]
        for name in names:
            if name not in known:
                raise NagleLabError(f"the workshop has no part {name!r}; it has: {', '.join(known)}")
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


def _read(file: Path) -> Table:
    try:
        return Table(tomllib.loads(file.read_text(encoding="utf-8")), file)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise NagleLabError(f"{file}: {error}") from error


def _incident(file: Path) -> Incident:
    scenario = find_scenario(file.parent.name, file.parent.parent)
    with _read(file) as root:
        settings = root.texts("settings")
        for name in (scenario.stalled, scenario.fixed):
            resolve(scenario, scenario.variant(name), settings, environment={})
        return Incident(
            number=root.take("incident", int),
            minutes=root.take("minutes", int),
            scenario=scenario,
            story=root.line("story"),
            settings=settings,
            stalled=_question(root.table("stalled")),
            fixed=_question(root.table("fixed")),
        )


def _question(table: Table) -> Question:
    with table:
        choices = []
        for each in table.tables("choices"):
            with each:
                choices.append(Choice(each.line("text"), each.optional("wrong", str)))
        right = [number for number, choice in enumerate(choices, 1) if choice.wrong is None]
        return Question(table.line("asks"), tuple(choices), _only(right, choices, table), table.line("lesson"))


def _only(right: list[int], choices: list[Choice], table: Table) -> int:
    if not 2 <= len(choices) <= 4 or len(right) != 1:
        raise table.wrong("choices", f"must be two to four, one of them right: {len(choices)}, {len(right)} right")
    return right[0]


def _mysteries(file: Path) -> tuple[tuple[Mystery, ...], int]:
    with _read(file) as root:
        minutes = root.take("minutes", int)
        asks = root.line("asks")
        return tuple(_mystery(table, file.parent, asks) for table in root.tables("mysteries")), minutes


def _mystery(table: Table, captures: Path, asks: str) -> Mystery:
    with table:
        capture = captures / table.line("capture")
        known = _truth(capture, table)
        truth = known["held_by"] or known["silence"]
        choices, right = [], []
        for number, each in enumerate(table.tables("choices"), 1):
            with each:
                choices.append(Choice(each.line("text")))
                right += [number] if each.line("truth") == truth else []
        first, last = table.span("frames")
        question = Question(asks, tuple(choices), _only(right, choices, table), table.line("lesson"))
        return Mystery(capture, known["verdict"], truth, table.line("story"), (int(first), int(last)), question)


def _truth(capture: Path, table: Table) -> dict[str, str]:
    try:
        known: dict[str, str] = json.loads((capture.parent / "truth.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise table.wrong("capture", f"has no truth.json beside it that can be read ({error})") from error
    return known
