"""What a fleet costs: packets a second and worker, one worker and two, bytes stored, memory, time of questions.

    .venv/bin/python bench/fleet.py --packets 200000000

One series of so many packets is read in stretches of 20 million, each made (enlarge.py), read and removed, so that
2.3 GB of disk are enough; four series of 5 million each are read by one worker and by two, in turn. In the captures
one packet in six ends a stall, far more than in any fleet. Questions are asked of a made-up store of a million
stalls. Writes bench/FLEET.md. If others use the machine, processor time is what counts; the load is noted.
"""

# ruff: noqa: PLC0415  (this process's memory would count as peak memory of the processes it starts)

import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

from run import RECORDED, compiled, machine

RESULTS = Path(__file__).parent / "FLEET.md"
NAGLE_LAB = str(Path(sys.executable).with_name("nagle-lab"))
STRETCH, EACH, SERIES, TURNS = 20_000_000, 5_000_000, 4, 3
DAYS, HOSTS, STALLS = 10, 100, 1_000_000
# In a separate process: the last of the named files is read, or all of them are judged.
PART = """
import os, sys
from nagle_lab.fleet.results_folder import Folder
from nagle_lab.fleet.judge import judge_series
from nagle_lab.fleet.series import File, Series
from nagle_lab.fleet.stretch import read_stretch, stretches
what, out, *names = sys.argv[1:]
series = Series("long", "", tuple(File(name, 1, "made by the bench") for name in names))
cut = stretches(series, 1)
if what == "read":
    print(read_stretch(cut[-1], Folder(out)).packets)
else:
    judged = judge_series(series, cut, Folder(out))
    print(judged.packets, judged.stalls)
"""


def child(*command: str) -> tuple[list[str], float, float, float]:
    """What a process printed, its wall-clock and processor seconds, and its peak, MB."""
    began = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        said = process.stdout.read().split()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"bench: exit code {process.returncode} from: {' '.join(command[:3])}")
    return said, time.perf_counter() - began, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def make(path: Path, packets: int, before: int = 0) -> int:
    """Make a capture of at least so many packets, which follow ``before``; returns how many there are."""
    command = (sys.executable, str(Path(__file__).with_name("enlarge.py")), str(RECORDED), str(path))
    return int(child(*command, str(packets), str(before))[0][0])


def long_series(folder: Path, packets: int) -> list[str]:
    """One series, stretch after stretch, each file made, read and removed."""
    out, names, before, stored = folder / "out", list[str](), 0, 0
    lines = [
        "| packets so far | CPU, s | CPU, µs each | peak, MB | events, bytes a packet |",
        "|--:|--:|--:|--:|--:|",
    ]
    part = (sys.executable, "-c", PART)
    while before < packets:
        path = folder / f"long_{len(names) + 1:05}_20261123000000.pcap"
        print(f"bench: {before:,} of {packets:,} packets", file=sys.stderr)
        made = make(path, STRETCH, before)
        names.append(str(path))
        said, _, cpu, peak = child(*part, "read", str(out), *names)
        path.unlink()
        assert int(said[0]) == made
        before += made
        work = sum(file.stat().st_size for file in (out / "work").iterdir())
        each = f"{cpu / made * 1e6:.3f} | {peak:.0f} | {(work - stored) / made:.2f}"
        lines.append(f"| {before:,} | {cpu:.1f} | {each} |")
        stored = work
    print("bench: judging", file=sys.stderr)
    (total, found), wall, cpu, peak = child(*part, "judge", str(out), *names)
    assert int(total) == before
    stalls, tables = int(found), sum(file.stat().st_size for file in out.rglob("*.parquet"))
    shutil.rmtree(out)
    return [
        *lines, "",
        f"Judged at the end: {stalls:,} stalls, {cpu:.1f} s of CPU ({cpu / stalls * 1e6:.2f} µs for each stall),",
        f"{wall:.1f} s by the clock, peak {peak:.0f} MB; {tables / 1e6:,.0f} MB of Parquet, "
        f"{tables / stalls:.1f} bytes for each stall.",
    ]  # fmt: skip


def scaling(folder: Path) -> list[str]:
    """Read four series with one worker and with two, in turn."""
    for number in range(SERIES):
        (folder / "in" / f"web-{number}").mkdir(parents=True)
        make(folder / "in" / f"web-{number}" / "eth0.pcap", EACH)
    walls: dict[int, list[float]] = {1: [], 2: []}
    cpus: dict[int, list[float]] = {1: [], 2: []}
    load = []
    for turn in range(TURNS):
        for workers, wall in walls.items():
            print(f"bench: {workers} workers, turn {turn + 1} of {TURNS}", file=sys.stderr)
            out = folder / "scaled"
            load.append(os.getloadavg()[0])
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            began = time.perf_counter()
            command = [NAGLE_LAB, "fleet", str(folder / "in"), "--out", str(out), "--workers", str(workers)]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            wall.append(time.perf_counter() - began)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            cpus[workers].append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
            shutil.rmtree(out)
    packets = SERIES * EACH
    lines = ["| workers | wall, s | fastest, s | CPU, s | packets a second, fastest |", "|--:|--:|--:|--:|--:|"]
    for workers, wall in walls.items():
        seconds = f"{median(wall):.1f} | {min(wall):.1f} | {median(cpus[workers]):.1f}"
        lines.append(f"| {workers} | {seconds} | {packets / min(wall):,.0f} |")
    efficiency = min(walls[1]) / min(walls[2]) / 2
    busy = f"Load average when the turns began: {min(load):.1f} to {max(load):.1f}, on {os.cpu_count()} processors."
    return [*lines, "", f"Efficiency of two workers, by the fastest turns: {efficiency:.0%}. {busy}"]


