"""Record random conversations, as root: `record_random.py FOLDER FIRST LAST [--jobs N]`, of the seeds FIRST to LAST.

Each runs in network namespaces of its own, removed afterwards: draw.py draws the plan, ends.py executes it, tcpdump
records at each end and in the middle, and truth.py derives the truth. FOLDER/SEED/ then holds plan.json,
calls.json.gz (the log), a capture for each position, one of them disturbed (disturb.py) in half of the conversations,
and truth.json.
"""

import argparse
import gzip
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from disturb import DISTURBANCES
from draw import Plan, draw
from frames import ETHERNET, read, write
from record import Place, bridge, capturing, compress, inside, ip, namespace, running, sysctl, veth
from truth import tell
from wire import Wire

HERE = Path(__file__).parent
WIRE = HERE.parent / "recorder" / "wire.py"
TIMEOUT_S = 30  # time limit of the programs
QUIET_S = 0.4  # time after them, for their last ACKs
ATTEMPTS = 3
NETS = {False: ("10.77.0.{}", "10.78.0.{}", 24), True: ("fd77::{}", "fd78::{}", 64)}
# A program that computes half of the time
NOISE = """import time
while True:
    end = time.monotonic() + 0.005
    while time.monotonic() < end: pass
    time.sleep(0.005)
"""


@dataclass
class Network:
    """The network of a conversation: the namespace of each role, its address, and the capture points."""

    namespaces: dict[str, str]
    addresses: dict[str, str]  # of the server on each hop: "front", "back"
    places: dict[str, Place]


@contextmanager
def network(plan: Plan, tag: str) -> Iterator[Network]:
    """The namespaces of a plan and the path between them."""
    with ExitStack() as stack:
        made: dict[str, str] = {}

        def configured(role: str) -> str:
            name = stack.enter_context(namespace(f"random-{role}-{tag}"))
            for setting in plan.settings.get(role, []):
                sysctl(name, setting)
            return name

        here = configured("client")
        made["client"] = here
        lo = "::1" if plan.ipv6 else "127.0.0.1"
        if plan.path.kind == "lo":
            made |= {"middle": here, "server": here}
            yield Network(made, {"front": lo, "back": lo}, {"lo": Place(here, "lo")})
            return
        front, back, _ = NETS[plan.ipv6]
        role = "middle" if plan.middle else "server"
        there = made[role] = configured(role)
        places = {"client": Place(here, "eth0"), role: Place(there, "eth0")}
        connect_front(plan, stack, tag, here, there, places)
        addresses = {"front": front.format(2)}
        if plan.middle and plan.back == "lo":
            made["server"] = there
            addresses["back"] = lo
            places |= {"back": Place(there, "lo"), "any": Place(there, "any")}
        elif plan.middle:
            made["server"] = behind = configured("server")
            veth(there, "eth1", behind, "eth0")
            address(plan, there, "eth1", back.format(1))
            address(plan, behind, "eth0", back.format(2))
            addresses["back"] = back.format(2)
            places |= {"back": Place(there, "eth1"), "server": Place(behind, "eth0"), "any": Place(there, "any")}
        time.sleep(0.2)  # neighbours and bridge ports settle
        yield Network(made, addresses, places)


def connect_front(plan: Plan, stack: ExitStack, tag: str, here: str, there: str, places: dict[str, Place]) -> None:
    """Make the path between the client and the server it asks, perhaps with a delay."""
    front = NETS[plan.ipv6][0]
    if plan.path.kind == "wire":
        wire = stack.enter_context(namespace(f"random-wire-{tag}"))
        command = ["chrt", "--fifo", "10", sys.executable, str(WIRE), json.dumps(asdict(wire_of(plan)))]
        stack.enter_context(running(inside(wire, *command), "ready"))
        bridge(wire)
        ip("-n", wire, "link", "set", "c0", "netns", here, "name", "eth0")
        ip("-n", wire, "link", "set", "s0", "netns", there, "name", "eth0")
        places["wire"] = Place(wire, "m0")
    else:
        veth(here, "eth0", there, "eth0")
    for name, number in ((here, 1), (there, 2)):
        address(plan, name, "eth0", front.format(number))
    if plan.quickack_route:
        name = here if plan.quickack_route == "client" else there
        net = "fd77::/64" if plan.ipv6 else "10.77.0.0/24"
        ip(*(["-6"] if plan.ipv6 else []), "-n", name, "route", "replace", net, "dev", "eth0", "quickack", "1")


