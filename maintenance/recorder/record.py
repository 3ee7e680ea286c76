"""Record the look-alikes, as root: `python3 maintenance/recorder/record.py [--families] [--into FOLDER] [CASE …]`.

With --families, record those instead.

Each case runs in network namespaces of its own, which are removed afterwards: two programs (programs.py, with the
steps in cases.py and families.py) on a veth pair, or on a relayed path with a delay (wire.py). tcpdump runs at the
server, at the client and in the middle of a relayed path. If the log of writes of a family's recording contradicts
its truth, which a busy machine can cause, it is recorded again, at most three times; no analyzer is involved. Needs
iproute2, tcpdump and chrt (util-linux); only Python's own library.
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
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

from cases import ADDRESSES, CASES, ORIGIN_ADDRESS, ORIGIN_PORT, PORT, Case, Drop
from families import ALL, FAMILIES
from holds import MS, holds_of
from wire import Wire

HERE = Path(__file__).parent
CAPTURES = HERE.parents[1] / "captures"

HELD_MS = 4  # a shorter hold is no stall; an ACK so much later than its path is late
STALLS = 3  # so many held segments are a STALL
ATTEMPTS = 4
TIMEOUT_S = 60  # of the programs
Logs = dict[str, list[dict[str, Any]]]  # end → its connections
ROUTER = "10.77.0.254"
QUIET_S = 0.3  # time after the programs have ended, for their last ACKs


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
def namespace(name: str) -> Iterator[str]:
    """A network namespace of our own, by its name."""
    ip("netns", "add", name)
    try:
        ip("-n", name, "link", "set", "lo", "up")
        yield name
    finally:
        ip("netns", "del", name)


@contextmanager
def running(command: list[str], said: str) -> Iterator[subprocess.Popen[str]]:
    """A process that has printed ``said`` on standard output or error."""
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


@dataclass(frozen=True)
class Place:
    """Where tcpdump runs, and with which filter."""

    namespace: str
    interface: str = "eth0"
    filter: str = "tcp"


class ContradictionError(Exception):
    """The log of the writes contradicts the truth that the table declares."""


@contextmanager
def network(case: Case) -> Iterator[tuple[dict[str, str], dict[str, Place]]]:
    """The case's namespaces and path; yields the namespace of each program by its role, and the capture positions."""
    with ExitStack() as stack:

        def made(role: str) -> str:
            return stack.enter_context(namespace(f"lookalike-{role}-{os.getpid()}"))

        ends = {end: made(end) for end in ("client", "server")}
        only = f"tcp port {PORT}" if case.family else "tcp"
        places = {end: Place(name, filter=only) for end, name in ends.items()}
        if case.ipv4_mtu or case.bridge:
            middle = made("middle")
            for end, device in (("client", "m0"), ("server", "m1")):
                veth(ends[end], "eth0", middle, device)
            if case.ipv4_mtu:
                router(middle, case.ipv4_mtu)
            else:
                bridge(middle)
                places["middle"] = Place(middle, "any", only)
        elif case.rtt_ms is None:
            veth(ends["client"], "eth0", ends["server"], "eth0")
        else:
            middle = made("middle")
            wire = python("wire.py", json.dumps(asdict(wire_of(case))))
            stack.enter_context(running(inside(middle, "chrt", "--fifo", "10", *wire), "ready"))
            for end, device in (("client", "c0"), ("server", "s0")):
                ip("-n", middle, "link", "set", device, "netns", ends[end], "name", "eth0")
            bridge(middle)
            places["middle"] = Place(middle, "m0", only)
        for end, name in ends.items():
            configure(case, end, name)
        if case.origin:
            places["both"] = Place(ends["server"], "any")
            if case.origin_at == "origin":
                ends["origin"] = made("origin")
                beside(ends["origin"], ends["server"])
        time.sleep(0.2)  # neighbours and bridge ports settle
        yield ends, places


def veth(a: str, device_a: str, b: str, device_b: str) -> None:
    """A cable between two namespaces."""
    ip("link", "add", device_a, "netns", a, "type", "veth", "peer", "name", device_b, "netns", b)


def wire_of(case: Case) -> Wire:
    """The path between the ends; a round trip crosses it four times."""
    rtt, path, drop = case.rtt_ms or 0, case.path, case.drop or Drop(0, 0)
    delay, jitter, later, queue = (
        round(ms * 1000 / 4) for ms in (rtt, case.jitter_ms, path.later_rtt_ms or 0, path.queue_ms)
    )
    return Wire(delay, jitter, drop.every, drop.first, later, queue, round(path.still_ms * 1000))


def bridge(middle: str) -> None:
    """Join the two halves of the path."""
    ip("-n", middle, "link", "add", "br0", "type", "bridge")
    for device in ("m0", "m1"):
        ip("-n", middle, "link", "set", device, "master", "br0", "up")
    ip("-n", middle, "link", "set", "br0", "up")


