"""Packets inside packets: every tunnel and shim that the decoder handles, around a known segment."""

import socket
import struct
from collections.abc import Callable

from support.synthetic import ETHERNET, Frame, Segment, ip_bytes, packet_bytes, tcp_bytes

ETHERNET_ADDRESSES = b"\x02\0\0\0\0\x02\x02\0\0\0\0\x01"
Wrap = Callable[[Segment], bytes]


def ethernet(ethertype: int, payload: bytes) -> bytes:
    """A frame."""
    return ETHERNET_ADDRESSES + struct.pack(">H", ethertype) + payload


def ipv4(protocol: int, payload: bytes, options: bytes = b"", fragment: int = 0, length: int | None = None) -> bytes:
    """A frame with an IPv4 packet; `fragment` is the whole field of flags and offset."""
    header = 20 + len(options)
    total = header + len(payload) if length is None else length
    fixed = struct.pack(">BBHHHBBH", 0x40 | header // 4, 0, total, 77, fragment, 64, protocol, 0)
    return ethernet(0x0800, fixed + socket.inet_aton("192.0.2.1") + socket.inet_aton("192.0.2.2") + options + payload)


def ipv6(following: int, payload: bytes, length: int | None = None) -> bytes:
    """A frame with an IPv6 packet."""
    length = len(payload) if length is None else length
    addresses = socket.inet_pton(socket.AF_INET6, "2001:db8::1") + socket.inet_pton(socket.AF_INET6, "2001:db8::2")
    return ethernet(0x86DD, struct.pack(">IHBB", 6 << 28, length, following, 64) + addresses + payload)


def udp(port: int, payload: bytes) -> bytes:
    """A frame with a UDP datagram over IPv4."""
    return ipv4(17, struct.pack(">HHHH", 50000, port, 8 + len(payload), 0) + payload)


def _ethertype(segment: Segment) -> int:
    return 0x86DD if ":" in segment.src else 0x0800


def _gre(flags: int, extra: bytes) -> Wrap:
    return lambda s: ipv4(47, struct.pack(">HH", flags, _ethertype(s)) + extra + ip_bytes(s))


def _pptp(segment: Segment) -> bytes:
    ppp = struct.pack(">BBH", 0xFF, 3, _ppp_protocol(segment)) + ip_bytes(segment)
    return ipv4(47, struct.pack(">HHHHII", 0x3081, 0x880B, len(ppp), 1, 5, 6) + ppp)


def _ppp_protocol(segment: Segment) -> int:
    return 0x0057 if ":" in segment.src else 0x0021


def _pppoe(segment: Segment) -> bytes:
    ppp = struct.pack(">H", _ppp_protocol(segment)) + ip_bytes(segment)
    return ethernet(0x8864, struct.pack(">BBHH", 0x11, 0, 1, len(ppp)) + ppp)


def _mpls(*labels: int) -> Wrap:
    def wrap(segment: Segment) -> bytes:
        stack = b"".join(
            struct.pack(">I", label << 12 | (number == len(labels)) << 8 | 64)
            for number, label in enumerate(labels, 1)
        )
        return ethernet(0x8847, stack + ip_bytes(segment))

    return wrap


def _erspan_3(last: int, extra: bytes) -> Wrap:
    header = struct.pack(">HHIIIHH", 0x1000, 0x22EB, 5, 2 << 28, 9, 0, last) + extra
    return lambda s: ipv4(47, header + packet_bytes(s, ETHERNET))


def _snap(segment: Segment) -> bytes:
    return b"\xaa\xaa\x03\0\0\0" + struct.pack(">H", _ethertype(segment)) + ip_bytes(segment)


def _in_802_3(segment: Segment) -> bytes:
    return ethernet(len(_snap(segment)), _snap(segment))


def _in_802_3_with_vlan(segment: Segment) -> bytes:
    return ethernet(0x8100, struct.pack(">HH", 7, len(_snap(segment))) + _snap(segment))


def _gtp(flags: int, extra: bytes) -> Wrap:
    def wrap(segment: Segment) -> bytes:
        packet = extra + ip_bytes(segment)
        return udp(2152, struct.pack(">BBHI", flags, 0xFF, len(packet) & 0xFFFF, 9) + packet)

    return wrap


def _l2tp(segment: Segment) -> bytes:
    return udp(
        1701, struct.pack(">HI", 2, 9) + b"\xff\x03" + struct.pack(">H", _ppp_protocol(segment)) + ip_bytes(segment)
    )


def _l2tp_with_all(segment: Segment) -> bytes:
    """Length, sequence numbers and an offset of two bytes."""
    ppp = b"\xff\x03" + struct.pack(">H", _ppp_protocol(segment)) + ip_bytes(segment)
    return udp(1701, struct.pack(">HHIHHHH", 0x4A02, (16 + len(ppp)) & 0xFFFF, 9, 1, 1, 2, 0) + ppp)


def wlan(segment: Segment, first: int = 0x08, flags: int = 0x01, extra: bytes = b"") -> bytes:
    """A data frame of 802.11; `extra` is what stands between the usual header and LLC."""
    return struct.pack("<BBH", first, flags, 44) + ETHERNET_ADDRESSES + bytes(6) + b"\x10\0" + extra + _snap(segment)


def _radiotap(frame: bytes) -> bytes:
    """With the flags of the frame and its rate."""
    return struct.pack("<BBHIBB", 0, 0, 10, 0x06, 0, 12) + frame


def _nflog(segment: Segment) -> bytes:
    family = 10 if ":" in segment.src else 2
    prefix = struct.pack("<HH", 4 + 5, 10) + b"drop\0" + bytes(3)
    packet = ip_bytes(segment)
    header = struct.pack(">BBH", family, 0, 5) + prefix
    return header + struct.pack("<HH", (4 + len(packet)) & 0xFFFF, 9) + packet + bytes(-len(packet) % 4)


# Link layers whose headers vary: the number of tcpdump.org, and a packet.
LINKS: dict[str, tuple[int, Wrap]] = {
    "802.11": (105, wlan),
    "802.11 with QoS": (105, lambda s: wlan(s, 0x88, 0x02, b"\0\0")),
    "802.11 with QoS, padded": (105, lambda s: wlan(s, 0x88, 0x02, b"\0\0" + bytes(2))),
    "802.11 with four addresses, QoS and HT control": (105, lambda s: wlan(s, 0x88, 0x83, bytes(6 + 2 + 4))),
    "802.11 with radiotap": (127, lambda s: _radiotap(wlan(s))),
    "802.11 with PPI": (192, lambda s: struct.pack("<BBHI", 0, 0, 8, 105) + wlan(s)),
    "NFLOG": (239, _nflog),
    "IEEE 802.3 with SNAP": (1, _in_802_3),
    "IEEE 802.3 with SNAP in a VLAN": (1, _in_802_3_with_vlan),
    "Cisco HDLC": (104, lambda s: struct.pack(">BBH", 0x0F, 0, _ethertype(s)) + ip_bytes(s)),
    "PPP in HDLC": (50, lambda s: struct.pack(">BBH", 0xFF, 3, _ppp_protocol(s)) + ip_bytes(s)),
}
TUNNELS: dict[str, Wrap] = {
    "GTP-U": _gtp(0x30, b""),
    "GTP-U with a sequence number": _gtp(0x32, bytes(4)),
    "GTP-U with an extension header": _gtp(0x34, b"\0\0\0\x85" + b"\x01\x10\x01\0"),
    "L2TP": _l2tp,
    "L2TP with length, sequence numbers and offset": _l2tp_with_all,
    "GRE": _gre(0, b""),
    "GRE with checksum, key, sequence": _gre(0xB000, bytes(12)),
    "GRE with Ethernet": lambda s: ipv4(47, struct.pack(">HH", 0, 0x6558) + packet_bytes(s, ETHERNET)),
    "GRE over IPv6": lambda s: ipv6(47, struct.pack(">HH", 0, _ethertype(s)) + ip_bytes(s)),
    "PPTP": _pptp,
    "PPPoE": _pppoe,
    "MPLS": _mpls(100),
    "MPLS, three labels": _mpls(100, 200, 300),
    "ERSPAN, type I": lambda s: ipv4(47, struct.pack(">HH", 0, 0x88BE) + packet_bytes(s, ETHERNET)),
    "ERSPAN": lambda s: ipv4(47, struct.pack(">HHIII", 0x1000, 0x88BE, 5, 1 << 28, 1) + packet_bytes(s, ETHERNET)),
    "ERSPAN, type III": _erspan_3(0, b""),
    "ERSPAN, type III, with a platform's header": _erspan_3(1, bytes(8)),
    "VXLAN at Linux's port": lambda s: udp(8472, struct.pack(">II", 8 << 24, 1 << 8) + packet_bytes(s, ETHERNET)),
    "VXLAN": lambda s: udp(4789, struct.pack(">II", 8 << 24, 42 << 8) + packet_bytes(s, ETHERNET)),
    "Geneve": lambda s: udp(6081, struct.pack(">BBHI", 2, 0, 0x6558, 42 << 8) + bytes(8) + packet_bytes(s, ETHERNET)),
    "IP in IPv4": lambda s: ipv4(41 if ":" in s.src else 4, ip_bytes(s)),
    "IP in IPv6": lambda s: ipv6(41 if ":" in s.src else 4, ip_bytes(s)),
    "VXLAN in QinQ": lambda s: (
        ethernet(0x88A8, struct.pack(">HHHH", 7, 0x8100, 8, 0x0800))
        + udp(4789, struct.pack(">II", 8 << 24, 42 << 8) + packet_bytes(s, ETHERNET))[14:]
    ),
}


def tunnelled(segments: list[Segment], wrap: Wrap) -> list[Frame]:
    """The same segments inside that tunnel."""
    return [Frame(segment.ts_ns, wrap(segment)) for segment in segments]


# Between IP and TCP; the addresses are those of `ipv6`, so they are not tunnels around an IP packet of their own.
EXTENSIONS: dict[str, tuple[int, Callable[[int], bytes]]] = {
    "hop-by-hop": (0, lambda following: struct.pack(">BB6x", following, 0)),
    "long destination options": (60, lambda following: struct.pack(">BB22x", following, 2)),
    "routing": (43, lambda following: struct.pack(">BBBB20x", following, 2, 0, 0)),
    "first and only fragment": (44, lambda following: struct.pack(">BBHI", following, 0, 0, 9)),
    "authentication": (51, lambda following: struct.pack(">BBHII12x", following, 4, 0, 1, 1)),
}


def extended(segment: Segment, *names: str) -> bytes:
    """An IPv6 frame of that segment's TCP with extension headers, outermost first."""
    following, payload = 6, tcp_bytes(segment)
    for name in reversed(names):
        number, header = EXTENSIONS[name]
        payload, following = header(following) + payload, number
    return ipv6(following, payload)
