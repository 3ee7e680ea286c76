"""What a capture's reader and the taker of its records share: interfaces, positions, and trouble with the input."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple, Protocol

from nagle_lab.capture.kernel_answers import KernelAnswer
from nagle_lab.capture.window import Window
from nagle_lab.errors import counted


class TroubleKind(StrEnum):
    """Why a result is partial, or must not be taken at face value."""

    TRUNCATED = "truncated"  # the input ends in the middle of a record
    DAMAGED = "damaged"  # bytes that cannot be what they should be; nothing after them was read
    CHANGED = "changed"  # the file changed while it was read
    UNORDERED = "unordered"  # rotated files given out of order, or many packets
    SET_BACK = "set back"  # the clock was set back between two packets of one interface
    UNTIMED = "untimed"  # packets without a time of capture
    LOST = "lost"  # packets the capturing program says it dropped


class Trouble(str):
    """One thing a person must know about the input: a sentence that names the file, with its `kind`."""

    __slots__ = ("kind",)

    kind: TroubleKind

    def __new__(cls, kind: TroubleKind, text: str) -> "Trouble":
        """Make a sentence of that kind."""
        trouble = super().__new__(cls, text)
        trouble.kind = kind
        return trouble


class StoppedError(Exception):
    """Why the records of a file end before the file does; raised after all good ones were taken.

    ``position`` is a byte of the file, after decompression; ``what`` says what is there, as part of a sentence.
    """

    def __init__(self, kind: TroubleKind, position: int, what: str) -> None:
        super().__init__(what)
        self.kind = kind
        self.position = position
        self.what = what


@dataclass
class Facts:
    """What reading has shown about the input; complete once all records have been read."""

    formats: dict[str, None] = field(default_factory=dict)  # "pcap", "pcapng", in order of appearance
    link_types: dict[int, None] = field(default_factory=dict)  # LINKTYPE_… numbers, likewise
    packets: int = 0  # frames in the input, as Wireshark counts them; some have no record
    untimed: int = 0  # packets without a time of capture, which are not among the records
    dropped: int = 0  # packets the capturing program says it lost
    dropped_before: int = 0  # of these, already warned about
    trouble: list[Trouble] = field(default_factory=list)
    kernel_answers: list[KernelAnswer] = field(default_factory=list)  # what it said about data in sockets

    def warn(self, kind: TroubleKind, text: str) -> None:
        """Add trouble: a sentence that names the file."""
        self.trouble.append(Trouble(kind, text))

    def warn_lost(self, name: str) -> None:
        """Add trouble if packets of the file of that name were dropped since the last call."""
        lost, self.dropped_before = self.dropped - self.dropped_before, self.dropped
        if lost > 0:
            were = "was" if lost == 1 else "were"
            self.warn(TroubleKind.LOST, f"{name}: {counted(lost, 'packet')} {were} dropped while capturing")


class Interface(NamedTuple):
    """What the records of one interface have in common; the fields are those of ``interface_`` in records.h.

    A tick is the unit of its time stamps.
    """

    number: int  # through the whole input
    offset_ns: int  # to add to its times
    link_type: int  # LINKTYPE_…
    resolution: int  # if_tsresol of pcapng: a negative power of ten, with the top bit set of two


class Section(NamedTuple):
    """The state of reading a pcapng file, besides the position: its section, and the counts before it."""

    order: str  # "<" or ">"
    turns: int  # changes of byte order so far
    interfaces: list[Interface]
    dropped: list[int]  # by each of them
    forgotten: int  # how many interfaces earlier sections had


class Position(NamedTuple):
    """A position between two records of a file, from which another reader continues."""

    at: int  # byte
    packets: int  # frames before the file
    untimed: int  # packets without a time of capture before it
    as_opened: tuple[int, int] | None = None  # its size and time when it was first opened (Stored)
    section: Section | None = None  # of a pcapng file


class PcapFraming(NamedTuple):
    """How the records of a pcap file are to be read."""

    order: str  # "<" or ">"
    header: int  # bytes of a record header
    interface: Interface


class ClockState(Protocol):
    """Whether time advances (:class:`nagle_lab.capture.clock.Clock`), in either engine."""

    @property
    def set_back(self) -> tuple[int, int] | None:
        """The frame at which the clock was set back, and by how many ns."""

    @property
    def epoch(self) -> int:
        """The epoch of the packet taken last: how many breaks the clock had (:mod:`nagle_lab.capture.clock`)."""

    def new_file(self) -> None:
        """The following packets are of another file."""

    def begins_before(self) -> bool:
        """Whether this file began before the previous one ended; True only once."""


class RecordTaker(Protocol):
    """Who takes the records of a capture: plain Python, or its C twin.

    Both take complete records from ``window`` at ``at`` on, and return the position of the first record that is
    incomplete or that they leave to the reader because it is not an ordinary packet.
    """

    frames: int  # so far, in the whole input; the reader adds frames that are not packets

    @property
    def clock(self) -> ClockState:
        """Whether the times of the records advance."""

    def pcap(self, window: Window, at: int, framing: PcapFraming) -> int:
        """Take pcap records."""

    def pcapng(self, window: Window, at: int, order: str, interfaces: Sequence[Interface]) -> int:
        """Take enhanced and obsolete packet blocks of interfaces that were described."""
