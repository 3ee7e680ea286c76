"""The analyzer for a browser: Python itself (Pyodide), and the package with what it needs as one archive.

What is compiled is fetched as ``fetched.toml`` says. Jinja2 and MarkupSafe are those of this environment, of which
only the Python files are taken: MarkupSafe does without its compiled part.
"""

import hashlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from importlib.metadata import distribution
from pathlib import Path

from nagle_lab.lab.scenarios.scenario import REPOSITORY

SITE = Path(__file__).parent
CACHE = REPOSITORY / ".cache" / "site"
PURE = ("jinja2", "markupsafe")
# Modules end in .js here: not every host knows what .mjs is, and a browser runs no module of an unknown type.
PYODIDE = {
    "pyodide.mjs": "pyodide.js",
    "pyodide.asm.mjs": "pyodide.asm.js",
    "pyodide.asm.wasm": "pyodide.asm.wasm",
    "python_stdlib.zip": "python_stdlib.zip",
}
_LONG_AGO = (1980, 1, 1, 0, 0, 0)  # so that the same files make the same archive


class NotFetchedError(Exception):
    """A file could not be fetched: a tool or the network is missing; says which file, and why."""


def fetch(cache: Path) -> list[Path]:
    """The files of ``fetched.toml``, from the folder ``cache`` if they are there.

    Raises NotFetchedError where one cannot be had, and ValueError for one whose checksum is wrong.
    """
    listed = tomllib.loads((SITE / "fetched.toml").read_text(encoding="utf-8"))["file"]
    return [_fetch(cache / one["name"], one["by"], one["sha256"]) for one in listed]


def _fetch(place: Path, by: list[str], sha256: str) -> Path:
    if not place.exists():
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=place.parent) as folder:
            _run([sys.executable, "-m", *by, "--quiet"] if by[0] == "pip" else by, Path(folder), place.name)
            _check(Path(folder) / place.name, sha256)
            (Path(folder) / place.name).replace(place)
    _check(place, sha256)
    return place


def _run(command: list[str], folder: Path, name: str) -> None:
    try:
        done = subprocess.run(
            command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300, check=False
        )
    except FileNotFoundError as error:
        raise NotFetchedError(f"{name}: {command[0]} is not installed") from error
    except subprocess.TimeoutExpired as error:
        raise NotFetchedError(f"{name}: {command[0]} took longer than 5 minutes") from error
    if done.returncode:
        said = done.stderr.splitlines() or [f"{command[0]} ended with exit code {done.returncode}"]
        why = [line for line in said if "reason:" in line or line.startswith("ERROR")] or said  # npm's, or pip's
        raise NotFetchedError(f"{name}: {why[-1]}")


def _check(file: Path, sha256: str) -> None:
    if not file.is_file():
        raise NotFetchedError(f"{file.name}: what was fetched has another name")
    if hashlib.sha256(file.read_bytes()).hexdigest() != sha256:
        raise ValueError(f"{file} is not the file that site/fetched.toml names: its SHA-256 differs")


def write(into: Path, fetched: list[Path]) -> None:
    """Python, the archive, and the worker that runs them, into the folder ``into``."""
    into.mkdir(parents=True)
    pyodide, msgspec = fetched
    with tarfile.open(pyodide) as packed:
        for name, place in PYODIDE.items():
            content = packed.extractfile(f"package/{name}")
            assert content is not None
            with content, (into / place).open("wb") as file:
                shutil.copyfileobj(content, file)
    (into / "worker.js").write_bytes((SITE / "worker.js").read_bytes())
    with zipfile.ZipFile(into / "nagle_lab.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in sorted(archived(msgspec).items()):
            archive.writestr(zipfile.ZipInfo(name, _LONG_AGO), data, zipfile.ZIP_DEFLATED)


def archived(msgspec: Path) -> dict[str, bytes]:
    """Every file of the archive: the package, what it needs, their licenses, and what the worker calls."""
    files = {"in_page.py": (SITE / "in_page.py").read_bytes()}
    package = REPOSITORY / "analysis" / "nagle_lab"
    for file in sorted(package.rglob("*")):
        if file.suffix in {".py", ".h", ".j2", ".css", ".js", ".json"}:
            files[str(file.relative_to(package.parent))] = file.read_bytes()
    for name in PURE:
        for listed in distribution(name).files or []:
            if listed.suffix == ".py" or "license" in listed.name.lower():
                files[str(listed)] = Path(str(listed.locate())).read_bytes()
    with zipfile.ZipFile(msgspec) as wheel:
        files |= {name: wheel.read(name) for name in wheel.namelist() if not name.endswith("/")}
    return files
