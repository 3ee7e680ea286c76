"""JSON Schemas of what is written as JSON, made from its types."""

from collections.abc import Callable
from inspect import cleandoc
from types import UnionType
from typing import Any

import msgspec

Hook = Callable[[type], dict[str, Any]]


def schema_of(of: type | UnionType, title: str, *others: type, hook: Hook | None = None) -> dict[str, Any]:
    """The JSON Schema of a type: its objects have only the declared fields.

    Parameters
    ----------
    others : types that only ``hook`` refers to, by ``#/$defs/NAME``
    hook : the schema of a type that msgspec does not know, as in ``msgspec.json.schema_components``
    """
    (schema, *_), parts = msgspec.json.schema_components(
        (of, *others), schema_hook=hook, ref_template="#/$defs/{name}"
    )
    for part in parts.values():
        if "properties" in part:
            part["additionalProperties"] = False
        if "description" in part:  # the docstring, which Python 3.13 strips of its indentation and others do not
            part["description"] = cleandoc(part["description"])
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title}
    return {**head, **schema, "$defs": parts}


def schema_text(schema: dict[str, Any]) -> str:
    """A schema as its file contains it."""
    return msgspec.json.format(msgspec.json.encode(schema), indent=1).decode() + "\n"
