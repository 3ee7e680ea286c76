"""IPv4, IPv6 and its extension headers, and the tunnels that run over IP.

Sources: RFC 791, RFC 8200, RFC 4302 (AH), RFC 2784 and 2890 (GRE), RFC 2637 (its PPTP variant), RFC 7348 (VXLAN),
RFC 8926 (Geneve).
"""

import numpy as np
from numpy.typing import NDArray

from nagle_lab.packet import kinds
from nagle_lab.packet.layers import Layer, Layers, always
from nagle_lab.packet.table import Rows

V4_MAPPED = np.uint64(0xFFFF_0000_0000)
IPV4_HEADER = np.dtype(
    [
        ("version_ihl", "u1"), ("tos", "u1"), ("length", ">u2"), ("id", ">u2"), ("fragment", ">u2"), ("ttl", "u1"),
        ("protocol", "u1"), ("checksum", ">u2"), ("src", ">u4"), ("dst", ">u4"),
    ]
)  # fmt: skip
IPV6_HEADER = np.dtype(
    [
        ("version_class_flow", ">u4"), ("length", ">u2"), ("next", "u1"), ("hop_limit", "u1"),
        ("src_hi", ">u8"), ("src_lo", ">u8"), ("dst_hi", ">u8"), ("dst_lo", ">u8"),
    ]
)  # fmt: skip

VXLAN_PORT, GENEVE_PORT = 4789, 6081


def _ipv4(layers: Layers, rows: Rows) -> None:
    rows = layers.with_bytes(rows, IPV4_HEADER.itemsize)
    at, head = layers.at[rows], layers.read(rows, IPV4_HEADER)
    header = (head["version_ihl"] & 15).astype(np.int64) * 4
    length = head["length"].astype(np.int64)
    offloaded = length == 0  # segmentation offload of more than 64 KB, captured before the card cut it up
    if offloaded.any():
        length = np.where(offloaded, layers.wire_end[rows] - at, length)
    layers.end[rows] = at + length
    layers.at[rows] = at + header  # last, for `at` may be a view of it
    layers.src_hi[rows] = layers.dst_hi[rows] = 0
    layers.src_lo[rows] = V4_MAPPED | head["src"]
    layers.dst_lo[rows] = V4_MAPPED | head["dst"]
    layers.ip_id[rows] = head["id"]
    kind = kinds.IP_PROTOCOL | head["protocol"].astype(np.int32)
    later_fragment = head["fragment"] & 0x1FFF != 0
    bad = (head["version_ihl"] >> 4 != 4) | (header < IPV4_HEADER.itemsize) | (length < header)
    if later_fragment.any() or bad.any():
        kind = np.select([bad, later_fragment], [kinds.IPV4 | kinds.MALFORMED, kinds.IPV4 | kinds.FRAGMENT], kind)
    layers.kind[rows] = kind


def _ipv6(layers: Layers, rows: Rows) -> None:
    rows = layers.with_bytes(rows, IPV6_HEADER.itemsize)
    at, head = layers.at[rows], layers.read(rows, IPV6_HEADER)
    payload = at + IPV6_HEADER.itemsize
    length = head["length"].astype(np.int64)
    layers.at[rows] = payload
    # Length 0 is a jumbogram, or segmentation offload of more than 64 KB.
    layers.end[rows] = np.where(length == 0, layers.wire_end[rows], payload + length)
    for name in ("src_hi", "src_lo", "dst_hi", "dst_lo"):
        getattr(layers, name)[rows] = head[name]
    layers.ip_id[rows] = 0
    kind = kinds.IP_PROTOCOL | head["next"].astype(np.int32)
    layers.kind[rows] = np.where(head["version_class_flow"] >> 28 == 6, kind, kinds.IPV6 | kinds.MALFORMED)


