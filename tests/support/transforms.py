"""Recorded captures changed as capturing may change them, with known truth.

Each transformation takes the packets of one capture, and gives those of another: with coarse timestamps, with losses,
in the wrong order, in part, or several times over.
"""

import gzip
import json
import random
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from support.synthetic import ETHERNET, MS, SECOND, US, Frame, checksum, pcap_bytes
from support.truth import Labelled

Frames = list[Frame]
PORT = 7000  # of the server, in every recorded capture
IPV6 = b"\x86\xdd"  # EtherType
SYN, ACK = 0x02, 0x10
COPIED_AFTER = 20 * US


# ------------------------------------------------------------------------------------------- packets


def is_ethernet(path: Path) -> bool:
    """Whether it is a capture that :func:`read` reads."""
    with gzip.open(path) as file:
        header = file.read(24)
    return (header[:4], header[20:]) == (struct.pack("<I", 0xA1B23C4D), struct.pack("<I", ETHERNET))


def read(path: Path) -> Frames:
    """The packets of a recorded capture: little-endian, nanoseconds, Ethernet."""
    assert is_ethernet(path), path
    data = gzip.decompress(path.read_bytes())
    frames, at = [], 24
    while at < len(data):
        seconds, ns, captured, original = struct.unpack_from("<IIII", data, at)
        at += 16
        frames.append(Frame(seconds * SECOND + ns, data[at : at + captured], original))
        at += captured
    return frames


def tcp_of(frame: Frame) -> int:
    """Where its TCP header begins."""
    return 54 if frame.data[12:14] == IPV6 else 14 + (frame.data[14] & 15) * 4


def by_server(frame: Frame) -> bool:
    """Whether the server sent it."""
    return int.from_bytes(frame.data[tcp_of(frame) :][:2], "big") == PORT


def _client_port(frame: Frame) -> bytes:
    ports = frame.data[tcp_of(frame) :][:4]
    return ports[2:] if by_server(frame) else ports[:2]


def _flags(frame: Frame) -> int:
    return frame.data[tcp_of(frame) + 13]


def sorted_by_time(frames: Frames) -> Frames:
    """In the order of their times."""
    return sorted(frames, key=lambda frame: frame.ts_ns)


# --------------------------------------------------------------------------------- the transformations


