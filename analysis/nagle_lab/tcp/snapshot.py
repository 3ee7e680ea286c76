"""An engine between two files of a capture, as bytes: another one goes on from there, in another process, later.

A snapshot is the state itself, and so of use to the same build only: the same sources on the same kind of machine.
"""

import zstandard

from nagle_lab.errors import NagleLabError
from nagle_lab.tcp.engine import Engine

NAME = "nagle-lab snapshot"
FORMAT = f"{NAME} 1"


def heading(engine: Engine) -> str:
    """What a snapshot of this engine begins with, and one that it can go on from."""
    return f"{FORMAT}, {engine.build}"


def save(engine: Engine) -> bytes:
    """What the engine knows, but for the rows in its tables; call it where a file has ended."""
    state = zstandard.ZstdCompressor(write_checksum=True).compress(engine.save())
    return heading(engine).encode() + b"\n" + state


def restore(engine: Engine, saved: bytes, name: str) -> None:
    """Have a new engine go on from a snapshot; ``name`` is what to call that.

    Raises
    ------
    NagleLabError
        It is of another build, or damaged.
    """
    made_by, _, state = saved.partition(b"\n")
    if made_by != heading(engine).encode():
        other = made_by[:100].decode("utf-8", "replace") if made_by.startswith(NAME.encode()) else "no snapshot"
        todo = "start over, or use the same build everywhere"
        raise NagleLabError(f"{name}: {other}; this is {heading(engine)}: {todo}")
    try:
        engine.restore(zstandard.ZstdDecompressor().decompress(state))
    except (zstandard.ZstdError, ValueError) as error:
        raise NagleLabError(f"{name}: damaged ({error}): remove it and go on with --resume") from error
