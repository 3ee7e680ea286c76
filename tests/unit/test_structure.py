"""Data flows one way: no module imports from a stage after its own, and analysis never touches Docker."""

import ast
from pathlib import Path

import nagle_lab

PACKAGE = Path(nagle_lab.__file__).parent
STAGES = (
    "errors", "seal", "columns", "loops", "capture", "packets", "timeline", "shelf", "distribution", "keytable",
    "connections", "ledger", "exchanges", "stalls", "silences", "findings", "verdict", "result", "rows", "summary",
    "pair", "analysis", "excerpt", "annotation", "dissect", "checks", "judged", "noise", "runfolder", "runs",
    "figures", "comparison", "bursts", "trials", "claims", "matrix", "sweep", "soak", "reports", "listing", "demo",
    "commands", "cli",
)  # fmt: skip
ABOVE_THE_LAB = (
    "trials",
    "claims",
    "matrix",
    "sweep",
    "soak",
    "listing",
    "demo",
    "commands",
)  # what may know both scenarios and results


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
        if room != "__init__":
            yield path, room


def test_every_room_has_its_place():
    assert {room for _, room in modules()} <= {*STAGES, "lab"}


def test_no_module_imports_from_a_later_stage():
    order = {room: i for i, room in enumerate(STAGES)}
    wrong = [
        f"{path.relative_to(PACKAGE)} imports {name}"
        for path, room in modules()
        for name in imports(path)
        if room not in ("lab", name) and not (room in ABOVE_THE_LAB and name == "lab")
        if name == "lab" or order[name] > order[room]
    ]
    assert wrong == []


def test_the_lab_never_looks_into_packets():
    seen = {name for path, room in modules() if room == "lab" for name in imports(path)}
    assert seen <= {"lab", "errors", "seal"}
