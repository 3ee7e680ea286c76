"""Records → packet table, no packet by itself: every step is one operation over a batch."""

import numpy as np

from nagle_lab.capture import Records
from nagle_lab.packet import kinds
from nagle_lab.packet.ip import IP_LAYERS
from nagle_lab.packet.layers import Layers, peel
from nagle_lab.packet.link import LINK_LAYERS
from nagle_lab.packet.table import Packets, Tally
from nagle_lab.packet.tcp import segments
from nagle_lab.tcp import loops

LAYERS = LINK_LAYERS | IP_LAYERS


def decode(records: Records, tally: Tally) -> Packets:
    """The TCP segments of a batch whose header is readable; `tally` counts all other packets by what they are.

    Goes through VLAN tags, PPPoE, MPLS, IP in IP, GRE, VXLAN and Geneve, and IPv6 extension headers.
    """
    table = Packets.empty(len(records))
    usual, unusual = loops.usual_segments(records, table)
    if not len(usual):
        return _decode(records, tally)
    packets = table.take(slice(len(usual)))
    if not len(unusual):
        return packets
    both = Packets.join([packets, _decode(records.take(unusual), tally)])
    return both.take(np.argsort(both.frame))


def _decode(records: Records, tally: Tally) -> Packets:
    """Any packets, layer by layer."""
    layers = Layers(records)
    peel(layers, LAYERS)
    packets = segments(layers)
    if len(packets) < len(records):
        ended, counts = np.unique(layers.kind[layers.kind != kinds.TCP], return_counts=True)
        for kind, count in zip(ended.tolist(), counts.tolist(), strict=True):
            tally.add(kinds.name_of(kind), count)
    return packets
