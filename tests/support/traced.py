"""Programs that stall, run under `guard --trace`, and where their two writes are."""

import textwrap
from pathlib import Path
from typing import Any

from nagle_lab.diagnosis.result.writes import Writes
from nagle_lab.experiments.software.guarded import Run, Selection, guard
from nagle_lab.experiments.writes.traced import with_writes


def program(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(textwrap.dedent(text).strip() + "\n")
    return path


def traced(tmp_path: Path, command: list[str], **place: Any) -> Run:
    folder = tmp_path / "recorded"
    folder.mkdir()
    run = guard(command, folder, Selection(), **place)
    return with_writes(run, command, **place)


def writes_of(tmp_path: Path, command: list[str], **place: Any) -> Writes:
    run = traced(tmp_path, command, **place)
    assert run.writes, run.result.reason
    assert run.writes.problem == "" and run.writes.named == run.writes.stalls >= 15, run.writes
    return run.writes


def line(path: Path, text: str) -> int:
    return next(i for i, one in enumerate(path.read_text().splitlines(), 1) if text in one)


def lines(writes: Writes) -> list[tuple[int, str, str, int]]:
    """Of the most frequent pair: line, function, call and bytes of each."""
    group = writes.groups[0]
    ends = [(one.program, one) for one in (group.trigger, group.held)]
    return [(at.line, at.function, one.by or one.call, one.bytes) for at, one in ends if at]
