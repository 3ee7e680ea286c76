"""The command line: its commands, their options, and how every one of them ends.

What each command does is in the module of its name, imported when it is called: ``--help`` imports none of them, and
diagnosing a capture needs no lab.
"""

import gc
import io
import os
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from nagle_lab import __version__
from nagle_lab.errors import Exit, NagleLabError, tell

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


def _command(name: str, options: dict[str, Any]) -> Exit:
    """Call a command by the names of its options; its module is imported only now."""
    code: Exit = import_module(f"nagle_lab.cli.{name}").command(**options)
    return code


@cli.command("list")
@click.argument("scenario", required=False)
def list_(**options: Any) -> Exit:
    """Name every scenario and its variants; of one SCENARIO also its parameters and all that its variants teach."""
    return _command("list", options)


@cli.command("run")
@click.argument("scenario")
@click.argument("variant")
@set_option
@runs_option()
@click.option("--json", "as_json", is_flag=True, help="Print the run's result.json on stdout.")
@junit_option
@markdown_option
@html_option
def run_(**options: Any) -> Exit:
    """Run one variant of a scenario, record its captures, analyse, and hold the verdict against the expected one."""
    return _command("run", options)


@cli.command("matrix")
@click.argument("scenarios", nargs=-1, metavar="[SCENARIO]…")
@click.option("--repeat", type=click.IntRange(1), default=1, help="Run it all so often; figures are medians then.")
@click.option("--json", type=_PATH, metavar="FILE", help="Write every run and figure to FILE.")
@click.option("--markdown", type=_PATH, metavar="FILE", help="Write the tables to FILE.")
@junit_option
@html_option
@runs_option()
def matrix_(**options: Any) -> Exit:
    """Run every variant of the SCENARIOs, or of all there are, and print a table of each.

    Exit codes: 0 all as expected, 1 a verdict contradicts, 2 a run failed or is INVALID, 3 some are inconclusive.
    """
    return _command("matrix", options)


@cli.command("sweep")
@click.argument("scenario")
@click.argument("span", required=False, metavar="[NAME=LO..HI]")
@click.option("--series", "only", multiple=True, metavar="NAME", help="Only this one of the scenario's series.")
@set_option
@runs_option(RUNS / "sweep")
@click.option("--json", "as_json", is_flag=True, help="Print every run on stdout, as JSON.")
@html_option
def sweep_(**options: Any) -> Exit:
    """Run a SCENARIO with its size doubling from LO to HI, and locate exactly where it begins and ends to stall.

    NAME is `size`, which stands for the parameter that the scenario sweeps, or another of its whole-number
    parameters, in upper or lower case. Exit codes: 0, 2 a run failed or is INVALID, 3 a run is inconclusive.
    """
    return _command("sweep", options)


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
def analyze_(**options: Any) -> Exit:
    """Diagnose captures: pcap or pcapng files, run folders of the lab, or - for standard input.

    Several FILEs are several captures, unless they are --rotated.
    """
    return _command("analyze", options)


@cli.command("guard", context_settings={"allow_interspersed_args": False})
@click.argument("command_line", nargs=-1, type=click.UNPROCESSED, metavar="[--] COMMAND…")
@click.option(
    "--port", "ports", multiple=True, type=click.IntRange(1, 65535), help="Judge only connections to it. Repeatable."
)
@click.option(
    "--allow",
    "allowed",
    multiple=True,
    metavar="IP:PORT",
    help="Do not judge this server; IP may be left out.",
)
@click.option(
    "--expect", type=click.Choice(["clean", "stall"]), default="clean", help="Exit 0 on it, 1 on the other."
)
@click.option(
    "--both-sides", is_flag=True, help="Unless it stalls, run it without TCP_NODELAY, too; say what protects it."
)
@click.option(
    "--trace", is_flag=True, help="If it stalls, run it under strace, too; name the two writes of each stall."
)
@click.option("--time-limit", "limit", metavar="TIME", help="End COMMAND after 90s, 2m or 1h, with exit code 124.")
@click.option("--network", is_flag=True, help="Let COMMAND reach the network, by pasta; not as root.")
@click.option("--pid", type=click.IntRange(1), help="Record the network namespace of a running process.")
@click.option("--container", metavar="NAME", help="Record a container, by a sidecar in its network namespace.")
@click.option("--compose-service", "service", metavar="S", help="The same, of a service of Docker Compose.")
@click.option("--interface", metavar="IF", help="Record an interface of this machine; with --port, that alone.")
@click.option("--seconds", type=click.FloatRange(0, min_open=True), help="Record so long; without it, until Ctrl-C.")
@click.option("--keep", type=_PATH, metavar="DIR", help="Keep capture and guard.json in DIR.")
@click.option("--json", type=_FILE, metavar="F", help="Write verdict, run and result to F, as JSON.")
@junit_option
@markdown_option
@html_option
def guard_(**options: Any) -> Exit:
    """Run COMMAND in a network namespace of its own, record every TCP segment on its loopback, and judge.

    COMMAND is a program or a test suite that makes TCP connections to itself. It needs no root where users may make
    namespaces. Its output is its own; the report goes to stderr, and the capture is kept unless all is as expected.
    Without COMMAND: record a container, process or interface until Ctrl-C, and report.

    Exit codes: 0 CLEAN, 1 STALL, 2 INVALID or set-up, 3 INCONCLUSIVE: nothing in it could have stalled. When COMMAND
    fails, its own code; 126 or 127 when it cannot be started.
    """
    return _command("guard", options)


