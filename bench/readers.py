"""What a script without nagle-lab would do: read the packet columns with dpkt or pyshark.

    python bench/readers.py dpkt|pyshark FILE

Both collect per TCP segment: frame, time, addresses, ports, sequence and acknowledgement number, flags, window,
payload length; dpkt the options too, as nagle-lab's decoder does.
"""

import sys
from collections.abc import Iterator


def with_dpkt(path: str) -> Iterator[tuple[object, ...]]:
    """One row per segment, with dpkt."""
    import dpkt  # noqa: PLC0415 -- each reader must work without the other's library

    with open(path, "rb") as file:  # noqa: PTH123 -- dpkt wants a file object
        for frame, (ts, content) in enumerate(dpkt.pcap.Reader(file), 1):
            ip = dpkt.ethernet.Ethernet(content).data
            tcp = ip.data
            if isinstance(tcp, dpkt.tcp.TCP):
                length = ip.len - 4 * ip.hl - 4 * tcp.off
                options = dpkt.tcp.parse_opts(tcp.opts)
                ends = ip.src, ip.dst, tcp.sport, tcp.dport
                yield frame, ts, *ends, tcp.seq, tcp.ack, tcp.flags, tcp.win, length, options


def with_pyshark(path: str) -> Iterator[tuple[object, ...]]:
    """One row per segment, with pyshark's default (XML) interface."""
    import pyshark  # noqa: PLC0415

    with pyshark.FileCapture(path, keep_packets=False) as capture:
        for p in capture:
            if "tcp" in p:
                ip, tcp = p.ip, p.tcp
                yield (
                    p.number, p.sniff_timestamp, ip.src, ip.dst, tcp.srcport, tcp.dstport, tcp.seq_raw, tcp.ack_raw,
                    tcp.flags, tcp.window_size_value, tcp.len,
                )  # fmt: skip


if __name__ == "__main__":
    reader = {"dpkt": with_dpkt, "pyshark": with_pyshark}[sys.argv[1]]
    print(sum(1 for _ in reader(sys.argv[2])))
