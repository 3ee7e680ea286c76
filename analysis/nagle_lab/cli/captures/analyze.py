"""nagle-lab analyze: the diagnosis of any capture."""

import ctypes
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from threading import Thread

from nagle_lab.capture.stored import STDIN
from nagle_lab.capture.take import oldest_first
from nagle_lab.cli.captures.analyze_options import AnalyzeOptions, CtrlC
from nagle_lab.cli.shared.exports import Exports
from nagle_lab.diagnosis.analysis import Analysis, analyze_same_traffic
from nagle_lab.diagnosis.result.verdict import Verdict
from nagle_lab.errors import Exit, NagleLabError, os_problem, tell, worst
from nagle_lab.evidence.file_names import distinct_names
from nagle_lab.tcp.arrays import numpy

# ruff: noqa: PLC0415 (imports inside functions: a capture must not wait for what only runs and pairs need, and while
# a large one is read, the rest is imported)


def command(
    paths: Sequence[Path],
    ports: Sequence[int],
    expect: str | None,
    as_json: bool,
    rotated: bool,
    same_traffic: bool,
    strace: Path | None,
    **files: Path | None,
) -> Exit:
    """Diagnose captures, print each, and write the requested files; the worst capture decides the exit code."""
    _keep_freed_memory()
    if strace and (same_traffic or (len(paths) > 1 and not rotated) or any(map(_is_no_file, paths))):
        raise NagleLabError("--strace takes one capture file, or with --rotated those of one capture")
    expected = Verdict(expect.upper()) if expect else None
    captures = [oldest_first(paths)] if rotated else [[path] for path in paths]
    if same_traffic and (rotated or len(paths) != 2 or any(map(_is_no_file, paths))):
        raise NagleLabError(
            "--same-traffic takes two capture files, one from each end: no standard input, run folder or --rotated; "
            "join rotated files first: mergecap -w WHOLE.pcapng FILE…"
        )
    if ports and (same_traffic or any(path.is_dir() for path in paths)):
        raise NagleLabError("--port takes captures: no run folder, and not --same-traffic")
    reads = [*paths, *([strace] if strace else [])]
    with Exports(files, reads=reads) as exports, CtrlC(STDIN in map(str, paths)) as ctrl_c:
        names = distinct_names([path for capture in captures for path in capture])
        asked = AnalyzeOptions(expected, as_json, frozenset(ports), strace, exports, ctrl_c)
        if same_traffic:
            return _analyze_same_traffic(paths, [names[path] for path in paths], asked)
        return worst([_analyze_or_tell(each, " ".join(names[path] for path in each), asked) for each in captures])


def _is_no_file(path: Path) -> bool:
    """Whether an input is a run folder or standard input; a missing input is reported when it is opened."""
    return path.is_dir() or str(path) == STDIN


# Parameters of mallopt(3), and values.
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _NEVER, _MORE_THAN_A_TABLE = -1, -3, (1 << 31) - 1, 16 << 20


def _keep_freed_memory() -> None:
    """Make glibc reuse a window's memory: what was given back comes back page by page, zeroed."""
    if mallopt := getattr(ctypes.CDLL(None), "mallopt", None):
        mallopt(_MMAP_THRESHOLD, _MORE_THAN_A_TABLE)
        mallopt(_TRIM_THRESHOLD, _NEVER)


def _analyze_same_traffic(paths: Sequence[Path], names: Sequence[str], asked: AnalyzeOptions) -> Exit:
    """Diagnose two captures together: one answer, with the details of the nearer capture; as JSON both."""
    from nagle_lab.cli.captures.outcome import tell_contradiction, tell_outcome, write_both
    from nagle_lab.reports.words.pair_text import pair_facts

    sha256 = asked.as_json or bool(asked.exports.files)
    pair = analyze_same_traffic(*paths, exchanges=asked.exports.with_exchanges, sha256=sha256)
    shown = pair.called(*names)
    if asked.as_json:
        with asked.exports.showing():
            write_both(paths, shown)
    at = [result is pair.nearer for result in pair.results].index(True)
    title, about = " and ".join(names), pair_facts(shown)
    tell_outcome([paths[at]], names[at], pair.results[at], asked, title=title, about=about, is_printed=asked.as_json)
    return tell_contradiction(paths, pair.verdict, asked)


def _analyze_or_tell(paths: Sequence[Path], name: str, asked: AnalyzeOptions) -> Exit:
    """Diagnose one of several captures; an unusable one is reported, and the others continue."""
    try:
        if len(paths) == 1 and paths[0].is_dir():
            from nagle_lab.cli.shared.report import report
            from nagle_lab.experiments.opened import judged
            from nagle_lab.runs.run import is_run

            if is_run(paths[0]):
                return report(judged(paths[0]), asked.as_json, asked.exports, asked.expected)
        return _analyze(paths, name, asked)
    except BrokenPipeError:
        raise
    except OSError as refused:
        error = os_problem(refused)
    except NagleLabError as unusable:
        error = unusable
    tell(str(error))
    asked.exports.unusable(name, error)
    return error.exit_code


def _analyze(paths: Sequence[Path], name: str, asked: AnalyzeOptions) -> Exit:
    """``name`` is the name of the capture among the others, without their common part."""
    sha256 = asked.as_json or bool(asked.exports.files)
    only = (lambda _, server: server[1] in asked.ports) if asked.ports else None
    files, with_exchanges = [str(path) for path in paths], asked.exports.with_exchanges
    analysis = Analysis(files, exchanges=with_exchanges, sha256=sha256, only=only)
    _take_all(analysis)
    if asked.ctrl_c.pressed:
        analysis.note_interrupted()
    from nagle_lab.cli.captures.outcome import judged_part, tell_contradiction, tell_outcome

    result = analysis.result()
    tell_outcome(paths, name, result, asked, about=judged_part(result, asked.ports))
    return tell_contradiction(paths, result.verdict, asked)


_SHORTLY = 0.0001  # s


def _take_all(analysis: Analysis) -> None:
    """Let the analysis take the whole capture; meanwhile, if it is large, import the modules that judge and print."""
    importing = Thread(target=_import_the_rest)
    for _ in analysis:
        if importing.ident is None and analysis.is_large:
            with suppress(RuntimeError):  # there are no threads, as in a browser: then imports come afterwards
                importing.start()
    if importing.ident is not None:
        importing.join()


def _import_the_rest() -> None:
    """Runs beside the compiled engine, which has released the GIL and must not wait long to get it back."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(_SHORTLY)
    try:
        numpy()
        for name in ("diagnosis.findings", "diagnosis.summary", "cli.captures.outcome"):
            import_module(f"nagle_lab.{name}")
    finally:
        sys.setswitchinterval(interval)
