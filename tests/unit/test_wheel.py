"""The wheel: made of the source distribution, named after what was compiled, complete, and of use without a clone."""

import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from sysconfig import get_platform
from zipfile import ZipFile

import pytest

from support.repository import REFERENCE, REPOSITORY

pytestmark = pytest.mark.long
ANALYSIS = REPOSITORY / "analysis"
STALLED = REFERENCE / "nginx-static-nodelay-off"
MADE = shutil.ignore_patterns("build", "*.egg-info", "*.so", "__pycache__", ".*")  # by set-up and by tests
SOURCES = ("*.c", "*.h")
OTHERS = (
    "py.typed", "*.json", "*.css", "*.js", "*.cjs", "*.rb", "*.pm", "*.j2", "*.sql", "engine.h", "segment.h",
    "records.h",
)  # fmt: skip


def pip(*arguments: object, **environment: str) -> None:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *map(str, arguments)]
    done = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def wheel(source: Path, folder: Path, **environment: str) -> Path:
    pip("wheel", "--no-index", "--no-deps", "--no-build-isolation", "-w", folder, source, **environment)
    (made,) = folder.iterdir()
    return made


def files(*patterns: str) -> set[str]:
    """The package's files of those names, as paths from the folder that it is in."""
    package = ANALYSIS / "nagle_lab"
    return {str(path.relative_to(ANALYSIS)) for pattern in patterns for path in package.rglob(pattern)}


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made of a copy, so that the checkout stays as it is."""
    folder = tmp_path_factory.mktemp("sdist")
    copy = shutil.copytree(ANALYSIS, folder / "analysis", ignore=MADE)
    program = "import setuptools.build_meta as backend; print(backend.build_sdist('..'))"
    done = subprocess.run([sys.executable, "-c", program], cwd=copy, capture_output=True, text=True, check=True)
    return folder / done.stdout.splitlines()[-1]


@pytest.fixture(scope="module")
def compiled(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    assert shutil.which("cc"), "set-up of the tests installs a C compiler: apt-get install gcc libc6-dev"
    return wheel(sdist, tmp_path_factory.mktemp("compiled"))


@pytest.fixture(scope="module")
def site(compiled: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel installed; what it depends on is in the environment of the tests."""
    folder = tmp_path_factory.mktemp("elsewhere") / "lib" / "python" / "site-packages"
    pip("install", "--no-index", "--no-deps", "--no-compile", "--target", folder, compiled)
    return folder


def python(site: Path, folder: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "NAGLE_LAB_COMPILED"}
    command = [sys.executable, *map(str, arguments)]
    environment["PYTHONPATH"] = str(site)
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_the_source_distribution_is_complete(sdist: Path):
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "setup.py", "LICENSE", *files("*.py", *SOURCES, *OTHERS)} <= names


def test_a_wheel_is_for_any_python_of_a_platform(compiled: Path):
    python_tag, abi, platform = compiled.stem.split("-")[-3:]
    assert (python_tag, abi) == ("py3", "none") and platform.startswith(("linux_", "macosx_"))
    with ZipFile(compiled) as archive:
        names = archive.namelist()
        (about,) = (name for name in names if name.endswith(".dist-info/WHEEL"))
        assert f"Tag: py3-none-{platform}\n" in archive.read(about).decode()
    package = {name for name in names if ".dist-info/" not in name}
    compiled_files = {
        "nagle_lab/tcp/_engine.so",
        *(f"nagle_lab/guard/tracing/hooks/_{name}.so" for name in ("java", "native")),
    }
    assert package == files("*.py", *OTHERS) | compiled_files
    assert any(name.endswith("/licenses/LICENSE") for name in names)


def test_without_a_compiler_it_is_for_any_platform_and_has_nothing_of_an_earlier_version(tmp_path: Path):
    copy = shutil.copytree(ANALYSIS, tmp_path / "analysis", ignore=MADE)
    left = copy / "build" / f"lib.{get_platform()}-{sys.implementation.cache_tag}" / "nagle_lab"
    left.mkdir(parents=True)
    (left / "gone.py").touch()
    made = wheel(copy, tmp_path / "wheel", CC="false")
    assert made.name.endswith("-py3-none-any.whl")
    with ZipFile(made) as archive:
        assert {name for name in archive.namelist() if ".dist-info/" not in name} == files("*.py", *OTHERS)


def test_installed_elsewhere_the_compiled_engine_diagnoses(site: Path, tmp_path: Path):
    shutil.copy(STALLED / "server.pcap", tmp_path)
    report = tmp_path / "report.html"
    done = python(site, tmp_path, "-m", "nagle_lab", "analyze", "server.pcap", "--expect", "stall", "--html", report)
    assert (done.returncode, done.stderr) == (0, "")
    assert "STALL" in done.stdout and "<svg" in report.read_text()
    loaded = python(site, tmp_path, "-c", "from nagle_lab.tcp import compiled; print(compiled.LIBRARY._name)")
    assert loaded.stdout == f"{site / 'nagle_lab' / 'tcp' / '_engine.so'}\n"


@pytest.mark.parametrize(
    "arguments", [["list"], ["run", "nginx-static", "nodelay-off"], ["matrix"], ["sweep", "nginx-static"], ["demo"]]
)
def test_the_lab_without_its_repository_is_one_line(site: Path, tmp_path: Path, arguments: list[str]):
    done = python(site, tmp_path, "-m", "nagle_lab", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("nagle-lab: the lab needs nagle-lab's repository: clone it, ")
    assert done.stderr.count("\n") == 1
