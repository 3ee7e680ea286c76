"""The connection table: the ends in one of its rows, and its columns for the rows of another table."""

from collections.abc import Sequence
from struct import Struct
from typing import Any

from nagle_lab.diagnosis.observed.columns import Column, Numbers, distinct, is_array, maximum, pick, ranks, select
from nagle_lab.packet.segment import address_text
from nagle_lab.tcp.arrays import numpy
from nagle_lab.tcp.layout import LAYOUTS
from nagle_lab.tcp.tables import Table

_AT = LAYOUTS["connection"].columns
_NO_ADDRESS = bytes(16)

PackedEnd = tuple[bytes, int]  # address, 16 bytes, and port


def packed_end(row: Sequence[Any], side: int) -> PackedEnd:
    """The end of a connection that is its ``side``, 0 or 1; ``row`` is of the connection table."""
    return row[_AT["address"]][16 * side : 16 * side + 16], row[_AT["port", side]]


def socket_address(row: Sequence[Any], side: int) -> tuple[str, int]:
    """The end as :func:`packed_end` gives it, but with its address as text."""
    address, port = packed_end(row, side)
    return address_text(address), port


def answers_as(row: Sequence[Any]) -> tuple[str, int] | None:
    """The address and the port that segments of its side 1 carry, if these are not that side's own."""
    address = row[_AT["answers_as"]]
    return (address_text(address), row[_AT["answers_as_port"]]) if address != _NO_ADDRESS else None


class Involved:
    """The m connections that n rows of another table belong to: a join of the two by connection number.

    Attributes
    ----------
    table : of all connections; its row k is the ``connection`` (tcp/engine.h) with number k
    numbers : of the connections involved (m,), each once, ascending
    of : for each row (n,), the place of its connection in ``numbers``
    """

    def __init__(self, table: Table, connections: Column) -> None:
        self.table = table
        self.numbers = distinct(connections)
        self.of = ranks(connections, self.numbers)
        self._layout = table.layout
        self._first = int(self.numbers[0])
        self._view = table.view(self._first, int(self.numbers[-1]))

    def column(self, name: Any) -> Column:
        """A column of the connections (m,).

        ``name`` is a field of ``connection`` or, for a field that each side has for itself, ``(field, side)``.
        """
        if is_array(self.numbers):
            return self._array(name)[self.numbers - self._first].astype("i8")
        field, offsets = self._places(name)
        return Numbers([field.unpack_from(self._view, at)[0] for at in offsets])

    def fill_in(self, name: Any, column: Column) -> None:
        """Write a column of the connections (m,); ``name`` as for :meth:`column`."""
        if is_array(self.numbers):
            self._array(name)[self.numbers - self._first] = column
            return
        field, offsets = self._places(name)
        for at, value in zip(offsets, column, strict=True):
            field.pack_into(self._view, at, value)

    def rows(self, name: Any) -> Column:
        """A column of the connection of each row (n,)."""
        return pick(self.column(name), self.of)

    def of_side(self, name: str, sides: Column) -> Column:
        """For each row, what its side, 0 or 1 in ``sides`` (n,), has in a field that each side has for itself."""
        if is_array(sides):
            return self.column(name).reshape(-1).take(2 * self.of + sides)
        return select(sides, self.rows((name, 1)), self.rows((name, 0)))

    def fastest_ack(self, sides: Column) -> Column:
        """For each row, the fastest acknowledgement of its side (n,), ns; 0 if not known."""
        return maximum(self.of_side("fastest_ack", sides), 0)

    def _array(self, name: Any) -> Any:
        np = numpy()
        rows = np.frombuffer(self._view, self._layout.dtype)
        return rows[name] if isinstance(name, str) else rows[name[0]][:, name[1]]

    def _places(self, name: Any) -> tuple[Struct, list[int]]:
        code, offset = self._layout.places[name]
        size = self._layout.struct.size
        return Struct(code), [(number - self._first) * size + offset for number in self.numbers]
