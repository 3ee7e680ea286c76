"""The screen: a run of the lab, or one diagnosed capture, at 100 columns."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from rich import box
from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from nagle_lab.dissect import Comparison, Row, detail
from nagle_lab.errors import NagleLabError
from nagle_lab.excerpt import around
from nagle_lab.pair import Pair
from nagle_lab.reports.ladder import ladder
from nagle_lab.result import Result, Spread, Stall
from nagle_lab.runs import ENDS, Run, grown, segments_sent

WIDTH = 100
_TIMES = (
    ("wait for the late ACK", "wait_ms"),
    ("request → ACK", "request_to_ack_ms"),
    ("request → response", "request_to_response_ms"),
    ("whole exchange", "exchange_ms"),
)
STYLE = {"STALL": "bold red", "CLEAN": "bold green", "INCONCLUSIVE": "bold yellow", "INVALID": "bold magenta"}


def console(stderr: bool = False) -> Console:
    """A console as wide as the terminal, at most :data:`WIDTH`; 100 columns where there is no terminal."""
    plain = {"stderr": stderr, "highlight": False, "markup": False, "emoji": False}  # file names are no markup
    c = Console(**plain)  # type: ignore[arg-type]
    return Console(**plain, width=min(c.width, WIDTH) if c.is_terminal else WIDTH)  # type: ignore[arg-type]


def printable(text: str) -> str:
    """The text with everything a terminal would act on (escapes, newlines, direction marks) shown as ``\\x1b``."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def show_capture(files: Sequence[Path], result: Result, to: Console) -> None:
    """One diagnosed capture; without ``files`` to read again (a pipe) there is no ladder."""
    to.print(_headline(result.verdict, result.source.file, result.reason))
    to.print(_facts(_capture_facts(result)))
    if result.stalls:
        to.print(_facts(_who(result)))
        if files:
            to.print(*_typical(files, result), sep="\n")


def show_stall(path: Path, result: Result, stall: Stall, number: int, to: Console) -> None:
    """One stall of a capture: its ladder, its figures, and where tshark is present what Wireshark says of its frames.

    ``number`` counts from 1 in order of the late ACK.
    """
    to.print(
        _title([path], stall, f"Stall {number} of {len(result.stalls)}"), *_ladder([path], result, stall), sep="\n"
    )
    to.print(
        _facts(
            [
                ("held by", f"{stall.held_by.role} {stall.held_by}, {stall.released_bytes} B"),
                ("behind", f"{stall.trigger_bytes} B in frame {stall.trigger_frame}, not yet acknowledged"),
                ("delayed by", f"{stall.delayed_by.role} {stall.delayed_by}, {stall.wait_ms:.3f} ms"),
                ("released", f"{stall.release_us:.1f} µs after the late ACK, as seen where this was captured"),
            ]
        )
    )
    to.print(*dissections(path, stall), sep="\n")


def dissections(path: Path, stall: Stall) -> Iterator[Text]:
    """What tshark says of the three frames of a stall; one line where it is missing or cannot read the file."""
    frames = {stall.trigger_frame: "trigger", stall.ack_frame: "late ACK", stall.release_frame: "release"}
    try:
        for frame, lines in detail(path, list(frames)):
            yield Text(f"\nFrame {frame}, {frames[frame]}", "bold")
            yield from (Text(_fit(printable(line))) for line in lines)
    except NagleLabError as problem:
        yield Text(f"\nWithout Wireshark's view of the three frames: {printable(str(problem))}", "dim")


def show_pair(pair: Pair, to: Console) -> None:
    """What two captures of the same traffic tell together."""
    to.print(_facts([("together", " and ".join(map(printable, pair.files))), *_pair_facts(pair)]))


def _pair_facts(pair: Pair) -> list[tuple[str, str]]:
    rows = [
        ("matched", f"{pair.matched} stalls; {pair.only_in[0]} and {pair.only_in[1]} in one of them only"),
        ("ACK delay", f"{_spread(pair.ack_delay_ms, 'ms')}, at the capture nearer the delaying end"),
        ("hold", f"at most {_spread(pair.hold_ms, 'ms')}, of which the path took p50 {pair.path_ms.p50:.2f} ms")
        if pair.path_ms
        else ("", ""),
    ]
    return rows if pair.matched else rows[:1]


