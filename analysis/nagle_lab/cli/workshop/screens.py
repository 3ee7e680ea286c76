"""What the workshop shows: every screen fits a terminal of 80 columns and 24 lines."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from nagle_lab.cli.workshop.script import Incident, Mystery, Question, Workshop
from nagle_lab.diagnosis.result import Result
from nagle_lab.errors import printable
from nagle_lab.evidence.excerpt import Window, excerpts
from nagle_lab.evidence.ladder import ladder, ladder_of
from nagle_lab.reports import numbers
from nagle_lab.reports.ladder_text import ladder_text
from nagle_lab.reports.terminal import STYLE, shown_path
from nagle_lab.runs.figures import Figures
from nagle_lab.runs.run import Run

WIDTH = 78

_ROWS = (
    ("stalled, of the requests that can", lambda f: numbers.share(f.stalled_share)),
    ("wait for the late ACK, ms p50 / p99", numbers.wait),
    ("median time of a request, ms", numbers.request_median),
    ("requests per second", lambda f: numbers.number(f.requests_per_s)),
    ("packets per request", lambda f: numbers.number(f.packets_per_request)),
    ("delayed ACKs, in capture / in kernel", numbers.delayed_acks),
)


def welcome(script: Workshop, without_lab: bool, to: Console) -> None:
    """What it is, how long it takes, which keys there are."""
    parts = [f"{len(script.incidents)} incident{'s' * (len(script.incidents) != 1)}"] if script.incidents else []
    parts += [f"{len(script.mysteries)} mystery captures"] if script.mysteries else []
    to.print(Rule("nagle-lab: the workshop", style="dim"))
    to.print(
        f"\n{' and '.join(parts)}, {len(script.questions)} questions; about {script.minutes} minutes with a group.\n"
        "Each time: predict, then run, then see what was on the wire.\n\n"
        "Keys: a number and Enter to answer, Enter to go on, q and Enter to leave.\n"
    )
    if without_lab:
        committed = "What you will see are committed runs, recorded on another machine and judged now."
        to.print(Text(f"WITHOUT THE LAB: nothing is run. {committed}\n", STYLE["INCONCLUSIVE"]))


def incident(part: Incident, to: Console) -> None:
    """An incident's title and story."""
    to.print(Rule(f"Incident {part.number}: {part.scenario.name}", style="dim"))
    to.print(Text(f"{part.scenario.title}\n", "bold"))
    to.print(part.story)


def fix(part: Incident, to: Console) -> None:
    """The change that the second run makes."""
    variant = part.scenario.variants[part.scenario.fixed]
    before = part.scenario.variants[part.scenario.stalled].fixed
    changed = [f"{name}={value}" for name, value in variant.fixed.items() if before.get(name) != value]
    to.print(Rule(f"{part.scenario.name}: the fix", style="dim"))
    to.print(f"Variant {variant.name}: as before, but {', '.join(changed)}.")


def question(asked: Question, to: Console) -> None:
    """A question and its numbered choices."""
    to.print(Text(f"\n{asked.asks}\n", "bold"))
    for number, choice in enumerate(asked.choices, 1):
        table = Table.grid(padding=(0, 1))
        table.add_row(Text(f"  {number}", "bold cyan"), choice.text)
        to.print(table)
    to.print()


def evidence(run: Run, without_lab: bool, to: Console) -> None:
    """The verdict of a run and, if it stalled, the ladder of a typical stall."""
    _verdict(run.verdict, f"{run.manifest.scenario} / {run.manifest.variant}", run.reason, to)
    best = run.results[run.best]
    if best.stalls:
        _typical(run.capture(run.best), best, to)
    what = "Committed, not run now" if without_lab else "Captures"
    to.print(Text(f"\n{what}: {printable(shown_path(run.folder))}\n", "dim"))
    for why in run.contradictions:
        to.print(Text(f"NOT AS EXPECTED: {printable(why)}", STYLE["STALL"]))


def no_run(name: str, reason: str, to: Console) -> None:
    """Why there is nothing to show."""
    to.print(Text.assemble((" NO RUN ", f"{STYLE['INCONCLUSIVE']} reverse"), "  ", (name, "bold")))
    to.print(Text(f"{printable(reason)}\n"))


def comparison(columns: Sequence[tuple[str, Figures]], to: Console) -> None:
    """The figures of one run, or of two side by side."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    table.add_column("")
    for name, _ in columns:
        table.add_column(name, justify="right")
    for heading, figure in _ROWS:
        table.add_row(Text(heading, "dim"), *(figure(figures) for _, figures in columns))
    to.print(table)


def answer(asked: Question, chosen: int, to: Console) -> None:
    """Whether the answer was right, why another was wrong, and what to remember."""
    if chosen == asked.right:
        to.print(Text(f"\nYou said {chosen}. Right: {asked.answer}", "bold green"))
    else:
        to.print(Text(f"\nYou said {chosen}. It is {asked.right}: {asked.answer}", "bold yellow"))
        if why := asked.choices[chosen - 1].wrong:
            to.print(why)
    to.print(f"\n{asked.lesson}\n")


def mystery(part: Mystery, number: int, of: int, result: Result, to: Console) -> None:
    """A capture's story and some of its packets, without a word on what they are."""
    (excerpt,) = excerpts([part.capture], [Window(result.connections[0], *part.frames)])
    to.print(Rule(f"Mystery {number} of {of}", style="dim"))
    to.print(f"{part.story}\n")
    to.print(ladder_text(ladder(excerpt.connection, excerpt.steps)))


def diagnosis(part: Mystery, result: Result, to: Console) -> None:
    """What the analysis of a mystery says."""
    file = Path(*part.capture.parts[-3:])
    _verdict(result.verdict, str(file), result.reason, to)
    causes = ", ".join(
        f"{silence.count} × {cause.replace('_', ' ')} ({silence.total_ms / silence.count:.0f} ms each)"
        for cause, silence in sorted(result.silences.items(), key=lambda item: -item[1].total_ms)
    )
    to.print(f"Silences of 20 ms and more: {causes or 'none'}.")
    if result.stalls:
        _typical(part.capture, result, to)


def score(right: int, asked: int, left: bool, to: Console) -> None:
    """How many answers were right."""
    to.print(Rule("left early" if left else "the end", style="dim"))
    to.print(Text(f"Score: {right} of {asked}", "bold"))
    to.print("\nTo read on: docs/workshop/handout.md, and docs/README.md for the rest.")


def _verdict(verdict: str, title: str, reason: str, to: Console) -> None:
    to.print(Text.assemble((f" {verdict} ", f"{STYLE[verdict]} reverse"), "  ", (printable(title), "bold")))
    to.print(Text(printable(reason)))


def _typical(capture: Path, result: Result, to: Console) -> None:
    to.print(Text(f"\nA typical stall, in {capture.name}:", "dim"))
    to.print(ladder_text(ladder_of([capture], result, result.stalls.typical())))
