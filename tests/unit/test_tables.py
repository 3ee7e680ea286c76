"""Rows that left come back, whether memory held them or a file."""

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nagle_lab.errors import NagleLabError
from nagle_lab.tcp import tables
from nagle_lab.tcp.layout import LAYOUTS, Field, Layout, read_layout

ROW = Layout("row", (Field("number", "q", 1), Field("halves", "i", 2), Field("flag", "B", 1), Field("name", "B", 3)))
IN_MEMORY = 40 * ROW.struct.size

NUMBERS = st.lists(st.integers(1, 1 << 30), max_size=60)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), NUMBERS),
        st.tuples(st.just("put"), st.lists(st.integers(0, 120), max_size=30, unique=True)),
        st.tuples(st.just("reach"), st.lists(st.integers(0, 150), min_size=1, max_size=1)),
        st.tuples(st.just("change"), st.lists(st.integers(0, 1 << 30), min_size=2, max_size=2)),
    ),
    max_size=12,
)


def row(number: int) -> tuple:
    return number, number // 2, -number // 3, 1, b"row"


NOTHING = (0, 0, 0, 0, bytes(3))


@pytest.mark.parametrize("in_memory", [0, IN_MEMORY, 1 << 20], ids=["on disk", "some in memory", "in memory"])
@given(steps=STEPS)
def test_a_table_is_a_list(in_memory, steps):
    """Added, put anywhere, changed in place: what is in it is what a list has, in chunks and by number."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(tables, "CHUNK", 7)
        patched.setattr(tables, "GROWTH", 100)
        ours, theirs = tables.Table(ROW, in_memory), []
        for step, value in steps:
            if step == "append":
                for number in value[:3]:
                    ours.add(*row(number))
                ours.append(b"".join(ROW.struct.pack(*row(number)) for number in value[3:]))
                theirs += map(row, value)
            elif step == "put":
                for number in value:
                    ours.put(number, row(7 + number))
                    theirs += [NOTHING] * (number + 1 - len(theirs))
                    theirs[number] = row(7 + number)
            elif step == "reach":
                ours.reach(*value)
                theirs += [NOTHING] * (value[0] - len(theirs))
            elif theirs:
                first, last = sorted(number % len(theirs) for number in value)
                part = ours.view(first, last)
                ROW.struct.pack_into(part, 0, *row(value[0]))
                theirs[first] = row(value[0])
                assert (
                    list(ROW.struct.iter_unpack(part[: (last + 1 - first) * ROW.struct.size]))
                    == theirs[first : last + 1]
                )
                del part
            assert len(ours) == len(theirs)
            assert list(ours.rows()) == theirs
        assert [ours.row(number) for number in range(len(theirs))] == theirs
        assert b"".join(ours.chunks()) == b"".join(ROW.struct.pack(*values) for values in theirs)
        for begin in range(0, len(theirs), 5):
            assert list(ROW.struct.iter_unpack(ours.read(begin, len(theirs)))) == theirs[begin:]


def test_no_room_for_temporary_files_is_said(monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.posix_fallocate", full)
    with pytest.raises(NagleLabError, match=r"no room for temporary files in .*No space left on device.*TMPDIR"):
        tables.Table(ROW, in_memory=0).add(*row(1))


# -------------------------------------------------------------------------------------------- layouts


@pytest.mark.parametrize("name", LAYOUTS)
def test_python_s_structs_are_those_of_engine_h(name):
    """Row by row, column by column, in NumPy and without it."""
    layout = LAYOUTS[name]
    values = [
        bytes(range(number, number + count)) if code == "B" and count > 2 else number + side
        for number, (_, code, count) in enumerate(layout.fields, 1)
        for side in range(1 if code == "B" and count > 2 else count)
    ]
    packed = layout.struct.pack(*values)
    (array,) = np.frombuffer(packed, layout.dtype)
    assert layout.dtype.itemsize == layout.struct.size == len(packed)
    for column, place in layout.columns.items():
        code, at = layout.places[column]
        if isinstance(values[place], bytes):
            assert bytes(array[column]) == values[place] == packed[at : at + len(values[place])]
        else:
            in_array = array[column] if isinstance(column, str) else array[column[0]][column[1]]
            assert int(in_array) == values[place]
            assert struct.unpack_from(code, packed, at) == (values[place],)


@pytest.mark.parametrize("body", ["    int8_t small;\n    int64_t large;", "    int64_t large;\n    int8_t small;"])
def test_a_struct_that_needs_padding_is_refused(body):
    with pytest.raises(ValueError, match="needs padding"):
        read_layout("padded", f"typedef struct {{\n{body}\n}} padded;")


def test_a_column_that_is_none_is_refused():
    with pytest.raises(KeyError):
        LAYOUTS["candidate"].places["none"]


def test_a_row_of_which_no_field_is_named_is_all_zeros():
    for layout in (ROW, *LAYOUTS.values()):
        assert layout.struct.pack(*layout.row()) == bytes(layout.struct.size)
