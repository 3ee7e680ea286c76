"""The live screen, and its lines without a terminal."""

from collections.abc import Sequence
from dataclasses import dataclass

from rich import box
from rich.console import Console, Group, RenderableType
from rich.layout import Layout
from rich.table import Table
from rich.text import Text

from nagle_lab.diagnosis.result.remedy import NODELAY, ONE_WRITE
from nagle_lab.diagnosis.result.result import Role
from nagle_lab.diagnosis.result.spread import duration_text
from nagle_lab.diagnosis.result.verdict import Verdict
from nagle_lab.errors import printable
from nagle_lab.evidence.ladder import Ladder
from nagle_lab.live.watch.live_findings import Finding
from nagle_lab.live.watch.periods import PeriodSums
from nagle_lab.live.watch.view import MOST_PIDS, Row, View
from nagle_lab.reports.screens.terminal import STYLE, LadderView, facts, headline, ruled_table
from nagle_lab.reports.words.ladder_text import ladder_text
from nagle_lab.reports.words.numbers import share, shortened
from nagle_lab.reports.words.phrases import how_sure

ORDERS = {
    "lost": lambda row: -row.lost_ms,
    "stalls": lambda row: -row.stalls,
    "wait": lambda row: -row.wait_ms,
    "share": lambda row: -row.share,
    "exchanges": lambda row: -row.exchanges,
    "name": lambda row: (row.process or row.server, row.server),
}
_LEAVE = "q report"
KEYS = f"s sort  / filter  c connections  f freeze  enter open  w write  {_LEAVE}"
_OPENED_KEYS = f"esc back  w write its packets  f freeze  {_LEAVE}"
_HOLDER, _WIDE, _WIDEST = 100, 120, 140  # widths: for the column of who held; for all; the most used
_NARROW = 50  # width below which there is no ladder, and the only figure is how much was lost
_FIGURES = {"lost ms/s": 9, "stalls/s": 8, "wait ms": 7, "share": 5}  # headings and widths
_MOST_PERIODS = 24  # that are listed
_HEADINGS = 2  # lines above the table: column names and a rule; omitted if there is no room for a row
_FEW_ROWS = 4  # rows of the table that a ladder leaves


@dataclass
class Screen:
    """The user's choices, and the state of the screen."""

    target: str
    window_s: float
    view: View | None = None
    order: str = "lost"
    filter: str = ""
    typing: bool = False  # the filter
    single: bool = False  # connections instead of programs
    frozen: bool = False
    selected: int = 0
    opened: tuple[str, str, str, str] | None = None  # the key of the row that is shown alone
    message: str = ""  # the latest
    final: str = ""  # results of the ended periods
    counted: str = ""  # stalls since the beginning
    packets: int = 0
    dropped: int = 0

    def rows(self) -> list[Row]:
        """The rows to show, in order."""
        if not self.view:
            return []
        rows = self.view.connections if self.single else self.view.rows
        text = self.filter.lower()
        shown = [row for row in rows if text in f"{row.process} {row.server} {row.peer} {row.verdict}".lower()]
        return sorted(shown, key=ORDERS[self.order])

    def row(self) -> Row | None:
        """The selected row."""
        rows = self.rows()
        return rows[min(self.selected, len(rows) - 1)] if rows else None

    def opened_row(self) -> Row | None:
        """The row that is open, while it exists."""
        return next((row for row in self.rows() if identity(row) == self.opened), None)


def identity(row: Row) -> tuple[str, str, str, str]:
    """The key that identifies a row on the screen."""
    return (*row.key, row.where if "addresses" not in row.where else "")


def render(screen: Screen, width: int, height: int) -> RenderableType:
    """The whole live screen as text, ``width`` columns by ``height`` lines."""
    head, foot = (
        Group(_head(screen), _counts(screen)),
        Text(_foot(screen, width), "dim", no_wrap=True, overflow="ellipsis"),
    )
    room = height - 3
    row = screen.opened_row() if screen.opened else None
    body = _opened(screen, row, room) if row and screen.view else _overview(screen, min(width, _WIDEST), room)
    layout = Layout()
    layout.split_column(Layout(head, size=2), Layout(Group(*body)), Layout(foot, size=1))
    return layout


def _head(screen: Screen) -> Text:
    state = ("FROZEN", "bold yellow reverse") if screen.frozen else ("LIVE", "bold cyan reverse")
    view = screen.view
    of = f"last {min(view.seconds, screen.window_s):.0f} s" if view else "waiting for packets"
    text = Text.assemble((f" {state[0]} ", state[1]), f" {printable(screen.target)} · {of}", no_wrap=True)
    text.append(" · may still change", "dim")
    if screen.dropped:
        text.append(f" · {screen.dropped:,} packets lost", "bold yellow")
    if view and view.is_cut:
        text.append(f" · of too many connections the last {len(view.result.connections):,}", "bold yellow")
    text.truncate(200, overflow="ellipsis")
    return text


