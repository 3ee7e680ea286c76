"""The result of one capture: the one model behind every report, and the contract "nagle-lab/1" of ``--json``.

The field names are the contract (docs/result.md, schema/result.schema.json); times are in the unit the name ends
with. The same file gives the same result, byte for byte, wherever and whenever it is analysed.
"""

import json
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields

SCHEMA = "nagle-lab/1"


@dataclass(frozen=True)
class Endpoint:
    """One end of a connection; role "client" or "server"."""

    ip: str
    port: int
    role: str

    def __str__(self) -> str:
        return f"[{self.ip}]:{self.port}" if ":" in self.ip else f"{self.ip}:{self.port}"


@dataclass(frozen=True)
class Source:
    """The capture file."""

    file: str  # its name without folders, so that the result does not depend on where it lies
    sha256: str  # "" where it was not asked for: a screen does not show it
    format: str
    link_type: list[str]
    packets: int
    tcp_packets: int
    first_time: str | None  # UTC, ISO 8601, nanoseconds
    duration_s: float


@dataclass(frozen=True)
class Quality:
    """What may weaken a verdict."""

    damage: list[str]  # what is wrong with the file
    not_decoded: dict[str, int]  # packets left out, by what they are
    handshakes: int  # connections whose handshake is in the capture
    rejected: dict[str, int]  # trigger, late ACK and data in sequence, but not a stall, and why


@dataclass(frozen=True)
class Spread:
    """Percentiles (nearest rank: values that were observed) and maximum."""

    p50: float
    p95: float
    p99: float
    max: float


@dataclass(frozen=True)
class Histogram:
    """How often durations of each length occur: 20 bins for a power of ten, those in which there is one."""

    count: int
    total_ms: float
    bins: list[tuple[float, float, int]]  # ms from, ms up to but without, how many


@dataclass(frozen=True)
class Summary:
    """The whole capture."""

    connections: int
    exchanges: int
    repeat_exchanges: int  # those that follow another on their connection
    stalled_exchanges: int
    stalls: int
    stalled_share: float
    delayed_acks: int
    delayed_acks_by: dict[str, int]  # by role: "client", "server"
    fin_acks_by_timer: dict[str, int]  # ACKs of bare FINs that the timer sent without delay, by role
    packets_by: dict[str, int]  # sent, by role
    segments_by: dict[str, int]  # the same, packets made by segmentation offload counted in parts
    wait_ms: Spread | None  # trigger to late ACK: an upper bound of the hold
    release_us: Spread | None
    ack_timer_ms: float | None  # of the delaying end: median wait less the way there and back
    round_trip_us: dict[str, float | None]  # from the capture point to each role and back, median of the shortest
    captured_near: str | None  # the role, "both" ends, "neither"; None without handshakes
    request_to_ack_ms: Spread | None
    request_to_response_ms: Spread | None
    exchange_ms: Spread | None
    wire_bytes: int  # of all TCP packets, link layer included where it was captured
    payload_bytes: int  # in them
    lost_ms_total: float
    packets_per_exchange: float
    held_by: str | None
    delayed_by: str | None
    remedy: str | None


@dataclass(frozen=True)
class Silence:
    """Silences inside exchanges that have one cause in common."""

    count: int
    total_ms: float


@dataclass(frozen=True)
class Sent:
    """What one side of a connection sent."""

    packets: int
    segments: int  # the same, packets made by segmentation offload counted in parts
    wire_bytes: int  # of the whole packets, link layer included where it was captured
    payload_bytes: int
    delayed_acks: int
    fin_acks_by_timer: int  # ACKs of bare FINs that the timer sent without delay
    acks_before_timer: int  # of the delayed ones, those that came sooner than a timer can fire


@dataclass(frozen=True)
class Connection:
    """One connection."""

    id: int
    client: Endpoint
    server: Endpoint
    first_frame: int
    packets: int
    handshake: bool
    mss: int  # payload bytes of a full segment
    exchanges: int
    stalled_exchanges: int
    stalls: int
    first_stalled_exchange: int | None  # counted from 1
    sent: dict[str, Sent]  # by role: "client", "server"


@dataclass(frozen=True)
class Stall:
    """One proved stall; frames are 1-based positions in the file, as in Wireshark."""

    connection: int
    exchange: int  # counted from 1
    held_by: Endpoint
    delayed_by: Endpoint
    trigger_frame: int
    ack_frame: int
    release_frame: int
    wait_ms: float
    release_us: float
    trigger_bytes: int
    released_bytes: int


@dataclass(frozen=True)
class Exchange:
    """One answered exchange; gaps are None where the capture does not show them."""

    connection: int
    exchange: int  # counted from 1
    asked_s: float  # when the request began, seconds since the capture's first TCP packet
    request_to_ack_ms: float | None
    request_to_response_ms: float | None
    exchange_ms: float | None
    stalled: bool


class Stalls(Sequence[Stall]):
    """The stalls of a result, in order of their late ACKs."""

    @abstractmethod
    def typical(self) -> Stall:
        """The stall whose wait is the median one: the one to show."""


@dataclass(frozen=True)
class Result:
    """What one capture shows."""

    schema: str
    source: Source
    quality: Quality
    verdict: str
    reason: str
    summary: Summary
    silences: dict[str, Silence]  # by cause: nagle_lab.diagnosis.silences.Cause
    histograms: dict[str, Histogram]  # of wait_ms and exchange_ms, as in the summary
    connections: Sequence[Connection]
    stalls: Stalls
    exchanges: Sequence[Exchange] | None = None  # for tables, where asked for; not part of the JSON

    def json_parts(self) -> Iterator[str]:
        """The JSON object of the contract on one line, in parts; the same text for the same capture.

        Raises ValueError where the source has no SHA-256.
        """
        if not self.source.sha256:
            raise ValueError("JSON tells the SHA-256 of the file: analyze it with that")
        rows_of = ("connections", "stalls", "exchanges")
        scalars = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in rows_of}
        yield json_text(scalars)[:-1]
        for name, rows in (("connections", self.connections), ("stalls", self.stalls)):
            yield f',"{name}":['
            for i, row in enumerate(rows):
                yield ("," if i else "") + json_text(row)
            yield "]"
        yield "}\n"

    def to_json(self) -> str:
        """All parts of :meth:`json_parts`."""
        return "".join(self.json_parts())


def json_text(value: object) -> str:
    """One line of JSON; what a terminal would act on is written as ``\\u009b``, the same value to a reader."""
    text = json.dumps(value, default=vars, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    if text.isascii() and "\x7f" not in text:
        return text
    return "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text)
