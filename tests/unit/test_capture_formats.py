"""One conversation stored in every way is the same segments; and the capture says what it was read from."""

import gzip
import hashlib
import io
import itertools
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from nagle_lab.capture import records
from nagle_lab.capture.capture import open_capture
from nagle_lab.capture.pcapng import nanoseconds
from nagle_lab.capture.records import TroubleKind
from nagle_lab.errors import NagleLabError
from support.engines import followed, plainly
from support.rows import our_rows, truth
from support.rows import read as read_all
from support.synthetic import (
    ETHERNET,
    LOOP,
    MS,
    NULL,
    RAW,
    SECOND,
    SLL,
    SLL2,
    US,
    Conversation,
    Frame,
    Interface,
    Segment,
    acked_late,
    merge,
    pcap_bytes,
    pcapng_block,
    pcapng_bytes,
)  # fmt: skip


def talk(**settings) -> Conversation:
    t = acked_late(**settings)
    t.server_sends(615, after_ns=10 * US)
    t.client_acks(sack=((5, 9), (10, 20)))
    t.server_writes(3000)
    t.close()
    return t


TALK = talk().segments
SIX = talk(client=("fd00::1", 5), server=("fd00::2", 80)).segments
BOTH = merge(TALK, SIX)
TAGGED = merge(talk(vlan=(7,)).segments, talk(client=("10.9.9.9", 9), vlan=(7, 8)).segments)
LINK_TYPES = [ETHERNET, NULL, LOOP, RAW, SLL, SLL2]
COMPRESSIONS = {"": bytes, "gzip": gzip.compress, "zstd": zstandard.compress}


@pytest.fixture
def store(tmp_path):
    """Writes bytes to a file and gives its path."""
    numbers = itertools.count()

    def write(content: bytes) -> Path:
        path = tmp_path / f"capture-{next(numbers)}"
        path.write_bytes(content)
        return path

    return write


def read(path, **options):
    """A capture, read to its end."""
    with open_capture(path, **options) as capture:
        read_all(capture)
    return capture


# ------------------------------------------------------------------------------------------- formats


@pytest.mark.parametrize("byte_order", "<>")
@pytest.mark.parametrize("link_type", LINK_TYPES)
@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_every_format_gives_the_same_segments(store, link_type, byte_order, compression):
    compress = COMPRESSIONS[compression]
    nano, micro = truth(BOTH), truth(BOTH, unit_ns=1000)
    cases = {
        "pcap": [
            (pcap_bytes(BOTH, link_type, byte_order=byte_order), nano),
            (pcap_bytes(BOTH, link_type, byte_order=byte_order, nanosecond=False), micro),
            (pcap_bytes(BOTH, link_type, byte_order=byte_order, modified=True), micro),
        ],
        "pcapng": [
            (pcapng_bytes(BOTH, link_type, byte_order=byte_order), nano),
            (pcapng_bytes(BOTH, link_type, byte_order=byte_order, block="OPB"), nano),
        ],
    }
    for name, variants in cases.items():
        for content, expected in variants:
            path = store(compress(content))
            assert our_rows(path) == expected
            capture = read(path)
            assert (capture.format, capture.link_types) == (name, [link_type])
            assert (capture.packets, capture.trouble) == (len(BOTH), [])
            assert capture.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
            assert capture.byte_count == path.stat().st_size
            assert read(path, sha256=False).sha256 == ""


@pytest.mark.parametrize("link_type", [ETHERNET, SLL])
def test_vlan_and_qinq(store, link_type):
    assert our_rows(store(pcap_bytes(TAGGED, link_type))) == truth(TAGGED)


@pytest.mark.parametrize("link_type", [12, 14, 228])
def test_the_other_numbers_of_raw_ip(store, link_type):
    assert our_rows(store(pcap_bytes(TALK, link_type))) == truth(TALK)


def test_raw_ipv6(store):
    assert our_rows(store(pcap_bytes(SIX, 229))) == truth(SIX)


@pytest.mark.parametrize("window_bytes", [1, 100, 400, 1000, 4096])
@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_windows_do_not_show(store, window_bytes, compression):
    interfaces = [Interface(ETHERNET), Interface(SLL)]
    sections = pcapng_bytes(TALK) + pcapng_bytes(SIX, byte_order=">", interfaces=interfaces) + pcapng_bytes(TALK)
    for content in (pcap_bytes(BOTH), sections):
        path = store(COMPRESSIONS[compression](content))
        assert our_rows(path, window_bytes=window_bytes) == our_rows(path)


def test_a_large_capture_is_read_in_many_windows(store):
    """More than one window; the same as in one piece."""
    talks = [talk(client=("10.0.0.1", 1024 + i), t0_ns=10**18 + i * MS).segments for i in range(900)]
    packets = merge(*talks)
    for content in (pcap_bytes(packets, snaplen=1500), pcapng_bytes(packets, byte_order=">", snaplen=1500)):
        assert len(content) > 4 << 20
        rows = our_rows(store(content))
        assert rows == truth(packets)
        assert our_rows(store(gzip.compress(content, 1)), window_bytes=1 << 18) == rows


