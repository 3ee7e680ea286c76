"""The result of one capture: the one model behind every report, and the contract "nagle-lab/1" of ``--json``.

The field names are the contract (docs/result.md, schema/result.schema.json); times are in the unit the name ends
with. The same file gives the same result, byte for byte, wherever and whenever it is analysed.
"""

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, Self

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from nagle_lab.capture.kernel_answers import SocketAddress
from nagle_lab.diagnosis.proof.outcomes import Ground, Obstacle, Rejected
from nagle_lab.diagnosis.result.idle_gaps import Cause
from nagle_lab.diagnosis.result.json_text import json_text
from nagle_lab.diagnosis.result.schema import schema_of, schema_text
from nagle_lab.diagnosis.result.spread import Spread, plural, times_text
from nagle_lab.diagnosis.result.verdict import Undecided, Verdict
from nagle_lab.diagnosis.result.writes import Writes
from nagle_lab.packet.segment import end_text

SCHEMA: Literal["nagle-lab/1"] = "nagle-lab/1"

LARGEST = (1 << 53) - 1  # the largest whole number that every reader of JSON keeps (RFC 8259 §6)
Count = Annotated[int, Meta(ge=0, le=LARGEST)]
Frame = Annotated[int, Meta(ge=1, le=LARGEST)]
Number = Annotated[float, Meta(ge=0)]  # ms, µs, s: what the field's name ends with
Share = Annotated[float, Meta(ge=0, le=1)]
Role = Literal["client", "server"]
Roles = Literal["client", "server", "both"]
CapturedNear = Literal["client", "server", "both", "neither"]


class Endpoint(msgspec.Struct, frozen=True, gc=False):
    """One end of a connection; role "client" or "server"."""

    ip: str
    port: Annotated[int, Meta(ge=0, le=65535)]
    role: Role

    def __str__(self) -> str:
        return end_text(self.ip, self.port)


class Source(msgspec.Struct, frozen=True):
    """The capture file."""

    file: str  # its name without folders, so that the result does not depend on where it lies
    sha256: Annotated[str, Meta(pattern="^([0-9a-f]{64})?$")]  # "" if it was not asked for: a screen does not show it
    format: str
    link_type: list[str]
    packets: Count
    tcp_packets: Count
    first_time: str | None  # UTC, ISO 8601, nanoseconds
    duration_s: float

    @property
    def first_ns(self) -> int | None:
        """The time of the first packet, ns since 1970."""
        if not self.first_time:
            return None
        whole, _, fraction = self.first_time.rstrip("Z").partition(".")
        seconds = int(datetime.fromisoformat(whole).replace(tzinfo=UTC).timestamp())
        return seconds * 10**9 + int(fraction.ljust(9, "0"))


class Quality(msgspec.Struct, frozen=True):
    """What may weaken a verdict."""

    damage: list[str]  # what is wrong with the file
    not_decoded: dict[str, Count]  # packets left out, by what they are
    handshakes: Count  # connections whose handshake is in the capture
    refused: Count  # connections whose SYN was answered, but by no SYN: nobody listened there
    rejected: dict[Rejected, Count]  # candidates that are no stalls, by reason
    unresolved: dict[Obstacle, Count]  # undecided candidates, by reason
    kernel_asked: dict[Obstacle, Count]  # of these, about how many the kernel was asked while it was recorded
    clock_resolution_us: Number  # of the time stamps: shorter times cannot be measured
    astray_share: Share  # of the data segments: missing in the capture, or captured after their acknowledgement


class Range(msgspec.Struct, frozen=True):
    """Between these two."""

    low: Number
    high: Number

    def __str__(self) -> str:
        is_narrow = self.high - self.low < 0.1
        return f"{self.high:.1f}" if is_narrow else f"{self.low:.1f} to {self.high:.1f}"


class CountAndTime(msgspec.Struct, frozen=True):
    """How many idle gaps of one cause there were, or holds, and how long they took in all."""

    count: Count
    total_ms: Number


class _End(msgspec.Struct, frozen=True):
    """An end of one or more connections."""

    ip: str
    port: Annotated[int, Meta(ge=0, le=65535)] | None  # None: a client that had several
    role: Role

    def __str__(self) -> str:
        return end_text(self.ip, self.port)


class NamedEnd(_End, frozen=True):
    """An end that held, or delayed, and in how many stalls."""

    stalls: Count


