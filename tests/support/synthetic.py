"""Captures with known truth: conversations written segment by segment, and their bytes in any format.

    talk = Conversation()
    talk.handshake()
    talk.client_sends(100)
    header = talk.server_sends(238)
    talk.client_acks(after_ns=40 * MS)          # the late pure ACK
    talk.server_sends(615, after_ns=10 * US)    # what Nagle held
    talk.close()
    path.write_bytes(pcap_bytes(talk.segments))

Times are nanoseconds. An end's `after_ns` counts from the last thing that end did or saw, so with
`rtt_ns` the same conversation can be captured anywhere: `talk.seen_at("client")`.
"""

import socket
import struct
import zlib
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

US = 1_000
MS = 1_000_000
SECOND = 1_000_000_000

ETHERNET, NULL, RAW, LOOP, SLL, SLL2 = 1, 0, 101, 108, 113, 276

FLAG_BITS = {"F": 0x001, "S": 0x002, "R": 0x004, "P": 0x008, "A": 0x010, "U": 0x020, "E": 0x040, "C": 0x080}
ETHERTYPE = {4: 0x0800, 6: 0x86DD}
FAMILY = {4: 2, 6: 30}  # of NULL and LOOP; 30 is Darwin's AF_INET6


@dataclass(frozen=True)
class Segment:
    """One TCP segment as it passes the capture point. None means the option is absent."""

    ts_ns: int
    src: str
    sport: int
    dst: str
    dport: int
    seq: int
    ack: int = 0
    flags: str = "A"
    length: int = 0  # payload bytes; beyond what IP can say (65535) the IP length is 0, as with TSO
    window: int = 502  # unscaled, as on the wire
    mss: int | None = None
    wscale: int | None = None
    scale_first: bool = False  # before SACK permitted and timestamps, as in a BSD's SYN
    sack_permitted: bool = False
    timestamps: tuple[int, int] | None = None
    sack: tuple[tuple[int, int], ...] = ()
    vlan: tuple[int, ...] = ()  # VLAN ids, outermost first (two of them: QinQ)
    interface: int = 0  # of a pcapng file
    ttl: int = 64
    ip_id: int = 0  # of IPv4


@dataclass(frozen=True)
class Frame:
    """Any other packet, given by its bytes from the link layer on."""

    ts_ns: int
    data: bytes
    original_length: int | None = None
    interface: int = 0


Packet = Segment | Frame


# ------------------------------------------------------------------------------------- conversations


@dataclass
class _End:
    """What one end of a conversation has sent and received so far."""

    ip: str
    port: int
    next_seq: int
    now_ns: int
    can_ack: int = 0
    last_data: Segment | None = None
    latest_tsval: int = 0  # the timestamp to echo, from what has arrived
    last_arrival_ns: int = 0  # at the other end
    # On the way: (when, ack number it allows, its timestamp)
    arrivals: deque[tuple[int, int, int]] = field(default_factory=deque)

    def ack(self, now_ns: int) -> int:
        while self.arrivals and self.arrivals[0][0] <= now_ns:
            _, ack, self.latest_tsval = self.arrivals.popleft()
            self.can_ack = max(self.can_ack, ack)
        return self.can_ack


HEADERS = 66  # bytes: Ethernet, IPv4, and TCP with timestamps


@dataclass(frozen=True)
class _Flight:
    segment: Segment  # ts_ns is when its sender sent it
    by_client: bool
    lost: bool
    takes_ns: int  # to its receiver


def _isn(end: tuple[str, int], peer: tuple[str, int]) -> int:
    """The initial sequence number of an end, different for each connection."""
    return zlib.crc32(repr((end, peer)).encode()) >> 1


