"""A sweep: one parameter over its range, and the exact sizes at which the verdict changes.

An edge is explained by what one end of the connections under test sends at a time, and by MSS and MTU.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from itertools import groupby, pairwise
from typing import Any

from nagle_lab.diagnosis.result.spread import plural
from nagle_lab.diagnosis.result.verdict import Verdict
from nagle_lab.errors import Exit, NagleLabError, worst
from nagle_lab.evidence.excerpt import Step, packets_of
from nagle_lab.experiments.trials import TrialOutcome
from nagle_lab.lab.scenarios.scenario import Scenario, Sweep
from nagle_lab.runs.run import Run


@dataclass(frozen=True)
class Bursts:
    """What one end sends in one run, at the capture nearest the held end.

    A burst is the payload bytes of the segments that it sends on one connection without the other end's data between.
    """

    usual: tuple[int, ...]  # the most common burst
    share: float  # its share of all bursts, 0 to 1
    unacknowledged_bytes: int | None  # in a typical stall, if this end was held
    held_bytes: int | None  # what waited behind these
    mss: int  # payload of a full segment
    mtu: int | None  # of the captured interface


def bursts_of(run: Run) -> dict[str, Bursts]:
    """What each end of a connection under test sends in a run, by role; empty if none was captured."""
    capture = run.captures[run.best]
    if not capture.tested:
        return {}
    stalls = sorted(capture.tested_stalls(), key=lambda stall: stall.wait_ms)
    typical = stalls[len(stalls) // 2] if stalls else None
    shown = capture.connections[typical.connection] if typical else max(capture.tested, key=lambda c: c.exchanges)
    steps = list(packets_of(run.capture(run.best), shown))
    bursts = {}
    for role in ("client", "server"):
        counted = Counter(_bursts(steps, from_client=role == "client"))
        usual, times = counted.most_common(1)[0] if counted else ((), 0)
        held = typical if typical and typical.held_by.role == role else None
        bursts[role] = Bursts(
            usual=usual,
            share=times / max(1, counted.total()),
            unacknowledged_bytes=held.trigger_bytes if held else None,
            held_bytes=held.released_bytes if held else None,
            mss=shown.full_segment_bytes,
            mtu=run.manifest.captures[run.best].mtu,
        )
    return bursts


def _bursts(steps: Iterable[Step], *, from_client: bool) -> list[tuple[int, ...]]:
    """The payload sizes that one end sends in a row, without the other end's data in between."""
    rows = groupby((step for step in steps if step.length), key=lambda step: step.from_client)
    return [tuple(step.length for step in row) for sender, row in rows if sender == from_client]


SCHEMA = "nagle-lab-sweep/1"
SHARP = 0.9  # least share at the stalled side of a sharp edge, relative to the largest share at doubling sizes


@dataclass(frozen=True)
class SweepPoint:
    """One run of a series."""

    size: int  # the swept parameter
    outcome: TrialOutcome
    bursts: Mapping[str, Bursts]  # what each end sent, by role
    sizes: Mapping[str, int]  # the other parameters in bytes

    @property
    def verdict(self) -> Verdict | None:
        """STALL or CLEAN; None if the run is neither."""
        verdict = self.outcome.verdict
        return verdict if verdict and verdict.is_conclusive else None

    @property
    def share(self) -> float:
        """Stalled exchanges of those after a connection's first, 0 to 1."""
        return self.outcome.figures.stalled_share if self.outcome.figures else 0.0


@dataclass(frozen=True)
class Edge:
    """Two neighbouring sizes with different verdicts; ``blurs`` says why it is not sharp, if it is not."""

    below: SweepPoint
    above: SweepPoint
    blurs: list[str]

    @property
    def stalled(self) -> SweepPoint:
        """The side of the edge that stalls."""
        return self.below if self.below.verdict is Verdict.STALL else self.above


