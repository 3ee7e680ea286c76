"""The pages of the workshop and their content, for the terminal and for the slides."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rich.table import Table
from rich.text import Text

from nagle_lab.cli.workshop.before_after import before_and_after
from nagle_lab.cli.workshop.script import Incident, Mystery, Question, Workshop
from nagle_lab.diagnosis.result.idle_gaps import CAUSES
from nagle_lab.diagnosis.result.result import Result, Stall
from nagle_lab.diagnosis.result.spread import plural
from nagle_lab.errors import printable
from nagle_lab.evidence.excerpt import PacketWindow, excerpts
from nagle_lab.evidence.ladder import Ladder, ladder, ladder_of
from nagle_lab.experiments.trials import TrialOutcome
from nagle_lab.lab.scenarios.scenario import REPOSITORY
from nagle_lab.reports.screens.terminal import STYLE, shown_path
from nagle_lab.reports.words import numbers
from nagle_lab.reports.words.ladder_text import ladder_text
from nagle_lab.runs.figures import Figures
from nagle_lab.runs.run import Run

_ROWS = (
    ("stalled, of requests that can stall", lambda f: numbers.share(f.stalled_share)),
    ("wait for the late ACK, ms p50 / p99", numbers.wait),
    ("median time of a request, ms", lambda f: numbers.request_time(f.p50_ms)),
    ("requests per second", lambda f: numbers.number(f.requests_per_s)),
    ("packets per request", lambda f: numbers.number(f.packets_per_request)),
    ("delayed ACKs, in capture / in kernel", numbers.delayed_acks),
)


@dataclass(frozen=True)
class Prose:
    """A paragraph in one of rich's styles."""

    text: str
    style: str = ""


@dataclass(frozen=True)
class Banner:
    """A verdict, its subject, and the reason."""

    verdict: str
    title: str
    reason: str


@dataclass(frozen=True)
class Asked:
    """A question, and the answers to choose from, numbered from 1."""

    asks: str
    choices: Sequence[str]


@dataclass(frozen=True)
class Drawing:
    """A drawing of characters in columns: a ladder, a table."""

    name: str  # what it is
    content: Text | Table
    ladder: Ladder | None = None  # the data of one that is worth drawing to scale


Block = Prose | Banner | Asked | Drawing


@dataclass(frozen=True)
class Page:
    """``top`` stays in view while ``below`` is read, which may take more than one screen."""

    title: str
    top: Sequence[Block] = ()
    below: Sequence[Block] = ()
    pause: bool = False  # whether its top is shown alone first


def welcome(script: Workshop, without_lab: bool) -> Page:
    """What the workshop is, how long it takes, and the keys."""
    parts = [f"{len(script.incidents)} {plural('incident', len(script.incidents))}"] if script.incidents else []
    parts += [f"{len(script.mysteries)} mystery captures"] if script.mysteries else []
    blocks = [
        Prose(
            f"{' and '.join(parts)}, {len(script.questions)} questions; about {script.minutes} minutes with a group. "
            "Each time: predict, run it, then see what was on the wire."
        ),
        Prose("Keys: a number and Enter to answer, Enter to continue, q and Enter to quit."),
    ]
    if without_lab:
        recorded = "You will see committed runs, recorded on another machine and judged now."
        blocks.append(Prose(f"WITHOUT THE LAB: nothing is run. {recorded}", STYLE["INCONCLUSIVE"]))
    return Page("nagle-lab: the workshop", blocks)


def story(part: Incident) -> list[Block]:
    """An incident's title and story."""
    return [Prose(part.scenario.title, "bold"), Prose(part.story)]


def fix(part: Incident) -> list[Block]:
    """The change that the second run makes."""
    return [Prose(f"The fix (variant {part.scenario.fixed}): {part.change}")]


def question(asked: Question) -> list[Block]:
    """A question and its numbered choices."""
    return [Asked(asked.asks, [choice.text for choice in asked.choices])]


def run(part: Incident, run: Run, columns: Sequence[tuple[str, Figures]], *, without_lab: bool) -> list[Block]:
    """The verdict of a run and its figures, beside those of the run before it."""
    what = "Committed, not run now" if without_lab else "Captures"
    here = run.folder.relative_to(REPOSITORY) if run.folder.is_relative_to(REPOSITORY) else run.folder
    folder = str(here) if without_lab else shown_path(run.folder)
    in_browser = "Step by step in a browser: make site, then open in the folder public"
    simulator = [Prose(in_browser, "dim"), Prose(part.simulated, "dim")]
    return [
        Banner(run.verdict, f"{run.manifest.scenario} / {run.manifest.variant}", part.programs.named(run.reason)),
        *([Drawing("Figures", _figures(columns))] if columns else []),
        Prose(f"{what}: {printable(folder)}", "dim"),
        *(simulator if len(columns) > 1 else []),
        *(
            Prose(f"NOT AS EXPECTED: {printable(part.programs.named(why))}", STYLE["STALL"])
            for why in run.contradictions
        ),
    ]


