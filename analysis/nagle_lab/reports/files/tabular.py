"""Stalls, connections and exchanges as tables for other programs: CSV, and Parquet where pyarrow is installed.

docs/views.md names every column and its unit. Times are of the capture; frames count from 1, as in Wireshark.
"""

import csv
import importlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from io import TextIOWrapper
from pathlib import Path
from typing import Any, BinaryIO

from nagle_lab.capture.stored import writing_whole
from nagle_lab.diagnosis.result.result import Result
from nagle_lab.errors import NagleLabError, naming, printable

Column = tuple[str, type, Callable[[Any], object]]

STALL_COLUMNS: Sequence[Column] = (
    ("stall", int, lambda row: row[0]),
    ("connection", int, lambda row: row[1].connection),
    ("exchange", int, lambda row: row[1].exchange),
    ("held_role", str, lambda row: row[1].held_by.role),
    ("held_ip", str, lambda row: row[1].held_by.ip),
    ("held_port", int, lambda row: row[1].held_by.port),
    ("delayed_role", str, lambda row: row[1].delayed_by.role),
    ("delayed_ip", str, lambda row: row[1].delayed_by.ip),
    ("delayed_port", int, lambda row: row[1].delayed_by.port),
    ("trigger_frame", int, lambda row: row[1].trigger_frame),
    ("ack_frame", int, lambda row: row[1].ack_frame),
    ("release_frame", int, lambda row: row[1].release_frame),
    ("wait_ms", float, lambda row: row[1].wait_ms),
    ("release_us", float, lambda row: row[1].release_us),
    ("trigger_bytes", int, lambda row: row[1].trigger_bytes),
    ("released_bytes", int, lambda row: row[1].released_bytes),
)
_SENT = ("packets", "segments", "wire_bytes", "payload_bytes", "delayed_acks", "fin_acks")
CONNECTION_COLUMNS: Sequence[Column] = (
    ("connection", int, lambda c: c.id),
    ("client_ip", str, lambda c: c.client.ip),
    ("client_port", int, lambda c: c.client.port),
    ("server_ip", str, lambda c: c.server.ip),
    ("server_port", int, lambda c: c.server.port),
    ("first_frame", int, lambda c: c.first_frame),
    ("packets", int, lambda c: c.packets),
    ("handshake", bool, lambda c: c.handshake),
    ("judged", bool, lambda c: c.judged),
    ("full_segment_bytes", int, lambda c: c.full_segment_bytes),
    ("exchanges", int, lambda c: c.exchanges),
    ("stalled_exchanges", int, lambda c: c.stalled_exchanges),
    ("stalls", int, lambda c: c.stalls),
    ("first_stalled_exchange", int, lambda c: c.first_stalled_exchange),
    ("lost_ms", float, lambda c: c.lost_ms),
    ("round_trip_holds_ms", float, lambda c: c.round_trip_holds_ms),
    *(
        (f"{role}_{name}", int, lambda c, role=role, name=name: getattr(c.sent[role], name))
        for role in ("client", "server")
        for name in _SENT
    ),
)
EXCHANGE_COLUMNS: Sequence[Column] = (
    ("connection", int, lambda e: e.connection),
    ("exchange", int, lambda e: e.exchange),
    ("asked_s", float, lambda e: e.asked_s),
    ("request_to_ack_ms", float, lambda e: e.request_to_ack_ms),
    ("request_to_response_ms", float, lambda e: e.request_to_response_ms),
    ("exchange_ms", float, lambda e: e.exchange_ms),
    ("stalled", bool, lambda e: e.stalled),
)
_ROWS_AT_ONCE = 1 << 14
_BEGINS_FORMULA = tuple("=+-@＝＋－＠")  # full-width ones too, where East Asian versions of Excel read the file


class CsvWriter:
    """CSV as in RFC 4180, but lines end in a newline; UTF-8; the first line has the names."""

    def __init__(self, stream: BinaryIO, columns: Sequence[Column]) -> None:
        self._columns = columns
        self._file = TextIOWrapper(stream, encoding="utf-8", newline="")
        self._csv = csv.writer(self._file, lineterminator="\n")
        self._csv.writerow(["file", *(name for name, _, _ in columns)])

    def write(self, source: str, rows: Sequence[Any]) -> None:
        """Write rows of the capture called ``source``; a field is empty without a value, 1 for yes, 0 for no."""
        name = _no_formula(source)
        self._csv.writerows([name, *(_plain(value(row)) for _, _, value in self._columns)] for row in rows)

    def close(self) -> None:
        """Finish the file."""
        self._file.close()