class Conversation:
    """A TCP connection told as a story; sequence and acknowledgement numbers are kept consistent."""

    def __init__(
        self,
        client: tuple[str, int] = ("10.0.0.1", 40000),
        server: tuple[str, int] = ("10.0.0.2", 80),
        *,
        mss: int = 1460,
        t0_ns: int = 1_700_000_000 * SECOND,
        rtt_ns: int = 0,
        timestamps: bool = True,
        client_isn: int | None = None,
        server_isn: int | None = None,
        vlan: tuple[int, ...] = (),
        server_is_bsd: bool = False,
        syn_ttl: int = 64,
        ns_per_byte: int = 0,
    ) -> None:
        self.mss = mss
        self.full_segment = mss - 12 if timestamps else mss  # the payload of one
        self.t0_ns = t0_ns
        self.one_way_ns = rtt_ns // 2
        self.ns_per_byte = ns_per_byte  # added by a slow link, for headers, too; with a queue before it
        self.timestamps = timestamps
        self.vlan = vlan
        self.server_is_bsd = server_is_bsd
        self.syn_ttl = syn_ttl
        self.client = _End(*client, next_seq=_isn(client, server) if client_isn is None else client_isn, now_ns=t0_ns)
        self.server = _End(*server, next_seq=_isn(server, client) if server_isn is None else server_isn, now_ns=t0_ns)
        self._flights: list[_Flight] = []

    # -- the story -------------------------------------------------------------------------------

    def handshake(self, after_ns: int = 20 * US, wscale: int | None = 7) -> None:
        """SYN at t0, SYN-ACK, ACK."""
        options: dict[str, Any] = {"mss": self.mss, "wscale": wscale, "sack_permitted": True, "window": 64240}
        options["ttl"] = self.syn_ttl
        self._send(self.client, "S", 0, 0, **options)
        self._send(self.server, "SA", 0, after_ns, scale_first=self.server_is_bsd, **options)
        self._send(self.client, "A", 0, after_ns)

    def client_sends(self, length: int, after_ns: int = 20 * US, flags: str = "PA", **fields: Any) -> Segment:
        """One segment of `length` bytes. `fields` replace what would be on the wire (`window=0`, `seq=…`);
        `at_ns` gives an absolute time instead of `after_ns`; a segment with `lost=True` never arrives
        (acknowledgements ignore the hole: give `ack=…` for duplicate ACKs).
        """
        return self._send(self.client, flags, length, after_ns, **fields)

    def server_sends(self, length: int, after_ns: int = 20 * US, flags: str = "PA", **fields: Any) -> Segment:
        """As `client_sends`."""
        return self._send(self.server, flags, length, after_ns, **fields)

    def client_writes(self, length: int, after_ns: int = 20 * US) -> list[Segment]:
        """One write: full segments 1 µs apart, then the rest with PSH."""
        return self._write(self.client, length, after_ns)

    def server_writes(self, length: int, after_ns: int = 20 * US) -> list[Segment]:
        """As `client_writes`."""
        return self._write(self.server, length, after_ns)

    def client_acks(self, after_ns: int = 20 * US, **fields: Any) -> Segment:
        """A pure ACK of all that has arrived."""
        return self._send(self.client, "A", 0, after_ns, **fields)

    def server_acks(self, after_ns: int = 20 * US, **fields: Any) -> Segment:
        """As `client_acks`."""
        return self._send(self.server, "A", 0, after_ns, **fields)

    def client_retransmits(self, after_ns: int = 200 * MS) -> Segment:
        """The client's last data once more."""
        return self._retransmit(self.client, after_ns)

    def server_retransmits(self, after_ns: int = 200 * MS) -> Segment:
        """The server's last data once more."""
        return self._retransmit(self.server, after_ns)

    def close(self, after_ns: int = 20 * US) -> None:
        """FIN from the client, FIN from the server, last ACK."""
        self._send(self.client, "FA", 0, after_ns)
        self._send(self.server, "FA", 0, after_ns)
        self._send(self.client, "A", 0, after_ns)

    def pause(self, duration_ns: int) -> None:
        """Both ends do nothing for a while."""
        self.client.now_ns += duration_ns
        self.server.now_ns += duration_ns

    # -- the captures ----------------------------------------------------------------------------

    @property
    def segments(self) -> list[Segment]:
        """As captured at the server (the same everywhere when rtt_ns is 0)."""
        return self.seen_at("server")

    def seen_at(self, position: str | float) -> list[Segment]:
        """As captured at "client", "middle", "server", or a share of the path from the client (0.0–1.0).

        A lost segment is lost just before its receiver, so every other point sees it.
        """
        names = {"client": 0.0, "middle": 0.5, "server": 1.0}
        share = names[position] if isinstance(position, str) else position
        seen = []
        for flight in self._flights:
            travelled = share if flight.by_client else 1.0 - share
            if not (flight.lost and travelled == 1.0):
                delay = int(travelled * flight.takes_ns)
                seen.append(replace(flight.segment, ts_ns=flight.segment.ts_ns + delay) if delay else flight.segment)
        return sorted(seen, key=lambda segment: segment.ts_ns)

    # -- how -------------------------------------------------------------------------------------

    def _send(
        self,
        end: _End,
        flags: str,
        length: int,
        after_ns: int,
        *,
        at_ns: int | None = None,
        lost: bool = False,
        **fields: Any,
    ) -> Segment:
        other = self.server if end is self.client else self.client
        now = end.now_ns + after_ns if at_ns is None else at_ns
        ack = end.ack(now) if "A" in flags else 0
        millis = (now - self.t0_ns) // MS & 0xFFFFFFFF
        timestamps = (millis + 1, end.latest_tsval if "A" in flags else 0) if self.timestamps else None
        segment = Segment(
            now, end.ip, end.port, other.ip, other.port, end.next_seq & 0xFFFFFFFF, ack & 0xFFFFFFFF,
            flags, length, timestamps=timestamps, vlan=self.vlan,
        )  # fmt: skip
        if fields:
            segment = replace(segment, **fields)
        if "seq" not in fields:
            end.next_seq += length + ("S" in flags) + ("F" in flags)
        if length:
            end.last_data = segment
        end.now_ns = now
        arrival = now + self.one_way_ns
        if self.ns_per_byte:
            arrival = max(arrival, end.last_arrival_ns) + (length + HEADERS) * self.ns_per_byte
            end.last_arrival_ns = arrival
        if not lost:
            other.arrivals.append((arrival, end.next_seq, millis + 1))
            other.now_ns = max(other.now_ns, arrival)
        self._flights.append(_Flight(segment, end is self.client, lost, arrival - now))
        return segment

    def _write(self, end: _End, length: int, after_ns: int) -> list[Segment]:
        sent = []
        while length > 0:
            size = min(length, self.full_segment)
            length -= size
            sent.append(self._send(end, "A" if length else "PA", size, after_ns))
            after_ns = US
        return sent

    def _retransmit(self, end: _End, after_ns: int) -> Segment:
        assert end.last_data is not None, "nothing to retransmit"
        return self._send(end, end.last_data.flags, end.last_data.length, after_ns, seq=end.last_data.seq)


