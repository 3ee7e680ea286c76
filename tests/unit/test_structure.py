"""Data flows one way: nothing imports from a later room or package, and what diagnoses never touches Docker."""

import ast
import re
from collections import Counter
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

import nagle_lab
from support.repository import REPOSITORY, named

PACKAGE = Path(nagle_lab.__file__).parent
ROOMS = (
    "errors", "capture", "packet", "tcp", "diagnosis", "evidence", "runs", "host", "guard", "lab", "live",
    "experiments", "fleet", "reports", "cli",
)  # fmt: skip
ANALYSIS = ("capture", "packet", "tcp", "diagnosis", "evidence")  # a function of the bytes of a capture
INSIDE = {  # the packages inside each room, in order; a room's own modules come after them
    "diagnosis": ("observed", "proof", "result"),
    "lab": ("scenarios", "containers"),
    "guard": ("tracing", "recording"),
    "live": ("sockets", "watch"),
    "experiments": ("software", "writes"),
    "reports": ("words", "files", "screens", "experiments", "html"),
    "cli": ("shared", "workshop", "captures", "lab", "software", "live", "pytest_plugin"),
}
MOST_MODULES = 13
MOST_FLOORS = 10


def modules() -> dict[tuple[str, ...], Path]:
    """Every module of the package by its name below ``nagle_lab``: ("diagnosis", "proof", "near")."""
    found = {}
    for path in PACKAGE.rglob("*.py"):
        if "hooks" not in path.parts:  # they are loaded by programs under strace, and import nothing of ours
            parts = path.relative_to(PACKAGE).with_suffix("").parts
            found[parts[:-1] if parts[-1] == "__init__" else parts] = path
    return found


MODULES = modules()


def imports(path: Path) -> set[tuple[str, ...]]:
    """The modules of the package that a module imports, wherever in it."""
    named = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are written in full"
            named |= {(*str(node.module).split("."), alias.name) for alias in node.names}
        elif isinstance(node, ast.Import):
            named |= {tuple(alias.name.split(".")) for alias in node.names}
    ours = {name[1:] for name in named if name[0] == "nagle_lab" and len(name) > 1}
    return {name if name in MODULES else name[:-1] for name in ours}  # what is no module is something in one


@cache
def all_imports() -> dict[tuple[str, ...], set[tuple[str, ...]]]:
    """What each module imports; not read by a worker of pytest that runs other tests."""
    return {name: imports(path) for name, path in MODULES.items()}


def package_of(name: tuple[str, ...]) -> tuple[str, ...]:
    """The folder that a module is in: a package is its own ``__init__.py``."""
    return name if MODULES[name].name == "__init__.py" else name[:-1]


def test_every_module_has_its_room():
    assert {name[0] for name in MODULES if name} == {*ROOMS, "__main__"}


def test_nothing_lies_in_the_root_of_the_package():
    assert {path.name for path in PACKAGE.glob("*.py")} == {"__init__.py", "__main__.py", "errors.py"}


def test_every_package_in_a_room_is_named_here_and_says_what_it_holds():
    packages = {package_of(name) for name in MODULES if name}
    assert {name for name in packages if len(name) > 1} == {(room, name) for room in INSIDE for name in INSIDE[room]}
    assert [name for name in packages if name and not ast.get_docstring(ast.parse(MODULES[name].read_text()))] == []


def test_no_package_holds_more_modules_than_one_takes_in():
    held = Counter(package_of(name) for name in MODULES if MODULES[name].name != "__init__.py")
    assert {name: count for name, count in held.items() if count > MOST_MODULES} == {}


def test_no_room_imports_from_a_later_one():
    order = {room: i for i, room in enumerate(ROOMS)}
    wrong = [
        f"{'.'.join(name)} imports {'.'.join(imported)}"
        for name in MODULES
        for imported in all_imports()[name]
        if name and name[0] in order and imported and order[imported[0]] > order[name[0]]
    ]
    assert wrong == []


def test_no_package_of_a_room_imports_from_a_later_one():
    order = {(room, inside): i for room in INSIDE for i, inside in enumerate(INSIDE[room])}
    last = len(order)
    wrong = [
        f"{'.'.join(name)} imports {'.'.join(imported)}"
        for name in MODULES
        for imported in all_imports()[name]
        if name and imported and name[0] == imported[0]
        if order.get(package_of(imported), last) > order.get(package_of(name), last)
    ]
    assert wrong == []


def test_the_house_has_ten_floors():
    """A room stands above all that it imports; the entry point stands on top."""
    below = {room: set() for room in (*ROOMS, "__main__")}
    for name, imported in all_imports().items():
        if name:
            below[name[0]] |= {other[0] for other in imported if other} - {name[0]}
    floors = {}
    for room, others in below.items():
        floors[room] = 1 + max((floors[other] for other in others), default=0)
    assert max(floors.values()) <= MOST_FLOORS


@pytest.mark.parametrize("room", ["lab", "guard", "host"])
def test_what_records_never_looks_into_packets(room):
    of_the_room = [imported for name, imported in all_imports().items() if name[:1] == (room,)]
    seen = {imported[0] for each in of_the_room for imported in each if imported}
    assert of_the_room and not seen & ({*ANALYSIS} - {"capture"})


@pytest.mark.parametrize("package", ["observed", "proof"])
def test_the_proof_says_in_which_order_to_read_its_modules(package):
    folder = PACKAGE / "diagnosis" / package
    named = re.findall(r"(\w+\.py)\b", str(ast.get_docstring(ast.parse((folder / "__init__.py").read_text()))))
    assert sorted(named) == sorted(path.name for path in folder.glob("*.py") if path.name != "__init__.py")


OTHERS = ("bench", "docs", "maintenance", "site")
SCRIPTS = [path for folder in OTHERS for path in (REPOSITORY / folder).rglob("*.py")]


def programs(path: Path) -> list[ast.Module]:
    """A script, and the programs in its texts that import from the package."""
    script = ast.parse(path.read_text())
    texts = [
        node.value for node in ast.walk(script) if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    return [script, *(ast.parse(text) for text in texts if re.search(r"^from nagle_lab\b", text, re.MULTILINE))]


@pytest.mark.parametrize("path", SCRIPTS, ids=named)
def test_what_a_script_imports_from_the_package_is_there(path: Path):
    """Of some nobody notices for weeks, because no other test runs them."""
    for node in [node for program in programs(path) for node in ast.walk(program)]:
        if isinstance(node, ast.ImportFrom) and str(node.module).split(".")[0] == "nagle_lab":
            module = import_module(str(node.module))
            missing = [alias.name for alias in node.names if not hasattr(module, alias.name)]
            assert [name for name in missing if not find_spec(f"{node.module}.{name}")] == []
