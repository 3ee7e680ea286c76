"""Runs and captures side by side: their figures, the gain over the first one, and what differs."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from msgspec import to_builtins

from nagle_lab.diagnosis.result.json_text import json_text
from nagle_lab.diagnosis.result.result import Connection, Result
from nagle_lab.diagnosis.result.spread import Spread, spread
from nagle_lab.diagnosis.result.verdict import Verdict, exit_code
from nagle_lab.errors import Exit, NagleLabError, worst
from nagle_lab.evidence.file_names import distinct_names
from nagle_lab.runs.figures import figures_of
from nagle_lab.runs.manifest import Image
from nagle_lab.runs.run import Run
from nagle_lab.runs.under_test import totals_of

SCHEMA = "nagle-lab-compare/1"
# Relative differences that two runs of one variant also show, and that count as none: in figures that count packets
# or follow the delayed-ACK timer, and in those that depend on how busy the machine is (24,000 to 41,000 requests/s).
COUNTED, BUSY = 0.05, 0.3
TIMES_FROM = 2.0  # ratios from here on are shown as "2.4×", smaller ones in percent
_SAME, _ABOUT_THE_SAME = "the same", "about the same"
MANY = 4  # most link types, MSS and ports that are listed one by one


@dataclass(frozen=True)
class Quantity:
    """One figure that is compared; ``less`` and ``more`` are the words for a change, as in "3.2× fewer"."""

    name: str  # in JSON
    words: str  # in tables
    unit: str
    less: str
    more: str
    noise: float = COUNTED


QUANTITIES = (
    Quantity("stalled_share", "repeat exchanges stalled", "", "less", "more"),
    Quantity("wait_p50_ms", "wait, median", "ms", "shorter", "longer"),
    Quantity("wait_p99_ms", "wait, 99th percentile", "ms", "shorter", "longer"),
    Quantity("exchange_p50_ms", "exchange, median", "ms", "shorter", "longer", BUSY),
    Quantity("exchange_p99_ms", "exchange, 99th percentile", "ms", "shorter", "longer", BUSY),
    Quantity("requests_per_s", "requests per second", "per s", "fewer", "more", BUSY),
    Quantity("request_p50_ms", "request, median", "ms", "shorter", "longer", BUSY),
    Quantity("request_p99_ms", "request, 99th percentile", "ms", "shorter", "longer", BUSY),
    Quantity("packets_per_request", "packets per request", "", "fewer", "more"),
    Quantity("wire_bytes_per_payload_byte", "wire bytes per payload byte", "", "fewer", "more"),
    Quantity("delayed_acks", "delayed ACKs", "", "fewer", "more"),
    Quantity("kernel_delayed_acks", "… in the kernels' counters", "", "fewer", "more"),
)


@dataclass(frozen=True)
class Subject:
    """One run or capture; ``figures`` by name of :data:`QUANTITIES` (None: there is none)."""

    name: str  # scenario / variant, or the file
    source: str  # the run's folder, or the file
    is_run: bool
    verdict: str
    reason: str
    as_expected: bool | None  # None: a capture has no expectation
    figures: dict[str, float | None]
    facts: dict[str, dict[str, str]]  # configuration and environment: section → name → value


@dataclass(frozen=True)
class Gain:
    """One figure of a subject compared with the first subject's; None if a ratio or difference has no meaning."""

    ratio: float | None  # subject / first
    difference: float | None  # subject − first, in the quantity's unit
    words: str  # empty: nothing to say
    short: str = ""  # for narrow tables: ×16.3, ÷26.3, −16%; empty: about the same, or a share

    @property
    def notable(self) -> bool:
        """Whether there is a change worth mentioning."""
        return self.words not in ("", _SAME, _ABOUT_THE_SAME)


@dataclass(frozen=True)
class Difference:
    """One fact that is not the same for all; None: that subject does not have it."""

    section: str
    name: str
    values: list[str | None]  # in the order of the subjects


@dataclass(frozen=True)
class Comparison:
    """Subjects in the order given, the gains of each after the first over the first, and what differs."""

    subjects: list[Subject]
    gains: list[dict[str, Gain]]  # by name of the quantity; one for each subject after the first
    differences: list[Difference]
    not_compared: list[str]  # sections that only some of the subjects have

    @property
    def code(self) -> Exit:
        """2 with an INVALID one, 3 with an INCONCLUSIVE one, else 0."""
        return worst(exit_code(Verdict(subject.verdict)) for subject in self.subjects)

    def to_json(self) -> str:
        """One line, ending in a newline; the same bytes for the same input."""
        quantities = [{"name": q.name, "words": q.words, "unit": q.unit} for q in QUANTITIES]
        return json_text({"schema": SCHEMA, "quantities": quantities, **to_builtins(self)}) + "\n"


