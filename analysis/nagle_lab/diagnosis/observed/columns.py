"""Columns of numbers: lists for a few rows, NumPy arrays from LARGE rows on, and functions that take either.

Both are compared and calculated with row by row (``late & (column > 3)``), as in NumPy. Importing NumPy takes longer
than judging a few rows, hence :class:`Numbers`. Whatever differs between the two is in this module.
"""

import operator
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import compress, count, repeat
from typing import Any

from nagle_lab.tcp.arrays import has_numpy, numpy
from nagle_lab.tcp.durations import MOST, Durations
from nagle_lab.tcp.layout import Layout
from nagle_lab.tcp.tables import Table

LARGE = 1 << 12  # rows
EXACT = 1 << 63  # sums below this fit into 64 bits
MANY_STEPS = 1 << 20  # of durations: with fewer, counting takes less than sorting

Column = Any
"""Numbers, one for each row: a list of the class Numbers, or a NumPy array."""


class Numbers(list[Any]):
    """A list with the operators of an array: row by row, with another list of that length, or with one number."""

    def __bool__(self) -> bool:
        """Raise, as NumPy does: ``len`` says whether there are rows, :func:`are_all` whether all meet a condition."""
        raise ValueError("the truth of a column is ambiguous")


def _by_row(of: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Numbers]:
    def calculate(these: Any, other: Any) -> Numbers:
        return Numbers(map(of, these, _each(other, len(these))))

    return calculate


def _reflected(of: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Numbers]:
    return lambda these, other: Numbers(map(of, repeat(other), these))


def _each(column: Any, rows: int) -> Iterable[Any]:
    """One number for each of so many rows: those of a column, or the same one."""
    if not isinstance(column, list):
        return repeat(column, rows)
    if len(column) != rows:
        raise ValueError(f"a column of {len(column)} rows where there are {rows}")
    return column


for _name in ("lt", "le", "eq", "ne", "ge", "gt"):
    setattr(Numbers, f"__{_name}__", _by_row(getattr(operator, _name)))
for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "lshift", "rshift", "and", "or", "xor"):
    _of = getattr(operator, f"__{_name}__")
    setattr(Numbers, f"__{_name}__", _by_row(_of))
    setattr(Numbers, f"__r{_name}__", _reflected(_of))


def is_large(rows: int) -> bool:
    """Whether so many rows become arrays."""
    return rows >= LARGE and has_numpy()


class Columns:
    """The columns of packed rows of a table: ``columns[name]``, or ``columns[name, side]`` if each side has the
    field.
    """

    def __init__(self, layout: Layout, packed: bytes | memoryview) -> None:
        self._layout = layout
        self.packed = packed
        self._count = len(packed) // layout.struct.size
        self._converted: dict[Any, Column] = {}
        self._rows: Any
        if is_large(self._count):
            np = numpy()
            self._rows = np.frombuffer(packed, layout.dtype)
        else:
            self._rows = list(zip(*layout.struct.iter_unpack(packed), strict=True)) or [()] * len(layout.columns)

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, name: Any) -> Column:
        if name not in self._converted:
            self._converted[name] = self._convert(name)
        return self._converted[name]

    def _convert(self, name: Any) -> Column:
        if isinstance(self._rows, list):
            return Numbers(self._rows[self._layout.columns[name]])
        column = self._rows[name] if isinstance(name, str) else self._rows[name[0]][:, name[1]]
        return column.astype("i8")


def chunks(table: Table) -> Iterator[Columns]:
    """The rows of a table, some at a time."""
    return (Columns(table.layout, packed) for packed in table.chunks())


def as_column(numbers: Sequence[int]) -> Column:
    """The numbers as a column: a list if they are few, an array if they are many."""
    if not is_large(len(numbers)):
        return Numbers(numbers)
    np = numpy()
    return np.asarray(numbers)


def listed(column: Column) -> Sequence[Any]:
    """A column as a sequence of Python's own numbers."""
    numbers: Sequence[Any] = column.tolist() if is_array(column) else column
    return numbers


def is_array(column: Column) -> bool:
    """Whether the column is a NumPy array."""
    return not isinstance(column, list | tuple | range)


def rows_where(condition: Column) -> Column:
    """The numbers of the rows for which the condition (n,) is true, ascending."""
    return condition.nonzero()[0] if is_array(condition) else Numbers(compress(count(), condition))


