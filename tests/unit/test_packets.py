"""Segments: every field, through every layer; and the count of all that is none."""

import itertools
import struct
from collections import Counter

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import astuple, replace

from nagle_lab.evidence.excerpt import segments as segments_of
from nagle_lab.packet.kinds import REASON, kind_name
from nagle_lab.packet.segment import LAYERS, Kernel
from nagle_lab.packet.segment import Segment as Decoded
from nagle_lab.tcp import compiled
from nagle_lab.tcp.layout import LAYOUTS
from support.engines import ENGINES, followed
from support.files import rewrite
from support.rows import segment_row, truth
from support.synthetic import ETHERNET, NULL, RAW, SLL, Frame, Segment, acked_late, merge, pcap_bytes, tcp_bytes
from support.tunnels import EXTENSIONS, LINKS, TUNNELS, ethernet, extended, ipv4, ipv6, tunnelled, udp

ONE = Segment(10**18, "10.0.0.1", 40000, "10.0.0.2", 80, 1, 2, "PA", 100)


@pytest.fixture(scope="module", params=ENGINES)
def decoded(request, tmp_path_factory):
    """Packets → (segments, how many others of each name), through a pcap file; as each engine decodes them."""
    path = tmp_path_factory.mktemp("packets") / "capture"

    def read(packets, link_type=ETHERNET, snaplen=256) -> tuple[list[Decoded], dict[str, int]]:
        content = pcap_bytes(packets, link_type, snaplen=snaplen)
        rewrite(path, content)
        found = list(segments_of(path))
        said = followed(ENGINES[request.param], content)
        assert said["counts"][2] == len(found)
        assert len(found) + sum(said["not decoded"].values()) == said["counts"][0]
        others: dict[str, int] = Counter()
        for kind, count in said["not decoded"].items():
            others[kind_name(kind)] += count
        return found, dict(others)

    with pytest.MonkeyPatch.context() as patched:
        if request.param == "plain":
            patched.setattr(compiled, "LIBRARY", None)
        yield read


def rows_of(segments: list[Decoded]):
    return [segment_row(segment) for segment in segments]


def talk(client="10.0.0.1", server="10.0.0.2") -> list[Segment]:
    t = acked_late(client=(client, 40000), server=(server, 80))
    t.close()
    return t.segments


BOTH = merge(talk(), talk("fd00::1", "fd00::2"))


# -------------------------------------------------------------------------------------------- fields

ports, u32 = st.integers(0, 0xFFFF), st.integers(0, 0xFFFF_FFFF)
v4, v6 = st.ip_addresses(v=4).map(str), st.ip_addresses(v=6).filter(lambda a: a.ipv4_mapped is None).map(str)
optional = st.none()


@st.composite
def segments(draw):
    addresses = draw(st.sampled_from([v4, v6]))
    return Segment(
        ts_ns=draw(st.integers(0, 2**32 * 10**9 - 1)), src=draw(addresses), dst=draw(addresses),
        sport=draw(ports), dport=draw(ports), seq=draw(u32), ack=draw(u32),
        flags="".join(draw(st.sets(st.sampled_from("FSRPAUEC")))), length=draw(st.integers(0, 65_000)),
        window=draw(ports), mss=draw(optional | st.integers(1, 65_535)), wscale=draw(optional | st.integers(0, 127)),
        sack_permitted=draw(st.booleans()), timestamps=draw(optional | st.tuples(u32, u32)),
        sack=tuple(draw(st.lists(st.tuples(u32, u32), max_size=1))),
    )  # fmt: skip


@given(packets=st.lists(segments(), min_size=1, max_size=8), link_type=st.sampled_from([ETHERNET, SLL, RAW, NULL]))
def test_every_field(packets, link_type, decoded):
    got, others = decoded(packets, link_type, snaplen=128)
    assert (rows_of(got), others) == (truth(packets), {})
    assert [segment.timestamps for segment in got] == [packet.timestamps is not None for packet in packets]


