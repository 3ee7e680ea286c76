"""The committed JSON Schemas, and whether an object obeys one."""

import json
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from typing import Any

from jsonschema import Draft202012Validator, ValidationError
from jsonschema.validators import extend

_FAULTLESS: set[tuple[str, str, str]] = set()  # schema, definition in it, and JSON that is valid by it


@cache
def _validator(name: str) -> Any:
    """A validator that checks the same JSON against a definition only once, because a test's results are much
    alike.
    """
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
    """Fail, naming field and reason, if `content` is not valid by schema `name` ("result", "run")."""
    faults = [f"{e.json_path}: {e.message}" for e in _validator(name).iter_errors(content)]
    assert not faults, faults
