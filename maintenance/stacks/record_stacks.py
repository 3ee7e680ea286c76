"""Record TCP stacks other than Linux, as root: `make -C maintenance stacks`; stack_cases.py is the table of cases.

Each case runs in a network namespace of its own, removed afterwards: a Linux socket (linux_peer.py) at one end of a
TAP device, a program with its own TCP stack at the other (previously built from smoltcp/, netstack/, lwip/ or
freebsd/). tcpdump runs on that device. For ns-3 both ends are simulated (ns3/). Needs iproute2 and tcpdump, and
../recorder and ../random in PYTHONPATH.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import frames
from record import Place, capturing, compress, inside, ip, namespace, running
from stack_cases import CASES, CONNECTIONS, EXCHANGES, LINUX, NS3, Case

HERE = Path(__file__).parent
FOLDER = HERE.parents[1] / "captures" / "stacks"
BUILT = HERE.parents[1] / ".cache" / "stacks"
PORT = 7000
LINUX_ADDRESS = "10.78.0.1/24"
HELD_NS = 4_000_000  # data that stayed in its sender's TCP that long was held
QUIET_S = 0.3
PROGRAMS_S = 120  # at most

BEHIND_ACK, RETRANSMITTED, PROBE = "until_an_ack", "until_the_ack_of_a_retransmission", "until_a_loss_probe"

Segment = tuple[int, int, int]  # when it left, its first byte and its end, counted from the connection's first byte
Row = list[int | None]  # of writes.json


@dataclass
class Direction:
    """The data that left the server on one connection, and when it was acknowledged."""

    first: int  # sequence number of its first byte
    sent: list[Segment] = field(default_factory=list)  # those with data
    acks: list[tuple[int, int]] = field(default_factory=list)  # (time, bytes acknowledged)

    def left(self, end: int) -> Segment:
        """The segment in which that byte first left."""
        return min(segment for segment in self.sent if segment[1] < end <= segment[2])

    def left_again(self, end: int) -> int:
        """When that byte left for the last time."""
        return max(when for when, first, last in self.sent if first < end <= last)

    def acknowledged(self, end: int) -> int:
        """When that byte was acknowledged."""
        return min(when for when, acked in self.acks if acked >= end)

    def let_go_by(self, segment: Segment, send: int) -> str:
        """What ended the hold of a segment that was written at ``send``."""
        leaves, first, _ = segment
        if max(acked for when, acked in self.acks if when <= leaves) < first:
            return PROBE
        again = any(send < when < leaves and self.left(end)[0] < when for when, _, end in self.sent)
        return RETRANSMITTED if again else BEHIND_ACK


def record(case: Case, folder: Path) -> None:
    """Run one case, and write its capture, its log of writes and its truth."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "capture.pcap"
    logs = simulate(case, file) if case.sender is NS3 else exchange_on_device(case, file)
    seen = frames.segments_of(file)
    sent = directions(seen)
    counts: Counter[str] = Counter()
    for log in logs:
        counts += held(sent[log["port"]], log["writes"])
    compress(file)
    served = [{"port": log["port"], "writes": rows(sent[log["port"]], log["writes"], seen[0].at)} for log in logs]
    writes = {"server_port": PORT, "server": served, "client": []}
    (folder / "writes.json").write_text(json.dumps(writes, separators=(",", ":")) + "\n")
    (folder / "truth.json").write_text(json.dumps(truth(case, counts), indent=2) + "\n")


def simulate(case: Case, file: Path) -> list[dict[str, Any]]:
    """Let ns-3 write the capture, at the server; returns the server's log."""
    command = [BUILT / "ns3/bin/python", HERE / "ns3/main.py", file, "nagle" if case.nagle else "nodelay"]
    settings = [str(CONNECTIONS), str(EXCHANGES), *case.steps, "--", *case.client_steps]
    said = subprocess.run([*command, *settings], check=True, capture_output=True, text=True, timeout=PROGRAMS_S)
    logs: list[dict[str, Any]] = json.loads(said.stdout)
    return logs


