"""The museum: released software that stalls, and its release or setting that does not; data, as scenarios are."""

import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, get_args

import msgspec
from msgspec import Meta

from nagle_lab.diagnosis.result.result import Result, Role
from nagle_lab.diagnosis.result.verdict import Verdict
from nagle_lab.errors import Exit, NagleLabError, last_line
from nagle_lab.experiments.software.guarded import Selection, guard
from nagle_lab.experiments.software.installs import Installed, install
from nagle_lab.lab.scenarios.scenario import REPOSITORY
from nagle_lab.lab.scenarios.toml import Text, convert, read_toml

MUSEUM = REPOSITORY / "museum"
CACHE = REPOSITORY / ".cache" / "museum"
Ecosystem = Literal["pypi", "npm", "maven", "crates", "go", "debian"]
ECOSYSTEMS: tuple[Ecosystem, ...] = get_args(Ecosystem)
LIMIT_S = 120.0

Kind = Literal["server", "client", "driver", "broker", "proxy", "tunnel"]


class ExhibitHalf(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One release or setting of a software."""

    version: Text
    setting: str  # "" if the release alone makes the difference
    install: Text  # a lock file or folder beside exhibit.toml
    run: Annotated[list[Text], Meta(min_length=1)]
    one_write: bool = False  # whether one write per message is what protects it


class OtherWrites(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Another pair of writes that the source makes for the same stall, and why."""

    trigger: Text
    held: Text
    why: Text


class ExpectedWrites(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The places in the source of the bad half that make the two writes."""

    language: Literal["Python", "Node.js", "Java", "Rust", "Go", "C", "C++", "Perl", "Ruby", "PHP"]
    trigger: Text  # "thrift/transport/TSocket.py:176 write"; without debug information "ngx_writev"
    held: Text
    others: list[OtherWrites] = msgspec.field(name="or", default_factory=list)  # other orders, if threads race

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """Each pair of trigger and held write that the source allows."""
        return [(self.trigger, self.held), *((one.trigger, one.held) for one in self.others)]


class Exhibit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A software, its bad half, and its good one: ``exhibit.toml``."""

    ecosystem: Ecosystem
    folder: str
    software: Text
    kind: Kind
    held_by: Role
    what: Text
    why: Text
    since: str  # the first release known to stall; "": not known
    latest: bool  # whether the newest release stalls
    thread: str
    remedy: Text
    quick: bool
    needs: list[Text]  # packages of Debian
    bad: ExhibitHalf
    good: ExhibitHalf
    shared: list[Text] = []  # programs of museum/shared that it uses
    since_by: Literal["", "run", "source"] = ""  # how ``since`` is known; "": it is not
    writes: ExpectedWrites | None = None  # None: its source was not examined for that

    @property
    def name(self) -> str:
        """The name of the exhibit: "pypi/hypercorn"."""
        return f"{self.ecosystem}/{Path(self.folder).name}"

    @property
    def shared_files(self) -> list[Path]:
        """Those programs."""
        return [Path(self.folder).parents[1] / "shared" / name for name in self.shared]


@dataclass(frozen=True)
class HalfOutcome:
    """How one half of an exhibit ran."""

    result: Result | None  # None: it could not run
    problem: str  # why it is not as expected; empty if it is


@dataclass(frozen=True)
class ExhibitRun:
    """An exhibit that has been run."""

    exhibit: Exhibit
    bad: HalfOutcome
    good: HalfOutcome

    @property
    def problem(self) -> str:
        """What is not as expected in the bad half, or otherwise in the good one; empty if both are as expected."""
        return self.bad.problem or self.good.problem

    @property
    def code(self) -> Exit:
        """OK as expected; CONTRADICTED; INCONCLUSIVE if it could not run here."""
        outcomes = (self.bad, self.good)
        if any(outcome.problem and outcome.result is not None for outcome in outcomes):
            return Exit.CONTRADICTED
        return Exit.OK if not any(outcome.problem for outcome in outcomes) else Exit.INCONCLUSIVE


def exhibits(names: Sequence[str] = (), museum: Path = MUSEUM) -> list[Exhibit]:
    """The exhibits of those names ("pypi/hypercorn", or "pypi" for all of them), or all. Raises NagleLabError."""
    if not museum.is_dir():
        raise NagleLabError(f"{museum}: no museum there: run this in a checkout, the installed package has none")
    every = [_read(file) for file in museum.glob("*/*/exhibit.toml")]
    every.sort(key=lambda exhibit: (ECOSYSTEMS.index(exhibit.ecosystem), exhibit.name))
    if not names:
        return every
    known = {exhibit.name for exhibit in every} | set(ECOSYSTEMS)
    if unknown := [name for name in names if name not in known]:
        meant = [name for name in sorted(known) if name.endswith(f"/{unknown[0]}")]
        hint = f"did you mean {meant[0]}?" if meant else "nagle-lab museum --list prints their names"
        raise NagleLabError(f"there is no exhibit {unknown[0]}: {hint}")
    return [exhibit for exhibit in every if exhibit.name in names or exhibit.ecosystem in names]


def _read(file: Path) -> Exhibit:
    return convert({**read_toml(file), "ecosystem": file.parts[-3], "folder": str(file.parent)}, Exhibit, file)


def run_exhibit(exhibit: Exhibit, cache: Path = CACHE) -> ExhibitRun:
    """Install and run both halves. Raises KeyboardInterrupt."""
    return ExhibitRun(exhibit, _try(exhibit, exhibit.bad, cache), _try(exhibit, exhibit.good, cache))


def install_half(exhibit: Exhibit, half: ExhibitHalf, cache: Path = CACHE) -> Installed:
    """Install a half. Raises NagleLabError if that is not possible here."""
    if lacks := missing(exhibit.needs):
        raise NagleLabError(f"it needs {lacks}: apt-get install {lacks}")
    return install(exhibit.ecosystem, Path(exhibit.folder), half.install, cache, exhibit.shared_files)


def _try(exhibit: Exhibit, half: ExhibitHalf, cache: Path) -> HalfOutcome:
    try:
        installed = install_half(exhibit, half, cache)
        folder = Path(tempfile.mkdtemp(prefix="nagle-lab-museum-"))
    except (NagleLabError, OSError) as error:
        return HalfOutcome(None, str(error))
    try:
        run = guard(
            half.run, folder, Selection(), limit_s=LIMIT_S, both_sides=half.one_write, cwd=installed.folder,
            environment=installed.environment, output=folder / "output.txt",
        )  # fmt: skip
        if run.interrupted:
            raise KeyboardInterrupt
    except (NagleLabError, OSError) as error:  # a full disk, say: the others still have their rows
        shutil.rmtree(folder, ignore_errors=True)
        return HalfOutcome(None, str(error))
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    problem = against(exhibit, half, run.result, run.guarded.outcome.status, folder)
    if problem:
        return HalfOutcome(run.result, f"{problem} (kept: {folder})")
    shutil.rmtree(folder, ignore_errors=True)
    return HalfOutcome(run.result, "")


def against(exhibit: Exhibit, half: ExhibitHalf, result: Result, status: int | None, folder: Path) -> str:
    """How a half's outcome differs from what is expected; empty if it does not."""
    if status:
        said = last_line((folder / "output.txt").read_text(errors="replace"))
        return f"its program ended with {status}{': ' + said[:200] if said else ''}"
    expected = Verdict.STALL if half is exhibit.bad else Verdict.CLEAN
    if result.verdict is not expected:
        return f"expected {expected}, found {result.verdict}: {result.reason}"
    if expected is Verdict.STALL and result.summary.held_by != exhibit.held_by:
        return f"expected the {exhibit.held_by} to hold, found {result.summary.held_by}"
    return ""


def missing(packages: Sequence[str]) -> str:
    """Packages of Debian that are not installed."""
    if not packages or not shutil.which("dpkg-query"):
        return ""
    command = ["dpkg-query", "--show", "--showformat", "${Package} ${db:Status-Status}\n", *packages]
    said = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    there = {line.split()[0] for line in said.splitlines() if line.endswith(" installed")}
    return " ".join(package for package in packages if package not in there)
