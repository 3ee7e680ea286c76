"""Record the look-alikes, as root: `python3 maintenance/recorder/record.py [--into FOLDER] [CASE …]`.

Each case runs in network namespaces of its own, which are removed afterwards: two programs (programs.py, told what to
do by cases.py) on a veth pair, or on a relayed path with a delay (wire.py). tcpdump runs at the server, at the client
and in the middle of a relayed path. Needs iproute2, tcpdump and chrt (util-linux); only Python's own library.
"""

import argparse
import gzip
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO

from cases import CASES, Case, Drop

HERE = Path(__file__).parent
LOOKALIKES = HERE.parents[1] / "captures" / "lookalikes"
PORT = 7000
ADDRESSES = {False: {"client": "10.77.0.1", "server": "10.77.0.2"}, True: {"client": "fd77::1", "server": "fd77::2"}}
QUIET_S = 0.3  # after the programs have ended: their last ACKs


def ip(*arguments: str) -> None:
    """Run ip(8)."""
    subprocess.run(["ip", *arguments], check=True)


def inside(namespace: str, *command: str) -> list[str]:
    """The command that runs ``command`` in a namespace."""
    return ["ip", "netns", "exec", namespace, *command]


def python(program: str, *arguments: str) -> list[str]:
    """The command that runs one of the programs beside this one."""
    return [sys.executable, str(HERE / program), *arguments]


@contextmanager
def namespace(end: str) -> Iterator[str]:
    """A network namespace of our own."""
    name = f"lookalike-{end}-{os.getpid()}"
    ip("netns", "add", name)
    try:
        ip("-n", name, "link", "set", "lo", "up")
        yield name
    finally:
        ip("netns", "del", name)


@contextmanager
def running(command: list[str], said: str) -> Iterator[subprocess.Popen[str]]:
    """A process that has said ``said`` on standard output or error."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        heard: list[str] = []
        while not heard or said not in heard[-1]:
            line = pipe(process.stdout).readline()
            if not line:
                raise SystemExit(f"{' '.join(command)} ended by itself: {''.join(heard).strip()}")
            heard.append(line)
        yield process
    finally:
        process.kill()
        process.wait()


def pipe(stream: IO[str] | None) -> IO[str]:
    """The stream, which is a pipe."""
    assert stream is not None
    return stream


@contextmanager
def network(case: Case) -> Iterator[dict[str, tuple[str, str]]]:
    """The case's namespaces and path; yields namespace and interface of each capture position."""
    with ExitStack() as stack:
        ends = {end: stack.enter_context(namespace(end)) for end in ("client", "server")}
        places = {end: (name, "eth0") for end, name in ends.items()}
        if case.rtt_ms is None:
            ip("link", "add", "eth0", "netns", ends["client"], "type", "veth",
               "peer", "name", "eth0", "netns", ends["server"])  # fmt: skip
        else:
            middle = stack.enter_context(namespace("middle"))
            drop = case.drop or Drop(0, 0)
            delay, jitter = (round(ms * 1000 / 4) for ms in (case.rtt_ms, case.jitter_ms))  # crossed four times
            wire = python("wire.py", *map(str, (delay, jitter, drop.every, drop.first)))
            stack.enter_context(running(inside(middle, "chrt", "--fifo", "10", *wire), "ready"))
            for end, device in (("client", "c0"), ("server", "s0")):
                ip("-n", middle, "link", "set", device, "netns", ends[end], "name", "eth0")
            bridge(middle)
            places["middle"] = (middle, "m0")
        for end, name in ends.items():
            configure(case, end, name)
        time.sleep(0.2)  # neighbours and bridge ports settle
        yield places


def bridge(middle: str) -> None:
    """Join the two halves of the path."""
    ip("-n", middle, "link", "add", "br0", "type", "bridge")
    for device in ("m0", "m1"):
        ip("-n", middle, "link", "set", device, "master", "br0", "up")
    ip("-n", middle, "link", "set", "br0", "up")


