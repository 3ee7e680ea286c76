"""nagle-lab show: a stored run again, or one stall of a capture in full; without a stall an ordinary exchange."""

import sys
from collections.abc import Sequence
from pathlib import Path

from nagle_lab.capture.take import oldest_first
from nagle_lab.cli.shared.exports import Exports
from nagle_lab.cli.shared.report import report
from nagle_lab.diagnosis.analysis import analyze
from nagle_lab.diagnosis.result.json_text import json_text
from nagle_lab.diagnosis.result.result import Result, Stall
from nagle_lab.errors import Exit, NagleLabError
from nagle_lab.evidence.examples import examples
from nagle_lab.evidence.ladder import ladder_of, parts_of
from nagle_lab.evidence.tshark import detail
from nagle_lab.experiments.opened import examples_of_run, opened
from nagle_lab.reports.screens.dissection import show_frames, show_no_frames
from nagle_lab.reports.screens.terminal import console, show_exchange, show_stall
from nagle_lab.reports.words.reported import ReportedCapture
from nagle_lab.runs.run import Run


def command(paths: Sequence[Path], number: int | None, rotated: bool, as_json: bool, **files: Path | None) -> Exit:
    """Show a run, or stall ``number`` (from 1; None: a typical one) of a run or a capture; write the files."""
    for path in paths:
        if str(path) == "-" or path.is_fifo():
            raise NagleLabError(f"{path}: show reads a capture twice: save it to a file first")
    if len(paths) > 1 and not rotated:
        raise NagleLabError("show takes one FILE, or with --rotated the files of one rotated capture")
    with Exports(files, reads=paths) as exports:
        captured = oldest_first(paths)
        source = opened(paths[0]) if len(paths) == 1 else analyze([str(path) for path in captured])
        if not isinstance(source, Run):
            if exports.files:
                exports.capture(ReportedCapture(source, examples(captured, source)))
            with exports.showing():
                _show_stall(captured, source, number, as_json)
            return Exit.OK
        if number is None:
            return report(source, as_json, exports)
        if exports.files:
            exports.run(source, examples_of_run(source), source.exit_code(), source.contradictions)
        with exports.showing():
            _show_stall([source.capture(source.best)], source.results[source.best], number, as_json)
        return Exit.OK


def _show_stall(files: Sequence[Path], result: Result, number: int | None, as_json: bool) -> None:
    if not result.stalls and number is None and not as_json and (one := examples(files, result).exchange):
        show_exchange(result, one, console())
        return
    number, stall = _choose(files, result, number)
    if as_json:
        sys.stdout.write(json_text(stall) + "\n")
        return
    screen = console()
    show_stall(result, stall, number, ladder_of(files, result, stall), screen)
    try:
        show_frames(parts_of(stall), _detail(files, list(parts_of(stall))), screen)
    except NagleLabError as error:
        show_no_frames(error, screen)


def _detail(files: Sequence[Path], frames: Sequence[int]) -> list[tuple[int, list[str]]]:
    if len(files) > 1:
        raise NagleLabError("tshark reads one file: join these with nagle-lab annotate --rotated FILE… -o OUT.pcapng")
    return detail(files[0], frames)


def _choose(files: Sequence[Path], result: Result, number: int | None) -> tuple[int, Stall]:
    stalls, named = result.stalls, " ".join(map(str, files))
    if not stalls:
        raise NagleLabError(f"{named}: no stall to show: {result.verdict}, {result.reason}")
    if number is None:
        typical = stalls.typical()
        return stalls.index(typical) + 1, typical
    if not 1 <= number <= len(stalls):
        raise NagleLabError(f"{named}: no stall {number}: --stall takes 1 to {len(stalls)}")
    return number, stalls[number - 1]
