#!/usr/bin/python3
"""A link with delay: takes the place of a server, and passes every segment on, half a round trip late.

    relay SERVER PORT RTT_MS

Clients connect to this container as if it were the server. Connections are not terminated here: segments are passed
on, in order and unchanged except for their addresses, as by a router that translates them. The TCPs of both ends talk
to each other, RTT_MS apart.

It needs NET_RAW, for a packet socket, and nothing else. This kernel would answer these segments with a RST, so every
port in use is occupied by a socket that drops everything it receives. Containers pass each other super-segments whose
checksum is not filled in yet; PACKET_VNET_HDR says so, and passes that on to the kernel when the frame leaves.
"""

import argparse
import collections
import contextlib
import select
import socket
import struct
import sys
import time
from pathlib import Path
from typing import NamedTuple

INTERFACE = "eth0"
ETH_P_IP, ETHERNET_BYTES = 0x0800, 14
# The header before each frame, struct virtio_net_hdr: flags, GSO type, header length, GSO size, where the checksum
# begins that the kernel is to fill in, and its offset from there.
VNET_HEADER = struct.Struct("=BBHHHH")
NEEDS_CSUM, TCP_CHECKSUM_AT = 1, 16
IP_MINTTL, SO_TIMESTAMPNS, SOL_PACKET, PACKET_VNET_HDR = 21, 35, 263, 15  # Linux's numbers; Python has no names
STAMP_SPACE = socket.CMSG_SPACE(struct.calcsize("ll"))  # a timespec
LARGEST_FRAME = VNET_HEADER.size + ETHERNET_BYTES + 65535
RESOLVE_S = 5.0


class Host(NamedTuple):
    """Where a frame comes from or goes to: IPv4 and Ethernet address, in network order."""

    ip: bytes
    mac: bytes


def silent_socket(ip: bytes, port: int) -> socket.socket:
    """Occupy a TCP port, so that the kernel drops what arrives there and does not answer with a RST.

    It drops packets that may have passed a router (RFC 5082), which means all, because Linux starts with a TTL of 64.
    """
    occupied = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    occupied.setsockopt(socket.IPPROTO_IP, IP_MINTTL, 255)
    occupied.bind((socket.inet_ntoa(ip), port))
    occupied.listen()
    return occupied


def packet_socket() -> socket.socket:
    """Return a packet socket for the IPv4 frames that arrive on INTERFACE."""
    frames = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    frames.setsockopt(SOL_PACKET, PACKET_VNET_HDR, 1)
    frames.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    frames.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)  # or as much as is allowed
    frames.bind((INTERFACE, ETH_P_IP))
    return frames


def resolve(name: str, port: int, own_mac: bytes) -> tuple[Host, Host]:
    """Return the host of that name, and this host with the address that it sees; the kernel resolves the address
    (ARP).

    Raises OSError if the name is unknown or nobody answers.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((name, port))
        deadline = time.monotonic() + RESOLVE_S
        own, ip = probe.getsockname()[0], probe.getpeername()[0]
        while time.monotonic() < deadline:
            with contextlib.suppress(ConnectionRefusedError):  # nothing listens on that UDP port, which is fine
                probe.send(b"")
            for line in Path("/proc/net/arp").read_text().splitlines()[1:]:
                entry = line.split()
                if entry[0] == ip and int(entry[2], 16):  # flags: 0 while there is no answer
                    mac = bytes.fromhex(entry[3].replace(":", ""))
                    return Host(socket.inet_aton(ip), mac), Host(socket.inet_aton(own), own_mac)
            time.sleep(0.05)
    raise OSError(f"{name} ({ip}) does not answer ARP")


def ones_complement_sum(data: bytes) -> int:
    """Return the 16-bit one's complement sum of RFC 1071, not inverted; ``data`` has an even length."""
    total: int = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total


