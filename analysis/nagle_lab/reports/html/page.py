"""The pages as whole documents, and the functions that only their templates call."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from typing import Any

from nagle_lab.reports.html.ladder_drawing import ladder_drawing, span_text
from nagle_lab.reports.html.shown import Shown
from nagle_lab.reports.html.template import ENVIRONMENT, render
from nagle_lab.reports.words.numbers import IDLE_GAPS, NONE
from nagle_lab.runs.manifest import Manifest

_NAMES = {"nagle_lab": "nagle-lab", "git_revision": "git revision"}
# Settings on which the stall, and the times in a report, depend.
_SYSCTLS = (
    "tcp_autocorking", "tcp_congestion_control", "tcp_pingpong_thresh", "tcp_backlog_ack_defer", "tcp_timestamps",
    "tcp_sack", "tcp_slow_start_after_idle", "tcp_rto_min_us", "tcp_limit_output_bytes", "tcp_notsent_lowat",
    "tcp_min_tso_segs", "tcp_comp_sack_delay_ns", "tcp_mtu_probing", "tcp_rmem", "tcp_wmem",
)  # fmt: skip
_OFFLOADS = (
    "MTU", "tcp-segmentation-offload", "generic-segmentation-offload", "generic-receive-offload",
    "large-receive-offload",
)  # fmt: skip


def page(template: str, /, **values: object) -> str:
    """Fill in the template of a page. Raises UndefinedError if it uses an undefined value."""
    return render(template, **values)


def report_page(parts: Sequence[Shown], unusable: Sequence[tuple[str, str]] = ()) -> str:
    """Captures and runs in full, one below the other, and inputs that were ``unusable`` and why: a whole document."""
    names = dict.fromkeys([f"{of.verdict} {of.name}" for of in parts] + [name for name, _ in unusable])
    return page("report.html.j2", title=", ".join(names), parts=parts, unusable=unusable)


def _versions(manifest: Manifest) -> list[tuple[str, object]]:
    return [(_NAMES.get(name, name), version) for name, version in manifest.versions.stated().items()]


def _environment_tables(manifest: Manifest) -> Iterator[tuple[str, list[str], list[list[str]]]]:
    """Sysctls of each network namespace, and offloads of each interface that was captured."""
    namespaces, captures = manifest.namespaces, manifest.captures
    yield "sysctl", [*namespaces], _settings([of.sysctls for of in namespaces.values()], _SYSCTLS)
    offloads = [{**of.offloads, "MTU": of.mtu} for of in captures.values()]
    yield "interface", [*captures], _settings(offloads, _OFFLOADS)


def _settings(places: Sequence[Mapping[str, Any]], names: Iterable[str]) -> list[list[str]]:
    """A row for each of the ``names`` that is set anywhere; sysctls are called by the last part of their name."""
    short = [{key.rpartition(".")[2]: value for key, value in of.items() if value is not None} for of in places]
    return [[name, *(str(of.get(name, NONE)) for of in short)] for name in names if any(name in of for of in short)]


def _plots() -> Mapping[str, Any]:
    """The functions that draw with Matplotlib; none if it is missing, as in a browser: then pages have no plots."""
    if find_spec("matplotlib") is None:
        return {"plots": False}
    from nagle_lab.reports.html import charts  # noqa: PLC0415

    drawn = (
        charts.cause_plot, charts.cliff_plot, charts.distribution_plot, charts.durations_of,
        charts.time_sequence_plot, charts.variant_plot,
    )  # fmt: skip
    return {"plots": True} | {function.__name__: function for function in drawn}


ENVIRONMENT.globals |= {
    "idle_gaps_of_all": f"{IDLE_GAPS} on all connections, by their cause; each has one.",
    "duration": span_text,
    "environment_tables": _environment_tables,
    "ladder_drawing": ladder_drawing,
    "versions": _versions,
    **_plots(),
}
