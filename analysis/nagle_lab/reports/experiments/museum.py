"""The museum: its table on the screen, and its page, docs/museum.md."""

import platform
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from rich.console import Console
from rich.text import Text

from nagle_lab.errors import Exit, printable
from nagle_lab.experiments.software.museum import ECOSYSTEMS, Exhibit, ExhibitHalf, ExhibitRun, HalfOutcome
from nagle_lab.reports.files.markdown import escaped, table
from nagle_lab.reports.screens.terminal import STYLE, ruled_table
from nagle_lab.reports.words.numbers import NONE, share

NAMES = {
    "pypi": "PyPI",
    "npm": "npm",
    "maven": "Maven Central",
    "crates": "crates.io",
    "go": "Go modules",
    "debian": "Debian",
}


def show_museum(shown: Sequence[ExhibitRun], screen: Console) -> None:
    """Print both halves of each exhibit, and what is not as expected."""
    listed = ruled_table("exhibit", "bad", "stalled", "held by", "wait", "good", "")
    for one in shown:
        listed.add_row(
            one.exhibit.name, *_outcome(one.bad), *_cells(one.bad), *_outcome(one.good),
            Text("as expected" if one.code is Exit.OK else "see below", "" if one.code is Exit.OK else "bold red"),
        )  # fmt: skip
    screen.print(listed)
    for one in shown:
        for half, outcome in (("bad", one.bad), ("good", one.good)):
            if outcome.problem:
                screen.print(Text(f"{one.exhibit.name}, {half} half: {printable(outcome.problem)}"), soft_wrap=True)


def summary_line(shown: Sequence[ExhibitRun]) -> str:
    """A line: how many exhibits were as expected."""
    counts = Counter(one.code for one in shown)
    parts = [f"{counts[Exit.OK]} of {len(shown)} exhibits as expected"]
    parts += [f"{counts[Exit.CONTRADICTED]} not"] * bool(counts[Exit.CONTRADICTED])
    parts += [f"{counts[Exit.INCONCLUSIVE]} could not run here"] * bool(counts[Exit.INCONCLUSIVE])
    return ", ".join(parts)


def _outcome(outcome: HalfOutcome) -> list[Text]:
    verdict = outcome.result.verdict if outcome.result else NONE
    return [Text(verdict, STYLE.get(verdict, ""))]


def _cells(outcome: HalfOutcome) -> list[str]:
    """Stalled share, who held, and the median wait."""
    s = outcome.result.summary if outcome.result else None
    if s is None or s.wait_ms is None:
        return [NONE] * 3
    return [share(s.stalled_share), str(s.held_by), f"{s.wait_ms.p50:.0f} ms"]


def list_exhibits(every: Sequence[Exhibit], screen: Console) -> None:
    """Print the name of each exhibit, and what it is."""
    listed = ruled_table("exhibit", "what", "kind", "held by", "today")
    for one in every:
        listed.add_row(one.name, printable(one.what), one.kind, one.held_by, "stalls" if one.latest else "fixed")
    screen.print(listed)


def museum_page(shown: Sequence[ExhibitRun]) -> str:
    """The page: a table for each ecosystem, and what its users can do."""
    return "\n\n".join(_parts(shown)) + "\n"


def _parts(shown: Sequence[ExhibitRun]) -> Iterator[str]:
    """Headings, paragraphs, tables and lists, between which are empty lines."""
    latest = sum(one.exhibit.latest for one in shown)
    yield "# The museum"
    yield (
        f"Released software that stalls, and the release or setting of it that does not: {len(shown)} pairs from "
        f"{len({one.exhibit.ecosystem for one in shown})} ecosystems; in {latest} of them today's release stalls. "
        "Each half is installed from its ordinary registry, pinned by hashes, run by `nagle-lab guard`, and judged "
        "from its segments. `make museum` runs all of it and writes this page; this one is of "
        f"{datetime.now(UTC):%Y-%m-%d}, on Linux {platform.release().split('-')[0]}: {summary_line(shown)}."
    )
    yield (
        "*Stalled* is the share of the exchanges of the bad half. *Held by* is the end of the connection whose "
        "Nagle's algorithm waited for the other's delayed ACK. *Since* names the first release known to stall, "
        "*or earlier* where no older one could be tried; it was run, or, where that is said, its source was read. "
        "[How to add an exhibit](../museum/README.md)."
    )
    headings = ("exhibit", "kind", "bad", "stalled", "held by", "wait", "good", "latest stalls")
    for ecosystem in ECOSYSTEMS:
        if ones := [one for one in shown if one.exhibit.ecosystem == ecosystem]:
            yield f"## {NAMES[ecosystem]}"
            yield "\n".join(table(headings, map(_row, ones)))
            yield "\n".join(map(_about, ones))


def _row(run: ExhibitRun) -> list[str]:
    e = run.exhibit
    bad, good = (
        f"{escaped(_half(half))}: {_word(outcome)}" for half, outcome in ((e.bad, run.bad), (e.good, run.good))
    )
    name = f"[{escaped(e.software)}](../museum/{e.name})"
    return [name, e.kind, bad, *_cells(run.bad), good, "yes" if e.latest else "no"]


def _word(outcome: HalfOutcome) -> str:
    if outcome.result is None:
        return "could not run here"
    return f"**{outcome.result.verdict}**" + (", not as expected" if outcome.problem else "")


def _half(half: ExhibitHalf) -> str:
    return f"{half.version}, {half.setting}" if half.setting else half.version


def _about(run: ExhibitRun) -> str:
    e = run.exhibit
    by = " (by its source)" if e.since_by == "source" else ""
    since = f" Since {escaped(e.since)}{by}." if e.since else ""
    thread = f" [Thread]({e.thread})." if e.thread else ""
    return f"- **{escaped(e.what)}**: {escaped(e.why)}{since}{thread} *What its users can do:* {escaped(e.remedy)}"
