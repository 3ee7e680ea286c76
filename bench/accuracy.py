"""How often the analyzer is right: `make accuracy`.

Every committed capture whose truth is known is analyzed; the confusion matrix of truth and verdict must be diagonal.
For the look-alikes every single segment is also compared with the sending socket's timestamps. Then follow the
families that mislead, and captures changed as capturing may change them, by family and position: right, unsure, or
wrong. Exit code 1 if a verdict is wrong that is not a known limit, or a segment of a look-alike in the capture at its
sender.
"""

import argparse
import sys
import tempfile
from collections import Counter
from pathlib import Path

from rich.console import Console
from rich.table import Table

from nagle_lab.diagnosis.analysis import analyze, analyze_same_traffic
from nagle_lab.diagnosis.result.result import Result
from nagle_lab.diagnosis.result.verdict import Verdict
from support.mixtures import can_be_mixed, mixtures
from support.synthetic import MS
from support.transforms import transformed, transformed_everywhere
from support.truth import (
    KNOWN_LIMITS,
    Judgement,
    Labelled,
    Score,
    both_ends,
    families,
    lookalikes,
    references,
    score,
    stacks,
)

Judged = list[tuple[Labelled, Result]]

PLACES = ("at the sender", "in the middle", "at the receiver")
EACH = 10  # how many others a capture is mixed with
SHOWN = 20  # most wrongly judged segments to show


def main() -> int:
    """Print both tables, or that of all families with captures changed in every way; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--everywhere",
        action="store_true",
        help="instead: every transformation of every family and stack (8,000 captures, a minute)",
    )
    parser.add_argument(
        "--mixed",
        action="store_true",
        help="instead: two captures as one, each with ten others (3,000, half a minute)",
    )
    screen, options = Console(width=110, highlight=False), parser.parse_args()
    if options.mixed:
        return _mixed(screen)
    return _everywhere(screen) if options.everywhere else _committed(screen)


def _mixed(screen: Console) -> int:
    """Judge servers that do two things on one port; returns the exit code."""
    both = can_be_mixed(families() + lookalikes())
    sound = [capture for capture in both if analyze(capture.path).verdict == capture.verdict]
    worth: Counter[Judgement] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "both.pcap"
        for mixture in mixtures(sound, EACH):
            mixture.write(path)
            result = analyze(path)
            judgement = mixture.judge(result)
            worth[judgement] += 1
            if judgement is Judgement.WRONG:
                screen.print(f"[red]wrong[/] {mixture.name}: called {result.verdict}")
    screen.print(f"{worth.total()} captures: {_counts(worth)}")
    return 1 if worth[Judgement.WRONG] else 0


def _counts(worth: Counter[Judgement]) -> str:
    return ", ".join(f"{worth[judgement]} {judgement}" for judgement in Judgement)


def _everywhere(screen: Console) -> int:
    """Judge every capture that is judged right again, changed as capturing may change it: right, unsure or wrong."""
    sound = [one for one in families() + stacks() if one.judge(analyze(one.path)) is not Judgement.WRONG]
    with tempfile.TemporaryDirectory() as folder:
        judged = [(capture, analyze(capture.path)) for capture in transformed_everywhere(sound, Path(folder))]
    screen.print(by_family(judged))
    return _print_wrong(judged, screen)


def _print_wrong(judged: Judged, screen: Console) -> int:
    """Print what is judged wrong, and how many in total; returns the exit code."""
    wrong = [(capture, result) for capture, result in judged if capture.judge(result) is Judgement.WRONG]
    for capture, result in wrong:
        known = f" ({KNOWN_LIMITS[capture.name]})" if capture.name in KNOWN_LIMITS else ""
        screen.print(f"[red]wrong[/] {capture.name}: is {_truth(capture)}; called {_said(result)}{known}")
    worth = Counter(capture.judge(result) for capture, result in judged)
    screen.print(f"{len(judged)} captures: {_counts(worth)}")
    return 1 if any(capture.name not in KNOWN_LIMITS for capture, _ in wrong) else 0


def _committed(screen: Console) -> int:
    """Judge the committed captures, and some of them changed as capturing may change them."""
    judged = [(capture, analyze(capture.path)) for capture in references() + lookalikes()]
    screen.print(matrix(judged))
    wrong = [(capture, result) for capture, result in judged if not capture.is_judged_right(result)]
    for capture, result in wrong:
        said = f"{result.verdict}, held by {result.summary.held_by}"
        screen.print(f"[red]wrong[/] {capture.name}: is {capture.verdict}, held by {capture.held_by}; called {said}")
    if not wrong:
        screen.print(f"{len(judged)} captures, every verdict right")
    screen.print()
    scores = by_place(judged)
    screen.print(segments(scores))
    frames = [frame for total in scores.values() for frame in total.frames]
    for frame in frames[:SHOWN]:
        screen.print(f"[red]wrong[/] {frame}")
    if len(frames) > SHOWN:
        screen.print(f"… and {len(frames) - SHOWN} more")
    screen.print()
    recorded = families()
    with tempfile.TemporaryDirectory() as folder:
        more = [*recorded, *stacks(), *transformed([*recorded, *stacks()], Path(folder))]
        judged += [(capture, analyze(capture.path)) for capture in more]
    screen.print(by_family(judged))
    return max(_print_wrong(judged, screen), _both_ends(recorded, screen), int(bool(scores[PLACES[0]].frames)))


def _both_ends(captures: list[Labelled], screen: Console) -> int:
    """Judge the captures taken at both ends together; returns the exit code."""
    worth: Counter[Judgement] = Counter()
    for ends in both_ends(captures):
        results = analyze_same_traffic(*(capture.path for capture in ends)).results
        for capture, result in zip(ends, results, strict=True):
            judgement = capture.judge(result)
            worth[judgement] += 1
            if judgement is Judgement.WRONG:
                screen.print(f"[red]wrong with the other end's[/] {capture.name}: called {_said(result)}")
    screen.print(f"{worth.total()} of these, each judged with that of the other end: {_counts(worth)}")
    return 1 if worth[Judgement.WRONG] else 0


def _truth(capture: Labelled) -> str:
    stalls = "" if capture.stalls is None else f", {capture.stalls[0]} to {capture.stalls[1]} stalls"
    also = "".join(f" or {verdict}" for verdict in capture.also)
    return f"{capture.verdict}{also}, held by {capture.held_by}{stalls}"


def _said(result: Result) -> str:
    return f"{result.verdict}, held by {result.summary.held_by}, {result.summary.stalls} stalls"


def matrix(judged: Judged) -> Table:
    """Truth × verdict, by capture position."""
    table = Table("captured", "truth", *Verdict, title="Captures: truth × verdict", title_justify="left")
    for column in table.columns[2:]:
        column.justify = "right"
    for place in (*PLACES, None):
        counts = Counter((c.verdict, r.verdict) for c, r in judged if place in (c.where, None))
        table.add_section()
        for truth in (Verdict.STALL, Verdict.CLEAN):
            cells = [_cell(counts[truth, verdict], verdict is truth) for verdict in Verdict]
            table.add_row(place or "anywhere", truth, *cells)
    return table


def by_family(judged: Judged) -> Table:
    """How often the verdicts on each family's captures are right, by position."""
    table = Table(
        "family", "captured at", "captures", "STALL\nright", "CLEAN\nright", "INCONCLUSIVE\nright",
        "honestly\nunsure", "wrong", title="Families: what the verdicts are worth", title_justify="left",
    )  # fmt: skip
    for column in table.columns[2:]:
        column.justify = "right"
    verdicts = (Verdict.STALL, Verdict.CLEAN, Verdict.INCONCLUSIVE)
    for family in dict.fromkeys(capture.family for capture, _ in judged):
        table.add_section()
        of_family = [(capture, result) for capture, result in judged if capture.family == family]
        for number, position in enumerate(sorted({capture.position for capture, _ in of_family})):
            here = [(capture, result) for capture, result in of_family if capture.position == position]
            worth = Counter(capture.judge(result) for capture, result in here)
            right = Counter(r.verdict for c, r in here if c.judge(r) is Judgement.RIGHT)
            cells = [_cell(right[verdict], True) for verdict in verdicts]
            unsure, wrong = str(worth[Judgement.UNSURE] or "·"), _cell(worth[Judgement.WRONG], False)
            table.add_row("" if number else family, position, str(len(here)), *cells, unsure, wrong)
    return table