class UndecidedEnd(_End, frozen=True):
    """An end that may have held data, undecided, and how often, by reason."""

    unresolved: dict[Obstacle, Count]


def _named(ends: Sequence[NamedEnd], in_all: Mapping[Role, int]) -> str:
    """ "the server (10.0.0.2:80)" for one end; both if there are two; of more, how many, and the most frequent; ""
    for none.
    """
    if len(ends) == 1:
        return f"the {ends[0].role} ({ends[0]})"
    if len(ends) <= 2:
        return " and ".join(f"the {end.role} {end} ({times_text(end.stalls)})" for end in ends)
    roles = " and ".join(f"{count} {plural(role, count)}" for role, count in in_all.items() if count)
    return f"{roles} (most often {ends[0]}, {times_text(ends[0].stalls)})"


def ends_text(role: Roles | None) -> str:
    """The end of a role in words, or both; "" for none."""
    return "both ends" if role == "both" else f"the {role}" if role else ""


class Server(msgspec.Struct, frozen=True):
    """A server on whose connections there are stalls, or undecided candidates."""

    ip: str
    port: Annotated[int, Meta(ge=0, le=65535)]
    exchanges: Count
    stalled_exchanges: Count
    stalls_by: dict[Role, Count]  # stalls by the role of the end that held
    unresolved: Count  # how often it was not clear whether an ACK released what followed

    def __str__(self) -> str:
        return end_text(self.ip, self.port)


class EndProcess(msgspec.Struct, frozen=True):
    """A process at an end of connections, as comments on packets or, live, the kernel name it."""

    role: Role | None  # None: it is at one of the two ends of connections to that server, not known which
    ip: str
    port: Annotated[int, Meta(ge=0, le=65535)] | None  # None: a client's
    pid: Count
    command: str  # its executable
    arguments: str  # its own name is the first
    connections: Count

    def __str__(self) -> str:
        place = end_text(self.ip, self.port)
        where = f"the {self.role} ({place})" if self.role else f"one end of connections to {place}"
        return f"{where}: PID {self.pid}, {self.command}{f': {self.arguments}' if self.arguments else ''}"


class Relay(msgspec.Struct, frozen=True):
    """A connection whose data immediately followed that of another one: it passes on what the other waited for."""

    connection: Count
    source: Count  # the other connection
    times: Count


class Histogram(msgspec.Struct, frozen=True):
    """How often durations of each length occur: 20 bins per power of ten, without empty bins."""

    count: Count
    total_ms: Number
    bins: list[tuple[Number, Number, Count]]  # from (ms), up to but not including (ms), how many


class Summary(msgspec.Struct, frozen=True):
    """The whole capture."""

    connections: Count
    exchanges: Count
    repeat_exchanges: Count  # those that follow another one on their connection
    decided_exchanges: Count  # in which a stall would have been seen: the others are unresolved
    stalled_exchanges: Count
    stalls: Count
    behind_full: Count  # stalls held behind a full segment, as RFC 896 says; Linux does not hold behind one
    stalled_share: Share
    delayed_acks: Count
    delayed_acks_by: dict[Role, Count]  # by role: "client", "server"
    fin_acks_by: dict[Role, Count]  # pure ACKs of bare FINs, by role: Linux may count them as delayed
    packets_by: dict[Role, Count]  # sent, by role
    segments_by: dict[Role, Count]  # the same, but packets made by segmentation offload count as several segments
    wait_ms: Spread | None  # trigger to late ACK; at the sender an upper bound of the hold
    hold_ms: Range | None  # in the median stall: how long its sender held the data
    release_us: Spread | None
    round_trip_holds: CountAndTime  # Nagle's algorithm waited for ACKs that were not delayed
    round_trip_holds_by: dict[Role, Count]  # their number, by the role of the end whose data waited
    grounds: dict[Ground, Count]  # what the stalls are proved by
    ack_timer_ms: float | None  # of the delaying end: median wait less the way there and back
    round_trip_us: dict[Role, Number | None]  # from the capture point to each role and back, median of the shortest
    captured_near: CapturedNear | None  # a role, "both" ends or "neither"; None without handshakes
    request_to_ack_ms: Spread | None
    request_to_response_ms: Spread | None
    exchange_ms: Spread | None
    wire_bytes: Count  # of all TCP packets, link layer included where it was captured
    payload_bytes: Count  # in them
    lost_ms_total: Number
    packets_per_exchange: Number
    held_by: Roles | None
    delayed_by: Roles | None
    held_ends: list[NamedEnd]  # those with the most stalls, at most ten
    delayed_ends: list[NamedEnd]
    held_ends_by: dict[Role, Count]  # how many ends held in all, by role
    delayed_ends_by: dict[Role, Count]
    undecided_ends: list[UndecidedEnd]  # those whose data may have been held, most often first, at most ten
    servers: list[Server]  # if there are several: those with stalls or unresolved ones, most stalls first; at most 20
    relays: list[Relay]  # the most frequent, at most ten
    remedy: str | None

    @property
    def who_held(self) -> str:
        """The ends that held, in words; "" without stalls."""
        return _named(self.held_ends, self.held_ends_by)

    @property
    def who_delayed(self) -> str:
        """The ends that delayed the ACKs, in words; "" without stalls."""
        return _named(self.delayed_ends, self.delayed_ends_by)

    @property
    def is_mutual(self) -> bool:
        """Whether two ends held, each until the other acknowledged."""
        ends_of = ({(end.role, end.ip, end.port) for end in ends} for ends in (self.held_ends, self.delayed_ends))
        held, delayed = ends_of
        return held == delayed and len(self.held_ends) > 1

    @property
    def is_certain(self) -> bool:
        """Whether there are stalls, and the proof of all of them is certain, not only likely."""
        return bool(self.grounds) and all(ground.is_certain for ground in self.grounds)