def show_comparison(path: Path, found: Comparison, to: Console) -> None:
    """How our packet table and tshark's agree on a capture."""
    title = Text.assemble((" EQUAL " if found.equal else " DIFFERENT ", "bold reverse"), "  ", printable(path.name))
    to.print(title)
    counts = ", ".join(f"{column} {n:,}" for column, n in found.columns.most_common())
    rows = [
        ("compared", f"{found.compared:,} TCP segments, {len(Row._fields)} columns each, with {found.tshark}"),
        ("different", f"{found.differing:,} frames" + (f": {counts}" if counts else "")),
        *(("by definition", f"{n:,} × {why}") for why, n in found.explained.most_common()),
        *(("note", note) for note in found.notes),
    ]
    to.print(_facts(rows))
    if found.first:
        to.print(Text("\nThe first differences", "bold"), *map(Text, map(printable, found.first)), sep="\n")


def _fit(line: str) -> str:
    return line if len(line) <= WIDTH else line[: WIDTH - 1] + "…"


def show_run(run: Run, to: Console) -> None:
    """One judged run: what ran, what the load tool saw, what both captures and the kernel say, and a ladder."""
    m = run.manifest
    title = f"{m['scenario']} / {m['variant']}"
    to.print(_headline(run.verdict, title, run.reason))
    to.print(_facts(_what_ran(run)))
    to.print(_evidence(run))
    best = run.results[run.best]
    if best.stalls:
        to.print(_facts(_who(best)))
        to.print(*_typical([run.capture(run.best)], best), sep="\n")
    to.print(_facts(_ending(run)))


def shown_path(path: Path) -> str:
    """The path as a person in the working directory would type it."""
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def _headline(verdict: str, title: str, reason: str) -> RenderableType:
    style = STYLE[verdict]
    heading = Text.assemble((f" {verdict} ", f"{style} reverse"), "  ", (printable(title), "bold"))
    return Panel(
        Group(heading, Text(printable(reason))), box=box.ROUNDED, border_style=style.split()[-1], padding=(0, 1)
    )


def _facts(rows: list[tuple[str, str]]) -> RenderableType:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True, min_width=12)
    table.add_column(overflow="fold")
    for name, value in rows:
        table.add_row(name, printable(value))
    return table


def _capture_facts(result: Result) -> list[tuple[str, str]]:
    s, source, q = result.summary, result.source, result.quality
    rows = [
        (
            "capture",
            f"{source.format}, {', '.join(source.link_type)} · {source.packets} packets, {source.tcp_packets} of TCP",
        ),
        ("connections", f"{s.connections}, {q.handshakes} with their handshake"),
        ("exchanges", f"{s.exchanges}, stalled {s.stalled_exchanges} ({s.stalled_share:.1%})"),
        ("delayed ACKs", _by_role(s.delayed_acks_by)),
        ("wait", _spread(s.wait_ms, "ms")),
        ("exchange", _spread(s.exchange_ms, "ms")),
    ]
    if q.damage:
        rows.append(("damage", "; ".join(q.damage)))
    if q.not_decoded:
        rows.append(("left out", ", ".join(f"{n} {what}" for what, n in q.not_decoded.items())))
    return [(name, value) for name, value in rows if value]


def _what_ran(run: Run) -> list[tuple[str, str]]:
    m, w = run.manifest, run.witnesses
    v, ends, load = m["versions"], m["ends"], w["load"]
    server = ends["server"]
    option = w["option"]
    effect = f"{option['demanded']!r} {'in effect' if option['in_effect'] else 'NOT in effect'}"
    times = load.get("percentiles_ms") or {}
    percentiles = ", ".join(f"p{p} {times[p]} ms" for p in ("50", "95", "99") if p in times)
    return [
        ("server", f"{v['server']}, {effect}"),
        ("load", f"{v['load']}: {load['command']}"),
        (
            "on",
            f"Linux {v['kernel']}, {server['congestion_control']}, MTU {server['mtu']} · "
            f"Docker {v['docker']}, Compose {v['compose']}",
        ),
        (
            f"{load['tool']} saw",
            f"{load['complete']} requests, {load['failed']} failed · {load['requests_per_s']:.0f} requests/s · "
            f"mean {load['mean_ms']:.1f} ms" + (f", {percentiles}" if percentiles else ""),
        ),
    ]


