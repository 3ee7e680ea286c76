"""The screen: one judged run of the lab, at 100 columns."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from rich import box
from rich.console import Console, RenderableType
from rich.table import Table

from nagle_lab.diagnosis.result import Spread
from nagle_lab.evidence.ladder import Ladder
from nagle_lab.reports.terminal import facts, headline, shown_path, typical, who
from nagle_lab.runs.checks import Traffic, is_own
from nagle_lab.runs.run import Run
from nagle_lab.runs.under_test import RunCapture, Totals

_TIMES = (
    ("wait for the late ACK", "wait_ms"),
    ("request → ACK", "request_to_ack_ms"),
    ("request → response", "request_to_response_ms"),
    ("whole exchange", "exchange_ms"),
)


def show_run(run: Run, ladder: Ladder | None, to: Console) -> None:
    """One judged run: what ran, what the load tool saw, what both captures and the kernel say, and a ladder."""
    to.print(headline(run.verdict, f"{run.manifest.scenario} / {run.manifest.variant}", run.reason))
    to.print(facts(_what_ran(run)))
    to.print(_evidence(run))
    best = run.results[run.best]
    if best.stalls:
        to.print(facts(who(best, _services(run))))
    if ladder:
        to.print(*typical(best, ladder), sep="\n")
    to.print(facts(_ending(run)))


def _what_ran(run: Run) -> list[tuple[str, str]]:
    m, w = run.manifest, run.witnesses
    v, load, option, times = m.versions, w.load, w.option, w.load.percentiles_ms
    effect = f"{option.demanded!r} {'in effect' if option.in_effect else 'NOT in effect'}" if option else ""
    percentiles = ", ".join(f"p{p} {times[p]:.1f} ms" for p in ("50", "95", "99") if p in times)
    mtus = sorted({capture.mtu for capture in m.captures.values() if capture.mtu is not None})
    control = sorted({namespace.congestion_control for namespace in m.namespaces.values()})
    return [
        ("server", f"{v.server} in {m.server.service}, port {m.server.port}"),
        *([("setting", f"{effect}, says {Path(option.file).stem}")] if option else []),
        ("load", f"{v.load}: {load.command}"),
        (
            "on",
            f"Linux {v.kernel}, {' and '.join(control)}, MTU {' and '.join(map(str, mtus))} · "
            f"Docker {v.docker}, Compose {v.compose}",
        ),
        ("machine noise", str(run.noise)),
        (
            f"{Path(load.command.split()[0]).name} saw",
            f"{load.complete} requests, {load.failed} failed · {load.requests_per_s:.0f} requests/s · "
            f"mean {load.mean_ms:.1f} ms" + (f", {percentiles}" if percentiles else ""),
        ),
    ]


def _evidence(run: Run) -> RenderableType:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), title_justify="left")
    table.add_column("")
    for heading in (*(f"{name}.pcap" for name in run.captures), "kernel"):
        table.add_column(heading, justify="right")
    captures, port = run.captures.values(), run.manifest.expected.port

    def row(name: str, values: Iterable[str], kernel: str = "") -> None:
        table.add_row(name, *values, kernel)

    lossless = [run.witnesses.captures[name] for name in run.captures]
    row("captured / received / dropped", [f"{c.captured} / {c.received} / {c.dropped}" for c in lossless])
    for name, values, kernel in _by_namespace(run):
        row(name, values, kernel)
    mixed = any(capture.others.connections for capture in captures)
    under_test = [capture.under_test for capture in captures]
    row(f"exchanges on port {port}" if mixed else "exchanges", [str(total.exchanges) for total in under_test])
    row("stalled", [_stalled(total) for total in under_test])
    if mixed:
        row("exchanges elsewhere", [str(capture.others.exchanges) for capture in captures])
        row("stalled elsewhere", [_stalled(capture.others) for capture in captures])
    for name, key in _TIMES:
        row(f"{name}, ms p50 / p99", [_times(capture, key) for capture in captures])
    row("packets per exchange", [_packets_per_exchange(total) for total in under_test])
    return table


def _by_namespace(run: Run) -> Iterator[tuple[str, list[str], str]]:
    """Segments and delayed ACKs of each network namespace: in every capture, and in its kernel."""
    seen = {(at, name): run.traffic(at, name) for at in run.manifest.namespaces for name in run.captures}
    counters = run.witnesses.counters

    def shown(at: str, figure: Callable[[Traffic], int]) -> list[str]:
        found = [seen[at, name] for name in run.captures]
        return [str(figure(t)) if t.segments_sent or t.packets_received else "–" for t in found]

    for at in counters:
        yield f"segments sent by the {at}", shown(at, lambda t: t.segments_sent), str(counters[at].segments_sent)
    for at in counters:
        kernel = counters[at].grown("TcpExt.DelayedACKs")
        yield f"delayed ACKs of the {at}", shown(at, lambda t: t.delayed_acks), str(kernel)


def _stalled(total: Totals) -> str:
    if not total.connections:
        return "–"
    share = total.stalled_exchanges / total.exchanges if total.exchanges else 0.0
    return f"{total.stalled_exchanges} ({share:.1%})"


def _times(capture: RunCapture, key: str) -> str:
    """A spread of the connections under test; nothing where the capture's own is also that of others."""
    mixed = capture.others.stalls if key == "wait_ms" else capture.others.exchanges
    return "–" if mixed else _middle_and_tail(getattr(capture.result.summary, key))


def _packets_per_exchange(total: Totals) -> str:
    return f"{total.packets / total.exchanges:.1f}" if total.exchanges else "–"


def _services(run: Run) -> dict[str, str]:
    """The service at each end, by role, of the connection to be shown, where the run tells and it is not the role."""
    m, stall = run.manifest, run.results[run.best].stalls.typical()
    sidecars = {capture.service for capture in m.captures.values()}
    own = m.captures[run.best].namespace
    found: dict[str, str] = {}
    for end in (stall.held_by, stall.delayed_by):
        homes = [of for at, of in m.namespaces.items() if is_own(end.ip, of.addresses, inside=at == own)]
        services = {service for of in homes for service in of.services} - sidecars
        is_server = end.role == "server" and end.port == m.server.port
        services = {m.server.service} if is_server else services - {m.server.service}
        if len(services) == 1 and services != {end.role}:
            found[end.role] = services.pop()
    return found


def _ending(run: Run) -> list[tuple[str, str]]:
    timings = run.manifest.timings_s
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


def _middle_and_tail(s: Spread | None) -> str:
    return f"{s.p50:.2f} / {s.p99:.2f}" if s else "–"
