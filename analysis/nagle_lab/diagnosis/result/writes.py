"""The two writes of a stall, as part of a result: what system calls recorded beside the segments add to it.

:mod:`nagle_lab.experiments.writes.stall_writes` finds them; this module only describes them.
"""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from nagle_lab.diagnosis.result.spread import Spread


class Place(msgspec.Struct, frozen=True):
    """A line of code, as far as it is known."""

    file: str  # "" if it is not known; for a library the part behind its folder
    line: int  # 0 if it is not known
    function: str


class Write(msgspec.Struct, frozen=True):
    """A call, and where it was made."""

    call: str  # the system call
    by: str  # the call of the program's language; "" for native code
    bytes: int  # that the kernel took
    at: str  # seconds since the epoch, with µs
    process: int
    thread: int
    command: str
    program: Place | None  # the program's own line: the innermost that differs from the other write's
    library: Place | None  # the library's line that made it: the innermost that differs from the other write's
    why_no_line: str


class HeldWrite(msgspec.Struct, frozen=True):
    """The two writes of one stall of the traced run."""

    connection: int
    exchange: int
    trigger_frame: int
    release_frame: int
    trigger: Write
    held: Write  # the same as the trigger if one write made both segments
    one_write: bool
    held_writes: int  # from how many writes the released segment has bytes
    between_ms: float
    true_hold_ms: float  # from the held write to its release, less `early_us`


class Group(msgspec.Struct, frozen=True):
    """Stalls whose two writes were made in the same places."""

    stalls: int
    trigger: Write
    held: Write
    trigger_bytes: tuple[int, int]  # the fewest and the most
    held_bytes: tuple[int, int]
    one_write: bool
    between_ms: float  # median
    # For the first of these stalls, innermost place first: those of libraries, then the program's; without plumbing.
    trigger_stack: list[Place]
    held_stack: list[Place]


class Option(msgspec.Struct, frozen=True):
    """A setsockopt() on the socket that held, on its listener, on the other end, or on another of the process."""

    option: str
    value: bool
    on: str  # "socket", "listener", "other end", "another socket"
    after_connecting_ms: float | None  # None: before, or not known
    error: str  # "EINVAL": it was refused; "": it was set
    after_stall: bool  # made when the first stall was over
    write: Write
    caller: Place | None = None  # the program's line that called the function in which it was made

    @property
    def took_effect(self) -> bool:
        """Whether it set or cleared TCP_NODELAY, and was not refused."""
        return self.option == "TCP_NODELAY" and not self.error


class Writes(msgspec.Struct, frozen=True, kw_only=True):
    """What system calls recorded beside the segments showed."""

    problem: str  # why there is nothing, or not all; one line
    notes: list[str]
    exchanges: int  # of the traced run
    stalled_exchanges: int
    untraced_exchanges: int | None  # None: there was no run without tracing
    untraced_stalled_exchanges: int | None
    named: int  # stalls of the traced run whose two calls were found
    stalls: int  # of the traced run
    groups: list[Group]
    true_hold_ms: Spread | None
    nodelay: str  # what became of TCP_NODELAY on the sockets that held
    options: list[Option]  # of the first such socket
    pairs: list[HeldWrite]  # the first thousand
    early_us: float = 0.0  # by how much strace's times of calls were early; subtracted from the true hold


def nothing_found(
    exchanges: int,
    stalled_exchanges: int,
    *,
    problem: str = "",
    notes: Sequence[str] = (),
    untraced: tuple[int, int] | None = None,
) -> Writes:
    """No writes yet, for so many exchanges of the traced run; ``untraced`` are those of the run without tracing."""
    exchanges_before, stalled_before = untraced or (None, None)
    return Writes(
        problem=problem,
        notes=list(notes),
        exchanges=exchanges,
        stalled_exchanges=stalled_exchanges,
        untraced_exchanges=exchanges_before,
        untraced_stalled_exchanges=stalled_before,
        named=0,
        stalls=0,
        groups=[],
        true_hold_ms=None,
        nodelay="",
        options=[],
        pairs=[],
    )


def is_asked(write: Write) -> bool:
    """Whether the program asked for the call itself, through a function of a library that is named after it."""
    return bool(write.program and write.library and write.library.function.endswith("setsockopt"))


def write_text(write: Write, here: Path | None = None) -> str:
    """Its place, as short as possible: "server.py:16 reply"; see :func:`place_text`."""
    if not write.program and not write.library:
        return f"{write.command}, no line:"
    if not write.program:
        assert write.library
        return f"{place_text(write.library, here)} (a library)"
    inside = f" ({place_text(write.library, here)})" if write.library and not is_asked(write) else ""
    return place_text(write.program, here) + inside


def place_text(place: Place, here: Path | None = None) -> str:
    """ "server.py:16 reply"; a file below the folder ``here`` relative to it, another by its last two names."""
    if not place.file:
        return place.function
    path = Path(place.file)
    if path.is_absolute():
        path = path.relative_to(here) if here and path.is_relative_to(here) else Path(*path.parts[-2:])
    return f"{path}:{place.line}{f' {place.function}' if place.function else ''}"


def here() -> Path | None:
    """The working directory, below which files are named from there on; None if it was removed."""
    with suppress(OSError):
        return Path.cwd()
    return None
