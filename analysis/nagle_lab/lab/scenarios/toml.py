"""Reading a TOML file into typed tables; a mistake becomes one line that names the file, the table and the key."""

import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args

import msgspec
from msgspec import Meta

from nagle_lab.errors import NagleLabError, os_problem

T = TypeVar("T")

Text = Annotated[str, Meta(pattern=r"\S")]  # not empty


def read_toml(file: Path) -> dict[str, Any]:
    """The content of ``file``, its texts stripped of blanks; NagleLabError if it is not TOML."""
    try:
        content: dict[str, Any] = _stripped(tomllib.loads(file.read_text(encoding="utf-8")))
    except OSError as error:
        raise os_problem(error) from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise NagleLabError(f"{file}: {error}") from error
    return content


def _stripped(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _stripped(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_stripped(each) for each in value]
    return value.strip() if isinstance(value, str) else value


def convert(
    value: object, form: type[T], file: Path, key: str = "", hook: Callable[[Any, Any], Any] | None = None
) -> T:
    """The ``value`` of ``key`` in ``file`` as a ``form``.

    ``hook(type, value)`` converts types that TOML does not have, or raises ValueError.

    Raises NagleLabError naming file and key. msgspec does not say which entry of a dict is wrong, so the tables in a
    dict are converted beforehand, see :func:`convert_each`.
    """
    try:
        return msgspec.convert(value, form, dec_hook=hook)
    except msgspec.ValidationError as error:
        problem, _, path = str(error).partition(" - at `$")
        path = re.sub(r"\[(\d+)\]", lambda index: f"[{int(index[1]) + 1}]", path.removesuffix("`"))  # counted from 1
        if problem.startswith(("Invalid value", "Invalid enum value")):
            problem += f": use {' or '.join(_words(form, path))}"
        at = (key + path.removesuffix("[...]")).strip(".")
        raise mistake(file, at and f"{at}:", problem) from error


def convert_each(
    tables: object, form: Any, file: Path, key: str, hook: Callable[[Any, Any], Any] | None = None
) -> dict[str, Any]:
    """Return, by name, each of the ``tables`` under ``key`` as a ``form``."""
    converted = {}
    for name, table in convert(tables, dict[str, dict[str, Any]], file, key).items():
        own = f"{key}.{name}"
        converted[name] = convert(named(name, table, file, own), form, file, own, hook)
    return converted


def named(name: str, table: dict[str, Any], file: Path, key: str = "") -> dict[str, Any]:
    """The ``table`` at ``key`` with its ``name`` added, which must not be a key in the file."""
    if "name" in table:
        raise mistake(file, key and f"{key}:", "Object contains unknown field `name`")
    return {"name": name, **table}


def mistake(file: Path, key: str, problem: str) -> NagleLabError:
    """The error that names the ``problem`` with ``key`` of ``file``."""
    return NagleLabError(" ".join(filter(None, (f"{file}:", key, problem))))


def _words(form: Any, path: str) -> list[str]:
    """The words that the value at ``path`` in a ``form`` may be: the values of a Literal, or the tags of a union of
    structs.
    """
    for name in filter(None, path.split(".")):
        structs = _structs(form)
        found = [
            field.type
            for struct in structs
            for field in msgspec.structs.fields(struct)
            if field.encode_name == name.partition("[")[0]
        ]
        if not found:
            return [str(struct.__struct_config__.tag) for struct in structs]
        form = found[0]
    return _literals(form)


def _structs(form: Any) -> list[type[msgspec.Struct]]:
    """The structs in a type: itself, or those of a union or a list."""
    if isinstance(form, type) and issubclass(form, msgspec.Struct):
        return [form]
    return [struct for each in get_args(form) for struct in _structs(each)]


def _literals(form: Any) -> list[str]:
    """The texts that a type allows."""
    if isinstance(form, str):
        return [form]
    return [word for each in get_args(form) for word in _literals(each)]