def by_place(judged: Judged) -> dict[str, Score]:
    """All look-alikes' segments, by capture position."""
    totals = {place: Score() for place in PLACES}
    for capture, result in judged:
        if capture.has_writes:
            totals[capture.where] += score(capture, result)
    return totals


def segments(scores: dict[str, Score]) -> Table:
    """Precision, recall and the error of the hold, by capture position."""
    table = Table(
        "captured", "segments", "held", "missed", "wrongly\nnamed", "precision", "recall",
        "wait − hold\nmin, ms", "median", "max", title="Segments: socket timestamps × stalls", title_justify="left",
        caption="Away from the sender the wait lacks the part of the round trip between the two.",
    )  # fmt: skip
    table.columns[0].no_wrap = True
    for column in table.columns[1:]:
        column.justify = "right"
    for place, s in scores.items():
        e = [error / MS for error in sorted(s.errors)]
        errors = [f"{e[0]:.2f}", f"{e[len(e) // 2]:.2f}", f"{e[-1]:.2f}"] if e else []
        mistakes = (_cell(s.missed, False), _cell(s.wrong, False))
        shares = (f"{s.precision:.4f}", f"{s.recall:.4f}")
        table.add_row(place, str(s.segments), str(s.right + s.missed), *mistakes, *shares, *errors)
    return table


def _cell(count: int, right: bool) -> str:
    if not count:
        return "·"
    return f"[green]{count}[/]" if right else f"[bold red]{count}[/]"


if __name__ == "__main__":
    sys.exit(main())