class ParquetWriter:
    """Parquet, through pyarrow."""

    def __init__(self, stream: BinaryIO, columns: Sequence[Column]) -> None:
        self._columns, self._arrow = columns, _pyarrow()
        kinds = {int: self._arrow.int64(), float: self._arrow.float64(), str: self._arrow.string()}
        kinds[bool] = self._arrow.bool_()
        self._schema = self._arrow.schema([("file", kinds[str]), *((name, kinds[kind]) for name, kind, _ in columns)])
        self._file = importlib.import_module("pyarrow.parquet").ParquetWriter(stream, self._schema)

    def write(self, source: str, rows: Sequence[Any]) -> None:
        """Write rows of the capture called ``source``."""
        table: Mapping[str, list[object]] = {
            "file": [printable(source)] * len(rows),
            **{name: [value(row) for row in rows] for name, _, value in self._columns},
        }
        self._file.write_table(self._arrow.table(table, self._schema))

    def close(self) -> None:
        """Finish the file."""
        self._file.close()


WRITERS: dict[str, type[CsvWriter | ParquetWriter]] = {"csv": CsvWriter, "parquet": ParquetWriter}


def beside(file: Path) -> list[Path]:
    """The files beside a table ``file`` of stalls: those of connections and of exchanges."""
    return [file.with_name(f"{file.stem}.{what}{file.suffix}") for what in ("connections", "exchanges")]


@contextmanager
def table_files(file: Path, writer: type[CsvWriter | ParquetWriter]) -> Iterator["TableFiles"]:
    """Stalls in ``file``, beside it ``NAME.connections.EXT`` and ``NAME.exchanges.EXT``; whole or not at all.

    After an exception it removes what it wrote.
    """
    tables = (STALL_COLUMNS, CONNECTION_COLUMNS, EXCHANGE_COLUMNS)
    with ExitStack() as stack:
        streams = [stack.enter_context(writing_whole(each)) for each in (file, *beside(file))]
        writers = (writer(stream, columns) for stream, columns in zip(streams, tables, strict=True))
        yield TableFiles(file, [stack.enter_context(_closing(each, file)) for each in writers])


@contextmanager
def _closing(writer: CsvWriter | ParquetWriter, file: Path) -> Iterator[CsvWriter | ParquetWriter]:
    try:
        yield writer
    finally:
        with naming(file):
            writer.close()


class TableFiles:
    """The open files of a table's stalls, connections and exchanges; ``file`` is the path of the first."""

    def __init__(self, file: Path, writers: Sequence[CsvWriter | ParquetWriter]) -> None:
        self._file, self._writers = file, writers

    def add(self, source: str, result: Result) -> None:
        """Add the rows of one capture; ``source`` is what their first column says."""
        assert result.exchanges is not None, "listed where a table is wanted"
        stalls, connections, exchanges = self._writers
        with naming(self._file):
            for at in range(0, len(result.stalls), _ROWS_AT_ONCE):
                stalls.write(source, list(enumerate(result.stalls[at : at + _ROWS_AT_ONCE], at + 1)))
            for writer, rows in ((connections, result.connections), (exchanges, result.exchanges)):
                for at in range(0, len(rows), _ROWS_AT_ONCE):
                    writer.write(source, rows[at : at + _ROWS_AT_ONCE])


def _pyarrow() -> Any:
    try:
        return importlib.import_module("pyarrow")
    except ImportError as error:
        raise NagleLabError(
            f"--parquet needs pyarrow, which is not installed: {sys.executable} -m pip install pyarrow, or use --csv"
        ) from error


def _no_formula(name: str) -> str:
    """A file's name, harmless in a spreadsheet: one that would begin a formula gets an apostrophe."""
    text = printable(name)
    return f"'{text}" if text.lstrip()[:1] in _BEGINS_FORMULA else text


def _plain(value: object) -> object:
    return int(value) if isinstance(value, bool) else value