@cli.command("museum")
@click.argument("names", nargs=-1, metavar="[EXHIBIT]…")
@click.option("--quick", is_flag=True, help="Only those that take a few seconds.")
@click.option("--list", "list_only", is_flag=True, help="Name them and what each is, and run none.")
@markdown_option
@click.option("--cache", type=_PATH, metavar="DIR", help="Where they are installed; else .cache/museum.")
def museum_(**options: Any) -> Exit:
    """Run released software that stalls, and the release or setting of it that does not, under the guard.

    EXHIBIT is a name such as pypi/hypercorn, or an ecosystem; else all of them. Exit codes: 0 all as expected,
    1 one is not, 3 one could not run here.
    """
    return _command("museum", options)


@cli.command("bisect", context_settings={"allow_interspersed_args": False})
@click.argument("package", metavar="pypi:NAME|npm:NAME")
@click.argument("between", metavar="A..B")
@click.argument("command_line", nargs=-1, type=click.UNPROCESSED, metavar="[--] COMMAND…")
@click.option("--port", "ports", multiple=True, type=click.IntRange(1, 65535), help="Judge connections to it alone.")
@click.option("--allow", multiple=True, metavar="IP:PORT", help="A server not judged; :PORT on any address.")
@click.option("--both-sides", is_flag=True, help="Run each release without TCP_NODELAY, too.")
@click.option(
    "--trace", is_flag=True, help="If it stalls, run it under strace, too; name the two writes of each stall."
)
@click.option("--time-limit", "limit", metavar="TIME", help="End COMMAND after 90s, 2m, 1h.")
@click.option("--json", type=_FILE, metavar="F", help="Write every release and change to F, as JSON.")
def bisect_(**options: Any) -> Exit:
    """Install the releases of a package from A to B in turn, guard COMMAND with each; where does the verdict change?

    COMMAND finds the release first: in PYTHONPATH, or NODE_PATH and PATH. Exit codes: 0, 2 none could be tried,
    3 some say nothing.
    """
    return _command("bisect", options)


@cli.command("show")
@click.argument("path", type=_PATH, metavar="FILE|RUN")
@click.option("--stall", "number", type=int, help="Which one, from 1 in order of the release; else a typical one.")
@click.option("--json", "as_json", is_flag=True, help="Print the stall, or a run's result.json, on stdout.")
@html_option
def show_(**options: Any) -> Exit:
    """Show one stall of a capture with full detail of its three frames, or a stored run again.

    Of a run folder, --stall N shows a stall in the capture at the end that held.
    """
    return _command("show", options)


@cli.command("compare")
@click.argument("paths", nargs=-1, required=True, type=_PATH, metavar="A B…")
@click.option("--json", "as_json", is_flag=True, help="Print the comparison on stdout, as JSON.")
@markdown_option
@html_option
def compare_(**options: Any) -> Exit:
    """Hold runs or captures side by side: verdicts, figures, the gain over A, and what differs between them.

    Each is a run folder or a capture file. Exit codes: 0, 2 one is INVALID or unusable, 3 one is inconclusive.
    """
    return _command("compare", options)


@cli.command("annotate")
@click.argument("paths", nargs=-1, required=True, type=_PATH, metavar="FILE|RUN")
@click.option("-o", "--output", "out", type=_PATH, metavar="OUT.pcapng", help="Where to write it.")
@click.option("--force", is_flag=True, help="Write over OUT where it exists.")
@click.option("--rotated", is_flag=True, help="Several FILEs are one capture, rotated: oldest first.")
@click.option("--filter", "with_filter", is_flag=True, help="Print a display filter of its frames; with -o, for OUT.")
def annotate_(**options: Any) -> Exit:
    """Write a capture with a comment on every trigger, late ACK and release, and the verdict on the first frame.

    Wireshark then shows the proof. Of a run folder it is the capture nearest the held end.
    """
    return _command("annotate", options)


@cli.command("verify")
@click.argument("path", type=_PATH, metavar="FILE")
def verify_(**options: Any) -> Exit:
    """Hold our packet table of a capture against tshark's, frame by frame, and say where they differ.

    Exit codes: 0 no difference but those by definition, 1 some, 2 unusable FILE or no tshark.
    """
    return _command("verify", options)


@cli.command("demo")
@click.option("--scenario", "parts", multiple=True, metavar="NAME", help="Only this one; `mysteries`: the captures.")
@click.option("--answers", metavar="FILE|good", help="Ask nobody: an answer per line, or the right ones.")
@click.option("--without-lab", is_flag=True, help="Run nothing: show the committed runs, where there is no Docker.")
@click.option("--outline", is_flag=True, help="Print the questions, the right answers and the minutes, and end.")
@runs_option(RUNS / "demo")
def demo_(**options: Any) -> Exit:
    """Walk through the incidents in a terminal: predict, run, see what was on the wire; then captures to diagnose.

    Whatever is answered, the exit code is that of the runs: 0 all as expected, 1 one contradicts, 2 one failed or is
    INVALID, 3 one is inconclusive.
    """
    return _command("demo", options)


def main(command: click.Command = cli) -> None:
    """Entry point of ``command``: every way to end has its exit code and at most one line on stderr."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by who started us: what is said is lost, and nothing else
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115 - to the end
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
