"""nagle-lab verify and show with the real tshark: what differs by definition is said, what differs is found."""

import os
import struct
from dataclasses import replace

import pytest

from nagle_lab.errors import Exit, NagleLabError
from nagle_lab.evidence import tshark as dissect
from nagle_lab.evidence.tshark import verify
from support.repository import REFERENCE, STALLED
from support.stories import server_held, talk
from support.synthetic import Frame, Segment, packet_bytes, pcap_bytes, pcapng_bytes

pytestmark = [pytest.mark.usefixtures("tshark"), pytest.mark.long]
TALK = talk(server_held, 3).segments
DATA = next(segment for segment in TALK if segment.length)


def patched(segment: Segment, at: int, value: int) -> Frame:
    """The segment's frame on Ethernet with the 16 bits at `at` replaced."""
    data = bytearray(packet_bytes(segment))
    data[at : at + 2] = struct.pack(">H", value)
    return Frame(segment.ts_ns, bytes(data))


V6 = replace(DATA, src="fd00::1", dst="fd00::2")
BY_DEFINITION = {
    "first fragment": ([patched(DATA, 20, 0x2000)], {}, "length of a fragment"),
    "IPv6 tells no length": ([patched(V6, 18, 0)], {}, "tells no length"),
    "IPv4 tells too much": ([patched(DATA, 16, 1400)], {}, "more bytes than the frame had"),
    "IPv6 tells too much": ([patched(V6, 18, 1400)], {}, "more bytes than the frame had"),
    "cut within the timestamps": ([DATA], {"snaplen": 62}, "cut by the snaplen"),
    "cut within the TCP header": ([DATA], {"snaplen": 50}, "header cut by snaplen: tshark shows"),
}


@pytest.mark.parametrize("case", BY_DEFINITION)
def test_what_differs_by_definition_is_said_and_no_fault(tmp_path, case):
    packets, options, words = BY_DEFINITION[case]
    path = tmp_path / "c.pcap"
    path.write_bytes(pcap_bytes([*TALK, *packets], **{"snaplen": 256, **options}))
    found = verify(path)
    assert (found.first, found.differing) == ([], 0)
    assert any(words in why for why in found.explained), found.explained


def test_nothing_is_explained_away_in_an_ordinary_capture(run):
    found = verify(STALLED)
    assert (found.compared, found.differing, found.explained, found.notes) == (528, 0, {}, [])
    code, out, _ = run("verify", STALLED)
    assert code == 0
    assert "EQUAL" in out and "528 TCP segments" in out


def test_a_difference_is_counted_shown_and_exit_1(run, tmp_path, monkeypatch):
    path = tmp_path / "c.pcapng"
    path.write_bytes(pcapng_bytes(TALK))
    swap = {"tcp.seq_raw": "tcp.ack_raw", "tcp.ack_raw": "tcp.seq_raw"}
    monkeypatch.setattr(dissect, "ROW_ARGUMENTS", tuple(swap.get(part, part) for part in dissect.ROW_ARGUMENTS))
    code, out, _ = run("verify", path)
    assert code == Exit.CONTRADICTED
    assert "DIFFERENT" in out and f"{len(TALK)} frames: " in out
    assert f"seq {len(TALK)}" in out and "frame 1: seq is" in out
    assert out.count("frame ") <= 10 + 2
    path.write_bytes(pcapng_bytes(TALK[:1]))
    _, out, _ = run("verify", path)
    assert "compared      1 TCP segment, " in out and "different     1 frame: " in out


def test_a_frame_that_only_tshark_reads_is_named(tmp_path):
    path = tmp_path / "c.pcap"
    segment = packet_bytes(DATA)[14:]
    lisp = bytes(8) + segment  # RFC 9300: a tunnel we do not look into
    udp = struct.pack(">HHHH", 4341, 4341, 8 + len(lisp), 0) + lisp
    ip = struct.pack(">BBHHHBBH8s", 0x45, 0, 20 + len(udp), 0, 0, 64, 17, 0, bytes(8)) + udp
    path.write_bytes(pcap_bytes([*TALK, Frame(DATA.ts_ns, packet_bytes(DATA)[:14] + ip)], snaplen=256))
    found = verify(path)
    assert found.columns == {"only in tshark's": 1}
    assert found.first == [f"frame {len(TALK) + 1}: only in tshark's (ours: UDP)"]


def test_a_cut_file_is_compared_as_far_as_it_goes(tmp_path):
    path = tmp_path / "cut.pcap"
    path.write_bytes(STALLED.read_bytes()[:-10])
    found = verify(path)
    assert (found.compared, found.differing) == (527, 0)
    assert len(found.notes) == 2 and "cut short" in found.notes[1]


def test_a_pipe_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(NagleLabError, match="save it to a file"):
        verify(tmp_path / "pipe")


def test_every_reference_capture_verifies():
    for path in sorted(REFERENCE.glob("*/*.pcap")):
        found = verify(path)
        assert found.equal and found.compared > 200 and not found.explained, path


def test_show_gives_wireshark_s_view_of_the_three_frames(run):
    code, out, _ = run("show", STALLED, "--stall", 3)
    assert code == 0
    assert max(map(len, out.splitlines())) <= 100
    parts = [
        out.index(f"\nFrame {frame}, {what}") for frame, what in ((42, "trigger"), (49, "late"), (50, "release"))
    ]
    assert parts == sorted(parts)
    assert "Len: 238" in out[parts[0] : parts[1]]
    assert "[This is an ACK to the segment in frame: 42]" in out[parts[1] : parts[2]]
    assert "Len: 615" in out[parts[2] :]


def test_nothing_to_compare_is_not_equal(run, tmp_path):
    path = tmp_path / "x.pcap"
    path.write_bytes(pcap_bytes([]))
    code, out, err = run("verify", path)
    assert (code, out) == (Exit.UNUSABLE, "") and "no TCP segment in it to compare" in err