def test_a_segment_has_the_fields_of_engine_h_and_fits_into_them(decoded):
    layout = LAYOUTS["segment"]
    assert Decoded.__struct_fields__ == tuple(name for name, _, _ in layout.fields)
    segments, others = decoded([Frame(1, ethernet(0x0806, bytes(28)))])
    assert (segments, others) == ([], {"ARP": 1})
    most = 2**32 - 1
    widest = Segment(
        2**32 * 10**9 - 1, "ff::ff", 0xFFFF, "ff::fe", 0xFFFF, most, most, "FSRPAUEC", 2**20 - 99, 0xFFFF, mss=0xFFFF,
        wscale=255, timestamps=(most, most), sack=((1, 2),),
    )  # fmt: skip
    segments, _ = decoded([*BOTH, widest])
    assert len(segments) == len(BOTH) + 1
    for segment in segments:
        values = astuple(segment)
        assert layout.struct.unpack(layout.struct.pack(*values)) == values


def test_the_whole_packet_on_the_wire_is_counted(decoded):
    """However little of it was captured, link layer included."""
    for snaplen in (66, 256):
        (segment,), _ = decoded([ONE], snaplen=snaplen)
        assert (segment.wire, segment.length) == (14 + 20 + 20 + 100, 100)
    (segment,), _ = decoded(tunnelled([ONE], TUNNELS["VXLAN"]))
    assert (segment.wire, segment.length) == (14 + 20 + 8 + 8 + 14 + 20 + 20 + 100, 100)


def test_flags_keep_twelve_bits_and_ip_id_is_kept(decoded):
    tcp = bytearray(tcp_bytes(ONE))
    tcp[12] |= 0x0F
    (segment,), _ = decoded([Frame(1, ipv4(6, bytes(tcp)))])
    assert (segment.flags, segment.ip_id) == (0xF18, 77)


TS, NOP, END = "080a0000000100000000", "01", "00"
MSS, SACK, SCALE = "020405b4", "0402", "030307"
SYNS = {  # as captured, by TTL, window and options
    "Linux 6": (Kernel.LINUX, 64, 64240, MSS + SACK + TS + NOP + SCALE),
    "Linux 6, 12 routers away, the MSS made less": (Kernel.LINUX, 52, 64240, "0204058c" + SACK + TS + NOP + SCALE),
    "Linux 6, which answers one with timestamps": (Kernel.LINUX, 64, 65160, MSS + SACK + TS + NOP + SCALE),
    "Linux 4, which answers Windows": (Kernel.LINUX, 64, 29200, MSS + NOP * 2 + SACK + NOP + SCALE),
    "Windows 10": (Kernel.WINDOWS, 128, 64240, MSS + NOP + SCALE + NOP * 2 + SACK),
    "macOS": (Kernel.BSD, 64, 65535, MSS + NOP + SCALE + NOP * 2 + TS + SACK + END * 2),
    "FreeBSD": (Kernel.BSD, 64, 65535, MSS + NOP + SCALE + SACK + TS),
    "gVisor": (Kernel.UNKNOWN, 64, 29184, MSS + SACK + TS + NOP + SCALE),
    "lwIP": (Kernel.UNKNOWN, 255, 5840, MSS + NOP + SCALE),
    "smoltcp": (Kernel.UNKNOWN, 64, 65535, MSS + SCALE + SACK + END * 3),
    "a scanner": (Kernel.UNKNOWN, 240, 1024, MSS),
    "Windows that the path has 70 routers for": (Kernel.UNKNOWN, 58, 64240, MSS + NOP + SCALE + NOP * 2 + SACK),
    "an MSS of nothing": (Kernel.UNKNOWN, 64, 64240, "0204000c" + SACK + TS + NOP + SCALE + "0303"),
}


@pytest.mark.parametrize("name", SYNS)
def test_a_syn_looks_like_its_kernel_or_like_none(name, decoded):
    kernel, ttl, window, options = SYNS[name]
    content = bytes.fromhex(options)
    content += bytes(-len(content) % 4)
    tcp = struct.pack(">HHIIBBHHH", 40000, 80, 1, 0, 80 + len(content) * 4, 2, window, 0, 0) + content
    v4 = bytearray(ipv4(6, tcp))
    v4[22] = ttl
    v6 = bytearray(ipv6(6, tcp))
    v6[21] = ttl
    data = bytearray(v4)
    data[47] = 0x10
    segments, _ = decoded([Frame(1, bytes(v4)), Frame(2, bytes(v6)), Frame(3, bytes(data))])
    assert [segment.kernel for segment in segments] == [kernel, kernel, Kernel.UNKNOWN]
    cut, _ = decoded([Frame(1, bytes(v4))], snaplen=14 + 20 + 20 + len(content) - 1)
    assert cut[0].kernel == Kernel.UNKNOWN