def wire_of(plan: Plan) -> Wire:
    """What the path between the client and the server it asks does to frames."""
    named = {field.name for field in fields(Wire)}
    return Wire(lost_first=5, **{name: value for name, value in asdict(plan.path).items() if name in named})


def address(plan: Plan, name: str, device: str, own: str) -> None:
    """Set a device of a namespace up."""
    options = ["mtu", str(plan.path.mtu)] if plan.path.mtu else []
    if not plan.path.offload:
        options += ["gso_max_segs", "1"]
    ip("-n", name, "link", "set", device, *options, "up")
    nodad = ["nodad"] if plan.ipv6 else []
    ip("-n", name, "address", "add", f"{own}/{NETS[plan.ipv6][2]}", "dev", device, *nodad)


def run(plan: Plan, file: Path, net: Network) -> dict[str, list[list[int]]]:
    """Start the programs, the server first; returns what they logged."""
    front, back = net.addresses["front"], net.addresses.get("back", "")
    roles = [("server", back if plan.middle else front, "")]
    if plan.middle:
        roles.append(("middle", front, back))
    logs: dict[str, list[list[int]]] = {}
    with ExitStack() as stack:
        programs: list[subprocess.Popen[str]] = []
        if plan.noise:
            stack.callback(subprocess.Popen([sys.executable, "-c", NOISE]).kill)
        for role, own, upstream in roles:
            command = [sys.executable, str(HERE / "ends.py"), role, str(file), own, *([upstream] if upstream else [])]
            programs.append(stack.enter_context(running(inside(net.namespaces[role], *command), "ready")))
        command = [sys.executable, str(HERE / "ends.py"), "client", str(file), front]
        client = subprocess.Popen(inside(net.namespaces["client"], *command), stdout=subprocess.PIPE, text=True)
        stack.callback(client.kill)
        for program in (client, *reversed(programs)):
            logs |= json.loads(program.communicate(timeout=TIMEOUT_S)[0])
    return logs


def record(seed: int, folder: Path) -> None:
    """Run one conversation, and write everything about it."""
    folder.mkdir(parents=True, exist_ok=True)
    plan = draw(seed)
    file = folder / "plan.json"
    file.write_text(json.dumps(asdict(plan)) + "\n")
    with network(plan, f"{os.getpid()}-{seed}") as net, ExitStack() as captures:
        for position, place in net.places.items():
            captures.enter_context(capturing(place, folder / f"{position}.pcap"))
        logs = run(plan, file, net)
        time.sleep(QUIET_S)
    with gzip.open(folder / "calls.json.gz", "wt") as out:
        json.dump(logs, out, separators=(",", ":"))
    for position in net.places:
        compress(folder / f"{position}.pcap")
    tell(folder)
    disturb(seed, folder, sorted(net.places))


def disturb(seed: int, folder: Path, positions: list[str]) -> None:
    """Disturb one of the captures in half of the conversations."""
    r = random.Random(seed + 1_000_000)
    position, kind = r.choice(positions), r.choice(list(DISTURBANCES))
    link, frames = read(folder / f"{position}.pcap.gz")
    if r.random() < 0.5 and link == ETHERNET:
        write(folder / f"{position}+{kind}.pcap.gz", link, DISTURBANCES[kind](frames, r))


def attempt(folder: Path, seed: int) -> str:
    """Record until nothing is lost, at most a few times; returns the problem."""
    problem = ""
    for _ in range(ATTEMPTS):
        try:
            record(seed, folder / str(seed))
        except (SystemExit, subprocess.SubprocessError, ValueError, OSError) as failure:
            problem = f"{seed}: {failure!r:.300}"
            if isinstance(failure, subprocess.TimeoutExpired):
                break  # both ends write, and none reads: this would happen again
        else:
            return ""
    for path in (folder / str(seed)).iterdir():
        path.unlink()
    (folder / str(seed)).rmdir()
    return problem


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("first", type=int)
    parser.add_argument("last", type=int)
    parser.add_argument("--jobs", type=int, default=3, metavar="N", help="so many at the same time")
    arguments = parser.parse_args()
    with ThreadPoolExecutor(arguments.jobs) as pool:
        for problem in pool.map(lambda seed: attempt(arguments.folder, seed),
                                range(arguments.first, arguments.last + 1)):  # fmt: skip
            if problem:
                print(problem, flush=True)
