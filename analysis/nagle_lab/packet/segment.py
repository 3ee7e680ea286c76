"""TCP segments: header and options. Sources: RFC 9293; RFC 7323 (window scale, timestamps); RFC 2018 (SACK)."""

import ipaddress
from enum import IntEnum
from functools import lru_cache
from struct import Struct

import msgspec

from nagle_lab.packet import kinds
from nagle_lab.packet.headers import U16, Layer, Packet
from nagle_lab.packet.ip import IP_LAYERS, V4_MAPPED
from nagle_lab.packet.link import LINK_LAYERS

FIN, SYN, RST, PSH, ACK = 0x01, 0x02, 0x04, 0x08, 0x10

HEADER = Struct(">HHIIHH4x")
ETHERNET, ETHERNET_HEADER = 1, 14
# Ethernet's type; version and header length, length, id, fragment, TTL, protocol, ends
USUAL = Struct(">12xH BxHHHBB2x4s4s")
TIMESTAMPS_ALONE = Struct(">III")  # NOP, NOP, timestamps: the options of nearly every segment
NOP_NOP_TIMESTAMPS = b"\x01\x01\x08\x0a"
TIMESTAMPS = Struct(">II")
OPTION_END, OPTION_NOP, OPTION_MSS, OPTION_SCALE, OPTION_SACK, OPTION_TIMESTAMPS = 0, 1, 2, 3, 5, 8

LAYERS: dict[int, Layer] = LINK_LAYERS | IP_LAYERS
MOST_LAYERS = 16
LONGEST = 1 << 30  # payload bytes; segmentation offload makes some megabytes, a damaged length any number


class Kernel(IntEnum):
    """Whose kernel a SYN looks like; who imitates one, or stands in between (a proxy), looks the same."""

    UNKNOWN = 0
    LINUX = 1
    WINDOWS = 2
    BSD = 3  # macOS, iOS and FreeBSD


class Segment(msgspec.Struct, frozen=True, gc=False):  # made and read four times as fast as a NamedTuple
    """One TCP segment as it was captured; the fields are those of ``segment`` in segment.h."""

    frame: int  # 1-based position in the capture, as in Wireshark
    ts: int  # ns since 1970-01-01 UTC
    src: bytes  # 16 bytes, IPv4 mapped into IPv6
    dst: bytes
    seq: int
    ack: int
    length: int  # payload bytes on the wire, however few of them were captured
    wire: int  # bytes of the whole packet on the wire, link layer included where it was captured
    tsval: int  # 0 without the option
    tsecr: int
    epoch: int  # only times of one epoch of the clock can be compared (nagle_lab.capture.clock)
    interface: int
    sport: int
    dport: int
    flags: int  # low 12 bits: reserved, AE, CWR, ECE, URG, ACK, PSH, RST, SYN, FIN
    window: int  # as on the wire, not scaled
    mss: int  # 0 without the option
    ip_id: int  # IPv4 identification, tells a packet captured twice from one sent twice; 0 for IPv6
    wscale: int  # shift count; -1 without the option, -2 where the options were cut before it
    timestamps: int  # whether it has the option
    sack: int  # whether it carries SACK blocks
    kernel: int  # Kernel, of a SYN; else 0


def decode(
    buffer: bytes | bytearray, at: int, captured: int, original: int, link_type: int, frame: int, ts: int, epoch: int,
    interface: int,
) -> Segment | int:  # fmt: skip
    """The TCP segment in a packet, or the kind of what there is instead (:func:`nagle_lab.packet.kinds.name_of`).

    Goes through VLAN tags, PPPoE, MPLS, IP in IP, GRE, VXLAN and Geneve, and IPv6 extension headers; addresses and
    length are those of the innermost IP header.
    """
    packet = Packet(buffer, at, captured, original, link_type)
    if link_type != ETHERNET or captured < USUAL.size or not _take_usual(packet):
        peel(packet)
    if packet.kind != kinds.TCP or not packet.has(HEADER.size):
        return packet.kind
    at = packet.at
    sport, dport, seq, ack, offset_flags, window = HEADER.unpack_from(buffer, at)
    header = (offset_flags >> 12) * 4
    length = packet.end - at - header
    if header < HEADER.size or not 0 <= length <= LONGEST:
        return packet.kind | kinds.MALFORMED
    mss = tsval = tsecr = timestamps = sack = kernel = 0
    wscale = -1
    if header > HEADER.size:
        end = min(at + header, packet.captured_end)
        at += HEADER.size
        if end - at == TIMESTAMPS_ALONE.size and buffer[at : at + 4] == NOP_NOP_TIMESTAMPS:
            timestamps, (tsval, tsecr) = 1, TIMESTAMPS.unpack_from(buffer, at + 4)
        else:
            mss, wscale, timestamps, tsval, tsecr, sack, order = read_options(buffer, at, end)
            if offset_flags & SYN and packet.at + header <= packet.captured_end:
                kernel = kernel_of(order, packet.ttl, window, mss)
        if wscale < 0 and packet.at + header > packet.captured_end:
            wscale = -2
    return Segment(
        frame, ts, packet.src, packet.dst, seq, ack, length, original, tsval, tsecr, epoch, interface,
        sport, dport, offset_flags & 0xFFF, window, mss, packet.ip_id, wscale, timestamps, sack,
        kernel,
    )  # fmt: skip


