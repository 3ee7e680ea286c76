"""Scenarios as data: each class is a table of a ``scenario.toml``, each field a key.

A key with a default may be left out; a ``name`` is that of the table (``[variants.NAME]``). ``{NAME}`` in a template
stands for a parameter (a literal brace is doubled); parameters also reach the Compose files, as environment variables
of the same names. Commands are split into words as a shell would, but no shell runs them: ``sh -c '…'`` where one is
needed. ``scenario_file`` reads the file and checks that its tables agree.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta, field

from nagle_lab.errors import NagleLabError
from nagle_lab.lab.scenarios.load import PARSERS
from nagle_lab.lab.scenarios.toml import Text
from nagle_lab.runs.figures import MEASURES
from nagle_lab.runs.manifest import Expected
from nagle_lab.runs.record import Port, Role, StrictRecord

REPOSITORY = Path(__file__).parents[4]
SHARED_SERVICES = REPOSITORY / "scenarios" / "shared" / "services.yaml"  # extended by the scenarios' Compose files
SIDECAR = "sidecar"  # the folder of the image that captures and in which requirements are tested

Bounds = tuple[float, float]


class Publication(StrictRecord):
    """``[source]``: the published incident."""

    title: Text
    url: str | None = None


class IntParameter(StrictRecord, tag_field="kind", tag="int"):
    """``[parameters.NAME]`` with ``kind = "int"``: a whole number; ``max`` may be the name of another."""

    name: str
    about: Text
    default: int
    min: int
    max: int | str | None = None

    def __post_init__(self) -> None:
        """Raise ValueError for a default below the minimum."""
        if self.default < self.min:
            raise ValueError(f"default is less than min = {self.min}")

    def checked(self, value: str) -> str:
        """``value`` without leading zeros; NagleLabError if it is not such a number."""
        if not (value.isascii() and value.isdigit() and len(value) < 19) or int(value) < self.min:
            raise NagleLabError(f"{self.name}={value} is not valid: use a whole number from {self.min}")
        return str(int(value))

    def text(self, value: str) -> str:
        """``value`` as it stands in commands."""
        return value


class ChoiceParameter(StrictRecord, tag_field="kind", tag="choice"):
    """``[parameters.NAME]`` with ``kind = "choice"``: ``choices`` maps each word to its text in commands."""

    name: str
    about: Text
    default: str
    choices: dict[str, str]

    def __post_init__(self) -> None:
        """Raise ValueError for a default that is not one of the choices."""
        if self.default not in self.choices:
            raise ValueError(f"default must be one of {', '.join(self.choices)}, not {self.default!r}")

    def checked(self, value: str) -> str:
        """``value``; NagleLabError if it is not one of the choices."""
        if value not in self.choices:
            raise NagleLabError(f"{self.name}={value} is not valid: use {' or '.join(self.choices)}")
        return value

    def text(self, value: str) -> str:
        """``value`` as it stands in commands."""
        return self.choices[value]


Parameter = IntParameter | ChoiceParameter


class CapturePoint(StrictRecord):
    """``[labs.NAME.captures.NAME]``: the sidecar ``service`` captures at its ``interface``."""

    service: Text
    interface: Text


BOTH_ENDS = {end: CapturePoint(f"{end}-capture", "eth0") for end in ("server", "client")}


class Prepare(StrictRecord):
    """An entry of a lab's ``prepare``: a template of a command, run in ``service`` before the captures start."""

    service: Text
    command: Text


class Requirement(StrictRecord):
    """An entry of a lab's ``requires``: what the machine must have, in words, and a command that fails if it is
    missing.

    The command runs in a container of the sidecar's image without a network; if it fails, the run is INCONCLUSIVE.
    """

    what: Text
    command: Text


class Listener(StrictRecord):
    """An entry of ``ready``: a TCP port to wait for, in the network namespace of the sidecar ``service``."""

    service: Text
    port: Port


class ServerOption(StrictRecord):
    """``[option]``: a setting took effect if ``configuration`` prints ``line``, a template."""

    service: Text
    configuration: Text
    line: Text


class Lab(StrictRecord):
    """``[labs.NAME]``: one way to set the scenario up; the first is the default.

    Later files of ``compose`` overlay earlier ones; paths in all are relative to the first. ``images`` are folders
    with a Dockerfile: folder ``x`` becomes image ``nagle-lab/x``. Paths in the file are relative to its folder.
    """

    name: str
    compose: Annotated[tuple[Path, ...], Meta(min_length=1)]
    images: Annotated[tuple[Path, ...], Meta(min_length=1)]
    captures: Annotated[dict[str, CapturePoint], Meta(min_length=1)] = field(default_factory=BOTH_ENDS.copy)
    prepare: tuple[Prepare, ...] = ()
    requires: tuple[Requirement, ...] = ()
    ready: tuple[Listener, ...] = ()  # default: [[ready]] of the scenario
    option: ServerOption | None = None  # default: [option] of the scenario
    traced: Text | None = None  # the service that --trace traces; default: the server or the load's, whichever holds


