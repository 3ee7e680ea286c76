"""Kinds of headers: the numbers that say what comes next in a packet, and their names for people.

A kind is an EtherType, or an IP protocol, link type, … with a mark that distinguishes these. Where decoding ends
before TCP, the kind also says why.
"""

IP_PROTOCOL, LINK_TYPE, PPP_PROTOCOL, FAMILY = 0x10000, 0x20000, 0x30000, 0x40000
SPACE = 0x70000  # the mark; EtherTypes have none

CUT, INCOMPLETE, MALFORMED, FRAGMENT, OPAQUE = 0x100000, 0x200000, 0x300000, 0x400000, 0x500000
ENCRYPTED = 0x600000
REASON = 0xF00000  # why decoding ended here; 0 if nothing decodes it

LLC = 0x0004  # as Linux cooked captures number it; smaller than any EtherType
IPV4, IPV6 = 0x0800, 0x86DD
VLAN_TAGS = (0x8100, 0x88A8, 0x9100)
MPLS_UNICAST, MPLS_MULTICAST = 0x8847, 0x8848
PPPOE_SESSION, PPP_IN_GRE, ETHERNET_IN_GRE = 0x8864, 0x880B, 0x6558
ERSPAN_2, ERSPAN_3 = 0x88BE, 0x22EB

ETHERNET, PPP, PPP_IN_HDLC, CISCO_HDLC = LINK_TYPE | 1, LINK_TYPE | 9, LINK_TYPE | 50, LINK_TYPE | 104
BSD_LOOPBACK, OPENBSD_LOOPBACK = LINK_TYPE | 0, LINK_TYPE | 108  # NULL and LOOP of tcpdump.org
LINUX_COOKED, LINUX_COOKED_2 = LINK_TYPE | 113, LINK_TYPE | 276
RAW_IP = (LINK_TYPE | 101, LINK_TYPE | 12, LINK_TYPE | 14)  # the latter two as some systems number it
RAW_IPV4, RAW_IPV6, PKTAP, NFLOG = LINK_TYPE | 228, LINK_TYPE | 229, LINK_TYPE | 258, LINK_TYPE | 239
WLAN, RADIOTAP, PPI = LINK_TYPE | 105, LINK_TYPE | 127, LINK_TYPE | 192

TCP, UDP, GRE = IP_PROTOCOL | 6, IP_PROTOCOL | 17, IP_PROTOCOL | 47
IPV4_IN_IP, IPV6_IN_IP = IP_PROTOCOL | 4, IP_PROTOCOL | 41
HOP_BY_HOP, ROUTING, FRAGMENT_HEADER, DESTINATION = (IP_PROTOCOL | number for number in (0, 43, 44, 60))
AUTHENTICATION, MOBILITY, HIP, SHIM6 = (IP_PROTOCOL | number for number in (51, 135, 139, 140))

ETHERTYPES = {
    LLC: "IEEE 802.2", 0x0800: "IPv4", 0x0806: "ARP", 0x8035: "RARP", 0x8100: "VLAN", 0x86DD: "IPv6", 0x8809: "LACP",
    0x880B: "PPP", 0x8847: "MPLS", 0x8848: "MPLS", 0x8863: "PPPoE discovery", 0x8864: "PPPoE", 0x888E: "EAPOL",
    0x88A8: "QinQ", 0x88BE: "ERSPAN", 0x88CC: "LLDP", 0x88E5: "MACsec", 0x88F7: "PTP", 0x22EB: "ERSPAN",
    0x9100: "QinQ",
}  # fmt: skip
IP_PROTOCOLS = {
    1: "ICMP", 2: "IGMP", 6: "TCP", 17: "UDP", 47: "GRE tunnel", 50: "IPsec ESP",
    58: "ICMPv6", 89: "OSPF", 103: "PIM",
    112: "VRRP", 115: "L2TP", 132: "SCTP",
}  # fmt: skip
LINK_TYPES = {
    0: "loopback", 1: "Ethernet", 9: "PPP", 50: "PPP", 101: "raw IP", 104: "Cisco HDLC", 105: "802.11",
    108: "loopback", 113: "Linux cooked", 127: "802.11 with radiotap", 147: "user-defined", 189: "USB", 192: "PPI",
    220: "USB", 228: "raw IPv4", 229: "raw IPv6", 239: "NFLOG", 253: "Netlink", 258: "PKTAP", 276: "Linux cooked v2",
}  # fmt: skip
FIRST_ETHERTYPE = 0x600  # smaller numbers are lengths of IEEE 802.3 frames


_WORDS = {
    CUT: "header cut by snaplen", INCOMPLETE: "header incomplete", MALFORMED: "malformed", FRAGMENT: "fragment",
    ENCRYPTED: "encrypted",
}  # fmt: skip


def kind_name(kind: int) -> str:
    """What to call packets whose decoding ended at this kind: "ARP", "IPv4 fragment", "TCP header cut by snaplen"."""
    name = _subject(kind & ~REASON)
    if words := _WORDS.get(kind & REASON):
        return f"{name} {words}"
    if kind & SPACE == LINK_TYPE and kind & REASON != OPAQUE:
        number = kind & 0xFFFF
        return f"link type {number} ({name}) not decoded" if number in LINK_TYPES else f"{name} not known"
    return name


def link_type_name(number: int) -> str:
    """What to call a LINKTYPE_… number (tcpdump.org), known or not."""
    return LINK_TYPES.get(number, f"link type {number}")


def _subject(kind: int) -> str:
    space, number = kind & SPACE, kind & 0xFFFF
    if space == IP_PROTOCOL:
        return IP_PROTOCOLS.get(number, f"IP protocol {number}")
    if space == LINK_TYPE:
        return link_type_name(number)
    if space == PPP_PROTOCOL:
        return f"PPP protocol 0x{number:04x}"
    if space:
        return f"loopback family {number}"
    return ETHERTYPES.get(number, f"EtherType 0x{number:04x}" if number >= FIRST_ETHERTYPE else "IEEE 802.3")
