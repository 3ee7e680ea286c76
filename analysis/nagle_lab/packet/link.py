"""Link layers, and what lies between them and IP: VLAN tags, PPPoE, MPLS, ERSPAN.

Sources: the LINKTYPE_ registry of tcpdump.org; IEEE 802.1Q and 802.1ad; RFC 2516 (PPPoE); RFC 3032 (MPLS);
nfnetlink_log.h of Linux (NFLOG);
draft-foschiano-erspan-03 (ERSPAN, what switches mirror to another network).
"""

from struct import Struct

from nagle_lab.packet import kinds
from nagle_lab.packet.headers import Layer, Packet, always

FAMILY_IPV4 = 2
FAMILIES_IPV6 = (10, 24, 28, 30)  # Linux; NetBSD and OpenBSD; FreeBSD; Darwin
PPP_IPV4, PPP_IPV6 = 0x21, 0x57
PKTAP_HEADER, PKTAP_BEGIN = 108, Struct("<III").unpack_from  # bytes at least
ERSPAN_FRAME_TYPE = 0x7C00  # 0: Ethernet
NFLOG_HEADER, NFLOG_ATTRIBUTE, NFLOG_PAYLOAD = 4, Struct("<HH").unpack_from, 9  # NFULA_PAYLOAD


def _typed(header: int, type_at: int) -> Layer:
    """A layer whose header is ``header`` bytes long and has an EtherType at byte ``type_at``."""

    def layer(packet: Packet) -> None:
        if packet.has(header):
            packet.kind = packet.u16(type_at)
            packet.at += header

    return layer


def _frame(header: int, type_at: int) -> Layer:
    """As ``_typed``, but an EtherType too small to be one is the frame's length (IEEE 802.3), and LLC comes next."""
    typed = _typed(header, type_at)

    def layer(packet: Packet) -> None:
        typed(packet)
        if packet.kind < kinds.FIRST_ETHERTYPE:
            packet.kind = kinds.LLC

    return layer


def _by_version(packet: Packet) -> None:
    """Raw IP: the version is in the first four bits."""
    if packet.has(1):
        packet.kind = _IP_VERSIONS.get(packet.u8() >> 4, packet.kind | kinds.MALFORMED)


_IP_VERSIONS = {4: kinds.IPV4, 6: kinds.IPV6}


def _loopback(packet: Packet) -> None:
    """An address family, in the byte order of the capturing host or of the network."""
    if not packet.has(4):
        return
    family = int.from_bytes(packet.buffer[packet.at : packet.at + 4], "little")
    if family > 0xFFFF:
        family = int.from_bytes(packet.buffer[packet.at : packet.at + 4], "big")
    if family == FAMILY_IPV4:
        packet.kind = kinds.IPV4
    elif family in FAMILIES_IPV6:
        packet.kind = kinds.IPV6
    else:
        packet.kind = kinds.FAMILY | min(family, 0xFFFF)
    packet.at += 4


def _mpls(packet: Packet) -> None:
    """One label. There is no type below the last one: its version shows IP; a pseudowire (0) is not decoded."""
    if not packet.has(5):
        return
    if packet.u8(2) & 1:
        packet.kind = _IP_VERSIONS.get(packet.u8(4) >> 4, packet.kind | kinds.OPAQUE)
    packet.at += 4


def _ppp(packet: Packet) -> None:
    """RFC 1661 and 1662: address and control may be there, and the protocol may be one byte."""
    if not packet.has(2):
        return
    if packet.u16() == 0xFF03:
        packet.at += 2
    if not packet.has(2):
        return
    protocol, size = packet.u16(), 2
    if protocol & 0x0100:
        protocol, size = protocol >> 8, 1
    if protocol == PPP_IPV4:
        packet.kind = kinds.IPV4
    elif protocol == PPP_IPV6:
        packet.kind = kinds.IPV6
    else:
        packet.kind = kinds.PPP_PROTOCOL | protocol
    packet.at += size


def _pktap(packet: Packet) -> None:
    """macOS: how long this header is, what it is, and the link type of the packet behind it, little-endian."""
    if packet.has(PKTAP_HEADER):
        length, _, link_type = PKTAP_BEGIN(packet.buffer, packet.at)
        packet.kind = kinds.LINK_TYPE | min(link_type, 0xFFFF)
        packet.at += length


def _nflog(packet: Packet) -> None:
    """Netlink's attributes, the packet the last of them; their numbers are the host's, here little-endian."""
    if not packet.has(NFLOG_HEADER):
        return
    packet.at += NFLOG_HEADER
    while packet.has(4):
        length, attribute = NFLOG_ATTRIBUTE(packet.buffer, packet.at)
        if attribute == NFLOG_PAYLOAD:
            packet.kind = kinds.RAW_IP[0]
            packet.at += 4
            return
        if length < 4:
            packet.kind |= kinds.MALFORMED
            return
        packet.at += (length + 3) & ~3


def _erspan_3(packet: Packet) -> None:
    """Type III, whose last bit says whether a header for its platform follows; only Ethernet frames are decoded."""
    if not packet.has(12):
        return
    if packet.u16(10) & ERSPAN_FRAME_TYPE:
        packet.kind |= kinds.OPAQUE
        return
    packet.at += 20 if packet.u8(11) & 1 else 12
    packet.kind = kinds.ETHERNET


LINK_LAYERS: dict[int, Layer] = {
    kinds.ETHERNET: _frame(14, 12),
    kinds.LINUX_COOKED: _typed(16, 14),
    kinds.LINUX_COOKED_2: _typed(20, 0),
    kinds.BSD_LOOPBACK: _loopback,
    kinds.OPENBSD_LOOPBACK: _loopback,
    **dict.fromkeys(kinds.RAW_IP, _by_version),
    kinds.RAW_IPV4: always(kinds.IPV4),
    kinds.RAW_IPV6: always(kinds.IPV6),
    kinds.PKTAP: _pktap,
    kinds.NFLOG: _nflog,
    **dict.fromkeys(kinds.VLAN_TAGS, _frame(4, 2)),
    kinds.MPLS_UNICAST: _mpls,
    kinds.MPLS_MULTICAST: _mpls,
    kinds.PPPOE_SESSION: always(kinds.PPP, 6),
    kinds.PPP_IN_GRE: always(kinds.PPP),
    kinds.PPP: _ppp,
    kinds.PPP_IN_HDLC: _ppp,
    kinds.CISCO_HDLC: _typed(4, 2),
    kinds.ETHERNET_IN_GRE: always(kinds.ETHERNET),
    kinds.ERSPAN_2: always(kinds.ETHERNET, 8),
    kinds.ERSPAN_3: _erspan_3,
}