def _counts(screen: Screen) -> Text:
    chosen = f"by {screen.order}" + (f", filter {screen.filter}" if screen.filter else "")
    parts = [screen.message, chosen, f"{screen.packets:,} packets", screen.counted, screen.final]
    return Text(" · ".join(printable(part) for part in parts if part), "dim", no_wrap=True, overflow="ellipsis")


def _foot(screen: Screen, width: int) -> str:
    """The keys; the one to leave with comes first where not all have room."""
    if screen.typing:
        return f"filter: {screen.filter}▏ (enter: keep, esc: none)"
    keys = _OPENED_KEYS if screen.opened else KEYS
    return keys if len(keys) <= width else "  ".join([_LEAVE, keys.removesuffix(_LEAVE)])


def _overview(screen: Screen, width: int, room: int) -> list[RenderableType]:
    ladder = _latest(screen, width)
    is_headed = room > _HEADINGS
    space = room - _HEADINGS if is_headed else max(room, 1)
    if space - len(ladder) >= min(_FEW_ROWS, len(screen.rows())):
        space -= len(ladder)
    else:
        ladder = []
    rows = screen.rows()
    selected = min(screen.selected, max(len(rows) - 1, 0))
    first = max(0, min(selected - space + 1, len(rows) - space))
    if not rows:
        return [Text("nothing to show" + (" for this filter" if screen.filter else " yet"), "dim"), *ladder]
    table = _table(rows[first : first + space], screen, width, selected - first)
    table.show_header = is_headed
    return [table, *ladder]


def _latest(screen: Screen, width: int) -> list[RenderableType]:
    latest = screen.view.latest if screen.view else None
    if not latest or width < _NARROW:
        return []
    return [Text("the latest stall", "bold"), *ladder_text(_shortened(latest), width).split("\n")]


def _shortened(ladder: Ladder) -> Ladder:
    """The first row of a ladder, and those of its stall."""
    rows = list(ladder.rows)
    parts = [row for row in rows if row.part]
    return Ladder(ladder.connection, [rows[0], *(row for row in parts if row is not rows[0])], ladder.stall)


def _table(rows: Sequence[Row], screen: Screen, width: int, selected: int) -> Table:
    assert screen.view
    others = {"verdict": 12}
    others |= {"how sure": 8} if width >= _WIDE else {}
    others |= {"held by": 7} if width >= _HOLDER else {}
    figures = {name: _FIGURES[name] for name in _shown_figures(width)}
    ends = [(_server(row), _client(row, screen.single)) for row in rows]
    room = width - sum(each + 1 for each in (others | figures).values()) - 1  # between the two
    widths = _widths([server for server, _ in ends], [client for _, client in ends], room)
    table = Table(box=box.SIMPLE_HEAD, padding=0, show_edge=False)  # the box has a space between columns
    for name, columns in {"server": widths[0], "client": widths[1], **others}.items():
        table.add_column(name, width=columns, no_wrap=True)
    for name, columns in figures.items():
        table.add_column(name, width=columns, justify="right", no_wrap=True)
    for number, row in enumerate(rows):
        server, client = (end.fitted(columns) for end, columns in zip(ends[number], widths, strict=True))
        cells: list[Text | str] = [Text(server, "bold"), client, Text(_verdict(row, width), STYLE[row.verdict])]
        cells += [row.sure] if "how sure" in others else []
        cells += ["+".join(sorted(row.held_by))[:7]] if "held by" in others else []
        values = _figures(row, screen.view.seconds)
        table.add_row(*cells, *(values[name] for name in figures), style="reverse" if number == selected else "")
    return table


def _shown_figures(width: int) -> Sequence[str]:
    if width < _NARROW:
        return ["lost ms/s"]
    return [name for name in _FIGURES if width >= _WIDE or name != "stalls/s"]


def _verdict(row: Row, width: int) -> str:
    return row.verdict if width >= _WIDE or row.sure != "likely" else f"{row.verdict} ?"


@dataclass(frozen=True)
class _End:
    """An end in a row: a program and its port, or an address; and the container, which may be cut."""

    what: str
    container: str = ""

    def __len__(self) -> int:
        return len(self.what) + len(_IN + self.container) * bool(self.container)

    def fitted(self, width: int) -> str:
        """The text in ``width`` columns; a longer text keeps its end, where the port is."""
        if len(self.what) > width:
            return "…" + self.what[-(width - 1) :]
        room = width - len(self.what + _IN)
        return self.what + (_IN + shortened(self.container, room) if self.container and room >= _LEGIBLE else "")


_IN, _LEGIBLE = " in ", 5  # least columns of a container's name that mean something


def _server(row: Row) -> _End:
    return _program(row.process, f" :{row.server.rpartition(':')[2]}") if row.process else _End(row.server)


def _client(row: Row, single: bool) -> _End:
    if not row.clients:
        return _End(row.where)
    return _program(row.clients, f" {row.where}" if single else "")


