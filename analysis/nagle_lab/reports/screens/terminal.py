"""The screen: one diagnosed capture, at 100 columns."""

import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.panel import Panel
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from nagle_lab.diagnosis.result.remedy import is_behind_full, remedy
from nagle_lab.diagnosis.result.result import Result, Stall, Summary
from nagle_lab.diagnosis.result.spread import Spread, plural
from nagle_lab.diagnosis.result.which_connections import is_one_way
from nagle_lab.diagnosis.result.writes import Writes, here
from nagle_lab.errors import printable
from nagle_lab.evidence.ladder import Ladder
from nagle_lab.reports.words.ladder_text import ladder_text
from nagle_lab.reports.words.next_steps import commands, idle_gaps
from nagle_lab.reports.words.numbers import percentiles
from nagle_lab.reports.words.phrases import (
    exchanges,
    findings,
    how_sure,
    only_processes,
    processes,
    servers,
    stalled_connections,
)
from nagle_lab.reports.words.reported import ReportedCapture
from nagle_lab.reports.words.writes_text import writes_rows
from nagle_lab.tcp.events import DELAYED, MS

WIDTH = 100
STYLE = {"STALL": "bold red", "CLEAN": "bold green", "INCONCLUSIVE": "bold yellow", "INVALID": "bold magenta"}

_NEAR = {
    "client": "at the client, or close to it",
    "server": "at the server, or close to it",
    "both": "close to both ends: each took less than 0.5 ms for the handshake",
    "neither": "between the ends, close to neither",
}


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Leave it to the command line: rich would end with exit code 1, which means a verdict."""
        raise BrokenPipeError

    def _write_buffer(self) -> None:
        """Text that cannot be written to stderr (full disk) is lost, as in errors.tell; the exit code remains."""
        try:
            super()._write_buffer()
        except BrokenPipeError:
            raise
        except OSError:
            if not self.stderr:
                raise

    def _render_buffer(self, buffer: Iterable[Segment]) -> str:
        """Lines end with their text, except on a terminal: rich fills them up to the width."""
        text = super()._render_buffer(buffer)
        if not self.encoding.startswith("utf"):
            text = text.translate(_ASCII)
        return text if self.is_terminal else _BLANKS.sub("\n", text)


# For encodings without lines and arrows; other characters beyond ASCII, as in a capture's name, become escapes.
_ASCII = str.maketrans(
    {
        **dict(zip("│┊║─▶◀→←■●·–−×÷µ×▏…", "|:|-><><#*---x/ux|~", strict=True)),
        "↔": "<>",
        "≤": "<=",
        "≥": ">=",
    }
)
_BLANKS = re.compile(r"[ \t]+\n")


def console(stderr: bool = False, at_most: int = WIDTH) -> Console:
    """A console as wide as the terminal, at most ``at_most``; 100 columns without a terminal."""
    plain = {"stderr": stderr, "highlight": False, "markup": False, "emoji": False}  # file names are no markup
    c = _Console(**plain)  # type: ignore[arg-type]
    return _Console(**plain, width=min(c.width, at_most) if c.is_terminal else WIDTH)  # type: ignore[arg-type]


def whole_console() -> Console:
    """A console as wide as the terminal, however wide that is."""
    return _Console(highlight=False, markup=False, emoji=False)


def show_capture(of: ReportedCapture, screen: Console, about: Sequence[tuple[str, str]] = ()) -> None:
    """Print a diagnosed capture, with the ladder of a stall; the names and values of ``about`` come first."""
    result = of.result
    screen.print(headline(result.verdict, of.name, result.reason))
    if result.source.tcp_packets or not about:
        about = [*about, *_capture_facts(result, slow=of.slow)]
    screen.print(facts(about))
    if result.stalls:
        screen.print(facts(who(result, of.writes)))
        if of.ladder:
            screen.print(*typical(of.ladder), sep="\n")
    show_commands(commands(result, of.packets.software) if of.to_paste is None else of.to_paste, screen)


_NO_QUOTES = str.maketrans("'\"`", "’”’")


def show_commands(to_paste: Sequence[tuple[str, Sequence[str]]], screen: Console) -> None:
    """Print lines to paste, below their purpose; each stays one line, however narrow the terminal is.

    All of it can be pasted into a shell: each line of a comment begins with #, and none has a quotation mark, which
    would open a string where comments are off (zsh).
    """
    for what, lines in to_paste:
        for comment in textwrap.wrap(
            f"{printable(what).translate(_NO_QUOTES)}:", max(screen.width - 2, 1), break_on_hyphens=False
        ):
            screen.print(Text(f"# {comment}", "dim"))
        screen.print(Text("\n".join(map(printable, lines))), soft_wrap=True)


def show_stall(result: Result, stall: Stall, number: int, ladder: Ladder, screen: Console) -> None:
    """One stall of a capture: its ladder and its figures; ``number`` counts from 1 in order of the release."""
    title = f"Stall {number} of {len(result.stalls)}"
    screen.print(*_ladder(ladder, title), sep="\n")
    screen.print(
        facts(
            [
                ("held by", f"{stall.held_by.role} {stall.held_by}, {stall.released_bytes} B"),
                ("behind", f"{stall.trigger_bytes} B in frame {stall.trigger_frame}, not yet acknowledged"),
                ("delayed by", f"{stall.delayed_by.role} {stall.delayed_by}, {stall.wait_ms:.3f} ms"),
                ("released", _released(stall)),
            ]
        )
    )


def _released(stall: Stall) -> str:
    if stall.ack_frame is None:
        return "after the late ACK, which this capture lacks: the release's timestamp echoes it"
    return f"{stall.release_us:.1f} µs after the late ACK, as seen where this was captured"


def shown_path(path: Path) -> str:
    """The path as one would type it in the working directory."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def headline(verdict: str, title: str, reason: str) -> RenderableType:
    """The banner: the verdict, its subject, and the reason."""
    border = STYLE[verdict].split()[-1]
    inside = Group(verdict_of(verdict, title), Text(printable(reason)))
    return Panel(inside, box=box.ROUNDED, border_style=border, padding=(0, 1))


