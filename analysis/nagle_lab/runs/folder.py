"""A run folder as it may come from anybody: read, held to its form and its checksums, and refused with the reason.

Judging and reporting rely on the form, so that what is not what the lab wrote is one line of error. Checksums
tell a folder that was damaged, is incomplete, or was edited by hand. They cannot tell one that somebody wrote anew,
checksums and all: that would take a signature.
"""

import hashlib
import json
import math
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nagle_lab.diagnosis.verdict import Verdict
from nagle_lab.errors import NagleLabError
from nagle_lab.runs.checksum import SEAL, seal

MANIFEST, WITNESSES = "manifest.json", "witnesses.json"
FIRST, SECOND, SEALED = (f"nagle-lab-manifest/{number}" for number in (1, 2, 3))

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")  # of files, captures and namespaces: nothing leads elsewhere
_LARGEST = 1 << 63  # of numbers; with larger ones arithmetic on floats overflows
_MOST_BYTES = 16 << 20  # of JSON; a run has 20 kB
_DEEPEST = 20  # levels of JSON; a run has 5
_NOT_OURS = "not what nagle-lab wrote; run it again"


# ------------------------------------------------------------------------------------------------- forms


@dataclass(frozen=True)
class _Kind:
    what: str  # it must be, in words
    holds: Callable[[Any], bool]


@dataclass(frozen=True)
class _Maybe:
    form: "_Form"  # or null


@dataclass(frozen=True)
class _Optional:
    form: "_Form"  # of a key that may be left out


@dataclass(frozen=True)
class _Each:
    form: "_Form"  # of every value of an object
    key: _Kind | None = None
    least: int = 0


@dataclass(frozen=True)
class _Many:
    form: "_Form"  # of every member of a list


_Form = _Kind | _Maybe | _Each | _Many | dict[str, Any]


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and -_LARGEST < value < _LARGEST  # no NaN


_TEXT = _Kind("text", lambda value: isinstance(value, str))
_WORDS = _Kind("a command", lambda value: isinstance(value, str) and bool(value.split()))
_PLAIN = _Kind("a plain name", lambda value: isinstance(value, str) and _NAME.fullmatch(value) is not None)
_WHETHER = _Kind("true or false", lambda value: isinstance(value, bool))
_NUMBER = _Kind("a number", _is_number)
_WHOLE = _Kind("a whole number", lambda value: isinstance(value, int) and _is_number(value))
_COUNT = _Kind("a count", lambda value: _WHOLE.holds(value) and value >= 0)
_SHA256 = _Kind("a SHA-256", lambda value: isinstance(value, str) and re.fullmatch("[0-9a-f]{64}", value) is not None)
_EXPECTED = _Kind("STALL or CLEAN", lambda value: value in (Verdict.STALL, Verdict.CLEAN))

_TEXTS = _Each(_TEXT)
_PLACE = {"mtu": _WHOLE, "offloads": _Optional(_TEXTS)}
_HOST = {"congestion_control": _TEXT, "sysctls": _TEXTS}
_COMMON: dict[str, Any] = {
    **dict.fromkeys(("schema", "scenario", "variant", "title", "question", "teaches", "started"), _TEXT),
    "parameters": _TEXTS,
    "versions": {**dict.fromkeys(("kernel", "docker", "compose", "server", "load"), _Maybe(_TEXT))},
    "images": _Each(
        {"name": _TEXT, "id": _TEXT, "base": _Optional(_Maybe({"name": _TEXT, "id": _TEXT}))},
    ),
    "timings_s": _Each(_NUMBER),
    "files": _Each({"bytes": _COUNT, "sha256": _SHA256}, key=_PLAIN),
}
_EXPECTATION = {
    "verdict": _EXPECTED,
    "held_by": _Maybe(_TEXT),
    "delayed_by": _Maybe(_TEXT),
    "min_share_after_first": _Maybe(_NUMBER),
}
_OF_FIRST = {
    **_COMMON,
    "expected": _EXPECTATION,
    "ends": _Each({"ip": _TEXT, **_PLACE, **_HOST}, key=_PLAIN, least=1),
}
_OF_LATER = {
    **_COMMON,
    "lab": _TEXT,
    "server": {"service": _TEXT, "port": _Maybe(_COUNT)},
    "expected": {**_EXPECTATION, "port": _Maybe(_COUNT)},
    "captures": _Each({"service": _TEXT, "namespace": _PLAIN, **_PLACE}, key=_PLAIN, least=1),
    "namespaces": _Each({"services": _Many(_TEXT), "addresses": _Many(_TEXT), **_HOST}, key=_PLAIN, least=1),
}
_FORMS: dict[str, dict[str, Any]] = {FIRST: _OF_FIRST, SECOND: _OF_LATER, SEALED: {**_OF_LATER, SEAL: _SHA256}}

