"""The command line: its commands, their options, and how every one of them ends.

Each command imports what it does when it is called: ``--version`` and ``--help`` need no NumPy, and diagnosing a
capture needs no lab. What they do is in ``commands``.
"""

import gc
import io
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from nagle_lab import __version__
from nagle_lab.errors import Exit, NagleLabError, tell

# ruff: noqa: PLC0415  (imports inside functions: on purpose, and only in this module)

RUNS = Path(__file__).parents[3] / "captures" / "runs"
_PATH = click.Path(path_type=Path)
_FILE = click.Path(path_type=Path, dir_okay=False)


def runs_option(folder: Path = RUNS) -> Callable[[Callable[..., Exit]], Callable[..., Exit]]:
    """Where run folders go; runs with sizes of their own go elsewhere, so that latest-… stays what it says."""
    return click.option("--runs", type=_PATH, default=folder, help="Folder of the run folders.")


set_option = click.option(
    "--set", "settings", multiple=True, metavar="NAME=VALUE", help="A parameter; else the environment's."
)
junit_option = click.option("--junit", type=_FILE, metavar="F", help="Write JUnit XML to F, for CI.")
markdown_option = click.option("--markdown", type=_FILE, metavar="F", help="Write a summary in Markdown to F.")
html_option = click.option("--html", type=_FILE, metavar="F", help="Write a report to F: one page with its plots.")


class NoReaderError(Exception):
    """A BrokenPipeError, of which click would make exit code 1: that is a verdict here."""


class _Commands(click.Group):
    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            raise NoReaderError from error


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="nagle-lab")
def cli() -> None:
    """Reproduce and diagnose TCP's Nagle × delayed-ACK stall.

    Exit codes: 0 as expected (or diagnosed, nothing expected), 1 the verdict contradicts the expectation,
    2 unusable input or set-up, 3 inconclusive.
    """


@cli.command("list")
@click.argument("scenario", required=False)
def list_(scenario: str | None) -> Exit:
    """Name every scenario and its variants; of one SCENARIO also its parameters and all that its variants teach."""
    from nagle_lab.cli.scenarios import list_scenarios

    return list_scenarios(scenario)


@cli.command("run")
@click.argument("scenario")
@click.argument("variant")
@set_option
@runs_option()
@click.option("--json", "as_json", is_flag=True, help="Print the run's result.json on stdout.")
@junit_option
@markdown_option
@html_option
def run_(
    scenario: str,
    variant: str,
    *,
    settings: tuple[str, ...],
    runs: Path,
    as_json: bool,
    **files: Path | None,
) -> Exit:
    """Run one variant of a scenario, record its captures, analyse, and hold the verdict against the expected one."""
    from nagle_lab.cli.exports import Wanted
    from nagle_lab.cli.run import run

    return run(scenario, variant, settings, runs, as_json, files=Wanted(**files))


@cli.command("matrix")
@click.argument("scenarios", nargs=-1, metavar="[SCENARIO]…")
@click.option("--repeat", type=click.IntRange(1), default=1, help="Run it all so often; figures are medians then.")
@click.option("--json", "json_file", type=_PATH, metavar="FILE", help="Write every run and figure to FILE.")
@click.option("--markdown", "markdown_file", type=_PATH, metavar="FILE", help="Write the tables to FILE.")
@junit_option
@html_option
@runs_option()
def matrix_(
    scenarios: tuple[str, ...],
    repeat: int,
    json_file: Path | None,
    markdown_file: Path | None,
    *,
    junit: Path | None,
    html: Path | None,
    runs: Path,
) -> Exit:
    """Run every variant of the SCENARIOs, or of all there are, and print a table of each.

    Exit codes: 0 all as expected, 1 a verdict contradicts, 2 a run failed or is INVALID, 3 some are inconclusive.
    """
    from nagle_lab.cli.matrix import run_matrix

    return run_matrix(scenarios, repeat, json_file, markdown_file, runs, junit_file=junit, html_file=html)


@cli.command("sweep")
@click.argument("scenario")
@click.argument("span", required=False, metavar="[NAME=LO..HI]")
@click.option("--series", "only", multiple=True, metavar="NAME", help="Only this one of the scenario's series.")
@set_option
@runs_option(RUNS / "sweep")
@click.option("--json", "as_json", is_flag=True, help="Print every run on stdout, as JSON.")
@html_option
def sweep_(
    scenario: str,
    span: str | None,
    *,
    only: tuple[str, ...],
    settings: tuple[str, ...],
    runs: Path,
    as_json: bool,
    html: Path | None,
) -> Exit:
    """Run a SCENARIO with its size doubling from LO to HI, and locate exactly where it begins and ends to stall.

    NAME is `size`, which stands for the parameter that the scenario sweeps, or another of its whole-number
    parameters, in upper or lower case. Exit codes: 0, 2 a run failed or is INVALID, 3 a run is inconclusive.
    """
    from nagle_lab.cli.sweep import run_sweep

    return run_sweep(scenario, span, only=only, settings=settings, as_json=as_json, runs=runs, html_file=html)


