"""The truth about a conversation: which segments the kernel held until a delayed ACK came.

It follows from the log of the programs (ends.py) and the undisturbed captures at both ends of a connection, which
have the same clock; no analyzer is involved. A segment was held for certain when

- after its first byte was written, the kernel said that it had not sent it (tcpi_notsent_bytes),
- neither TCP_NODELAY nor TCP_CORK nor MSG_MORE was set from then on, the congestion window and the peer's window had
  room, a smaller segment than the MSS was unacknowledged (Minshall), and the segment is itself smaller;
- it left when an ACK of earlier data arrived, and no call of the program fell between the two;
- that ACK is pure, and left the peer 20 ms or more after all that it acknowledges had arrived there;
- and it was held for 5 ms or longer.

If one of these is doubtful, the segment may count or not. That includes an ACK that was late by 4 to 22 ms: a short
timer, or a program that read late. With TCP_NODELAY set all the time, or without a late ACK, a segment is certainly
not a stall.

`truth.py FOLDER…` writes truth.json of recorded conversations again.
"""

import gzip
import json
import sys
from bisect import bisect_right
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from frames import ACK, SYN, Segment, segments_of

MS = 1_000_000  # ns
# Below the first limit certainly not, above the second certainly, in between doubtful.
LATE, HELD = (4 * MS, 22 * MS), (MS // 10, 5 * MS)
BEHIND = 1 * MS  # a segment leaves so soon after the ACK that releases it, even on a busy machine
FRONT_PORT, BACK_PORT = 7000, 8000
PORTS = {"front": FRONT_PORT, "back": BACK_PORT}

Row = list[int]
HALF, WRAP = 1 << 31, 1 << 32


@dataclass(frozen=True)
class Hold:
    """A segment that was held until an ACK came."""

    triggered: int  # when the data that the ACK acknowledges was sent, ns
    left: int
    first: int  # its bytes, counted from the connection's first
    end: int
    held: int  # ns
    late: int  # the ACK, ns after its data had arrived
    certain: bool
    why: str = ""


@dataclass
class Half:
    """One direction of a connection, in one capture: bytes are counted from the first."""

    first: int = -1  # sequence number
    data: list[tuple[int, int, int]] = field(default_factory=list)  # time, first byte, end; also again
    acks: list[tuple[int, int, int]] = field(default_factory=list)  # of the other end: time, acknowledged, size

    def new(self) -> list[tuple[int, int, int]]:
        """The data without retransmissions."""
        found, edge = [], 0
        for at, first, end in self.data:
            if end > edge:
                found.append((at, max(first, edge), end))
                edge = end
        return found

    def in_sequence(self) -> list[tuple[int, int]]:
        """Times at which all data up to a byte had arrived: the peer's rcv_nxt, if the capture is the peer's."""
        found, edge, waiting = [], 0, list[tuple[int, int]]()
        for at, first, end in self.data:
            waiting.append((first, end))
            before = edge
            for start, last in sorted(waiting):
                if start <= edge < last:
                    edge = last
            waiting = [(start, last) for start, last in waiting if last > edge]
            if edge > before:
                found.append((at, edge))
        return found

    def advances(self) -> list[tuple[int, int, int]]:
        """ACKs of something new."""
        found, edge = [], 0
        for at, acked, size in self.acks:
            if acked > edge:
                found.append((at, acked, size))
                edge = acked
        return found


def halves(segments: list[Segment], server_port: int) -> dict[tuple[int, str], Half]:
    """(the client's port, who sends) → that half of the connection."""
    found: dict[tuple[int, str], Half] = {}
    for one in segments:
        if server_port not in (one.source, one.target):
            continue
        by_server = one.source == server_port
        port = one.target if by_server else one.source
        own = found.setdefault((port, "server" if by_server else "client"), Half())
        peer = found.setdefault((port, "client" if by_server else "server"), Half())
        if one.flags & SYN:
            own.first = (one.seq + 1) % WRAP
        elif one.size and own.first >= 0:
            first = (one.seq - own.first) % WRAP
            own.data.append((one.at, first, first + one.size))
        if one.flags & ACK and peer.first >= 0 and (acked := (one.ack - peer.first) % WRAP) < HALF:
            peer.acks.append((one.at, acked, one.size))
    return found


def holds(rows: list[Row], here: Half, there: Half) -> list[Hold]:
    """Every segment held until an ACK that was late, or nearly late; from the log and the capture of its sender, and
    the peer's capture.
    """
    found: list[Hold] = []
    sent, acks = here.new(), here.advances()
    ack_times = [at for at, _, _ in acks]
    arrivals = there.in_sequence()
    departures = there.advances()
    for number, (left, first, end) in enumerate(sent):
        wrote = next((n for n, row in enumerate(rows) if row[2] > first), None)
        if wrote is None or rows[wrote][2] - rows[wrote][3] > first:
            continue
        held = left - rows[wrote][1]
        ack = bisect_right(ack_times, left) - 1
        if held < HELD[0] or ack < 0:
            continue
        at, acked, size = acks[ack]
        left_peer = next((t for t, done, _ in departures if done >= acked), None)
        arrived = next((t for t, last in arrivals if last >= acked), None)
        if left_peer is None or arrived is None or left_peer - arrived < LATE[0]:
            continue
        why = doubt(rows, wrote, sent[:number], acks[:ack], (left, first, end), at)
        if why is None:
            continue
        why = why or ("rides" if size else "")
        certain = not why and left_peer - arrived >= LATE[1] and held >= HELD[1]
        trigger = next(t for t, _, last in sent if last >= acked)
        found.append(Hold(trigger, left, first, end, held, left_peer - arrived, certain, why))
    return found


def doubt(
    rows: list[Row],
    wrote: int,
    before: Sequence[tuple[int, int, int]],
    earlier: Sequence[tuple[int, int, int]],
    segment: tuple[int, int, int],
    ack_at: int,
) -> str | None:
    """Why it is doubtful that Nagle's algorithm held the segment until that ACK; "" if it did; None if it did not."""
    left, first, end = segment
    during = [row for row in rows[wrote:] if row[0] < left]
    _, after, total, unsent, unacked, cwnd, window, mss, _, _, _ = rows[wrote]
    if all(row[8] for row in during):
        return None  # TCP_NODELAY
    una = max((acked for at, acked, _ in earlier if at <= after), default=0)
    una_left = max((acked for _, acked, _ in earlier), default=0)
    small = [last for _, start, last in before if last > una_left and (last - start) % mss]
    if left - ack_at > BEHIND:
        return None  # something else released it
    reasons = {
        "options changed": any(row[8] or row[9] or row[10] for row in during),
        "congestion window": unacked >= cwnd,
        "peer's window": total - unsent - una + end - first > window,
        "full": end - first >= mss,
        "nothing small before it": not small,
        "a call in between": any(row[1] > ack_at for row in during),
    }
    return ", ".join(reason for reason, holds in reasons.items() if holds)


def truth(logs: dict[str, list[Row]], ends: dict[str, dict[str, Path]]) -> dict[str, list[Hold]]:
    """ "HOP END" → what that end's kernel held; ``ends``: hop → end → the capture there."""
    found: dict[str, list[Hold]] = {}
    for hop, captures in ends.items():
        seen = {end: halves(segments_of(path), PORTS[hop]) for end, path in captures.items()}
        for end in ("client", "server"):
            whole = found.setdefault(f"{hop} {end}", [])
            peer = "server" if end == "client" else "client"
            for (port, sender), half in seen[end].items():
                there = seen[peer].get((port, sender))
                rows = logs.get(f"{hop} {end} {port}")
                if sender == end and rows and there:
                    whole += holds(rows, half, there)
    return found


def hops_seen(positions: Iterable[str], middle: str) -> dict[str, list[str]]:
    """Position → the hops that its capture shows."""
    both = ["front", "back"] if middle else ["front"]
    seen = {"lo": both, "any": both, "client": ["front"], "wire": ["front"], "middle": ["front"], "back": ["back"]}
    seen["server"] = both[-1:]
    return {position: seen[position] for position in positions}


def captures_at_ends(folder: Path, positions: Collection[str], middle: str) -> dict[str, dict[str, Path]]:
    """Hop → end → the capture there."""
    if "lo" in positions:
        at = dict.fromkeys(["front", "back"] if middle else ["front"], ("lo", "lo"))
    else:
        at = {"front": ("client", "middle" if middle else "server")}
        if middle:
            at["back"] = ("back", "server" if "server" in positions else "back")
    return {
        hop: {end: folder / f"{position}.pcap.gz" for end, position in zip(("client", "server"), ends, strict=True)}
        for hop, ends in at.items()
    }


def tell(folder: Path) -> None:
    """Write truth.json: what the captures in a folder show, and which end held which segments."""
    middle = json.loads((folder / "plan.json").read_text())["middle"]
    positions = [path.name.split(".")[0] for path in folder.glob("*.pcap.gz") if "+" not in path.name]
    with gzip.open(folder / "calls.json.gz") as file:
        logs = json.load(file)
    known = truth(logs, captures_at_ends(folder, positions, middle))
    said = {
        "hops": hops_seen(sorted(positions), middle),
        "ends": {end: [_as_json(hold) for hold in held] for end, held in known.items()},
    }
    (folder / "truth.json").write_text(json.dumps(said) + "\n")


def _as_json(hold: Hold) -> list[object]:
    """One row of truth.json; times in ns since 1970, and ms."""
    return [hold.triggered, hold.left, round(hold.held / MS, 1), round(hold.late / MS, 1), hold.certain, hold.why]


if __name__ == "__main__":
    for name in sys.argv[1:]:
        tell(Path(name))
