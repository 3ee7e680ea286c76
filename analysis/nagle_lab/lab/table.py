"""A TOML table taken apart key by key, so that a mistake is named by file and key."""

from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from nagle_lab.errors import NagleLabError

T = TypeVar("T")

_KINDS = {
    str: "a string",
    int: "a whole number",
    float: "a number with a decimal point",
    dict: "a table",
    list: "a list",
}


class Table:
    """One table. As a context manager it refuses, at the end of the block, every key nobody took."""

    def __init__(self, data: dict[str, object], file: Path, path: str = "") -> None:
        self._data, self._file, self._path = dict(data), file, path

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None and self._data:
            raise self.wrong(next(iter(self._data)), "is not a known key")

    def _name(self, key: str) -> str:
        return f"{self._path}.{key}" if self._path else key

    def wrong(self, key: str, problem: str) -> NagleLabError:
        """Return the error that says ``problem`` about ``key`` of this file."""
        return NagleLabError(f"{self._file}: {self._name(key)} {problem}")

    def names(self) -> list[str]:
        """Return the keys not yet taken, in the file's order."""
        return list(self._data)

    def take(self, key: str, kind: type[T]) -> T:
        """Return the value of ``key``, which must be there and of ``kind``."""
        if key not in self._data:
            raise self.wrong(key, "is missing")
        value = self._data.pop(key)
        if not isinstance(value, kind) or isinstance(value, bool):  # a TOML boolean would pass for an int
            raise self.wrong(key, f"must be {_KINDS[kind]}, not {value!r}")
        return value

    def optional(self, key: str, kind: type[T]) -> T | None:
        """Return the value of ``key``, or None where it is left out."""
        return self.take(key, kind) if key in self._data else None

    def line(self, key: str) -> str:
        """Return a string that says something."""
        value = self.take(key, str).strip()
        if not value:
            raise self.wrong(key, "is empty")
        return value

    def word(self, key: str, words: tuple[str, ...]) -> str:
        """Return a string that is one of ``words``."""
        value = self.take(key, str)
        if value not in words:
            raise self.wrong(key, f"must be one of {', '.join(words)}, not {value!r}")
        return value

    def table(self, key: str) -> "Table":
        """Return the table under ``key``."""
        return Table(self.take(key, dict), self._file, self._name(key))

    def tables(self, key: str) -> list["Table"]:
        """Return the tables in the list under ``key``, named by their number from 1; none where it is left out."""
        found = []
        for number, value in enumerate(self.optional(key, list) or [], 1):
            if not isinstance(value, dict):
                raise self.wrong(f"{key}[{number}]", f"must be a table, not {value!r}")
            found.append(Table(value, self._file, self._name(f"{key}[{number}]")))
        return found

    def lines(self, key: str) -> list[str]:
        """Return the list of strings under ``key``, at least one."""
        values = self.take(key, list)
        if not values or not all(isinstance(value, str) and value.strip() for value in values):
            raise self.wrong(key, f"must be a list of strings, not {values!r}")
        return values

    def port(self, key: str) -> int:
        """Return a TCP port."""
        value = self.take(key, int)
        if not 0 < value < 1 << 16:
            raise self.wrong(key, f"must be a TCP port, 1 to 65535, not {value}")
        return value

    def span(self, key: str) -> tuple[float, float]:
        """Return two numbers, the lower first."""
        values = self.take(key, list)
        numbers = [value for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
        if len(values) != 2 or len(numbers) != 2 or numbers[0] > numbers[1]:
            raise self.wrong(key, f"must be two numbers, the lower first, not {values!r}")
        return float(numbers[0]), float(numbers[1])

    def texts(self, key: str) -> dict[str, str]:
        """Return the table under ``key``, whose values must all be strings."""
        with self.table(key) as table:
            return {name: table.take(name, str) for name in table.names()}
