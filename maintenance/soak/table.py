"""The soak's table, on the screen and as a page of Markdown, and what was not as expected."""

from collections.abc import Iterator

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from nagle_lab.diagnosis.result.verdict import Verdict
from nagle_lab.errors import Exit, printable
from nagle_lab.reports.files.markdown import table
from nagle_lab.reports.words.numbers import NONE, number
from soak.plan import Row, Soak, distinct

_HEADINGS = (
    ("what", ""),
    ("runs", ""),
    ("verdicts", ""),
    ("as ex-", "pected"),
    ("wrong", ""),
    ("checks", "failed"),
    ("packets", "captured"),
    ("lost", ""),
    ("timers", "late ms"),
    ("slowest", "mean/max s"),
)
_NAMES = 18  # columns of the screen: the longest name of a variant
_WORDS = ("what", "verdicts", "slowest")
_VERDICTS = (Verdict.STALL, Verdict.CLEAN, Verdict.INCONCLUSIVE, Verdict.INVALID, "error")
PREAMBLE = (
    "Each load kept the machine busy while the runs were made. *Wrong*: the verdict is STALL where nothing stalls, "
    "or CLEAN where something does. *Checks failed*: how often a witness of a run (load tool, configuration, "
    "tcpdump's counts, the kernel's counters) disagreed with its captures. *Lost*: packets that were received or "
    "dropped, but are in no capture. *Timers late*: the longest delay of a timer that a run measured. *Slowest "
    "stage*: the stage that took the most time; the load that a run puts on its server is one of the stages."
)


def show_soak(soak: Soak, to: Console) -> None:
    """The table, what was not as expected, and the sum."""
    made = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    for heading in _HEADINGS:
        made.add_column(
            "\n".join(heading),
            justify="left" if heading[0] in _WORDS else "right",
            overflow="fold",
            no_wrap=heading[0] != "what",
            min_width=_NAMES if heading[0] == "what" else None,
        )
    for row in soak.rows():
        style = "bold red" if row.wrong else "yellow" if row.as_expected < len(row.entries) else ""
        made.add_row(*(Text(cell, style) for cell in cells(row)))
    to.print("", made)
    for line in unexpected(soak):
        to.print(Text(printable(line), "yellow"))
    to.print("", Text(summary(soak), "bold"))


def markdown(soak: Soak) -> str:
    """A page of the same."""
    return "\n".join(_page(soak)) + "\n"


def cells(row: Row) -> list[str]:
    """A row under its headings."""
    made, (captured, lost), stage = len(row.entries), row.packets, row.slowest_stage
    return [
        row.what,
        str(made) if made >= row.planned else f"{made} of {row.planned}",
        "\n".join(f"{row.verdicts[name]} {name}" for name in _VERDICTS if name in row.verdicts) or NONE,
        str(row.as_expected),
        str(row.wrong),
        str(row.disagreeing),
        f"{captured:,}",
        f"{lost:,}",
        number(row.late_ms),
        f"{stage[0]} {stage[1]:.1f}/{stage[2]:.1f}" if stage else NONE,
    ]


def summary(soak: Soak) -> str:
    """One line: how many runs, and their outcomes."""
    entries = soak.of_plan()
    fine, wrong = sum(entry.code == Exit.OK for entry in entries), sum(entry.wrong for entry in entries)
    unsure = sum(entry.verdict == Verdict.INCONCLUSIVE for entry in entries)
    share = f" ({unsure / len(entries):.1%})" if unsure else ""
    left = f"; {len(soak.left())} still to be made" if soak.left() else ""
    runs, verdicts = f"{len(entries)} run{'s' * (len(entries) != 1)}", f"wrong verdict{'s' * (wrong != 1)}"
    return f"{runs}: {fine} as expected, {wrong} {verdicts}, {unsure} INCONCLUSIVE{share}{left}"


def unexpected(soak: Soak) -> Iterator[str]:
    """A line for each run that was not as expected."""
    for entry in soak.of_plan():
        if entry.code != Exit.OK:
            where = f" ({entry.folder})" if entry.folder else ""
            verdict = entry.verdict or "error"
            yield f"load {entry.load}, {entry.scenario} {entry.variant}: {verdict}: {entry.reason}{where}"


def _page(soak: Soak) -> Iterator[str]:
    machines = ", ".join(distinct(entry.machine for entry in soak.of_plan()))
    revisions = ", ".join(_short(revision) for revision in distinct(entry.revision for entry in soak.of_plan()))
    yield from ("# The soak: the same runs again and again", "")
    yield f"Written by `make -C maintenance soak MARKDOWN=docs/soak.md`. {machines}. Revisions: {revisions}."
    yield from ("", PREAMBLE, "")
    headings = [" ".join(filter(None, heading)).replace("ex- ", "ex") for heading in _HEADINGS]
    words = [i for i, heading in enumerate(_HEADINGS) if heading[0] in _WORDS]
    yield from table(headings, ([_cell(cell) for cell in cells(row)] for row in soak.rows()), words)
    yield from ("", f"**{summary(soak)}.**")
    if surprises := list(unexpected(soak)):
        yield ""
        yield from (f"- {printable(line)}" for line in surprises)


def _short(revision: str) -> str:
    return revision[:10] + ("-dirty" if revision.endswith("-dirty") else "")


def _cell(words: str) -> str:
    return words.replace("|", "\\|").replace("\n", ", ")
