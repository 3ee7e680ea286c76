"""Frames of a wireless card in monitor mode: radiotap and PPI, IEEE 802.11, and the SNAP header before IP.

Sources: radiotap.org; the PPI specification (CACE); IEEE 802.11-2020 §9.2 and §9.3.2; IEEE 802.2; RFC 1042 (SNAP).
"""

from struct import Struct

from nagle_lab.packet import kinds
from nagle_lab.packet.headers import Layer, Packet

RADIOTAP_BEGIN, PPI_BEGIN = Struct("<xxH").unpack_from, Struct("<xxHI").unpack_from  # lengths, PPI's link type
DATA_TYPE, TYPE, NO_DATA, QOS = 0x08, 0x0C, 0x40, 0x80  # first byte of Frame Control
BOTH_SYSTEMS, PROTECTED, HT_CONTROL = 0x03, 0x40, 0x80  # second byte: to and from the distribution system, …
HEADER, FOURTH_ADDRESS, QOS_CONTROL, HT_CONTROL_BYTES = 24, 6, 2, 4
SEQUENCE_CONTROL, FRAGMENT_NUMBER, AGGREGATED = 22, 0x0F, 0x80  # its lower byte; A-MSDU in that of QoS Control
SNAP, SNAP_HEADER = 0xAAAA, 8


def _radiotap(packet: Packet) -> None:
    """How long this header is; a frame of 802.11 follows."""
    if packet.has(8):
        (length,) = RADIOTAP_BEGIN(packet.buffer, packet.at)
        packet.kind = kinds.WLAN
        packet.at += length


def _ppi(packet: Packet) -> None:
    """How long this header is, and the link type of what follows."""
    if packet.has(8):
        length, link_type = PPI_BEGIN(packet.buffer, packet.at)
        packet.kind = kinds.LINK_TYPE | min(link_type, 0xFFFF)
        packet.at += length


def _frame(packet: Packet) -> None:
    """A data frame of 802.11; encrypted ones are not decoded, nor several packets aggregated in one."""
    if not packet.has(2):
        return
    first, flags = packet.u8(), packet.u8(1)
    if first & TYPE != DATA_TYPE or first & NO_DATA:
        packet.kind |= kinds.OPAQUE
        return
    header = HEADER + (flags & BOTH_SYSTEMS == BOTH_SYSTEMS) * FOURTH_ADDRESS
    qos = header
    if first & QOS:
        header += QOS_CONTROL + (flags & HT_CONTROL != 0) * HT_CONTROL_BYTES
    if not packet.has(header):
        return
    if flags & PROTECTED:
        packet.kind |= kinds.ENCRYPTED
    elif packet.u8(SEQUENCE_CONTROL) & FRAGMENT_NUMBER:
        packet.kind |= kinds.FRAGMENT
    elif first & QOS and packet.u8(qos) & AGGREGATED:
        packet.kind |= kinds.OPAQUE
    else:
        packet.kind = kinds.LLC
        packet.at += header
        _skip_padding(packet, header)


def _skip_padding(packet: Packet, header: int) -> None:
    """Some cards pad the header to a multiple of 4 bytes: SNAP then begins there."""
    padding = -header % 4
    if padding and packet.at + padding + 2 <= packet.captured_end and packet.u16() != SNAP == packet.u16(padding):
        packet.at += padding


def _llc(packet: Packet) -> None:
    """802.2: with a SNAP header that has an EtherType, whose organisation is 0."""
    if not packet.has(SNAP_HEADER):
        return
    if packet.u16() == SNAP and packet.u16(2) == 0x0300 and packet.u16(4) == 0:
        packet.kind = packet.u16(6)
        packet.at += SNAP_HEADER
    else:
        packet.kind |= kinds.OPAQUE


WLAN_LAYERS: dict[int, Layer] = {
    kinds.RADIOTAP: _radiotap,
    kinds.PPI: _ppi,
    kinds.WLAN: _frame,
    kinds.LLC: _llc,
}
