"""Which tests one worker of pytest-xdist runs in a row, and in what order the workers take them.

`make test` has six workers. Each takes a file at a time; of most files of the lab a single test, for each run has its
own project, network and folder; and so of the two longest files of the guard. The order:

1. the test marked ``alone``, which keeps the machine busy itself: no other test of guard and lab runs meanwhile; the
   one that ``builds`` all images; and some tests that compute;
2. in turns tests that wait, of guard and lab, and tests that compute, so that neither processor is idle; files marked
   ``long`` begin before the others;
3. tests marked ``quiet``, which a busy machine would disturb: once every worker has come to them, a
   few at a time (``QUIET_AT_ONCE``).
"""

from collections.abc import Sequence
from pathlib import PurePath
from typing import TypeVar

T = TypeVar("T")

# Of the lab: what several of their tests look at is made once for all of them, or is in one folder.
TOGETHER = ("test_confinement.py", "test_faults.py", "test_places.py", "test_readme_commands.py")

# Of the guard: each of their tests takes a second or more, and makes what it looks at itself.
APART = ("test_guard.py", "test_pytest_plugin.py")


def unit_of(nodeid: str) -> str:
    """Tests of the same unit are run by one worker, one after the other: a file; of the lab mostly a single test."""
    file = PurePath(nodeid.partition("::")[0])
    is_apart = file.name not in TOGETHER if file.parent.name == "lab" else file.name in APART
    return nodeid if is_apart else str(file)


def by_turns(one: Sequence[T], other: Sequence[T]) -> list[T]:
    """Both as one list, which uses up either as evenly as the other."""
    places = [((number + 0.5) / len(some), each) for some in (one, other) for number, each in enumerate(some)]
    return [each for _, each in sorted(places, key=lambda place: place[0])]