def pick(column: Column, rows: Column) -> Column:
    """The column's values in those rows, in that order."""
    return column.take(rows) if is_array(column) else Numbers(map(column.__getitem__, rows))


def are_all(condition: Column) -> bool:
    """Whether the condition (n,) is true for every row."""
    return bool(condition.all()) if is_array(condition) else all(condition)


def total(column: Column) -> int:
    """The sum of the column; of a condition, in how many rows it is true."""
    return int(column.sum()) if is_array(column) else sum(column)


def maximum(column: Column, other: Any) -> Column:
    """Row by row the greater of a number of the column and that of another column, or one number."""
    if is_array(column):
        return numpy().maximum(column, other)
    return _by_row(max)(column, other)


def select(condition: Column, this: Any, that: Any) -> Column:
    """``this`` in the rows where the condition is true, else ``that``; each a column, or one number."""
    if is_array(condition):
        return numpy().where(condition, this, that)
    both = zip(condition, _each(this, len(condition)), _each(that, len(condition)), strict=True)
    return Numbers([one if met else other for met, one, other in both])


def is_full(length: Column, full: Column) -> Column:
    """Whether a segment is a full one, or several that offload made one packet; false if that is not known.

    ``length`` is its payload and ``full`` that of a full segment of its sender, bytes; 0 if not known.
    """
    return (full > 0) & (length % select(full > 0, full, 1) == 0)


def lowest(column: Column) -> int:
    """The least number of a column that has any."""
    return int(column.min() if is_array(column) else min(column))


def highest(column: Column) -> int:
    """The greatest number of a column that has any."""
    return int(column.max() if is_array(column) else max(column))


def percentile(column: Column, percent: float) -> float:
    """The percentile of a column that is not empty, interpolated linearly between the two nearest ranks."""
    place, part = divmod((len(column) - 1) * percent, 100)
    low_at, high_at = int(place), int(place) + (part > 0)
    if is_array(column):
        np = numpy()
        ordered: Any = np.partition(column, [low_at, high_at])
    else:
        ordered = sorted(column)
    low, high = float(ordered[low_at]), float(ordered[high_at])
    return low + (high - low) * part / 100


def median(column: Column) -> float:
    """The median of a column that is not empty, by nearest rank, as in results: a value that was observed."""
    at = (len(column) - 1) // 2
    return float(numpy().partition(column, at)[at] if is_array(column) else sorted(column)[at])


def distinct(column: Column) -> Column:
    """Every number of the column once, ascending."""
    if not is_array(column):
        return Numbers(sorted(set(column)))
    np = numpy()
    low, high = (int(column.min()), int(column.max())) if len(column) else (0, -1)
    if high - low < 4 * len(column):  # close together: counting takes less than sorting
        return np.flatnonzero(np.bincount(column - low)) + low
    ordered = np.sort(column)
    return ordered[np.diff(ordered, prepend=ordered[:1] - 1) != 0]


def ranks(column: Column, ordered: Column) -> Column:
    """For each row, the place of its number in ``ordered``, which are distinct and ascending."""
    if is_array(column):
        np = numpy()
        low, among = ordered[0], ordered[-1] - ordered[0] + 1
        if among > 4 * len(column):
            return np.searchsorted(ordered, column)
        place = np.empty(among, np.int64)  # close together: looking up takes less than searching
        place[ordered - low] = np.arange(len(ordered))
        return place[column - low]
    rank = {number: place for place, number in enumerate(ordered)}
    return Numbers([rank[number] for number in column])


def counts(numbers: Column, below: int) -> Column:
    """How often each number from 0 up to ``below`` occurs, (below,)."""
    if is_array(numbers):
        np = numpy()
        return np.bincount(numbers, minlength=below)
    counted = Numbers([0] * below)
    for number in numbers:
        counted[number] += 1
    return counted


def how_often(column: Column) -> dict[int, int]:
    """Each number of the column, and how often it occurs."""
    if not len(column):
        return {}
    numbers = distinct(column)
    often = counts(ranks(column, numbers), len(numbers))
    return dict(zip(listed(numbers), listed(often), strict=True))


def groups(keys: Column) -> Iterator[Column]:
    """For each distinct key, the numbers of the rows that have it, ascending."""
    if is_array(keys):
        np = numpy()
        if len(keys) and (keys == keys[0]).all():  # one group: nothing to sort
            yield np.arange(len(keys))
            return
        order = np.argsort(keys, kind="stable")
        ordered = keys[order]
        yield from np.split(order, np.flatnonzero(ordered[1:] != ordered[:-1]) + 1) if len(order) else ()
        return
    rows: dict[Any, Numbers] = {}
    for row, key in enumerate(keys):
        rows.setdefault(key, Numbers()).append(row)
    yield from rows.values()