def router(middle: str, mtu: int) -> None:
    """A router between the ends, which forwards no larger packets to the client."""
    for device, end in (("m0", "client"), ("m1", "server")):
        ip("-n", middle, "link", "set", device, "up")
        ip("-n", middle, "address", "add", f"{ROUTER}/32", "dev", device)
        ip("-n", middle, "route", "add", ADDRESSES[False][end], "dev", device)
    ip("-n", middle, "link", "set", "m0", "mtu", str(mtu))
    sysctl(middle, "net.ipv4.ip_forward=1")


def beside(origin: str, server: str) -> None:
    """Connect the origin's namespace with the server's."""
    veth(server, "eth1", origin, "eth0")
    for name, device, address in ((server, "eth1", "10.78.0.1/24"), (origin, "eth0", f"{ORIGIN_ADDRESS}/24")):
        ip("-n", name, "link", "set", device, "up")
        ip("-n", name, "address", "add", address, "dev", device)
        sysctl(name, "net.ipv4.tcp_congestion_control=reno")


def configure(case: Case, end: str, name: str) -> None:
    """Addresses, routes and settings of one end."""
    address, net = ADDRESSES[case.ipv6][end], "fd77::/64" if case.ipv6 else "10.77.0.0/24"
    options = case.client_route if end == "client" else case.server_route
    if case.ipv4_mtu:  # and no offload, so that every packet has its true size
        ip("-n", name, "link", "set", "eth0", "gso_max_segs", "1", "up")
        ip("-n", name, "address", "add", f"{address}/32", "dev", "eth0")
        ip("-n", name, "route", "add", net, "via", ROUTER, "dev", "eth0", "onlink", "src", address, *options)
    else:
        ip("-n", name, "link", "set", "eth0", "up")
        ip("-n", name, "address", "add", f"{address}/{net.split('/')[1]}", "dev", "eth0", *(["nodad"] * case.ipv6))
        if options:
            ip("-n", name, "route", "replace", net, "dev", "eth0", "src", address, *options)
    settings = case.client_sysctls if end == "client" else case.server_sysctls
    for setting in ("net.ipv4.tcp_congestion_control=reno", *settings):
        sysctl(name, setting)


def sysctl(namespace: str, setting: str) -> None:
    """Change one setting of a namespace."""
    subprocess.run(inside(namespace, "sysctl", "-qw", setting), check=True)


@contextmanager
def capturing(place: Place, file: Path) -> Iterator[None]:
    """Run tcpdump at one place; at the end it is stopped, and must have written everything it received."""
    command = inside(place.namespace, "tcpdump", "-n", "-p", "-Z", "root", "-i", place.interface, "-s", "128",
                     "-B", "4096", "--immediate-mode", "--time-stamp-precision=nano", "-w", str(file),
                     *place.filter.split())  # fmt: skip
    with running(command, "listening on") as tcpdump:
        yield
        tcpdump.send_signal(signal.SIGINT)
        said, _ = tcpdump.communicate(timeout=10)
    captured, received, dropped = (int(n) for n in re.findall(r"^(\d+) packets", said, re.MULTILINE))
    lost = captured != received and place.interface not in ("any", "lo")  # lo: received twice, kept once
    if lost or dropped or not captured:
        raise SystemExit(f"{file}: {captured} packets captured of {received}, {dropped} dropped; record it again")


def record(case: Case, folder: Path) -> None:
    """Run one case, and write its captures, its log of writes and its truth."""
    folder.mkdir(parents=True, exist_ok=True)
    with network(case) as (namespaces, places), ExitStack() as captures:
        for position, place in places.items():
            captures.enter_context(capturing(place, folder / f"{position}.pcap"))
        logs = run_programs(case, namespaces)
        time.sleep(QUIET_S)
    for position in places:
        compress(folder / f"{position}.pcap")
    known = truth_of_family(case, logs, list(places)) if case.family else truth(case)
    writes = {"server_port": PORT, **logs}
    (folder / "writes.json").write_text(json.dumps(writes, separators=(",", ":")) + "\n")
    (folder / "truth.json").write_text(json.dumps(known, indent=2) + "\n")


def record_family(case: Case, folder: Path) -> None:
    """Record until the log agrees with the table, at most a few times."""
    for attempt in range(1, ATTEMPTS + 1):
        try:
            return record(case, folder)
        except (ContradictionError, SystemExit) as problem:  # or tcpdump lost packets
            print(f"{case.name}, attempt {attempt}: {problem}", flush=True)
    raise SystemExit(f"{case.name}: the log contradicts the table each time")