def compare(sources: Sequence[Run | Result], paths: Sequence[Path] = ()) -> Comparison:
    """Compare judged runs and diagnosed captures with the first; NagleLabError for fewer than two.

    Captures with the same file name are named by as much of their ``paths`` as distinguishes them.
    """
    if len(sources) < 2:
        raise NagleLabError("compare needs two or more run folders or capture files")
    subjects = [subject_of_run(s) if isinstance(s, Run) else subject_of_capture(s) for s in sources]
    names = [subject.name for subject in subjects]
    alike = {path: i for i, path in enumerate(paths) if not subjects[i].is_run and names.count(names[i]) > 1}
    for path, name in distinct_names(list(alike)).items():
        subjects[alike[path]] = replace(subjects[alike[path]], name=name)
    return compared(subjects)


def compared(subjects: Sequence[Subject]) -> Comparison:
    """Compare subjects with the first of them."""
    first = subjects[0]
    gains = [
        {q.name: gain(q, first.figures[q.name], each.figures[q.name]) for q in QUANTITIES} for each in subjects[1:]
    ]
    sections = list(dict.fromkeys(section for subject in subjects for section in subject.facts))
    shared = [section for section in sections if all(section in subject.facts for subject in subjects)]
    differences = [each for section in shared for each in _differences(section, subjects)]
    return Comparison(list(subjects), gains, differences, [s for s in sections if s not in shared])


def gain(quantity: Quantity, first: float | None, value: float | None) -> Gain:
    """``value`` compared with ``first``."""
    if first is None or value is None:
        words = f"none (was {first:,.1f})" if first is not None and quantity.name.startswith("wait_") else ""
        return Gain(None, None, words)
    ratio, difference = (value / first if first else None), value - first
    if quantity.name == "stalled_share":
        return Gain(ratio, difference, _points(first, value))
    return Gain(ratio, difference, *_change(quantity, first, value))


def _points(first: float, value: float) -> str:
    if first and not value:
        return f"no stalls (was {100 * first:.3g}% of repeats)"
    points = round(100 * (value - first), 1)
    return f"{abs(points):g} percentage points {'fewer' if points < 0 else 'more'} stalls" if points else _SAME


def _change(quantity: Quantity, first: float, value: float) -> tuple[str, str]:
    """The change in words, and short."""
    if first == value:
        return _SAME, ""
    if not first or not value:
        if quantity.unit:  # a time or rate is never zero, only less than the load tool shows
            return "", ""
        return f"{value:,.0f} (was {first:,.0f})", ""
    if abs(value - first) <= quantity.noise * first:
        return _ABOUT_THE_SAME, ""
    word, times, sign = (quantity.less, "÷", "−") if value < first else (quantity.more, "×", "+")
    factor = max(value / first, first / value)
    if factor < TIMES_FROM:
        percent = f"{abs(value / first - 1):.0%}"
        return f"{percent} {word}", sign + percent
    shown = f"{factor:,.1f}" if factor < 100 else f"{factor:,.0f}"
    return f"{shown}× {word}", times + shown


def subject_of_run(run: Run) -> Subject:
    """A run as a subject: figures of its connections under test, in the capture nearest the held end."""
    capture = run.captures[run.best]
    figures = _no_figures()
    if run.verdict.is_conclusive:
        own = figures_of(run)
        figures |= {name: value for name, value in asdict(own).items() if name in figures}
        figures |= _median_and_tail("exchange", _exchange_ms(capture.result, capture.tested))
        figures |= {"request_p50_ms": own.p50_ms, "request_p99_ms": own.p99_ms}
    return Subject(
        name=f"{run.manifest.scenario} / {run.manifest.variant}",
        source=run.folder.name,
        is_run=True,
        verdict=run.verdict,
        reason=run.reason,
        as_expected=not run.contradictions,
        figures=figures,
        facts=_facts_of_run(run) | {"capture": _facts_of_capture(capture.result, capture.result.connections)},
    )


