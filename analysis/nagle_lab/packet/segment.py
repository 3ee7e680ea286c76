"""TCP segments: header and options. Sources: RFC 9293; RFC 7323 (window scale, timestamps); RFC 2018 (SACK)."""

import ipaddress
from enum import IntEnum
from functools import lru_cache
from struct import Struct

import msgspec

from nagle_lab.packet import kinds
from nagle_lab.packet.headers import U16, Layer, Packet
from nagle_lab.packet.ip import FRAGMENT_OFFSET, IP_LAYERS, V4_MAPPED
from nagle_lab.packet.link import LINK_LAYERS
from nagle_lab.packet.wlan import WLAN_LAYERS

FIN, SYN, RST, PSH, ACK = 0x01, 0x02, 0x04, 0x08, 0x10

HEADER = Struct(">HHIIHH4x")
# Most packets by far are Ethernet, IPv4 and TCP, without options or with timestamps alone, and decoded at once:
# EtherType; version and header length, length, identification, fragment, TTL, protocol, addresses; then as HEADER.
USUAL, USUAL_HEADERS = Struct(">12xH BxHHHBB2x4s4s HHIIHH4x").unpack_from, 54
TIMESTAMPS_ALONE, USUAL_HEADERS_AND_TIMESTAMPS = Struct(">III").unpack_from, 66
USUAL_LINK_TYPE, USUAL_VERSION_IHL, USUAL_IP_HEADER, USUAL_PROTOCOL = 1, 0x45, 20, 6  # Ethernet; IPv4; bytes; TCP
WITHOUT_OPTIONS, WITH_TIMESTAMPS, NOP_NOP_TIMESTAMPS = 5, 8, 0x0101080A  # header lengths in 32-bit words; bytes
FLAGS = 0xFFF
TIMESTAMPS = Struct(">II")
OPTION_END, OPTION_NOP, OPTION_MSS, OPTION_SCALE, OPTION_TIMESTAMPS = 0, 1, 2, 3, 8

LAYERS: dict[int, Layer] = LINK_LAYERS | WLAN_LAYERS | IP_LAYERS
MOST_LAYERS = 16
OPTIONS_CUT = -2  # value of the window scale if the capture cut the options off
LONGEST = 1 << 30  # payload bytes; offload makes up to some megabytes, a damaged length any number


class Kernel(IntEnum):
    """Whose kernel a SYN looks like; a stack that imitates it, or a proxy in between, looks the same."""

    UNKNOWN = 0
    LINUX = 1
    WINDOWS = 2
    BSD = 3  # macOS, iOS and FreeBSD


class Segment(msgspec.Struct, frozen=True, gc=False):  # created and read four times as fast as a NamedTuple
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
    kernel: int = 0  # Kernel, of a SYN; else 0
    ttl: int = 0  # time to live, or hop limit
    wscale: int = -1  # shift count; -1 without the option, OPTIONS_CUT if the options were cut off
    timestamps: int = 0  # whether it has the option


def decode(
    buffer: bytes | bytearray, at: int, captured: int, original: int, link_type: int, frame: int, ts: int, epoch: int,
    interface: int,
) -> Segment | int:  # fmt: skip
    """Decode the TCP segment in a packet, or return the kind of what is there instead (nagle_lab.packet.kinds).

    Goes through 802.11, VLAN tags, PPPoE, MPLS, IP in IP, GRE, ERSPAN, VXLAN, Geneve, GTP-U and L2TP, and IPv6
    extension headers; addresses and length are those of the innermost IP header. It raises nothing, whatever the
    bytes are.

    Parameters
    ----------
    buffer, at : the bytes, and where the packet's link layer begins in them
    captured, original : how many of its bytes were captured, and how many it had on the wire
    link_type : LINKTYPE_… number
    frame, ts, epoch, interface : of the segment: see :class:`Segment`
    """
    if link_type == USUAL_LINK_TYPE and captured >= USUAL_HEADERS:
        (
            ethertype, version_ihl, ip_length, ip_id, fragment, ttl, protocol, src, dst,
            sport, dport, seq, ack, offset_flags, window,
        ) = USUAL(buffer, at)  # fmt: skip
        words = offset_flags >> 12
        length = ip_length - USUAL_IP_HEADER - 4 * words
        is_ipv4 = ethertype == kinds.IPV4 and version_ihl == USUAL_VERSION_IHL and not fragment & FRAGMENT_OFFSET
        if is_ipv4 and protocol == USUAL_PROTOCOL and length >= 0:
            src, dst = V4_MAPPED + src, V4_MAPPED + dst
            if words == WITHOUT_OPTIONS:
                return Segment(
                    frame, ts, src, dst, seq, ack, length, original, 0, 0, epoch,
                    interface, sport, dport, offset_flags & FLAGS, window, 0, ip_id, 0, ttl,
                )  # fmt: skip
            if words == WITH_TIMESTAMPS and captured >= USUAL_HEADERS_AND_TIMESTAMPS:
                nop_nop_timestamps, tsval, tsecr = TIMESTAMPS_ALONE(buffer, at + USUAL_HEADERS)
                if nop_nop_timestamps == NOP_NOP_TIMESTAMPS:
                    return Segment(
                        frame, ts, src, dst, seq, ack, length, original, tsval, tsecr, epoch,
                        interface, sport, dport, offset_flags & FLAGS, window, 0, ip_id, 0, ttl, -1, 1,
                    )  # fmt: skip
    packet = Packet(buffer, at, captured, original, link_type)
    peel(packet)
    if packet.kind != kinds.TCP or not packet.has(HEADER.size):
        return packet.kind
    return _decode_tcp(packet, original, frame, ts, epoch, interface)


