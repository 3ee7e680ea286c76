"""Wireshark's view of a capture, row by row: through our own tshark reader, and independently through pyshark.

assert differences(our_rows(path), tshark_rows(path)) == []
"""

import signal
from pathlib import Path
from typing import Any

import pyshark

from nagle_lab.evidence import tshark as dissect
from nagle_lab.evidence.tshark import FIELDS, FILTER, PREFERENCES, SegmentRow, Tshark


def tshark_rows(path: Path) -> list[SegmentRow]:
    """The TCP segments of a capture file according to tshark, innermost headers."""
    with Tshark(path, dissect.ROW_ARGUMENTS, PREFERENCES) as lines:
        rows = list(dissect.tshark_rows(lines))
        assert not lines.complaint, lines.complaint
        return rows


def pyshark_rows(path: Path) -> list[SegmentRow]:
    """The same through pyshark: slow, for small captures."""
    try:
        with pyshark.FileCapture(
            str(path), display_filter=FILTER, override_prefs=PREFERENCES, keep_packets=False
        ) as capture:
            return [dissect.row_from(_pyshark_fields(packet)) for packet in capture]
    finally:  # its event loop leaves a SIGCHLD handler that complains about every later child
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)


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
