"""Rows put aside come back, whether memory held them or a file."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nagle_lab.tcp import shelf

ROW = np.dtype([("number", "i8"), ("half", "f4"), ("flag", "?")])
IN_MEMORY = 40 * ROW.itemsize

NUMBERS = st.lists(st.integers(1, 1 << 40), max_size=60)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), NUMBERS),
        st.tuples(st.just("put"), st.lists(st.integers(0, 120), max_size=30, unique=True)),
    ),
    max_size=12,
)


def rows(numbers: list[int]) -> np.ndarray:
    made = np.zeros(len(numbers), ROW)
    made["number"], made["flag"] = numbers, True
    made["half"] = made["number"] / 2
    return made


@pytest.mark.parametrize("small", [1, shelf.SMALL])
@given(steps=STEPS, every=st.integers(2, 4))
def test_a_shelf_is_a_list(small, steps, every):
    """Appended, put anywhere, thinned out: what is in it is what a list has, in pieces of any size and by number."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(shelf, "SMALL", small)
        patched.setattr(shelf, "CHUNK", 7)
        ours, theirs = shelf.Shelf(ROW, IN_MEMORY), []
        for step, value in steps:
            if step == "append":
                ours.append(rows(value))
                theirs += value
            elif step == "put":
                ours.put(np.array(value, np.int64), rows([7 + number for number in value]))
                theirs += [0] * (max(value, default=-1) + 1 - len(theirs))
                for number in value:
                    theirs[number] = 7 + number
            assert len(ours) == len(theirs)
            assert [n for chunk in ours.chunks(11) for n in chunk["number"].tolist()] == theirs
        ours.keep(lambda some: some[some["number"] % every != 0])
        theirs = [number for number in theirs if number % every]
        at = np.arange(len(theirs))[::-2]
        assert ours.take(at)["number"].tolist() == theirs[::-2]
        assert ours.take(at)["half"].tolist() == pytest.approx([number / 2 for number in theirs[::-2]])