def test_the_frame_may_be_longer_than_the_packet(decoded):
    """Ethernet pads short frames: the payload's length comes from IP."""
    packets, _ = decoded([Frame(1, ipv4(6, tcp_bytes(ONE)[:20]) + b"\0" * 6)])
    assert [s.length for s in packets] == [0]


def test_segments_of_more_than_64_kb(decoded):
    """Captured before the card cuts them up; the length fields say 0. IPv6 may have a jumbo payload option."""
    large = [
        Segment(1, "10.0.0.1", 1, "10.0.0.2", 2, 3, length=150_000, timestamps=(1, 2)),
        Segment(2, "fd00::1", 1, "fd00::2", 2, 3, length=150_000),
    ]
    hop_by_hop = struct.pack(">BBBBI", 6, 0, 0xC2, 4, 70_028)
    jumbo = ipv6(0, hop_by_hop + tcp_bytes(large[1])[:20] + bytes(70_000), length=0)
    packets, _ = decoded([*large, Frame(3, jumbo)])
    assert [s.length for s in packets] == [150_000, 150_000, 70_000]


# -------------------------------------------------------------------------------------------- layers


@pytest.mark.parametrize("tunnel", TUNNELS)
def test_tunnels_are_gone_through(decoded, tunnel):
    """Alone, and mixed with packets outside any tunnel."""
    inside = tunnelled(BOTH, TUNNELS[tunnel])
    packets, tally = decoded(inside)
    assert rows_of(packets) == truth(BOTH)
    assert tally == {}
    mixed = list(itertools.chain(*zip(inside, BOTH, strict=True)))
    packets, tally = decoded(mixed)
    assert rows_of(packets) == truth(itertools.chain(*zip(BOTH, BOTH, strict=True)))
    assert tally == {}


@pytest.mark.parametrize("names", [*itertools.permutations(EXTENSIONS, 1), tuple(EXTENSIONS), ("routing",) * 5])
def test_ipv6_extension_headers(decoded, names):
    segment = Segment(1, "2001:db8::1", 5, "2001:db8::2", 6, 7, 8, "PA", 50, mss=1400)
    packets, tally = decoded([Frame(1, extended(segment, *names)), segment])
    assert rows_of(packets) == truth([segment, segment])
    assert tally == {}


def test_ipv4_options(decoded):
    packets, _ = decoded([Frame(1, ipv4(6, tcp_bytes(ONE), options=bytes([1] * 12)))])
    assert [s.length for s in packets] == [100]


@pytest.mark.parametrize("family", [10, 24, 28, 30])
@pytest.mark.parametrize("byte_order", "<>")
def test_loopback_families(decoded, family, byte_order):
    (six,) = tunnelled([Segment(1, "::1", 1, "::1", 2, 3)], lambda s: ipv6(6, tcp_bytes(s))[14:])
    packets, _ = decoded([Frame(1, struct.pack(byte_order + "I", family) + six.data)], NULL)
    assert len(packets) == 1