def acked_late(**settings: Any) -> Conversation:
    """A conversation as far as the late ACK of the header."""
    talk = Conversation(**settings)
    talk.handshake()
    talk.client_sends(100)
    talk.server_sends(238)
    talk.client_acks(after_ns=40 * MS)
    return talk


def merge(*captures: Iterable[Packet]) -> list[Packet]:
    """Several conversations in one capture, in time order."""
    return sorted((packet for capture in captures for packet in capture), key=lambda packet: packet.ts_ns)


def redirected(segments: Iterable[Segment], asked: tuple[str, int] = ("10.96.0.10", 80)) -> list[Segment]:
    """A connection captured on the client's host, which redirects what its own programs send (REDIRECT in OUTPUT).

    The first segment is the client's. The server's segments carry the address that the client asked for.
    """
    first, *others = segments
    client, (address, port) = (first.src, first.sport), asked
    return [first, *(s if (s.src, s.sport) == client else replace(s, src=address, sport=port) for s in others)]


# --------------------------------------------------------------------------------------- one packet


def packet_bytes(packet: Packet, link_type: int = ETHERNET, byte_order: str = "<") -> bytes:
    """From the link layer to the end of the payload. `byte_order` is the capturing host's (NULL only)."""
    if isinstance(packet, Frame):
        return packet.data
    datagram = ip_bytes(packet)
    version = datagram[0] >> 4
    tags, ethertype = b"", ETHERTYPE[version]
    for depth, vlan in enumerate(reversed(packet.vlan)):
        tags = struct.pack(">HH", vlan, ethertype) + tags
        ethertype = 0x88A8 if depth == 1 else 0x8100
    if link_type == ETHERNET:
        return b"\x02\0\0\0\0\x02\x02\0\0\0\0\x01" + struct.pack(">H", ethertype) + tags + datagram
    if link_type == SLL:
        return struct.pack(">HHH8sH", 0, 1, 6, b"\x02\0\0\0\0\x01\0\0", ethertype) + tags + datagram
    if link_type == SLL2:
        return struct.pack(">HHIHBB8s", ethertype, 0, 2, 1, 0, 6, b"\x02\0\0\0\0\x01\0\0") + tags + datagram
    if link_type in (NULL, LOOP):
        return struct.pack((byte_order if link_type == NULL else ">") + "I", FAMILY[version]) + datagram
    return datagram


