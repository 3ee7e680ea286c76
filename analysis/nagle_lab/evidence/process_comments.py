"""Which process is at which end of a connection, where comments on packets say so, as ptcpdump writes them.

ptcpdump names one process for each packet: that of the packet's source, if it knows it, otherwise that of its
destination. So two processes, one for each direction, are those of the two ends. One process for both directions is
at one end or at both: it belongs to the end whose packets are outbound, if no packet of the other end is. On loopback
packets of both directions are inbound and outbound, and interfaces of containers call packets from this machine's
processes inbound: there the end is not known.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path

from nagle_lab.capture.capture import open_capture
from nagle_lab.capture.comment_reader import INBOUND, OUTBOUND, CommentTaker
from nagle_lab.diagnosis.result.result import Connection, EndProcess, Result, Role
from nagle_lab.evidence.excerpt import EndPair, ways_of
from nagle_lab.packet.segment import Segment, decode

_LOOK = 2_000  # packets at the beginning of a file: if any packet has such a comment, one of these has
_MOST_PACKETS, _MOST_PROCESSES, _LONGEST = 1_000_000, 100, 200
_OF_CONTAINERS = re.compile(r"veth|br-|docker|cni|cali|flannel|lxc|vnet|tap|virbr")

_WINDOW = 1 << 18  # bytes; no more is read of a file without such comments

NamedProcess = tuple[int, str, str]  # id, executable, arguments


class _Seen:
    """What packets of one direction of a connection say."""

    def __init__(self) -> None:
        self.processes: Counter[NamedProcess] = Counter()
        self.directions: set[int] = set()

    @property
    def process(self) -> NamedProcess | None:
        """The process that most packets name."""
        return self.processes.most_common(1)[0][0] if self.processes else None


def processes_of(files: Sequence[Path], result: Result) -> list[EndProcess]:
    """The processes at the ends of the result's connections; empty where no comment names one.

    Raises NagleLabError if the capture cannot be read.
    """
    if "pcapng" not in result.source.format:
        return []
    seen = _read(files)
    found: Counter[tuple[Role | None, str, int | None, NamedProcess]] = Counter()
    for one in result.connections if seen else ():
        for role, process in _ends(one, seen):
            client = role == "client"
            end = one.client if client else one.server
            found[role, end.ip, None if client else end.port, process] += 1
    named = found.most_common(_MOST_PROCESSES)
    return [EndProcess(role, ip, port, *process, count) for (role, ip, port, process), count in named]


def _ends(connection: Connection, seen: dict[EndPair, _Seen]) -> list[tuple[Role | None, NamedProcess]]:
    """The role and the process of each known end; without a role if it may be either of the two."""
    asks, *_, answers = map(seen.get, ways_of(connection))
    of_client, of_server = (way.process if way else None for way in (asks, answers))
    process = of_client or of_server
    if process is None:
        return []
    if of_client and of_server and of_client != of_server:
        return [("client", of_client), ("server", of_server)]
    ways = (asks.directions if asks else set(), answers.directions if answers else set())
    if ways[0] <= {OUTBOUND} and ways[1] <= {INBOUND} and any(ways):
        return [("client", process)]
    if ways[0] <= {INBOUND} and ways[1] <= {OUTBOUND} and any(ways):
        return [("server", process)]
    return [(None, process)]


def _read(files: Sequence[Path]) -> dict[EndPair, _Seen]:
    seen: dict[EndPair, _Seen] = defaultdict(_Seen)

    def take(
        raw: bytearray, at: int, captured: int, original: int, link: int, comments: list[str], way: int, name: str
    ) -> None:
        if comments and (process := _process(comments)):
            segment = decode(raw, at, captured, original, link, 0, 0, 0, 0)
            if isinstance(segment, Segment):
                of = seen[segment.src, segment.sport, segment.dst, segment.dport]
                of.processes[process] += 1
                of.directions.add(0 if _OF_CONTAINERS.match(name) else way)

    taker = CommentTaker(take)
    with open_capture([str(file) for file in files], window_bytes=_WINDOW, sha256=False) as capture:
        for _ in capture.read(taker):
            if (not seen and taker.frames >= _LOOK) or taker.frames >= _MOST_PACKETS:
                break
    return dict(seen)


def _process(comments: Sequence[str]) -> NamedProcess | None:
    """The process in the comments of one packet: lines of a name and a value; those of its parent do not count."""
    said: dict[str, str] = {}
    for comment in comments:
        for line in comment.splitlines():
            name, colon, value = line.partition(":")
            if colon:
                said.setdefault(name.strip(), value.strip()[:_LONGEST])
    number = said.get("PID", "")
    if not number.isdecimal() or len(number) > 10 or not int(number):
        return None
    return int(number), said.get("Cmd") or said.get("Command", ""), said.get("Args", "")
