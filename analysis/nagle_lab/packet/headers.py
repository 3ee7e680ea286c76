"""Headers within headers: how far one packet has been decoded, and what comes next in it.

Every layer is a function that moves a packet past one header and says what kind comes next.
"""

from collections.abc import Callable
from struct import Struct

from nagle_lab.packet import kinds

U16 = Struct(">H").unpack_from


class Packet:
    """One captured packet, and how far it has been decoded. Positions are offsets in ``buffer``."""

    __slots__ = ("at", "buffer", "captured_end", "dst", "end", "ip_id", "kind", "src", "ttl", "wire_end")

    def __init__(self, buffer: bytes | bytearray, at: int, captured: int, original: int, link_type: int) -> None:
        self.buffer = buffer
        self.at = at  # where the next header begins
        self.captured_end = at + captured
        self.end = self.wire_end = at + original  # ``end``: of the innermost IP packet, by its length field
        self.kind = kinds.LINK_TYPE | link_type  # of the next header
        self.src = self.dst = NO_ADDRESS  # 16 bytes; IPv4 mapped into IPv6 (::ffff:a.b.c.d, RFC 4291 §2.5.5.2)
        self.ip_id = self.ttl = 0  # its IPv4 identification, 0 for IPv6; its time to live, or hop limit

    def has(self, count: int) -> bool:
        """Whether ``count`` more bytes were captured; if not, decoding ends here, and ``kind`` says why."""
        if self.at + count <= self.captured_end:
            return True
        self.kind |= kinds.CUT if self.captured_end < self.wire_end else kinds.INCOMPLETE
        return False

    def u8(self, skip: int = 0) -> int:
        """The byte after the next ``skip`` bytes, as a number."""
        return self.buffer[self.at + skip]

    def u16(self, skip: int = 0) -> int:
        """The two bytes after the next ``skip`` bytes, as a number in network byte order."""
        value: int = U16(self.buffer, self.at + skip)[0]
        return value


NO_ADDRESS = bytes(16)
Layer = Callable[[Packet], None]


def always(kind: int, header: int = 0) -> Layer:
    """A layer whose header is ``header`` bytes long and always followed by the same ``kind``."""

    def layer(packet: Packet) -> None:
        if packet.has(header):
            packet.kind = kind
            packet.at += header

    return layer
