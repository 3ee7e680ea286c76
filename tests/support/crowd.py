"""Many short connections as one capture: each with a handshake, an exchange in two writes, and an end."""

import struct
from collections.abc import Iterator

from support.stories import prompt, talk
from support.synthetic import packet_bytes, pcap_bytes

KEPT = 66  # bytes of a packet: Ethernet, IPv4, TCP with timestamps or without
SRC, SPORT, DST, DPORT = (slice(26, 30), slice(34, 36), slice(30, 34), slice(36, 38))
SEQ, ACK = slice(38, 42), slice(42, 46)
PORTS, APART = 20_000, 50_021
EVERY_NS = 100_000


def crowd(count: int) -> Iterator[bytes]:
    """The bytes of a pcap file (nanoseconds), in parts; clients differ in address and port, the server is one."""
    segments = talk(prompt, 1).segments
    yield pcap_bytes([])
    packets = [(s.ts_ns - segments[0].ts_ns, packet_bytes(s), s.src == segments[0].src) for s in segments]
    for number in range(count):
        address = struct.pack(">I", 0x0A800001 + number // PORTS)
        port = struct.pack(">H", PORTS + number % PORTS)
        records = []
        for after, whole, from_client in packets:
            packet = bytearray(whole[:KEPT])
            packet[SRC if from_client else DST], packet[SPORT if from_client else DPORT] = address, port
            for at in SEQ, ACK:  # with the numbers of one a few ms before it would be its copy behind a NAT
                (old,) = struct.unpack(">I", packet[at])
                packet[at] = struct.pack(">I", (old + number * APART) % 2**32)
            ts = 10**18 + number * EVERY_NS + after
            records.append(struct.pack("<IIII", ts // 10**9, ts % 10**9, len(packet), len(whole)) + packet)
        yield b"".join(records)
