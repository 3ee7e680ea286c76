"""The screen: one judged run of the lab, at 100 columns."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from rich import box
from rich.console import Console, RenderableType
from rich.table import Table

from nagle_lab.diagnosis.result.spread import Spread
from nagle_lab.diagnosis.result.verdict import Verdict
from nagle_lab.evidence.ladder import Ladder
from nagle_lab.reports.screens.terminal import facts, headline, shown_path, typical, who
from nagle_lab.reports.words.numbers import NONE, share
from nagle_lab.runs.run import Run, services
from nagle_lab.runs.under_test import RunCapture, Totals

_TIMES = (
    ("wait for the late ACK", "wait_ms"),
    ("request → ACK", "request_to_ack_ms"),
    ("request → response", "request_to_response_ms"),
    ("whole exchange", "exchange_ms"),
)


def show_run(run: Run, ladder: Ladder | None, screen: Console, contradictions: Sequence[str]) -> None:
    """One judged run: what ran, what the load tool, captures and kernel say, a ladder, and its contradictions."""
    screen.print(headline(run.verdict, f"{run.manifest.scenario} / {run.manifest.variant}", run.reason))
    screen.print(facts(_what_ran(run)))
    screen.print(_evidence(run))
    best = run.results[run.best]
    if best.stalls:
        screen.print(facts(who(best, run.writes, services(run))))
    if ladder:
        screen.print(*typical(ladder), sep="\n")
    screen.print(facts(_ending(run, contradictions)))


def _what_ran(run: Run) -> list[tuple[str, str]]:
    m, w = run.manifest, run.witnesses
    v, load, option, times = m.versions, w.load, w.option, w.load.percentiles_ms
    effect = f"{option.demanded!r} {'in effect' if option.in_effect else 'NOT in effect'}" if option else ""
    percentiles = ", ".join(f"p{p} {_load_ms(times[p])}" for p in ("50", "95", "99") if p in times)
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
            f"{load.complete:,} requests, {load.failed:,} failed · {load.requests_per_s:,.0f} requests/s · "
            f"mean {load.mean_ms:.1f} ms" + (f", {percentiles}" if percentiles else ""),
        ),
    ]


def _load_ms(ms: float) -> str:
    """ab prints whole milliseconds."""
    return f"{ms:.1f} ms" if ms else "< 1 ms"


def _evidence(run: Run) -> RenderableType:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), title_justify="left")
    table.add_column("")
    for heading in (*(f"{name}.pcap" for name in run.captures), "kernel"):
        table.add_column(heading, justify="right")
    for name, values, *kernel in _evidence_rows(run):
        table.add_row(name, *values, *kernel)
    return table


def _evidence_rows(run: Run) -> Iterator[tuple[str, list[str]] | tuple[str, list[str], str]]:
    """Rows: a name, a value for each capture, and the kernel's value if it counts the same thing."""
    captures, port, counters = run.captures.values(), run.manifest.expected.port, run.witnesses.counters
    traffic = {namespace: [run.traffic(namespace, capture) for capture in run.captures] for namespace in counters}
    lossless = [run.witnesses.captures[name] for name in run.captures]
    yield "captured / received / dropped", [f"{c.captured:,} / {c.received:,} / {c.dropped:,}" for c in lossless]
    for name, kernel in counters.items():
        sent = [f"{seen.segments_sent:,}" if seen else NONE for seen in traffic[name]]
        yield f"segments sent {'over' if name == 'loopback' else 'by the'} {name}", sent, f"{kernel.segments_sent:,}"
    for name, kernel in counters.items():
        delayed = [f"{seen.delayed_acks:,}" if seen else NONE for seen in traffic[name]]
        yield f"delayed ACKs {'over' if name == 'loopback' else 'of the'} {name}", delayed, f"{kernel.delayed_acks:,}"
    mixed = any(capture.others.connections for capture in captures)
    under_test = [capture.under_test for capture in captures]
    yield f"exchanges on port {port}" if mixed else "exchanges", [f"{total.exchanges:,}" for total in under_test]
    yield "stalled", [_stalled_here(capture) for capture in captures]
    if mixed:
        yield "exchanges elsewhere", [f"{capture.others.exchanges:,}" for capture in captures]
        yield "stalled elsewhere", [_stalled(capture.others) for capture in captures]
    for name, key in _TIMES:
        yield f"{name}, ms p50 / p99", [_times(capture, key) for capture in captures]
    per_exchange = [total.packets_per_exchange for total in under_test]
    yield "packets per exchange", [NONE if packets is None else f"{packets:.1f}" for packets in per_exchange]


def _stalled(total: Totals) -> str:
    return f"{total.stalled_exchanges:,} ({share(total.stalled_share, 1)})" if total.connections else NONE


def _stalled_here(capture: RunCapture) -> str:
    """Stalls of the connections under test; no number for a capture in which they cannot be proved."""
    is_open = capture.result.verdict is Verdict.INCONCLUSIVE and not capture.under_test.stalls
    return "cannot tell" if is_open and capture.under_test.connections else _stalled(capture.under_test)


def _times(capture: RunCapture, key: str) -> str:
    """A spread over the connections under test; nothing if the capture's spread includes other connections."""
    mixed = capture.others.stalls if key == "wait_ms" else capture.others.exchanges
    spread: Spread | None = getattr(capture.result.summary, key)
    return f"{spread.p50:.2f} / {spread.p99:.2f}" if spread and not mixed else NONE


def _ending(run: Run, contradictions: Sequence[str]) -> list[tuple[str, str]]:
    timings = run.manifest.timings_s
    took = ", ".join(f"{name} {seconds:.1f}" for name, seconds in timings.items() if seconds >= 0.05)
    failed = [f"{check.name}: {check.detail}" for check in run.checks if not check.ok]
    before = run.witnesses.untraced
    rows = [
        ("NOT AS EXPECTED", "; ".join(contradictions))
        if contradictions
        else ("as expected", str(run.expected) if failed else f"{run.expected}, and no witness disagrees"),
        ("witnesses", "; ".join(failed)),
        ("captures", shown_path(run.folder)),
        ("without trace", shown_path(run.folder.parent / before.run) if before else ""),
        ("took", f"{sum(timings.values()):.1f} s: {took}"),
    ]
    return [(name, value) for name, value in rows if value]
