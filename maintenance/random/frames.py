"""The frames of a capture that tcpdump wrote, and their TCP segments; uses only Python's own library."""

import gzip
import struct
from dataclasses import dataclass
from pathlib import Path

SYN, FIN, ACK = 0x02, 0x01, 0x10
NANOSECONDS, ETHERNET = 0xA1B23C4D, 1
IPV4, IPV6, TCP = 0x0800, 0x86DD, 6
SECOND = 1_000_000_000


@dataclass(frozen=True)
class Frame:
    """One record of a capture."""

    at: int  # ns
    data: bytes
    length: int  # on the wire


@dataclass(frozen=True)
class Segment:
    """What a frame carries."""

    at: int
    source: int  # port
    target: int
    seq: int
    ack: int
    flags: int
    size: int  # of the payload


def read(path: Path) -> tuple[int, list[Frame]]:
    """The link type, and every frame."""
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    magic, link = struct.unpack_from("<I", data)[0], struct.unpack_from("<I", data, 20)[0]
    assert magic == NANOSECONDS, path
    frames, at = [], 24
    while at < len(data):
        seconds, ns, captured, length = struct.unpack_from("<IIII", data, at)
        at += 16
        frames.append(Frame(seconds * SECOND + ns, data[at : at + captured], length))
        at += captured
    return link, frames


def write(path: Path, link: int, frames: list[Frame]) -> None:
    """The same format again."""
    parts = [struct.pack("<IHHiIII", NANOSECONDS, 2, 4, 0, 0, 262144, link)]
    for frame in frames:
        parts += [struct.pack("<IIII", *divmod(frame.at, SECOND), len(frame.data), frame.length), frame.data]
    path.write_bytes(gzip.compress(b"".join(parts), mtime=0))


def segment(link: int, frame: Frame) -> Segment | None:
    """The TCP segment in a frame, or None."""
    data, ip = frame.data, 14 if link == ETHERNET else 20
    kind = int.from_bytes(data[12:14] if link == ETHERNET else data[:2], "big")
    if kind == IPV4 and data[ip + 9] == TCP:
        tcp = ip + (data[ip] & 15) * 4
        end = ip + int.from_bytes(data[ip + 2 : ip + 4], "big")
    elif kind == IPV6 and data[ip + 6] == TCP:
        tcp = ip + 40
        end = tcp + int.from_bytes(data[ip + 4 : ip + 6], "big")
    else:
        return None
    source, target, seq, ack, offset, flags = struct.unpack_from(">HHIIBB", data, tcp)
    return Segment(frame.at, source, target, seq, ack, flags, end - tcp - (offset >> 4) * 4)


def segments_of(path: Path) -> list[Segment]:
    """Every TCP segment of a capture."""
    link, frames = read(path)
    return [found for frame in frames if (found := segment(link, frame))]
