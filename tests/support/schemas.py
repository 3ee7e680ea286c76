"""The committed JSON Schemas, and whether an object obeys one."""

import json
from functools import cache
from importlib.resources import files
from typing import Any

from jsonschema import Draft202012Validator


@cache
def _validator(name: str) -> Draft202012Validator:
    schema = json.loads((files("nagle_lab") / "schema" / f"{name}.schema.json").read_text())
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


def check(name: str, content: Any) -> None:
    """Fail, naming field and reason, when `content` is not what schema `name` ("result", "run") allows."""
    faults = [f"{e.json_path}: {e.message}" for e in _validator(name).iter_errors(content)]
    assert not faults, faults
