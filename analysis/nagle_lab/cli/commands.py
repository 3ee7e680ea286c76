"""The commands and their options: a table for click.

What each command does is in the module of its name, imported when it is called: ``--help`` imports none of them, and
diagnosing a capture needs no lab.
"""

from importlib import import_module
from itertools import pairwise
from math import isfinite
from typing import Any

import click

from nagle_lab import __version__
from nagle_lab.cli.shared.options import (
    OUTPUT,
    PATH,
    REGULAR_OUTPUT,
    RUNS,
    OutputFile,
    allowed_option,
    html_option,
    junit_option,
    markdown_option,
    ports_option,
    rotated_option,
    runs_option,
    set_option,
)
from nagle_lab.errors import Exit

VERDICT = click.Choice(["stall", "clean"], case_sensitive=False)


class _Seconds(click.FloatRange):
    """A finite number of seconds: NaN is in every range."""

    name = "number of seconds"  # in click's messages

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        seconds = super().convert(value, param, ctx)
        if not isfinite(seconds):
            self.fail(f"{value} is not a number of seconds.", param, ctx)
        return seconds


class NoReaderError(Exception):
    """A BrokenPipeError, of which click would make exit code 1: that is a verdict here."""


class _Command(click.Command):
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        given = list(args)
        try:
            return super().parse_args(ctx, args)
        except click.MissingParameter as error:
            raise click.UsageError(f"{error.format_message()}{self._taken(given)}", error.ctx or ctx) from error
        except click.UsageError as error:
            error.ctx = error.ctx or ctx  # of an option without its value, click does not say whose it is
            raise

    def _taken(self, args: list[str]) -> str:
        """Which option took the name behind it as its own, so that none is left for the argument; empty if none."""
        outputs = {name for param in self.params if isinstance(param.type, OutputFile) for name in param.opts}
        taken = [(name, value) for name, value in pairwise(args) if name in outputs]
        return "".join(f" {name} took {value} as the file to write: name both." for name, value in taken[:1])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_epilog(ctx, formatter)
        outputs = [param.type for param in self.params if isinstance(param.type, OutputFile)]
        if outputs:
            to_stdout = any(output.may_be_stream for output in outputs)
            how = (
                "To write an output file to standard output, name /dev/stdout" if to_stdout else "Name a regular file"
            )
            formatter.write_paragraph()
            formatter.write_text(f"{how}; - is refused.")


_NO_COMMANDS = ("version", "help")  # but options


