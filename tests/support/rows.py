"""Segments as plain rows, from any source, for comparison in tests."""

import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from nagle_lab.capture.capture import Capture, open_capture
from nagle_lab.capture.take import Taker
from nagle_lab.evidence.tshark import OurFrame, SegmentRow, compare_rows, segment_row
from nagle_lab.packet.segment import Segment as Decoded
from nagle_lab.packet.segment import decode
from support.synthetic import FLAG_BITS, Packet, Segment, pcap_bytes

__all__ = ["SegmentRow", "decoded", "differences", "our_rows", "read", "segment_row", "truth"]


def read(capture: Capture) -> list[Decoded | int]:
    """Each record of an open capture: a segment, or the kind of anything else."""
    found: list[Decoded | int] = []
    for _ in capture.read(Taker(lambda *record: found.append(decode(*record)))):
        pass
    return found


def our_rows(path: Path, **options: Any) -> list[SegmentRow]:
    """The TCP segments of a capture as we decode them; `options` go to open_capture."""
    with open_capture(path, **options) as capture:
        return [segment_row(segment) for segment in read(capture) if not isinstance(segment, int)]


def differences(ours: list[SegmentRow], theirs: list[SegmentRow], most: int = 10) -> list[str]:
    """Where two tables disagree, in words; empty if they do not. A length that the other table lacks is not
    compared.
    """
    return compare_rows((OurFrame(row.frame, row) for row in ours), theirs, most).first


def truth(packets: Iterable[Packet], unit_ns: int = 1) -> list[SegmentRow]:
    """The rows that a capture of these packets must give; its time stamps are rounded down to `unit_ns`."""
    return [
        SegmentRow(
            frame, packet.ts_ns // unit_ns * unit_ns, packet.src, packet.dst, packet.sport, packet.dport, packet.seq,
            packet.ack, sum(FLAG_BITS[flag] for flag in packet.flags), packet.window, packet.length, packet.mss,
            packet.wscale, *(packet.timestamps or (None, None)),
        )
        for frame, packet in enumerate(packets, 1)
        if isinstance(packet, Segment)
    ]  # fmt: skip


def decoded(packets: Iterable[Packet]) -> list[Decoded]:
    """The segments of these packets, as we decode them."""
    with tempfile.NamedTemporaryFile() as file:
        Path(file.name).write_bytes(pcap_bytes(packets))
        with open_capture(file.name) as capture:
            return [segment for segment in read(capture) if not isinstance(segment, int)]