def subject_of_capture(result: Result, only: Sequence[Connection] | None = None) -> Subject:
    """A capture as a subject, or ``only`` some of its connections; its exchanges stand for requests."""
    connections = result.connections if only is None else only
    figures = _no_figures()
    if result.verdict.is_conclusive:
        total = totals_of(connections, result.stalls)
        figures |= _median_and_tail("wait", result.summary.wait_ms)
        figures |= _median_and_tail("exchange", _exchange_ms(result, connections))
        figures |= {
            "stalled_share": total.stalled_after_first,
            "packets_per_request": total.packets_per_exchange,
            "wire_bytes_per_payload_byte": total.wire_bytes_per_payload_byte,
            "delayed_acks": total.delayed_acks,
        }
    name, facts = result.source.file, {"capture": _facts_of_capture(result, connections)}
    return Subject(name, name, False, result.verdict, result.reason, None, figures, facts)


def _exchange_ms(result: Result, connections: Iterable[Connection]) -> Spread | None:
    """How long the exchanges took that follow another on their connection; all of them, if none does.

    The first of a connection does not stall, and captures differ in how many connections they have.
    """
    numbers = {connection.id for connection in connections if connection.judged}
    ours = [
        (each.exchange, each.exchange_ms)
        for each in result.exchanges or ()
        if each.connection in numbers and each.exchange_ms is not None
    ]
    repeats = [ms for number, ms in ours if number > 1]
    return spread(repeats or (ms for _, ms in ours))


def _no_figures() -> dict[str, float | None]:
    return dict.fromkeys(q.name for q in QUANTITIES)


def _median_and_tail(name: str, spread: Spread | None) -> dict[str, float | None]:
    return {f"{name}_p50_ms": spread.p50 if spread else None, f"{name}_p99_ms": spread.p99 if spread else None}


def _facts_of_run(run: Run) -> dict[str, dict[str, str]]:
    m, w = run.manifest, run.witnesses
    return {
        "lab": {"lab": m.lab},  # scenario and variant are its name
        "setting": {"in effect": w.option.demanded} if w.option and w.option.in_effect else {},
        "parameter": m.parameters,
        "load": {"command": w.load.command},
        "version": m.versions.stated(),
        "image": _images(m.images),
        "network": {
            **_collapsed({name: {"MTU": str(of.mtu)} for name, of in m.captures.items() if of.mtu is not None}),
            **_collapsed({at: {"congestion control": of.congestion_control} for at, of in m.namespaces.items()}),
        },
        "sysctl": _collapsed({at: of.sysctls for at, of in m.namespaces.items()}),
        "offload": _collapsed({name: of.offloads for name, of in m.captures.items()}),
    }


def _facts_of_capture(result: Result, connections: Sequence[Connection]) -> dict[str, str]:
    source, sizes, ports, near = result.source, set[int](), set[int](), result.summary.captured_near
    if len(connections) < len(result.connections):
        near = None  # then it applies to all
    for connection in connections:
        sizes.add(connection.full_segment_bytes)
        ports.add(connection.server.port)
        if len(sizes) > MANY and len(ports) > MANY:
            break
    return {
        "format": source.format,
        "link type": ", ".join(source.link_type),
        "captured near": near or "not known",
        "full segment": _few(sizes, "B"),
        "server port": _few(ports, ""),
    }


def _few(values: set[int], unit: str) -> str:
    return "several" if len(values) > MANY else ", ".join(f"{value} {unit}".strip() for value in sorted(values))


def _images(images: Mapping[str, Image]) -> dict[str, str]:
    """Image and base of every service, with ids as short as Docker shows, without tags: those are digests of ours."""
    shown = {}
    for service, image in images.items():
        shown[service] = f"{image.name.rpartition(':')[0]} {image.id.removeprefix('sha256:')[:12]}"
        if image.base:
            shown[f"{service}, base"] = f"{image.base.name} {image.base.id.removeprefix('sha256:')[:12]}"
    return shown


def _collapsed(by_source: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """The values of captures or namespaces by name: one where all have the same, else each with its source."""
    collapsed = {}
    for name in dict.fromkeys(name for values in by_source.values() for name in values):
        values = {source: of[name] for source, of in by_source.items() if name in of}
        same = len(set(values.values())) == 1
        collapsed[name] = next(iter(values.values())) if same else ", ".join(f"{s} {v}" for s, v in values.items())
    return collapsed


def _differences(section: str, subjects: Iterable[Subject]) -> Iterator[Difference]:
    tables = [subject.facts[section] for subject in subjects]
    for name in dict.fromkeys(name for table in tables for name in table):
        values = [table.get(name) for table in tables]
        if len(set(values)) > 1:
            yield Difference(section, name, values)