class _Commands(click.Group):
    command_class = _Command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] in _NO_COMMANDS:
            raise click.UsageError(f"No such command {args[0]!r}: use --{args[0]}.", ctx)
        if (both := " ".join(args[:2])) in self.commands:  # `fleet ask`, beside `fleet SOURCE…`
            return both, self.commands[both], args[2:]
        return super().resolve_command(ctx, args)

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
    2 unusable input, set-up or usage, or INVALID, 3 INCONCLUSIVE.
    """


def _command(name: str, options: dict[str, Any], function: str = "command") -> Exit:
    """Call a command by the names of its options; its module, ``name`` in this package, is imported only now."""
    code: Exit = getattr(import_module(f"nagle_lab.cli.{name}"), function)(**options)
    return code


@cli.command("list")
@click.argument("scenario", required=False)
@click.option("--pair", is_flag=True, help="Print only the names of SCENARIO's stalled and its fixed variant.")
def list_(**options: Any) -> Exit:
    """List the scenarios and their variants.

    With SCENARIO, also its parameters and what each variant teaches.
    """
    return _command("lab.list", options)


@cli.command("run")
@click.argument("scenario")
@click.argument("variant")
@set_option
@runs_option()
@click.option("--trace", is_flag=True, help="Trace the service that holds; name the two writes of each stall.")
@click.option("--json", "as_json", is_flag=True, help="Print the run's result.json on stdout.")
@junit_option
@markdown_option
@html_option
def run_(**options: Any) -> Exit:
    """Run a variant of a scenario in the lab, and judge it.

    Captures its traffic, and compares the verdict with the expected one.
    """
    return _command("lab.run", options)


@cli.command("matrix")
@click.argument("scenarios", nargs=-1, metavar="[SCENARIO]…")
@click.option(
    "--repeat", type=click.IntRange(1), default=1, metavar="N", help="Run everything N times; report medians."
)
@click.option("--json", type=OUTPUT, metavar="FILE", help="Write every run and figure to FILE, as JSON.")
@click.option("--markdown", type=OUTPUT, metavar="FILE", help="Write the tables to FILE, in Markdown.")
@junit_option
@html_option
@runs_option()
def matrix_(**options: Any) -> Exit:
    """Run every variant of all scenarios, or of those given.

    A table is printed for each. Exit codes: 0 all as expected, 1 a verdict contradicts, 2 a run failed or is
    INVALID, 3 some are inconclusive.
    """
    return _command("lab.matrix", options)


@cli.command("sweep")
@click.argument("scenario")
@click.argument("span", required=False, metavar="[NAME=LO..HI]")
@click.option("--series", "only", multiple=True, metavar="NAME", help="Run only this series. Repeatable.")
@set_option
@runs_option(RUNS / "sweep")
@click.option("--json", "as_json", is_flag=True, help="Print all runs on stdout, as JSON.")
@html_option
def sweep_(**options: Any) -> Exit:
    """Find the sizes at which SCENARIO starts and stops stalling.

    It runs with sizes doubling from LO to HI; then each exact size is located. NAME is `size` (the parameter in
    the scenario's [sweep]) or any of its whole-number parameters, in upper or lower case. Exit codes: 0, 2 a run
    failed or is INVALID, 3 a run is inconclusive.
    """
    return _command("lab.sweep", options)


@cli.command("analyze")
@click.argument("paths", nargs=-1, required=True, type=PATH, metavar="FILE…")
@ports_option("Judge")
@click.option("--expect", type=VERDICT, help="Exit 1 on any other verdict.")
@click.option("--json", "as_json", is_flag=True, help="Print the result on stdout, one line of JSON per FILE.")
@rotated_option
@click.option(
    "--same-traffic",
    is_flag=True,
    help="The two FILEs show the same traffic, for example at both ends: judge them as one.",
)
@click.option(
    "--strace",
    type=PATH,
    metavar="FILE",
    help="What strace -f -ttt -yy wrote beside the capture: name the two writes of each stall.",
)
@junit_option
@markdown_option
@html_option
@click.option(
    "--csv",
    type=OUTPUT,
    metavar="NAME.csv",
    help="Write the stalls to NAME.csv; beside it, NAME.connections.csv and NAME.exchanges.csv.",
)
@click.option("--parquet", type=OUTPUT, metavar="NAME.parquet", help="The same in Parquet format; needs pyarrow.")
def analyze_(**options: Any) -> Exit:
    """Diagnose captures: which end held data back, and what to set.

    A FILE is a pcap or pcapng file, a run folder of the lab, or - for standard input. Each is a capture of its
    own, unless --rotated is given.
    """
    return _command("captures.analyze", options)


@cli.command("guard", context_settings={"allow_interspersed_args": False})
@click.argument("command_line", nargs=-1, type=click.UNPROCESSED, metavar="[--] COMMAND…")
@ports_option("Judge")
@allowed_option
@click.option(
    "--expect",
    type=VERDICT,
    default="clean",
    help="The verdict to exit 0 on (default: clean).",
)
@click.option(
    "--both-sides",
    is_flag=True,
    help="If it does not stall, run it again without TCP_NODELAY to see what protects it.",
)
@click.option(
    "--trace",
    is_flag=True,
    help="Name the two writes of each stall: run COMMAND again under strace, or attach strace to what runs.",
)
@click.option(
    "--time-limit",
    "limit",
    metavar="TIME",
    help="End COMMAND after TIME (90s, 2m, 1h) with exit code 124; with --both-sides, each of its two runs.",
)
@click.option("--network", is_flag=True, help="Let COMMAND reach the network, through pasta; not as root.")
@click.option("--pid", type=click.IntRange(1), metavar="N", help="Record the network namespace of a running process.")
@click.option("--container", metavar="NAME", help="Record the network namespace of a Docker container.")
@click.option("--compose-service", "service", metavar="NAME", help="Record a Docker Compose service.")
@click.option("--interface", metavar="IF", help="Record an interface of this machine; only PORT with --port.")
@click.option(
    "--seconds",
    type=_Seconds(0, min_open=True),
    metavar="N",
    help="Record for N seconds instead of until Ctrl-C.",
)
@click.option(
    "--keep", type=PATH, metavar="DIR", help="Keep the capture and guard.json in DIR; replace earlier ones."
)
@click.option("--json", type=OUTPUT, metavar="FILE", help="Write verdict, run and result to FILE, as JSON.")
@junit_option
@markdown_option
@html_option
def guard_(**options: Any) -> Exit:
    """Run COMMAND in a network namespace, record its TCP, and judge.

    Every TCP segment on loopback is recorded. COMMAND is a program or test suite that makes TCP connections to
    itself. No root is needed where users may create namespaces. COMMAND's output is left alone; the report goes
    to stderr, and the capture is kept unless all is as expected. Without COMMAND, record a container, process or
    interface until Ctrl-C, and report.

    Exit codes: 0 CLEAN, 1 STALL, 2 INVALID or set-up, 3 INCONCLUSIVE: nothing in it could have stalled, or the
    evidence does not decide. If COMMAND fails, its own exit code; 124 after --time-limit, 126 or 127 if it cannot be
    started.
    """
    return _command("software.guard", options)


@cli.command("sockets")
@click.option("--pid", type=click.IntRange(1), metavar="N", help="Only those of this process and of what it started.")
@click.option("--container", metavar="NAME", help="Only those of this container.")
@click.option("--port", type=click.IntRange(1, 65535), metavar="P", help="Only those with this port at either end.")
@click.option("--all", "every", is_flag=True, help="Show all, not only the first 40, including those in TIME-WAIT.")
@click.option("--json", "as_json", is_flag=True, help="Print all on stdout, as one JSON object.")
def sockets_(**options: Any) -> Exit:
    """List this host's TCP sockets, those that hold data first.

    Includes those of containers; shows the process of each, TCP_NODELAY, and how many bytes wait. Run it as root to
    see other users' sockets.
    """
    return _command("live.sockets", options)


@cli.command("nodelay")
@click.argument("state", type=click.Choice(["on", "off"]), metavar="on|off")
@click.option("--pid", type=click.IntRange(1), metavar="N", help="Sockets of this process and of what it started.")
@click.option("--container", metavar="NAME", help="Sockets of this container.")
@click.option("--port", type=click.IntRange(1, 65535), metavar="P", help="Only sockets with this port at either end.")
@click.option("--for", "limit", metavar="TIME", help="Undo it after TIME (30s, 2m, 1h), or when interrupted.")
@click.option(
    "--seconds",
    type=_Seconds(0, 3600),
    default=5,
    metavar="N",
    help="Record for N seconds before the change and after it (default: 5); 0 records nothing.",
)
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--json", "as_json", is_flag=True, help="Print what was done and recorded as one JSON object.")
def nodelay_(**options: Any) -> Exit:
    """Set TCP_NODELAY on running sockets, and show what it does.

    The program is not restarted. Listeners are set, too: what they accept inherits it. `off` takes back what `on` has
    set, and nothing else. Run it as root, or with --seconds 0 as the program's own user.

    Exit codes: 0 the stall is gone (or taken back), 1 it stays, 2 not possible, 3 no stall before, too little
    traffic to say, or not confirmed.
    """
    return _command("live.nodelay", options)


@cli.command("watch")
@click.argument("source", required=False, metavar="[-]")
@click.option("-i", "--interface", default="", metavar="IF", help="Watch one interface; default: all of them.")
@click.option("--container", default="", metavar="NAME", help="Watch the network namespace of a Docker container.")
@click.option("--pid", type=click.IntRange(1), metavar="N", help="Watch the network namespace of a running process.")
@click.option("--compose-service", "service", default="", metavar="NAME", help="Watch a Docker Compose service.")
@click.option(
    "--pod", default="", metavar="[NAMESPACE/]NAME", help="Watch a Kubernetes pod, through kubectl; needs --image."
)
@click.option("--image", default="", metavar="IMAGE", help="An image with tcpdump, for a container beside the pod's.")
@ports_option("Watch")
@click.option("--seconds", type=_Seconds(0, min_open=True), metavar="N", help="End after N seconds, not at Ctrl-C.")
@click.option(
    "--window",
    "window_s",
    type=_Seconds(1, 3600),
    default=30.0,
    metavar="N",
    help="Show what happened in the last N seconds (default: 30).",
)
@click.option(
    "--period",
    "period_s",
    type=_Seconds(1),
    default=3600.0,
    metavar="N",
    help="Finish judging every N seconds and start again (default: 3600), so that memory stays bounded.",
)
@click.option("--json", "as_json", is_flag=True, help="Print a line of JSON for each finding, and one at the end.")
@click.option("--prometheus", metavar="ADDRESS:PORT", help="Serve metrics there; needs prometheus-client.")
@click.option("--expect", type=VERDICT, help="Exit 1 on any other verdict.")
def watch_(**options: Any) -> Exit:
    """Show which program on this host stalls now, live.

    Records packet headers of this machine, a container or a process, as root or with CAP_NET_RAW; or - follows a
    capture that comes through a pipe (ssh HOST "tcpdump -U -s 128 -w - 'tcp and not port 22'" | nagle-lab watch -).
    Where standard output is no terminal, it prints a line for each finding. Ctrl-C ends it with the report of
    analyze.

    Exit codes are those of analyze.
    """
    return _command("live.watch", options)


@cli.command("fleet")
@click.argument("sources", nargs=-1, required=True, metavar="SOURCE…")
@click.option("--out", metavar="DIR", help="Store results in DIR, a folder or URL that every worker can write to.")
@click.option(
    "--on",
    metavar="ENGINE",
    help="Read on dask://HOST:PORT, or on the Executor that MODULE:CALLABLE gives (default: processes here).",
)
@click.option(
    "--workers",
    type=click.IntRange(1),
    metavar="N",
    help="Read N stretches at a time (default: one for each processor).",
)
@click.option("--resume", is_flag=True, help="Continue from the results in DIR: read only what is new or unfinished.")
@click.option(
    "--stretch",
    "stretch_mb",
    type=click.IntRange(1),
    default=1000,
    metavar="MB",
    help="How much of a series is read at once, in MB; a larger file is read in parts (default: 1000).",
)
@click.option("--list", "list_only", is_flag=True, help="List the series and their files, and judge none.")
@click.option("--expect", type=VERDICT, help="Exit 1 if a series has another verdict.")
def fleet_(**options: Any) -> Exit:
    """Diagnose the rotated captures of many hosts.

    A SOURCE is a file, a folder, a glob (also s3://, gs://, hdfs://, ssh://), or a manifest (.toml). Files of one
    host and interface are one series, judged as `analyze --rotated` would. Needs fsspec, pyarrow and duckdb.

    Exit codes are those of analyze on each series, and the worst of them decides: 2 a series is INVALID or could
    not be finished, 3 one is inconclusive.
    """
    return _command("captures.fleet", options)


@cli.command("fleet ask")
@click.argument("question", required=False)
@click.option("--out", metavar="DIR", help="The folder or URL in which nagle-lab fleet stored its results.")
@click.option("--json", "as_json", is_flag=True, help="Print a line of JSON for each row.")
@html_option
def fleet_ask_(**options: Any) -> Exit:
    """Query the results of a fleet.

    QUESTION is a name from the list that is printed without it, `schema` for tables and columns, or SQL (DuckDB)
    in quotes. With --html, the overview is written. A folder called `ask` is diagnosed as ./ask.
    """
    return _command("captures.fleet", options, "ask")


@cli.command("museum")
@click.argument("names", nargs=-1, metavar="[EXHIBIT]…")
@click.option("--quick", is_flag=True, help="Only exhibits that take a few seconds.")
@click.option("--list", "list_only", is_flag=True, help="List the exhibits and run none.")
@click.option("--trace", is_flag=True, help="Trace the stalling halves, which must name the two writes.")
@markdown_option
def museum_(**options: Any) -> Exit:
    """Run released software that stalls, and its fix.

    Both run under the guard. EXHIBIT is a name such as pypi/hypercorn, or an ecosystem such as pypi; default:
    all. Exit codes: 0 all as expected, 1 one is not, 3 one could not run here.
    """
    return _command("software.museum", options)


@cli.command("bisect", context_settings={"allow_interspersed_args": False})
@click.argument("package", metavar="pypi:NAME|npm:NAME")
@click.argument("between", metavar="A..B")
@click.argument("command_line", nargs=-1, type=click.UNPROCESSED, metavar="[--] COMMAND…")
@ports_option("Judge")
@allowed_option
@click.option("--both-sides", is_flag=True, help="Run each release that does not stall again without TCP_NODELAY.")
@click.option("--time-limit", "limit", metavar="TIME", help="End each run of COMMAND after TIME (90s, 2m, 1h).")
@click.option("--json", type=OUTPUT, metavar="FILE", help="Write all releases and changes to FILE, as JSON.")
def bisect_(**options: Any) -> Exit:
    """Find the release of a package that changed the verdict.

    Every release from A to B is installed in turn, into a folder of its own, and COMMAND guarded with it: it comes
    first in PYTHONPATH, or in NODE_PATH and PATH. Exit codes: 0 each is STALL or CLEAN, 2 none could be
    judged, 3 some could not, or are INCONCLUSIVE.
    """
    return _command("software.bisect", options)


@cli.command("show")
@click.argument("paths", nargs=-1, required=True, type=PATH, metavar="FILE…|RUN")
@click.option(
    "--stall",
    "number",
    type=int,
    metavar="N",
    help="Show the Nth stall, in order of release; default: a typical one.",
)
@rotated_option
@click.option("--json", "as_json", is_flag=True, help="Print the stall, or a run's result.json, on stdout.")
@html_option
def show_(**options: Any) -> Exit:
    """Show one stall of a capture in full, or a stored run again.

    With tshark, every field of its three frames is shown. Of a capture without a stall, show an ordinary
    exchange. For a run folder, --stall N shows a stall from the capture at the end that held data back.
    """
    return _command("captures.show", options)


@cli.command("compare")
@click.argument("paths", nargs=-1, required=True, type=PATH, metavar="A B…")
@click.option("--json", "as_json", is_flag=True, help="Print the comparison on stdout, as JSON.")
@markdown_option
@html_option
def compare_(**options: Any) -> Exit:
    """Compare runs or captures side by side.

    Shows verdicts, figures, the gain over A, and what differs between them. A and B are run folders or
    capture files. For two captures of the same traffic, one from each end, use analyze --same-traffic. Exit
    codes: 0, 2 one is INVALID or unusable, 3 one is inconclusive.
    """
    return _command("captures.compare", options)


@cli.command("annotate")
@click.argument("paths", nargs=-1, required=True, type=PATH, metavar="FILE…|RUN")
@click.option(
    "-o", "--output", "out", type=REGULAR_OUTPUT, metavar="OUT.pcapng", help="Write the capture to OUT.pcapng."
)
@click.option("--force", is_flag=True, help="Overwrite OUT.pcapng.")
@rotated_option
@click.option(
    "--filter",
    "with_filter",
    is_flag=True,
    help="Print a Wireshark display filter for the stalls (with -o, for OUT.pcapng).",
)
def annotate_(**options: Any) -> Exit:
    """Copy a capture, with the proof in packet comments.

    Wireshark then shows a comment on every trigger, late ACK and release, and the verdict on frame 1. From a run
    folder, it copies the capture nearest the end that held.
    """
    return _command("captures.annotate", options)


@cli.command("verify")
@click.argument("path", type=PATH, metavar="FILE")
def verify_(**options: Any) -> Exit:
    """Cross-check our decoding with tshark, frame by frame.

    The differences are listed. Exit codes: 0 no unexplained difference, 1 some, 2 unusable FILE or no tshark.
    """
    return _command("captures.verify", options)


@cli.command("demo")
@click.option(
    "--scenario", "parts", multiple=True, metavar="NAME", help="Only this scenario, or `mysteries`. Repeatable."
)
@click.option("--answers", metavar="FILE|good", help="Unattended: answers from FILE, or the correct ones (good).")
@click.option("--without-lab", is_flag=True, help="Run nothing, show the committed runs: needs no Docker.")
@click.option("--outline", is_flag=True, help="Print the questions, the correct answers and the timings, and exit.")
@click.option(
    "--slides", type=OUTPUT, metavar="FILE", help="Write slides to FILE, one HTML page, and exit. No Docker."
)
@runs_option(RUNS / "demo")
def demo_(**options: Any) -> Exit:
    """Start the workshop in a terminal.

    Predict, run, see what was on the wire; then diagnose captures. The exit code depends on the runs, not on the
    answers: 0 all as expected, 1 one contradicts, 2 one failed or is INVALID, 3 one is inconclusive.
    """
    return _command("lab.demo", options)