def _evidence(run: Run) -> RenderableType:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), title_justify="left")
    table.add_column("")
    for heading in ("server.pcap", "client.pcap", "kernel"):
        table.add_column(heading, justify="right")
    counters = run.witnesses["counters"]
    by_end = [run.results[end] for end in ("server", "client")]

    def row(name: str, values: list[str], kernel: str = "") -> None:
        table.add_row(name, *values, kernel)

    lossless = [run.witnesses["captures"][end] for end in ("server", "client")]
    row("captured / received / dropped", [f"{c['captured']} / {c['received']} / {c['dropped']}" for c in lossless])
    for end in ENDS:
        seen = [str(r.summary.segments_by.get(end, 0)) for r in by_end]
        row(f"segments sent by the {end}", seen, str(segments_sent(counters[end])))
    for end in ENDS:
        seen = [str(r.summary.delayed_acks_by.get(end, 0)) for r in by_end]
        row(f"delayed ACKs of the {end}", seen, str(grown(counters[end], "TcpExt.DelayedACKs")))
    row("exchanges", [str(r.summary.exchanges) for r in by_end])
    row("stalled", [f"{r.summary.stalled_exchanges} ({r.summary.stalled_share:.1%})" for r in by_end])
    for name, key in _TIMES:
        row(f"{name}, ms p50 / p99", [_middle_and_tail(getattr(r.summary, key)) for r in by_end])
    row("packets per exchange", [f"{r.summary.packets_per_exchange:.1f}" for r in by_end])
    return table


def _who(result: Result) -> list[tuple[str, str]]:
    s = result.summary
    assert s.remedy
    return [
        (
            "held by",
            f"{_role_name(s.held_by)}: Nagle's algorithm, behind its own small unacknowledged segment",
        ),
        ("delayed by", f"{_role_name(s.delayed_by)}: delayed ACK"),
        ("remedy", s.remedy),
    ]


def _typical(files: Sequence[Path], result: Result) -> list[RenderableType]:
    return [
        _title(files, result.stalls.typical(), "A typical stall"),
        *_ladder(files, result, result.stalls.typical()),
    ]


def _title(files: Sequence[Path], stall: Stall, what: str) -> Text:
    names = printable(" … ".join(dict.fromkeys((files[0].name, files[-1].name))))
    return Text(f"\n{what}: connection {stall.connection}, exchange {stall.exchange}; frames of {names}\n", "bold")


def _ladder(files: Sequence[Path], result: Result, stall: Stall) -> list[RenderableType]:
    connection = result.connections[stall.connection]
    return [ladder(around(files, result, stall), connection, stall), Text("")]


def _ending(run: Run) -> list[tuple[str, str]]:
    timings = run.manifest["timings_s"]
    took = ", ".join(f"{name} {seconds:.1f}" for name, seconds in timings.items() if seconds >= 0.05)
    rows = [("captures", shown_path(run.folder)), ("took", f"{sum(timings.values()):.1f} s: {took}")]
    failed = [f"{c.name}: {c.detail}" for c in run.checks if not c.ok]
    if failed:
        rows.insert(0, ("witnesses", "; ".join(failed)))
    if run.contradictions:
        rows.insert(0, ("NOT AS EXPECTED", "; ".join(run.contradictions)))
    else:
        rows.insert(
            0,
            ("as expected", f"{run.expected}, and every witness agrees" if not failed else str(run.expected)),
        )
    return rows


def _role_name(role: str | None) -> str:
    return "both ends" if role == "both" else f"the {role}"


def _by_role(counts: dict[str, int]) -> str:
    return ", ".join(f"{n} by the {role}" for role, n in counts.items() if n) or "none"


def _spread(s: Spread | None, unit: str) -> str:
    return f"p50 {s.p50:.2f}, p95 {s.p95:.2f}, p99 {s.p99:.2f}, max {s.max:.2f} {unit}" if s else ""


def _middle_and_tail(s: Spread | None) -> str:
    return f"{s.p50:.2f} / {s.p99:.2f}" if s else "–"
