"""The parts of a report that show one capture, or the run it is of: proof, ladders and plots."""

from nagle_lab.diagnosis.result import Stall
from nagle_lab.evidence.excerpt import around
from nagle_lab.reports.figures import number, share
from nagle_lab.reports.html import charts
from nagle_lab.reports.html.evidence import provenance, witnesses
from nagle_lab.reports.html.ladder import ladder
from nagle_lab.reports.html.markup import Child, Html, each, tag
from nagle_lab.reports.html.page import figure, folded, section, table, tiles, verdict
from nagle_lab.reports.html.shown import EXTREMES, Chosen, Shown, chosen, quiet_exchange, stretch_around
from nagle_lab.runs.run import Run


def masthead(of: Shown, level: str = "h1") -> Html:
    """The verdict and its proof in one sentence."""
    stall = of.result.stalls.typical() if of.result.stalls else None
    story = of.run.manifest["question"] if of.run else ""
    return tag(
        "header",
        tag(level, verdict(of.verdict), " ", of.name),
        tag("p", story, class_="question") if story else None,
        tag("p", of.reason, class_="reason"),
        tag("p", proof(stall), class_="proof") if stall else None,
        _ending(of.run) if of.run else None,
    )


def proof(stall: Stall) -> Html:
    """A stall's three frames in one sentence."""
    held, delaying = stall.held_by.role, stall.delayed_by.role
    return each(
        f"The proof, in a typical stall: the {held}'s {stall.trigger_bytes} B in frame ",
        tag("b", stall.trigger_frame, class_="trigger"),
        f" were not acknowledged, so Nagle's algorithm held {stall.released_bytes} B behind them; the {delaying} "
        "acknowledged with frame ",
        tag("b", stall.ack_frame, class_="late"),
        f", {stall.wait_ms:.1f} ms later; and {stall.release_us:,.0f} µs after that ACK they left in frame ",
        tag("b", stall.release_frame, class_="release"),
        ".",
    )


def _ending(run: Run) -> Html:
    if run.contradictions:
        return tag("p", "✕ Not as expected: " + "; ".join(run.contradictions), class_="unexpected")
    failed = "; ".join(f"{c.name}: {c.detail}" for c in run.checks if not c.ok)
    return tag(
        "p", f"✓ As expected: {run.expected}" + (f"; but {failed}" if failed else ", and every witness agrees")
    )


def glance(of: Shown) -> Html:
    """The figures of a capture at a glance, and the remedy."""
    s = of.result.summary
    after = f"{share(s.stalled_share)} of {s.exchanges:,} exchanges"
    found = [("stalled", f"{s.stalled_exchanges:,}", after)]
    if s.wait_ms:
        found += [
            (
                "wait, median",
                f"{s.wait_ms.p50:.1f} ms",
                f"99th percentile {s.wait_ms.p99:.1f} ms: from trigger to late ACK",
            ),
            ("lost in all", _seconds(s.lost_ms_total), f"in {s.stalls:,} stalls"),
            ("held by", _role(s.held_by), "its Nagle's algorithm"),
            (
                "delayed by",
                _role(s.delayed_by),
                "its delayed ACK" + (f", timer {s.ack_timer_ms:.0f} ms" if s.ack_timer_ms else ""),
            ),
        ]
    if s.exchange_ms:
        found.append(
            ("exchange, median", f"{number(s.exchange_ms.p50)} ms", f"99th percentile {number(s.exchange_ms.p99)} ms")
        )
    if of.run:
        load = of.run.witnesses["load"]
        found.append(
            (
                "requests",
                f"{number(load['requests_per_s'])} / s",
                f"{load['complete']:,} in all, as the load tool saw them",
            )
        )
    remedy = tag("p", tag("b", "Remedy. "), s.remedy, class_="remedy") if s.remedy else None
    return each(tiles(found), remedy)


def _role(role: str | None) -> str:
    return "both ends" if role == "both" else str(role)


def _seconds(ms: float) -> str:
    return f"{ms / 1e3:,.1f} s" if ms >= 1e3 else f"{ms:.1f} ms"


