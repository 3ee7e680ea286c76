"""The TCP segments of a capture, read again: of all of it, or of some connections, from a frame on."""

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from nagle_lab.capture.capture import Capture, open_capture
from nagle_lab.capture.take import records
from nagle_lab.packet.segment import Segment, decode
from nagle_lab.tcp import compiled
from nagle_lab.tcp.layout import LAYOUTS
from nagle_lab.tcp.tables import Table

EndPair = tuple[bytes, int, bytes, int]
"""The two ends of a connection: address (16 bytes, IPv4 mapped into IPv6) and port of each."""


def segments(
    path: Path | Sequence[Path | str],
    *,
    ends: Collection[EndPair] | None = None,
    first_frame: int = 1,
) -> Iterator[Segment]:
    """Every segment of a capture file, or of rotated ones, in file order.

    Only those between one of the pairs ``ends``, in either direction, and from ``first_frame`` on; no more
    is read than what is asked for takes.

    Raises
    ------
    NagleLabError
        The capture cannot be read.
    """
    ways = None if ends is None else {way for pair in ends for way in (pair, pair[2:] + pair[:2])}
    only = next(iter(ends)) if ends is not None and len(ends) == 1 else None
    read = _decoded if compiled.LIBRARY is None else _collected
    with open_capture(path, sha256=False) as capture:
        for segment in read(capture, only, first_frame):
            if ways is None or (segment.src, segment.sport, segment.dst, segment.dport) in ways:
                yield segment


def _decoded(capture: Capture, _: EndPair | None, first_frame: int) -> Iterator[Segment]:
    """In plain Python; of all connections."""
    for record in records(capture):
        if record.frame >= first_frame and isinstance(segment := decode(*record), Segment):
            yield segment


def _collected(capture: Capture, only: EndPair | None, first_frame: int) -> Iterator[Segment]:
    """By the compiled engine; of all connections, or those of ``only`` one pair of ends."""
    assert compiled.LIBRARY is not None
    with compiled.CompiledEngine(compiled.LIBRARY) as engine:
        engine.collect(only, first_frame)
        for _ in capture.read(engine):
            engine.drain()
            rows, engine.tables.segment = engine.tables.segment, Table(LAYOUTS["segment"])
            for row in rows.rows():
                yield Segment(*row)
