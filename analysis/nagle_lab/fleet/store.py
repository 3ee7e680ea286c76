"""A series in the store: its rows in each table, a file for each day."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any
from urllib.parse import quote

import numpy as np

from nagle_lab.diagnosis.result.json_text import json_text
from nagle_lab.fleet.exchanges import HOUR_NS, ExchangeCounts, Rows, by_server, edges_ms, parts, rows_of, summed
from nagle_lab.fleet.results_folder import Folder, extra
from nagle_lab.fleet.schema import TABLES, arrow_schema
from nagle_lab.fleet.series import Series
from nagle_lab.fleet.stretch import EXCHANGES, FileRead, Stretch, as_counts, events_of
from nagle_lab.fleet.whole import SeriesResult
from nagle_lab.packet.segment import Kernel, address_text
from nagle_lab.tcp.durations import ms_of
from nagle_lab.tcp.tables import Table

_DAY_NS = 24 * HOUR_NS
_KERNELS = {Kernel.UNKNOWN: None, Kernel.LINUX: "Linux", Kernel.WINDOWS: "Windows", Kernel.BSD: "BSD"}


def store(series: Series, stretches: Sequence[Stretch], found: SeriesResult, problems: int, out: Folder) -> None:
    """Write the tables of a series."""
    _forget(series, out)
    connections = found.findings.connections
    with Writer("stalls", series, out) as stalls:
        for rows in rows_of(found.findings.stalls):
            stalls.add(rows["at"] // _DAY_NS, _stalls(rows, _of(connections, rows["connection"]), found.reads))
    with Writer("connections", series, out) as written:
        for rows in rows_of(connections):
            written.add(rows["first_ts"] // _DAY_NS, _connections(rows))
    with Writer("exchanges", series, out) as written:
        columns, hours = _exchanges(connections, [found.closing, *_counts(stretches, out)])
        written.add(hours * HOUR_NS // _DAY_NS, columns)
    with Writer("files", series, out) as written:
        written.add(None, _files(found.reads))
    with Writer("series", series, out) as written:
        written.add(None, _series(series, found, problems))


def forget_others(series: Iterable[Series], out: Folder) -> None:
    """Remove the rows of all other series: a store shows the sources of the latest run."""
    kept = {partition(each.name) for each in series}
    for table in TABLES:
        for name in out.names(table) - kept:
            out.remove(f"{table}/{name}")


def store_failed(series: Series, reason: str, out: Folder) -> None:
    """Store a row for a series that could not be finished, and remove its earlier rows."""
    _forget(series, out)
    row = {"interface": [series.interface], "verdict": ["FAILED"], "reason": [reason], "files": [len(series.files)]}
    with Writer("series", series, out) as written:
        written.add(None, row)


def _forget(series: Series, out: Folder) -> None:
    for name in TABLES:
        out.remove(f"{name}/{partition(series.name)}")


def partition(series: str) -> str:
    """The folder of a series in a table."""
    return f"series={quote(series, safe='')}"


class Writer(ExitStack):
    """Writes the rows of one table for a series, a file for each day."""

    def __init__(self, name: str, series: Series, out: Folder) -> None:
        super().__init__()
        self._name, self._series, self._out = name, series, out
        self._files: dict[str, Any] = {}

    def add(self, days: Any, columns: dict[str, Any]) -> None:
        """Add rows; ``days`` since 1970 (n,), None if the table has none. A column that is not given is NULL."""
        pa, schema = extra("pyarrow"), arrow_schema(self._name)
        count = len(next(iter(columns.values())))
        if not count:
            return
        columns = {**{name: pa.nulls(count) for name in schema.names}, "host": [self._series.host] * count, **columns}
        arrays = [pa.array(columns[field.name]).cast(field.type, safe=False) for field in schema]
        table = pa.Table.from_arrays(arrays, schema=schema)
        if days is None:
            self._file("").write_table(table)
            return
        for day in np.unique(days):
            self._file(f"/day={np.datetime64(int(day), 'D')}").write_table(table.filter(pa.array(days == day)))

    def _file(self, folder: str) -> Any:
        if folder not in self._files:
            name = f"{self._name}/{partition(self._series.name)}{folder}/part.parquet"
            to = self.enter_context(self._out.writing(name))
            writer = extra("pyarrow.parquet").ParquetWriter(to, arrow_schema(self._name), compression="zstd")
            self._files[folder] = self.enter_context(writer)
        return self._files[folder]


def _of(connections: Table, numbers: Any) -> Rows:
    """The rows of connections of these numbers (n,)."""
    first, last = int(numbers.min()), int(numbers.max())
    return np.frombuffer(connections.view(first, last), connections.layout.dtype)[numbers - first]


def _end(rows: Rows, sides: Any) -> tuple[Any, Any]:
    """Address and port of these sides (n,) of connections (n,)."""
    at = np.arange(len(rows))
    addresses = np.ascontiguousarray(rows["address"]).view(np.uint8).reshape(-1, 2, 16)[at, sides]
    distinct, of = np.unique(np.ascontiguousarray(addresses).view("S16").ravel(), return_inverse=True)
    texts = np.array([address_text(bytes(one).ljust(16, b"\0")) for one in distinct], object)
    return texts[of], rows["port"][at, sides]


def _server(rows: Rows) -> dict[str, Any]:
    ip, port = _end(rows, 1 - rows["client"])
    return {"server_ip": ip, "server_port": port}


def _null(values: Any, where: Any) -> Any:
    """The values, NULL where the mask says so."""
    return extra("pyarrow").array(values, mask=np.asarray(where))


def _stalls(rows: Rows, connections: Rows, reads: Sequence[FileRead]) -> dict[str, Any]:
    """Of stalls (n,), and the connection of each (n,)."""
    firsts = np.array([read.first_frame for read in reads if read.packets])
    paths = np.array([read.path for read in reads if read.packets], object)
    at = np.searchsorted(firsts, rows["release_frame"], "right") - 1
    columns = {
        "released_at": rows["at"].astype("M8[ns]"),
        "file": paths[at],
        "frame": rows["release_frame"] - firsts[at] + 1,
        "trigger_frame": rows["trigger_frame"],
        "ack_frame": _null(rows["ack_frame"], rows["ack_frame"] == 0),
        "release_frame": rows["release_frame"],
        "connection": rows["connection"],
        "exchange": rows["exchange"] + 1,
        "wait_ms": ms_of(rows["trigger_to_ack"]),
        "release_us": np.round(rows["ack_to_release"] / 1e3, 3),
        "trigger_bytes": rows["trigger_bytes"],
        "released_bytes": rows["released_bytes"],
        **_server(connections),
    }
    for end, side in (("held", rows["side"]), ("delayed", 1 - rows["side"])):
        columns[f"{end}_ip"], columns[f"{end}_port"] = _end(connections, side)
        columns[f"{end}_role"] = np.where(side == connections["client"], "client", "server").astype(object)
    return columns


def _connections(rows: Rows) -> dict[str, Any]:
    ip, port = _end(rows, rows["client"])
    at, client = np.arange(len(rows)), rows["client"]
    kernels = np.array([_KERNELS[name] for name in Kernel], object)[rows["kernel"]]
    return {
        "connection": rows["number"],
        "first_at": rows["first_ts"].astype("M8[ns]"),
        "first_frame": rows["first_frame"],
        "client_ip": ip,
        "client_port": port,
        **_server(rows),
        "client_kernel": kernels[at, client],
        "server_kernel": kernels[at, 1 - client],
        "packets": rows["packets"].sum(1),
        "wire_bytes": rows["wire"].sum(1),
        "payload_bytes": rows["payload"].sum(1),
        "handshake": rows["syns"].astype(bool),
        "handshake_us": _null(np.round(rows["handshake"] / 1e3, 1), (rows["syns"] == 0) | (rows["handshake"] < 0)),
        "exchanges": rows["exchanges"],
        "stalled_exchanges": rows["stalled_exchanges"],
        "stalls": rows["stalls"],
        "unresolved": rows["unresolved"],
        "lost_ms": ms_of(rows["held"]),
        "round_trip_holds_ms": ms_of(rows["round_trips"]),
        "client_delayed_acks": rows["delayed_acks"][at, client],
        "server_delayed_acks": rows["delayed_acks"][at, 1 - client],
    }


def _counts(stretches: Sequence[Stretch], out: Folder) -> Iterator[ExchangeCounts]:
    """The exchanges of each stretch."""
    for stretch in stretches:
        yield from (as_counts(content) for _, content in events_of(stretch.key, out, (EXCHANGES,)))


def _servers(connections: Table) -> tuple[Any, list[tuple[str, int]]]:
    """The number of each connection's server (-1: it is left out), and these servers."""
    numbers: dict[tuple[str, int], int] = {}
    of = np.empty(len(connections), np.int32)
    begin = 0
    for rows in rows_of(connections):
        ends = zip(*_end(rows, 1 - rows["client"]), strict=True)
        servers = np.array([numbers.setdefault((ip, int(port)), len(numbers)) for ip, port in ends], np.int32)
        servers[rows["left_out"] > 0] = -1
        of[begin : begin + len(rows)] = servers
        begin += len(rows)
    return of, list(numbers)