def stamped_in_units_of(ns: int) -> Callable[[Frames], Frames]:
    """Timestamps of a coarse clock."""
    return lambda frames: [replace(frame, ts_ns=frame.ts_ns // ns * ns) for frame in frames]


def stamped_in_steps_of(seconds: float) -> Callable[[Frames], Frames]:
    """Timestamps of a coarse clock, rounded down to microseconds: its steps have no common divisor."""

    def stamped(ns: int) -> int:
        return int(ns / SECOND // seconds * seconds * 1e6) * US

    return lambda frames: [replace(frame, ts_ns=stamped(frame.ts_ns)) for frame in frames]


def server_clock_behind(ns: int) -> Callable[[Frames], Frames]:
    """The server's packets are stamped so much too early, as by another capture card; in the order of the stamps."""
    return lambda frames: sorted_by_time([replace(f, ts_ns=f.ts_ns - ns) if by_server(f) else f for f in frames])


def stamped_late(frames: Frames) -> Frames:
    """Every packet is stamped up to some 100 µs late, as on a busy host; the stamps stay in order."""
    chance, latest, changed = random.Random(4), 0, []
    for frame in frames:
        latest = max(latest + US, frame.ts_ns + int(chance.expovariate(1 / (30 * US))))
        changed.append(replace(frame, ts_ns=latest))
    return changed


def cut_short(size: int) -> Callable[[Frames], Frames]:
    """Only the first bytes of every packet were captured: with 64 there are no TCP timestamps."""
    return lambda frames: [replace(frame, data=frame.data[:size]) for frame in frames]


def with_losses(percent: float) -> Callable[[Frames], Frames]:
    """The capture has lost so many of the packets."""

    def change(frames: Frames) -> Frames:
        chance = random.Random(2)
        return [frame for frame in frames if chance.random() >= percent / 100]

    return change


def with_swaps(frames: Frames) -> Frames:
    """2 % of the packets have changed places with the next; the stamps stay in order."""
    chance = random.Random(3)
    swapped = list(frames)
    for i in range(len(frames) - 1):
        if chance.random() < 0.02:
            a, b = swapped[i], swapped[i + 1]
            swapped[i], swapped[i + 1] = replace(b, ts_ns=a.ts_ns), replace(a, ts_ns=b.ts_ns)
    return swapped


def begun_late(frames: Frames) -> Frames:
    """Every connection's first six packets are missing: handshake, request, and its answer."""
    seen: dict[bytes, int] = {}
    kept = []
    for frame in frames:
        port = _client_port(frame)
        seen[port] = seen.get(port, 0) + 1
        if seen[port] > 6:
            kept.append(frame)
    return kept


def without_syn(frames: Frames) -> Frames:
    """The client's SYN is missing; the server's is there."""
    return [frame for frame in frames if _flags(frame) & (SYN | ACK) != SYN]


def without_handshake(frames: Frames) -> Frames:
    """Neither SYN is there."""
    return [frame for frame in frames if not _flags(frame) & SYN]


def of_server_only(frames: Frames) -> Frames:
    """Only what the server sends."""
    return [frame for frame in frames if by_server(frame)]


def of_client_only(frames: Frames) -> Frames:
    """Only what the client sends."""
    return [frame for frame in frames if not by_server(frame)]


def doubled(frames: Frames) -> Frames:
    """Every packet twice, as on a bridge."""
    return sorted_by_time([*frames, *(replace(frame, ts_ns=frame.ts_ns + COPIED_AFTER) for frame in frames)])


def doubled_by_nat(frames: Frames) -> Frames:
    """Every packet twice: before and after a NAT has given the client another address."""
    return sorted_by_time([*frames, *(replace(_renamed(f), ts_ns=f.ts_ns + COPIED_AFTER) for f in frames)])


def _renamed(frame: Frame) -> Frame:
    data = bytearray(frame.data)
    client = 30 if by_server(frame) else 26
    data[client : client + 4] = bytes((192, 0, 2, 7))
    header = slice(14, tcp_of(frame))
    data[24:26] = bytes(2)
    data[24:26] = checksum(bytes(data[header])).to_bytes(2, "big")
    return replace(frame, data=bytes(data))


# ------------------------------------------------------------------------------------------- captures


@dataclass(frozen=True)
class Transform:
    """A transformation, and its effect on a capture's truth."""

    name: str
    change: Callable[[Frames], Frames]
    verdict: str | None = None  # None: as before
    unsure: tuple[str, ...] = ()  # true verdicts for which INCONCLUSIVE is honest, too
    found: float = 1  # the share of the stalls that must still be found


ANY, NOT_CLEAN = ("STALL", "CLEAN"), ("CLEAN",)
TRANSFORMS = (
    Transform("stamps-1us", stamped_in_units_of(US)),
    Transform("stamps-100us", stamped_in_units_of(100 * US), unsure=ANY),
    *(Transform(f"stamps-{ms}ms", stamped_in_units_of(ms * MS), unsure=ANY) for ms in (1, 4, 10)),
    Transform("stamps-a-1024th", stamped_in_steps_of(1 / 1024), unsure=ANY),
    Transform("stamps-15.6ms", stamped_in_steps_of(0.015_600_1), unsure=ANY),
    Transform("stamps-late", stamped_late, unsure=ANY),
    Transform("clock-behind-3ms", server_clock_behind(3 * MS), unsure=ANY),
    Transform("clock-behind-300us", server_clock_behind(300 * US), unsure=ANY),
    Transform("cut-to-64", cut_short(64), unsure=ANY),
    Transform("lost-half-a-percent", with_losses(0.5), found=0.9),
    Transform("lost-2-percent", with_losses(2), unsure=NOT_CLEAN, found=0.8),
    Transform("lost-5-percent", with_losses(5), unsure=ANY, found=0.6),
    Transform("swapped-2-percent", with_swaps, unsure=NOT_CLEAN, found=0.8),
    Transform("begun-late", begun_late, unsure=ANY),
    Transform("without-syn", without_syn),
    Transform("without-handshake", without_handshake, unsure=ANY),
    Transform("server-only", of_server_only, verdict="INCONCLUSIVE"),
    Transform("client-only", of_client_only, verdict="INCONCLUSIVE"),
    Transform("doubled", doubled),
    Transform("doubled-by-nat", doubled_by_nat),
)

BASES = (
    "two-writes/server", "two-writes/client", "two-writes-rtt-10/server", "two-writes-rtt-10/client",
    "halves-rtt-10/client", "slow-mixed/server",
    "two-writes-nodelay-rtt-10/client", "large-first-nodelay/server", "clean-think/server", "clean-echo/client",
    "pause-44-nodelay/server", "pause-50-nodelay/client",
    "chain-proxy-rtt-1/client", "wait-rcvtimeo-40-rtt-1/middle", "wait-credit-udp/server", "two-kinds/client",
    "smoltcp-two-writes/capture", "lwip-pause-40-nodelay/capture",
)  # fmt: skip


def transformed(captures: list[Labelled], folder: Path) -> Iterator[Labelled]:
    """Write every transformation of the captures in BASES into the folder; and two ends' captures as one.

    ``captures`` are those of the families and of other stacks.
    """
    by_name = {capture.name: capture for capture in captures}
    for base in BASES:
        for transform in TRANSFORMS:
            yield _apply(transform, by_name[base], folder)
    for base in ("two-writes", "large-first-nodelay"):
        yield _merged(by_name[f"{base}/server"], by_name[f"{base}/client"], folder)


def transformed_everywhere(captures: list[Labelled], folder: Path) -> Iterator[Labelled]:
    """Every transformation of each of these captures, one after the other, in one file; stalls are not counted."""
    for capture in captures:
        if capture.family == "copies" or not is_ethernet(capture.path):
            continue  # already made of several, or cooked
        for transform in TRANSFORMS:
            made = _apply(transform, capture, folder)
            only_one = ("STALL",) if capture.held_by == "both" else ()  # only one of the two ends may be named
            yield replace(made, stalls=None, also=tuple(sorted({*made.also, *only_one, "INCONCLUSIVE"})))
            made.path.unlink()


def _apply(transform: Transform, capture: Labelled, folder: Path) -> Labelled:
    also = {*capture.also, *(("INCONCLUSIVE",) if capture.verdict in transform.unsure else ())}
    frames = transform.change(read(capture.path))
    if transform.verdict:
        changed = replace(capture, verdict=transform.verdict, held_by=None, stalls=None, also=())
    elif capture.stalls and transform.found < 1:
        least, most = capture.stalls
        changed = replace(capture, stalls=(int(least * transform.found), most), also=tuple(sorted(also)))
    else:
        changed = replace(capture, also=tuple(sorted(also)))
    return _write(changed, frames, transform.name, folder)


def _merged(server: Labelled, client: Labelled, folder: Path) -> Labelled:
    """The captures of both ends in one file: every packet twice, some 10 µs apart."""
    return _write(server, sorted_by_time([*read(server.path), *read(client.path)]), "ends-merged", folder)


def _write(capture: Labelled, frames: Frames, name: str, folder: Path) -> Labelled:
    path = folder / f"{capture.path.parent.name}+{name}" / f"{capture.position}.pcap"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(pcap_bytes(frames, ETHERNET))
    return replace(capture, path=path, family=f"+ {name}")


if __name__ == "__main__":  # to look at them: PYTHONPATH=tests python -m support.transforms FOLDER
    import sys

    from support.truth import families

    into = Path(sys.argv[1])
    truth = {c.name: [c.verdict, *c.also, c.stalls] for c in transformed(families(), into)}
    (into / "truth.json").write_text(json.dumps(truth, indent=1) + "\n")
