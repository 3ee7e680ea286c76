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

    def texts(self, key: str) -> dict[str, str]:
        """Return the table under ``key``, whose values must all be strings."""
        with self.table(key) as table:
            return {name: table.take(name, str) for name in table.names()}
