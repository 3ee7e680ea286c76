"""Link layers, and what lies between them and IP: VLAN tags, PPPoE, MPLS.

Sources: the LINKTYPE_ registry of tcpdump.org; IEEE 802.1Q and 802.1ad; RFC 2516 (PPPoE); RFC 3032 (MPLS).
"""

import numpy as np

from nagle_lab.packet import kinds
from nagle_lab.packet.layers import Layer, Layers, always
from nagle_lab.packet.table import Rows

FAMILY_IPV4 = 2
FAMILIES_IPV6 = (10, 24, 28, 30)  # Linux; NetBSD and OpenBSD; FreeBSD; Darwin


def _typed(header: int, type_at: int) -> Layer:
    """A layer of fixed length with an EtherType in it."""

    def layer(layers: Layers, rows: Rows) -> None:
        rows = layers.with_bytes(rows, header)
        layers.kind[rows] = layers.read(rows, ">u2", type_at)
        layers.at[rows] += header

    return layer


def _by_version(layers: Layers, rows: Rows) -> None:
    """Raw IP: the version is in the first four bits."""
    rows = layers.with_bytes(rows, 1)
    version = layers.read(rows, "u1") >> 4
    bad = layers.kind[rows] | kinds.MALFORMED
    layers.kind[rows] = np.select([version == 4, version == 6], [kinds.IPV4, kinds.IPV6], bad)


def _null(layers: Layers, rows: Rows) -> None:
    """Loopback: an address family, in the byte order of the capturing host (NULL) or of the network (LOOP)."""
    rows = layers.with_bytes(rows, 4)
    family = layers.read(rows, "<u4").astype(np.uint32)
    family = np.where(family > 0xFFFF, family.byteswap(), family)
    other = kinds.FAMILY | np.minimum(family, 0xFFFF).astype(np.int32)
    layers.kind[rows] = np.select(
        [family == FAMILY_IPV4, np.isin(family, FAMILIES_IPV6)], [kinds.IPV4, kinds.IPV6], other
    )
    layers.at[rows] += 4


def _mpls(layers: Layers, rows: Rows) -> None:
    """One label. Below the last there is no type: IP shows by its version; a pseudowire (0) is left alone."""
    rows = layers.with_bytes(rows, 5)
    last = layers.read(rows, "u1", 2) & 1 == 1
    version = layers.read(rows, "u1", 4) >> 4
    kind = layers.kind[rows]
    layers.kind[rows] = np.select(
        [~last, version == 4, version == 6], [kind, np.int32(kinds.IPV4), np.int32(kinds.IPV6)], kind | kinds.OPAQUE
    )
    layers.at[rows] += 4


def _ppp(layers: Layers, rows: Rows) -> None:
    """RFC 1661 and 1662: address and control may be there, and the protocol may be one byte."""
    rows = layers.with_bytes(rows, 2)
    framed = layers.read(rows, ">u2") == 0xFF03
    layers.at[rows] += np.where(framed, 2, 0)
    rows = layers.with_bytes(rows, 2)
    protocol = layers.read(rows, ">u2").astype(np.int32)
    short = protocol & 0x0100 != 0
    protocol = np.where(short, protocol >> 8, protocol)
    layers.kind[rows] = np.select(
        [protocol == 0x21, protocol == 0x57], [kinds.IPV4, kinds.IPV6], kinds.PPP_PROTOCOL | protocol
    )
    layers.at[rows] += np.where(short, 1, 2)


LINK_LAYERS: dict[int, Layer] = {
    kinds.ETHERNET: _typed(14, 12),
    kinds.LINUX_COOKED: _typed(16, 14),
    kinds.LINUX_COOKED_2: _typed(20, 0),
    kinds.NULL: _null,
    kinds.LOOP: _null,
    **dict.fromkeys(kinds.RAW_IP, _by_version),
    kinds.RAW_IPV4: always(kinds.IPV4),
    kinds.RAW_IPV6: always(kinds.IPV6),
    **dict.fromkeys(kinds.VLAN_TAGS, _typed(4, 2)),
    kinds.MPLS_UNICAST: _mpls,
    kinds.MPLS_MULTICAST: _mpls,
    kinds.PPPOE_SESSION: always(kinds.PPP, 6),
    kinds.PPP_IN_GRE: always(kinds.PPP),
    kinds.PPP: _ppp,
    kinds.ETHERNET_IN_GRE: always(kinds.ETHERNET),
}
