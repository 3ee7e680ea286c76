"""Pages on a terminal: each screen begins at the top, and none is longer than the terminal; and the outline."""

from collections.abc import Iterator, Sequence

from rich.console import Console, Group, RenderableType
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from nagle_lab.cli.workshop.pages import Asked, Banner, Block, Drawing, Page, Prose
from nagle_lab.cli.workshop.script import MYSTERIES, Workshop
from nagle_lab.errors import printable
from nagle_lab.reports.screens.terminal import verdict_of

WIDTH = 78

_FEWEST = 24  # the least number of lines that a terminal is assumed to have
_PROMPT = 1

Screen = list[RenderableType]


def whole(page: Page) -> Screen:
    """A whole page, however long: for a log or a file."""
    return _screen(page, [*page.top, *page.below])


def screens(page: Page, on: Console) -> Iterator[Screen]:
    """A page in as many screens as it needs, with the page's top on each screen that has room for it."""
    room = max(on.height, _FEWEST) - _PROMPT

    def fits(blocks: Sequence[Block]) -> bool:
        return sum(len(on.render_lines(each, pad=False)) for each in _screen(page, blocks)) <= room

    def below_top(blocks: Sequence[Block]) -> Screen:
        return _screen(page, both if fits(both := [*page.top, *blocks]) else blocks)

    if page.top and page.below and (page.pause or not fits([*page.top, page.below[0]])):
        yield _screen(page, page.top)
    here: list[Block] = []
    for block in page.below:
        if here and not fits([*page.top, *here, block]):
            yield below_top(here)
            here = []
        here.append(block)
    yield below_top(here)


def print_screen(screen: Screen, to: Console, *, clear: bool) -> None:
    """Print a screen; with ``clear`` on an empty terminal, if it can be cleared."""
    if clear:
        to.clear()
    for each in screen:
        to.print(each)


def _screen(page: Page, blocks: Sequence[Block]) -> Screen:
    """The title and the blocks, an empty line after each."""
    between = [part for block in blocks for part in (_drawn(block), Text())]
    return [Rule(page.title, style="dim"), *between]


def _drawn(block: Block) -> RenderableType:
    match block:
        case Prose(text, style):
            return Text(text, style)
        case Banner(verdict, title, reason):
            return Text("\n").join([verdict_of(verdict, title), Text(printable(reason))])
        case Asked(asks, choices):
            table = Table.grid(padding=(0, 1))
            for number, text in enumerate(choices, 1):
                table.add_row(Text(f"  {number}", "bold cyan"), text)
            return Group(Text(asks, "bold"), Text(), table)
        case Drawing(_, content):
            return content


def show_outline(script: Workshop, screen: Console) -> None:
    """Print the outline, with the right answers, for the person who leads the workshop."""
    for incident in script.incidents:
        scenario = incident.scenario
        _heading(f"{incident.number}. {scenario.name}", incident.minutes, screen)
        screen.print(Text(f"   {incident.simulated}"))
        for variant, question in ((scenario.stalled, incident.stalled), (scenario.fixed, incident.fixed)):
            _line(variant, question.asks, screen)
            _line("", f"{question.right}  {question.answer}", screen)
    if script.mysteries:
        _heading(MYSTERIES, script.mystery_minutes, screen)
    for number, mystery in enumerate(script.mysteries, 1):
        _line(
            f"{number}. {mystery.capture.parent.name}", f"{mystery.question.right}  {mystery.question.answer}", screen
        )
    _heading("in all", script.minutes, screen)


def _heading(name: str, minutes: int, screen: Console) -> None:
    screen.print(Text(f"{name:<66}{minutes:>4} min", "bold"))


def _line(name: str, text: str, screen: Console) -> None:
    table = Table.grid(padding=(0, 1))
    table.add_column(width=26)
    table.add_column(overflow="fold")
    table.add_row(f"   {name}", text)
    screen.print(table)
