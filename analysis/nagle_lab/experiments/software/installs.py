"""Install released software into a folder of its own, from the registries that its users use; nothing is installed
elsewhere. Everything is pinned by hashes, except a release that is requested by its number.
"""

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from nagle_lab.errors import NagleLabError

LIMIT_S = 900.0
_DONE = ".installed"


@dataclass(frozen=True)
class Installed:
    """Software in a folder, and the environment in which it is found."""

    folder: Path
    environment: dict[str, str]


def install(ecosystem: str, source: Path, what: str, cache: Path, shared: Sequence[Path]) -> Installed:
    """Copy a ``source`` folder and ``shared`` files into ``cache``, and install ``what`` (a lock or folder) there.

    The same sources are installed once, though two processes want them. Raises NagleLabError, with the last line that
    the tool printed.
    """
    folder = cache / ecosystem / f"{source.name}-{what}-{_digest(source, shared)}"
    with _locked(folder):
        if not (folder / _DONE).exists():
            shutil.rmtree(folder, ignore_errors=True)
            shutil.copytree(source, folder)
            for file in shared:
                shutil.copy(file, folder)
            _INSTALLERS[ecosystem](folder, folder / what)
            (folder / _DONE).touch()
    return Installed(folder, _environment(ecosystem, folder))


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Within the block no other process installs into the folder, which would remove what this one has installed."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(f".{folder.name}.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _digest(source: Path, shared: Sequence[Path]) -> str:
    """A digest of a folder's content, and of the tools that install it."""
    digest = hashlib.sha256(f"{sys.version_info[:2]}{source}".encode())
    own = sorted(path for path in source.rglob("*") if path.is_file() and path.name != "exhibit.toml")
    named = [(str(path.relative_to(source)), path) for path in own] + [(path.name, path) for path in shared]
    for name, path in named:
        digest.update(name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:12]


def _pypi(folder: Path, lock: Path) -> None:
    checked = ["--require-hashes", "--no-deps", "--requirement", str(lock)]
    _run([*_PIP_INSTALL, *checked, "--target", str(folder / "packages")], folder)


def _npm(folder: Path, lock: Path) -> None:
    for name in ("package.json", "package-lock.json"):
        shutil.copy(lock / name, folder / name)
    _run(["npm", "ci", *_NPM], folder)


def _maven(folder: Path, pom: Path) -> None:
    _run(
        ["mvn", "-q", "-f", str(pom / "pom.xml"), "dependency:copy-dependencies", f"-DoutputDirectory={folder}/jars"],
        folder,
    )
    _run(["sha256sum", "--check", "--quiet", "--strict", str(pom / "checksums.txt")], folder / "jars")
    sources = sorted(map(str, folder.glob("*.java")))
    _run(["javac", "-cp", f"{folder}/jars/*", "-d", "classes", *sources], folder)


def _crates(folder: Path, program: Path) -> None:
    target = {"CARGO_TARGET_DIR": str(folder / "target")}
    _run(
        ["cargo", "build", "--release", "--locked", "--quiet", "--manifest-path", str(program / "Cargo.toml")],
        folder,
        target,
    )
    for leftover in ("build", "deps", ".fingerprint", "incremental"):
        shutil.rmtree(folder / "target" / "release" / leftover, ignore_errors=True)


def _go(folder: Path, program: Path) -> None:
    for source in folder.glob("*.go"):
        shutil.copy(source, program / source.name)
    _run(["go", "build", "-o", str(folder / "exhibit"), "."], program)


def _debian(folder: Path, packages: Path) -> None:
    (folder / "root").mkdir()
    lines = [line.split() for line in packages.read_text().splitlines() if line.strip() and not line.startswith("#")]
    if not lines:
        return  # nothing to install: the exhibit's needs are already there
    debs = folder / "debs"
    debs.mkdir()
    _run(["apt-get", "download", *(f"{name}={version}" for name, version, _ in lines)], debs)
    for name, version, sha256 in lines:
        (deb,) = debs.glob(f"{name}_*.deb")
        if hashlib.sha256(deb.read_bytes()).hexdigest() != sha256:
            raise NagleLabError(f"{name} {version} is not the package in {packages.name}: its checksum differs")
        _run(["dpkg-deb", "-x", str(deb), str(folder / "root")], folder)


_PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
_PIP_INSTALL = [*_PIP, "install", "--quiet", "--no-input", "--no-compile"]
_NPM = ["--ignore-scripts", "--no-audit", "--no-fund"]
_INSTALLERS = {"pypi": _pypi, "npm": _npm, "maven": _maven, "crates": _crates, "go": _go, "debian": _debian}


def _environment(ecosystem: str, folder: Path) -> dict[str, str]:
    """The environment in which a command finds the installed software."""
    library = f"{os.uname().machine}-linux-gnu"
    paths = {
        "pypi": [Path(sys.executable).parent, folder / "packages" / "bin"],
        "npm": [folder / "node_modules" / ".bin"],
        "crates": [folder / "target" / "release"],
        "go": [folder],
        "debian": [folder / "root" / "usr" / "bin", folder / "root" / "usr" / "sbin"],
    }
    more = {
        "pypi": {"PYTHONPATH": str(folder / "packages"), "PYTHONDONTWRITEBYTECODE": "1"},
        "npm": {"NODE_PATH": str(folder / "node_modules")},
        "maven": {"CLASSPATH": f"{folder}/classes:{folder}/jars/*"},
        "debian": {"LD_LIBRARY_PATH": str(folder / "root" / "usr" / "lib" / library)},
    }
    path = os.pathsep.join([*map(str, paths.get(ecosystem, [])), os.environ.get("PATH", os.defpath)])
    return {"PATH": path, **more.get(ecosystem, {})}


def install_release(ecosystem: str, name: str, version: str, folder: Path) -> Installed:
    """One release with what it depends on, as its users get it today. Raises NagleLabError."""
    folder.mkdir(parents=True, exist_ok=True)
    if ecosystem == "pypi":
        _run([*_PIP_INSTALL, "--target", str(folder / "packages"), f"{name}=={version}"], folder)
    else:
        _run(["npm", "install", *_NPM, "--prefix", str(folder), f"{name}@{version}"], folder)
    return Installed(folder, _environment(ecosystem, folder))


def releases(ecosystem: str, name: str) -> list[str]:
    """The releases in the registry, oldest first, without pre-releases. Raises NagleLabError."""
    if ecosystem == "pypi":
        said = _run([*_PIP, "index", "versions", name], Path.cwd())
        listed = next((line for line in said.splitlines() if line.startswith("Available versions:")), "")
        return [version.strip() for version in listed.partition(":")[2].split(",") if version.strip()][::-1]
    said = _run(["npm", "view", name, "versions", "--json"], Path.cwd())
    found = json.loads(said)
    return [version for version in ([found] if isinstance(found, str) else found) if "-" not in version]


def _run(command: Sequence[str], cwd: Path, environment: Mapping[str, str] | None = None) -> str:
    """Run a tool; returns what it printed. Raises NagleLabError with its last line."""
    try:
        done = subprocess.run(
            command,
            cwd=cwd,
            env={**os.environ, **(environment or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=LIMIT_S,
            check=False,
        )
    except FileNotFoundError:
        raise NagleLabError(f"{command[0]} is not installed: install it first") from None
    except subprocess.TimeoutExpired:
        raise NagleLabError(
            f"{command[0]} took longer than {LIMIT_S:g} s: check the network, and run it again"
        ) from None
    if done.returncode:
        lines = [line.strip() for line in (done.stderr + done.stdout).splitlines() if line.strip()]
        errors = [line for line in lines if "error" in line.lower()] or lines or [f"exit code {done.returncode}"]
        tool = "pip" if command[:3] == _PIP[:3] else command[0]
        problem = errors[-1].removeprefix("ERROR: ")[:200]
        raise NagleLabError(f"{tool}: {problem} (check the name and the network, and run it again)")
    return done.stdout