_COUNTERS = dict.fromkeys(("Tcp.InSegs", "Tcp.OutSegs", "Tcp.RetransSegs", "TcpExt.DelayedACKs"), _WHOLE)
_WITNESSES = {
    "captures": _Each(
        {
            **dict.fromkeys(("captured", "received", "dropped", "dropped_by_interface"), _COUNT),
            "early": _Optional(_COUNT),
        }
    ),
    "counters": _Each({"before": _COUNTERS, "after": _COUNTERS}),
    "load": {
        "command": _WORDS,
        "exit_code": _WHOLE,
        **dict.fromkeys(("requests", "complete", "failed"), _COUNT),
        **dict.fromkeys(("requests_per_s", "mean_ms"), _NUMBER),
        "percentiles_ms": _Each(_NUMBER),
        "non_2xx": _Optional(_Maybe(_COUNT)),
    },
    "timers": _Optional(dict.fromkeys(("interval_us", "count", "p50_us", "p99_us", "max_us"), _COUNT)),
    "option": _Maybe({"file": _PLAIN, "demanded": _TEXT, "in_effect": _WHETHER}),
}


def _faults(value: object, form: _Form, where: str) -> Iterator[str]:
    """Where ``value`` is not of that form, and what belongs there; what the form does not name is not looked at."""
    match form:
        case _Kind(what, holds):
            if not holds(value):
                yield f"{where} is not {what}"
        case _Maybe(inner):
            if value is not None:
                yield from _faults(value, inner, where)
        case _Many(inner):
            if not isinstance(value, list):
                yield f"{where} is not a list"
            else:
                for i, member in enumerate(value):
                    yield from _faults(member, inner, f"{where}[{i}]")
        case _:
            yield from _faults_of_object(value, form, where)


def _faults_of_object(value: object, form: _Each | dict[str, Any], where: str) -> Iterator[str]:
    if not isinstance(value, dict):
        yield f"{where or 'it'} is not an object"
        return
    within = f"{where}." if where else ""
    if isinstance(form, _Each):
        if len(value) < form.least:
            yield f"{where} is empty"
        for name, member in value.items():
            if form.key and not form.key.holds(name):
                yield f"{where} has {name!r}, which is not {form.key.what}"
            yield from _faults(member, form.form, within + name)
        return
    for name, inner in form.items():
        optional = isinstance(inner, _Optional)
        if name in value:
            yield from _faults(value[name], inner.form if optional else inner, within + name)
        elif not optional:
            yield f"{within}{name} is missing"


