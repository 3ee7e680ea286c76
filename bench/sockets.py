"""How long `nagle-lab sockets` takes, compared with `ss -tinp`, with many sockets in a network namespace of their
own.

    .venv/bin/python bench/sockets.py [SOCKETS] [PROCESSES]

Run it as root. Both list the same namespace; ss does not show TCP_NODELAY, which takes most of our time.
"""

import json
import resource
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from nagle_lab.host.namespace import CLONE_NEWNET, prepare_loopback, unshare

REPEATS = 5
NAGLE_LAB = str(Path(sys.executable).with_name("nagle-lab"))
HOLDER = "import sys; sys.path[:0] = {!r}; from sockets import hold; hold({})"


def hold(count: int) -> None:
    """Have so many sockets open, in pairs, until standard input ends."""
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with socket.create_server(("127.0.0.1", 0), backlog=128) as listener:
        kept = []
        for _ in range(count // 2):
            kept.append(socket.create_connection(listener.getsockname()))
            kept.append(listener.accept()[0])
        print(len(kept), flush=True)
        sys.stdin.read()


def timed(command: Sequence[str]) -> tuple[list[float], list[float], str]:
    """Wall-clock and CPU seconds of some runs, and the output of the last one."""
    seconds, of_cpu, out = [], [], ""
    for _ in range(REPEATS):
        began, cpu = time.perf_counter(), cpu_time()
        out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        seconds.append(time.perf_counter() - began)
        of_cpu.append(cpu_time() - cpu)
    return seconds, of_cpu, out


def cpu_time() -> float:
    """CPU seconds of the programs that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    """Make the sockets, list them, print a line for each program."""
    wanted, processes = (*map(int, sys.argv[1:]), *(10_000, 4)[len(sys.argv) - 1 :])
    unshare(CLONE_NEWNET)
    prepare_loopback(1500)
    program = HOLDER.format([str(Path(__file__).parent)], wanted // processes)
    holders = [
        subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(processes)
    ]
    made = sum(int(holder.stdout.readline()) for holder in holders if holder.stdout)
    commands = {
        "ss -tinp": ["ss", "-tinpH"],
        "nagle-lab sockets": [NAGLE_LAB, "sockets"],
        "nagle-lab sockets --json": [NAGLE_LAB, "sockets", "--json"],
    }
    print(f"{made:,} connected sockets of {processes} processes; {REPEATS} runs: median, quickest, CPU time (median)")
    for name, command in commands.items():
        seconds, of_cpu, out = timed(command)
        figures = (statistics.median(seconds), min(seconds), statistics.median(of_cpu))
        print(f"{name:26}" + "".join(f" {figure:6.2f} s" for figure in figures))
    here = [one for one in json.loads(out)["sockets"] if one["processes"] and one["nodelay"] is not None]
    print(f"with process and TCP_NODELAY: {sum(1 for one in here if one['state'] == 'ESTABLISHED'):,}")
    for holder in holders:
        holder.communicate()


if __name__ == "__main__":
    main()
