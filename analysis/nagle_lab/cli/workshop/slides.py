"""The workshop as slides: one HTML file with the same texts, runs and ladders as the pages on the terminal."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import files
from itertools import groupby

from jinja2 import PackageLoader
from markupsafe import Markup
from rich.console import Console
from rich.segment import Segment

from nagle_lab.cli.workshop import pages
from nagle_lab.cli.workshop.pages import Block, Drawing, Prose
from nagle_lab.cli.workshop.screens import WIDTH
from nagle_lab.cli.workshop.script import Incident, Question, Workshop
from nagle_lab.cli.workshop.walk import Play
from nagle_lab.diagnosis.analysis import analyze
from nagle_lab.errors import NagleLabError
from nagle_lab.evidence.ladder import Ladder
from nagle_lab.reports.html.ladder_drawing import ladder_drawing
from nagle_lab.reports.html.template import ENVIRONMENT, hash_of
from nagle_lab.runs.figures import Figures
from nagle_lab.runs.run import Run


@dataclass(frozen=True)
class Listed:
    """A list of items, one below the other."""

    texts: Sequence[str]


@dataclass(frozen=True)
class Slide:
    """One slide; ``kind`` is "title", "question", "ladder", "answer" or "run"."""

    kind: str
    title: str
    blocks: Sequence[Block | Listed]

    @property
    def ladder(self) -> Ladder | None:
        """The ladder that is drawn to scale at the left, with the other blocks beside it."""
        return drawn_to_scale(self.blocks)


@dataclass(frozen=True)
class TextRun:
    """Consecutive characters of a drawing: where they begin, and their style."""

    line: int
    column: int
    text: str
    style: str

    @property
    def end(self) -> int:
        """The column behind the last character."""
        return self.column + len(self.text)


def slides_page(script: Workshop, stored: Play) -> str:
    """The slides as a whole document; NagleLabError if a committed run cannot be judged."""
    slides = list(_slides(script, stored))
    environment = ENVIRONMENT.overlay(loader=PackageLoader("nagle_lab.cli.workshop", "."))
    style, code = ((files(__package__) / f"slides.{kind}").read_text(encoding="utf-8") for kind in ("css", "js"))
    style = _ladder_rules() + style
    return environment.get_template("slides.html.j2").render(
        slides=slides,
        drawn=drawn,
        ladder_drawing=ladder_drawing,
        style=Markup(style),
        style_hash=hash_of(style),
        script=Markup(code),
        script_hash=hash_of(code),
    )


def drawn_to_scale(blocks: Sequence[Block | Listed]) -> Ladder | None:
    """The ladder among the blocks that can be drawn to scale; None without one."""
    return next((block.ladder for block in blocks if isinstance(block, Drawing) and block.ladder), None)


def drawn(drawing: Drawing) -> list[TextRun]:
    """The characters of a drawing, as a terminal of 78 columns shows them; blanks are left out."""
    terminal = Console(width=WIDTH, force_terminal=True, highlight=False, markup=False, emoji=False)
    pieces: list[TextRun] = []
    for number, line in enumerate(terminal.render_lines(drawing.content, pad=False)):
        column = 0
        for segment in Segment.simplify(line):
            for blank, letters in groupby(segment.text, str.isspace):
                text = "".join(letters)
                if not blank:
                    pieces.append(TextRun(number, column, text, str(segment.style or "").replace("none", "")))
                column += len(text)
    return pieces


def _ladder_rules() -> str:
    """The rules for ladders in the reports' style sheet, a line each."""
    rules = (files("nagle_lab.reports.html") / "report.css").read_text(encoding="utf-8").splitlines()
    return "".join(f"{rule}\n" for rule in rules if rule.startswith((".ladder ", ".seg")))


def _slides(script: Workshop, stored: Play) -> Iterator[Slide]:
    parts = [incident.scenario.title for incident in script.incidents]
    parts += [f"{len(script.mysteries)} mystery captures"] if script.mysteries else []
    about = f"{len(script.questions)} questions, about {script.minutes} minutes"
    yield Slide("title", "Nagle's algorithm and delayed ACKs", [Prose(about), Listed(parts)])
    for incident in script.incidents:
        yield from _of_incident(incident, stored)
    for number, mystery in enumerate(script.mysteries, 1):
        title, result = f"Mystery {number} of {len(script.mysteries)}", analyze(mystery.capture)
        asked = [*pages.mystery(mystery, result), *pages.question(mystery.question)]
        yield Slide("question", title, asked)
        answer = [*_answer(mystery.question), *pages.diagnosis(mystery, result)]
        yield Slide("answer", title, [*pages.marked(mystery, result), *answer])


def _of_incident(incident: Incident, stored: Play) -> Iterator[Slide]:
    scenario, title = incident.scenario, f"Incident {incident.number}: {incident.scenario.name}"
    columns: list[tuple[str, Figures]] = []
    before, after = (_judged(incident, name, stored, columns) for name in (scenario.stalled, scenario.fixed))
    yield Slide("title", title, pages.story(incident))
    yield Slide("question", title, pages.question(incident.stalled))
    yield from _explained(title, pages.typical_stall(incident, before), incident.stalled)
    yield Slide("run", title, pages.run(incident, before, columns[:1], without_lab=True))
    title = f"{title}, the fix"
    yield Slide("question", title, [*pages.fix(incident), *pages.question(incident.fixed)])
    yield from _explained(title, pages.both(incident, before, after), incident.fixed)
    yield Slide("run", title, pages.run(incident, after, columns, without_lab=True))


def _explained(title: str, ladders: Sequence[Block], asked: Question) -> Iterator[Slide]:
    """The ladder alone, for the audience to read; the same with the answer; and why the other answers are wrong."""
    yield Slide("ladder", title, [*ladders, *([Prose(asked.asks, "bold")] if drawn_to_scale(ladders) else [])])
    yield Slide("answer", title, [*ladders, *_answer(asked)])
    yield Slide("answer", title, pages.wrong(asked))


def _judged(incident: Incident, name: str, stored: Play, columns: list[tuple[str, Figures]]) -> Run:
    run, outcome = stored(incident.scenario, incident.scenario.variants[name], incident.settings)
    if run is None or run.contradictions or outcome.figures is None:
        name = f"{incident.scenario.name} {name}"
        raise NagleLabError(f"the committed run of {name} cannot be shown: {outcome.reason}; restore captures/")
    columns.append((name, outcome.figures))
    return run


def _answer(asked: Question) -> list[Block]:
    return [Prose(f"{asked.right}: {asked.answer}", "bold green"), Prose(asked.lesson)]