def stalls(of: Shown) -> Html | None:
    """Ladders of chosen stalls; of a capture without one, of an exchange."""
    found = chosen(of.result)
    if found and not of.files:
        return section(
            "Stalls", tag("p", "This capture came through a pipe: its packets cannot be read again for ladders.")
        )
    note = (
        "Time runs downwards; the axis is to scale, and the wait is marked on it. Segments closer together than can "
        "be drawn are set apart: a thin line leads from each to its moment. Frames are those of "
        f"{of.result.source.file}, times those of the place where it was captured."
    )
    if found:
        extremes = [one for one in found if one.why in EXTREMES]
        drawn = [_stall(of, one) for one in found if one not in extremes]
        folds = [folded(f"{one.why}, {one.stall.wait_ms:.1f} ms", _stall(of, one)) for one in extremes]
        return section("Stalls, segment by segment", *drawn, *folds, note=note)
    quiet = quiet_exchange(of)
    if quiet is None or not quiet[1]:
        return None
    connection, steps = quiet
    caption = f"Connection {connection.id}: an exchange without a stall."
    return section("An exchange, segment by segment", figure(caption, ladder(steps, connection)), note=note)


def _stall(of: Shown, one: Chosen) -> Html:
    stall = one.stall
    connection = of.result.connections[stall.connection]
    caption = (
        f"{one.why}: number {one.number} of {len(of.result.stalls)}, connection {stall.connection}, "
        f"exchange {stall.exchange}; the {stall.held_by.role} waits {stall.wait_ms:.3f} ms for the "
        f"{stall.delayed_by.role}'s ACK."
    )
    return figure(caption, ladder(around(list(of.files), of.result, stall), connection, stall))


def over_time(of: Shown) -> Html | None:
    """The time-sequence plot of the connection of a typical stall."""
    if not of.result.stalls or not of.files:
        return None
    stretch = stretch_around(of, of.result.stalls.typical())
    connection, n = stretch.connection, len(stretch.steps)
    part = (
        "all its packets"
        if n == connection.packets
        else f"packets {stretch.first} to {stretch.first + n - 1} of {connection.packets}"
    )
    return section(
        "A stalled connection over time",
        figure(
            f"Connection {connection.id}, {connection.client} to {connection.server}, {part}: each upright bar is a "
            "segment of the held side, the line is how much of it has been acknowledged. Shaded: bytes that are "
            "held, from the trigger to their release.",
            charts.time_sequence(stretch),
        ),
    )


def durations(shown: list[Shown], heading: str = "How long it took") -> Html | None:
    """The distributions of exchange times and of waits."""
    several = len(shown) > 1
    found = []
    for of in shown:
        s, h = of.result.summary, of.result.histograms
        name = f"{of.name}, " if several else ""
        if s.exchange_ms:
            found.append(charts.Durations(f"{name}exchanges", h["exchange_ms"], s.exchange_ms))
        if s.wait_ms and not several:
            found.append(charts.Durations(f"{name}waits for a late ACK", h["wait_ms"], s.wait_ms, stalled=True))
    if not found:
        return None
    caption = (
        "Share of all in each bin, on all connections of the capture. Solid line: the median; dotted line: the 99th "
        "percentile."
    )
    return section(heading, figure(caption, charts.distributions(found, heading)))


def causes(of: Shown) -> Html | None:
    """Where the time of the silences went."""
    found = of.result.silences
    if not found:
        return None
    rows: list[list[Child]] = [
        [charts.CAUSES.get(cause, cause), f"{silence.count:,}", _seconds(silence.total_ms)]
        for cause, silence in sorted(found.items(), key=lambda item: -item[1].total_ms)
    ]
    return section(
        "Where the time went",
        figure(
            "Silences of 20 ms and more on all connections, by what ended them; each has one cause.",
            charts.silences(found),
        ),
        folded("as a table", table(["cause", "silences", "in all"], rows)),
    )


def body(of: Shown) -> Html:
    """All of it below the masthead."""
    teaches = of.run.manifest.get("teaches") if of.run else None
    return each(
        glance(of),
        tag("p", teaches, class_="teaches") if teaches else None,
        stalls(of),
        over_time(of),
        durations([of]),
        causes(of),
        witnesses(of.run) if of.run else None,
        provenance(of),
    )
