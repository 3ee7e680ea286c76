"""Data flows one way: no room imports from a later one, and what diagnoses never touches Docker."""

import ast
from pathlib import Path

import nagle_lab

PACKAGE = Path(nagle_lab.__file__).parent
ROOMS = (
    "errors", "capture", "packet", "tcp", "diagnosis", "evidence", "runs", "lab", "guard", "live", "experiments",
    "fleet", "reports", "cli",
)  # fmt: skip
ANALYSIS = ("capture", "packet", "tcp", "diagnosis", "evidence")  # a function of the bytes of a capture


def imports(path: Path) -> set[str]:
    """First name under nagle_lab of everything the module imports from the package."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "nagle_lab":
            rest = node.module.split(".")[1:]
            names |= {rest[0]} if rest else {alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            names |= {a.name.split(".")[1] for a in node.names if a.name.startswith("nagle_lab.")}
    return names - {"__version__"}


def modules():
    for path in sorted(PACKAGE.rglob("*.py")):
        room = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        if not room.startswith("__"):
            yield path, room


def test_every_module_has_its_room():
    assert {room for _, room in modules()} == set(ROOMS)


def test_no_room_imports_from_a_later_one():
    order = {room: i for i, room in enumerate(ROOMS)}
    wrong = [
        f"{path.relative_to(PACKAGE)} imports {name}"
        for path, room in modules()
        for name in imports(path)
        if order[name] > order[room]
    ]
    assert wrong == []


def test_the_lab_never_looks_into_packets():
    seen = {name for path, room in modules() if room == "lab" for name in imports(path)}
    assert not seen & set(ANALYSIS)