@pytest.mark.parametrize("window_bytes", [64, 300, 1 << 20])
def test_every_engine_reads_every_format_alike(engine, window_bytes):
    """Both byte orders, all units of time, obsolete blocks, sections of many interfaces: the same connections."""
    moved = [Segment(**{**vars(s), "interface": 1}) for s in TALK]
    interfaces = [Interface(SLL, 6), Interface(ETHERNET, 0x80 | 30)]
    files = [
        *(pcap_bytes(BOTH, byte_order=order, modified=modified) for order in "<>" for modified in (False, True)),
        *(pcapng_bytes(BOTH, byte_order=order, block=block) for order in "<>" for block in ("EPB", "OPB")),
        pcapng_bytes(moved, interfaces=interfaces) + pcapng_bytes(SIX, byte_order=">"),
    ]
    for content in files:
        said = followed(engine, content, window_bytes=window_bytes)
        assert said == plainly(content)
        assert (said["counts"][:4], said["not decoded"]) == ((len(BOTH), 2, len(BOTH), 0), {})


# -------------------------------------------------------------------------------------------- pcapng


def test_interfaces_of_many_kinds(store):
    """Own link types, units and offsets of time, in one section."""
    kinds = [
        Interface(ETHERNET, 9),
        Interface(SLL, 6),
        Interface(RAW, None),
        Interface(SLL2, 9, offset_s=1_600_000_000),
        Interface(NULL, 0x80 | 30),
        Interface(ETHERNET, 10),
    ]
    units = [1, 1000, 1000, 1, 1, 1]
    packets = [
        Segment(17 * 10**17 + i * 1_234_567_000, "10.0.0.1", 1, "10.0.0.2", 2, i, length=i, interface=i % len(kinds))
        for i in range(60)
    ]
    path = store(pcapng_bytes(packets, interfaces=kinds))
    rows = our_rows(path)
    for row, packet, expected in zip(rows, packets, truth(packets), strict=True):
        assert abs(row.ts_ns - expected.ts_ns) < max(2, units[packet.interface])
        assert row._replace(ts_ns=0) == expected._replace(ts_ns=0)
    assert read(path).link_types == [ETHERNET, SLL, RAW, SLL2, NULL]


def test_sections_number_their_interfaces_anew(store):
    first = pcapng_bytes(TALK, interfaces=[Interface(ETHERNET)])
    moved = [Segment(**{**vars(s), "interface": 1}) for s in TALK]
    second = pcapng_bytes(moved, byte_order=">", interfaces=[Interface(RAW), Interface(SLL, 6)])
    third = pcapng_bytes(TALK, interfaces=[Interface(SLL2)])
    assert our_rows(store(first + second + third)) == [
        row._replace(frame=number) for number, row in enumerate(truth(TALK) * 3, 1)
    ]


@pytest.mark.parametrize("byte_order", "<>")
def test_other_blocks_are_skipped(store, byte_order):
    """Name resolution, statistics, unknown ones; those Wireshark numbers count as frames."""
    one = len(pcapng_bytes([], byte_order=byte_order))
    content = pcapng_bytes(TALK, byte_order=byte_order)
    silent = b"".join(pcapng_block(kind, bytes(12), byte_order) for kind in (4, 5, 10, 0x55, 0x80000001))
    assert our_rows(store(content[:one] + silent + content[one:])) == truth(TALK)
    numbered = b"".join(pcapng_block(kind, bytes(24), byte_order) for kind in (9, 0xBAD, 0x40000BAD, 0x204))
    rows = our_rows(store(content[:one] + numbered + content[one:]))
    assert rows == [row._replace(frame=row.frame + 4) for row in truth(TALK)]


def test_packets_without_a_time_are_left_out_and_named(store):
    path = store(pcapng_bytes(TALK, block="SPB") + pcapng_bytes(TALK))
    assert [row.frame for row in our_rows(path)] == list(range(len(TALK) + 1, 2 * len(TALK) + 1))
    capture = read(path)
    assert capture.packets == 2 * len(TALK)
    assert [trouble.kind for trouble in capture.trouble] == [TroubleKind.UNTIMED]
    assert f"left out {len(TALK)} packets" in capture.trouble[0]


@pytest.mark.parametrize("byte_order", "<>")
def test_drops_the_capturing_program_admits(store, byte_order):
    order = "little" if byte_order == "<" else "big"

    def statistics(interface: int, dropped: int) -> bytes:
        numbers = [(interface, 4), (0, 4), (0, 4), (5, 2), (8, 2), (dropped, 8), (0, 4)]
        return pcapng_block(5, b"".join(n.to_bytes(size, order) for n, size in numbers), byte_order)

    interfaces = [Interface(), Interface()]
    section = pcapng_bytes(TALK, byte_order=byte_order, interfaces=interfaces)
    content = section + statistics(0, 3) + statistics(1, 5) + statistics(0, 7)
    content += pcapng_bytes([], byte_order=byte_order) + statistics(9, 1)
    (trouble,) = read(store(content)).trouble
    assert trouble.kind is TroubleKind.LOST
    assert "12 packets were dropped" in trouble
    (trouble,) = read(store(section + statistics(0, 1))).trouble
    assert trouble.endswith(": 1 packet was dropped while capturing")


