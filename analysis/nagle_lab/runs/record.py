"""What the records of a run folder and of a scenario have in common: how strict they are, and kinds of values."""

from typing import Annotated

from msgspec import Meta, Struct

from nagle_lab.diagnosis.result.result import LARGEST, Role

__all__ = [
    "PLAIN_NAME",
    "Port",
    "Role",
    "SignedNumber",
    "StrictRecord",
]  # Role, repeated for the lab, which imports nothing from diagnosis

PLAIN_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}"  # of files, captures, runs; never leads elsewhere


class StrictRecord(Struct, forbid_unknown_fields=True):
    """One object or table of a file: every field that has no default must be there, and no other."""


Port = Annotated[int, Meta(ge=1, le=65535)]
SignedNumber = Annotated[float, Meta(ge=-LARGEST, le=LARGEST)]