def _decode_tcp(packet: Packet, original: int, frame: int, ts: int, epoch: int, interface: int) -> Segment | int:
    """Decode the TCP segment that comes next in a packet; its header was captured, its options perhaps only in
    part.
    """
    buffer, at = packet.buffer, packet.at
    sport, dport, seq, ack, offset_flags, window = HEADER.unpack_from(buffer, at)
    header = (offset_flags >> 12) * 4
    length = packet.end - at - header
    if header < HEADER.size or not 0 <= length <= LONGEST:
        return packet.kind | kinds.MALFORMED
    is_whole = at + header <= packet.captured_end
    end = at + header if is_whole else packet.captured_end
    mss, wscale, timestamps, tsval, tsecr, order = read_options(buffer, at + HEADER.size, end)
    if wscale < 0 and not is_whole:
        wscale = OPTIONS_CUT
    kernel = kernel_of(order, packet.ttl, window, mss) if offset_flags & SYN and is_whole else 0
    return Segment(
        frame, ts, packet.src, packet.dst, seq, ack, length, original, tsval, tsecr, epoch,
        interface, sport, dport, offset_flags & FLAGS, window, mss, packet.ip_id, kernel, packet.ttl, wscale,
        timestamps,
    )  # fmt: skip


def peel(packet: Packet) -> None:
    """Remove all known headers, from the outermost inwards, at most MOST_LAYERS."""
    for _ in range(MOST_LAYERS):
        layer = LAYERS.get(packet.kind)
        if layer is None:
            return
        layer(packet)
    if packet.kind in LAYERS:
        packet.kind |= kinds.OPAQUE


def read_options(buffer: bytes | bytearray, at: int, end: int) -> tuple[int, int, int, int, int, int]:
    """Read TCP options from ``at`` up to ``end`` (RFC 9293 §3.2, RFC 7323).

    Returns MSS (bytes; 0 none), window scale (-1 none), whether there are timestamps, TSval and TSecr. The last value
    is the kinds of all options except padding, in order, one hexadecimal digit each; 0 if an option is damaged.
    """
    mss = timestamps = tsval = tsecr = order = 0
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
        elif kind == OPTION_TIMESTAMPS and size == 10:
            timestamps, (tsval, tsecr) = 1, TIMESTAMPS.unpack_from(buffer, at + 2)
        at += size
    return mss, wscale, timestamps, tsval, tsecr, order


def kernel_of(order: int, ttl: int, window: int, mss: int) -> Kernel:
    """The kernel whose SYN has options in that order, that TTL on arrival, that window (bytes, unscaled) and that
    MSS.

    MSS is 2, window scale 3, SACK permitted 4, timestamps 8. TTLs begin at 64, but at 128 with Windows. The window of
    Linux is a multiple of the MSS, with or without timestamps, or of Ethernet's MSS, if the path made the MSS less;
    that of gVisor, which has Linux's order, is not.
    """
    if 32 < ttl <= 64:
        if order in (0x2483, 0x243, 0x248):
            is_multiple = mss > 12 and 0 in (window % mss, window % (mss - 12), window % 1460, window % 1448)
            return Kernel.LINUX if is_multiple else Kernel.UNKNOWN
        return Kernel.BSD if order in (0x2384, 0x2348) else Kernel.UNKNOWN
    return Kernel.WINDOWS if 64 < ttl <= 128 and order in (0x234, 0x2348) else Kernel.UNKNOWN


def packed_address(text: str) -> bytes:
    """The address ``text`` as it stands in a segment: 16 bytes, IPv4 mapped into IPv6. Raises ValueError."""
    address = ipaddress.ip_address(text)
    return V4_MAPPED + address.packed if address.version == 4 else address.packed


def end_text(address: str, port: int | None) -> str:
    """An address, with its port if there is one, as people write them; IPv6 in brackets (RFC 5952 §6)."""
    if port is None:
        return address
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def split_end(text: str) -> tuple[str, int] | None:
    """Address, which may be missing, and port of a text as :func:`end_text` writes it; None for any other text."""
    address, colon, port = text.rpartition(":")
    return (address, int(port)) if colon and port.isdecimal() and 0 < int(port) < 65536 else None


@lru_cache(1 << 12)
def address_text(address: bytes) -> str:
    """An address of a segment as people write it."""
    v6 = ipaddress.IPv6Address(address)
    return str(v6.ipv4_mapped or v6)
