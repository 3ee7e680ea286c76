"""An strace file recorded beside a capture: which two writes caused each stall.

docs/strace.md says how to record both. The file comes from others: nothing in it is executed, and binaries that it
names are read only for their source lines.
"""

import re
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from msgspec.structs import replace

from nagle_lab.diagnosis.result.result import Connection, Result
from nagle_lab.errors import NagleLabError, os_problem
from nagle_lab.experiments.writes.running_program import not_clean_if_traced, writes_beside
from nagle_lab.guard.tracing.calls import Call, Trace
from nagle_lab.guard.tracing.strace_output import read_trace

RECIPE = "strace -f -ttt -yy -o FILE (docs/strace.md)"
_LOOK = 2000  # lines at the beginning that show how it was recorded
_LONGEST = 4096  # bytes of a line that are examined
_GOOD = re.compile(r"\d+(<.*?>)? +\d{9,}\.\d{6} ")
# Other forms of strace's lines, and the option that is missing for them.
_OTHERWISE = (
    (re.compile(r"\[pid +\d+"), "recorded from the terminal: use -o FILE"),
    (re.compile(r"\d{9,}\.\d{6} \w+\("), "recorded without -f, so that no line says which process it is of"),
    (
        re.compile(r"(\d+(<.*?>)? +)?\d\d:\d\d:\d\d(\.\d+)? \w+\("),
        "recorded without -ttt, so that no line has the date",
    ),
    (re.compile(r"(\d+(<.*?>)? +)?\w+\(.*\) += "), "recorded without -ttt, so that no line has a time"),
)
_UNNAMED = re.compile(r"\b(?:sendto|sendmsg|write|writev)\(\d+(?:<socket:\[\d+\]>)?,")


def with_recorded(files: Sequence[Path], result: Result, file: Path) -> Result:
    """The result, with the two writes of each stall; ``files`` are its capture.

    A traced run is never CLEAN: tracing slows a program, and may hide a stall. Raises NagleLabError if the file is
    not strace's, or was recorded with other options, at another time, or of other connections.
    """
    if file.is_fifo():
        raise NagleLabError(f"{file}: --strace reads a file several times: save it to one first")
    try:
        _check_recorded(file)
        trace = read_trace(file)
    except OSError as error:
        raise os_problem(error) from None
    _check_streams(file, trace)
    _check_time(file, trace, result)
    _check_connections(file, trace, result.connections)
    writes = writes_beside(files, result, trace, attached=False, why=_why_no_line)
    return replace(not_clean_if_traced(result), writes=writes)


def _why_no_line(call: Call) -> str:
    return f"{call.command or 'the program'}: the trace has no stack of such a call: record it with -k"


def _check_recorded(file: Path) -> None:
    lines = _lines(file, _LOOK)
    if any(map(_GOOD.match, lines)):
        return
    for pattern, how in _OTHERWISE:
        if any(map(pattern.match, lines)):
            raise NagleLabError(f"{file}: {how}: record it with {RECIPE}")
    raise NagleLabError(f"{file}: not written by strace: record it with {RECIPE}")


def _lines(file: Path, most: int) -> list[str]:
    with file.open("rb") as opened:
        raw = iter(lambda: opened.readline(_LONGEST), b"")
        return [line.decode(errors="replace").rstrip("\n") for line in islice(raw, most)]


def _check_streams(file: Path, trace: Trace) -> None:
    if any(stream.writes for streams in trace.streams.values() for stream in streams):
        return
    if not trace.streams and any(map(_UNNAMED.search, _lines(file, 10 * _LOOK))):
        raise NagleLabError(
            f"{file}: recorded without -yy, which says the addresses of sockets: record it with {RECIPE}"
        )
    raise NagleLabError(f"{file}: nothing in it writes to a TCP connection: trace the process that does, with -f")


def _check_time(file: Path, trace: Trace, result: Result) -> None:
    began = result.source.first_ns
    if began is None:
        return
    ended = began + round(result.source.duration_s * 1e9)
    if trace.began > ended or trace.ended < began:
        apart = (trace.began - ended if trace.began > ended else began - trace.ended) / 1e9
        when = "after the capture ended" if trace.began > ended else "before the capture began"
        raise NagleLabError(
            f"{file}: recorded at another time, {apart:,.0f} s {when}: use two files recorded together"
        )


def _check_connections(file: Path, trace: Trace, connections: Sequence[Connection]) -> None:
    if any(way in trace.streams for one in connections for way in one.sockets):
        return
    way = next(way for way, streams in trace.streams.items() if any(stream.writes for stream in streams))
    here, there = (f"{address}:{port}" for address, port in way)
    raise NagleLabError(
        f"{file}: of other connections: it has none of the capture's {len(connections)}, but {here} to {there}, for "
        "example: trace the process that holds, where no address is translated on the way"
    )
