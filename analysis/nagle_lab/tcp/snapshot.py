"""An engine between two files of a capture, as bytes, from which another engine continues later, in another process.

A snapshot is the state itself, so only the same build can use it: the same sources on the same kind of machine.
"""

import zstandard

from nagle_lab.errors import NagleLabError
from nagle_lab.tcp.engine import Engine

NAME = "nagle-lab snapshot"
FORMAT = f"{NAME} 1"


def heading(engine: Engine) -> str:
    """The heading of this engine's snapshots, and of those from which it can continue."""
    return f"{FORMAT}, {engine.build}"


def save(engine: Engine) -> bytes:
    """The engine's state without the rows in its tables; call it where a file has ended."""
    state = zstandard.ZstdCompressor(write_checksum=True).compress(engine.save())
    return heading(engine).encode() + b"\n" + state


def restore(engine: Engine, saved: bytes, name: str) -> None:
    """Make a new engine continue from the snapshot ``name``. Raises NagleLabError if damaged, or of another build."""
    made_by, _, state = saved.partition(b"\n")
    if made_by != heading(engine).encode():
        other = made_by[:100].decode("utf-8", "replace") if made_by.startswith(NAME.encode()) else "no snapshot"
        todo = "start over, or use the same build everywhere"
        raise NagleLabError(f"{name}: {other}; this is {heading(engine)}: {todo}")
    try:
        engine.restore(zstandard.ZstdDecompressor().decompress(state))
    except (zstandard.ZstdError, ValueError) as error:
        raise NagleLabError(f"{name}: damaged ({error}): remove it and go on with --resume") from error