def _exchanges(connections: Table, exchanges: Iterable[ExchangeCounts]) -> tuple[dict[str, Any], Any]:
    of, servers = _servers(connections)
    rows = np.empty((0, 3), np.int64)
    for some in exchanges:
        rows = summed(np.concatenate([rows, by_server(some, of)]))
    server, hours, bins = parts(rows)
    from_ms, to_ms = edges_ms(bins)
    columns = {
        "hour": (hours * 3600).astype("M8[s]"),
        "server_ip": np.array([ip for ip, _ in servers], object)[server],
        "server_port": np.array([port for _, port in servers], np.int64)[server],
        "from_ms": from_ms,
        "to_ms": to_ms,
        "exchanges": rows[:, 1],
        "total_ms": rows[:, 2] / 1e6,
    }
    return columns, hours


def _files(reads: Sequence[FileRead]) -> dict[str, Any]:
    return {
        "file": [read.path for read in reads],
        "bytes": [read.size for read in reads],
        "packets": [read.packets for read in reads],
        "first_frame": [read.first_frame for read in reads],
        "problem": [read.problem for read in reads],
    }


def _series(series: Series, found: SeriesResult, problems: int) -> dict[str, Any]:
    result, totals, summary = found.result, found.counted, found.result.summary
    parts = {
        name: getattr(result, name) for name in ("source", "quality", "verdict", "reason", "summary", "idle_gaps")
    }
    row = {
        "interface": series.interface,
        "verdict": str(result.verdict),
        "reason": result.reason,
        "remedy": summary.remedy,
        "files": len(series.files),
        "problems": problems,
        "first_at": None if totals.first_ts is None else np.datetime64(totals.first_ts, "ns"),
        "last_at": None if totals.first_ts is None else np.datetime64(totals.last_ts, "ns"),
        "packets": result.source.packets,
        "tcp_packets": result.source.tcp_packets,
        "connections": summary.connections,
        "exchanges": summary.exchanges,
        "stalled_exchanges": summary.stalled_exchanges,
        "stalls": summary.stalls,
        "lost_ms": summary.lost_ms_total,
        "result": json_text(parts | {"histograms": result.histograms}),
    }
    return {name: [value] for name, value in row.items()}
