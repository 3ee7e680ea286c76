"""The committed JSON Schemas, and whether an object obeys one."""

import json
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from typing import Any

from jsonschema import Draft202012Validator, ValidationError
from jsonschema.validators import extend

_FAULTLESS: set[tuple[str, str, str]] = set()  # schema, definition in it, and the JSON that obeys that


@cache
def _validator(name: str) -> Any:
    """One that looks at what it has found to obey a definition no more: results of one test are much alike."""
    schema = json.loads((files("nagle_lab") / "schema" / f"{name}.schema.json").read_text())
    Draft202012Validator.check_schema(schema)
    follow = Draft202012Validator.VALIDATORS["$ref"]

    def follow_once(validator: Any, ref: str, instance: Any, of: Any) -> Iterator[ValidationError]:
        seen = (name, ref, json.dumps(instance))
        if seen not in _FAULTLESS:
            faults = list(follow(validator, ref, instance, of))
            if not faults:
                _FAULTLESS.add(seen)
            yield from faults

    return extend(Draft202012Validator, {"$ref": follow_once})(schema)


def check(name: str, content: Any) -> None:
    """Fail, naming field and reason, when `content` is not what schema `name` ("result", "run") allows."""
    faults = [f"{e.json_path}: {e.message}" for e in _validator(name).iter_errors(content)]
    assert not faults, faults
