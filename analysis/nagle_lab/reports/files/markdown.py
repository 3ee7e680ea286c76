"""Markdown: text and tables in it, and the page of a run or a capture, for a pull request or a job summary."""

import html
import re
from collections.abc import Container, Iterable, Iterator, Sequence

from nagle_lab.diagnosis.result.remedy import remedy
from nagle_lab.diagnosis.result.result import Result
from nagle_lab.diagnosis.result.writes import Writes, here
from nagle_lab.errors import printable
from nagle_lab.evidence.ladder import Ladder
from nagle_lab.evidence.software import NodelaySetting
from nagle_lab.reports.words.ladder_text import ladder_text
from nagle_lab.reports.words.next_steps import ends, idle_gaps
from nagle_lab.reports.words.numbers import percentiles
from nagle_lab.reports.words.phrases import exchanges, findings, how_sure, processes, servers
from nagle_lab.reports.words.reported import ReportedCapture
from nagle_lab.reports.words.writes_text import writes_rows
from nagle_lab.runs.run import Run

_SPECIAL = re.compile(r"([\\`*_{}\[\]#|~])")
_SIGNS = {"STALL": "🔴", "CLEAN": "🟢", "INCONCLUSIVE": "🟡", "INVALID": "🟣"}


def escaped(text: str) -> str:
    """Text that Markdown shows as it is: no markup, no HTML, no mention, no line break."""
    harmless = _SPECIAL.sub(r"\\\1", html.escape(printable(text), quote=False))
    return harmless.replace("@", "@\u200b")  # mentions are made from the page's text, even if it is escaped


def table(headings: Sequence[str], rows: Iterable[Iterable[str]], words: Container[int] = range(99)) -> Iterator[str]:
    """The lines of a table of cells that are Markdown; columns other than ``words`` are figures."""
    yield _line(headings)
    yield _line(["---" if i in words else "---:" for i in range(len(headings))])
    yield from map(_line, rows)


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def page_of_capture(of: ReportedCapture) -> str:
    """A diagnosed capture, with the ladder of a stall."""
    result, reason = of.result, of.result.reason
    outcome = f"{_SIGNS[result.verdict]} {result.verdict}"
    if of.failure:
        outcome = f"🔴 {result.verdict} · {of.failure}"
        reason = reason.removeprefix(f"{of.failure}; ")
    damage = (("damage", damage) for damage in result.quality.damage)
    rows = [*of.about, *_figures(result, of.packets.software, of.writes, slow=of.slow), *damage]
    contradictions = [of.against] if of.against else []
    return _page(outcome, of.name, reason, contradictions, rows, [], of.ladder)


def page_of_run(run: Run, ladder: Ladder | None, contradictions: Sequence[str]) -> str:
    """A judged run, with the ladder of its typical stall; ``contradictions`` are differences from its expectation."""
    m, load = run.manifest, run.witnesses.load
    outcome = f"{_SIGNS[run.verdict]} {run.verdict}"
    if run.verdict.is_conclusive:
        outcome = f"{'🔴' if contradictions else '🟢'} {run.verdict}, {'not ' if contradictions else ''}as expected"
    rows = [
        ("load", f"{load.command}: {load.complete} requests, {load.requests_per_s:,.0f} per second"),
        *_figures(run.results[run.best], None, run.writes),
        ("server", f"{m.versions.server}"),
        ("on", f"Linux {m.versions.kernel}, Docker {m.versions.docker}"),
        ("run", run.folder.name),
    ]
    failed = [check for check in run.checks if not check.ok]
    notes = [f"- **witness disagrees**: {escaped(check.name)}: {escaped(check.detail)}" for check in failed]
    return _page(outcome, f"{m.scenario} / {m.variant}", run.reason, contradictions, rows, notes, ladder)


def _page(
    outcome: str,
    title: str,
    reason: str,
    contradictions: Sequence[str],
    rows: Iterable[tuple[str, str]],
    notes: Sequence[str],
    ladder: Ladder | None,
) -> str:
    lines = [f"### {outcome} · {escaped(title)}", "", escaped(reason), ""]
    if contradictions:
        lines += [*(f"- **not as expected**: {escaped(line)}" for line in contradictions), ""]
    lines += [*table(["", ""], (map(escaped, row) for row in rows)), "", *notes]
    if ladder:
        drawn = [line.rstrip() for line in ladder_text(ladder).plain.splitlines()]
        of = f" of {ladder.run}" if ladder.run else ""
        summary = f"<details><summary>a typical stall{of}, frame by frame</summary>"
        lines += [summary, "", "```text", *drawn, "```", "", "</details>", ""]
    return "\n".join(lines) + "\n"


def _figures(
    result: Result, software: NodelaySetting | None, writes: Writes | None, *, slow: bool = True
) -> Iterator[tuple[str, str]]:
    s = result.summary
    yield "exchanges", exchanges(result)
    for name, spread in (("wait for the late ACK", s.wait_ms), ("exchange", s.exchange_ms)):
        if spread:
            yield name, percentiles(spread, "p50", "p99", "max")
    yield from ends(result, software)
    yield from processes(result)
    yield from servers(s)
    yield from findings(result)
    yield from idle_gaps(result, slow=slow)
    if s.held_by and s.remedy:
        yield "held by", s.who_held
        yield "delayed by", s.who_delayed
        yield "how sure", how_sure(result)
        yield "remedy", remedy(s, writes, here()) or ""
        yield from writes_rows(writes) if writes else ()
