"""Scenarios as data: what a ``scenario.toml`` says, checked key by key.

A scenario is a folder under ``scenarios/``; its ``scenario.toml`` holds:

``title``, ``question``            one line each
``[source]`` ``title``, ``url``    the published incident (``url`` may be left out)
``[lab]`` ``compose``              the Compose file, relative to the folder; services ``server``, ``client``,
                                   ``server-capture`` and ``client-capture``
``[lab]`` ``images``               directories with a Dockerfile; directory ``x`` becomes image ``nagle-lab/x``
``[lab]`` ``interface``            where both ends are captured; ``eth0`` when left out
``[server]``                       the ``port`` it listens on, the commands that print its ``version`` and its
                                   effective ``configuration``, the ``option`` line that must stand in the latter
``[load]`` ``tool``, ``command``   the load, run in the client's container
``[expected]``                     the ends ``held_by`` Nagle and ``delayed_by`` a delayed ACK when a variant stalls
``[parameters.NAME]``              ``kind`` ``int`` (``min``, and ``max``: a number or another parameter's name) or
                                   ``choice`` (``choices``: value → its text in commands), ``default``, ``about``
``[variants.NAME]``                ``fixed`` parameters, ``verdict``, ``teaches``; for STALL ``min_share_after_first``

``{NAME}`` in ``load.command`` and ``server.option`` stands for a parameter. Parameters also reach the Compose file
as environment variables of the same names.
"""

import string
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, cast

from nagle_lab.errors import NagleLabError
from nagle_lab.lab.table import Table

Verdict = Literal["STALL", "CLEAN"]
End = Literal["server", "client"]
LOAD_TOOLS = ("ab",)  # those whose reports nagle_lab.lab.load can read

REPOSITORY = Path(__file__).parents[3]


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
class Expected:
    """What must come out of a variant; all but the verdict is None where the verdict is CLEAN.

    ``min_share_after_first`` is the least share, 0 to 1, of stalled exchanges among those that follow another
    exchange on their connection.
    """

    verdict: Verdict
    held_by: End | None = None
    delayed_by: End | None = None
    min_share_after_first: float | None = None


@dataclass(frozen=True)
class Variant:
    """One way to run a scenario: the parameters it fixes, what must come out, and what it teaches."""

    name: str
    fixed: Mapping[str, str]
    expected: Expected
    teaches: str


@dataclass(frozen=True)
class Server:
    """What the lab asks of the server; ``version`` and ``configuration`` are commands run in its container."""

    port: int
    version: str
    configuration: str
    option: str


@dataclass(frozen=True)
class Load:
    """The load tool and its command line, a template over the parameters."""

    tool: str
    command: str


@dataclass(frozen=True)
class Scenario:
    """One ``scenario.toml``; paths are absolute."""

    name: str
    title: str
    question: str
    source: Source
    compose: Path
    images: tuple[Path, ...]
    interface: str
    server: Server
    load: Load
    parameters: Mapping[str, Parameter]
    variants: Mapping[str, Variant]

    def variant(self, name: str) -> Variant:
        """Return the variant ``name``; NagleLabError names those there are."""
        if name not in self.variants:
            known = ", ".join(self.variants)
            raise NagleLabError(f"scenario {self.name} has no variant {name!r}: choose one of {known}")
        return self.variants[name]


def scenarios(folder: Path = REPOSITORY / "scenarios") -> dict[str, Scenario]:
    """Return every scenario under ``folder`` by name, in alphabetical order.

    Raises NagleLabError where there is none, and naming file and key where one is wrong.
    """
    files = sorted(folder.glob("*/scenario.toml"))
    if not files:
        raise NagleLabError(f"{folder} holds no scenario: run nagle-lab from a clone of its repository")
    return {file.parent.name: load_scenario(file) for file in files}


def load_scenario(file: Path) -> Scenario:
    """Return the scenario in ``file``, named after its folder; NagleLabError names file and key."""
    try:
        data = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise NagleLabError(f"{file}: {error}") from error
    with Table(data, file) as root:
        parameters = _parameters(root.table("parameters"))
        with root.table("lab") as lab:
            compose = _existing(lab, "compose", lab.line("compose"), file)
            images = tuple(_existing(lab, "images", str(image), file) for image in lab.take("images", list))
            interface = lab.optional("interface", str) or "eth0"
        stalls = _stalls(root.table("expected"))
        return Scenario(
            name=file.parent.name,
            title=root.line("title"),
            question=root.line("question"),
            source=_source(root.table("source")),
            compose=compose,
            images=images,
            interface=interface,
            server=_server(root.table("server"), parameters),
            load=_load(root.table("load"), parameters),
            parameters=parameters,
            variants=_variants(root.table("variants"), parameters, stalls),
        )