def verdict_of(verdict: str, title: str) -> Text:
    """A verdict, or what there is instead, and its subject."""
    style = STYLE.get(verdict, STYLE["INCONCLUSIVE"])
    return Text.assemble((f" {verdict} ", f"{style} reverse"), "  ", (printable(title), "bold"))


def ruled_table(*headings: str, words: int = 99) -> Table:
    """A table with a line below its headings; its columns after the first ``words`` are figures."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False, show_edge=False)
    for i, heading in enumerate(headings):
        table.add_column(heading, justify="left" if i < words else "right", overflow="fold")
    return table


def facts(rows: Iterable[tuple[str, str]]) -> RenderableType:
    """A table of names and values, one pair below the other."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True, min_width=12)
    table.add_column(overflow="fold")
    for name, value in rows:
        table.add_row(printable(name), printable(value))
    return table


def _capture_facts(result: Result, *, slow: bool) -> list[tuple[str, str]]:
    s, source, q = result.summary, result.source, result.quality
    recorded_as = ", ".join([source.format, *source.link_type])
    packets = f"{source.packets:,} {plural('packet', source.packets)}"
    rows = [
        ("capture", f"{recorded_as} · {packets}, {source.tcp_packets:,} of TCP"),
        ("connections", f"{s.connections:,} ({_handshakes(result)})" if s.connections else "none"),
        ("stalls on", stalled_connections(result)),
        ("exchanges", exchanges(result)),
        ("delayed ACKs", _delayed_acks(s)),
        ("captured", _NEAR.get(s.captured_near or "")),
        *processes(result),
        ("wait", _spread(s.wait_ms, f"in the {s.stalls:,} {plural('stall', s.stalls)}")),
        ("exchange", _spread(s.exchange_ms, f"in all {s.exchanges:,} exchanges" if s.stalls else "")),
        *_by_server(s),
        *findings(result),
        *idle_gaps(result, slow=slow),
    ]
    if q.damage:
        rows.append(("damage", "; ".join(q.damage)))
    if q.not_decoded:
        rows.append(("left out", ", ".join(f"{n} {what}" for what, n in q.not_decoded.items())))
    return [(name, value) for name, value in rows if value]


