"""The museum under ``guard --trace``: its table on the screen, and its page, docs/museum-writes.md."""

import platform
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from statistics import median

from rich.console import Console
from rich.text import Text

from nagle_lab.diagnosis.result.writes import Place, Write
from nagle_lab.errors import Exit, printable
from nagle_lab.experiments.writes.museum_writes import TracedExhibit
from nagle_lab.reports.files.markdown import escaped, table
from nagle_lab.reports.screens.terminal import ruled_table
from nagle_lab.reports.words.numbers import NONE, share


def show_traced(traced: Sequence[TracedExhibit], screen: Console) -> None:
    """Print both writes of each exhibit, and where they differ from its source."""
    listed = ruled_table("exhibit", "language", "trigger", "held", "")
    for one in traced:
        trigger, held = (Text(printable(said)) for said in _said(one))
        right = Text("both right") if one.code is Exit.OK else Text("see below", "bold red")
        listed.add_row(one.exhibit.name, one.expected.language, trigger, held, right)
    screen.print(listed)
    for one in traced:
        if one.code is not Exit.OK:
            screen.print(Text(f"{one.exhibit.name}: {printable(_why_not(one))}"), soft_wrap=True)


def traced_line(traced: Sequence[TracedExhibit]) -> str:
    """A line: how many of the exhibits that could run have the writes that their sources name."""
    ran = [one for one in traced if one.could_run]
    right = sum(one.code is Exit.OK for one in ran)
    missing = f", {len(traced) - len(ran)} could not run here" if len(ran) < len(traced) else ""
    return f"both writes named as the source has them in {right} of {len(ran)} bad halves{missing}"


def traced_page(traced: Sequence[TracedExhibit], left_out: Sequence[str] = ()) -> str:
    """The page: counts by language, each pair of writes, what is not right, and what tracing does to a run.

    ``left_out``: names of the exhibits that do not say where their writes are.
    """
    return "\n\n".join(_parts(traced, left_out)) + "\n"


def _parts(traced: Sequence[TracedExhibit], left_out: Sequence[str]) -> Iterator[str]:
    """Headings, paragraphs, tables and lists, between which are empty lines."""
    yield "# The two writes of the museum"
    yield (
        "The bad half of each exhibit of [the museum](museum.md) under [`nagle-lab guard --trace`]"
        "(guard.md#which-two-writes). An exhibit's file says where the source of that release makes the two writes, "
        "by file, line and function as far as they are pinned; a pair is *right* where both are there. "
        f"`make museum TRACE=1` runs all of it and writes this page; this one is of {datetime.now(UTC):%Y-%m-%d}, on "
        f"Linux {platform.release().split('-')[0]}: {traced_line(traced)}."
    )
    yield "\n".join(table(("language", "bad halves", "both right"), _by_language(traced), {0}))
    if ran := [one for one in traced if one.writes and one.writes.groups]:
        yield _weight(ran)
    yield "## Each pair"
    yield (
        "*Stalled* is the share of the exchanges without tracing and with it. *True hold* is the median from the "
        "held write to its release. *Time* is the traced run's over that of the run without."
    )
    headings = ("exhibit", "trigger", "held", "right", "stalled", "true hold", "time")
    yield "\n".join(table(headings, map(_row, traced), {0, 1, 2, 3}))
    if wrong := [one for one in traced if one.code is not Exit.OK]:
        yield "## Not right"
        yield "\n".join(f"- **{escaped(one.exhibit.name)}**: {escaped(_why_not(one))}" for one in wrong)
    if left_out:
        yield "## Left out"
        yield f"The files of {len(left_out)} exhibits do not say yet where their writes are: {', '.join(left_out)}."


def _by_language(traced: Sequence[TracedExhibit]) -> Iterator[list[str]]:
    for language in dict.fromkeys(one.expected.language for one in traced):
        ones = [one for one in traced if one.expected.language == language and one.could_run]
        yield [language, str(len(ones)), str(sum(one.code is Exit.OK for one in ones))]


def _weight(ran: Sequence[TracedExhibit]) -> str:
    """How tracing changes the share of stalled exchanges and the time."""
    points = sorted(abs(_shares(one)[1] - _shares(one)[0]) * 100 for one in ran)
    times = sorted(one.traced_s / one.untraced_s for one in ran if one.untraced_s)
    return (
        f"Tracing changed the share of stalled exchanges by more than five points in {sum(p > 5 for p in points)} of "
        f"{len(points)}, at most by {points[-1]:.0f}. The traced run took {median(times):.1f} times as long as the "
        f"one without (median; at most {times[-1]:.1f} times); the run with native stacks, which Rust, Go and C need "
        "for their lines, comes on top."
    )


def _shares(traced: TracedExhibit) -> tuple[float, float]:
    w = traced.writes
    assert w
    return (
        (w.untraced_stalled_exchanges or 0) / max(w.untraced_exchanges or 0, 1),
        w.stalled_exchanges / max(w.exchanges, 1),
    )


def _row(traced: TracedExhibit) -> list[str]:
    trigger, held = (f"`{said.replace('`', '')}`" if said != NONE else NONE for said in _said(traced))
    right = NONE if not traced.could_run else "yes" if traced.code is Exit.OK else "**no**"
    cells = [f"[{escaped(traced.exhibit.software)}](../museum/{traced.exhibit.name})", trigger, held, right]
    w = traced.writes
    if not w or not w.groups:
        return [*cells, NONE, NONE, NONE]
    before, after = _shares(traced)
    hold = f"{w.true_hold_ms.p50:.0f} ms" if w.true_hold_ms else NONE
    return [
        *cells,
        f"{share(before)}, {share(after)}",
        hold,
        f"{traced.traced_s / max(traced.untraced_s, 0.001):.1f} ×",
    ]


def _said(traced: TracedExhibit) -> tuple[str, str]:
    group = traced.group
    return (_place(group.trigger), _place(group.held)) if group else (NONE, NONE)


def _place(write: Write) -> str:
    """The library's line, otherwise the program's: an exhibit is a program that uses the software."""
    place = write.library or write.program
    return _short(place) if place else f"no line: {write.why_no_line}"


def _short(place: Place) -> str:
    """The last three parts of a file's path, at most: exhibits are installed where nobody else has them."""
    file = "/".join(place.file.rsplit("/", 3)[-3:])
    return f"{file}:{place.line} {place.function}" if file else place.function


def _why_not(traced: TracedExhibit) -> str:
    if traced.problem:
        return traced.problem
    if not traced.group:
        return "no stall was traced"
    ends = zip(("trigger", "held"), traced.right, (traced.group.trigger, traced.group.held), strict=True)
    expected = {"trigger": traced.expected.trigger, "held": traced.expected.held}
    wrong = [
        f"{name}: the source has {expected[name]}, the trace {_all(write)}" for name, ok, write in ends if not ok
    ]
    return "; ".join(wrong)


def _all(write: Write) -> str:
    """Both lines, and why there is none."""
    places = [_short(place) for place in (write.program, write.library) if place]
    return (" in ".join(places) or "nothing") + (f" ({write.why_no_line})" if write.why_no_line else "")
