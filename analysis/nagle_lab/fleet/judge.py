"""The end of a series: it is judged as a whole, and the result is stored."""

from collections.abc import Sequence

import msgspec

from nagle_lab.diagnosis.result.verdict import Verdict
from nagle_lab.fleet.results_folder import Folder
from nagle_lab.fleet.series import Series, missing_numbers
from nagle_lab.fleet.store import store
from nagle_lab.fleet.stretch import Stretch
from nagle_lab.fleet.whole import whole


class JudgedSeries(msgspec.Struct, frozen=True):
    """The result of a series, in a few words."""

    series: str
    verdict: Verdict | None  # None: it could not be finished
    reason: str
    packets: int = 0
    exchanges: int = 0
    stalled: int = 0
    stalls: int = 0
    lost_ms: float = 0.0
    problems: list[str] = []


def judge_series(series: Series, stretches: Sequence[Stretch], out: Folder) -> JudgedSeries:
    """Judge a series whose stretches are done, and store its rows, replacing what was stored before."""
    found = whole(stretches, out)
    summary = found.result.summary
    problems = [read.problem for read in found.reads if read.problem] + skipped(series)
    store(series, stretches, found, len(problems), out)
    judged = JudgedSeries(
        series.name, found.result.verdict, found.result.reason, found.result.source.packets, summary.exchanges,
        summary.stalled_exchanges, summary.stalls, summary.lost_ms_total, problems,
    )  # fmt: skip
    out.write(judged_name(stretches), msgspec.json.encode(judged))
    return judged


def judged_name(stretches: Sequence[Stretch]) -> str:
    """The file that says a series is done."""
    return f"work/{stretches[-1].key}.judged"


def skipped(series: Series) -> list[str]:
    """A line about numbers that seem to be missing from a rotation; the existing files may be complete all the
    same.
    """
    numbers = missing_numbers(series)
    some = ", ".join(map(str, numbers[:5])) + (", …" if len(numbers) > 5 else "")
    return [f"{series.name}: files are missing between those that are there: number {some}"] if numbers else []
