"""The reference dissectors: Wireshark's view of a capture, row by row, to hold our packet table against.

assert differences(our_rows(path), tshark_rows(path)) == []
"""

import signal
import subprocess
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyshark

from support.rows import Row

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


def tshark_rows(path: Path) -> list[Row]:
    """The TCP segments of a capture file according to tshark, innermost headers."""
    preferences = [part for name, value in PREFERENCES.items() for part in ("-o", f"{name}:{value}")]
    fields = [part for name in FIELDS for part in ("-e", name)]
    command = ["tshark", "-n", "-r", str(path), *preferences, "-Y", FILTER, "-T", "fields", "-E", "occurrence=l"]
    output = subprocess.run([*command, *fields], check=True, capture_output=True, text=True).stdout
    return [_row(dict(zip(FIELDS, line.split("\t"), strict=True))) for line in output.splitlines()]


def pyshark_rows(path: Path) -> list[Row]:
    """The same through pyshark: slow, for small captures."""
    try:
        with pyshark.FileCapture(
            str(path), display_filter=FILTER, override_prefs=PREFERENCES, keep_packets=False
        ) as capture:
            return [_row(_pyshark_fields(packet)) for packet in capture]
    finally:  # its event loop leaves a handler for SIGCHLD that complains about every later child
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)


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