@given(ns=st.integers(0, 2**61), exponent=st.integers(0, 127), binary=st.booleans())
def test_units_of_time(ns, exponent, binary):
    """Against exact integers, for every if_tsresol."""
    per_second = 2**exponent if binary else 10**exponent
    ticks = ns * per_second // SECOND
    if ticks < 2**64:
        code = exponent | 0x80 if binary else exponent
        assert nanoseconds(ticks, records.Interface(0, 0, 1, code)) == ticks * SECOND // per_second


# --------------------------------------------------------------------------- several files, and stdin


def test_rotated_files_are_one_capture(store):
    parts = [TALK[:3], TALK[3:4], TALK[4:]]
    forms = [pcap_bytes(parts[0]), gzip.compress(pcapng_bytes(parts[1])), pcap_bytes(parts[2], SLL)]
    paths = [store(content) for content in forms]
    assert our_rows(paths) == truth(TALK)
    capture = read(paths)
    assert (capture.format, capture.trouble) == ("pcap+pcapng", [])
    assert capture.link_types == [ETHERNET, SLL]
    assert capture.sha256 == hashlib.sha256(b"".join(forms)).hexdigest()
    assert capture.name == f"{paths[0]} … {paths[2]}"


def test_rotated_files_out_of_order(store):
    paths = [store(pcap_bytes(part)) for part in (TALK[5:], TALK[:5])]
    (trouble,) = read(paths).trouble
    assert trouble.kind is TroubleKind.UNORDERED
    assert str(paths[1]) in trouble


def test_an_empty_last_file_costs_only_itself(store):
    paths = [store(pcap_bytes(TALK)), store(b"")]
    assert our_rows(paths) == truth(TALK)
    (trouble,) = read(paths).trouble
    assert str(paths[1]) in trouble


def test_a_missing_file_among_several_is_found_at_once(store, tmp_path):
    with pytest.raises(NagleLabError, match="no such file"):
        open_capture([store(pcap_bytes(TALK)), tmp_path / "absent"])


def test_a_damaged_file_among_several(store):
    paths = [store(pcap_bytes(TALK[:5])[:-1]), store(pcap_bytes(TALK[5:]))]
    rows = truth(TALK)
    assert our_rows(paths) == rows[:4] + [row._replace(frame=row.frame - 1) for row in rows[5:]]
    (trouble,) = read(paths).trouble
    assert "kept the 4 packets before it" in trouble


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_standard_input(store, compression):
    """Through a real pipe, in pieces."""
    content = COMPRESSIONS[compression](pcapng_bytes(BOTH))
    program = (
        "from nagle_lab.capture.capture import open_capture\n"
        "from nagle_lab.capture.take import Taker\n"
        "frames = []\n"
        "with open_capture('-') as capture:\n"
        "    for _ in capture.read(Taker(lambda *record: frames.append(record[5]))): pass\n"
        "    print(len(frames), capture.sha256, capture.name, capture.trouble)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin
    assert process.stdout
    for start in range(0, len(content), 999):
        process.stdin.write(content[start : start + 999])
        process.stdin.flush()
    process.stdin.close()
    with process.stdout as output:
        printed = output.read().decode()
    assert process.wait() == 0
    assert printed == f"{len(BOTH)} {hashlib.sha256(content).hexdigest()} standard input []\n"


def test_a_named_pipe(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(pcap_bytes(TALK),))
    writer.start()
    assert our_rows(pipe) == truth(TALK)
    writer.join()


def test_a_pipe_that_does_not_block_is_read_to_its_end():
    """O_NONBLOCK belongs to the pipe: another program that has it may have set it."""
    content = pcap_bytes(TALK)
    reading, writing = os.pipe()
    os.set_blocking(reading, False)

    def write() -> None:
        with os.fdopen(writing, "wb", buffering=0) as pipe:
            for part in (content[:99], content[99:]):
                time.sleep(0.1)
                pipe.write(part)

    writer = threading.Thread(target=write)
    writer.start()
    with io.FileIO(reading) as pipe:
        assert our_rows(pipe) == truth(TALK)
    writer.join()


def test_a_file_that_grows_is_told(store):
    path = store(pcap_bytes(TALK[:5]))
    with open_capture(path) as capture:
        before = path.stat().st_size
        with path.open("ab") as out:
            out.write(b"more")
        frames = len(read_all(capture))
    assert frames == 5
    assert [trouble.kind for trouble in capture.trouble] == [TroubleKind.TRUNCATED, TroubleKind.CHANGED]
    assert f"grew from {before} to {before + 4} bytes" in capture.trouble[1]


def test_frames_that_are_not_tcp_are_numbered(store):
    arp = [Frame(s.ts_ns - 1, bytes(12) + b"\x08\x06" + bytes(28)) for s in TALK[:3]]
    assert [row.frame for row in our_rows(store(pcap_bytes(merge(arp, TALK))))][:4] == [2, 4, 6, 7]