class SentTotals(msgspec.Struct, frozen=True, gc=False):
    """What one side of a connection sent."""

    packets: Count
    segments: Count  # the same, but packets made by segmentation offload count as several segments
    wire_bytes: Count  # of the whole packets, link layer included where it was captured
    payload_bytes: Count
    delayed_acks: Count
    fin_acks: Count  # pure ACKs of bare FINs
    acks_before_timer: Count  # delayed ones that came sooner than a timer can fire
    not_held: Count  # small segments sent behind unacknowledged small ones: its Nagle's algorithm was off


class Connection(msgspec.Struct, frozen=True, gc=False):
    """One connection."""

    id: Count
    client: Endpoint
    server: Endpoint
    first_frame: Frame
    packets: Count
    handshake: bool
    full_segment_bytes: Count  # payload of a full segment
    exchanges: Count
    repeat_exchanges: Count  # those that follow another
    stalled_exchanges: Count
    stalls: Count
    second_writes: Count  # how often a small segment followed the pure ACK of a small one before it
    unresolved: Count  # how often it was not clear whether an ACK released what followed
    late_without_stall: Count  # how often data followed a late ACK that had not held it
    first_stalled_exchange: Frame | None  # counted from 1
    lost_ms: Number  # how long its data waited for delayed ACKs: the sum of its stalls' waits
    round_trip_holds_ms: Number  # how long its data waited for ACKs that were not delayed
    sent: dict[Role, SentTotals]  # by role: "client", "server"
    handshake_us: Number | None = None  # from a SYN sent once to its sender's first ACK; None: not seen, or a proxy's
    answers_as: Endpoint | None = None  # address of the server's segments, if it is another one: translated
    judged: bool = True  # False: not wanted, or another one seen again, before or after NAT

    @property
    def ends(self) -> tuple[SocketAddress, SocketAddress]:
        """Address and port of its client, and of its server."""
        return (self.client.ip, self.client.port), (self.server.ip, self.server.port)

    @property
    def sockets(self) -> tuple[tuple[SocketAddress, SocketAddress], tuple[SocketAddress, SocketAddress]]:
        """The client's socket and the server's, as each end knows them: its own address and port, then the peer's."""
        client, server = self.ends
        asked = (self.answers_as.ip, self.answers_as.port) if self.answers_as else server
        return (client, asked), (server, client)

    @property
    def chances(self) -> int:
        """How often Nagle's algorithm held small data, or would have held it: it was sent after the ACK, or ahead."""
        return self.second_writes + sum(sent.not_held for sent in self.sent.values())

    @property
    def is_one_way(self) -> bool:
        """Whether the capture has packets of one end only."""
        return not all(sent.packets for sent in self.sent.values())