class Relay:
    """Both directions of the link, in one queue, since both have the same delay."""

    def __init__(self, server: str, port: int, rtt_ms: float) -> None:
        self.frames = packet_socket()
        self.server, self.own = resolve(server, port, self.frames.getsockname()[4])
        self.port = port
        self.one_way = round(rtt_ms / 2 * 1e6)  # ns
        self.clients: dict[int, tuple[Host, socket.socket]] = {}  # by their port, which they keep
        self.queue: collections.deque[tuple[int, bytes]] = collections.deque()  # when due (ns), frame
        self.listening = silent_socket(self.own.ip, port)  # last, because clients that wait for it may connect now

    def run(self) -> None:
        """Pass frames on until killed."""
        while True:
            wait = max(0, self.queue[0][0] - time.time_ns()) / 1e9 if self.queue else None
            if select.select([self.frames], [], [], wait)[0]:
                frame, arrived = self.received()
                passed_on = self.readdressed(frame)
                if passed_on:
                    self.queue.append((arrived + self.one_way, passed_on))
            while self.queue and self.queue[0][0] <= time.time_ns():
                self.frames.send(self.queue.popleft()[1])

    def received(self) -> tuple[bytearray, int]:
        """Return the next frame and when it arrived, by the kernel's stamp: waiting here is part of the delay."""
        frame, stamps, _, _ = self.frames.recvmsg(LARGEST_FRAME, STAMP_SPACE)
        seconds, nanoseconds = struct.unpack("ll", stamps[0][2])
        return bytearray(frame), seconds * 10**9 + nanoseconds

    def readdressed(self, frame: bytearray) -> bytes | None:
        """Return the frame as it is passed on to the server or to its client; None if it is for neither."""
        ip_at = VNET_HEADER.size + ETHERNET_BYTES
        tcp_at = ip_at + 4 * (frame[ip_at] & 0x0F)
        if frame[ip_at + 9] != socket.IPPROTO_TCP or frame[ip_at + 16 : ip_at + 20] != self.own.ip:
            return None
        source = Host(bytes(frame[ip_at + 12 : ip_at + 16]), bytes(frame[16:22]))
        source_port, port = struct.unpack_from("!HH", frame, tcp_at)
        target = self.target(source, source_port, port)
        if target is None:
            return None
        frame[10:24] = target.mac + self.own.mac + struct.pack("!H", ETH_P_IP)
        frame[ip_at + 12 : ip_at + 20] = self.own.ip + target.ip
        _, gso_type, header_length, gso_size, _, _ = VNET_HEADER.unpack_from(frame)
        VNET_HEADER.pack_into(
            frame, 0, NEEDS_CSUM, gso_type, header_length, gso_size, tcp_at - VNET_HEADER.size, TCP_CHECKSUM_AT
        )
        fill_checksums(frame, ip_at, tcp_at)
        return bytes(frame)

    def target(self, source: Host, source_port: int, port: int) -> Host | None:
        """Return the destination of a segment that arrived here."""
        if source.ip == self.server.ip:
            return self.clients[port][0] if port in self.clients else None
        if port != self.port:
            return None
        if source_port not in self.clients:
            self.clients[source_port] = source, silent_socket(self.own.ip, source_port)
        return self.server


def fill_checksums(frame: bytearray, ip_at: int, tcp_at: int) -> None:
    """Write the IPv4 checksum, and for TCP the sum of the pseudo-header (RFC 9293 §3.1): the kernel adds the rest."""
    struct.pack_into("!H", frame, ip_at + 10, 0)
    struct.pack_into("!H", frame, ip_at + 10, 0xFFFF ^ ones_complement_sum(bytes(frame[ip_at:tcp_at])))
    tcp_bytes = struct.unpack_from("!H", frame, ip_at + 2)[0] - (tcp_at - ip_at)
    pseudo_header = bytes(frame[ip_at + 12 : ip_at + 20]) + struct.pack("!HH", socket.IPPROTO_TCP, tcp_bytes)
    struct.pack_into("!H", frame, tcp_at + TCP_CHECKSUM_AT, ones_complement_sum(pseudo_header))


def main() -> None:
    """Become the link that the command line describes."""
    parser = argparse.ArgumentParser(description="a link with delay in front of a server")
    parser.add_argument("server")
    parser.add_argument("port", type=int)
    parser.add_argument("rtt_ms", type=float)
    asked = parser.parse_args()
    try:
        Relay(asked.server, asked.port, asked.rtt_ms).run()
    except OSError as error:
        sys.exit(f"relay: {error}")


if __name__ == "__main__":
    main()