def configure(case: Case, end: str, name: str) -> None:
    """Addresses, routes and settings of one end."""
    address, net = ADDRESSES[case.ipv6][end], "fd77::/64" if case.ipv6 else "10.77.0.0/24"
    ip("-n", name, "link", "set", "eth0", "up")
    ip("-n", name, "address", "add", f"{address}/{net.split('/')[1]}", "dev", "eth0", *(["nodad"] * case.ipv6))
    options = case.client_route if end == "client" else case.server_route
    if options:
        ip("-n", name, "route", "replace", net, "dev", "eth0", "src", address, *options)
    settings = ("net.ipv4.tcp_congestion_control=reno", *(case.server_sysctls if end == "server" else ()))
    for setting in settings:
        subprocess.run(inside(name, "sysctl", "-qw", setting), check=True)


@contextmanager
def capturing(place: tuple[str, str], file: Path) -> Iterator[None]:
    """tcpdump at one place; on leaving, it is stopped and must have written all it received."""
    where, interface = place
    command = inside(where, "tcpdump", "-n", "-p", "-Z", "root", "-i", interface, "-s", "128", "-B", "4096",
                     "--immediate-mode", "--time-stamp-precision=nano", "-w", str(file), "tcp")  # fmt: skip
    with running(command, "listening on") as tcpdump:
        yield
        tcpdump.send_signal(signal.SIGINT)
        said, _ = tcpdump.communicate(timeout=10)
    captured, received, dropped = (int(n) for n in re.findall(r"^(\d+) packets", said, re.MULTILINE))
    if captured != received or dropped or not captured:
        raise SystemExit(f"{file}: {captured} packets captured of {received}, {dropped} dropped; record it again")


def record(case: Case, folder: Path) -> None:
    """Run one case, and write its captures, its log of writes and its truth."""
    folder.mkdir(parents=True, exist_ok=True)
    address = ADDRESSES[case.ipv6]["server"]
    with network(case) as places, ExitStack() as captures:
        for position, place in places.items():
            captures.enter_context(capturing(place, folder / f"{position}.pcap"))
        logs = run_programs(case, places, address)
        time.sleep(QUIET_S)
    for position in places:
        compress(folder / f"{position}.pcap")
    writes = {"server_port": PORT, **logs}
    (folder / "writes.json").write_text(json.dumps(writes, separators=(",", ":")) + "\n")
    (folder / "truth.json").write_text(json.dumps(truth(case), indent=2) + "\n")


def run_programs(case: Case, places: dict[str, tuple[str, str]], address: str) -> dict[str, object]:
    """What both programs say they wrote."""
    arguments = (case.name, address, str(PORT))
    server_command = inside(places["server"][0], *python("programs.py", "server", *arguments))
    client_command = inside(places["client"][0], *python("programs.py", "client", *arguments))
    with running(server_command, "ready") as server:
        client = subprocess.run(client_command, check=True, stdout=subprocess.PIPE, text=True, timeout=120)
        served, _ = server.communicate(timeout=10)
    return {"server": json.loads(served), "client": json.loads(client.stdout)}


def truth(case: Case) -> dict[str, object]:
    """The contents of truth.json."""
    return {
        "verdict": case.verdict,
        "held_by": case.held_by,
        "why": case.why,
        "silence": case.silence or ("nagle_delayed_ack" if case.held_by else None),
        "exchanges": case.exchanges,
        "rtt_ms": case.rtt_ms,
    }


def compress(file: Path) -> None:
    """file → file.gz, the same bytes for the same capture."""
    with gzip.GzipFile(f"{file}.gz", "wb", mtime=0) as out:
        out.write(file.read_bytes())
    file.unlink()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--into", type=Path, default=LOOKALIKES, metavar="FOLDER")
    parser.add_argument("cases", nargs="*", metavar="CASE")
    arguments = parser.parse_args()
    for name in arguments.cases or CASES:
        print(name, flush=True)
        record(CASES[name], arguments.into / name)