class Stall(msgspec.Struct, frozen=True, gc=False):
    """One proved stall; frames are 1-based positions in the file, as in Wireshark."""

    connection: Count
    exchange: Frame  # counted from 1
    held_by: Endpoint
    delayed_by: Endpoint
    trigger_frame: Frame
    ack_frame: Frame | None  # None: the capture lacks the ACK, but the release's timestamp shows that it arrived
    release_frame: Frame
    wait_ms: Number
    release_us: float
    trigger_bytes: Count
    released_bytes: Count


class Exchange(msgspec.Struct, frozen=True, gc=False):
    """One answered exchange; gaps are None where the capture does not show them."""

    connection: int
    exchange: int  # counted from 1
    asked_s: float  # when the request began, seconds since the capture's first TCP packet
    request_to_ack_ms: float | None
    request_to_response_ms: float | None
    exchange_ms: float | None
    stalled: bool


class Stalls(Sequence[Stall]):
    """The stalls of a result, in order of their releases."""

    @abstractmethod
    def typical(self) -> Stall:
        """The stall whose wait is the median one: the one to show."""


class Result(msgspec.Struct, frozen=True):
    """What one capture shows."""

    schema: Literal["nagle-lab/1"]
    source: Source
    quality: Quality
    verdict: Verdict
    reason: str
    summary: Summary
    idle_gaps: dict[Cause, CountAndTime]  # by cause: nagle_lab.diagnosis.result.idle_gaps.Cause
    histograms: dict[str, Histogram]  # of wait_ms and exchange_ms, as in the summary
    connections: Sequence[Connection]
    stalls: Stalls
    exchanges: Sequence[Exchange] | None = None  # for tables, if asked for; not part of the JSON
    undecided: Undecided | None = None  # what made it INCONCLUSIVE, if that is undecided candidates
    processes: list[EndProcess] | None = None  # at the ends, if they are known
    writes: Writes | None = None  # the two writes of each stall, if system calls were recorded beside the segments

    def of_file(self, name: str) -> Self:
        """The same result, of a capture file of that name."""
        return replace(self, source=replace(self.source, file=name))

    def concluded(self, verdict: Verdict, reason: str) -> Self:
        """The same result, with that verdict and reason; docs/proof.md has a table of where these are decided."""
        undecided = self.undecided if verdict is Verdict.INCONCLUSIVE else None
        return replace(self, verdict=verdict, reason=reason, undecided=undecided)

    def __str__(self) -> str:
        """The verdict, the file and the reason, on one line."""
        return f"{self.verdict} {self.source.file}: {self.reason}"

    def json_parts(self) -> Iterator[str]:
        """The JSON object of the contract on one line, in parts; the same text for the same capture.

        Raises ValueError if the source has no SHA-256.
        """
        if not self.source.sha256:
            raise ValueError("JSON tells the SHA-256 of the file: analyze it with that")
        rows_of = ("connections", "stalls", "exchanges", *_WHERE_KNOWN)
        yield json_text({name: getattr(self, name) for name in self.__struct_fields__ if name not in rows_of})[:-1]
        for name, rows in (("connections", self.connections), ("stalls", self.stalls)):
            yield f',"{name}":['
            for begin in range(0, len(rows), _ROWS_AT_ONCE):
                yield ("," if begin else "") + json_text(list(rows[begin : begin + _ROWS_AT_ONCE]))[1:-1]
            yield "]"
        for name in _WHERE_KNOWN:
            if (found := getattr(self, name)) is not None:
                yield f',"{name}":{json_text(found)}'
        yield "}\n"

    def to_json(self) -> str:
        """All parts of :meth:`json_parts`."""
        return "".join(self.json_parts())


_ROWS_AT_ONCE = 1 << 12
_WHERE_KNOWN = ("undecided", "processes", "writes")  # fields that most captures lack: absent there


def json_schema() -> str:
    """The JSON Schema of a result: ``schema/result.schema.json``."""

    def items(of: type) -> dict[str, Any]:
        if of is Stalls:
            return {"type": "array", "items": {"$ref": "#/$defs/Stall"}}
        raise NotImplementedError

    schema = schema_of(Result, "nagle-lab: what one capture shows", Stall, hook=items)
    del schema["$defs"]["Result"]["properties"]["exchanges"]  # for tables: not part of the JSON
    return schema_text(schema)
