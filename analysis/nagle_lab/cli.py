"""The command line: its commands, their options, and how every one of them ends.

Each command imports what it does when it is called: ``--version`` and ``--help`` need no NumPy, and diagnosing a
capture needs no lab. What they do is in ``commands``.
"""

import io
import os
import sys
from pathlib import Path

import click

from nagle_lab import __version__
from nagle_lab.errors import Exit, NagleLabError, tell

# ruff: noqa: PLC0415  (imports inside functions: on purpose, and only in this module)

RUNS = Path(__file__).parents[2] / "captures" / "runs"
_PATH = click.Path(path_type=Path)

runs_option = click.option("--runs", type=_PATH, default=RUNS, help="Folder of the run folders.")
set_option = click.option(
    "--set", "settings", multiple=True, metavar="NAME=VALUE", help="A parameter; else the environment's."
)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
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
    from nagle_lab.commands.scenarios import list_scenarios

    return list_scenarios(scenario)


@cli.command("run")
@click.argument("scenario")
@click.argument("variant")
@set_option
@runs_option
@click.option("--json", "as_json", is_flag=True, help="Print the run's result.json on stdout.")
def run_(scenario: str, variant: str, settings: tuple[str, ...], runs: Path, as_json: bool) -> Exit:
    """Run one variant of a scenario, record its captures, analyse, and hold the verdict against the expected one."""
    from nagle_lab.commands.run import run

    return run(scenario, variant, settings, runs, as_json)


@cli.command("matrix")
@click.argument("scenarios", nargs=-1, metavar="[SCENARIO]…")
@click.option("--repeat", type=click.IntRange(1), default=1, help="Run it all so often; figures are medians then.")
@click.option("--json", "json_file", type=_PATH, metavar="FILE", help="Write every run and figure to FILE.")
@click.option("--markdown", "markdown_file", type=_PATH, metavar="FILE", help="Write the tables to FILE.")
@runs_option
def matrix_(
    scenarios: tuple[str, ...], repeat: int, json_file: Path | None, markdown_file: Path | None, runs: Path
) -> Exit:
    """Run every variant of the SCENARIOs, or of all there are, and print a table of each.

    Exit codes: 0 all as expected, 1 a verdict contradicts, 2 a run failed or is INVALID, 3 some are inconclusive.
    """
    from nagle_lab.commands.matrix import run_matrix

    return run_matrix(scenarios, repeat, json_file, markdown_file, runs)


@cli.command("sweep")
@click.argument("scenario")
@click.argument("span", required=False, metavar="[NAME=LO..HI]")
@click.option("--series", "only", multiple=True, metavar="NAME", help="Only this one of the scenario's series.")
@set_option
@runs_option
@click.option("--json", "as_json", is_flag=True, help="Print every run on stdout, as JSON.")
def sweep_(
    scenario: str, span: str | None, *, only: tuple[str, ...], settings: tuple[str, ...], runs: Path, as_json: bool
) -> Exit:
    """Run a SCENARIO with its size doubling from LO to HI, and locate exactly where it begins and ends to stall.

    NAME is `size`, which stands for the parameter that the scenario sweeps, or another of its whole-number
    parameters, in upper or lower case. Exit codes: 0, 2 a run failed or is INVALID, 3 a run is inconclusive.
    """
    from nagle_lab.commands.sweep import run_sweep

    return run_sweep(scenario, span, only=only, settings=settings, as_json=as_json, runs=runs)


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
    from nagle_lab.commands.analyze import analyze_files

    return analyze_files(paths, expect, as_json, rotated, same_traffic)


@cli.command("show")
@click.argument("path", type=_PATH, metavar="FILE|RUN")
@click.option("--stall", "number", type=int, help="Which one, from 1 in order of the late ACK; else a typical one.")
@click.option("--json", "as_json", is_flag=True, help="Print the stall, or a run's result.json, on stdout.")
def show_(path: Path, number: int | None, as_json: bool) -> Exit:
    """Show one stall of a capture with full detail of its three frames, or a stored run again.

    Of a run folder, --stall N shows a stall in the capture at the end that held.
    """
    from nagle_lab.commands.show import show

    return show(path, number, as_json)


@cli.command("verify")
@click.argument("path", type=_PATH, metavar="FILE")
def verify_(path: Path) -> Exit:
    """Hold our packet table of a capture against tshark's, frame by frame, and say where they differ.

    Exit codes: 0 no difference but those by definition, 1 some, 2 unusable FILE or no tshark.
    """
    from nagle_lab.commands.verify import verify

    return verify(path)


def main() -> None:
    """Entry point: every way to end has its exit code and at most one line on stderr."""
    if isinstance(sys.stdout, io.TextIOWrapper):  # bytes in a file name that are no text: as JSON writes them, too
        sys.stdout.reconfigure(errors="backslashreplace")
    # NumPy's linear algebra, which nothing here uses, would start a thread for every core.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    try:
        code = cli(standalone_mode=False)
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
    except BrokenPipeError:  # the reader of our output went away
        sys.stderr.close()
        code = Exit.OK
    except OSError as e:  # a path that may not even be looked at, a full disk
        tell(f"{e.filename or 'output'}: {e.strerror}: check the path, its permissions and the room on the disk")
        code = Exit.UNUSABLE
    sys.exit(int(code or 0))
