"""The screen: a run of the lab, or one diagnosed capture, at 100 columns."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from rich import box
from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from nagle_lab.checks import Traffic, grown, is_own, segments_sent
from nagle_lab.errors import printable
from nagle_lab.excerpt import around
from nagle_lab.judged import Seen, Share
from nagle_lab.pair import Pair
from nagle_lab.reports.ladder import ladder
from nagle_lab.result import Result, Spread, Stall
from nagle_lab.runs import Run

WIDTH = 100
_TIMES = (
    ("wait for the late ACK", "wait_ms"),
    ("request → ACK", "request_to_ack_ms"),
    ("request → response", "request_to_response_ms"),
    ("whole exchange", "exchange_ms"),
)
STYLE = {"STALL": "bold red", "CLEAN": "bold green", "INCONCLUSIVE": "bold yellow", "INVALID": "bold magenta"}


_NEAR = {
    "client": "at the client, or close to it",
    "server": "at the server, or close to it",
    "both": "with both ends close by",
    "neither": "on the way between the ends",
}


def console(stderr: bool = False, at_most: int = WIDTH) -> Console:
    """A console as wide as the terminal, at most ``at_most``; 100 columns where there is no terminal."""
    plain = {"stderr": stderr, "highlight": False, "markup": False, "emoji": False}  # file names are no markup
    c = Console(**plain)  # type: ignore[arg-type]
    return Console(**plain, width=min(c.width, at_most) if c.is_terminal else WIDTH)  # type: ignore[arg-type]


def show_capture(files: Sequence[Path], result: Result, to: Console) -> None:
    """One diagnosed capture; without ``files`` to read again (a pipe) there is no ladder."""
    to.print(_headline(result.verdict, result.source.file, result.reason))
    to.print(facts(_capture_facts(result)))
    if result.stalls:
        to.print(facts(_who(result)))
        if files:
            to.print(*_typical(files, result), sep="\n")


def show_stall(path: Path, result: Result, stall: Stall, number: int, to: Console) -> None:
    """One stall of a capture: its ladder and its figures; ``number`` counts from 1 in order of the late ACK."""
    to.print(
        _title([path], stall, f"Stall {number} of {len(result.stalls)}"), *_ladder([path], result, stall), sep="\n"
    )
    to.print(
        facts(
            [
                ("held by", f"{stall.held_by.role} {stall.held_by}, {stall.released_bytes} B"),
                ("behind", f"{stall.trigger_bytes} B in frame {stall.trigger_frame}, not yet acknowledged"),
                ("delayed by", f"{stall.delayed_by.role} {stall.delayed_by}, {stall.wait_ms:.3f} ms"),
                ("released", f"{stall.release_us:.1f} µs after the late ACK, as seen where this was captured"),
            ]
        )
    )


def show_pair(pair: Pair, to: Console) -> None:
    """What two captures of the same traffic tell together."""
    to.print(facts([("together", " and ".join(map(printable, pair.files))), *_pair_facts(pair)]))


def _pair_facts(pair: Pair) -> list[tuple[str, str]]:
    rows = [
        ("matched", f"{pair.matched} stalls; {pair.only_in[0]} and {pair.only_in[1]} in one of them only"),
        ("ACK delay", f"{_spread(pair.ack_delay_ms, 'ms')}, at the capture nearer the delaying end"),
        ("hold", f"at most {_spread(pair.hold_ms, 'ms')}, of which the path took p50 {pair.path_ms.p50:.2f} ms")
        if pair.path_ms
        else ("", ""),
    ]
    return rows if pair.matched else rows[:1]


def show_run(run: Run, to: Console) -> None:
    """One judged run: what ran, what the load tool saw, what both captures and the kernel say, and a ladder."""
    m = run.manifest
    title = f"{m['scenario']} / {m['variant']}"
    to.print(_headline(run.verdict, title, run.reason))
    to.print(facts(_what_ran(run)))
    to.print(_evidence(run))
    best = run.results[run.best]
    if best.stalls:
        to.print(facts(_who(best, _services(run))))
        to.print(*_typical([run.capture(run.best)], best), sep="\n")
    to.print(facts(_ending(run)))


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


def facts(rows: list[tuple[str, str]]) -> RenderableType:
    """Names and values, one below the other."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True, min_width=12)
    table.add_column(overflow="fold")
    for name, value in rows:
        table.add_row(printable(name), printable(value))
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
        ("captured", _NEAR.get(s.captured_near or "")),
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
    v, load, option, server = m["versions"], w["load"], w["option"], m["server"]
    where = f" in {server['service']}, port {server['port']}" if server["port"] else ""
    effect = f"{option['demanded']!r} {'in effect' if option['in_effect'] else 'NOT in effect'}" if option else ""
    times = load.get("percentiles_ms") or {}
    percentiles = ", ".join(f"p{p} {times[p]:.1f} ms" for p in ("50", "95", "99") if p in times)
    mtus = sorted({capture["mtu"] for capture in m["captures"].values()})
    control = sorted({namespace["congestion_control"] for namespace in m["namespaces"].values()})
    return [
        ("server", f"{v['server']}{where}"),
        *([("setting", f"{effect}, says {Path(option['file']).stem}")] if option else []),
        ("load", f"{v['load']}: {load['command']}"),
        (
            "on",
            f"Linux {v['kernel']}, {' and '.join(control)}, MTU {' and '.join(map(str, mtus))} · "
            f"Docker {v['docker']}, Compose {v['compose']}",
        ),
        ("machine noise", str(run.noise)),
        (
            f"{Path(load['command'].split()[0]).name} saw",
            f"{load['complete']} requests, {load['failed']} failed · {load['requests_per_s']:.0f} requests/s · "
            f"mean {load['mean_ms']:.1f} ms" + (f", {percentiles}" if percentiles else ""),
        ),
    ]


