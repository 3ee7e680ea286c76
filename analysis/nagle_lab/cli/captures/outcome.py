"""The outcome of a judged capture: the screen or the JSON, the requested files, and the exit code."""

import dataclasses
import sys
from collections.abc import Collection, Sequence
from pathlib import Path

from msgspec.structs import replace

from nagle_lab.cli.captures.analyze_options import AnalyzeOptions
from nagle_lab.diagnosis.pair import Pair
from nagle_lab.diagnosis.result.result import Result
from nagle_lab.diagnosis.result.spread import plural
from nagle_lab.diagnosis.result.verdict import Verdict, exit_code
from nagle_lab.errors import Exit, tell
from nagle_lab.evidence.examples import examples, written_ladder
from nagle_lab.evidence.process_comments import processes_of
from nagle_lab.reports.screens.terminal import console, show_capture
from nagle_lab.reports.words.next_steps import PIPE_READ_ONCE, commands, ends
from nagle_lab.reports.words.phrases import server_ports
from nagle_lab.reports.words.reported import ReportedCapture


def tell_outcome(
    paths: Sequence[Path],
    name: str,
    result: Result,
    asked: AnalyzeOptions,
    *,
    title: str = "",
    about: Sequence[tuple[str, str]] = (),
    is_printed: bool = False,
) -> None:
    """Print the ``result`` of a capture, unless it was already printed, and pass it to the files to write."""
    exports = asked.exports
    result = _with_processes(paths, result)
    if asked.strace:
        from nagle_lab.experiments.writes.recorded import with_recorded  # noqa: PLC0415 - few need it

        result = with_recorded(paths, result, asked.strace)
    shown = result.of_file(name)
    to_draw = paths if _are_readable(paths) and (exports.with_packets or not asked.as_json) else []
    packets = examples(to_draw, result, typical_only=exports.typical_only)
    if to_draw and result.writes:
        packets = dataclasses.replace(packets, written=written_ladder(to_draw, result, result.writes))
    code, below = exit_code(result.verdict, asked.expected), Path.cwd() if asked.strace else None
    reported = ReportedCapture(
        shown, packets, code, asked.expected, result.writes, below, title=title, about=about,
        to_paste=None if _are_readable(paths) else commands(result, None, unknown=PIPE_READ_ONCE),
    )  # fmt: skip
    exports.capture(reported)
    if is_printed:
        return
    with exports.showing():
        if asked.as_json:
            _write_json(shown)
        else:
            show_capture(reported, console(), [*about, *ends(result, packets.software)])


def judged_part(result: Result, ports: Collection[int]) -> list[tuple[str, str]]:
    """The row of the screen that says which connections were judged; none if all were (no ``ports``)."""
    every = result.summary.connections
    if not ports or not every:
        return []
    judged = sum(one.judged for one in result.connections)
    asked = f"those to port {' or '.join(map(str, sorted(ports)))}"
    others = "" if judged else f"; {server_ports(result)}"
    return [("judged", f"{judged} of {every} {plural('connection', every)}: {asked}{others}")]


def write_both(paths: Sequence[Path], pair: Pair) -> None:
    """Print a pair as JSON, and the result of each capture."""
    sys.stdout.write(pair.to_json())
    for path, result in zip(paths, pair.results, strict=True):
        _write_json(_with_processes([path], result))


def _write_json(result: Result) -> None:
    for part in result.json_parts():
        sys.stdout.write(part)


def _are_readable(paths: Sequence[Path]) -> bool:
    """Whether they can be read again, which a pipe cannot."""
    return all(path.is_file() for path in paths)


def _with_processes(paths: Sequence[Path], result: Result) -> Result:
    """The result with the processes named in comments on packets, if any."""
    processes = processes_of(paths, result) if _are_readable(paths) else None
    return replace(result, processes=processes) if processes else result


def tell_contradiction(paths: Sequence[Path], verdict: Verdict, asked: AnalyzeOptions) -> Exit:
    """The exit code of the verdict on these captures; reports a verdict other than the expected one."""
    code = exit_code(verdict, asked.expected)
    if code is Exit.CONTRADICTED and not asked.as_json:
        tell(f"{' '.join(map(str, paths))}: expected {asked.expected}, found {verdict}")
    return code
