"""What comes of a capture once it is judged: the screen or the JSON, the files asked for, and the exit code."""

import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from nagle_lab.cli.captures.analyze_options import AnalyzeOptions
from nagle_lab.diagnosis.result.result import Result
from nagle_lab.diagnosis.result.verdict import Verdict, exit_code
from nagle_lab.errors import Exit, tell
from nagle_lab.evidence.examples import examples, written_ladder
from nagle_lab.evidence.process_comments import processes_of
from nagle_lab.reports.screens.terminal import console, show_capture
from nagle_lab.reports.words.next_steps import commands, ends


def tell_outcome(
    paths: Sequence[Path],
    name: str,
    result: Result,
    asked: AnalyzeOptions,
    *,
    title: str = "",
    about: Sequence[tuple[str, str]] | None = (),
) -> None:
    """Print the ``result`` of a capture, and hand it to the files that are to be written; see ``_analyze``.

    ``title`` and ``about``: see ``show_capture``; where ``about`` is None it has no screen, for another one does.
    """
    exports = asked.exports
    readable = all(path.is_file() for path in paths)  # what a pipe brought is gone
    if readable and (processes := processes_of(paths, result)):
        result = replace(result, processes=processes)
    if asked.strace:
        from nagle_lab.experiments.writes.recorded import with_recorded  # noqa: PLC0415 - few need it

        result = with_recorded(paths, result, asked.strace)
    shown = result.of_file(name)
    to_draw = paths if readable and (exports.with_packets or not asked.as_json) else []
    packets = examples(to_draw, result, typical_only=exports.typical_only)
    if to_draw and result.writes:
        packets = dataclasses.replace(packets, written=written_ladder(to_draw, result, result.writes))
    if asked.as_json:
        for part in shown.json_parts():
            sys.stdout.write(part)
    elif about is not None:
        ladder, to_paste = packets.written or packets.typical, commands(result, packets.software)
        about = [*about, *ends(result, packets.software)]
        show_capture(shown, ladder, console(), title=title, about=about, to_paste=to_paste, writes=result.writes)
    code = exit_code(result.verdict, asked.expected)
    exports.capture(shown, packets, code, asked.expected, result.writes, below=Path.cwd() if asked.strace else None)


def tell_contradiction(paths: Sequence[Path], verdict: Verdict, asked: AnalyzeOptions) -> Exit:
    """The exit code of the verdict on these captures; says so where another one was expected."""
    code = exit_code(verdict, asked.expected)
    if code is Exit.CONTRADICTED and not asked.as_json:
        tell(f"{' '.join(map(str, paths))}: expected {asked.expected}, found {verdict}")
    return code
