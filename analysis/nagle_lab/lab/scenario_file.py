"""Reading a ``scenario.toml``, key by key, so that a mistake is named by file and key. The format: ``scenario``."""

import string
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import cast

from nagle_lab.errors import NagleLabError
from nagle_lab.lab.load import PARSERS
from nagle_lab.lab.measures import MEASURES
from nagle_lab.lab.scenario import (
    REPOSITORY,
    SIDECAR,
    CapturePoint,
    ChoiceParameter,
    Claim,
    IntParameter,
    Lab,
    Listener,
    Load,
    Option,
    Parameter,
    Prepare,
    Requirement,
    Scenario,
    Server,
    Source,
    Sweep,
    Variant,
)
from nagle_lab.lab.table import Table
from nagle_lab.runs.manifest import Expected
from nagle_lab.runs.record import Role

_ROLES = ("server", "client")
_BOTH_ENDS = {end: CapturePoint(f"{end}-capture", "eth0") for end in _ROLES}

Parameters = Mapping[str, Parameter]


def scenarios(folder: Path = REPOSITORY / "scenarios") -> dict[str, Scenario]:
    """Return every scenario under ``folder`` by name, in alphabetical order.

    Raises NagleLabError where there is none, and naming file and key where one is wrong.
    """
    return {file.parent.name: load_scenario(file) for file in scenario_files(folder)}


def find_scenario(name: str, folder: Path = REPOSITORY / "scenarios") -> Scenario:
    """Return the scenario ``name`` under ``folder``, whatever is wrong with the others.

    Raises NagleLabError where there is none, naming those there are, and naming file and key where it is wrong.
    """
    file = folder / name / "scenario.toml"
    if file not in (files := scenario_files(folder)):
        names = ", ".join(file.parent.name for file in files)
        raise NagleLabError(f"no scenario {name!r}; there are: {names}")
    return load_scenario(file)


def scenario_files(folder: Path) -> list[Path]:
    """The ``scenario.toml`` of every scenario under ``folder``; NagleLabError where there is none."""
    files = sorted(folder.glob("*/scenario.toml"))
    if not files:
        raise NagleLabError(
            "the lab needs nagle-lab's repository: clone it, and in the clone run make repro-nodelay-off "
            f"({folder} holds no scenario)"
        )
    return files


def load_scenario(file: Path) -> Scenario:
    """Return the scenario in ``file``, named after its folder; NagleLabError names file and key."""
    try:
        data = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise NagleLabError(f"{file}: {error}") from error
    with Table(data, file) as root:
        parameters = _parameters(root.table("parameters"))
        usual = _ready(root), _option(root, parameters)
        labs = _labs(root.table("labs"), file, parameters, *usual)
        server = _server(root.table("server"))
        stalls = _stalls(root.table("expected"), server.port)
        variants = _variants(root.table("variants"), labs, parameters, stalls)
        return Scenario(
            name=file.parent.name,
            title=root.line("title"),
            question=root.line("question"),
            source=_source(root.table("source")),
            stalled=_story(root, "stalled", "STALL", variants),
            fixed=_story(root, "fixed", "CLEAN", variants),
            labs=labs,
            server=server,
            load=_load(root.table("load"), parameters),
            parameters=parameters,
            variants=variants,
            sweep=_sweep(root, parameters, variants),
            claims=tuple(_claim(table, variants) for table in root.tables("claims")),
        )


def _story(root: Table, key: str, verdict: str, variants: Mapping[str, Variant]) -> str:
    name = root.word(key, tuple(variants))
    if variants[name].expected.verdict != verdict:
        raise root.wrong(key, f"names variant {name}, which is not expected to be {verdict}")
    return name


def _source(table: Table) -> Source:
    with table:
        return Source(table.line("title"), table.optional("url", str))


def _labs(
    table: Table, file: Path, parameters: Parameters, ready: tuple[Listener, ...], option: Option | None
) -> dict[str, Lab]:
    with table:
        labs = {name: _lab(name, table.table(name), file, parameters) for name in table.names()}
        labs = {
            name: replace(lab, ready=lab.ready or ready, option=lab.option or option) for name, lab in labs.items()
        }
        for name, lab in labs.items():
            _check_listeners(table, name, lab)
    if not labs:
        raise NagleLabError(f"{file}: labs is empty: it needs at least one [labs.NAME]")
    return labs


def _check_listeners(table: Table, name: str, lab: Lab) -> None:
    sidecars = [point.service for point in lab.captures.values()]
    for listener in lab.ready:
        if listener.service not in sidecars:
            raise table.wrong(name, f"has no capture at {listener.service}, which [[ready]] asks")


def _lab(name: str, table: Table, file: Path, parameters: Parameters) -> Lab:
    with table:
        images = _existing(table, "images", file)
        if SIDECAR not in [image.name for image in images]:
            raise table.wrong("images", f"lacks the folder {SIDECAR}, whose image captures")
        return Lab(
            name=name,
            compose=_existing(table, "compose", file),
            images=images,
            captures=_captures(table),
            prepare=tuple(_prepare(each, parameters) for each in table.tables("prepare")),
            requires=tuple(_requirement(each) for each in table.tables("requires")),
            ready=_ready(table),
            option=_option(table, parameters),
        )


