"""Writing pcapng: one section, times in nanoseconds, any number of interfaces (draft-ietf-opsawg-pcapng)."""

from struct import Struct, pack
from typing import BinaryIO

from nagle_lab.capture.pcapng import BYTE_ORDER_MAGIC, COMMENT, INTERFACE, ISB_IFDROP, PACKET, SECTION, STATISTICS
from nagle_lab.capture.waiting import Waiting, comment

ETHERNET = 1  # LINKTYPE_ETHERNET
_IF_NAME, _IF_TSRESOL, _END = 2, 9, 0


class Pcapng:
    """A pcapng file that is being written. Interfaces are numbered from 0, in the order in which they are added."""

    _EPB = Struct("<IIIIIII")

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        file.write(_block(SECTION, pack("<IHHq", BYTE_ORDER_MAGIC, 1, 0, -1)))

    def add_interface(self, name: str, *, snaplen: int = 0, link_type: int = ETHERNET) -> None:
        """Describe the next interface; ``snaplen`` is in bytes, 0 means no limit."""
        options = _option(_IF_NAME, name.encode()) + _option(_IF_TSRESOL, b"\x09") + _option(_END, b"")
        self._file.write(_block(INTERFACE, pack("<HHI", link_type, 0, snaplen) + options))

    def add(self, ts: int, interface: int, length: int, kept: bytes) -> None:
        """Write a packet: its time in ns since 1970, its length on the wire, and the bytes kept of it."""
        size = 32 + (len(kept) + 3) // 4 * 4
        head = self._EPB.pack(PACKET, size, interface, ts >> 32, ts & 0xFFFFFFFF, len(kept), length)
        self._file.write(head + kept + bytes(-len(kept) % 4) + size.to_bytes(4, "little"))

    def add_dropped(self, interface: int, packets: int) -> None:
        """Say how many packets of an interface were lost since it was described."""
        options = _option(ISB_IFDROP, pack("<Q", packets)) + _option(_END, b"")
        self._file.write(_block(STATISTICS, pack("<III", interface, 0, 0) + options))

    def add_waiting(self, interface: int, waiting: Waiting) -> None:
        """Say what data waited in a socket then: a comment on the interface."""
        options = _option(COMMENT, comment(waiting).encode()) + _option(_END, b"")
        time = pack("<III", interface, waiting.at >> 32, waiting.at & 0xFFFFFFFF)
        self._file.write(_block(STATISTICS, time + options))


def _block(kind: int, body: bytes) -> bytes:
    size = 12 + len(body)
    return pack("<II", kind, size) + body + pack("<I", size)


def _option(code: int, value: bytes) -> bytes:
    return pack("<HH", code, len(value)) + value + bytes(-len(value) % 4)