def exchange_on_device(case: Case, file: Path) -> list[dict[str, Any]]:
    """Record the programs of both stacks on a TAP device; returns the server's log."""
    with namespace(f"stacks-{os.getpid()}") as name:
        ip("-n", name, "tuntap", "add", "dev", "tap0", "mode", "tap")
        ip("-n", name, "address", "add", LINUX_ADDRESS, "dev", "tap0")
        ip("-n", name, "link", "set", "tap0", "up")
        with capturing(Place(name, "tap0"), file):
            logs = run_programs(case, name)
            time.sleep(QUIET_S)
    return logs


def run_programs(case: Case, name: str) -> list[dict[str, Any]]:
    """Run both programs; returns the server's log. The client makes one write per request."""
    commands = {}
    for role, stack, steps in (("server", case.sender, case.steps), ("client", case.receiver, case.client_steps)):
        linux = [sys.executable, str(HERE / "linux_peer.py")]
        program = linux if stack is LINUX else [str(BUILT / f"{stack.name}-peer")]
        nagle = "nagle" if case.nagle or role == "client" else "nodelay"
        settings = (nagle, str(case.ack_delay_of(stack)), str(CONNECTIONS), str(EXCHANGES))
        commands[role] = inside(name, *program, role, *settings, *steps)
    with running(commands["server"], "ready") as server:
        time.sleep(QUIET_S)  # the device of a stack comes up
        subprocess.run(commands["client"], check=True, stdout=subprocess.DEVNULL, timeout=PROGRAMS_S)
        said, _ = server.communicate(timeout=10)
    logs: list[dict[str, Any]] = json.loads(said)
    return logs


def directions(seen: Sequence[frames.Segment]) -> dict[int, Direction]:
    """Client port → what the server sent."""
    found: dict[int, Direction] = {}
    for one in seen:
        if one.source == PORT and one.flags & frames.SYN:
            found[one.target] = Direction((one.seq + 1) % 2**32)
        elif one.source == PORT and one.size:
            first = (one.seq - found[one.target].first) % 2**32
            found[one.target].sent.append((one.at, first, first + one.size))
        elif one.target == PORT and one.source in found:
            found[one.source].acks.append((one.at, (one.ack - found[one.source].first) % 2**32))
    return found


def held(direction: Direction, writes: list[list[int]]) -> Counter[str]:
    """How many segments were held, by what released them: those that left late after write()."""
    since: dict[Segment, int] = {}  # the first write whose last byte is in it
    for end, _, send in writes:
        since.setdefault(direction.left(end), send)
    return Counter(direction.let_go_by(s, send) for s, send in since.items() if s[0] - send >= HELD_NS)


def rows(direction: Direction, writes: list[list[int]], start: int) -> list[Row]:
    """The rows of writes.json; a write that left together with the next one has no times of its own."""
    found: list[Row] = []
    for number, (end, size, send) in enumerate(writes):
        together = number + 1 < len(writes) and direction.left(writes[number + 1][0]) == direction.left(end)
        times = (direction.left(end)[0], direction.left_again(end), direction.acknowledged(end))
        found.append([end, size, send - start, *(None if together else when - start for when in times)])
    return found


def truth(case: Case, counts: Counter[str]) -> dict[str, object]:
    """The contents of truth.json; ends the program if the stacks did not do what the table says."""
    if case.held != bool(counts[BEHIND_ACK]):
        raise SystemExit(f"{case.name}: held is {case.held} by the table; by the log of writes {dict(counts)}")
    return {
        "verdict": "STALL" if case.held else "CLEAN",
        "stalls": counts[BEHIND_ACK] if case.counted else None,
        "held_by": "server" if case.held else None,
        "also_acceptable": case.also_acceptable,
        "family": "other stacks",
        "why": case.why,
        "sender": case.sender.name,
        "receiver": case.receiver.name,
        "exchanges": CONNECTIONS * EXCHANGES,
        "held": dict(sorted(counts.items())),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--into", type=Path, default=FOLDER, metavar="FOLDER")
    parser.add_argument("cases", nargs="*", metavar="CASE")
    arguments = parser.parse_args()
    for name in arguments.cases or CASES:
        print(name, flush=True)
        record(CASES[name], arguments.into / name)
