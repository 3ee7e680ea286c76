"""Which tests one worker of pytest-xdist runs in a row, and in what order the workers take them.

`make test` has six workers. Each takes one file at a time; but single tests from most files of the lab, because each
run has its own project, network and folder, and from the two longest files of the guard. The order:

1. the test marked ``alone``, which itself keeps the machine busy, so no other test of guard and lab runs meanwhile;
   the one that ``builds`` all images; and some tests that compute;
2. alternately tests of guard and lab, which wait, and tests that compute, so that neither processor is idle; files
   marked ``long`` begin before the others;
3. tests marked ``quiet``, which a busy machine would disturb: once every worker has reached them, a few at a time
   (``QUIET_AT_ONCE``).
"""

from collections.abc import Sequence
from pathlib import PurePath
from typing import TypeVar

T = TypeVar("T")

# Files of the lab whose tests share a run made once, or a folder.
TOGETHER = ("test_confinement.py", "test_faults.py", "test_places.py", "test_readme_commands.py")

# Files of the guard whose tests take a second or more each, and share nothing.
APART = ("test_guard.py", "test_pytest_plugin.py")


def unit_of(nodeid: str) -> str:
    """The unit of a test: one worker runs the tests of a unit, one after the other. It is a file; in the lab mostly a
    single test.
    """
    file = PurePath(nodeid.partition("::")[0])
    is_apart = file.name not in TOGETHER if file.parent.name == "lab" else file.name in APART
    return nodeid if is_apart else str(file)


def by_turns(one: Sequence[T], other: Sequence[T]) -> list[T]:
    """Both lists merged evenly."""
    places = [((number + 0.5) / len(some), each) for some in (one, other) for number, each in enumerate(some)]
    return [each for _, each in sorted(places, key=lambda place: place[0])]
