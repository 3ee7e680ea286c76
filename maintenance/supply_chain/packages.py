"""What is installed: the packages of an image, read from inside it, and those of a Python environment."""

import json
from dataclasses import dataclass
from pathlib import Path

from nagle_lab.errors import NagleLabError
from nagle_lab.lab.containers.process import run
from nagle_lab.lab.scenarios.scenario import Lab
from nagle_lab.lab.scenarios.scenario_file import scenarios
from nagle_lab.lab.tracer import with_tracer
from soak import pressure

# Format of dpkg-query; a Dockerfile that copies files of packages from its first stage lists these in COPIED
# likewise.
FORMAT = r"${Package}\t${Version}\t${Architecture}\t${source:Package}\t${source:Version}\n"
COPIED = "/usr/local/share/nagle-lab/packages"
_READ = f"""
cat /etc/os-release
printf '\\f'
dpkg-query --show --showformat='{FORMAT}'
if [ -e {COPIED} ]; then cat {COPIED}; fi
"""
_CONFINED = (
    "--network=none",
    "--read-only",
    "--cap-drop=ALL",
    "--security-opt=no-new-privileges",
    "--user=10001:10001",
)
_PATIENCE_S = 120.0


@dataclass(frozen=True, order=True)
class Package:
    """An installed package; ``source`` and ``source_version`` are of the Debian source, empty for Python's."""

    name: str
    version: str
    architecture: str = ""
    source: str = ""
    source_version: str = ""


@dataclass(frozen=True)
class Content:
    """What an image contains of its distribution: os-release's ID and VERSION_ID, and packages, sorted."""

    distribution: str
    release: str
    packages: tuple[Package, ...]


def labs() -> list[Lab]:
    """Return every lab of every scenario, one of them traced, and the image that keeps the machine busy."""
    found = [lab for scenario in scenarios().values() for lab in scenario.labs.values()]
    return [*found, with_tracer(found[0], "server"), pressure.LAB]


def content_of(image: str) -> Content:
    """Return the content of ``image``, read in a container without network or rights that writes nothing."""
    command = ["docker", "run", "--rm", *_CONFINED, "--entrypoint=sh", image, "-e", "-c", _READ]
    answer = run(command, timeout_s=_PATIENCE_S)
    if answer.exit_code != 0:
        raise NagleLabError(f"cannot list the packages of {image}: {answer.last_line()}. Is it Debian's?")
    return parsed(answer.stdout)


def parsed(text: str) -> Content:
    """Parse a container's output: os-release, a form feed, and a line per package as in FORMAT."""
    release, _, rows = text.partition("\f")
    facts = dict(line.split("=", 1) for line in release.splitlines() if "=" in line)
    packages = {Package(*row.split("\t")) for row in rows.splitlines()}
    return Content(facts["ID"].strip('"'), facts.get("VERSION_ID", "").strip('"'), tuple(sorted(packages)))


def python_packages(environment: Path) -> tuple[Package, ...]:
    """Return the packages of a virtual environment, pip itself included, sorted."""
    pip = [str(environment / "bin" / "python"), "-m", "pip", "--disable-pip-version-check"]
    answer = run([*pip, "list", "--format=json"])
    if answer.exit_code != 0:
        raise NagleLabError(f"cannot list the packages of {environment}: {answer.last_line()}")
    return tuple(sorted(Package(row["name"], row["version"]) for row in json.loads(answer.stdout)))