def ip_bytes(segment: Segment) -> bytes:
    """The IPv4 or IPv6 datagram, by the form of the addresses."""
    tcp = tcp_bytes(segment)
    if ":" in segment.src:
        length = len(tcp) if len(tcp) <= 0xFFFF else 0
        addresses = b"".join(socket.inet_pton(socket.AF_INET6, address) for address in (segment.src, segment.dst))
        return struct.pack(">IHBB", 6 << 28, length, 6, segment.ttl) + addresses + tcp
    length = 20 + len(tcp) if 20 + len(tcp) <= 0xFFFF else 0
    header = struct.pack(
        ">BBHHHBBH4s4s", 0x45, 0, length, segment.ip_id, 0x4000, segment.ttl, 6, 0,
        socket.inet_aton(segment.src), socket.inet_aton(segment.dst),
    )  # fmt: skip
    return header[:10] + struct.pack(">H", checksum(header)) + header[12:] + tcp


def tcp_bytes(segment: Segment) -> bytes:
    """Header, options padded as Linux pads them, payload of zeros. The checksum is left to the card."""
    options = b""
    if segment.mss is not None:
        options += struct.pack(">BBH", 2, 4, segment.mss)
    scale = b"" if segment.wscale is None else struct.pack(">BBBB", 1, 3, 3, segment.wscale)
    if segment.scale_first:
        options += scale
    if segment.sack_permitted:
        options += b"\x04\x02" if segment.timestamps else b"\x01\x01\x04\x02"
    if segment.timestamps is not None:
        aligned = len(options) % 4 == 2
        options += (b"" if aligned else b"\x01\x01") + struct.pack(">BBII", 8, 10, *segment.timestamps)
    if not segment.scale_first:
        options += scale
    if segment.sack:
        options += struct.pack(">BBBB", 1, 1, 5, 2 + 8 * len(segment.sack))
        options += b"".join(struct.pack(">II", *block) for block in segment.sack)
    offset_and_flags = (20 + len(options)) // 4 << 12 | sum(FLAG_BITS[flag] for flag in segment.flags)
    header = struct.pack(
        ">HHIIHHHH",
        segment.sport,
        segment.dport,
        segment.seq,
        segment.ack,
        offset_and_flags,
        segment.window,
        0,
        0,
    )
    return header + options + bytes(segment.length)


def checksum(header: bytes) -> int:
    """Of an IPv4 header whose own field is zero."""
    total: int = sum(struct.unpack(f">{len(header) // 2}H", header))
    total = (total & 0xFFFF) + (total >> 16)
    return ~(total + (total >> 16)) & 0xFFFF


# ---------------------------------------------------------------------------------------- one file


