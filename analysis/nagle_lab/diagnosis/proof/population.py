"""Populations: the same rule applied to a list of ten rows and to an array of a million.

A rule is a function of one row's numbers, written with comparisons, arithmetic and ``&`` and ``|``: NumPy then
applies it to whole columns at once. A few rows are lists, and need no NumPy, whose import takes longer than judging
them; from LARGE on they are arrays. What differs between the two is here, and nothing else is.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from nagle_lab.tcp.arrays import has_numpy, numpy
from nagle_lab.tcp.layout import Layout

LARGE = 1 << 12  # rows
EXACT = 1 << 53  # up to here sums of doubles are

Column = Any
"""Numbers, one for each row: a list or tuple, or a NumPy array."""


def is_large(rows: int) -> bool:
    """Whether so many rows become arrays."""
    return rows >= LARGE and has_numpy()


class Columns:
    """Packed rows of a layout, by column; a column of one number per side is ``columns[name, side]``."""

    def __init__(self, layout: Layout, packed: bytes | memoryview) -> None:
        self._layout = layout
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
        if isinstance(self._rows, list):
            return self._rows[self._layout.columns[name]]
        if name not in self._converted:
            column = self._rows[name] if isinstance(name, str) else self._rows[name[0]][:, name[1]]
            self._converted[name] = column.astype("i8")
        return self._converted[name]


def as_column(numbers: Sequence[int]) -> Column:
    """A column of them; of an array where there are many."""
    if not is_large(len(numbers)):
        return list(numbers)
    np = numpy()

    return np.asarray(numbers)


def listed(column: Column) -> Sequence[Any]:
    """The numbers as Python has them."""
    numbers: Sequence[Any] = column.tolist() if is_array(column) else column
    return numbers


def is_array(column: Column) -> bool:
    """Whether it is one of NumPy's."""
    return not isinstance(column, list | tuple | range)


def each(rule: Callable[..., Any], *columns: Column) -> Column:
    """What the rule says of each row."""
    if is_array(columns[0]):
        return rule(*columns)
    return [rule(*row) for row in zip(*columns, strict=True)]


def where(condition: Column) -> Column:
    """The numbers of the rows of which it is true."""
    return condition.nonzero()[0] if is_array(condition) else [row for row, met in enumerate(condition) if met]


def pick(column: Column, rows: Column) -> Column:
    """Those rows, in that order."""
    return column.take(rows) if is_array(column) else [column[row] for row in rows]


def total(column: Column) -> int:
    """The sum; of truths, how many."""
    return int(column.sum()) if is_array(column) else sum(column)


def least(one: Any, other: Any) -> Any:
    """The lesser of two numbers, or of each two."""
    if is_number(one):
        return min(one, other)
    np = numpy()

    return np.minimum(one, other)


def most(one: Any, other: Any) -> Any:
    """The greater of two numbers, or of each two."""
    return -least(-one, -other)


def chosen(condition: Any, this: Any, that: Any) -> Any:
    """This number where the condition is true, else that."""
    if is_number(condition):
        return this if condition else that
    np = numpy()

    return np.where(condition, this, that)


def is_number(value: Any) -> bool:
    """Whether it is one row's, not a column."""
    return isinstance(value, int | float)


def lowest(column: Column) -> int:
    """The least number of a column that has any."""
    return int(column.min() if is_array(column) else min(column))


def highest(column: Column) -> int:
    """The greatest number of a column that has any."""
    return int(column.max() if is_array(column) else max(column))


def percentile(column: Column, percent: float) -> float:
    """By linear interpolation between the two nearest ranks."""
    place, part = divmod((len(column) - 1) * percent, 100)
    low_at, high_at = int(place), int(place) + (part > 0)
    if is_array(column):
        np = numpy()

        ordered: Any = np.partition(column, [low_at, high_at])
    else:
        ordered = sorted(column)
    low, high = float(ordered[low_at]), float(ordered[high_at])
    return low + (high - low) * part / 100


def distinct(column: Column) -> Column:
    """Every number once, least first."""
    if not is_array(column):
        return sorted(set(column))
    np = numpy()

    low, high = (int(column.min()), int(column.max())) if len(column) else (0, -1)
    if high - low < 4 * len(column):  # close together: counting takes less than sorting
        return np.flatnonzero(np.bincount(column - low)) + low
    ordered = np.sort(column)
    return ordered[np.diff(ordered, prepend=ordered[:1] - 1) != 0]