@dataclass
class SweepSeries:
    """One variant, and the runs of it."""

    name: str
    variant: str
    port: int  # the connections to it are under test
    points: list[SweepPoint] = field(default_factory=list)  # at doubling sizes, then those of the search
    doubled: int = 0  # how many are at doubling sizes
    again: list[SweepPoint] = field(default_factory=list)  # both sides of each edge, run once more
    edges: list[Edge] = field(default_factory=list)

    def to_show(self) -> list[SweepPoint]:
        """The doubling sizes, both sides of each edge, and runs without a verdict; no other steps of the search."""
        edges = {point.size for edge in self.edges for point in (edge.below, edge.above)}
        steps = (point for point in self.points[self.doubled :] if point.size in edges or point.verdict is None)
        return sorted([*self.points[: self.doubled], *steps], key=lambda point: point.size)

    def unlocated(self) -> Iterator[tuple[SweepPoint, SweepPoint]]:
        """Neighbouring sizes with different verdicts, and no edge between them: the search was interrupted."""
        edges = {edge.below.size for edge in self.edges}
        told = sorted((point for point in self.points if point.verdict), key=lambda point: point.size)
        for below, above in pairwise(told):
            if below.verdict is not above.verdict and below.size not in edges:
                yield below, above


MakePoint = Callable[[int], SweepPoint]


def asked_range(scenario: Scenario, text: str | None) -> tuple[str, int, int]:
    """The parameter, the least and the largest size of ``NAME=LO..HI``, or of the scenario's own ``[sweep]``.

    NAME is a whole-number parameter of the scenario, in upper or lower case, or ``size``: the one its ``[sweep]``
    names. Raises NagleLabError for anything else.
    """
    own = swept(scenario)
    if text is None:
        return own.parameter, own.low, own.high
    name, _, span = text.partition("=")
    ends = re.fullmatch(r"([0-9]{1,18})\.\.([0-9]{1,18})", span)
    low, high = map(int, ends.groups()) if ends else (0, 0)
    if not 0 < low < high:
        raise NagleLabError(f"{text}: write the sizes as NAME=LO..HI with 0 < LO < HI, such as size=64..16384")
    parameter = own.parameter if name.lower() == "size" else name.upper()
    if parameter not in (ints := scenario.int_parameters()):
        raise NagleLabError(
            f"{name} is not a whole-number parameter of {scenario.name}: use size, or one of {', '.join(ints)}"
        )
    return parameter, low, high


def swept(scenario: Scenario) -> Sweep:
    """The scenario's ``[sweep]``; NagleLabError if it has none."""
    if scenario.sweep is None:
        raise NagleLabError(f"{scenario.name} has no [sweep] in its scenario.toml: size does not matter there")
    return scenario.sweep


def doubled(low: int, high: int) -> list[int]:
    """Sizes to measure: ``low``, twice that, and so on, and finally ``high``."""
    sizes = []
    while low < high:
        sizes.append(low)
        low *= 2
    return [*sizes, high]


def run_through(
    series: SweepSeries, low: int, high: int, measure: MakePoint, foresee: Callable[[int], None] = lambda _: None
) -> None:
    """Measure a series at doubling sizes, then halve the gap at each change of verdict until it is exact.

    ``foresee`` is called with the number of runs that an edge takes besides those at doubling sizes. Sizes between
    two doublings with the same verdict are not tested. A run that is neither STALL nor CLEAN (INCONCLUSIVE, INVALID,
    failed) is not run again; it remains among the points.
    """
    for size in doubled(low, high):
        series.points.append(measure(size))
        series.doubled += 1
    for below, above in pairwise([point for point in series.points if point.verdict]):
        if below.verdict is not above.verdict:
            foresee((above.size - below.size - 1).bit_length() + 2)
            _locate(series, below, above, measure)


