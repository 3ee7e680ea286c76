"""What the records of a run folder and of a scenario have in common: how strict they are, and kinds of values."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

LARGEST = (1 << 53) - 1  # the largest whole number that every reader of JSON keeps (RFC 8259, section 6)


class Record(Struct, forbid_unknown_fields=True):
    """One object or table of a file: every field that has no default must be there, and no other."""


Count = Annotated[int, Meta(ge=0, le=LARGEST)]
Port = Annotated[int, Meta(ge=1, le=65535)]
Number = Annotated[float, Meta(ge=-LARGEST, le=LARGEST)]
Role = Literal["server", "client"]
