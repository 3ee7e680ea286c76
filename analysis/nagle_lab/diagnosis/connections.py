"""The connections of a capture, as the diagnosis looks them up and fills them in: by number, many at a time."""

from collections.abc import Callable, Iterator
from struct import Struct
from typing import Any

from nagle_lab.diagnosis.population import Column, Columns, chosen, each, highest, is_array, least, lowest, most
from nagle_lab.diagnosis.proof import Ends
from nagle_lab.tcp.tables import Table


class Connections:
    """The table of ``connection`` rows (tcp/engine.h); a row is that connection's number."""

    def __init__(self, table: Table) -> None:
        self.table = table

    def ends(self, connections: Column, sides: Column) -> Ends:
        """What is known of one side of each connection (n,), and of its peer."""
        reaction, peer = self.of_side("reaction", connections, sides)
        nagle_off, _ = self.of_side("nagle_off", connections, sides)
        program, _ = self.of_side("program", connections, sides)
        return Ends(
            reaction=each(_or_zero, reaction),
            peer_reaction=each(_or_zero, peer),
            handshake=self.of("syns", connections),
            nagle_off=nagle_off,
            program=program,
            half=each(lambda connection, side: 2 * connection + side, connections, sides),
        )

    def reaction(self, connections: Column, sides: Column) -> Column:
        """How fast one side of each connection (n,) reacts at best, ns; 0 unknown."""
        return each(_or_zero, self.of_side("reaction", connections, sides)[0])

    def of(self, name: Any, connections: Column) -> Column:
        """A column of those connections (n,)."""
        return self._field(name, connections).get(connections) if len(connections) else connections

    def of_side(self, name: str, connections: Column, sides: Column) -> tuple[Column, Column]:
        """A column of one number per side: of these sides (n,), and of their peers."""
        if not len(connections):
            return connections, connections
        field = self._field((name, 0), connections)
        if is_array(connections):
            return field.get_both(connections, sides)
        zero, one = field.get(connections), self._field((name, 1), connections).get(connections)
        return each(chosen, sides, one, zero), each(chosen, sides, zero, one)

    def increase(self, name: Any, connections: Column) -> None:
        """Add one for each of these connections (n,), which may repeat."""
        if len(connections):
            self._field(name, connections).add(connections)

    def lower(self, name: str, connections: Column, numbers: Column) -> None:
        """Keep the lowest number (n,) of each connection, -1 being none; the connections in order."""
        if len(connections):
            self._field(name, connections).keep(connections, numbers, _lower)

    def raise_to(self, name: str, connections: Column, numbers: Column) -> None:
        """Keep the highest number (n,) of each connection; the connections in order."""
        if len(connections):
            self._field(name, connections).keep(connections, numbers, most)

    def chunks(self) -> Iterator[Columns]:
        """All of them, a chunk at a time."""
        for begin, end in self.table.chunks():
            yield Columns(self.table.layout, self.table.read(begin, end))

    def _field(self, name: Any, connections: Column) -> "_Field":
        first = lowest(connections)
        return _Field(self.table, name, self.table.part(first, highest(connections)), first)


class _Field:
    """One column of some rows, ``first`` the number of the first one."""

    def __init__(self, table: Table, name: Any, rows: memoryview, first: int) -> None:
        self._table, self._name, self._rows, self._first = table, name, rows, first

    def get(self, numbers: Column) -> Column:
        """Of those rows (n,)."""
        if is_array(numbers):
            return self._near(numbers)[numbers - self._first].astype("i8")
        code, offset, size = self._place()
        unpack, first = Struct(code).unpack_from, self._first
        return [unpack(self._rows, (number - first) * size + offset)[0] for number in numbers]

    def get_both(self, numbers: Any, sides: Any) -> tuple[Any, Any]:
        """Of those rows (n,) what these sides have, and what their peers."""
        both = self._near(numbers, self._name[0])[numbers - self._first].astype("i8").reshape(-1)
        place = 2 * _range(len(numbers)) + sides
        return both[place], both[place ^ 1]

    def add(self, numbers: Column) -> None:
        """Add one for each of those rows, which may repeat."""
        if is_array(numbers):
            import numpy as np  # noqa: PLC0415

            counts = np.bincount(numbers - self._first)
            self._array()[: len(counts)] += counts.astype("i4")
            return
        self._replace(numbers, numbers, lambda old, _: old + 1)

    def keep(self, numbers: Column, values: Column, rule: Callable[[Any, Any], Any]) -> None:
        """Replace what each of those rows (n,), in order, has by what the rule makes of it and of the values (n,)."""
        if is_array(numbers):  # the first and the last value of each row: values are in order, too
            import numpy as np  # noqa: PLC0415

            begins = np.flatnonzero(np.diff(numbers, prepend=-1))
            ends = np.append(begins[1:], len(numbers)) - 1
            column, rows = self._array(), numbers[begins] - self._first
            for at in (begins, ends):
                column[rows] = rule(column[rows].astype("i8"), values[at])
            return
        self._replace(numbers, values, rule)

    def _replace(self, numbers: Column, values: Column, rule: Callable[[Any, Any], Any]) -> None:
        code, offset, size = self._place()
        field, first = Struct(code), self._first
        for number, value in zip(numbers, values, strict=True):
            at = (number - first) * size + offset
            field.pack_into(self._rows, at, rule(field.unpack_from(self._rows, at)[0], value))

    def _near(self, numbers: Any, name: str = "") -> Any:
        """The column, close together where most of it is asked for: looks into whole rows take longer."""
        import numpy as np  # noqa: PLC0415

        column = self._array(name)
        return np.ascontiguousarray(column) if len(column) < 4 * len(numbers) else column

    def _array(self, name: str = "") -> Any:
        import numpy as np  # noqa: PLC0415

        rows = np.frombuffer(self._rows, self._table.layout.dtype)
        if name:
            return rows[name]
        return rows[self._name] if isinstance(self._name, str) else rows[self._name[0]][:, self._name[1]]

    def _place(self) -> tuple[str, int, int]:
        return (*self._table.layout.place(self._name), self._table.layout.struct.size)


def _lower(old: Any, new: Any) -> Any:
    return chosen(old < 0, new, least(old, new))


def _or_zero(reaction: Any) -> Any:
    return chosen(reaction < 0, 0, reaction)


def _range(count: int) -> Any:
    import numpy as np  # noqa: PLC0415

    return np.arange(count)