def _existing(table: Table, key: str, path: str, file: Path) -> Path:
    absolute = (file.parent / path).resolve()
    if not absolute.exists():
        raise table.wrong(key, f"names {path}, which does not exist")
    return absolute


def _source(table: Table) -> Source:
    with table:
        return Source(table.line("title"), table.optional("url", str))


def _server(table: Table, parameters: Mapping[str, Parameter]) -> Server:
    with table:
        return Server(
            port=table.take("port", int),
            version=table.line("version"),
            configuration=table.line("configuration"),
            option=_template(table, "option", parameters),
        )


def _load(table: Table, parameters: Mapping[str, Parameter]) -> Load:
    with table:
        return Load(table.word("tool", LOAD_TOOLS), _template(table, "command", parameters))


def _template(table: Table, key: str, parameters: Mapping[str, Parameter]) -> str:
    text = table.line(key)
    try:
        fields = [field for _, field, _, _ in string.Formatter().parse(text) if field is not None]
    except ValueError as error:
        raise table.wrong(key, f"is not a template: {error}") from error
    for field in fields:
        if field not in parameters:
            raise table.wrong(key, f"names {{{field}}}, which is not a parameter")
    return text


def _parameters(table: Table) -> dict[str, Parameter]:
    with table:
        parameters = {name: _parameter(name, table.table(name)) for name in table.names()}
        for name, parameter in parameters.items():
            limit = parameter.max if isinstance(parameter, IntParameter) else None
            if isinstance(limit, str) and not isinstance(parameters.get(limit), IntParameter):
                raise table.wrong(f"{name}.max", f"names {limit}, which is not a parameter of kind int")
        return parameters


def _parameter(name: str, table: Table) -> Parameter:
    with table:
        about = table.line("about")
        if table.word("kind", ("int", "choice")) == "int":
            low, high = table.take("min", int), table.optional("max", object)
            if isinstance(high, bool) or not isinstance(high, int | str | None):
                raise table.wrong("max", f"must be a whole number or a parameter's name, not {high!r}")
            default = table.take("default", int)
            if default < low:
                raise table.wrong("default", f"is less than min = {low}")
            return IntParameter(name, about, str(default), low, high)
        choices = table.texts("choices")
        return ChoiceParameter(name, about, table.word("default", tuple(choices)), choices)


def _stalls(table: Table) -> Expected:
    with table:
        held_by, delayed_by = (cast(End, table.word(key, ("server", "client"))) for key in ("held_by", "delayed_by"))
        return Expected("STALL", held_by, delayed_by)


def _variants(table: Table, parameters: Mapping[str, Parameter], stalls: Expected) -> dict[str, Variant]:
    with table:
        return {name: _variant(name, table.table(name), parameters, stalls) for name in table.names()}


def _variant(name: str, table: Table, parameters: Mapping[str, Parameter], stalls: Expected) -> Variant:
    with table:
        return Variant(name, _fixed(table, parameters), _expected(table, stalls), table.line("teaches"))


def _fixed(table: Table, parameters: Mapping[str, Parameter]) -> dict[str, str]:
    fixed = table.texts("fixed")
    for parameter, value in fixed.items():
        if parameter not in parameters:
            raise table.wrong("fixed", f"names {parameter}, which is not a parameter")
        try:
            parameters[parameter].checked(value)
        except NagleLabError as error:
            raise table.wrong("fixed", f"has {error}") from error
    return fixed


def _expected(table: Table, stalls: Expected) -> Expected:
    if table.word("verdict", ("STALL", "CLEAN")) == "CLEAN":
        return Expected("CLEAN")
    share = table.take("min_share_after_first", float)
    if not 0 < share <= 1:
        raise table.wrong("min_share_after_first", f"must lie above 0 and not above 1, not {share}")
    return replace(stalls, min_share_after_first=share)