class ExpectedRoles(StrictRecord):
    """``[expected]``: the end whose data Nagle's algorithm holds, and the end that delays its ACK."""

    held_by: Role
    delayed_by: Role


class Variant(StrictRecord):
    """``[variants.NAME]``: the parameters it fixes, the verdict it must give, and what it teaches.

    ``port`` and the roles are those of ``[server]`` and ``[expected]`` unless the variant has its own; only STALL has
    roles and a share (see :class:`Expected`).
    """

    name: str
    lab: str
    fixed: dict[str, str]
    verdict: Literal["STALL", "CLEAN"]
    port: Port
    teaches: Text
    held_by: Role | None = None
    delayed_by: Role | None = None
    min_share_after_first: Annotated[float, Meta(gt=0, le=1)] | None = None

    def __post_init__(self) -> None:
        """Raise ValueError for a STALL without a share, and for a CLEAN with roles or a share."""
        if self.verdict == "STALL" and self.min_share_after_first is None:
            raise ValueError("min_share_after_first is missing, which STALL needs")
        if self.verdict == "CLEAN" and (self.held_by or self.delayed_by or self.min_share_after_first):
            raise ValueError("held_by, delayed_by and min_share_after_first are for STALL: leave them out")

    @property
    def expected(self) -> Expected:
        """The outcome that a run must have."""
        return Expected(self.verdict, self.port, self.held_by, self.delayed_by, self.min_share_after_first)


class Server(StrictRecord):
    """``[server]``: the listening end of the connections under test; ``version`` is a command to run there."""

    service: Text
    port: Port
    version: Text


class LoadTool(StrictRecord):
    """``[load]``: the load tool, the service it runs in, and a template of its command line.

    The last line that a ``json`` tool prints is :class:`nagle_lab.runs.witnesses.Load` as JSON.
    """

    service: Text
    tool: Annotated[str, Meta(pattern=f"^({'|'.join(PARSERS)})$")]
    command: Text


class Sweep(StrictRecord):
    """``[sweep]``: a parameter of kind int to run through, for each of ``series`` (its name → the variant)."""

    parameter: str
    low: int = field(name="from")
    high: int = field(name="to")
    series: dict[str, str]

    def __post_init__(self) -> None:
        """Raise ValueError for an empty range."""
        if not 0 < self.low < self.high:
            raise ValueError(f"to must be more than from, and from more than 0, not {self.low} to {self.high}")


class Claim(StrictRecord):
    """``[[claims]]``: a published figure, and ours: ``measure`` of variant ``of``, divided by that of ``against``.

    ``reproduced`` and ``partly`` are ranges of our figure, lowest and highest, in the unit of ``measure``.
    """

    published: Text
    measure: Annotated[str, Meta(pattern=f"^({'|'.join(MEASURES)})$")]
    of: str
    reproduced: Bounds
    why: Text
    against: str | None = None
    partly: Bounds | None = None

    def __post_init__(self) -> None:
        """Raise ValueError for a span that ends before it begins."""
        for key, span in (("reproduced", self.reproduced), ("partly", self.partly)):
            if span and span[0] > span[1]:
                raise ValueError(f"{key} must be two numbers, the lower first, not {span[0]:g} and {span[1]:g}")


class Scenario(StrictRecord):
    """The file, named after its folder; ``stalled`` and ``fixed`` are the variants that tell its story.

    A control, whose variants all expect CLEAN, has neither.
    """

    name: str
    title: Text
    question: Text
    source: Publication
    labs: Annotated[dict[str, Lab], Meta(min_length=1)]
    server: Server
    load: LoadTool
    parameters: dict[str, Parameter]
    variants: Annotated[dict[str, Variant], Meta(min_length=1)]
    stalled: str = ""
    fixed: str = ""
    sweep: Sweep | None = None
    claims: tuple[Claim, ...] = ()

    def variant(self, name: str) -> Variant:
        """The variant ``name``; NagleLabError lists the existing ones."""
        if name not in self.variants:
            names = ", ".join(self.variants)
            raise NagleLabError(f"scenario {self.name} has no variant {name!r}: choose one of {names}")
        return self.variants[name]

    @property
    def is_control(self) -> bool:
        """Whether nothing in it is expected to stall."""
        return all(variant.verdict == "CLEAN" for variant in self.variants.values())

    @property
    def story(self) -> list[Variant]:
        """The stalled variant and the fixed one; for a control its first two variants, or its only one."""
        names = (self.stalled, self.fixed) if self.stalled else list(self.variants)[:2]
        return [self.variants[name] for name in names]

    def lab(self, variant: Variant) -> Lab:
        """The lab that ``variant`` runs in."""
        return self.labs[variant.lab]

    def int_parameters(self) -> list[str]:
        """The names of the parameters that are whole numbers."""
        return [name for name, parameter in self.parameters.items() if isinstance(parameter, IntParameter)]

    def rendered(self, template: str, values: Mapping[str, str]) -> str:
        """``template`` with each ``{NAME}`` replaced by its value's text in commands."""
        texts = {name: self.parameters[name].text(value) for name, value in values.items()}
        return " ".join(template.format_map(texts).split())
