"""Reading a ``scenario.toml``; the tables and keys it may have are those of ``scenario``."""

import string
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from nagle_lab.errors import NagleLabError
from nagle_lab.lab.scenarios.scenario import (
    REPOSITORY,
    SIDECAR,
    CapturePoint,
    ExpectedRoles,
    IntParameter,
    Lab,
    Listener,
    Parameter,
    Scenario,
    Server,
    ServerOption,
    Variant,
)
from nagle_lab.lab.scenarios.toml import convert, convert_each, mistake, named, read_toml

SCENARIOS = REPOSITORY / "scenarios"  # the default folder of scenarios


def scenarios(folder: Path | None = None) -> dict[str, Scenario]:
    """Every scenario under ``folder`` by name, in alphabetical order.

    Raises NagleLabError if there is none; if one is wrong, the error names file and key.
    """
    return {file.parent.name: load_scenario(file) for file in scenario_files(folder or SCENARIOS)}


def readable_scenarios() -> tuple[dict[str, Scenario], list[NagleLabError]]:
    """The readable scenarios, by name, and what is wrong with each of the others.

    Raises NagleLabError if there is none at all.
    """
    found, mistakes = dict[str, Scenario](), []
    for file in scenario_files(SCENARIOS):
        try:
            found[file.parent.name] = load_scenario(file)
        except NagleLabError as error:
            mistakes.append(error)
    return found, mistakes


def find_scenario(name: str, folder: Path | None = None) -> Scenario:
    """The scenario ``name`` under ``folder``, even if others are wrong.

    Raises NagleLabError if there is none, listing the existing ones, and if it is wrong, naming file and key.
    """
    home = folder or SCENARIOS
    file = home / name / "scenario.toml"
    if file not in (files := scenario_files(home)):
        names = ", ".join(file.parent.name for file in files)
        raise NagleLabError(f"there is no scenario {name!r}: choose from {names}")
    return load_scenario(file)


def scenario_files(folder: Path) -> list[Path]:
    """The ``scenario.toml`` of every scenario under ``folder``; NagleLabError if there is none."""
    files = sorted(folder.glob("*/scenario.toml"))
    if not files:
        raise NagleLabError(
            f"the lab needs nagle-lab's repository: clone it, and there run make repro-nodelay-off ({folder} has no "
            "scenario)"
        )
    return files


def load_scenario(file: Path) -> Scenario:
    """The scenario in ``file``, named after its folder; NagleLabError names file and key."""
    data = read_toml(file)
    data["parameters"] = convert_each(data.get("parameters", {}), Parameter, file, "parameters")
    data["server"] = convert(data.get("server", {}), Server, file, "server")
    data["labs"] = _labs(data, file)
    data["variants"] = _variants(data, file)
    scenario = convert(named(file.parent.name, data, file), Scenario, file)
    for key, problem in _mistakes(scenario):
        raise mistake(file, key, problem)
    return scenario


def _labs(data: dict[str, Any], file: Path) -> dict[str, Lab]:
    """The labs, with the scenario's listeners and option unless they have their own."""

    def existing(_path: type, name: object) -> Path:
        path = (file.parent / str(name)).resolve()
        if not path.exists():
            raise ValueError(f"{name} does not exist")
        return path

    usual: dict[str, object] = {
        "ready": convert(data.pop("ready", ()), tuple[Listener, ...], file, "ready"),
        "option": convert(data.pop("option"), ServerOption, file, "option") if "option" in data else None,
    }
    tables = convert(data.get("labs", {}), dict[str, dict[str, Any]], file, "labs")
    for name, table in tables.items():
        if "captures" in table:
            key = f"labs.{name}.captures"
            points = convert(table["captures"], dict[str, dict[str, Any]], file, key)
            table["captures"] = {each: convert(points[each], CapturePoint, file, f"{key}.{each}") for each in points}
    return convert_each({name: usual | table for name, table in tables.items()}, Lab, file, "labs", existing)