def _evidence(run: Run) -> RenderableType:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), title_justify="left")
    table.add_column("")
    for heading in (*(f"{name}.pcap" for name in run.captures), "kernel"):
        table.add_column(heading, justify="right")
    captures, port = run.captures.values(), run.manifest["expected"]["port"]

    def row(name: str, values: Iterable[str], kernel: str = "") -> None:
        table.add_row(name, *values, kernel)

    lossless = [run.witnesses["captures"][name] for name in run.captures]
    row("captured / received / dropped", [f"{c['captured']} / {c['received']} / {c['dropped']}" for c in lossless])
    for name, values, kernel in _by_namespace(run):
        row(name, values, kernel)
    mixed = any(seen.elsewhere.connections for seen in captures)
    row(f"exchanges on port {port}" if mixed else "exchanges", [str(seen.judged.exchanges) for seen in captures])
    row("stalled", [_stalled(seen.judged) for seen in captures])
    if mixed:
        row("exchanges elsewhere", [str(seen.elsewhere.exchanges) for seen in captures])
        row("stalled elsewhere", [_stalled(seen.elsewhere) for seen in captures])
    for name, key in _TIMES:
        row(f"{name}, ms p50 / p99", [_times(seen, key) for seen in captures])
    row("packets per exchange", [_packets_per_exchange(seen.judged) for seen in captures])
    return table


def _by_namespace(run: Run) -> Iterator[tuple[str, list[str], str]]:
    """Segments and delayed ACKs of each network namespace: in every capture, and in its kernel."""
    seen = {(at, name): run.traffic(at, name) for at in run.manifest["namespaces"] for name in run.captures}
    counters = run.witnesses["counters"]

    def shown(at: str, figure: Callable[[Traffic], int]) -> list[str]:
        found = [seen[at, name] for name in run.captures]
        return [str(figure(t)) if t.segments_sent or t.packets_received else "–" for t in found]

    for at in counters:
        yield f"segments sent by the {at}", shown(at, lambda t: t.segments_sent), str(segments_sent(counters[at]))
    for at in counters:
        kernel = grown(counters[at], "TcpExt.DelayedACKs")
        yield f"delayed ACKs of the {at}", shown(at, lambda t: t.delayed_acks), str(kernel)


def _stalled(share: Share) -> str:
    if not share.connections:
        return "–"
    part = share.stalled_exchanges / share.exchanges if share.exchanges else 0.0
    return f"{share.stalled_exchanges} ({part:.1%})"


def _times(seen: Seen, key: str) -> str:
    """A spread of the judged connections; nothing where the capture's own is also that of others."""
    mixed = seen.elsewhere.stalls if key == "wait_ms" else seen.elsewhere.exchanges
    return "–" if mixed else _middle_and_tail(getattr(seen.result.summary, key))


def _packets_per_exchange(share: Share) -> str:
    return f"{share.packets / share.exchanges:.1f}" if share.exchanges else "–"


def _who(result: Result, services: Mapping[str, str] = MappingProxyType({})) -> list[tuple[str, str]]:
    """Who held and who delayed, by role, and by the service that plays it where ``services`` (role → name) says."""
    s = result.summary
    assert s.remedy
    named = {role: f"{_role_name(role)} ({services[role]})" for role in services}
    held, delayed = (named.get(role or "", _role_name(role)) for role in (s.held_by, s.delayed_by))
    return [
        ("held by", f"{held}: Nagle's algorithm, behind its own small unacknowledged segment"),
        ("delayed by", f"{delayed}: delayed ACK"),
        ("remedy", s.remedy),
    ]


def _services(run: Run) -> dict[str, str]:
    """The service at each end, by role, of the connection to be shown, where the run tells and it is not the role."""
    m, stall = run.manifest, run.results[run.best].stalls.typical()
    sidecars = {capture["service"] for capture in m["captures"].values()}
    own = m["captures"][run.best]["namespace"]
    found = {}
    for end in (stall.held_by, stall.delayed_by):
        homes = [of for at, of in m["namespaces"].items() if is_own(end.ip, of["addresses"], inside=at == own)]
        services = {service for of in homes for service in of["services"]} - sidecars
        judged = end.role == "server" and end.port == m["server"]["port"]
        services = {m["server"]["service"]} if judged else services - {m["server"]["service"]}
        if len(services) == 1 and services != {end.role}:
            found[end.role] = services.pop()
    return found


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
