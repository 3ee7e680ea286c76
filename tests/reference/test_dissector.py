"""Frame by frame, our packet table is Wireshark's."""

import gzip

import pytest

from nagle_lab.errors import NagleLabError
from support.dissector import pyshark_rows, tshark_rows
from support.rows import differences, our_rows, truth
from support.synthetic import (
    ETHERNET,
    LOOP,
    NULL,
    RAW,
    SLL,
    SLL2,
    US,
    Frame,
    Segment,
    acked_late,
    merge,
    pcap_bytes,
    pcapng_bytes,
)  # fmt: skip
from support.tunnels import EXTENSIONS, LINKS, TUNNELS, ethernet, extended, ipv4, tunnelled, udp


def talk(**settings) -> list[Segment]:
    """A little of everything that TCP headers can say."""
    t = acked_late(**settings)
    t.server_sends(615, after_ns=10 * US)
    t.server_writes(3000)
    t.client_acks(sack=((5, 9), (10, 20)), window=0)
    t.server_sends(40_000)
    t.client_sends(1, flags="PAUEC")
    t.client_sends(0, flags="RA")
    t.close()
    return t.segments


TALKS = merge(
    talk(),
    talk(client=("fd00::1", 5), server=("fd00::2", 80)),
    talk(client=("10.0.0.9", 9), timestamps=False, client_isn=2**32 - 50, server_isn=0),
    [Segment(10**18, "10.0.0.1", 1, "10.0.0.2", 2, 3, length=70_000)],
)
TAGGED = merge(talk(vlan=(7,)), talk(client=("10.9.9.9", 9), vlan=(7, 8)))
OTHERS = [
    Frame(1, ethernet(0x0806, bytes(28))),
    Frame(2, udp(53, bytes(30))),
    Frame(3, ipv4(1, b"\x03" + bytes(7) + ipv4(6, bytes(20))[14:])),
]


def compare(path, content: bytes, expected: int) -> None:
    path.write_bytes(content)
    ours, theirs = our_rows(path), tshark_rows(path)
    assert len(theirs) == expected
    assert differences(ours, theirs) == []


@pytest.mark.usefixtures("tshark")
class TestTshark:
    @pytest.mark.parametrize("link_type", [ETHERNET, NULL, LOOP, RAW, SLL, SLL2])
    def test_link_types(self, tmp_path, link_type):
        compare(tmp_path / "a", pcap_bytes(TALKS, link_type), len(TALKS))

    @pytest.mark.parametrize("byte_order", "<>")
    def test_formats(self, tmp_path, byte_order):
        packets = merge(TALKS, TAGGED, OTHERS)
        count = len(TALKS) + len(TAGGED)
        sections = pcapng_bytes(packets, byte_order=byte_order) + pcapng_bytes(packets, SLL, byte_order="<")
        compare(tmp_path / "a", gzip.compress(sections), 2 * count)
        compare(tmp_path / "b", pcap_bytes(packets, byte_order=byte_order, nanosecond=False), count)

    def test_tunnels_and_extension_headers(self, tmp_path):
        inside = [frame for wrap in TUNNELS.values() for frame in tunnelled(talk(), wrap)]
        headers = [Frame(1, extended(segment, name)) for name in EXTENSIONS for segment in talk()]
        headers += [Frame(1, extended(segment, *EXTENSIONS)) for segment in talk()]
        compare(tmp_path / "a", pcap_bytes([*inside, *headers], snaplen=256), len(inside) + len(headers))

    @pytest.mark.parametrize("link", LINKS)
    def test_link_layers_whose_headers_vary(self, tmp_path, link):
        number, wrap = LINKS[link]
        segments = [segment for segment in talk() if segment.length < 1400]  # as on such links, without offload
        compare(tmp_path / "a", pcap_bytes(tunnelled(segments, wrap), number, snaplen=2000), len(segments))

    @pytest.mark.parametrize("snaplen", [54, 60, 70, 80, 96])
    def test_snaplen(self, tmp_path, snaplen):
        """What is cut off of the options is not guessed; what is left of the headers is read.

        (Where the cut goes through an option, as at 66, tshark shows the half that is there; we do not.)
        """
        compare(tmp_path / "a", pcap_bytes(talk(), snaplen=snaplen), len(talk()))


@pytest.mark.usefixtures("tshark")
def test_pyshark(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(pcap_bytes(merge(talk(), talk(client=("fd00::1", 5), server=("fd00::2", 80)))))
    theirs = pyshark_rows(path)
    assert len(theirs) == 2 * len(talk())
    assert differences(our_rows(path), theirs) == []


def test_the_comparison_finds_differences(tmp_path):
    """It would not be worth much if it could not fail."""
    rows = truth(talk())
    changed = [rows[0]._replace(seq=9), *rows[1:3], *rows[4:], rows[-1]._replace(frame=99, length=None)]
    assert differences(rows, rows) == []
    assert differences(changed, rows) == [
        f"frame 1: seq is 9 in ours, {rows[0].seq} in tshark's",
        "frame 4: only in tshark's",
        "frame 99: only in ours",
    ]
    with pytest.raises(NagleLabError, match="not in order of frames"):
        differences(rows, [*rows, rows[-1]])
    assert differences(rows, [rows[0]._replace(length=None), *rows[1:]]) == []