def sums(numbers: Column, weights: Column, below: int) -> Column:
    """The sum of the weights of the rows with each number from 0 up to ``below``, (below,); they fit into 64 bits."""
    if is_array(numbers):
        np = numpy()
        summed = np.zeros(below, np.int64)
        np.add.at(summed, numbers, weights)
        return summed
    summed = Numbers([0] * below)
    for number, weight in zip(numbers, weights, strict=True):
        summed[number] += weight
    return summed


def least(numbers: Column, values: Column, below: int) -> Column:
    """The least value of the rows with each number from 0 up to ``below``, (below,); MOST if there is none."""
    if is_array(numbers):
        np = numpy()
        found = np.full(below, MOST)
        np.minimum.at(found, numbers, values)
        return found
    found = Numbers([MOST] * below)
    for number, value in zip(numbers, values, strict=True):
        found[number] = min(found[number], value)
    return found


def tally(columns: Sequence[Column], weights: Column) -> dict[tuple[int, ...], tuple[int, int]]:
    """By what a row has in these columns of small numbers from 0 on: how many rows have it, and the sum of their
    weights, exactly.
    """
    if is_array(weights) and len(weights) > 0 and len(weights) * int(weights.max()) < EXACT:
        np = numpy()
        shape = [highest(column) + 1 for column in columns]
        keys = np.ravel_multi_index(columns, shape)
        often = np.bincount(keys)
        summed = sums(keys, weights, len(often))
        present = np.flatnonzero(often)
        values = zip(*(part.tolist() for part in np.unravel_index(present, shape)), strict=True)
        return dict(zip(values, zip(often[present].tolist(), summed[present].tolist(), strict=True), strict=True))
    counted: dict[tuple[int, ...], tuple[int, int]] = {}
    for *row, weight in zip(*map(listed, columns), listed(weights), strict=True):
        count, whole = counted.get(tuple(row), (0, 0))
        counted[tuple(row)] = (count + 1, whole + weight)
    return counted


def replaced(column: Column, rows: Column, values: Column) -> Column:
    """A copy of the column with ``values`` in ``rows``; if a row comes several times, the last value stays."""
    copy = column.copy() if is_array(column) else Numbers(column)
    if is_array(copy):
        copy[rows] = values
    else:
        for row, value in zip(rows, values, strict=True):
            copy[row] = value
    return copy


def among(column: Column, values: Column) -> Column:
    """For each row, whether it has one of those values."""
    if is_array(column):  # np.isin would import numpy.ma, which takes 15 ms
        np = numpy()
        values = np.asarray(values, np.int64)
        low, high = (int(column.min()), int(column.max())) if len(column) else (0, -1)
        values = values[(values >= low) & (values <= high)]
        if high - low < 4 * len(column):  # close together: looking up takes less than searching
            is_wanted = np.zeros(high - low + 1, bool)
            is_wanted[values - low] = True
            return is_wanted[column - low]
        ordered = distinct(values)
        return np.append(ordered, MOST + 1)[np.searchsorted(ordered, column)] == column
    wanted = set(values)
    return Numbers([value in wanted for value in column])


def in_order(parts: Sequence[Column]) -> Column:
    """The numbers of all parts, each of which is ascending, as one ascending column."""
    if len(parts) == 1:
        return parts[0]
    if any(is_array(part) for part in parts):
        np = numpy()
        return np.sort(np.concatenate(parts))
    return Numbers(sorted(number for part in parts for number in part))


def add_all(durations: Durations, column: Column) -> None:
    """Count a column of durations (n,), ns."""
    if not is_array(column) or not len(column):
        for duration in column:
            durations.add(duration)
        return
    np = numpy()
    durations.total = min(durations.total + int(column.sum()), MOST)
    steps = np.rint(column / durations.step_ns).astype(np.int64)
    low, high = int(steps.min()), int(steps.max())
    if high - low < MANY_STEPS:
        often = np.bincount(steps - low)
        there = np.flatnonzero(often)
        steps, often = there + low, often[there]
    else:
        steps, often = np.unique(steps, return_counts=True)
    durations.counts.update(Counter(dict(zip(steps.tolist(), often.tolist(), strict=True))))