def _locate(series: SweepSeries, below: SweepPoint, above: SweepPoint, measure: MakePoint) -> None:
    """Find the edge between two points of different verdicts, and run both its sides once more."""
    most = max(series.points[: series.doubled], key=lambda point: point.share)
    unclear = None
    while above.size - below.size > 1 and unclear is None:
        middle = measure((below.size + above.size) // 2)
        series.points.append(middle)
        if middle.verdict is None:
            unclear = middle
        elif middle.verdict is below.verdict:
            below = middle
        else:
            above = middle
    again = [measure(point.size) for point in (below, above)]
    series.again += again
    series.edges.append(Edge(below, above, list(_blurs(below, above, again, most, unclear))))


def _blurs(
    below: SweepPoint, above: SweepPoint, again: list[SweepPoint], most: SweepPoint, unclear: SweepPoint | None
) -> Iterator[str]:
    if unclear:
        yield f"between {below.size} and {above.size}, not located: {unclear.size} is {unclear.outcome.name}"
    for first, second in zip((below, above), again, strict=True):
        if second.verdict is not first.verdict:
            yield f"{first.size} was {first.outcome.name} at first and {second.outcome.name} when run again"
    stalled = below if below.verdict is Verdict.STALL else above
    if stalled.share < SHARP * most.share:
        yield f"at {stalled.size} only {stalled.share:.1%} stall, at {most.size} {most.share:.1%}"


def code_of(all_series: list[SweepSeries]) -> Exit:
    """0 if every run is STALL or CLEAN, 2 if any is INVALID or failed, 3 if any is INCONCLUSIVE."""
    points = [point for series in all_series for point in [*series.points, *series.again]]
    return worst(Exit.OK if point.verdict else point.outcome.code for point in points)


def explanation(edge: Edge, parameter: str) -> list[str]:
    """What the captures on both sides of an edge show, in sentences; none where nothing was captured."""
    held, at = edge.stalled, edge.stalled.size
    role = next((role for role, sent in held.bursts.items() if sent.held_bytes is not None), None)
    if role is None:
        return []
    lines = [
        f"At {point.size} the {role} sends {_sizes(point, role, parameter)} ({point.verdict})."
        for point in (edge.below, edge.above)
        if role in point.bursts
    ]
    stalled, clean = held.bursts[role], (edge.above if held is edge.below else edge.below).bursts.get(role)
    if clean is None or stalled.held_bytes is None or stalled.unacknowledged_bytes is None:
        return lines
    waiting, before = (_named(n, held, role, parameter) for n in (stalled.held_bytes, stalled.unacknowledged_bytes))
    lines.append(f"At {at}, {waiting} is held behind {before} not yet acknowledged.")
    if held is edge.above:
        few, more = len(clean.usual), len(stalled.usual)
        if more > few:
            segments = f"{few} {plural('segment', few)}"
            lines.append(f"Up to {edge.below.size} it leaves as {segments}, from {edge.above.size} on as {more}.")
    elif stalled.held_bytes < stalled.mss <= max(clean.usual[1:], default=0):
        full = f"MSS {stalled.mss}" + (f", MTU {stalled.mtu}" if stalled.mtu else "")
        lines.append(f"From {edge.above.size} on a full segment follows ({full}): Nagle's algorithm never holds one.")
    return lines


def _sizes(point: SweepPoint, role: str, parameter: str) -> str:
    sent = point.bursts[role]
    shown = " + ".join(_named(length, point, role, parameter) for length in sent.usual[:6])
    more = f" + {len(sent.usual) - 6} more" if len(sent.usual) > 6 else ""
    usually = "" if sent.share > 0.9 else f", in {sent.share:.0%} of its bursts"
    return f"{shown}{more}{usually}"


def _named(length: int, point: SweepPoint, role: str, parameter: str) -> str:
    sizes = {"MSS": point.bursts[role].mss, parameter: point.size, **point.sizes}
    names = [name for name, value in sizes.items() if value == length]
    return f"{length} B ({', '.join(names)})" if names else f"{length} B"


def to_json(scenario: str, parameter: str, low: int, high: int, all_series: list[SweepSeries]) -> dict[str, Any]:
    """A sweep as JSON, for ``--json``."""
    return {
        "schema": SCHEMA,
        "scenario": scenario,
        "parameter": parameter,
        "from": low,
        "to": high,
        "exit_code": int(code_of(all_series)),
        "series": [
            {
                "name": series.name,
                "variant": series.variant,
                "points": [asdict(point) for point in sorted(series.points, key=lambda point: point.size)],
                "again": [asdict(point) for point in series.again],
                "edges": [
                    {"below": edge.below.size, "above": edge.above.size, "sharp": not edge.blurs, "blurs": edge.blurs}
                    for edge in series.edges
                ],
            }
            for series in all_series
        ],
    }
