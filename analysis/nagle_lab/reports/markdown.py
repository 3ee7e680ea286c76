"""Markdown: text and tables in it, and the page of a run or a capture, for a pull request or a job summary."""

import html
import re
from collections.abc import Container, Iterable, Iterator, Sequence

from nagle_lab.diagnosis.result import Result
from nagle_lab.diagnosis.verdict import Verdict
from nagle_lab.errors import printable
from nagle_lab.evidence.ladder import Ladder
from nagle_lab.reports.ladder_text import ladder_text
from nagle_lab.reports.numbers import percentiles
from nagle_lab.runs.run import Run

_SPECIAL = re.compile(r"([\\`*_{}\[\]#|~])")
_SIGNS = {"STALL": "🔴", "CLEAN": "🟢", "INCONCLUSIVE": "🟡", "INVALID": "🟣"}


def escaped(text: str) -> str:
    """Text that Markdown shows as it is: no markup, no HTML, no mention, no line break."""
    harmless = _SPECIAL.sub(r"\\\1", html.escape(printable(text), quote=False))
    return harmless.replace("@", "@\u200b")  # a mention is made of the page's text, whatever escapes it


def table(headings: Sequence[str], rows: Iterable[Sequence[str]], words: Container[int] = range(99)) -> Iterator[str]:
    """The lines of a table of cells that are Markdown; columns other than ``words`` are figures."""
    yield _line(headings)
    yield _line(["---" if i in words else "---:" for i in range(len(headings))])
    yield from map(_line, rows)


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def page_of_capture(result: Result, ladder: Ladder | None, against: str = "") -> str:
    """A diagnosed capture, with the ladder of its typical stall; ``against``: the expectation it contradicts."""
    lines = [
        *_head(f"{_SIGNS[result.verdict]} {result.verdict}", result.source.file, result.reason),
        *_contradictions([against] if against else []),
    ]
    rows = [*_figures(result), *(("damage", damage) for damage in result.quality.damage)]
    lines += [*table(["", ""], ([escaped(a), escaped(b)] for a, b in rows)), ""]
    return "\n".join([*lines, *_proof(ladder)]) + "\n"


def page_of_run(run: Run, ladder: Ladder | None, unlike: Sequence[str]) -> str:
    """A judged run, with the ladder of its typical stall; ``unlike`` is how it differs from what was expected."""
    m, load = run.manifest, run.witnesses.load
    result = run.results[run.best]
    told = run.verdict in (Verdict.STALL, Verdict.CLEAN)
    said = f"{run.verdict}, {'not ' if unlike else ''}as expected" if told else run.verdict
    sign = _SIGNS[run.verdict] if not told else "🔴" if unlike else "🟢"
    lines = [*_head(f"{sign} {said}", f"{m.scenario} / {m.variant}", run.reason), *_contradictions(unlike)]
    rows = [
        ("load", f"{load.command}: {load.complete} requests, {load.requests_per_s:,.0f} per second"),
        *_figures(result),
        ("server", f"{m.versions.server}"),
        ("on", f"Linux {m.versions.kernel}, Docker {m.versions.docker}"),
        ("run", run.folder.name),
    ]
    lines += [*table(["", ""], ([escaped(a), escaped(b)] for a, b in rows)), ""]
    lines += [f"- **witness disagrees**: {escaped(c.name)}: {escaped(c.detail)}" for c in run.checks if not c.ok]
    return "\n".join([*lines, *_proof(ladder)]) + "\n"


def _head(verdict: str, title: str, reason: str) -> list[str]:
    return [f"### {verdict} · {escaped(title)}", "", escaped(reason), ""]


def _contradictions(found: Sequence[str]) -> list[str]:
    return [*(f"- **not as expected**: {escaped(line)}" for line in found), *([""] if found else [])]


def _figures(result: Result) -> Iterator[tuple[str, str]]:
    s = result.summary
    yield "exchanges", f"{s.exchanges:,}, stalled {s.stalled_exchanges:,} ({s.stalled_share:.1%})"
    for name, spread in (("wait for the late ACK", s.wait_ms), ("exchange", s.exchange_ms)):
        if spread:
            yield name, percentiles(spread, "p50", "p99", "max")
    if s.held_by and s.remedy:
        yield "held by, delayed by", f"{s.held_by}, {s.delayed_by}"
        yield "remedy", s.remedy


def _proof(ladder: Ladder | None) -> Iterator[str]:
    if ladder is None:
        return
    drawn = ladder_text(ladder).plain
    yield "<details><summary>a typical stall, frame by frame</summary>"
    yield from ("", "```text", *(line.rstrip() for line in drawn.splitlines()), "```", "", "</details>", "")
