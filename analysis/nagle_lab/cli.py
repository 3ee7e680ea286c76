"""The command line: nagle-lab run, list, analyze, show."""

import sys
from collections.abc import Callable
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from nagle_lab import __version__
from nagle_lab.analysis import analyze
from nagle_lab.errors import Exit, NagleLabError
from nagle_lab.lab import record, scenarios
from nagle_lab.reports import terminal
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
def analyze_(paths: tuple[Path, ...], expect: str | None, as_json: bool) -> Exit:
    """Diagnose captures: pcap or pcapng files, run folders of the lab, or - for standard input."""
    expected = Verdict(expect.upper()) if expect else None
    return max((_analyze_one(path, expected, as_json) for path in paths), key=_severity)


@cli.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print the run's result.json on stdout.")
def show(folder: Path, as_json: bool) -> Exit:
    """Show a stored run again."""
    if not is_run(folder):
        raise NagleLabError(f"{folder}: not a run folder (no manifest.json); for a capture use nagle-lab analyze")
    return _report(judge(folder), as_json)


def _analyze_one(path: Path, expected: Verdict | None, as_json: bool) -> Exit:
    if is_run(path):
        judged = judge(path)
        code = _report(judged, as_json)
        return code if expected is None else exit_code(judged.verdict, expected)
    result = analyze("-" if str(path) == "-" else path)
    verdict = Verdict(result.verdict)
    if as_json:
        for part in result.json_parts():
            sys.stdout.write(part)
    else:
        terminal.show_capture(None if str(path) == "-" else path, result, terminal.console())
    code = exit_code(verdict, expected)
    if code is Exit.CONTRADICTED and not as_json:
        click.echo(f"{path}: expected {expected}, found {verdict}", err=True)
    return code


def _report(judged: Run, as_json: bool) -> Exit:
    if as_json:
        click.echo(judged.to_json(), nl=False)
    else:
        terminal.show_run(judged, terminal.console())
    code = judged.exit_code()
    if code is not Exit.OK:
        why = "; ".join(judged.contradictions) or judged.reason
        click.echo(f"nagle-lab: {why}; captures in {terminal.shown_path(judged.folder)}", err=True)
    return code


def _severity(code: Exit) -> int:
    """Which exit code speaks for several captures: unusable before contradicted before inconclusive."""
    return [Exit.OK, Exit.INCONCLUSIVE, Exit.CONTRADICTED, Exit.UNUSABLE].index(code)


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
    try:
        code = cli(standalone_mode=False)
        sys.stdout.flush()
    except NagleLabError as e:
        click.echo(f"nagle-lab: {e}", err=True)
        code = e.exit_code
    except click.ClickException as e:
        click.echo(f"nagle-lab: {e.format_message()} (try nagle-lab --help)", err=True)
        code = Exit.UNUSABLE
    except (KeyboardInterrupt, click.Abort):
        click.echo("nagle-lab: interrupted", err=True)
        code = Exit.INTERRUPTED
    except BrokenPipeError:  # the reader of our output went away
        sys.stderr.close()
        code = Exit.OK
    sys.exit(int(code or 0))