def _take_usual(packet: Packet) -> bool:
    """Take off Ethernet and IPv4, if that is all there is before TCP: most packets by far, so at once."""
    ethertype, version_ihl, length, ip_id, fragment, ttl, protocol, src, dst = USUAL.unpack_from(
        packet.buffer, packet.at
    )
    if ethertype != kinds.IPV4 or version_ihl != 0x45 or length < 20 or fragment & 0x1FFF or protocol != 6:
        return False
    at = packet.at + ETHERNET_HEADER
    packet.at, packet.end = at + 20, at + length
    packet.src, packet.dst, packet.ip_id, packet.ttl = V4_MAPPED + src, V4_MAPPED + dst, ip_id, ttl
    packet.kind = kinds.TCP
    return True


def peel(packet: Packet) -> None:
    """Take off all headers that are known, from the outermost in."""
    for _ in range(MOST_LAYERS):
        layer = LAYERS.get(packet.kind)
        if layer is None:
            return
        layer(packet)
    if packet.kind in LAYERS:
        packet.kind |= kinds.OPAQUE


def read_options(buffer: bytes | bytearray, at: int, end: int) -> tuple[int, int, int, int, int, int, int]:
    """MSS, window scale, whether there are timestamps, both of them, and whether there are SACK blocks.

    Last the kinds of all options but padding, in their order, a hexadecimal digit each; 0 where one is damaged.
    """
    mss = timestamps = tsval = tsecr = sack = order = 0
    wscale = -1
    while at < end and (kind := buffer[at]) != OPTION_END:
        if kind == OPTION_NOP:
            at += 1
            continue
        size = buffer[at + 1] if at + 1 < end else 0
        if size < 2 or at + size > end:
            order = 0
            break
        order = (order << 4 | kind & 15) & 0xFFFFFFFF
        if kind == OPTION_MSS and size == 4:
            (mss,) = U16(buffer, at + 2)
        elif kind == OPTION_SCALE and size == 3:
            wscale = min(buffer[at + 2], 127)
        elif kind == OPTION_SACK and size > 2:
            sack = 1
        elif kind == OPTION_TIMESTAMPS and size == 10:
            timestamps, (tsval, tsecr) = 1, TIMESTAMPS.unpack_from(buffer, at + 2)
        at += size
    return mss, wscale, timestamps, tsval, tsecr, sack, order


def kernel_of(order: int, ttl: int, window: int, mss: int) -> Kernel:
    """Whose SYN has options in that order, such a TTL when it arrives, and such a window (unscaled).

    MSS is 2, window scale 3, SACK permitted 4, timestamps 8. TTLs begin at 64, but at 128 with Windows. The window of
    Linux is a multiple of the MSS, with timestamps or without, or of that of Ethernet, where the path made it less;
    gVisor, which has Linux's order, knows nothing of that.
    """
    if 32 < ttl <= 64:
        if order in (0x2483, 0x243, 0x248):
            is_multiple = mss > 12 and 0 in (window % mss, window % (mss - 12), window % 1460, window % 1448)
            return Kernel.LINUX if is_multiple else Kernel.UNKNOWN
        return Kernel.BSD if order in (0x2384, 0x2348) else Kernel.UNKNOWN
    return Kernel.WINDOWS if 64 < ttl <= 128 and order in (0x234, 0x2348) else Kernel.UNKNOWN


def packed_address(text: str) -> bytes:
    """An address as it stands in a segment: 16 bytes, IPv4 mapped into IPv6."""
    address = ipaddress.ip_address(text)
    return V4_MAPPED + address.packed if address.version == 4 else address.packed


def end_text(address: str, port: int) -> str:
    """An address and a port as people write them; IPv6 in brackets (RFC 5952 §6)."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


@lru_cache(1 << 12)
def address_text(address: bytes) -> str:
    """An address of a segment as people write it."""
    v6 = ipaddress.IPv6Address(address)
    return str(v6.ipv4_mapped or v6)
