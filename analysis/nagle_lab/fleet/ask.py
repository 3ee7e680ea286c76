"""Questions to a store, answered by DuckDB in SQL: ready-made ones from the files beside this, or any other."""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from nagle_lab.capture.stored import first_line, is_remote
from nagle_lab.errors import NagleLabError
from nagle_lab.fleet.results_folder import Folder, extra
from nagle_lab.fleet.schema import TABLES, arrow_schema

_FILES = {name: f"{name}/*{'/*' * bool(table.day)}/*.parquet" for name, table in TABLES.items()}

# A stall that several series contain, from the series that has most of that connection's stalls in that hour. The
# same connection: the same ends, and stalls at the same time, give or take a second for the clocks of the hosts. What
# a host sends to itself no other host can see.
_ONCE = """CREATE VIEW stalls_once AS
WITH held AS (
    SELECT series, connection, held_ip, held_port, delayed_ip, delayed_port, date_trunc('hour', released_at) AS hour,
           count(*) AS stalls, min(released_at)::TIMESTAMP AS first_at, max(released_at)::TIMESTAMP AS last_at
    FROM stalls WHERE held_ip <> delayed_ip GROUP BY ALL),
again AS (
    SELECT DISTINCT this.series, this.connection, this.held_ip, this.held_port, this.hour
    FROM held this JOIN held other USING (held_ip, held_port, delayed_ip, delayed_port, hour)
    WHERE this.series <> other.series AND (other.stalls, this.series) > (this.stalls, other.series)
      AND this.first_at <= other.last_at + INTERVAL 1 SECOND AND other.first_at <= this.last_at + INTERVAL 1 SECOND)
SELECT * FROM stalls WHERE NOT EXISTS (
    FROM again WHERE again.series = stalls.series AND again.connection = stalls.connection
        AND again.held_ip = stalls.held_ip AND again.held_port = stalls.held_port
        AND again.hour = date_trunc('hour', stalls.released_at))"""


@dataclass(frozen=True)
class ReadyQuestion:
    """A ready-made question: its name, its title, and its SQL."""

    name: str
    title: str
    sql: str


@dataclass(frozen=True)
class Answer:
    """The rows of a result, and the names of its columns."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]

    def named(self) -> list[dict[str, Any]]:
        """Each row of the answer as a dictionary, by column."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]


def questions() -> list[ReadyQuestion]:
    """The ready-made questions, by name; the first line of each file is the title."""
    found = []
    for file in files("nagle_lab.fleet").joinpath("questions").iterdir():
        name, is_sql, _ = file.name.partition(".sql")
        if is_sql:
            text = file.read_text(encoding="utf-8")
            found.append(ReadyQuestion(name, text.partition("\n")[0].removeprefix("-- "), text))
    return sorted(found, key=lambda question: question.name)


class Store:
    """The tables of a store, for questions, and ``stalls_once``, which has no stall twice.

    Raises NagleLabError if there is none.
    """

    def __init__(self, out: Folder) -> None:
        if not out.matching(_FILES["series"]):
            raise NagleLabError(f"{out.url}: no results of nagle-lab fleet there: name the folder of its --out")
        self._duckdb = extra("duckdb")
        self._connection = self._duckdb.connect()
        self._connection.execute("SET parquet_metadata_cache = true")
        if is_remote(out.url):
            self._connection.register_filesystem(out.fs)
        for name, table in TABLES.items():
            if not out.matching(_FILES[name]):
                self._connection.register(name, arrow_schema(name, whole=True).empty_table())
                continue
            pattern = out.pattern(_FILES[name])
            url = out.fs.unstrip_protocol(pattern) if is_remote(out.url) else pattern
            types = "{'series': VARCHAR, 'day': DATE}" if table.day else "{'series': VARCHAR}"
            self._connection.execute(
                f"CREATE VIEW {name} AS SELECT * FROM "
                f"read_parquet({_quoted(url)}, hive_partitioning = true, hive_types = {types})"
            )
        self._connection.execute(_ONCE)

    def ask(self, sql: str, values: Sequence[object] = ()) -> Answer:
        """The answer to a question, with ``values`` in place of each ?.

        Raises NagleLabError if DuckDB does not understand it.
        """
        try:
            result = self._connection.execute(sql, list(values) or None)
            return Answer([column[0] for column in result.description or ()], result.fetchall())
        except self._duckdb.Error as error:
            raise NagleLabError(f"{first_line(error)}: see nagle-lab fleet ask schema") from error


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def sql_of(question: str) -> str:
    """The SQL of a ready-made question, by name; SQL is returned as it is.

    Raises NagleLabError if it is neither.
    """
    ready = {each.name: each.sql for each in questions()}
    if question in ready:
        return ready[question]
    if len(question.split()) > 1:
        return question
    raise NagleLabError(f"{question}: no such question: one of {', '.join(ready)}; or SQL in quotes")
