"""CPU time and lost packets of `nagle-lab watch` at rising packet rates, beside those of `tcpdump -w /dev/null`.

    .venv/bin/python maintenance/watch_load/rates.py LARGE.pcap [SECONDS]     # as root; the file: bench/enlarge.py

Its frames are sent over a veth pair between two network namespaces of its own, at the same rate for each of the two,
which record alone, one after the other. CPU time is that of the recorder and everything it starts, including the
final report.
"""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
NAGLE_LAB = HERE.parents[1] / ".venv/bin/nagle-lab"
RATES = (10_000, 25_000, 50_000, 100_000, 200_000, 300_000, 400_000, 500_000)
FROM, TO = "nagle-lab-from", "nagle-lab-to"  # namespaces, and the ends of the pair
AHEAD_S, BEHIND_S = 2.0, 2.0  # how long a recorder runs before and after the packets


class Seen(NamedTuple):
    """What happened to the packets that were sent."""

    per_s: float
    recorded: int
    dropped: int
    cpu: float  # of one core, while packets came


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


def _inside(namespace: str, *command: object) -> list[str]:
    return ["ip", "netns", "exec", namespace, *map(str, command)]


def record(command: Sequence[object], sender: Sequence[object], folder: Path) -> tuple[Seen, str, str]:
    """Let the command record the sender's packets; also returns its output on stdout and stderr."""
    out, err = folder / "out", folder / "err"
    with out.open("wb") as stdout, err.open("wb") as stderr:
        recorder = subprocess.Popen(_inside(TO, *command), stdout=stdout, stderr=stderr)
    time.sleep(AHEAD_S)
    sent = subprocess.run(_inside(FROM, *sender), capture_output=True, text=True, check=True).stdout
    packets, us = map(int, sent.split())
    time.sleep(BEHIND_S)
    recorder.send_signal(signal.SIGINT)
    _, _, used = os.wait4(recorder.pid, 0)
    seen = Seen(packets / us * 1e6, 0, 0, (used.ru_utime + used.ru_stime) / (us / 1e6))
    return seen._replace(recorded=packets), out.read_text(), err.read_text()


def watched(seen: Seen, said: str, _: str) -> Seen:
    """Parse nagle-lab's last line."""
    report = json.loads(said.splitlines()[-1])
    return seen._replace(recorded=report["packets"], dropped=report["dropped"])


def dumped(seen: Seen, _: str, said: str) -> Seen:
    """Parse tcpdump's final output."""
    found = {word: int(number) for number, word in re.findall(r"(\d+) packets? (captured|dropped by kernel)", said)}
    return seen._replace(recorded=found["captured"], dropped=found["dropped by kernel"])


RECORDERS = {
    "`nagle-lab watch`": ([NAGLE_LAB, "watch", "-i", TO, "--json"], watched),
    "`tcpdump -w /dev/null`": (
        ["tcpdump", "-i", TO, "-s", "128", "-B", "16384", "-n", "-w", "/dev/null", "tcp"], dumped,
    ),
}  # fmt: skip


def main(large: str, seconds: str = "10") -> None:
    """Print a row for each rate."""
    print("| packets/s |", " | ".join(f"{name}: CPU | lost" for name in RECORDERS), "|")
    print("|---:|" + "---:|---:|" * len(RECORDERS))
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        subprocess.run(["cc", "-O2", "-o", folder / "sender", HERE / "sender.c"], check=True)
        try:
            for namespace in (FROM, TO):
                _ip("netns", "add", namespace)
            _ip("link", "add", FROM, "netns", FROM, "type", "veth", "peer", "name", TO, "netns", TO)
            for namespace in (FROM, TO):
                _ip("-n", namespace, "link", "set", namespace, "up")
            for rate in RATES:
                sender = [folder / "sender", large, FROM, rate, seconds]
                rows = [told(*record(command, sender, folder)) for command, told in RECORDERS.values()]
                cells = [f"{one.cpu:.0%} | {_lost(one)}" for one in rows]
                print(f"| {min(one.per_s for one in rows):,.0f} | {' | '.join(cells)} |", flush=True)
        finally:
            for namespace in (FROM, TO):
                subprocess.run(["ip", "netns", "delete", namespace], check=False)


def _lost(seen: Seen) -> str:
    return f"{seen.dropped / (seen.recorded + seen.dropped):.2%}" if seen.dropped else "none"


if __name__ == "__main__":
    main(*sys.argv[1:])
