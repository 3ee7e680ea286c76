"""The connections that some rows belong to, as the diagnosis looks them up and fills them in."""

from struct import Struct
from typing import Any

from nagle_lab.diagnosis.proof.population import Column, chosen, distinct, each, is_array, pick, ranks
from nagle_lab.tcp.arrays import numpy
from nagle_lab.tcp.tables import Table


class Involved:
    """The connections of n rows, each once; a row of ``table`` is the ``connection`` (tcp/engine.h) of its number.

    Attributes
    ----------
    table : of all connections
    numbers : of those involved (m,), in order
    of : which of them each row belongs to (n,)
    """

    def __init__(self, table: Table, connections: Column) -> None:
        self.table = table
        self.numbers = distinct(connections)
        self.of = ranks(connections, self.numbers)
        self._layout = table.layout
        self._first = int(self.numbers[0])
        self._part = table.part(self._first, int(self.numbers[-1]))

    def column(self, name: Any) -> Column:
        """A column of the connections (m,); ``(name, side)`` of what each side has its own."""
        if is_array(self.numbers):
            return self._array(name)[self.numbers - self._first].astype("i8")
        field, offsets = self._places(name)
        return [field.unpack_from(self._part, at)[0] for at in offsets]

    def fill_in(self, name: Any, column: Column) -> None:
        """Write a column of the connections (m,)."""
        if is_array(self.numbers):
            self._array(name)[self.numbers - self._first] = column
            return
        field, offsets = self._places(name)
        for at, value in zip(offsets, column, strict=True):
            field.pack_into(self._part, at, value)

    def rows(self, name: Any) -> Column:
        """A column of the connection of each row (n,)."""
        return pick(self.column(name), self.of)

    def of_side(self, name: str, sides: Column) -> Column:
        """What these sides (n,) have in a column of one number per side."""
        if is_array(sides):
            return self.column(name).reshape(-1).take(2 * self.of + sides)
        return each(chosen, sides, self.rows((name, 1)), self.rows((name, 0)))

    def reaction(self, sides: Column) -> Column:
        """How fast these sides (n,) react at best, ns; 0 unknown."""
        return each(lambda reaction: chosen(reaction < 0, 0, reaction), self.of_side("reaction", sides))

    def _array(self, name: Any) -> Any:
        np = numpy()

        rows = np.frombuffer(self._part, self._layout.dtype)
        return rows[name] if isinstance(name, str) else rows[name[0]][:, name[1]]

    def _places(self, name: Any) -> tuple[Struct, list[int]]:
        code, offset = self._layout.place(name)
        size = self._layout.struct.size
        return Struct(code), [(number - self._first) * size + offset for number in self.numbers]
