"""nagle-lab show: a stored run again, or one stall of a capture in full."""

import sys
from pathlib import Path

from nagle_lab.cli.exports import Exports, Wanted
from nagle_lab.cli.report import report
from nagle_lab.diagnosis.analysis import analyze
from nagle_lab.diagnosis.json_text import json_text
from nagle_lab.diagnosis.result import Result, Stall
from nagle_lab.errors import Exit, NagleLabError
from nagle_lab.evidence.examples import examples
from nagle_lab.evidence.ladder import ladder_of
from nagle_lab.reports import terminal
from nagle_lab.reports.dissection import dissections
from nagle_lab.runs.examples import examples_of_run
from nagle_lab.runs.run import is_run, judge


def show(path: Path, number: int | None, as_json: bool, html: Path | None = None) -> Exit:
    """Show a run, or stall ``number`` (from 1; None: a typical one) of a run or a capture file.

    ``html`` is the file to write a report of the whole run or capture to.
    """
    with Exports(Wanted(html=html)) as exports:
        return _show(path, number, as_json, exports)


def _show(path: Path, number: int | None, as_json: bool, exports: Exports) -> Exit:
    if is_run(path):
        judged = judge(path)
        if number is None:
            return report(judged, as_json, exports)
        if exports.wanted:
            exports.run(judged, examples_of_run(judged), judged.exit_code())
        return _show_stall(judged.capture(judged.best), judged.results[judged.best], number, as_json)
    if path.is_dir():
        raise NagleLabError(f"{path}: not a run folder (no manifest.json); for a capture name its file")
    if str(path) == "-" or path.is_fifo():
        raise NagleLabError(f"{path}: show reads a capture twice: save it to a file first")
    result = analyze(path)
    if exports.wanted:
        exports.capture(result, examples([path], result), Exit.OK, None)
    return _show_stall(path, result, number, as_json)


def _show_stall(path: Path, result: Result, number: int | None, as_json: bool) -> Exit:
    number, stall = _choose(path, result, number)
    if as_json:
        sys.stdout.write(json_text(stall) + "\n")
    else:
        screen = terminal.console()
        terminal.show_stall(result, stall, number, ladder_of([path], result, stall), screen)
        screen.print(*dissections(path, stall), sep="\n")
    return Exit.OK


def _choose(path: Path, result: Result, number: int | None) -> tuple[int, Stall]:
    stalls = result.stalls
    if not stalls:
        raise NagleLabError(f"{path}: there is no stall to show: {result.verdict}, {result.reason}")
    if number is None:
        typical = stalls.typical()
        return stalls.index(typical) + 1, typical
    if not 1 <= number <= len(stalls):
        raise NagleLabError(f"{path}: there is no stall {number}: --stall takes 1 to {len(stalls)}")
    return number, stalls[number - 1]
