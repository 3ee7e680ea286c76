"""IPv4, IPv6 and its extension headers, and the tunnels that run over IP.

Sources: RFC 791, RFC 8200, RFC 4302 (AH), RFC 2784 and 2890 (GRE), RFC 2637 (its PPTP variant), RFC 7348 (VXLAN),
RFC 8926 (Geneve), RFC 2661 (L2TP), 3GPP TS 29.281 (GTP-U, what mobile networks carry their users' packets in).
"""

from struct import Struct

from nagle_lab.packet import kinds
from nagle_lab.packet.headers import U16, Layer, Packet, always

# Version and header length, length, identification, fragment, TTL, protocol, addresses.
IPV4_HEADER = Struct(">B x H H H B B 2x 4s 4s")
IPV6_HEADER = Struct(">B 3x H B B 16s 16s")  # version and class, payload length, next header, hop limit, addresses
V4_MAPPED = bytes(10) + b"\xff\xff"
FRAGMENT_OFFSET = 0x1FFF

VXLAN_PORTS, GENEVE_PORT = (4789, 8472), 6081  # the second is that of Linux, older than IANA's
GTP_USER_PORT, L2TP_PORT = 2152, 1701
UDP_HEADER, TUNNEL_HEADER = 8, 8
GTP_VERSION_AND_TYPE, GTP_VERSION_1, GTP_PACKET, GTP_OPTIONAL, GTP_EXTENDED = 0xF0, 0x30, 0xFF, 0x07, 0x04
L2TP_CONTROL, L2TP_LENGTH, L2TP_SEQUENCE, L2TP_OFFSET, L2TP_VERSION = 0x8000, 0x4000, 0x0800, 0x0200, 0x000F


def _ipv4(packet: Packet) -> None:
    if not packet.has(IPV4_HEADER.size):
        return
    at = packet.at
    version_ihl, length, packet.ip_id, fragment, packet.ttl, protocol, src, dst = IPV4_HEADER.unpack_from(
        packet.buffer, at
    )
    header = (version_ihl & 15) * 4
    if length == 0:  # segmentation offload of more than 64 KB, captured before the card cut it up
        length = packet.wire_end - at
    packet.end = at + length
    packet.at = at + header
    packet.src, packet.dst = V4_MAPPED + src, V4_MAPPED + dst
    if version_ihl >> 4 != 4 or header < IPV4_HEADER.size or length < header:
        packet.kind = kinds.IPV4 | kinds.MALFORMED
    elif fragment & FRAGMENT_OFFSET:
        packet.kind = kinds.IPV4 | kinds.FRAGMENT
    else:
        packet.kind = kinds.IP_PROTOCOL | protocol


def _ipv6(packet: Packet) -> None:
    if not packet.has(IPV6_HEADER.size):
        return
    version, length, following, packet.ttl, packet.src, packet.dst = IPV6_HEADER.unpack_from(packet.buffer, packet.at)
    packet.at += IPV6_HEADER.size
    # Length 0 is a jumbogram, or segmentation offload of more than 64 KB.
    packet.end = packet.at + length if length else packet.wire_end
    packet.ip_id = 0
    packet.kind = kinds.IP_PROTOCOL | following if version >> 4 == 6 else kinds.IPV6 | kinds.MALFORMED


def _extension(unit: int) -> Layer:
    """An extension header: next protocol, then its own length in units of ``unit`` bytes, without the first 8."""

    def layer(packet: Packet) -> None:
        if packet.has(8):
            packet.kind = kinds.IP_PROTOCOL | packet.u8()
            packet.at += packet.u8(1) * unit + 8

    return layer


def _fragment_header(packet: Packet) -> None:
    if packet.has(8):
        later = packet.u16(2) >> 3
        packet.kind = kinds.IPV6 | kinds.FRAGMENT if later else kinds.IP_PROTOCOL | packet.u8()
        packet.at += 8