def made_up_store(folder: Path) -> None:
    """A million stalls of a hundred hosts in ten days; nothing in them was captured."""
    import numpy as np

    from nagle_lab.fleet.results_folder import Folder
    from nagle_lab.fleet.series import Series
    from nagle_lab.fleet.store import Writer

    out, rng, day_ns, each = Folder(str(folder)), np.random.default_rng(1), 86_400 * 10**9, STALLS // HOSTS

    def same(value: object) -> np.ndarray:
        return np.full(each, value, object)

    for number in range(HOSTS):
        series = Series(f"host-{number:03}", "eth0", ())
        at = np.sort(rng.integers(20_000 * day_ns, (20_000 + DAYS) * day_ns, each))
        service, count = rng.integers(0, 200, each), np.arange(1, each + 1)
        ip, port = np.array([f"10.0.{n // 50}.{n % 50}" for n in range(200)], object)[service], 80 + service % 5
        with Writer("stalls", series, out) as writer:
            writer.add(at // day_ns, {
                "released_at": at.astype("M8[ns]"), "file": same(f"{series.name}.pcap"), "frame": count * 6,
                "trigger_frame": count * 6 - 2, "ack_frame": count * 6 - 1, "release_frame": count * 6,
                "connection": count // 20, "exchange": count % 20 + 1, "server_ip": ip, "server_port": port,
                "held_role": same("server"), "held_ip": ip, "held_port": port, "delayed_role": same("client"),
                "delayed_ip": same(f"10.9.0.{number}"), "delayed_port": rng.integers(32768, 60999, each),
                "wait_ms": 40 + rng.exponential(2, each), "release_us": rng.uniform(10, 60, each),
                "trigger_bytes": 238 + service % 7, "released_bytes": 615 + service % 11,
            })  # fmt: skip
        hours, of = np.repeat(np.arange(20_000 * 24, (20_000 + DAYS) * 24), 10), np.tile(np.arange(10), DAYS * 24)
        with Writer("exchanges", series, out) as writer:
            writer.add(hours // 24, {
                "hour": (hours * 3600).astype("M8[s]"),
                "server_ip": np.array([f"10.0.0.{n}" for n in range(10)], object)[of], "server_port": 80 + of,
                "from_ms": np.full(len(of), 40.0), "to_ms": np.full(len(of), 44.7),
                "exchanges": np.full(len(of), 50), "total_ms": np.full(len(of), 2100.0),
            })  # fmt: skip
        with Writer("series", series, out) as writer:
            writer.add(None, {"verdict": ["STALL"], "stalls": [each]})


def asked(folder: Path) -> list[str]:
    """How long every ready question takes, and its processor time."""
    from nagle_lab.fleet.ask import Store, questions
    from nagle_lab.fleet.results_folder import Folder

    print("bench: a million stalls, made up", file=sys.stderr)
    made_up_store(folder / "made-up")
    began = time.perf_counter()
    store = Store(Folder(str(folder / "made-up")))
    opened = time.perf_counter() - began
    lines = ["| question | seconds | of CPU |", "|---|--:|--:|"]
    for question in questions():
        walls, cpus = [], []
        for _ in range(TURNS):
            began, cpu = time.perf_counter(), time.process_time()
            store.ask(question.sql)
            walls.append(time.perf_counter() - began)
            cpus.append(time.process_time() - cpu)
        lines.append(f"| {question.name} | {median(walls):.2f} | {median(cpus):.2f} |")
    (count,) = store.ask("SELECT count(*) FROM stalls").rows[0]
    files = len(list((folder / "made-up" / "stalls").rglob("*.parquet")))
    return [f"{count:,} stalls in {files:,} files, opened in {opened:.2f} s; medians of {TURNS}.", "", *lines]


def main() -> None:
    """Measure and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--packets", type=int, default=200_000_000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="nagle-lab-fleet-") as name:
        folder = Path(name)
        scaled, long = scaling(folder), long_series(folder, arguments.packets)
        questions_asked = asked(folder)
    text = [
        "# Benchmark of the fleet", "",
        "Made by `.venv/bin/python bench/fleet.py`. For terabytes: [docs/fleet.md](../docs/fleet.md).", "",
        f"{datetime.now(UTC):%Y-%m-%d}, {machine()}, {'a' if compiled() else 'no'} C compiler at set-up.", "",
        "The captures are `captures/reference/nginx-static-nodelay-off/server.pcap` over and over with new sequence",
        "numbers: one packet in six ends a stall.", "",
        f"## One series, in stretches of {STRETCH:,} packets", "", *long, "",
        f"## {SERIES} series of {EACH:,} packets, by one worker and by two", "", *scaled, "",
        f"## Questions to a store of {STALLS:,} stalls, made up", "", *questions_asked, "",
    ]  # fmt: skip
    RESULTS.write_text("\n".join(text))
    print("\n".join(text))


if __name__ == "__main__":
    main()
