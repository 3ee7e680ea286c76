"""The structs of the C headers as Python knows them: read from these files, so that they are declared once."""

import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from struct import Struct, calcsize
from typing import Any, NamedTuple

from nagle_lab.tcp.arrays import numpy

PACKAGE = Path(__file__).parents[1]
HEADERS = tuple(PACKAGE / name for name in ("tcp/engine.h", "packet/segment.h", "capture/records.h"))

_CODES = {
    "int64_t": "q", "int32_t": "i", "uint32_t": "I", "uint16_t": "H", "int8_t": "b", "uint8_t": "B",
}  # fmt: skip
_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
_FIELD = re.compile(r"^ +(\w+) (\w+)(?:\[(\d+)\])?;", re.MULTILINE)


class Field(NamedTuple):
    """One field of a struct: a number, one number per side, or a string of bytes."""

    name: str
    code: str  # as in :mod:`struct`
    length: int  # numbers, or bytes

    @property
    def is_bytes(self) -> bool:
        """Whether it is a string of bytes, not one number per side."""
        return self.code == "B" and self.length > 2

    @property
    def is_one(self) -> bool:
        """Whether it is one column: not one number per side."""
        return self.length == 1 or self.is_bytes


@dataclass(frozen=True)
class Layout:
    """One struct: its fields in order.

    A field with one number per side is two columns, ``(name, 0)`` and ``(name, 1)``; a string of bytes is one.
    """

    name: str
    fields: tuple[Field, ...]

    def __reduce__(self) -> tuple[type["Layout"], tuple[str, tuple[Field, ...]]]:
        return Layout, (self.name, self.fields)  # a Struct cannot be pickled

    @cached_property
    def struct(self) -> Struct:
        """Packs and unpacks one row; native byte order, no padding anywhere."""
        codes = (f"{one.length}s" if one.is_bytes else one.code * one.length for one in self.fields)
        return Struct("=" + "".join(codes))

    @cached_property
    def columns(self) -> dict[Any, int]:
        """The place of each column in an unpacked row: by name, or ``(name, side)``."""
        return {name: place for place, name in enumerate(self.places)}

    def row(self, **values: Any) -> list[Any]:
        """An unpacked row of these fields, 0 by default, a pair if there is one number per side. Raises TypeError."""
        row = self.zeros | values
        if len(row) > len(self.zeros):
            raise TypeError(f"{self.name} has no field {', '.join(values.keys() - self.zeros.keys())}")
        return [one for value in row.values() for one in (value if isinstance(value, list | tuple) else (value,))]

    @cached_property
    def zeros(self) -> dict[str, Any]:
        """The values of a row in which every field, and every byte of one, is 0."""
        zeros: dict[str, Any] = {}
        for one in self.fields:
            if one.is_bytes:
                zeros[one.name] = bytes(one.length)
            else:
                zeros[one.name] = 0 if one.is_one else [0] * one.length
        return zeros

    @cached_property
    def places(self) -> dict[Any, tuple[str, int]]:
        """The code of each column, as in :mod:`struct`, and at which byte of a row it is."""
        places: dict[Any, tuple[str, int]] = {}
        at = 0
        for one in self.fields:
            code = f"={one.code}"
            if one.is_one:
                places[one.name] = code, at
            else:
                for side in range(one.length):
                    places[one.name, side] = code, at + side * calcsize(code)
            at += one.length * calcsize(code)
        return places

    @cached_property
    def dtype(self) -> Any:
        """The struct as a NumPy structured dtype."""
        fields: list[tuple[Any, ...]] = []
        for one in self.fields:
            if one.is_bytes:
                fields.append((one.name, f"V{one.length}"))
            elif one.is_one:
                fields.append((one.name, one.code))
            else:
                fields.append((one.name, one.code, (one.length,)))
        return numpy().dtype(fields)


def read_layout(name: str, headers: str) -> Layout:
    """The struct of that name in C headers; its fields are of fixed size, each on a line of its own, as in engine.h.

    Raises ValueError if there is no such struct, one of its fields is not of that form, or it needs padding.
    """
    before, is_there, _ = headers.partition(f"\n}} {name};")
    body = before.rpartition("typedef struct {\n")[2] if is_there else ""
    fields = tuple(Field(field, _CODES[kind], int(count or 1)) for kind, field, count in _FIELD.findall(body))
    if not fields or len(fields) != _COMMENT.sub("", body).count(";"):
        raise ValueError(f"struct {name} is not declared as those of engine.h are")
    layout = Layout(name, fields)
    if calcsize("@" + "".join(code * count for _, code, count in fields) + "0q") != layout.struct.size:
        raise ValueError(f"struct {name} needs padding: order its fields by size")
    return layout


# In the order of the C side: machine.h.
TABLES = ("candidate", "no_wait", "reaction", "delayed_ack", "idle_gap", "exchange", "connection", "segment")
_SHARED = (*TABLES, "interface_", "counters")  # in the order of nagle_lab_size_of
_DECLARED = "".join(header.read_text(encoding="utf-8") for header in HEADERS)
LAYOUTS = {name: read_layout(name, _DECLARED) for name in _SHARED}