def _program(name: str, then: str) -> _End:
    """Splits "container/program" from live/watch/program_names.py; the container may be missing."""
    container, _, program = name.rpartition("/")
    return _End(printable(program) + then, printable(container))


def _widths(servers: Sequence[_End], clients: Sequence[_End], room: int) -> tuple[int, int]:
    """The widths of the two columns: programs and ports first, containers get the rest."""
    program, address = (max(len(end.what) for end in ends) for ends in (servers, clients))
    client = max(min(address, max(room // 2, room - program)), min(max(map(len, clients)), room * 2 // 5))
    server = max(min(max(map(len, servers)), room - client), len("server"))
    return server, max(room - server, len("client"))


def _figures(row: Row, seconds: float) -> dict[str, str]:
    """By the headings of _FIGURES."""
    if not row.stalls:
        return dict.fromkeys(_FIGURES, "") | {"share": "0%" if row.exchanges else ""}
    return {
        "lost ms/s": f"{row.lost_ms / seconds:,.0f}",
        "stalls/s": f"{row.stalls / seconds:,.1f}",
        "wait ms": f"{row.wait_ms:.1f}",
        "share": share(row.share),
    }


def _opened(screen: Screen, row: Row, room: int) -> list[RenderableType]:
    assert screen.view
    view = screen.view
    stalls = view.stalls_of(row)
    rows = [
        ("server", f"{row.process}{_pids(row, 'server')} {row.server}".strip()),
        ("client", f"{row.clients}{_pids(row, 'client')} {row.where}".strip()),
        ("verdict", row.verdict + (f": {row.reason}" if row.reason else "")),
        ("exchanges", f"{row.exchanges:,}, stalled {row.stalled:,} ({share(row.share)})"),
        ("connections", f"{len(row.connections):,}"),
    ]  # fmt: skip
    if stalls:
        rows += [
            ("lost", f"{row.lost_ms:,.1f} ms in {row.stalls:,} stalls, median wait {row.wait_ms:.1f} ms"),
            ("held by", f"{' and '.join(sorted(row.held_by))}: Nagle's algorithm"),
            ("how sure", how_sure(view.result) if row.certain else "likely: seldom, or not at the sender"),
            ("remedy", f"{ONE_WRITE}, or {NODELAY}, at the end that held"),
        ]
    body: list[RenderableType] = [facts(rows)]
    if stalls and room > len(rows) + 9:
        body += [Text("its latest stall", "bold"), LadderView(_shortened(view.ladder(stalls[-1])))]
    return body


def _pids(row: Row, role: Role) -> str:
    """The numbers of its processes at that end, as in the report behind the name."""
    pids = sorted(row.pids.get(role, ()))
    more = ", …" if len(pids) == MOST_PIDS else ""
    return f" {', '.join(map(str, pids))}{more}" if pids else ""


def line(finding: Finding) -> str:
    """One finding as one plain line."""
    who = f"{finding.process} {finding.server}".strip()
    state = {"begins": "STALL", "goes_on": "STALL goes on", "ended": "stall over"}[finding.state]
    head = f"{finding.time} {state}: {who} with {finding.peer or 'its clients'}"
    if finding.state == "ended":
        return printable(f"{head}: {finding.stalls:,} stalls, {finding.lost_ms:,.1f} ms lost")
    return printable(
        f"{head}, held by the {' and the '.join(finding.held_by)}: {finding.stalls_per_s:.1f} stalls/s, "
        f"{finding.lost_ms_per_s:.0f} ms/s lost, wait {finding.wait_ms:.1f} ms, "
        f"{share(finding.stalled_share)} of exchanges, {finding.sure}"
    )


def since_start(stalls: int, lost_ms: float) -> str:
    """Stalls since the beginning, as the live view has counted them."""
    return f"since start {stalls:,} stalls, {duration_text(lost_ms)} lost" if stalls else ""


def final(verdicts: dict[Verdict, int]) -> str:
    """How many ended periods have each verdict, as text."""
    count = [f"{number} {verdict}" for verdict, number in verdicts.items() if number]
    return f"final: periods {', '.join(count)}" if count else ""


def show_periods(sums: PeriodSums, verdict: Verdict, reason: str, name: str, screen: Console) -> None:
    """Print the verdict on all periods, the latest periods, and which one is shown in full below."""
    assert sums.worst
    screen.print(headline(verdict, f"{name}: {sums.periods} periods", reason))
    table = ruled_table("period from", "verdict", "exchanges", "stalled", "lost s", words=2)
    for period in list(sums.listed)[-_MOST_PERIODS:]:
        table.add_row(
            period.began[:19].replace("T", " "), period.verdict, f"{period.exchanges:,}", f"{period.stalled:,}",
            f"{period.lost_ms / 1e3:,.1f}",
        )  # fmt: skip
    screen.print(table)
    which = "that lost most time" if sums.stalls else "that was the last"
    screen.print(Text(f"\nThe period {which}, from {(sums.worst.source.first_time or '')[:19]}:", "bold"))
