"""How the tests are handed out to the workers: support.turns."""

from support.repository import REPOSITORY
from support.turns import APART, TOGETHER, by_turns, unit_of


def test_either_list_is_used_up_as_evenly_as_the_other():
    assert by_turns("ab", "1234") == ["1", "a", "2", "3", "b", "4"]
    assert by_turns([], "12") == ["1", "2"]


def test_a_file_is_a_unit_and_of_the_lab_a_test():
    assert unit_of("tests/unit/test_turns.py::test_a[1/2::3]") == "tests/unit/test_turns.py"
    assert unit_of("tests/guard/test_guard.py::test_a[1]") == "tests/guard/test_guard.py::test_a[1]"
    assert unit_of("tests/lab/test_faults.py::test_a") == "tests/lab/test_faults.py"
    assert unit_of("tests/lab/test_demo.py::test_a[1]") == "tests/lab/test_demo.py::test_a[1]"


def test_what_is_made_for_a_file_is_made_once():
    """A file with a fixture of its own is handed out as one."""
    files = sorted((REPOSITORY / "tests" / "lab").glob("test_*.py"))
    assert set(TOGETHER) <= {file.name for file in files}
    assert {file.name for file in files if 'scope="module"' in file.read_text()} <= set(TOGETHER)
    assert not any('scope="module"' in (REPOSITORY / "tests" / "guard" / name).read_text() for name in APART)