def pcap_bytes(
    packets: Iterable[Packet],
    link_type: int = ETHERNET,
    *,
    nanosecond: bool = True,
    byte_order: str = "<",
    snaplen: int = 128,
    modified: bool = False,
) -> bytes:
    """A pcap file. Each packet keeps its first `snaplen` bytes. `modified`: Kuznetzov's longer records."""
    magic = 0xA1B2CD34 if modified else 0xA1B23C4D if nanosecond else 0xA1B2C3D4
    unit = 1 if nanosecond and not modified else 1000
    parts = [struct.pack(byte_order + "IHHiIII", magic, 2, 4, 0, 0, snaplen, link_type)]
    for packet in packets:
        data, original = _captured(packet, link_type, byte_order, snaplen)
        seconds, rest = divmod(packet.ts_ns, SECOND)
        parts.append(struct.pack(byte_order + "IIII", seconds, rest // unit, len(data), original))
        parts.append(struct.pack(byte_order + "IHBB", 2, 0, 0, 0) if modified else b"")
        parts.append(data)
    return b"".join(parts)


@dataclass(frozen=True)
class Interface:
    """An interface of a pcapng file. `resolution` is if_tsresol's byte (None: absent, so 10⁻⁶ s);
    `offset_s` is if_tsoffset.
    """

    link_type: int = ETHERNET
    resolution: int | None = 9
    offset_s: int | None = None


def pcapng_bytes(
    packets: Iterable[Packet],
    link_type: int = ETHERNET,
    *,
    byte_order: str = "<",
    snaplen: int = 128,
    interfaces: Sequence[Interface] | None = None,
    block: str = "EPB",
) -> bytes:
    """One pcapng section (sections may simply be joined). A packet's `interface` indexes `interfaces`.

    `block` is what packets are stored in: "EPB", "OPB" (obsolete packet block), "SPB" (no time, interface 0).
    """
    interfaces = interfaces or [Interface(link_type)]
    parts = [pcapng_block(0x0A0D0D0A, struct.pack(byte_order + "IHHq", 0x1A2B3C4D, 1, 0, -1), byte_order)]
    for interface in interfaces:
        options = b""
        if interface.resolution is not None:
            options += struct.pack(byte_order + "HHB3x", 9, 1, interface.resolution)
        if interface.offset_s is not None:
            options += struct.pack(byte_order + "HHq", 14, 8, interface.offset_s)
        if options:
            options += bytes(4)
        body = struct.pack(byte_order + "HHI", interface.link_type, 0, snaplen) + options
        parts.append(pcapng_block(1, body, byte_order))
    parts += [_packet_block(packet, interfaces[packet.interface], byte_order, snaplen, block) for packet in packets]
    return b"".join(parts)


def pcapng_block(block_type: int, body: bytes, byte_order: str = "<") -> bytes:
    """Any block: type, length, body padded to 32 bits, length."""
    body += bytes(-len(body) % 4)
    length = len(body) + 12
    return struct.pack(byte_order + "II", block_type, length) + body + struct.pack(byte_order + "I", length)


def _packet_block(packet: Packet, interface: Interface, byte_order: str, snaplen: int, block: str) -> bytes:
    data, original = _captured(packet, interface.link_type, byte_order, snaplen)
    code = 6 if interface.resolution is None else interface.resolution
    per_second = 2 ** (code & 0x7F) if code & 0x80 else 10**code
    stamp = (packet.ts_ns - (interface.offset_s or 0) * SECOND) * per_second // SECOND
    high, low = stamp >> 32, stamp & 0xFFFFFFFF
    if block == "SPB":
        return pcapng_block(3, struct.pack(byte_order + "I", original) + data, byte_order)
    if block == "OPB":
        head = struct.pack(byte_order + "HHIIII", packet.interface, 0xFFFF, high, low, len(data), original)
        return pcapng_block(2, head + data, byte_order)
    head = struct.pack(byte_order + "IIIII", packet.interface, high, low, len(data), original)
    return pcapng_block(6, head + data, byte_order)


def _captured(packet: Packet, link_type: int, byte_order: str, snaplen: int) -> tuple[bytes, int]:
    data = packet_bytes(packet, link_type, byte_order)
    original = len(data)
    if isinstance(packet, Frame) and packet.original_length is not None:
        original = packet.original_length
    return data[:snaplen], original
