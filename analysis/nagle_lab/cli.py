"""The command line: nagle-lab run, list, analyze, show, verify."""

import io
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from nagle_lab import __version__, dissect
from nagle_lab.analysis import analyze
from nagle_lab.errors import Exit, NagleLabError
from nagle_lab.lab import record, scenarios
from nagle_lab.pair import match
from nagle_lab.reports import terminal
from nagle_lab.reports.terminal import printable
from nagle_lab.result import Result, Stall
from nagle_lab.runs import Run, is_run, judge, store
from nagle_lab.verdict import Verdict, exit_code

RUNS = Path(__file__).parents[2] / "captures" / "runs"


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="nagle-lab")
def cli() -> None:
    """Reproduce and diagnose TCP's Nagle × delayed-ACK stall.

    Exit codes: 0 as expected (or diagnosed, nothing expected), 1 the verdict contradicts the expectation,
    2 unusable input or set-up, 3 inconclusive.
    """


@cli.command("list")
def list_() -> Exit:
    """Name every scenario and variant."""
    table = Table(box=None, padding=(0, 2), pad_edge=False)
    for heading in ("scenario", "variant", "expected", "what it teaches"):
        table.add_column(heading, overflow="fold")
    for scenario in scenarios().values():
        for variant in scenario.variants.values():
            table.add_row(scenario.name, variant.name, variant.expected.verdict, variant.teaches)
    terminal.console().print(table)
    return Exit.OK


@cli.command()
@click.argument("scenario")
@click.argument("variant")
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="A parameter; else the environment's.")
@click.option("--runs", type=click.Path(path_type=Path), default=RUNS, help="Folder of the run folders.")
@click.option("--json", "as_json", is_flag=True, help="Print the run's result.json on stdout.")
def run(scenario: str, variant: str, settings: tuple[str, ...], runs: Path, as_json: bool) -> Exit:
    """Run one variant of a scenario, record both ends, analyse, and hold the verdict against the expected one."""
    known = scenarios()
    if scenario not in known:
        raise NagleLabError(f"no scenario {scenario!r}; there are: {', '.join(known)}")
    chosen = known[scenario]
    if variant not in chosen.variants:
        raise NagleLabError(f"no variant {variant!r} of {scenario}; there are: {', '.join(chosen.variants)}")
    screen = terminal.console(stderr=True)
    with screen.status("starting") as status:
        folder = record(chosen, chosen.variants[variant], _settings(settings), runs, _progress(screen, status.update))
        status.update("analysing")
        judged = judge(folder)
        store(judged)
    return _report(judged, as_json)


@cli.command("analyze")
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path, allow_dash=True), metavar="FILE…")
@click.option("--expect", type=click.Choice(["stall", "clean"]), help="Exit 1 when the verdict is another.")
@click.option("--json", "as_json", is_flag=True, help="Print the result on stdout, one line of JSON per FILE.")
@click.option("--rotated", is_flag=True, help="The FILEs are one capture, rotated (tcpdump -C, -G): oldest first.")
@click.option("--same-traffic", is_flag=True, help="Two FILEs of the same traffic: tell ACK delay and hold apart.")
def analyze_(paths: tuple[Path, ...], expect: str | None, as_json: bool, rotated: bool, same_traffic: bool) -> Exit:
    """Diagnose captures: pcap or pcapng files, run folders of the lab, or - for standard input.

    Several FILEs are several captures, unless they are --rotated.
    """
    expected = Verdict(expect.upper()) if expect else None
    captures = [paths] if rotated else [(path,) for path in paths]
    if same_traffic:
        if rotated or len(paths) != 2 or not all(path.is_file() for path in paths):
            raise NagleLabError("--same-traffic takes two capture files, one from each end")
        _show_pair(paths, as_json)
    return max((_analyze_or_tell(capture, expected, as_json) for capture in captures), key=_severity)


@cli.command()
@click.argument("path", type=click.Path(path_type=Path), metavar="FILE|RUN")
@click.option("--stall", "number", type=int, help="Which one, from 1 in order of the late ACK; else a typical one.")
@click.option("--json", "as_json", is_flag=True, help="Print the stall, or a run's result.json, on stdout.")
def show(path: Path, number: int | None, as_json: bool) -> Exit:
    """Show one stall of a capture with full detail of its three frames, or a stored run again.

    Of a run folder, --stall N shows a stall in the capture at the end that held.
    """
    if is_run(path):
        judged = judge(path)
        if number is None:
            return _report(judged, as_json)
        return _show_stall(judged.capture(judged.best), judged.results[judged.best], number, as_json)
    if path.is_dir():
        raise NagleLabError(f"{path}: not a run folder (no manifest.json); for a capture name its file")
    if str(path) == "-" or path.is_fifo():
        raise NagleLabError(f"{path}: show reads a capture twice: save it to a file first")
    return _show_stall(path, analyze(path), number, as_json)


