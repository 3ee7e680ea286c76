"""How fast nagle-lab is, and how much memory it takes, compared with other tools on the same file in the same run.

    make bench                          two million packets
    make bench PACKETS=200000 LONG=1    another size, and a series that goes on to twenty million packets

The file is made on the fly from a recorded capture (enlarge.py) in a temporary folder. Each process is measured from
start to end, with its output thrown away: wall-clock and processor time (medians and fastest of several runs, with
the tools taking turns) and the largest resident set of any one of its processes (getrusage). Writes bench/RESULTS.md.
"""

import argparse
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from importlib import metadata, util
from pathlib import Path
from statistics import median

HERE = Path(__file__).parent
RECORDED = HERE.parent / "captures/reference/nginx-static-nodelay-off/server.pcap"
RESULTS = HERE / "RESULTS.md"
NAGLE_LAB = [str(Path(sys.executable).with_name("nagle-lab")), "analyze"]
READERS = [sys.executable, str(HERE / "readers.py")]
FIELDS = (
    "frame.number", "frame.time_epoch", "ip.src", "ip.dst", "tcp.srcport", "tcp.dstport", "tcp.seq_raw",
    "tcp.ack_raw", "tcp.flags", "tcp.window_size_value", "tcp.len", "tcp.options.mss_val", "tcp.options.wscale.shift",
    "tcp.options.timestamp.tsval",
)  # fmt: skip
TSHARK = ["tshark", "-n", "-o", "ip.defragment:FALSE", "-o", "tcp.analyze_sequence_numbers:FALSE"]
TSHARK += ["-o", "tcp.desegment_tcp_streams:FALSE", "-E", "occurrence=f", "-T", "fields"]
TSHARK += [word for name in FIELDS for word in ("-e", name)]
WITHOUT_COMPILER = {"NAGLE_LAB_COMPILED": "0"}
REPEATS = 15
SERIES = (10_000, 100_000, 1_000_000, 2_000_000)
LONG = 20_000_000
SMALL = 100_000  # measured more often: little of the time is not start-up


