"""Runs and captures side by side: on the screen, and as Markdown."""

from collections.abc import Iterator, Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from nagle_lab.errors import printable
from nagle_lab.experiments.comparison import QUANTITIES, Comparison, Difference, Gain, Quantity, Subject
from nagle_lab.reports.figures import NONE, number, ratio, share
from nagle_lab.reports.markup import escaped, heading_line, table_line
from nagle_lab.reports.terminal import STYLE

BESIDE = 3  # subjects beside the first in one table of the screen
_MOST = 24  # differences on the screen; a page has them all
_TWO_DECIMALS = {"packets_per_request", "wire_bytes_per_payload_byte"}
_COUNTS = {"delayed_acks", "kernel_delayed_acks"}
_IN_A_SENTENCE = {  # figure → what follows its gain
    "stalled_share": "",
    "exchange_p50_ms": " exchanges",
    "requests_per_s": " requests/s",
    "packets_per_request": " packets per request",
}


def show_comparison(found: Comparison, to: Console) -> None:
    """Verdicts, figures, gains over the first, and what differs; several tables where there are many."""
    for at in range(1, len(found.subjects), BESIDE):
        chosen = [0, *range(at, min(at + BESIDE, len(found.subjects)))]
        to.print(*_sources(found, chosen), "", _table(found, chosen), "", sep="\n")
    for line in sentences(found):
        to.print(Text(printable(line), "bold"))
    to.print(Text("\nWhat differs", "bold"))
    to.print(_differences(found) if found.differences else Text("nothing that was recorded", "dim"))
    if len(found.differences) > _MOST:
        to.print(Text(f"… and {len(found.differences) - _MOST} more: --json has them all", "dim"))
    if found.not_compared:
        to.print(Text(f"not compared, for only a run folder tells: {', '.join(found.not_compared)}", "dim"))


def sentences(found: Comparison) -> Iterator[str]:
    """The gain of each subject over the first in one sentence, in words that claim nothing for equal figures."""
    for subject, gains in zip(found.subjects[1:], found.gains, strict=True):
        said = [f"{gains[name].words}{what}" for name, what in _IN_A_SENTENCE.items() if _notable(gains[name])]
        if said:
            yield f"{name_of(found, subject)} against {name_of(found, found.subjects[0])}: {', '.join(said)}"


def markdown(found: Comparison, level: int = 2) -> str:
    """The same as Markdown, its heading at that level."""
    return "\n".join(_page(found, level)) + "\n"


def name_of(found: Comparison, subject: Subject) -> str:
    """What to call it: its variant where all are of one scenario, its source where names are not unique."""
    names = [each.name for each in found.subjects]
    if names.count(subject.name) > 1:
        return subject.source
    scenarios = {name.partition(" / ")[0] for name in names}
    return subject.name.partition(" / ")[2] or subject.name if len(scenarios) == 1 else subject.name


def value_of(quantity: Quantity, value: float | None) -> str:
    """A figure as it stands in tables; its unit is in the row's name."""
    if value is None:
        return NONE
    if quantity.name == "stalled_share":
        return share(value)
    if quantity.name in _COUNTS:
        return f"{value:,.0f}"
    return ratio(value) if quantity.name in _TWO_DECIMALS else number(value)


def _notable(gain: Gain) -> bool:
    return bool(gain.words) and not gain.words.startswith(("the same", "about the same"))


def _sources(found: Comparison, chosen: Sequence[int]) -> Iterator[Text]:
    for i in chosen:
        subject = found.subjects[i]
        verdict = Text(f" {subject.verdict} ", f"{STYLE[subject.verdict]} reverse")
        said = "" if subject.as_expected is not False else ", NOT as expected"
        where = f"  {printable(subject.source)}" if subject.is_run else ""
        yield Text.assemble(verdict, "  ", (printable(subject.name), "bold"), (where, "dim"), said)


def _table(found: Comparison, chosen: Sequence[int]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False, show_edge=False)
    table.add_column("", no_wrap=True)
    for i in chosen:
        table.add_column(printable(name_of(found, found.subjects[i])), justify="right", overflow="fold")
    alone = len(chosen) == 2
    if alone:
        table.add_column("", overflow="fold", style="cyan")
    for quantity in QUANTITIES:
        if all(found.subjects[i].figures[quantity.name] is None for i in chosen):
            continue
        cells = [Text(_cell(found, quantity, i, with_gain=not alone)) for i in chosen]
        words = [Text(found.gains[chosen[1] - 1][quantity.name].words)] if alone else []
        table.add_row(_row_name(quantity), *cells, *words)
    return table


def _row_name(quantity: Quantity) -> str:
    return f"{quantity.words}, {quantity.unit}" if quantity.unit == "ms" else quantity.words


def _cell(found: Comparison, quantity: Quantity, i: int, *, with_gain: bool) -> str:
    """A figure; with how it stands to the first one's where that is to be told."""
    value = value_of(quantity, found.subjects[i].figures[quantity.name])
    short = found.gains[i - 1][quantity.name].short if i and with_gain else ""
    return f"{value} ({short})" if short else value


def _differences(found: Comparison) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False, show_edge=False)
    table.add_column("", overflow="fold", style="dim")
    for subject in found.subjects:
        table.add_column(printable(name_of(found, subject)), overflow="fold")
    for difference in found.differences[:_MOST]:
        table.add_row(_fact(difference), *(Text(printable(value or NONE)) for value in difference.values))
    return table


def _fact(difference: Difference) -> str:
    section, name = difference.section, printable(difference.name)
    return name if name in (section, "in effect") and section != "setting" else f"{section}: {name}"


def _page(found: Comparison, level: int) -> Iterator[str]:
    names = [escaped(name_of(found, subject)) for subject in found.subjects]
    yield from (f"{'#' * level} {' · '.join(names)}", "")
    yield from (f"- **{escaped(line)}**" for line in sentences(found))
    alone = len(names) == 2
    yield ""
    yield from heading_line(["", *names, *([""] if alone else [])], words=1)
    yield table_line(["verdict", *(f"**{subject.verdict}**" for subject in found.subjects), *([""] if alone else [])])
    for quantity in QUANTITIES:
        if any(subject.figures[quantity.name] is not None for subject in found.subjects):
            cells = [_cell(found, quantity, i, with_gain=not alone) for i in range(len(names))]
            words = [found.gains[0][quantity.name].words] if alone else []
            yield table_line([_row_name(quantity), *cells, *words])
    yield ""
    if found.differences:
        yield from heading_line(["what differs", *names], words=1 + len(names))
        for difference in found.differences:
            yield table_line([escaped(_fact(difference)), *(escaped(value or NONE) for value in difference.values)])
    else:
        yield "Nothing that was recorded differs."
    yield ""
    sources = ", ".join(escaped(subject.source) for subject in found.subjects)
    yield f"Runs and captures: {sources}."