def run_programs(case: Case, namespaces: dict[str, str]) -> Logs:
    """Run all programs, each in the namespace of its role; returns their logs."""
    address = ADDRESSES[case.ipv6]["server"]
    with ExitStack() as stack:
        programs = []
        if case.origin:
            origin = python("programs.py", "origin", case.name, *map(str, case.origin_address))
            programs.append(stack.enter_context(running(inside(namespaces[case.origin_at], *origin), "ready")))
        server = python("programs.py", "server", case.name, address, str(PORT))
        programs.append(stack.enter_context(running(inside(namespaces["server"], *server), "ready")))
        for index in range(len(case.programs)):
            client = python("programs.py", "client", case.name, address, str(PORT), str(index))
            command = inside(namespaces["client"], *client)
            programs.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
            stack.callback(programs[-1].kill)
        said = [json.loads(program.communicate(timeout=TIMEOUT_S)[0]) for program in reversed(programs)]
    return {end: [log for logs in said for log in logs[end]] for end in ("server", "client")}


def truth(case: Case) -> dict[str, object]:
    """The contents of truth.json."""
    return {
        "verdict": case.verdict,
        "held_by": case.held_by,
        "why": case.why,
        "idle_gap": case.idle_gap or ("nagle_delayed_ack" if case.held_by else None),
        "exchanges": case.exchanges,
        "rtt_ms": case.rtt_ms,
    }


def truth_of_family(case: Case, logs: Logs, positions: list[str]) -> dict[str, object]:
    """The contents of truth.json for a family; raises ContradictionError if the log contradicts it."""
    if case.acks_at_once and (slowest := slowest_ack(logs)) > case.longest_path_ms + HELD_MS:
        raise ContradictionError(f"an ACK took {slowest:.1f} ms, the path at most {case.longest_path_ms} ms")
    exchanges = sum(len(connection) for program in case.programs for connection in program)
    ports = {position: (PORT, ORIGIN_PORT) if position == "both" else (PORT,) for position in positions}
    own = {position: truth_at(case, position, held(case, logs, ports[position])) for position in positions}
    return {
        "family": case.family,
        "why": case.why,
        "exchanges": exchanges,
        "rtt_ms": case.rtt_ms,
        "longest_path_ms": case.longest_path_ms,
        "acks_at_once": case.acks_at_once or case.unread,
        **({} if case.counted else {"counted": False}),
        "captures": own,
    }


def slowest_ack(logs: Logs) -> float:
    """The longest time that a write waited for its ACK, ms."""
    rows = [row for connections in logs.values() for log in connections for row in log["writes"]]
    return max((acked - left for *_, left, acked, _ in rows if left and acked), default=0) / MS


def held(case: Case, logs: Logs, ports: tuple[int, ...]) -> dict[str, list[float]]:
    """End → how long its segments on these server ports were held behind delayed ACKs, ms; 0 does not count."""
    found: dict[str, list[float]] = {}
    path = round(case.longest_path_ms * MS)
    for end, connections in logs.items():
        are_delayed = not (case.acks_at_once or case.unread)
        writes = [log["writes"] for log in connections if log["server_port"] in ports and are_delayed]
        holds = (hold for rows in writes for _, hold in holds_of(rows, path, HELD_MS * MS))
        found[end] = [hold / MS for hold in holds if hold]
    return found


def truth_at(case: Case, position: str, found: dict[str, list[float]]) -> dict[str, object]:
    """The truth about one capture, by the log; raises ContradictionError if the table contradicts it."""
    stalls = {end: sum(hold >= HELD_MS for hold in holds) for end, holds in found.items()}
    declared = case.held_in_view if position == "both" else case.held_by
    for end, count in stalls.items():
        is_declared = declared in (end, "both")
        if case.by_log and is_declared:
            continue
        if count < STALLS if is_declared else count:
            raise ContradictionError(f"{position}: {count} segments held by the {end}, declared: by {declared}")
    count = sum(count for end, count in stalls.items() if declared in (end, "both"))
    verdict = "STALL" if count >= STALLS else "CLEAN"
    also = ["INCONCLUSIVE"] if position in case.unsure else []
    if case.by_log:
        also = [other for other in ("STALL", "CLEAN", "INCONCLUSIVE") if other != verdict]
    return {
        "verdict": verdict,
        "held_by": declared if verdict == "STALL" else None,
        "stalls": count,
        "held_for_less": sum(len(holds) for holds in found.values()) - sum(stalls.values()),
        "also_acceptable": also,
    }


def compress(file: Path) -> None:
    """file → file.gz, the same bytes for the same capture."""
    with gzip.GzipFile(f"{file}.gz", "wb", mtime=0) as out:
        out.write(file.read_bytes())
    file.unlink()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--families", action="store_true", help="the families, and not the look-alikes")
    parser.add_argument("--into", type=Path, metavar="FOLDER")
    parser.add_argument("cases", nargs="*", metavar="CASE")
    arguments = parser.parse_args()
    failed = []
    for name in arguments.cases or (FAMILIES if arguments.families else CASES):
        print(name, flush=True)
        family = bool(ALL[name].family)
        into = arguments.into or CAPTURES / ("families" if family else "lookalikes")
        try:
            (record_family if family else record)(ALL[name], into / name)
        except (SystemExit, subprocess.SubprocessError, ValueError) as problem:
            failed.append(f"{name}: {problem}")
    if failed:
        raise SystemExit("\n".join(failed))
