"""Packet tables as plain rows: what a test compares, whoever made them."""

import ipaddress
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from nagle_lab.capture import open_capture
from nagle_lab.packets import Packets, Tally, decode
from support.synthetic import FLAG_BITS, Packet, Segment


class Row(NamedTuple):
    """One TCP segment. None: not there (options), or not told (tshark's length of a fragment)."""

    frame: int
    ts_ns: int
    src: str
    dst: str
    sport: int
    dport: int
    seq: int
    ack: int
    flags: int
    window: int
    length: int | None
    mss: int | None
    wscale: int | None
    tsval: int | None
    tsecr: int | None


def our_rows(path: Path, **options: Any) -> list[Row]:
    """The same from the packet table; `options` go to open_capture."""
    with open_capture(path, **options) as capture:
        return [row for records in capture for row in rows_of(decode(records, Tally()))]


def rows_of(packets: Packets) -> list[Row]:
    """A packet table as rows."""
    p = packets
    return [
        Row(
            frame=int(p.frame[i]), ts_ns=int(p.ts[i]),
            src=_address(p.src_hi[i], p.src_lo[i]), dst=_address(p.dst_hi[i], p.dst_lo[i]),
            sport=int(p.sport[i]), dport=int(p.dport[i]), seq=int(p.seq[i]), ack=int(p.ack[i]),
            flags=int(p.flags[i]), window=int(p.window[i]), length=int(p.length[i]),
            mss=int(p.mss[i]) or None, wscale=int(p.wscale[i]) if p.wscale[i] >= 0 else None,
            tsval=int(p.tsval[i]) if p.has_ts[i] else None, tsecr=int(p.tsecr[i]) if p.has_ts[i] else None,
        )
        for i in range(len(p))
    ]  # fmt: skip


def differences(ours: list[Row], theirs: list[Row], most: int = 10) -> list[str]:
    """Where two tables disagree, in words; empty if they do not. A length the other does not tell is not compared."""
    left, right = {row.frame: row for row in ours}, {row.frame: row for row in theirs}
    found = [f"frame {frame}: only in ours" for frame in sorted(left.keys() - right.keys())]
    found += [f"frame {frame}: only in theirs" for frame in sorted(right.keys() - left.keys())]
    for frame in sorted(left.keys() & right.keys()):
        for name, our, their in zip(Row._fields, left[frame], right[frame], strict=True):
            if our != their and not (name == "length" and their is None):
                found.append(f"frame {frame}: {name} is {our} in ours, {their} in theirs")
    if len(left) != len(ours) or len(right) != len(theirs):
        found.append("a frame number occurs twice")
    return found[:most]


def truth(packets: Iterable[Packet], unit_ns: int = 1) -> list[Row]:
    """The rows that a capture of these packets must give; `unit_ns` is what its time stamps are rounded down to."""
    return [
        Row(
            frame, packet.ts_ns // unit_ns * unit_ns, packet.src, packet.dst, packet.sport, packet.dport, packet.seq,
            packet.ack, sum(FLAG_BITS[flag] for flag in packet.flags), packet.window, packet.length, packet.mss,
            packet.wscale, *(packet.timestamps or (None, None)),
        )
        for frame, packet in enumerate(packets, 1)
        if isinstance(packet, Segment)
    ]  # fmt: skip


def _address(high: Any, low: Any) -> str:
    address = ipaddress.IPv6Address(int(high) << 64 | int(low))
    return str(address.ipv4_mapped or address)