@cli.command("analyze")
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path, allow_dash=True), metavar="FILE…")
@click.option("--expect", type=click.Choice(["stall", "clean"]), help="Exit 1 when the verdict is another.")
@click.option("--json", "as_json", is_flag=True, help="Print the result on stdout, one line of JSON per FILE.")
@click.option("--rotated", is_flag=True, help="The FILEs are one capture, rotated (tcpdump -C, -G): oldest first.")
@click.option("--same-traffic", is_flag=True, help="Two FILEs of the same traffic: tell ACK delay and hold apart.")
@junit_option
@markdown_option
@html_option
@click.option("--csv", type=_FILE, metavar="F", help="Write every stall to F, connections to NAME.connections.csv.")
@click.option("--parquet", type=_FILE, metavar="F", help="The same as Parquet, where pyarrow is installed.")
def analyze_(
    paths: tuple[Path, ...],
    expect: str | None,
    as_json: bool,
    rotated: bool,
    same_traffic: bool,
    **files: Path | None,
) -> Exit:
    """Diagnose captures: pcap or pcapng files, run folders of the lab, or - for standard input.

    Several FILEs are several captures, unless they are --rotated.
    """
    from nagle_lab.cli.analyze import analyze_files
    from nagle_lab.cli.exports import Wanted

    return analyze_files(paths, expect, as_json, rotated=rotated, same_traffic=same_traffic, wanted=Wanted(**files))


@cli.command("show")
@click.argument("path", type=_PATH, metavar="FILE|RUN")
@click.option("--stall", "number", type=int, help="Which one, from 1 in order of the late ACK; else a typical one.")
@click.option("--json", "as_json", is_flag=True, help="Print the stall, or a run's result.json, on stdout.")
@html_option
def show_(path: Path, number: int | None, as_json: bool, html: Path | None) -> Exit:
    """Show one stall of a capture with full detail of its three frames, or a stored run again.

    Of a run folder, --stall N shows a stall in the capture at the end that held.
    """
    from nagle_lab.cli.show import show

    return show(path, number, as_json, html)


@cli.command("compare")
@click.argument("paths", nargs=-1, required=True, type=_PATH, metavar="A B…")
@click.option("--json", "as_json", is_flag=True, help="Print the comparison on stdout, as JSON.")
@markdown_option
@html_option
def compare_(paths: tuple[Path, ...], as_json: bool, markdown: Path | None, html: Path | None) -> Exit:
    """Hold runs or captures side by side: verdicts, figures, the gain over A, and what differs between them.

    Each is a run folder or a capture file. Exit codes: 0, 2 one is INVALID or unusable, 3 one is inconclusive.
    """
    from nagle_lab.cli.compare import compare_paths

    return compare_paths(paths, as_json, markdown, html)


@cli.command("annotate")
@click.argument("paths", nargs=-1, required=True, type=_PATH, metavar="FILE|RUN")
@click.option("-o", "--output", "out", type=_PATH, metavar="OUT.pcapng", help="Where to write it.")
@click.option("--force", is_flag=True, help="Write over OUT where it exists.")
@click.option("--rotated", is_flag=True, help="Several FILEs are one capture, rotated: oldest first.")
@click.option("--filter", "with_filter", is_flag=True, help="Print a display filter of its frames; with -o, for OUT.")
def annotate_(paths: tuple[Path, ...], out: Path | None, force: bool, rotated: bool, with_filter: bool) -> Exit:
    """Write a capture with a comment on every trigger, late ACK and release, and the verdict on the first frame.

    Wireshark then shows the proof. Of a run folder it is the capture nearest the held end.
    """
    from nagle_lab.cli.annotate import annotate_capture

    return annotate_capture(paths, out, force, rotated, with_filter)


@cli.command("verify")
@click.argument("path", type=_PATH, metavar="FILE")
def verify_(path: Path) -> Exit:
    """Hold our packet table of a capture against tshark's, frame by frame, and say where they differ.

    Exit codes: 0 no difference but those by definition, 1 some, 2 unusable FILE or no tshark.
    """
    from nagle_lab.cli.verify import verify

    return verify(path)


@cli.command("demo")
@click.option("--scenario", "parts", multiple=True, metavar="NAME", help="Only this one; `mysteries`: the captures.")
@click.option("--answers", metavar="FILE|good", help="Ask nobody: an answer per line, or the right ones.")
@click.option("--without-lab", is_flag=True, help="Run nothing: show the committed runs, where there is no Docker.")
@click.option("--outline", is_flag=True, help="Print the questions, the right answers and the minutes, and end.")
@runs_option(RUNS / "demo")
def demo_(parts: tuple[str, ...], answers: str | None, without_lab: bool, outline: bool, runs: Path) -> Exit:
    """Walk through the incidents in a terminal: predict, run, see what was on the wire; then captures to diagnose.

    Whatever is answered, the exit code is that of the runs: 0 all as expected, 1 one contradicts, 2 one failed or is
    INVALID, 3 one is inconclusive.
    """
    from nagle_lab.cli.demo import demo

    return demo(parts, answers, without_lab, outline, runs)


def main(command: click.Command = cli) -> None:
    """Entry point of ``command``: every way to end has its exit code and at most one line on stderr."""
    gc.set_threshold(50_000)  # what is imported would be gone through for garbage a hundred times
    if isinstance(sys.stdout, io.TextIOWrapper):  # bytes in a file name that are no text: as JSON writes them, too
        sys.stdout.reconfigure(errors="backslashreplace")
    # NumPy's linear algebra, which nothing here uses, would start a thread for every core.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    try:
        code = command(standalone_mode=False)
        sys.stdout.flush()
    except NagleLabError as e:
        tell(str(e))
        code = e.exit_code
    except click.ClickException as e:
        tell(f"{e.format_message()} (try nagle-lab --help)")
        code = Exit.UNUSABLE
    except (KeyboardInterrupt, click.Abort):
        tell("interrupted")
        code = Exit.INTERRUPTED
    except (NoReaderError, BrokenPipeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is still to be flushed
        code = Exit.NO_READER
    except OSError as e:  # a path that may not even be looked at, a full disk
        tell(f"{e.filename or 'output'}: {e.strerror}: check the path, its permissions and the room on the disk")
        code = Exit.UNUSABLE
    gc.freeze()  # and once more at the end, when all of it goes anyway
    sys.exit(int(code or 0))
