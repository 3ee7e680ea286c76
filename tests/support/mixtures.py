"""Two recorded captures as one: a server that does two things on one port, for two clients or for one.

A server holds data for one client, and pauses or has TCP_NODELAY for another; or it does both for one client, on two
connections. The truth of both captures is known, and therefore that of the mixture.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from nagle_lab.diagnosis.result.result import Result
from support.synthetic import ETHERNET, SECOND, US, Frame, pcap_bytes
from support.transforms import PORT, by_server, is_ethernet, read, sorted_by_time, tcp_of
from support.truth import Judgement, Labelled

IPV4, TCP = b"\x08\x00", 6
BEGINS_LATER = 1_700 * US  # how much later the second capture begins, if they run side by side
OTHER_CLIENTS = bytes((10, 99, 0))  # the first three bytes of their addresses
PORTS_APART = 9_777

_frames = cache(read)  # each capture is in several mixtures


@dataclass(frozen=True)
class Mixture:
    """Two captures taken at the same position, to be made into one."""

    one: Labelled
    other: Labelled
    are_side_by_side: bool  # otherwise the second begins a second after the first has ended
    have_one_client: bool  # otherwise each has its own

    @property
    def name(self) -> str:
        """The names of both captures."""
        how = f"{'beside' if self.are_side_by_side else 'before'}{', of its client,' if self.have_one_client else ''}"
        return f"{self.one.name} {how} {self.other.name}"

    def judge(self, result: Result) -> Judgement:
        """Whether a verdict on the mixture is true: STALL if either capture has stalls, with the number of both.

        A smaller number is honest if it leaves others open.
        """
        holding = [capture for capture in (self.one, self.other) if capture.verdict == "STALL"]
        stalls = result.summary.stalls
        if result.verdict == "INCONCLUSIVE":
            return Judgement.UNSURE
        if result.verdict != ("STALL" if holding else "CLEAN"):
            return Judgement.WRONG
        if stalls > sum(capture.stalls[1] if capture.stalls else stalls for capture in holding):
            return Judgement.WRONG
        least = sum(capture.stalls[0] if capture.stalls else 1 for capture in holding)
        return Judgement.RIGHT if stalls >= least else Judgement.UNSURE

    def write(self, path: Path) -> None:
        """Write one capture of both: the second capture gets the first one's server, and perhaps its client."""
        first, second = _frames(self.one.path), _frames(self.other.path)
        server, client = _ends(first[0])
        begins = first[0].ts_ns + BEGINS_LATER if self.are_side_by_side else first[-1].ts_ns + SECOND
        later = begins - second[0].ts_ns
        its_client = client if self.have_one_client else None
        second = [replace(_moved(frame, server, its_client), ts_ns=frame.ts_ns + later) for frame in second]
        path.write_bytes(pcap_bytes(sorted_by_time([*first, *second]), ETHERNET))


def can_be_mixed(captures: Sequence[Labelled]) -> list[Labelled]:
    """The captures of IPv4 on Ethernet that show only one server."""
    return [
        capture
        for capture in captures
        if capture.family != "copies" and capture.position != "both" and is_ethernet(capture.path)
        if all(map(_is_of_the_server, _frames(capture.path)))
    ]


def mixtures(captures: Sequence[Labelled], each: int) -> Iterator[Mixture]:
    """Each capture with ``each`` others, or all, taken at the same position.

    Mixtures at the client have one client, and so have some elsewhere; with one client, both paths have the same
    length.
    """
    alike: dict[tuple[str, int], list[Labelled]] = {}
    for capture in captures:
        alike.setdefault((capture.position, capture.rtt if capture.position == "client" else 0), []).append(capture)
    for group in alike.values():
        for number, one in enumerate(group):
            for turn in range(1, min(each, len(group) - 1) + 1):
                other = group[(number + turn * max(len(group) // (each + 1), 1)) % len(group)]
                is_odd = turn % 2 == 1
                have_one_client = one.position == "client" or (one.rtt == other.rtt and not is_odd)
                yield Mixture(one, other, is_odd, have_one_client)


def _is_of_the_server(frame: Frame) -> bool:
    data = frame.data
    if data[12:14] != IPV4 or data[23] != TCP:
        return False
    ports = data[tcp_of(frame) :][:4]
    return PORT in (int.from_bytes(ports[:2], "big"), int.from_bytes(ports[2:], "big"))


def _ends(frame: Frame) -> tuple[bytes, bytes]:
    """The addresses of server and client."""
    source, destination = frame.data[26:30], frame.data[30:34]
    return (source, destination) if by_server(frame) else (destination, source)


def _moved(frame: Frame, server: bytes, client: bytes | None) -> Frame:
    """A capture with another server; and with that client, on other ports, or with its own clients."""
    data, is_by_server, tcp = bytearray(frame.data), by_server(frame), tcp_of(frame)
    at_server, at_client = (26, 30) if is_by_server else (30, 26)
    data[at_server : at_server + 4] = server
    if client is None:
        data[at_client : at_client + 3] = OTHER_CLIENTS
    else:
        data[at_client : at_client + 4] = client
        at = tcp + 2 if is_by_server else tcp
        port = int.from_bytes(data[at : at + 2], "big")
        data[at : at + 2] = (port ^ PORTS_APART or PORTS_APART).to_bytes(2, "big")
    return replace(frame, data=bytes(data))