@cli.command()
@click.argument("path", type=click.Path(path_type=Path), metavar="FILE")
def verify(path: Path) -> Exit:
    """Hold our packet table of a capture against tshark's, frame by frame, and say where they differ.

    Exit codes: 0 no difference but those by definition, 1 some, 2 unusable FILE or no tshark.
    """
    screen = terminal.console(stderr=True)
    with screen.status("comparing with tshark"):
        found = dissect.verify(path)
    terminal.show_comparison(path, found, terminal.console())
    return Exit.OK if found.equal else Exit.CONTRADICTED


def _show_stall(path: Path, result: Result, number: int | None, as_json: bool) -> Exit:
    number, stall = _choose(path, result, number)
    if as_json:
        click.echo(json.dumps(asdict(stall), separators=(",", ":")))
    else:
        terminal.show_stall(path, result, stall, number, terminal.console())
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


def _show_pair(paths: tuple[Path, ...], as_json: bool) -> None:
    pair = match(*(analyze(path) for path in paths))
    if as_json:
        click.echo(pair.to_json(), nl=False)
    else:
        terminal.show_pair(pair, terminal.console())


def _analyze_or_tell(paths: Sequence[Path], expected: Verdict | None, as_json: bool) -> Exit:
    """Of several captures, one that is unusable costs only itself."""
    try:
        return _analyze_one(paths, expected, as_json)
    except NagleLabError as error:
        _tell(str(error))
        return error.exit_code


def _analyze_one(paths: Sequence[Path], expected: Verdict | None, as_json: bool) -> Exit:
    if is_run(paths[0]) and len(paths) == 1:
        judged = judge(paths[0])
        code = _report(judged, as_json)
        return code if expected is None else exit_code(judged.verdict, expected)
    result = analyze([str(path) for path in paths])
    if as_json:
        for part in result.json_parts():
            sys.stdout.write(part)
    else:
        again = all(path.is_file() for path in paths)  # what a pipe brought is gone
        terminal.show_capture(paths if again else [], result, terminal.console())
    verdict = Verdict(result.verdict)
    code = exit_code(verdict, expected)
    if code is Exit.CONTRADICTED and not as_json:
        _tell(f"{' '.join(map(str, paths))}: expected {expected}, found {verdict}")
    return code


def _report(judged: Run, as_json: bool) -> Exit:
    if as_json:
        click.echo(judged.to_json(), nl=False)
    else:
        terminal.show_run(judged, terminal.console())
    code = judged.exit_code()
    if code is not Exit.OK:
        why = "; ".join(judged.contradictions) or judged.reason
        _tell(f"{why}; captures in {terminal.shown_path(judged.folder)}")
    return code


def _severity(code: Exit) -> int:
    """Which exit code speaks for several captures: unusable before contradicted before inconclusive."""
    return [Exit.OK, Exit.INCONCLUSIVE, Exit.CONTRADICTED, Exit.UNUSABLE].index(code)


def _tell(message: str) -> None:
    """One line on stderr, whatever is in it."""
    click.echo(f"nagle-lab: {printable(message)}", err=True)


def _settings(pairs: tuple[str, ...]) -> dict[str, str]:
    settings = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise NagleLabError(f"--set {pair}: not NAME=VALUE")
        settings[name] = value
    return settings


def _progress(screen: Console, update: Callable[[str], None]) -> Callable[[str], None]:
    """On a terminal the current stage, overwritten; elsewhere (a CI log) a line per stage."""
    return update if screen.is_terminal else (lambda stage: screen.print(f"… {stage}"))


def main() -> None:
    """Entry point: every way to end has its exit code and at most one line on stderr."""
    if isinstance(sys.stdout, io.TextIOWrapper):  # bytes in a file name that are no text: as JSON writes them, too
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        code = cli(standalone_mode=False)
        sys.stdout.flush()
    except NagleLabError as e:
        _tell(str(e))
        code = e.exit_code
    except click.ClickException as e:
        _tell(f"{e.format_message()} (try nagle-lab --help)")
        code = Exit.UNUSABLE
    except (KeyboardInterrupt, click.Abort):
        click.echo("nagle-lab: interrupted", err=True)
        code = Exit.INTERRUPTED
    except BrokenPipeError:  # the reader of our output went away
        sys.stderr.close()
        code = Exit.OK
    except OSError as e:  # a path that may not even be looked at, a full disk
        _tell(f"{e.filename or 'output'}: {e.strerror}: check the path, its permissions and the room on the disk")
        code = Exit.UNUSABLE
    sys.exit(int(code or 0))