# --------------------------------------------------------------------------------------------- the folder


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a run that completed, in its form and, from the third kind on, as its own checksum says.

    Raises NagleLabError with the reason.
    """
    manifest = _read(folder, MANIFEST)
    if manifest.get("complete") is not True:
        why = manifest.get("failure")
        why = why if isinstance(why, str) and why else "it was cut off"
        raise NagleLabError(
            f"{folder.name}: this run did not complete ({why}); analyse its .pcap files one by one, or run it again"
        )
    form = _FORMS.get(str(manifest.get("schema")))
    if form is None:
        raise NagleLabError(f"{folder / MANIFEST}: schema {manifest.get('schema')!r}: this nagle-lab cannot read it")
    _require(folder / MANIFEST, _faults(manifest, form, ""))
    if SEAL in manifest and manifest[SEAL] != seal(manifest):
        raise NagleLabError(f"{folder / MANIFEST}: changed since it was written (checksum differs); run it again")
    return manifest


def read_witnesses(folder: Path, manifest: Mapping[str, Any]) -> dict[str, Any]:
    """The witnesses of every capture and namespace of a manifest of the second kind; NagleLabError if not."""
    witnesses = _read(folder, WITNESSES)
    _require(folder / WITNESSES, _faults(witnesses, _WITNESSES, ""))
    captures, places = manifest["captures"], manifest["namespaces"]
    _require(folder / MANIFEST, _unlike("captures", {of["namespace"] for of in captures.values()}, places))
    _require(folder / WITNESSES, _unlike("captures", captures, witnesses["captures"]))
    _require(folder / WITNESSES, _unlike("counters", places, witnesses["counters"]))
    _require(folder / WITNESSES, _unlike("counters", witnesses["counters"], places))
    if option := witnesses["option"]:
        _require(folder / WITNESSES, _unlike("option", [option["file"]], manifest["files"]))
    return witnesses


def require_untouched(folder: Path, manifest: Mapping[str, Any], captures: Iterable[str]) -> None:
    """Raise NagleLabError unless each file is what the manifest says, and no capture is there that it does not name.

    Files of other kinds may lie beside them: results, and reports that a person put there.
    """
    listed = manifest["files"]
    for name in (WITNESSES, *(f"{capture}.pcap" for capture in captures)):
        if name not in listed:
            raise NagleLabError(f"{folder / MANIFEST}: files: {name} is missing: {_NOT_OURS}")
    for name, about in listed.items():
        path = folder / name
        if _digest(path) != about["sha256"]:
            raise NagleLabError(f"{path}: changed since it was recorded (checksum differs); run it again")
    for path in sorted(folder.glob("*.pcap")):
        if path.name not in listed:
            raise NagleLabError(f"{path}: not recorded by this run (not in its manifest); move it elsewhere")


def _digest(path: Path) -> str:
    _require_own(path)
    try:
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as e:
        raise _incomplete(path, e) from e


def _read(folder: Path, name: str) -> dict[str, Any]:
    path = folder / name
    _require_own(path)
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise NagleLabError(f"{path}: larger than any that nagle-lab writes; run it again")
        content = json.loads(path.read_text(encoding="utf-8"), parse_float=_finite, parse_constant=_finite)
    except (OSError, ValueError, RecursionError) as e:
        raise NagleLabError(f"{path}: cannot be read ({e}); this run folder is incomplete, run it again") from e
    if not isinstance(content, dict) or _deeper(content, _DEEPEST):
        raise NagleLabError(f"{path}: {_NOT_OURS}")
    return content


def _finite(number: str) -> float:
    value = float(number)
    if not math.isfinite(value):
        raise ValueError(f"{number} is not a number")
    return value


def _deeper(value: object, levels: int) -> bool:
    members = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return not levels or any(_deeper(member, levels - 1) for member in members)


def _require_own(path: Path) -> None:
    """A link may lead out of the folder, and a pipe or a device never ends."""
    try:
        mode = path.lstat().st_mode
    except OSError as e:
        raise _incomplete(path, e) from e
    if not stat.S_ISREG(mode):
        raise NagleLabError(f"{path}: a link, or no file at all, where a run has a file of its own; run it again")


def _incomplete(path: Path, error: OSError) -> NagleLabError:
    return NagleLabError(f"{path}: {error.strerror}; this run folder is incomplete, run it again")


def _require(path: Path, faults: Iterable[str]) -> None:
    """Raise NagleLabError for the first of the faults."""
    for fault in faults:
        raise NagleLabError(f"{path}: {fault}: {_NOT_OURS}")


def _unlike(where: str, needed: Any, there: Any) -> Iterator[str]:
    return (f"{where}: {name} is missing" for name in sorted(needed) if name not in there)