def _variants(data: dict[str, Any], file: Path) -> dict[str, Variant]:
    """The variants; by default with the first lab, the server's port and the scenario's roles."""
    usual = {"lab": next(iter(data["labs"]), ""), "port": data["server"].port}
    tables = convert(data.get("variants", {}), dict[str, dict[str, Any]], file, "variants")
    stalling = {}
    if "expected" in data or any(table.get("verdict") == "STALL" for table in tables.values()):
        roles = convert(data.pop("expected", {}), ExpectedRoles, file, "expected")
        stalling = {"held_by": roles.held_by, "delayed_by": roles.delayed_by}
    for name, table in tables.items():
        tables[name] = usual | (stalling if table.get("verdict") == "STALL" else {}) | table
    return convert_each(tables, Variant, file, "variants")


Mistakes = Iterator[tuple[str, str]]  # key and problem


def _mistakes(scenario: Scenario) -> Mistakes:
    """The key and problem of each inconsistency between tables."""
    for name, parameter in scenario.parameters.items():
        if isinstance(parameter, IntParameter) and isinstance(parameter.max, str):
            yield from _not_among(f"parameters.{name}.max", parameter.max, scenario.int_parameters())
    for name, lab in scenario.labs.items():
        yield from _of_lab(f"labs.{name}", lab, scenario.parameters)
    for name, variant in scenario.variants.items():
        yield from _of_variant(f"variants.{name}", variant, scenario)
    yield from _of_story(scenario)
    yield from _of_template("load.command", scenario.load.command, scenario.parameters)
    if scenario.sweep:
        yield from _not_among("sweep.parameter", scenario.sweep.parameter, scenario.int_parameters())
        for name in scenario.sweep.series.values():
            yield from _not_among("sweep.series: each variant", name, scenario.variants)
            if scenario.sweep.parameter in scenario.variants[name].fixed:
                yield "sweep.series", f"names {name}, which fixes {scenario.sweep.parameter}"
    for number, claim in enumerate(scenario.claims, 1):
        yield from _not_among(f"claims[{number}].of", claim.of, scenario.variants)
        yield from _not_among(f"claims[{number}].against", claim.against or claim.of, scenario.variants)


def _of_story(scenario: Scenario) -> Mistakes:
    for key, verdict in (("stalled", "STALL"), ("fixed", "CLEAN")):
        name = getattr(scenario, key)
        if scenario.is_control:
            if name:
                yield key, "is for a scenario with a variant that expects STALL: leave it out"
        elif not name:
            yield key, f"is missing: name the variant that is to be {verdict}"
        else:
            yield from _not_among(key, name, scenario.variants)
            if scenario.variants[name].verdict != verdict:
                yield key, f"names variant {name}, which is not expected to be {verdict}"


def _of_lab(key: str, lab: Lab, parameters: Collection[str]) -> Mistakes:
    if SIDECAR not in [image.name for image in lab.images]:
        yield f"{key}.images", f"lacks the folder {SIDECAR}, whose image captures"
    sidecars = [point.service for point in lab.captures.values()]
    for listener in lab.ready:
        if listener.service not in sidecars:
            yield key, f"has no capture at {listener.service}, which [[ready]] asks"
    for number, step in enumerate(lab.prepare, 1):
        yield from _of_template(f"{key}.prepare[{number}].command", step.command, parameters)
    if lab.option:
        yield from _of_template(f"{key}.option.line", lab.option.line, parameters)


def _of_variant(key: str, variant: Variant, scenario: Scenario) -> Mistakes:
    yield from _not_among(f"{key}.lab", variant.lab, scenario.labs)
    for name, value in variant.fixed.items():
        yield from _not_among(f"{key}.fixed: each name", name, scenario.parameters)
        try:
            scenario.parameters[name].checked(value)
        except NagleLabError as error:
            yield f"{key}.fixed", f"has {error}"


def _of_template(key: str, text: str, parameters: Collection[str]) -> Mistakes:
    try:
        names = [name for _, name, _, _ in string.Formatter().parse(text) if name is not None]
    except ValueError as error:
        yield key, f"is not a template: {error}"
        return
    for name in names:
        if name not in parameters:
            yield key, f"names {{{name}}}, which is not a parameter"


def _not_among(key: str, word: str, words: Collection[str]) -> Mistakes:
    if word not in words:
        yield key, f"must be one of {', '.join(words)}, not {word!r}"