def no_run(name: str, outcome: TrialOutcome) -> list[Block]:
    """Why there is nothing to show."""
    return [Banner("NO RUN", name, outcome.reason)]


def typical_stall(part: Incident, run: Run) -> list[Block]:
    """The ladder of a typical stall of the run; nothing if it has none."""
    best = run.results[run.best]
    if not best.stalls:
        return []
    where = run.manifest.captures[run.best].namespace
    at = f" (recorded at the {where})" if where != run.best else ""
    shown = replace(ladder_of([run.capture(run.best)], best, best.stalls.typical()), ends=part.programs.ends)
    name = f"A typical stall, frames of {run.best}.pcap{at}:"
    return [Prose(name, "dim"), Drawing(name, ladder_text(shown), shown)]


def both(part: Incident, before: Run, after: Run) -> list[Block]:
    """A round before the fix and one after it, side by side; nothing if there is no such pair."""
    drawn = before_and_after(before, after, part.programs.ends)
    return [Drawing("Before and after the fix", drawn)] if drawn else []


def answer(asked: Question, chosen: int) -> list[Block]:
    """Whether the answer was right, why another was wrong, and what to remember."""
    if chosen == asked.right:
        return [Prose(f"You said {chosen}. Right: {asked.answer}", "bold green"), Prose(asked.lesson)]
    why = asked.choices[chosen - 1].wrong
    return [
        Prose(f"You said {chosen}. The answer is {asked.right}: {asked.answer}", "bold yellow"),
        *([Prose(why)] if why else []),
        Prose(asked.lesson),
    ]


def wrong(asked: Question) -> list[Block]:
    """Why each of the other choices is wrong."""
    blocks: list[Block] = []
    for number, choice in enumerate(asked.choices, 1):
        if choice.wrong:
            blocks += [Prose(f"Not {number}: {choice.text}", "bold"), Prose(choice.wrong)]
    return blocks


def mystery(part: Mystery, result: Result) -> list[Block]:
    """A capture's story and some of its packets, without saying what they are."""
    return [Prose(part.story), Drawing("Some packets of the capture", ladder_text(_ladder(part, result)))]


def marked(part: Mystery, result: Result) -> list[Block]:
    """The same packets with their stall marked; otherwise those of a typical stall instead."""
    if not result.stalls:
        return [Drawing("The same packets", ladder_text(_ladder(part, result)))]
    first, last = part.frames
    here = (of for of in result.stalls if of.connection == 0 and first <= of.trigger_frame < of.release_frame <= last)
    stall = next(here, None)
    shown = _ladder(part, result, stall) if stall else ladder_of([part.capture], result, result.stalls.typical())
    return [Drawing("The stall", ladder_text(shown))]


def diagnosis(part: Mystery, result: Result) -> list[Block]:
    """What the analysis of a mystery says."""
    file = Path(*part.capture.parts[-3:])
    causes = ", ".join(
        f"{idle_gap.count} × {CAUSES[cause]} ({idle_gap.total_ms / idle_gap.count:.0f} ms each)"
        for cause, idle_gap in sorted(result.idle_gaps.items(), key=lambda item: -item[1].total_ms)
    )
    return [
        Banner(result.verdict, str(file), result.reason),
        Prose(f"{numbers.IDLE_GAPS}: {causes or 'none'}."),
    ]


def score(right: int, asked: int, left: bool) -> Page:
    """How many answers were right."""
    further = (
        "Further reading: docs/workshop/handout.md, and docs/README.md for the rest. In a browser, step by step: "
        "make site."
    )
    return Page("left early" if left else "the end", [Prose(f"Score: {right} of {asked}", "bold"), Prose(further)])


def _figures(columns: Sequence[tuple[str, Figures]]) -> Table:
    """The figures of one run, or of two side by side."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    table.add_column("")
    for name, _ in columns:
        table.add_column(name, justify="right")
    for heading, figure in _ROWS:
        table.add_row(Text(heading, "dim"), *(figure(figures) for _, figures in columns))
    return table


def _ladder(part: Mystery, result: Result, stall: Stall | None = None) -> Ladder:
    (excerpt,) = excerpts([part.capture], [PacketWindow(result.connections[0], *part.frames)])
    return ladder(excerpt.connection, excerpt.steps, stall)