def ranks(column: Column, ordered: Column) -> Column:
    """Which of the ``ordered`` numbers, each of them there once, each row has."""
    if is_array(column):
        np = numpy()

        low, among = ordered[0], ordered[-1] - ordered[0] + 1
        if among > 4 * len(column):
            return np.searchsorted(ordered, column)
        place = np.empty(among, np.int64)  # close together: looking up takes less than searching
        place[ordered - low] = np.arange(len(ordered))
        return place[column - low]
    rank = {number: place for place, number in enumerate(ordered)}
    return [rank[number] for number in column]


def counts(numbers: Column, below: int) -> Column:
    """How often each number from 0 on occurs, (below,)."""
    if is_array(numbers):
        np = numpy()

        return np.bincount(numbers, minlength=below)
    counted = [0] * below
    for number in numbers:
        counted[number] += 1
    return counted


def groups(keys: Column) -> Iterator[Column]:
    """The numbers of the rows that have a key in common, in order, for each key."""
    if is_array(keys):
        np = numpy()

        if len(keys) and (keys == keys[0]).all():  # one group: nothing to sort
            yield np.arange(len(keys))
            return
        order = np.argsort(keys, kind="stable")
        ordered = keys[order]
        yield from np.split(order, np.flatnonzero(ordered[1:] != ordered[:-1]) + 1) if len(order) else ()
        return
    rows: dict[Any, list[int]] = {}
    for row, key in enumerate(keys):
        rows.setdefault(key, []).append(row)
    yield from rows.values()


def sums(numbers: Column, weights: Column, below: int) -> Column:
    """The sum of the weights of each number from 0 on, (below,)."""
    if is_array(numbers) and len(numbers) * int(weights.max(initial=0)) < EXACT:
        return numpy().bincount(numbers, weights, below).astype("i8")
    tallied = tally(numbers, weights)
    return [tallied.get(number, (0, 0))[1] for number in range(below)]


def tally(keys: Column, weights: Column) -> dict[int, tuple[int, int]]:
    """How many rows have each key, a small number, and the sum of their weights."""
    if is_array(keys):
        np = numpy()

        counts, sums = np.bincount(keys).tolist(), [0] * (int(keys.max(initial=-1)) + 1)
        are_few = len(keys) * int(weights.max(initial=0)) < EXACT
        for shift in (0,) if are_few else (0, 21, 42):
            part = np.bincount(keys, weights if are_few else weights >> shift & 0x1FFFFF)
            sums = [whole + (int(some) << shift) for whole, some in zip(sums, part.tolist(), strict=True)]
        return {key: (count, sums[key]) for key, count in enumerate(counts) if count}
    counted: dict[int, tuple[int, int]] = {}
    for key, weight in zip(keys, weights, strict=True):
        count, whole = counted.get(key, (0, 0))
        counted[key] = (count + 1, whole + weight)
    return counted


def extended(before: Column, column: Column, after: Column) -> Column:
    """A column with others before and after it."""
    if is_array(column):
        np = numpy()

        return np.concatenate([np.asarray(before, np.int64), column, np.asarray(after, np.int64)])
    return [*before, *column, *after]


def replaced(column: Column, rows: Column, values: Column) -> Column:
    """A copy with other values in those rows."""
    copy = column[:] if not is_array(column) else column.copy()
    if is_array(copy):
        copy[rows] = values
    else:
        for row, value in zip(rows, values, strict=True):
            copy[row] = value
    return copy


def among(column: Column, values: Column) -> Column:
    """Which rows have one of those values."""
    if is_array(column):
        np = numpy()

        return np.isin(column, values)
    wanted = set(values)
    return [value in wanted for value in column]


def in_order(parts: Sequence[Column]) -> Column:
    """The numbers of all parts, each of which is in order, least first."""
    if len(parts) == 1:
        return parts[0]
    if any(is_array(part) for part in parts):
        np = numpy()

        return np.sort(np.concatenate(parts))
    return sorted(number for part in parts for number in part)