@dataclass
class Tool:
    """One way to read a capture, and its measurements."""

    name: str
    command: list[str]  # followed by the file
    needs: str | None = None  # program or, after "python:", module that may be missing
    most: int | None = None  # most packets for a slow tool, whose time is scaled up
    repeats: int = REPEATS
    environment: dict[str, str] = field(default_factory=dict)
    seconds: list[float] = field(default_factory=list)  # wall clock
    cpu: list[float] = field(default_factory=list)  # user and system, all its processes
    peak_mb: float = 0.0
    packets: int = 0

    def missing(self) -> bool:
        """Whether the tool is not installed."""
        kind, _, name = (self.needs or "").rpartition(":")
        return bool(name) and (util.find_spec(name) is None if kind else shutil.which(name) is None)

    def run(self, file: Path, packets: int) -> None:
        """Run it once on the file; a tool that fails ends the benchmark, because it would measure nothing."""
        command = [*self.command, str(file)]
        began = time.perf_counter()
        environment = {**os.environ, **self.environment}
        with subprocess.Popen(
            command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as process:
            _, status, used = os.wait4(process.pid, 0)
            self.seconds.append(time.perf_counter() - began)
            self.cpu.append(used.ru_utime + used.ru_stime)
            process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            sys.exit(f"bench: exit code {process.returncode} from: {' '.join(command)}")
        self.peak_mb = max(self.peak_mb, used.ru_maxrss / 1024)  # ru_maxrss is in KiB on Linux
        self.packets = packets

    def scaled(self, packets: int, of: Callable[[list[float]], float] = median) -> tuple[float, float]:
        """Wall-clock and processor seconds for so many packets, start-up included: a statistic of all runs, such as
        the median.
        """
        return of(self.seconds) / self.packets * packets, of(self.cpu) / self.packets * packets


def tools() -> list[Tool]:
    """The tools, nagle-lab first: the others are compared with it."""
    return [
        Tool("nagle-lab analyze", NAGLE_LAB),
        Tool("nagle-lab analyze --json", [*NAGLE_LAB, "--json"], repeats=5),
        *([in_plain_python()] if compiled() else []),
        Tool("plain read (cat)", ["cat"]),
        Tool("SHA-256 of the file, which --json adds", ["openssl", "sha256"], "openssl"),
        Tool("tcptrace (brief)", ["tcptrace", "-n"], "tcptrace"),
        Tool("tcptrace -l", ["tcptrace", "-n", "-l"], "tcptrace"),
        Tool("tshark field extraction", [*TSHARK, "-r"], "tshark", repeats=3),
        Tool("dpkt, the same columns", [*READERS, "dpkt"], "python:dpkt", most=200_000, repeats=3),
        Tool("pyshark, the same columns", [*READERS, "pyshark"], "python:pyshark", most=5_000, repeats=1),
    ]


def in_plain_python() -> Tool:
    """nagle-lab as it runs without a compiler."""
    name = "nagle-lab analyze, not compiled"
    return Tool(name, NAGLE_LAB, most=500_000, repeats=3, environment=WITHOUT_COMPILER)


@cache
def compiled() -> bool:
    """Whether the engine is compiled; asked in a separate process, because this one's memory counts for those it
    starts.
    """
    program = "from nagle_lab.tcp.compiled import LIBRARY; print(LIBRARY is None)"
    return subprocess.check_output([sys.executable, "-c", program]).strip() == b"False"


class Files:
    """The recorded capture enlarged to several sizes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._made: dict[int, tuple[Path, int]] = {}

    def of(self, packets: int) -> tuple[Path, int]:
        """A file of at least so many packets, and their number."""
        if packets not in self._made:
            path = self._folder / f"{packets}.pcap"
            # Not in this process: its peak memory would count for every tool it starts.
            command = [sys.executable, str(HERE / "enlarge.py"), str(RECORDED), str(path), str(packets)]
            self._made[packets] = path, int(subprocess.check_output(command))
        return self._made[packets]


def measure(chosen: list[Tool], files: Files, packets: int) -> None:
    """Run every tool as often as it says, in turn, so that a busy machine affects all alike."""
    turns = max(tool.repeats for tool in chosen)
    for turn in range(turns):
        for tool in chosen:
            if turn * tool.repeats % turns < tool.repeats:  # runs of a slow tool are spread evenly among the others
                print(f"bench: {tool.name}, run {len(tool.seconds) + 1} of {tool.repeats}", file=sys.stderr)
                tool.run(*files.of(min(packets, tool.most or packets)))


def compared(chosen: list[Tool], absent: list[Tool], packets: int) -> list[str]:
    """The table of tools."""
    (our_wall, our_cpu), (our_best, _) = chosen[0].scaled(packets), chosen[0].scaled(packets, min)
    lines = [
        f"| {packets:,} packets | wall, s | fastest, s | CPU, s | ratio, wall | fastest | CPU | peak, MB |",
        "|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for tool in chosen:
        scaled = "" if tool.packets == packets else f" ({tool.packets:,} packets, scaled up)"
        (wall, cpu), (best, _) = tool.scaled(packets), tool.scaled(packets, min)
        lines.append(
            f"| {tool.name}{scaled} | {wall:,.2f} | {best:,.2f} | {cpu:,.2f} "
            f"| {wall / our_wall:.3g} × | {best / our_best:.3g} × | {cpu / our_cpu:.3g} × | {tool.peak_mb:.0f} |"
        )
    return lines + [f"| {tool.name} | not installed | | | | | | |" for tool in absent]


def series(files: Files, sizes: tuple[int, ...]) -> list[str]:
    """The table of sizes: nagle-lab, its start-up measured in turn with it, and tcptrace."""
    recorded, lines = Tool("start-up", NAGLE_LAB), []
    for size in sizes:
        ours, other = Tool("nagle-lab analyze", NAGLE_LAB), Tool("tcptrace (brief)", ["tcptrace", "-n"], "tcptrace")
        path, packets = files.of(size)
        alone = []
        for turn in range(1 if size >= LONG else REPEATS if size > SMALL else 2 * REPEATS):
            print(f"bench: {packets:,} packets, run {turn + 1}", file=sys.stderr)
            recorded.run(RECORDED, 1)
            ours.run(path, packets)
            alone.append(ours.cpu[-1] - recorded.cpu[-1])
            if not other.missing():
                other.run(path, packets)
        wall, cpu = ours.scaled(packets)
        theirs = 0.0 if other.missing() else other.scaled(packets)[0] / wall
        beside = f" | {theirs:.3g} × | {other.peak_mb:.0f} |" if theirs else " | | |"
        lines.append(
            f"| {packets:,} | {wall:.2f} | {cpu:.2f} | {cpu / packets * 1e6:.2f} "
            f"| {median(alone) / packets * 1e6:.2f} | {ours.peak_mb:.0f}{beside}"
        )
    start, started = recorded.scaled(1)
    return [
        f"Start-up: the recorded capture alone, 528 packets: {start:.2f} s, {started:.2f} s of CPU; "
        f"{recorded.peak_mb:.0f} MB.",
        "Without it: the CPU time less that of a start-up in the same turn, the median.",
        "",
        "| packets | wall, s | CPU, s | CPU, µs each | without start-up | peak, MB | tcptrace, ratio | peak, MB |",
        "|--:|--:|--:|--:|--:|--:|--:|--:|",
        *lines,
    ]


def machine() -> str:
    """Processor, cores, kernel and versions."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    cpu = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), "unknown CPU")
    load = ", ".join(f"{x:.1f}" for x in os.getloadavg())
    return (
        f"{cpu}, {os.cpu_count()} cores (load average at the end {load}), Linux {platform.release()}, "
        f"Python {platform.python_version()}, NumPy {metadata.version('numpy')}"
    )


def main() -> None:
    """Measure and write the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("packets", type=int, nargs="?", default=2_000_000)
    parser.add_argument("--long", action="store_true", help=f"go on to {LONG:,} packets (2.3 GB on disk)")
    arguments = parser.parse_args()
    absent = [tool for tool in tools() if tool.missing()]
    chosen = [tool for tool in tools() if not tool.missing()]
    with tempfile.TemporaryDirectory(prefix="nagle-lab-bench-") as folder:
        files = Files(Path(folder))
        _, packets = files.of(arguments.packets)
        measure(chosen, files, arguments.packets)
        sizes = series(files, (*SERIES, LONG) if arguments.long else SERIES)
    text = [
        "# Benchmark", "",
        "Made by `make bench` (bench/run.py): one file, one run, tools taking turns; the medians of whole processes,",
        "and the fastest. A ratio is the tool's time over nagle-lab's: above 1 nagle-lab is ahead. tshark took 3",
        "turns, pyshark and 20 million packets 1. Peaks under 20 MB cannot be told apart.", "",
        f"{datetime.now(UTC):%Y-%m-%d}, {machine()}, {'a' if compiled() else 'no'} C compiler at set-up.", "",
        "The file is `captures/reference/nginx-static-nodelay-off/server.pcap` over and over with new sequence",
        "numbers: one packet in six ends a stall. nagle-lab's time includes the verdict with all its evidence.", "",
        *compared(chosen, absent, packets), "",
        "## Cost per packet", "", *sizes, "",
    ]  # fmt: skip
    RESULTS.write_text("\n".join(text))
    print("\n".join(text))


if __name__ == "__main__":
    main()
