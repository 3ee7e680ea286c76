"""Writing pcapng: one section, times in nanoseconds, any number of interfaces (draft-ietf-opsawg-pcapng)."""

from struct import Struct, pack
from typing import BinaryIO

from nagle_lab.capture.kernel_answers import KernelAnswer, comment
from nagle_lab.capture.pcapng import (
    BYTE_ORDER_MAGIC,
    COMMENT,
    END_OF_OPTIONS,
    IF_NAME,
    IF_TSRESOL,
    INTERFACE,
    ISB_IFDROP,
    PACKET,
    SECTION,
    STATISTICS,
)

ETHERNET = 1  # LINKTYPE_ETHERNET
LITTLE = "<"  # byte order, as struct has it


def block(order: str, kind: int, body: bytes | bytearray) -> bytes:
    """The bytes of a pcapng block of type ``kind``; ``order`` is "<" or ">"."""
    size = pack(order + "I", 12 + len(body))
    return pack(order + "I", kind) + size + body + size


def option(order: str, code: int, value: bytes) -> bytes:
    """The bytes of an option of a block, padded to four bytes."""
    return pack(order + "HH", code, len(value)) + value + bytes(-len(value) % 4)


def all_options(order: str, *those: tuple[int, bytes]) -> bytes:
    """The bytes of all options of a block, by code and value, and their end."""
    return b"".join(option(order, code, value) for code, value in (*those, (END_OF_OPTIONS, b"")))


def section_block(order: str) -> bytes:
    """The header of a section whose length is not stated, without options."""
    return block(order, SECTION, pack(order + "IHHq", BYTE_ORDER_MAGIC, 1, 0, -1))


def interface_block(order: str, link_type: int, snaplen: int, options: bytes) -> bytes:
    """The description of an interface; ``link_type`` is a LINKTYPE_… number, ``snaplen`` in bytes, 0 no limit."""
    return block(order, INTERFACE, pack(order + "HHI", link_type, 0, snaplen) + options)


def answer_block(order: str, ticks: int, answer: KernelAnswer) -> bytes:
    """Statistics of the first interface, stamped ``ticks``, whose comment says what data waited in a socket."""
    options = all_options(order, (COMMENT, comment(answer).encode()))
    return block(order, STATISTICS, pack(order + "III", 0, ticks >> 32, ticks & 0xFFFFFFFF) + options)


class Pcapng:
    """A pcapng file that is being written. Interfaces are numbered from 0, in the order in which they are added."""

    _EPB = Struct("<IIIIIII")

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        file.write(section_block(LITTLE))

    def add_interface(self, name: str, *, snaplen: int = 0, link_type: int = ETHERNET) -> None:
        """Describe the next interface; ``snaplen`` is in bytes, 0 means no limit."""
        options = all_options(LITTLE, (IF_NAME, name.encode()), (IF_TSRESOL, b"\x09"))
        self._file.write(interface_block(LITTLE, link_type, snaplen, options))

    def add(self, ts: int, interface: int, length: int, kept: bytes) -> None:
        """Write a packet: its time in ns since 1970, its length on the wire, and the bytes kept of it."""
        size = 32 + (len(kept) + 3) // 4 * 4
        head = self._EPB.pack(PACKET, size, interface, ts >> 32, ts & 0xFFFFFFFF, len(kept), length)
        self._file.write(head + kept + bytes(-len(kept) % 4) + size.to_bytes(4, "little"))

    def add_dropped(self, interface: int, packets: int) -> None:
        """Write how many packets of an interface were lost since it was added."""
        options = all_options(LITTLE, (ISB_IFDROP, pack("<Q", packets)))
        self._file.write(block(LITTLE, STATISTICS, pack("<III", interface, 0, 0) + options))

    def add_answer(self, answer: KernelAnswer) -> None:
        """Write what data waited in a socket: a comment on statistics of the first interface."""
        self._file.write(answer_block(LITTLE, answer.at, answer))