def _gre(packet: Packet) -> None:
    if not packet.has(4):
        return
    flags, protocol = packet.u16(), packet.u16(2)
    version, routing = flags & 7, flags & 0x4000
    if version > 1 or (version == 0 and routing):
        packet.kind |= kinds.OPAQUE
        return
    checksum, key, sequence = ((flags & bit != 0) * 4 for bit in (0x8000, 0x2000, 0x1000))
    acknowledgement = (flags & 0x0080 != 0) * 4
    # RFC 2637 (version 1): the key is always there; an acknowledgement number may be.
    packet.at += 8 + sequence + acknowledgement if version else 4 + checksum + key + sequence
    # Type I of ERSPAN has neither a sequence number nor a header of its own.
    packet.kind = kinds.ETHERNET if protocol == kinds.ERSPAN_2 and not sequence else protocol


def _udp(packet: Packet) -> None:
    """Look into UDP for tunnels only, by their destination ports."""
    if not packet.has(UDP_HEADER):
        return
    port = packet.u16(2)
    packet.kind |= kinds.OPAQUE
    if packet.at + UDP_HEADER + TUNNEL_HEADER > packet.captured_end:
        return
    if port in VXLAN_PORTS and packet.u8(8) & 0x08:
        packet.kind = kinds.ETHERNET
        packet.at += UDP_HEADER + TUNNEL_HEADER
    elif port == GENEVE_PORT and packet.u8(8) >> 6 == 0:
        (packet.kind,) = U16(packet.buffer, packet.at + 10)
        packet.at += UDP_HEADER + TUNNEL_HEADER + (packet.u8(8) & 0x3F) * 4
    elif port == GTP_USER_PORT:
        _gtp(packet)
    elif port == L2TP_PORT:
        _l2tp(packet)


def _gtp(packet: Packet) -> None:
    """Version 1, behind a UDP header: a user's packet, perhaps after extension headers, each the type of the next."""
    flags = packet.u8(UDP_HEADER)
    if flags & GTP_VERSION_AND_TYPE != GTP_VERSION_1 or packet.u8(UDP_HEADER + 1) != GTP_PACKET:
        return
    packet.at += UDP_HEADER + TUNNEL_HEADER
    if flags & GTP_OPTIONAL and not _gtp_extensions(packet, flags):
        return
    packet.kind = kinds.RAW_IP[0]


def _gtp_extensions(packet: Packet, flags: int) -> bool:
    """Sequence and N-PDU numbers, then headers that say their length in words. Returns whether all were captured."""
    if not packet.has(4):
        return False
    following = packet.u8(3) if flags & GTP_EXTENDED else 0
    packet.at += 4
    while following:
        if not packet.has(1) or not packet.u8() or not packet.has(packet.u8() * 4):
            return False
        size = packet.u8() * 4
        following = packet.u8(size - 1)
        packet.at += size
    return True


def _l2tp(packet: Packet) -> None:
    """Version 2, behind a UDP header: data messages carry PPP."""
    flags = packet.u16(UDP_HEADER)
    if flags & L2TP_CONTROL or flags & L2TP_VERSION != 2:
        return
    header = UDP_HEADER + 6 + 2 * (flags & L2TP_LENGTH != 0) + 4 * (flags & L2TP_SEQUENCE != 0)
    if flags & L2TP_OFFSET:
        if not packet.has(header + 2):
            return
        header += 2 + packet.u16(header)
    packet.kind = kinds.PPP
    packet.at += header


IP_LAYERS: dict[int, Layer] = {
    kinds.IPV4: _ipv4,
    kinds.IPV6: _ipv6,
    kinds.HOP_BY_HOP: _extension(8),
    kinds.ROUTING: _extension(8),
    kinds.FRAGMENT_HEADER: _fragment_header,
    kinds.AUTHENTICATION: _extension(4),
    kinds.DESTINATION: _extension(8),
    kinds.MOBILITY: _extension(8),
    kinds.HIP: _extension(8),
    kinds.SHIM6: _extension(8),
    kinds.GRE: _gre,
    kinds.IPV4_IN_IP: always(kinds.IPV4),
    kinds.IPV6_IN_IP: always(kinds.IPV6),
    kinds.UDP: _udp,
}
