"""Many short connections as one capture: each with a handshake, an exchange in two writes, and an end."""

import struct
from collections.abc import Iterator

import numpy as np

from support.stories import prompt, talk
from support.synthetic import packet_bytes, pcap_bytes

KEPT = 66  # bytes of a packet: Ethernet, IPv4, TCP with timestamps
AT_ONCE = 1_000  # connections
FIRST_CLIENT = 0x0A800001
PORTS, APART = 20_000, 50_021
EVERY_NS = 100_000
# The bytes that differ between the records of two connections, by offset: a record's header takes 16 bytes.
RECORD = np.dtype(
    {
        "names": ["s", "ns", "src", "dst", "sport", "dport", "seq", "ack"],
        "formats": ["<u4", "<u4", ">u4", ">u4", ">u2", ">u2", ">u4", ">u4"],
        "offsets": [0, 4, 16 + 26, 16 + 30, 16 + 34, 16 + 36, 16 + 38, 16 + 42],
        "itemsize": 16 + KEPT,
    }
)


def crowd(count: int) -> Iterator[bytes]:
    """The bytes of a pcap file (nanoseconds), in parts; clients differ in address and port, the server is one."""
    segments = talk(prompt, 1).segments
    yield pcap_bytes([])
    packets = [packet_bytes(segment) for segment in segments]
    one = b"".join(struct.pack("<IIII", 0, 0, KEPT, len(packet)) + packet[:KEPT] for packet in packets)
    after = np.array([segment.ts_ns - segments[0].ts_ns for segment in segments])
    from_client = np.array([segment.src == segments[0].src for segment in segments])
    for first in range(0, count, AT_ONCE):
        number = np.arange(first, min(first + AT_ONCE, count))[:, np.newaxis]
        part = bytearray(one * len(number))
        records = np.frombuffer(part, RECORD).reshape(len(number), -1)
        records["s"], records["ns"] = divmod(10**18 + number * EVERY_NS + after, 10**9)
        for address, port, is_client in (("src", "sport", from_client), ("dst", "dport", ~from_client)):
            records[address][:, is_client] = FIRST_CLIENT + number // PORTS
            records[port][:, is_client] = PORTS + number % PORTS
        for name in ("seq", "ack"):  # otherwise it might seem a copy, behind a NAT, of an earlier one
            records[name] = (records[name] + number * APART) % 2**32
        yield bytes(part)