def _by_server(s: Summary) -> list[tuple[str, str]]:
    found = servers(s)
    width = max((len(server) for server, _ in found), default=0)
    return [("" if i else "by server", f"{server:{width}}  {words}") for i, (server, words) in enumerate(found)]


def _handshakes(result: Result) -> str:
    """How many connections have their handshake in the capture, and how many have none, because nobody listened."""
    refused, captured = result.quality.refused, result.quality.handshakes
    connections = result.summary.connections - refused
    if is_one_way(result):
        return "one direction of each"
    but = f"{refused:,} refused" if refused else ""
    if not connections:
        return but
    others = f"; {but}" if but else ""
    if connections == captured:
        return ("handshake captured" if connections == 1 else "all handshakes captured") + others
    return f"{f'{captured:,}' if captured else 'no'} {plural('handshake', captured)} captured{others}"


def who(result: Result, writes: Writes | None, services: Mapping[str, str] | None = None) -> list[tuple[str, str]]:
    """Who held and who delayed, by role, and by the service in that role if ``services`` (role → name) has it."""
    s = result.summary
    assert s.remedy
    names = {role: f" {service}" for role, service in (services or only_processes(result)).items()}
    held, delayed = (
        f"{ends}{names.get(role or '', '')}"
        for ends, role in ((s.who_held, s.held_by), (s.who_delayed, s.delayed_by))
    )
    segment = "full segment (RFC 9293; Linux does not)" if is_behind_full(s) else "segment"
    return [
        ("held by", f"{held}: Nagle's algorithm, behind its own unacknowledged {segment}"),
        ("delayed by", f"{delayed}: delayed ACK"),
        ("how sure", how_sure(result)),
        ("remedy", remedy(s, writes, here()) or ""),
        *(writes_rows(writes) if writes else []),
    ]


def typical(ladder: Ladder) -> list[RenderableType]:
    """A typical stall's ladder, with its heading."""
    return _ladder(ladder, f"A typical stall of {ladder.run}" if ladder.run else "A typical stall")


def show_exchange(result: Result, ladder: Ladder, screen: Console) -> None:
    """Print an exchange of a capture without a stall: its ladder and its figures."""
    connection = ladder.connection
    title = f"No stall to show: {result.verdict}. An ordinary exchange of connection {connection.id}"
    screen.print(Text(f"{title}; frames of {printable(ladder.file)}\n", "bold"), LadderView(ladder), sep="\n")
    if ladder.note:
        screen.print(Text(f"\n{ladder.note}."))


def _ladder(ladder: Ladder, what: str) -> list[RenderableType]:
    file, stall = printable(ladder.file), ladder.stall
    assert stall
    title = f"\n{what}: connection {stall.connection}, exchange {stall.exchange}; frames of {file}\n"
    return [Text(title, "bold"), LadderView(ladder), Text("")]


class LadderView:
    """A ladder as wide as there is room."""

    def __init__(self, ladder: Ladder) -> None:
        self._ladder = ladder

    def __rich_console__(self, _: Console, options: ConsoleOptions) -> Iterator[Text]:
        yield ladder_text(self._ladder, options.max_width)


def _delayed_acks(s: Summary) -> str:
    """How many pure ACKs were at least 20 ms late, by role; and whether stalls had other late ACKs, not counted."""
    counted = ", ".join(f"{n:,} by the {role}" for role, n in s.delayed_acks_by.items() if n)
    if s.delayed_acks >= s.stalls:
        return counted or "none"
    others = f"with data, or sooner than {DELAYED // MS} ms"
    return f"{counted}; others {others}" if counted else f"all {others}"


def _spread(spread: Spread | None, of: str = "") -> str:
    return percentiles(spread, "p50", "p95", "p99", "max") + (f", {of}" if of else "") if spread else ""
