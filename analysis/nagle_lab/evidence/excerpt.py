"""Packets of chosen connections, and segments of a capture, read again for every view that shows packets."""

from collections import defaultdict, deque
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from nagle_lab.capture.capture import Capture, open_capture
from nagle_lab.capture.take import records
from nagle_lab.diagnosis.result.result import Connection, Endpoint
from nagle_lab.errors import NagleLabError
from nagle_lab.evidence.file_names import file_names
from nagle_lab.packet.segment import ACK, FIN, PSH, RST, SYN, Segment, decode, packed_address
from nagle_lab.tcp import compiled
from nagle_lab.tcp.layout import LAYOUTS
from nagle_lab.tcp.learned import RECENT, is_copy
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

    Only those between one of the pairs ``ends``, in either direction, and from ``first_frame`` on. No more is read
    than necessary. Raises NagleLabError if the capture cannot be read.
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
    """By the compiled engine; of all connections, or of the one between the ends ``only``."""
    assert compiled.LIBRARY is not None
    with compiled.CompiledEngine(compiled.LIBRARY) as engine:
        engine.collect(only, first_frame)
        for _ in capture.read(engine):
            engine.drain()
            rows, engine.tables.segment = engine.tables.segment, Table(LAYOUTS["segment"])
            for row in rows.rows():
                yield Segment(*row)


_FLAGS = ((SYN, "SYN"), (FIN, "FIN"), (RST, "RST"), (PSH, "PSH"), (ACK, "ACK"))


@dataclass(frozen=True)
class Step:
    """One packet of a connection."""

    frame: int
    ts: int  # ns since the epoch
    from_client: bool
    length: int  # payload bytes
    flags: str  # "PSH,ACK"
    seq: int  # as on the wire, modulo 2**32
    ack: int
    again: bool = False  # a packet that was captured already, on another interface


@dataclass(frozen=True)
class Excerpt:
    """Consecutive packets of one connection."""

    connection: Connection
    steps: Sequence[Step]
    first: int  # the number of the first packet on its connection, from 1
    file: str = ""  # the file of the frames, or the first and the last of rotated ones


@dataclass(frozen=True)
class PacketWindow:
    """The packets to read of a connection: frames ``start`` to ``end``, and some on either side."""

    connection: Connection
    start: int
    end: int
    before: int = 0  # how many packets at most
    after: int = 0
    at_most: int = 1 << 30  # packets in all


def excerpts(files: Sequence[Path | str], windows: Sequence[PacketWindow]) -> list[Excerpt]:
    """One excerpt for each window, in one reading, which ends with the last packet wanted.

    ``files`` is the capture, or the rotated ones that are read as one.
    """
    readers = [_Reader(window) for window in windows]
    connections = {window.connection.id: window.connection for window in windows}
    for connection, step in _packets(files, list(connections.values())):
        for reader in readers:
            if reader.window.connection.id == connection.id:
                reader.take(step)
        if all(reader.done for reader in readers):
            break
    return [reader.excerpt(file_names(files)) for reader in readers]


def require_frames(excerpt: Excerpt, frames: Collection[int]) -> None:
    """Raise NagleLabError unless these frames, which the capture had when it was judged, are still in the excerpt."""
    if not set(frames) <= {step.frame for step in excerpt.steps}:
        raise NagleLabError(f"{excerpt.file}: changed while it was read: copy it, then name the copy")


def packets_of(files: Path | Sequence[Path | str], connection: Connection) -> Iterator[Step]:
    """Every packet of the connection, in capture order."""
    return (step for _, step in _packets(files, [connection]))


class _Reader:
    """Picks the packets of one window from those of its connection."""

    def __init__(self, window: PacketWindow) -> None:
        self.window = window
        self.done = False
        self._before: deque[Step] = deque(maxlen=window.before)
        self._steps: list[Step] = []
        self._passed = self._after = 0

    def take(self, step: Step) -> None:
        """Take the next packet of the connection, if the window wants it."""
        if self.done:
            return
        if step.frame < self.window.start:
            self._before.append(step)
            self._passed += 1
            return
        if step.frame > self.window.end:
            if self._after == self.window.after:
                self.done = True
                return
            self._after += 1
        self._steps.append(step)
        self.done = len(self._before) + len(self._steps) >= self.window.at_most

    def excerpt(self, file: str) -> Excerpt:
        """The packets picked, from the capture of that name."""
        first = self._passed - len(self._before) + 1
        return Excerpt(self.window.connection, [*self._before, *self._steps], first, file)


def _packets(
    files: Path | Sequence[Path | str], connections: Sequence[Connection]
) -> Iterator[tuple[Connection, Step]]:
    """The packets of some connections, in capture order."""
    # Who sends in that direction: the connection, and whether it is its client.
    senders: dict[EndPair, list[tuple[Connection, bool]]] = {}
    untranslated: dict[EndPair, EndPair] = {}
    for connection in connections:
        asks, *answers = ways_of(connection)
        senders.setdefault(asks, []).append((connection, True))
        for way in answers:
            if way != asks:
                senders.setdefault(way, []).append((connection, False))
            untranslated[way] = answers[0]
    first_frame = min((connection.first_frame for connection in connections), default=1)
    recent: defaultdict[EndPair, deque[Segment]] = defaultdict(lambda: deque(maxlen=RECENT))
    copied: set[EndPair] = set()  # ends that sent data or a SYN that was captured twice
    for s in segments(files, ends=senders, first_frame=first_frame):
        way = s.src, s.sport, s.dst, s.dport
        ends = untranslated.get(way, way)
        back = ends[2:] + ends[:2]
        flags = ",".join(name for bit, name in _FLAGS if s.flags & bit)
        again = is_copy(s, recent[ends], copied=ends in copied or back in copied)
        if not again:
            recent[ends].append(s)
        elif s.length or s.flags & SYN:
            copied.add(ends)
        for connection, from_client in senders.get(way, ()):
            if s.frame >= connection.first_frame:
                yield connection, Step(s.frame, s.ts, from_client, s.length, flags, s.seq, s.ack, again)


def ways_of(connection: Connection) -> list[EndPair]:
    """Source and destination of the client's segments, then of the server's, also as translated (``answers_as``)."""
    client = packed_endpoint(connection.client)
    answering = [connection.server, *([connection.answers_as] if connection.answers_as else [])]
    return [(*client, *packed_endpoint(connection.server)), *((*packed_endpoint(end), *client) for end in answering)]


def packed_endpoint(endpoint: Endpoint) -> tuple[bytes, int]:
    """The address (16 bytes, IPv4 mapped into IPv6) and the port of an end."""
    return packed_address(endpoint.ip), endpoint.port
