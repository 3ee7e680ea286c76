"""The tables of a store, declared once for writing, for queries, and for docs/fleet.md."""

from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

from nagle_lab.fleet.results_folder import extra


class Column(NamedTuple):
    """A column: its name, its type in pyarrow's terms, and its meaning."""

    name: str
    kind: str
    meaning: str


class StoreTable(NamedTuple):
    """A table, partitioned by series, and also by day if ``day`` is set: it says the day of what."""

    meaning: str
    columns: tuple[Column, ...]
    day: str = ""


HOST = Column("host", "string", "the host of the series")
_ENDS = tuple(
    column
    for end, does in (("held", "held data back"), ("delayed", "delayed its ACK"))
    for column in (
        Column(f"{end}_role", "string", f"client or server: the end that {does}"),
        Column(f"{end}_ip", "string", ""),
        Column(f"{end}_port", "int32", ""),
    )
)
_SERVER = (Column("server_ip", "string", "the service"), Column("server_port", "int32", ""))
_FRAMES = (
    Column("file", "string", "the file that contains the release"),
    Column("frame", "int64", "number of the release in that file, as in Wireshark"),
)

TABLES = {
    "stalls": StoreTable(
        "Each proved stall.",
        (
            HOST,
            Column("released_at", "timestamp[ns]", "when the data was released; all times are UTC"),
            *_FRAMES,
            Column(
                "trigger_frame",
                "int64",
                "this and the next two count through the series, as `analyze --rotated` does",
            ),
            Column("ack_frame", "int64", "NULL: the capture lacks the ACK"),
            Column("release_frame", "int64", ""),
            Column("connection", "int64", "its number in the series"),
            Column("exchange", "int64", "its number on the connection, from 1"),
            *_SERVER,
            *_ENDS,
            Column("wait_ms", "double", "from trigger to late ACK, at the capture point"),
            Column("release_us", "double", "from the ACK to the release"),
            Column("trigger_bytes", "int32", ""),
            Column("released_bytes", "int32", ""),
        ),
        day="the release",
    ),
    "exchanges": StoreTable(
        "How long answered exchanges took, by service, hour and length: 20 bins per power of ten.",
        (
            HOST,
            Column("hour", "timestamp[s]", "the hour in which the request began"),
            *_SERVER,
            Column("from_ms", "double", "the bin's lower edge"),
            Column("to_ms", "double", "the bin's upper edge, which belongs to the next bin"),
            Column("exchanges", "int64", "how many exchanges"),
            Column("total_ms", "double", "how long they took together"),
        ),
        day="the request",
    ),
    "connections": StoreTable(
        "Each connection.",
        (
            HOST,
            Column("connection", "int64", "its number in the series, from 0"),
            Column("first_at", "timestamp[ns]", "when its first packet was captured"),
            Column("first_frame", "int64", "counted through the series"),
            Column("client_ip", "string", ""),
            Column("client_port", "int32", ""),
            *_SERVER,
            Column("client_kernel", "string", "Linux, Windows or BSD (also macOS), by its SYN; NULL: none of these"),
            Column("server_kernel", "string", "likewise; behind a proxy or NAT, of the host that sent the SYN"),
            Column("packets", "int64", "in both directions, like the next two"),
            Column("wire_bytes", "int64", "with headers"),
            Column("payload_bytes", "int64", ""),
            Column("handshake", "bool", "both SYNs are in the capture"),
            Column("handshake_us", "double", "from the SYN to its sender's first ACK; NULL: not captured"),
            Column("exchanges", "int64", "with request and answer"),
            Column("stalled_exchanges", "int64", ""),
            Column("stalls", "int64", ""),
            Column("unresolved", "int64", "undecided candidates"),
            Column("lost_ms", "double", "how long its data waited for delayed ACKs"),
            Column("round_trip_holds_ms", "double", "how long Nagle's algorithm held its data for other ACKs"),
            Column("client_delayed_acks", "int64", ""),
            Column("server_delayed_acks", "int64", ""),
        ),
        day="its first packet",
    ),
    "files": StoreTable(
        "Each file, also those that could not be read.",
        (
            HOST,
            Column("file", "string", "path or URL"),
            Column("bytes", "int64", "its stored size"),
            Column("packets", "int64", "read from it"),
            Column("first_frame", "int64", "number of its first frame in the series"),
            Column("problem", "string", "why it was not read completely, or cannot be trusted; NULL: no problem"),
        ),
    ),
    "series": StoreTable(
        "Each series: what `analyze --rotated` says about it.",
        (
            HOST,
            Column("interface", "string", "taken from the names of its files"),
            Column("verdict", "string", "STALL, CLEAN, INCONCLUSIVE, INVALID, or FAILED: it could not be finished"),
            Column("reason", "string", ""),
            Column("remedy", "string", "NULL: none is needed"),
            Column("files", "int64", "how many files"),
            Column("problems", "int64", "how many of these have a problem, plus numbers that rotation skipped"),
            Column("first_at", "timestamp[ns]", "when its first TCP packet was captured"),
            Column("last_at", "timestamp[ns]", "when its last TCP packet was captured"),
            Column("packets", "int64", ""),
            Column("tcp_packets", "int64", ""),
            Column("connections", "int64", ""),
            Column("exchanges", "int64", "with request and answer"),
            Column("stalled_exchanges", "int64", ""),
            Column("stalls", "int64", ""),
            Column("lost_ms", "double", "the sum of all waits"),
            Column("result", "string", "JSON: the result of `analyze --json`, without connections and stalls"),
        ),
    ),
}


def columns_of(name: str) -> Iterator[Column]:
    """All columns of a table, partition columns last."""
    table = TABLES[name]
    yield from table.columns
    if table.day:
        yield Column("day", "date", f"of {table.day}, UTC")
    yield Column("series", "string", "host and interface")


@cache
def arrow_schema(name: str, *, whole: bool = False) -> Any:
    """The schema of the files of a table; ``whole``: with the columns of its folders."""
    pa = extra("pyarrow")
    kinds = {
        "string": pa.string(), "bool": pa.bool_(), "double": pa.float64(), "int32": pa.int32(), "int64": pa.int64(),
        "timestamp[ns]": pa.timestamp("ns"), "timestamp[s]": pa.timestamp("s"),
        "date": pa.date32(),
    }  # fmt: skip
    columns = columns_of(name) if whole else TABLES[name].columns
    return pa.schema([(column.name, kinds[column.kind]) for column in columns])
