"""Scenarios as data: what a ``scenario.toml`` (format 2) says. ``scenario_file`` reads it, key by key.

A scenario is a folder under ``scenarios/``; its ``scenario.toml`` holds:

``title``, ``question``        one line each
``stalled``, ``fixed``         the variants that tell the story, one that stalls and one that does not
``[source]``                   ``title``, ``url``: the published incident (``url`` may be left out)
``[labs.NAME]``                how it is set up; the first is the default, a variant may name another:
  ``compose``                  Compose files; later ones overlay earlier ones, paths in all are relative to the first
  ``images``                   folders with a Dockerfile; folder ``x`` becomes image ``nagle-lab/x``
  ``captures.NAME``            ``service`` (a sidecar) and ``interface``; left out: ``server`` and ``client``, on eth0
                               of ``server-capture`` and ``client-capture``
  ``prepare``                  list of ``service``, ``command``: run there before the captures start
  ``requires``                 list of ``what``, ``command``: run in a container of the sidecar's image without a
                               network; where one fails this machine cannot run it, and the run is INCONCLUSIVE
  ``ready``, ``option``        as below, for this lab alone
``[server]``                   the listening end of the connections under test: ``service``, ``port``, and the command
                               that prints its ``version``
``[[ready]]``                  ``service`` (a capture's sidecar), ``port``: another listener to wait for
``[option]``                   ``service``, ``configuration`` (a command that prints the settings in effect) and the
                               ``line`` that must stand in what it prints; may be left out
``[load]``                     ``service``, ``tool`` (``ab``, or ``json``: its last line is Load's figures as
                               JSON), ``command``
``[expected]``                 the roles under test: ``held_by`` Nagle and ``delayed_by`` a delayed ACK
``[parameters.NAME]``          ``kind`` ``int`` (``min``, and ``max``: a number or another parameter's name) or
                               ``choice`` (``choices``: value → its text in commands), ``default``, ``about``
``[variants.NAME]``            ``fixed`` parameters, ``verdict``, ``teaches``, and where they differ ``lab`` and the
                               ``port``; for STALL ``min_share_after_first``, and ``held_by``, ``delayed_by``
``[sweep]``                    ``parameter``, ``from``, ``to``, ``series`` (name → variant): may be left out
``[[claims]]``                 ``published``, ``measure`` (one of ``measures``), ``of`` (a variant), ``reproduced``
                               (lowest, highest), ``why``; perhaps ``against`` (a variant: the figure is of/against)
                               and ``partly``

``{NAME}`` in ``load.command``, ``option.line`` and the commands of ``prepare`` stands for a parameter (a literal
brace is doubled). Parameters also reach the Compose files as environment variables of the same names. Commands are
split into words as a shell would, but no shell runs them: ``sh -c '…'`` where one is needed.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from nagle_lab.errors import NagleLabError
from nagle_lab.runs.manifest import Expected

REPOSITORY = Path(__file__).parents[3]
SHARED_SERVICES = REPOSITORY / "scenarios" / "shared" / "services.yaml"  # what Compose files of scenarios extend
SIDECAR = "sidecar"  # the folder of the image that captures, and that asks the machine what it can


@dataclass(frozen=True)
class Source:
    """The published incident a scenario reproduces."""

    title: str
    url: str | None


@dataclass(frozen=True)
class IntParameter:
    """A whole number; ``max`` may be the name of another int parameter."""

    name: str
    about: str
    default: str
    min: int
    max: int | str | None

    def checked(self, value: str) -> str:
        """Return ``value`` without leading zeros; NagleLabError says what is taken instead."""
        if not (value.isascii() and value.isdigit() and len(value) < 19) or int(value) < self.min:
            raise NagleLabError(f"{self.name}={value} is not valid: use a whole number from {self.min}")
        return str(int(value))

    def text(self, value: str) -> str:
        """Return ``value`` as it stands in commands."""
        return value


@dataclass(frozen=True)
class ChoiceParameter:
    """One of a few words; ``choices`` maps each to its text in commands (``on`` → ``-k``)."""

    name: str
    about: str
    default: str
    choices: Mapping[str, str]

    def checked(self, value: str) -> str:
        """Return ``value``; NagleLabError says which values are taken instead."""
        if value not in self.choices:
            raise NagleLabError(f"{self.name}={value} is not valid: use {' or '.join(self.choices)}")
        return value

    def text(self, value: str) -> str:
        """Return ``value`` as it stands in commands."""
        return self.choices[value]


Parameter = IntParameter | ChoiceParameter


@dataclass(frozen=True)
class CapturePoint:
    """Where one capture is taken: ``interface`` of the sidecar ``service``."""

    service: str
    interface: str


@dataclass(frozen=True)
class Prepare:
    """A command, a template over the parameters, run in ``service`` before the captures start."""

    service: str
    command: str


@dataclass(frozen=True)
class Requirement:
    """What the machine must have, in words, and the command that fails where it has not."""

    what: str
    command: str


@dataclass(frozen=True)
class Listener:
    """A TCP port that must be listened on, seen from the network namespace of the sidecar ``service``."""

    service: str
    port: int


@dataclass(frozen=True)
class Option:
    """Proof that a setting took effect: ``line``, a template, stands in what ``configuration`` prints."""

    service: str
    configuration: str
    line: str


@dataclass(frozen=True)
class Lab:
    """One way to set a scenario up; paths are absolute."""

    name: str
    compose: tuple[Path, ...]
    images: tuple[Path, ...]
    captures: Mapping[str, CapturePoint]
    prepare: tuple[Prepare, ...]
    requires: tuple[Requirement, ...]
    ready: tuple[Listener, ...]
    option: Option | None


@dataclass(frozen=True)
class Variant:
    """One way to run a scenario: its lab, the parameters it fixes, what must come out, and what it teaches."""

    name: str
    lab: str
    fixed: Mapping[str, str]
    expected: Expected
    teaches: str


@dataclass(frozen=True)
class Server:
    """The listening end of the connections under test; ``version`` is a command run in its container."""

    service: str
    port: int
    version: str


@dataclass(frozen=True)
class Load:
    """The load tool, the service it runs in, and its command line, a template over the parameters."""

    service: str
    tool: str
    command: str


@dataclass(frozen=True)
class Sweep:
    """A parameter to run through, from ``low`` to ``high``, for each of the named ``series`` of a variant."""

    parameter: str
    low: int
    high: int
    series: Mapping[str, str]


@dataclass(frozen=True)
class Claim:
    """A published figure beside ours: ``measure`` of variant ``of``, divided by that of ``against`` if there is one.

    ``reproduced`` and ``partly`` are (lowest, highest) of our figure, in the unit of ``measure``.
    """

    published: str
    measure: str
    of: str
    against: str | None
    reproduced: tuple[float, float]
    partly: tuple[float, float] | None
    why: str


@dataclass(frozen=True)
class Scenario:
    """One ``scenario.toml``."""

    name: str
    title: str
    question: str
    source: Source
    stalled: str
    fixed: str
    labs: Mapping[str, Lab]
    server: Server
    load: Load
    parameters: Mapping[str, Parameter]
    variants: Mapping[str, Variant]
    sweep: Sweep | None
    claims: tuple[Claim, ...]

    def variant(self, name: str) -> Variant:
        """Return the variant ``name``; NagleLabError names those there are."""
        if name not in self.variants:
            known = ", ".join(self.variants)
            raise NagleLabError(f"scenario {self.name} has no variant {name!r}: choose one of {known}")
        return self.variants[name]

    def lab(self, variant: Variant) -> Lab:
        """Return the lab that ``variant`` runs in."""
        return self.labs[variant.lab]