def _extension(unit: int, fixed: int) -> Layer:
    """An extension header: next protocol, then its own length in `unit` bytes not counting `fixed` bytes."""

    def layer(layers: Layers, rows: Rows) -> None:
        rows = layers.with_bytes(rows, 8)
        following, length = layers.read(rows, "u1"), layers.read(rows, "u1", 1)
        layers.kind[rows] = kinds.IP_PROTOCOL | following.astype(np.int32)
        layers.at[rows] += length.astype(np.int64) * unit + fixed

    return layer


def _fragment_header(layers: Layers, rows: Rows) -> None:
    rows = layers.with_bytes(rows, 8)
    following, later = layers.read(rows, "u1"), layers.read(rows, ">u2", 2) >> 3 != 0
    layers.kind[rows] = np.where(later, kinds.IPV6 | kinds.FRAGMENT, kinds.IP_PROTOCOL | following.astype(np.int32))
    layers.at[rows] += 8


def _gre(layers: Layers, rows: Rows) -> None:
    rows = layers.with_bytes(rows, 4)
    flags, protocol = layers.read(rows, ">u2"), layers.read(rows, ">u2", 2)
    version = flags & 7
    checksum, key, sequence = (((flags & bit) != 0) * 4 for bit in (0x8000, 0x2000, 0x1000))
    pptp = 8 + sequence + ((flags & 0x0080) != 0) * 4  # RFC 2637: the key is always there; may acknowledge
    header = np.where(version == 1, pptp, 4 + checksum + key + sequence)
    opaque = (version > 1) | ((version == 0) & (flags & 0x4000 != 0))
    layers.kind[rows] = np.where(opaque, layers.kind[rows] | kinds.OPAQUE, protocol.astype(np.int32))
    layers.at[rows] += np.where(opaque, 0, header)


def _udp(layers: Layers, rows: Rows) -> None:
    """UDP is only looked into for tunnels, which are told by their destination port."""
    rows = layers.with_bytes(rows, 8)
    port = layers.read(rows, ">u2", 2)
    layers.kind[rows] |= kinds.OPAQUE
    _geneve(layers, _among(layers, rows, port == GENEVE_PORT))
    _vxlan(layers, _among(layers, rows, port == VXLAN_PORT))


def _among(layers: Layers, rows: Rows, chosen: NDArray[np.bool_]) -> Rows:
    """Those of `rows` that are `chosen` and have a tunnel header behind UDP's."""
    some = layers.numbers(rows)[chosen]
    whole: NDArray[np.bool_] = layers.at[some] + 16 <= layers.captured_end[some]
    return some[whole]


def _vxlan(layers: Layers, rows: Rows) -> None:
    valid = layers.read(rows, "u1", 8) & 0x08 != 0
    layers.kind[rows] = np.where(valid, kinds.ETHERNET, layers.kind[rows])
    layers.at[rows] += np.where(valid, 16, 0)


def _geneve(layers: Layers, rows: Rows) -> None:
    first, protocol = layers.read(rows, "u1", 8), layers.read(rows, ">u2", 10)
    valid = first >> 6 == 0
    layers.kind[rows] = np.where(valid, protocol.astype(np.int32), layers.kind[rows])
    layers.at[rows] += np.where(valid, 16 + (first & 0x3F).astype(np.int64) * 4, 0)


IP_LAYERS: dict[int, Layer] = {
    kinds.IPV4: _ipv4,
    kinds.IPV6: _ipv6,
    kinds.HOP_BY_HOP: _extension(8, 8),
    kinds.ROUTING: _extension(8, 8),
    kinds.FRAGMENT_HEADER: _fragment_header,
    kinds.AUTHENTICATION: _extension(4, 8),
    kinds.DESTINATION: _extension(8, 8),
    kinds.MOBILITY: _extension(8, 8),
    kinds.HIP: _extension(8, 8),
    kinds.SHIM6: _extension(8, 8),
    kinds.GRE: _gre,
    kinds.IPV4_IN_IP: always(kinds.IPV4),
    kinds.IPV6_IN_IP: always(kinds.IPV6),
    kinds.UDP: _udp,
}
