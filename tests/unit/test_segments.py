"""The segments of a capture, read again: all of them, or those of one connection, from a frame on."""

from itertools import islice

import pytest

from nagle_lab.capture.stored import Stored
from nagle_lab.diagnosis.analysis import analyze
from nagle_lab.evidence.excerpt import packets_of, segments
from nagle_lab.tcp import compiled
from support.engines import ENGINES
from support.rows import segment_row, truth
from support.stories import CLEAN, STALLED, server_held, talk
from support.synthetic import Frame, merge, pcap_bytes
from support.tunnels import ethernet

V4 = talk(server_held, 3).segments
V6 = talk(server_held, 3, client=("fd00::1", 5), server=("fd00::2", 80)).segments
OTHERS = [Frame(s.ts_ns - 1, ethernet(0x0806, bytes(28))) for s in V4[:3]]
PACKETS = merge(V4, V6, OTHERS)
ENDS = {
    "10.0.0.1": (bytes(10) + b"\xff\xff\x0a\0\0\1", 40000, bytes(10) + b"\xff\xff\x0a\0\0\2", 80),
    "fd00::1": (b"\xfd" + bytes(14) + b"\1", 5, b"\xfd" + bytes(14) + b"\2", 80),
}


@pytest.fixture(params=ENGINES, autouse=True)
def reader(request, monkeypatch):
    """Read by each engine."""
    if request.param == "plain":
        monkeypatch.setattr(compiled, "LIBRARY", None)


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "capture"
    path.write_bytes(pcap_bytes(PACKETS))
    return path


def rows(*arguments, **options):
    return [segment_row(segment) for segment in segments(*arguments, **options)]


def test_without_a_wish_it_is_all_of_them(path):
    assert rows(path) == truth(PACKETS)


@pytest.mark.parametrize("client", ENDS)
def test_those_between_two_ends_in_both_directions(path, client):
    ends = ENDS[client]
    expected = [row for row in truth(PACKETS) if client in (row.src, row.dst)]
    assert rows(path, ends=[ends]) == rows(path, ends=[ends[2:] + ends[:2]]) == expected
    assert rows(path, ends=[(ends[0], ends[1] + 1, *ends[2:])]) == rows(path, ends=[]) == []
    assert rows(path, ends=list(ENDS.values())) == truth(PACKETS)


@pytest.mark.parametrize("first", [1, 5, len(PACKETS), 10_000])
def test_those_from_a_frame_on(path, first):
    assert rows(path, first_frame=first) == [row for row in truth(PACKETS) if row.frame >= first]


def test_rotated_files_are_one_capture(tmp_path):
    paths = [tmp_path / "1", tmp_path / "2"]
    for part, of in zip(paths, (PACKETS[:20], PACKETS[20:]), strict=True):
        part.write_bytes(pcap_bytes(of))
    assert rows(paths) == truth(PACKETS)
    assert rows(paths, first_frame=18) == [row for row in truth(PACKETS) if row.frame >= 18]


def test_no_more_is_read_than_is_asked_for(tmp_path, monkeypatch):
    """What is to be shown is mostly near the beginning of a large file."""
    path, read, real = tmp_path / "large", [0], Stored.readinto
    content = pcap_bytes(V4)
    path.write_bytes(content + content[24:] * (8_000_000 // len(content)))

    def counted(self, view):
        count = real(self, view)
        read[0] += count
        return count

    monkeypatch.setattr(Stored, "readinto", counted)
    first = islice(segments(path), len(V4))
    assert [segment_row(segment) for segment in first] == truth(V4)
    assert read[0] < path.stat().st_size / 4


def test_every_packet_belongs_to_one_connection(tmp_path):
    path = tmp_path / "capture"
    talks = [talk(story, 3, client=("10.0.0.1", 4000 + i)).segments for i, story in enumerate(STALLED + CLEAN)]
    path.write_bytes(pcap_bytes(merge(*talks)))
    whole = analyze(path)
    found = [list(packets_of(path, connection)) for connection in whole.connections]
    assert [len(steps) for steps in found] == [connection.packets for connection in whole.connections]
    assert sorted(step.frame for steps in found for step in steps) == list(range(1, 1 + sum(map(len, talks))))
    for steps, connection in zip(found, whole.connections, strict=True):
        assert (steps[0].frame, steps[0].flags, steps[0].from_client) == (connection.first_frame, "SYN", True)
        assert (steps[1].flags, steps[1].from_client) == ("SYN,ACK", False)
