"""Packet tables as plain rows: what a test compares, whoever made them."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from nagle_lab.capture import open_capture
from nagle_lab.evidence.tshark import Ours, Row, compare, rows_of
from nagle_lab.packet import Tally, decode
from support.synthetic import FLAG_BITS, Packet, Segment

__all__ = ["Row", "differences", "our_rows", "rows_of", "truth"]


def our_rows(path: Path, **options: Any) -> list[Row]:
    """The TCP segments of a capture from the packet table; `options` go to open_capture."""
    with open_capture(path, **options) as capture:
        return [row for records in capture for row in rows_of(decode(records, Tally()))]


def differences(ours: list[Row], theirs: list[Row], most: int = 10) -> list[str]:
    """Where two tables disagree, in words; empty if they do not. A length the other does not tell is not compared."""
    return compare((Ours(row.frame, row) for row in ours), theirs, most).first


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
