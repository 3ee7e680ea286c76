"""The reference dissectors: Wireshark's view of a capture, row by row, to hold our packet table against.

assert differences(our_rows(path), tshark_rows(path)) == []
"""

import ipaddress
import shutil
import subprocess
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import pyshark

from nagle_lab.capture import open_capture
from nagle_lab.packets import Packets, Tally, decode

# TCP, but not the header that an ICMP error quotes.
FILTER = "tcp && !icmp && !icmpv6"
# Every packet for itself: nothing put together from fragments or segments, nothing remembered.
PREFERENCES = {
    "ip.defragment": "FALSE",
    "ipv6.defragment": "FALSE",
    "tcp.analyze_sequence_numbers": "FALSE",
    "tcp.desegment_tcp_streams": "FALSE",
}
FIELDS = (
    "frame.number", "frame.time_epoch", "frame.protocols", "ip.src", "ip.dst", "ipv6.src", "ipv6.dst",
    "tcp.srcport", "tcp.dstport", "tcp.seq_raw", "tcp.ack_raw", "tcp.flags", "tcp.window_size_value", "tcp.len",
    "tcp.options.mss_val", "tcp.options.wscale.shift", "tcp.options.timestamp.tsval", "tcp.options.timestamp.tsecr",
)  # fmt: skip


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


def tshark() -> str:
    """Path of the program; an error, not a skipped test, if there is none."""
    path = shutil.which("tshark")
    assert path, "tshark is not installed, and these tests compare with it: apt-get install tshark"
    return path


def tshark_rows(path: Path) -> list[Row]:
    """The TCP segments of a capture file according to tshark, innermost headers."""
    preferences = [part for name, value in PREFERENCES.items() for part in ("-o", f"{name}:{value}")]
    fields = [part for name in FIELDS for part in ("-e", name)]
    command = [tshark(), "-n", "-r", str(path), *preferences, "-Y", FILTER, "-T", "fields", "-E", "occurrence=l"]
    output = subprocess.run([*command, *fields], check=True, capture_output=True, text=True).stdout
    return [_row(dict(zip(FIELDS, line.split("\t"), strict=True))) for line in output.splitlines()]


def pyshark_rows(path: Path) -> list[Row]:
    """The same through pyshark: slow, for small captures."""
    tshark()
    with pyshark.FileCapture(
        str(path), display_filter=FILTER, override_prefs=PREFERENCES, keep_packets=False
    ) as capture:
        return [_row(_pyshark_fields(packet)) for packet in capture]


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


def _row(fields: dict[str, str]) -> Row:
    def number(name: str) -> int | None:
        return int(fields[name], 0) if fields.get(name) else None

    layers = fields["frame.protocols"].split(":")
    ip = [layer for layer in layers[: layers.index("tcp")] if layer in ("ip", "ipv6")][-1]
    values = [number(name) for name in FIELDS[7:]]
    ts_ns = int(Decimal(fields["frame.time_epoch"]) * 1_000_000_000)
    frame = int(fields["frame.number"])
    return Row(frame, ts_ns, fields[f"{ip}.src"], fields[f"{ip}.dst"], *values)  # type: ignore[arg-type]


def _pyshark_fields(packet: Any) -> dict[str, str]:
    fields = {
        "frame.number": packet.number,
        "frame.time_epoch": packet.sniff_timestamp,
        "frame.protocols": packet.frame_info.protocols,
    }
    for layer in packet.layers:  # the innermost is the last
        for name in FIELDS[3:]:
            protocol, _, rest = name.partition(".")
            if layer.layer_name == protocol:
                fields[name] = str(layer.get_field(rest) or "")
    return fields


def _address(high: Any, low: Any) -> str:
    address = ipaddress.IPv6Address(int(high) << 64 | int(low))
    return str(address.ipv4_mapped or address)
