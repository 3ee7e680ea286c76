"""The parts of a report that say why to believe it: witnesses of a run, its environment, where it comes from."""

from collections.abc import Iterator, Mapping
from typing import Any

from nagle_lab.diagnosis.result import Spread
from nagle_lab.reports.figures import number
from nagle_lab.reports.html.markup import Child, Html, tag
from nagle_lab.reports.html.page import facts, folded, section, table, verdict
from nagle_lab.reports.html.shown import Shown
from nagle_lab.runs.run import Run

_NAMES = {"nagle_lab": "nagle-lab", "git_revision": "git revision"}
# What the stall, and the times in a report, depend on.
_SYSCTLS = (
    "tcp_autocorking", "tcp_congestion_control", "tcp_pingpong_thresh", "tcp_backlog_ack_defer", "tcp_timestamps",
    "tcp_sack", "tcp_slow_start_after_idle", "tcp_rto_min_us", "tcp_limit_output_bytes", "tcp_notsent_lowat",
    "tcp_min_tso_segs", "tcp_comp_sack_delay_ns", "tcp_mtu_probing", "tcp_rmem", "tcp_wmem",
)  # fmt: skip
_OFFLOADS = (
    "tcp-segmentation-offload", "generic-segmentation-offload", "generic-receive-offload", "large-receive-offload",
)  # fmt: skip


def provenance(of: Shown) -> Html:
    """The environment of a run, and what exactly this page is made from."""
    source, quality = of.result.source, of.result.quality
    rows = [
        ("capture", source.file),
        ("SHA-256", source.sha256),
        ("format", f"{source.format}, {', '.join(source.link_type)}"),
        ("packets", f"{source.packets:,}, of TCP {source.tcp_packets:,}"),
        ("first packet", source.first_time or ""),
        ("duration", f"{source.duration_s:.3f} s"),
        ("captured near", of.result.summary.captured_near or "not known"),
        ("handshakes seen", f"{quality.handshakes:,} of {of.result.summary.connections:,} connections"),
        ("damage", "; ".join(quality.damage)),
        ("left out", ", ".join(f"{n} {what}" for what, n in quality.not_decoded.items())),
    ]
    of_run = list(_of_run(of.run)) if of.run else []
    return section("Where this comes from", facts(rows), *of_run)


def _of_run(run: Run) -> Iterator[Html]:
    m, w = run.manifest, run.witnesses
    yield tag("h3", "Environment")
    yield facts([(_NAMES.get(name, name), str(value)) for name, value in m["versions"].items() if value])
    yield facts(
        [
            ("started", str(m["started"])),
            ("run", run.folder.name),
            ("setting", f"{w['option']['demanded']}" if w["option"] else ""),
            ("load", w["load"]["command"]),
            ("parameters", ", ".join(f"{k}={v}" for k, v in m["parameters"].items())),
        ]
    )
    places = m["namespaces"]
    yield table(
        ["sysctl", *places],
        [[n, *v] for n, v in _settings({at: of.get("sysctls") or {} for at, of in places.items()}, _SYSCTLS)],
        99,
    )
    offloads = {at: {**(of.get("offloads") or {}), "MTU": of.get("mtu")} for at, of in _interfaces(m).items()}
    yield table(["interface", *offloads], [[n, *v] for n, v in _settings(offloads, ("MTU", *_OFFLOADS))], 99)
    images = [[service, image.get("name"), image.get("id")] for service, image in m["images"].items()]
    yield folded("images", table(["service", "image", "id"], images, 9))
    yield folded(
        "checksums",
        facts([(name, f"{about['sha256']} ({about['bytes']:,} B)") for name, about in m["files"].items()]),
    )


def _interfaces(m: dict[str, Any]) -> Any:
    """Of the captured ends; the first kind of manifest says it of its two ends."""
    return m.get("ends") or m["captures"]


def _settings(by_place: Mapping[str, Mapping[str, Any]], names: tuple[str, ...]) -> Iterator[tuple[str, list[str]]]:
    """The values in each place of those ``names`` that any has; sysctls by the last part of theirs."""
    for name in names:
        values = [next((v for key, v in of.items() if key.split(".")[-1] == name), None) for of in by_place.values()]
        if any(value is not None for value in values):
            yield name, ["–" if value is None else str(value) for value in values]


def witnesses(run: Run) -> Html:
    """Every witness held against the captures."""
    rows: list[list[Child]] = [[c.name, "✓ agrees" if c.ok else f"✕ {c.verdict}", c.detail] for c in run.checks]
    judged: list[list[Child]] = [
        [
            f"{name}.pcap", verdict(seen.result.verdict, small=True), f"{seen.judged.exchanges:,}",
            f"{seen.judged.stalled_exchanges:,}", _times(seen.result.summary.wait_ms),
            _times(seen.result.summary.exchange_ms),
        ]
        for name, seen in run.captures.items()
    ]  # fmt: skip
    return section(
        "Witnesses",
        table(["capture", "verdict", "exchanges", "stalled", "wait, ms", "exchange, ms"], judged, 2),
        table(["witness", "", "what was seen"], rows, 3),
        note="Exchanges and stalls are those of the judged connections; times (median / 99th percentile) those of "
        "the whole capture.",
    )


def _times(spread: Spread | None) -> str:
    return f"{number(spread.p50)} / {number(spread.p99)}" if spread else "–"