def _existing(table: Table, key: str, file: Path) -> tuple[Path, ...]:
    paths = table.lines(key)
    for path in paths:
        if not (file.parent / path).exists():
            raise table.wrong(key, f"names {path}, which does not exist")
    return tuple((file.parent / path).resolve() for path in paths)


def _captures(table: Table) -> dict[str, CapturePoint]:
    if "captures" not in table.names():
        return dict(_BOTH_ENDS)
    with table.table("captures") as captures:
        if not captures.names():
            raise table.wrong("captures", "is empty: leave it out, or name at least one capture")
        return {name: _capture(captures.table(name)) for name in captures.names()}


def _capture(table: Table) -> CapturePoint:
    with table:
        return CapturePoint(table.line("service"), table.line("interface"))


def _prepare(table: Table, parameters: Parameters) -> Prepare:
    with table:
        return Prepare(table.line("service"), _template(table, "command", parameters))


def _requirement(table: Table) -> Requirement:
    with table:
        return Requirement(table.line("what"), table.line("command"))


def _server(table: Table) -> Server:
    with table:
        return Server(table.line("service"), table.port("port"), table.line("version"))


def _ready(table: Table) -> tuple[Listener, ...]:
    return tuple(_listener(each) for each in table.tables("ready"))


def _listener(table: Table) -> Listener:
    with table:
        return Listener(table.line("service"), table.port("port"))


def _option(owner: Table, parameters: Parameters) -> Option | None:
    if "option" not in owner.names():
        return None
    with owner.table("option") as table:
        return Option(table.line("service"), table.line("configuration"), _template(table, "line", parameters))


def _load(table: Table, parameters: Parameters) -> Load:
    with table:
        return Load(
            table.line("service"), table.word("tool", tuple(PARSERS)), _template(table, "command", parameters)
        )


def _template(table: Table, key: str, parameters: Parameters) -> str:
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


def _stalls(table: Table, port: int) -> Expected:
    with table:
        held_by, delayed_by = (cast(Role, table.word(key, _ROLES)) for key in ("held_by", "delayed_by"))
        return Expected("STALL", port, held_by, delayed_by)


def _variants(table: Table, labs: Mapping[str, Lab], parameters: Parameters, stalls: Expected) -> dict[str, Variant]:
    with table:
        return {name: _variant(name, table.table(name), labs, parameters, stalls) for name in table.names()}


def _variant(name: str, table: Table, labs: Mapping[str, Lab], parameters: Parameters, stalls: Expected) -> Variant:
    with table:
        lab = table.word("lab", tuple(labs)) if "lab" in table.names() else next(iter(labs))
        return Variant(name, lab, _fixed(table, parameters), _expected(table, stalls), table.line("teaches"))


def _fixed(table: Table, parameters: Parameters) -> dict[str, str]:
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
    port = table.port("port") if "port" in table.names() else stalls.port
    if table.word("verdict", ("STALL", "CLEAN")) == "CLEAN":
        return Expected("CLEAN", port)
    share = table.take("min_share_after_first", float)
    if not 0 < share <= 1:
        raise table.wrong("min_share_after_first", f"must lie above 0 and not above 1, not {share}")
    named = {key: cast(Role, table.word(key, _ROLES)) for key in ("held_by", "delayed_by") if key in table.names()}
    held_by, delayed_by = named.get("held_by", stalls.held_by), named.get("delayed_by", stalls.delayed_by)
    return Expected("STALL", port, held_by, delayed_by, share)


def _sweep(root: Table, parameters: Parameters, variants: Mapping[str, Variant]) -> Sweep | None:
    if "sweep" not in root.names():
        return None
    with root.table("sweep") as table:
        ints = tuple(name for name, parameter in parameters.items() if isinstance(parameter, IntParameter))
        parameter, low, high = table.word("parameter", ints), table.take("from", int), table.take("to", int)
        if not 0 < low < high:
            raise table.wrong("to", f"must be more than from, and from more than 0, not {low} to {high}")
        series = table.texts("series")
        for variant in series.values():
            if variant not in variants:
                raise table.wrong("series", f"names {variant}, which is not a variant")
            if parameter in variants[variant].fixed:
                raise table.wrong("series", f"names {variant}, which fixes {parameter}")
        return Sweep(parameter, low, high, series)


def _claim(table: Table, variants: Mapping[str, Variant]) -> Claim:
    with table:
        return Claim(
            published=table.line("published"),
            measure=table.word("measure", tuple(MEASURES)),
            of=table.word("of", tuple(variants)),
            against=table.word("against", tuple(variants)) if "against" in table.names() else None,
            reproduced=table.span("reproduced"),
            partly=table.span("partly") if "partly" in table.names() else None,
            why=table.line("why"),
        )