# ------------------------------------------------------------------------------------------- options


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (b"\x02\x04\x05\xb4", {"mss": 1460}),
        (b"\x03\x03\x07\x00", {"wscale": 7}),
        (b"\x08\x0a" + struct.pack(">II", 5, 6) + b"\0\0", {"tsval": 5, "tsecr": 6}),
        (b"\x01" * 36 + b"\x02\x04\x05\xb4", {"mss": 1460}),
        (b"\x00\x00\x00\x00\x02\x04\x05\xb4", {}),  # nothing after the end of options
        (b"\x02\x03\x05\xb4", {}),  # wrong size
        (b"\x02\x00\x05\xb4\x02\x04\x05\xb4", {}),  # size 0 must not loop
        (b"\x02\x01\x05\xb4\x02\x04\x05\xb4", {}),
        (b"\xfe\x06abcd\x02\x04\x05\xb4\x01\x01", {"mss": 1460}),  # unknown ones are stepped over
        (b"\x01\x01\x08\x0b" + bytes(8), {}),  # longer than the header
        (b"\x01\x01\x08\x0a" + struct.pack(">II", 7, 8) + b"\x01\x01\x05\x0a" + bytes(8), {"tsval": 7, "tsecr": 8}),
    ],
)
def test_options(decoded, options, expected):
    options += bytes(-len(options) % 4)
    header = struct.pack(">HHIIHHHH", 1, 2, 3, 4, (20 + len(options)) // 4 << 12 | 0x10, 5, 0, 0)
    packets, _ = decoded([Frame(1, ipv4(6, header + options))])
    (row,) = rows_of(packets)
    found = {name: getattr(row, name) for name in ("mss", "wscale", "tsval", "tsecr")}
    assert {name: value for name, value in found.items() if value is not None} == expected
    assert row.length == 0


def test_what_follows_a_packet_is_never_read_as_part_of_it(decoded):
    """Cut at every byte, between packets full of plausible bytes: a row, or a reason, from the packet alone."""
    segment = Segment(1, "10.0.0.1", 1, "10.0.0.2", 2, 3, 4, "S", mss=1460, wscale=7, timestamps=(5, 6))
    frame = ethernet(0x0800, b"")[:14] + ipv4(6, tcp_bytes(segment))[14:]
    for size in range(len(frame)):
        for noise in (b"\xff", b"\x02\x04\x05\xb4\x03\x03\x09\x08\x0a"):
            neighbour = Frame(2, (noise * 200)[:200])
            cut = Frame(1, frame[:size], original_length=len(frame))
            packets, tally = decoded([cut, neighbour])
            assert (len(packets) == 1) == (size >= 54)
            if len(packets):
                (row,) = rows_of(packets)
                assert row.mss == (1460 if size >= 58 else None)
                assert row.tsval == (5 if size >= 70 else None)
                assert row.wscale == (7 if size >= 74 else None)
                assert row.length == 0
            else:
                layer = "Ethernet" if size < 14 else "IPv4" if size < 34 else "TCP"
                assert tally[f"{layer} header cut by snaplen"] == 1


# --------------------------------------------------------------------------------------------- tally

TCP = tcp_bytes(ONE)


@pytest.mark.parametrize(
    ("what", "frame"),
    [
        ("ARP", ethernet(0x0806, bytes(28))),
        ("LLDP", ethernet(0x88CC, bytes(28))),
        ("EtherType 0x1234", ethernet(0x1234, bytes(28))),
        ("IEEE 802.2", ethernet(38, bytes(38))),
        ("PPPoE discovery", ethernet(0x8863, bytes(28))),
        ("MPLS", ethernet(0x8847, struct.pack(">I", 1 << 8 | 64) + bytes(30))),
        ("PPP protocol 0xc021", ethernet(0x8864, bytes(6) + b"\xc0\x21" + bytes(9))),
        ("UDP", udp(53, bytes(40))),
        ("UDP", udp(4789, bytes(40))),  # VXLAN without its valid flag
        ("UDP", udp(6081, b"\xff" + bytes(40))),  # Geneve of a version to come
        ("UDP", udp(4789, b"\x08")),
        ("UDP", udp(2152, b"\x30\x01" + bytes(40))),  # GTP-U that asks whether the other end is there
        ("UDP", udp(2152, b"\x34\xff" + bytes(9) + b"\x85" + bytes(40))),  # an extension header of no length
        ("UDP", udp(2152, b"\x34\xff" + bytes(9) + b"\x85\x40" + bytes(40))),
        ("UDP", udp(1701, b"\xc8\x02" + bytes(40))),  # L2TP's own control
        ("UDP", udp(1701, b"\0\x03" + bytes(40))),
        ("UDP", udp(1701, b"\x42\x02" + bytes(6))),
        ("ICMP", ipv4(1, bytes(8) + ipv4(6, TCP)[14:])),  # an error that quotes a TCP header
        ("ICMPv6", ipv6(58, bytes(8))),
        ("SCTP", ipv4(132, bytes(20))),
        ("IPsec ESP", ipv4(50, bytes(20))),
        ("IP protocol 99", ipv4(99, bytes(20))),
        ("GRE tunnel", ipv4(47, b"\x40\0\x08\0" + bytes(20))),  # source routed
        ("GRE tunnel", ipv4(47, b"\0\x07\x08\0" + bytes(20))),
        ("ERSPAN", ipv4(47, b"\x10\0\x22\xeb" + bytes(14) + b"\x08\0" + bytes(60))),  # a frame of IP, not Ethernet
        ("ERSPAN header incomplete", ipv4(47, b"\x10\0\x88\xbe" + bytes(11))),
        ("IPv4 fragment", ipv4(6, TCP, fragment=0x0001)),
        ("IPv6 fragment", ipv6(44, struct.pack(">BBHI", 6, 0, 8, 1) + TCP)),
        ("IPv4 malformed", ethernet(0x0800, b"\x95" + bytes(39))),
        ("IPv4 malformed", ethernet(0x0800, b"\x44" + bytes(39))),
        ("IPv4 malformed", ipv4(6, TCP, length=19)),
        ("IPv6 malformed", ethernet(0x86DD, bytes(60))),
        ("TCP malformed", ipv4(6, TCP[:12] + b"\x40" + TCP[13:])),
        ("TCP malformed", ipv4(6, TCP, length=39)),  # IP ends before the TCP header does
        ("TCP malformed", ipv4(6, TCP[:12] + b"\xf0" + TCP[13:20])),
        ("TCP header incomplete", ipv4(6, TCP[:19])),
        ("IPv4 header incomplete", ethernet(0x0800, b"\x45" + bytes(18))),
        ("Ethernet header incomplete", bytes(13)),
        ("VLAN header incomplete", ethernet(0x8100, b"\0")),
        ("VLAN", ethernet(0x8100, struct.pack(">HH", 1, 0x8100) * 40)),  # nested without end
    ],
)
def test_everything_else_is_counted_by_name(decoded, what, frame):
    """Beside packets that are decoded, which it leaves alone."""
    packets, tally = decoded([ONE, Frame(2, frame), ONE])
    assert rows_of(packets) == [row for row in truth([ONE, ONE, ONE]) if row.frame != 2]
    assert tally == {what: 1}


def test_first_fragments_have_a_header_to_read(decoded):
    packets, tally = decoded([Frame(1, ipv4(6, TCP, fragment=0x2000))])
    assert [s.sport for s in packets] == [40000]
    assert tally == {}


@pytest.mark.parametrize(
    ("link_type", "data", "what"),
    [
        (147, bytes(60), "link type 147 (user-defined) not decoded"),
        (105, b"\x80" + bytes(60), "802.11"),  # a beacon
        (105, b"\x48" + bytes(60), "802.11"),  # to say that a card sleeps: without data
        (105, b"\x88\0" + bytes(22) + b"\x80" + bytes(60), "802.11"),  # several packets in one frame
        (105, b"\x08\x41" + bytes(60), "802.11 encrypted"),
        (105, b"\x08\x01" + bytes(20) + b"\x11" + bytes(60), "802.11 fragment"),
        (105, b"\x08" + bytes(60), "IEEE 802.2"),
        (127, b"\0\0\x08\0" + bytes(4) + b"\x80" + bytes(60), "802.11"),
        (127, b"\0\0\x00\x02" + bytes(60), "802.11 header incomplete"),
        (192, b"\0\0\x08\0" + b"\xff" * 4, "link type 65535 not known"),
        (239, bytes(4) + b"\x04\0\x0a\0" + b"\x03\0\x0a\0" + bytes(9), "NFLOG malformed"),
        (239, bytes(4) + b"\x08\0\x0a\0" + bytes(4), "NFLOG header incomplete"),
        (9999, bytes(60), "link type 9999 not known"),
        (NULL, struct.pack("<I", 7) + bytes(40), "loopback family 7"),
        (RAW, bytes(40), "raw IP malformed"),
        (RAW, b"", "raw IP header incomplete"),
        (SLL, bytes(15), "Linux cooked header incomplete"),
        (9, b"\xff\x03\xc0\x21" + bytes(20), "PPP protocol 0xc021"),
    ],
)
def test_link_layers_without_ip(decoded, link_type, data, what):
    packets, tally = decoded([Frame(1, data, original_length=max(1, len(data)))], link_type)
    assert len(packets) == 0
    assert list(tally.values()) == [1]
    assert what.replace("incomplete", "") in next(iter(tally)).replace("cut by snaplen", "")


@pytest.mark.parametrize("link", LINKS)
def test_link_layers_whose_headers_vary(decoded, link):
    number, wrap = LINKS[link]
    packets, tally = decoded([Frame(segment.ts_ns, wrap(segment)) for segment in BOTH], number)
    assert rows_of(packets) == truth(BOTH)
    assert tally == {}


def test_ppp(decoded):
    frames = [Frame(1, head + ipv4(6, TCP)[14:]) for head in (b"\xff\x03\0\x21", b"\0\x21", b"\x21", b"\xff\x03\x21")]
    packets, tally = decoded(frames, 9)
    assert len(packets) == 4
    assert tally == {}


@pytest.mark.parametrize(("dlt", "packet"), [(1, ipv4(6, TCP)), (12, ipv4(6, TCP)[14:])], ids=["Ethernet", "raw IP"])
@pytest.mark.parametrize("header", [108, 156])
def test_what_macos_writes_before_each_packet(decoded, header, dlt, packet):
    """Its header says the link type of the packet, and how long the header is, which depends on the version."""
    pktap = struct.pack("<III24s", header, 1, dlt, b"en0").ljust(header, b"\0")
    packets, tally = decoded([Frame(1, pktap + packet)], 258)
    assert [(s.sport, s.length) for s in packets] == [(40000, 100)]
    assert tally == {}


def test_what_is_left_out_is_told_the_most_first(diagnose):
    """Kinds of one name added up."""
    frames = (
        [Frame(1, udp(53, bytes(40)))] * 2
        + [Frame(1, udp(4789, b"\x08"))]
        + [Frame(1, ethernet(0x0806, bytes(28)))] * 5
    )
    frames += [Frame(1, ethernet(0x88CC, bytes(28))), Frame(1, ipv4(1, bytes(8)))]
    quality = diagnose([*frames, ONE]).quality
    assert list(quality.not_decoded.items()) == [("ARP", 5), ("UDP", 3), ("ICMP", 1), ("LLDP", 1)]


def test_every_kind_has_a_name():
    for kind in LAYERS:
        for reason in range(0, REASON + 1, 0x100000):
            assert kind_name(kind | reason)


GRE = ipv4(47, bytes(160))[:34]
HEADS = (
    b"", ethernet(0x0800, b"\x45\0"), ethernet(0x86DD, b"\x60"), ipv4(6, bytes(160))[:34],
    GRE + b"\x10\0\x88\xbe", GRE + b"\x10\0\x22\xeb",
)  # fmt: skip
OTHER_LINK_TYPES = (0, 9, 12, 101, 108, 113, 228, 229, 258, 276, 147)


@given(
    content=st.binary(min_size=20, max_size=200) | st.binary(max_size=20),
    begins=st.sampled_from([*((ETHERNET, head) for head in HEADS), *((number, b"") for number in OTHER_LINK_TYPES)]),
)
@example(content=tcp_bytes(ONE), begins=(ETHERNET, HEADS[3]))
def test_any_bytes_are_a_row_or_counted(decoded, content, begins):
    """And what is read of a packet does not depend on what lies around it."""
    link_type, head = begins
    alone = []
    frame = Frame(1, head + content)
    for packets in ([frame], [Frame(0, b"\xff" * 99), frame, Frame(0, bytes(99)), ONE]):
        segments, _ = decoded(packets, link_type, snaplen=128)
        alone.append([replace(segment, frame=0) for segment in segments if segment.ts == 1])
    assert alone[0] == alone[1]
