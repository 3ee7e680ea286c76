"""The compiled loops give what the NumPy ones give, on anything; and set-up compiles them where it can."""

import os
import shutil
import struct
import subprocess
import sys
import sysconfig
import tempfile
import zlib
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nagle_lab import packet as packets
from nagle_lab.capture import open_capture
from nagle_lab.capture.records import PADDING, Records
from nagle_lab.packet import Packets, Tally
from nagle_lab.packet.table import DTYPES
from nagle_lab.tcp import columns, connections, exchanges, keytable, timeline
from nagle_lab.tcp.loops import KINDS, Framing, compiled, plain
from support.truth import lookalikes, references

needs_compiled = pytest.mark.skipif(compiled.LIBRARY is None, reason="there is no C compiler here: NumPy does it all")
CC = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()
CAPTURES = [capture.path for capture in references() + lookalikes()]


def same(ours, theirs) -> None:
    """Equal arrays, or equal tuples of them."""
    if isinstance(ours, tuple):
        assert len(ours) == len(theirs)
        for one, other in zip(ours, theirs, strict=True):
            same(one, other)
    else:
        assert np.array_equal(ours, theirs), (ours, theirs)


# --------------------------------------------------------------------------------------------- set-up


def test_set_up_compiled_them_where_there_is_a_compiler():
    if shutil.which(CC[0]) is None or os.environ.get(compiled.WITHOUT) == "0":
        pytest.skip(f"there is no {CC[0]}, or {compiled.WITHOUT}=0")
    assert compiled.LIBRARY is not None


@needs_compiled
def test_a_library_of_another_source_is_not_used(tmp_path):
    """Whoever pulls a changed loops.c and does not set up again goes on with NumPy."""
    source = tmp_path / "loops.c"
    shutil.copy(Path(compiled.__file__).with_name("loops.c"), source)

    def made(*options: str) -> Path:
        """A folder with the library; each has its own, for what is loaded once is not read again."""
        folder = Path(tempfile.mkdtemp(dir=tmp_path))
        shutil.copy(source, folder)
        name = f"_loops{sysconfig.get_config_var('EXT_SUFFIX')}"
        subprocess.run([*CC, "-std=c99", "-shared", "-fPIC", *options, "-o", folder / name, source], check=True)
        return folder

    known = f"-DSOURCE={zlib.crc32(source.read_bytes())}"
    assert compiled.LIBRARY.source() == zlib.crc32(source.read_bytes())  # by set-up
    assert compiled.load(made(known))
    assert compiled.load(made()) is None  # by hand: nobody knows of what
    installed, changed = made(), made(known)
    (installed / "loops.c").unlink()
    assert compiled.load(installed)  # a wheel brings the library alone
    with (changed / "loops.c").open("a") as file:
        file.write("/* changed */\n")
    assert compiled.load(changed) is None
    source.write_text("int another;\n")  # a library of before: nothing tells its source
    assert compiled.load(made()) is None


@needs_compiled
def test_without_them_every_committed_capture_gives_the_same_bytes():
    program = (
        "import hashlib, sys\nfrom nagle_lab.diagnosis import analysis\nfrom nagle_lab.tcp import loops\n"
        "assert loops.COMPILED == (sys.argv[1] == '1')\n"
        "digest = hashlib.sha256()\n"
        "for path in sys.argv[2:]: digest.update(analysis.analyze(path).to_json().encode())\n"
        "print(digest.hexdigest())"
    )
    said = {
        subprocess.run(
            [sys.executable, "-c", program, wanted, *map(str, CAPTURES)],
            env={**os.environ, compiled.WITHOUT: wanted}, check=True, capture_output=True, text=True,
        ).stdout
        for wanted in "01"
    }  # fmt: skip
    assert len(CAPTURES) > 80
    assert len(said) == 1


def test_what_was_made_for_another_machine_is_left_alone(tmp_path):
    for file in Path(compiled.__file__).parent.glob("*.py"):
        shutil.copy(file, tmp_path)
    (tmp_path / f"_loops{sysconfig.get_config_var('EXT_SUFFIX')}").write_bytes(b"\x7fELF of something else")
    program = "import compiled; print(compiled.LIBRARY)"
    said = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True, capture_output=True, text=True)
    assert said.stdout == "None\n"


# ---------------------------------------------------------------------------------------------- bytes

PCAP = Framing("<", length_at=8, uncounted=16, shortest=16, longest=16 + 2000)
PCAP_BIG_ENDIAN = Framing(">", length_at=8, uncounted=16, shortest=16, longest=16 + 2000)
PCAPNG = Framing("<", length_at=4, uncounted=0, shortest=12, longest=2000)
framings = st.sampled_from([PCAP, PCAP_BIG_ENDIAN, PCAPNG])


def record(framing: Framing, body: int) -> bytes:
    content = bytearray(framing.shortest + body)
    struct.pack_into(framing.byte_order + "I", content, framing.length_at, len(content) - framing.uncounted)
    return bytes(content)


def padded(content: bytes) -> np.ndarray:
    return np.frombuffer(content + bytes(PADDING), np.uint8)


@given(framing=framings, sizes=st.lists(st.integers(0, 90), max_size=60), cut=st.integers(0, 40))
def test_walk_finds_every_complete_record(framing, sizes, cut):
    content = b"".join(record(framing, size) for size in sizes)
    end = max(0, len(content) - cut)
    edges = np.cumsum([0, *(framing.shortest + size for size in sizes)])
    whole = int((edges[1:] <= end).sum())
    offsets, follows = plain.walk(padded(content), 0, end, framing)
    assert (offsets.tolist(), follows) == (edges[:whole].tolist(), edges[whole])


@needs_compiled
@given(
    framing=framings,
    sizes=st.lists(st.integers(0, 90), min_size=1, max_size=60),
    lengths=st.lists(st.sampled_from([0, 1, 4, 11, 12, 2000, 2017, 2**31, 2**32 - 1, 2**32 - 16]), max_size=3),
    noise=st.binary(max_size=400),
    data=st.data(),
)
def test_walk(framing, sizes, lengths, noise, data):
    """Whole chains, cyclic, backward-looking, tiny and absurd lengths in them, and bytes at random after them."""
    content = bytearray(b"".join(record(framing, size) for size in sizes))
    edges = np.cumsum([0, *(framing.shortest + size for size in sizes[:-1])]).tolist()
    for length in lengths:
        at = data.draw(st.sampled_from(edges)) + framing.length_at
        struct.pack_into(framing.byte_order + "I", content, at, length)
    buffer, end = padded(bytes(content) + noise), len(content) + len(noise)
    start = data.draw(st.sampled_from([0, *edges, end]))
    ours, follows = compiled.walk(buffer, start, end, framing)
    theirs, expected = plain.walk(buffer, start, end, framing)
    same(ours, theirs)
    assert follows == expected


headers = st.one_of(
    st.just(bytes(12) + b"\x08\x00\x45\x00\x00\x34" + bytes(5) + b"\x06" + bytes(22) + b"\x50"),
    st.just(bytes(12) + b"\x08\x00\x45\x00\x00\x40" + bytes(5) + b"\x06" + bytes(22) + b"\xb0\x02" + bytes(6)),
    st.just(bytes(12) + b"\x86\xdd\x60\x00\x00\x00\x00\x28\x06" + bytes(33)),
    st.just(bytes(14) + b"\x08\x00\x46\x00\x00\x50" + bytes(5) + b"\x06"),
    st.just(b""),
)
options = st.sampled_from(
    [b"\x01", b"\x00", b"\x02\x04\x05\xb4", b"\x03\x03\xff", b"\x05\x0a", b"\x08\x0a" + bytes(8)]
)
tails = st.one_of(st.binary(max_size=80), st.lists(options, max_size=12).map(b"".join))


@needs_compiled
@settings(max_examples=400)
@given(
    frames=st.lists(st.tuples(headers, tails, st.integers(0, 200), st.integers(0, 20)), min_size=1, max_size=8),
    link=st.sampled_from([0, 1, 1, 1, 101, 113, 276, 147]),
)
def test_decoding(frames, link):
    """Headers of every kind with anything in them, cut anywhere: the packet table, and the tally of all others."""
    contents = [(header + tail)[: len(header + tail) - cut] for header, tail, _, cut in frames]
    captured = np.array(list(map(len, contents)))
    n = len(frames)
    records = Records(
        padded(b"".join(contents)), np.cumsum(captured) - captured, captured,
        captured + np.array([beyond for _, _, beyond, _ in frames]), np.arange(n), np.arange(1, n + 1),
        np.full(n, link, np.uint16), np.zeros(n, np.int64),
    )  # fmt: skip
    both = []
    for way in (compiled, plain):
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr("nagle_lab.tcp.loops.usual_segments", way.usual_segments)
            tally = Tally()
            both.append((packets.decode(records, tally), tally.as_dict()))
    (ours, counted), (theirs, expected) = both
    same(tuple(ours.columns), tuple(theirs.columns))
    assert counted == expected


def test_tables_have_the_dtypes_that_the_loops_are_compiled_for():
    with open_capture(CAPTURES[0]) as capture:
        records = next(iter(capture))
    assert [column.dtype.str[1:] for column in records.columns] == ["u1", *["i8"] * 5, "u2", "i8"]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("nagle_lab.tcp.loops.usual_segments", plain.usual_segments)
        table = packets.decode(records, Tally())
    assert [column.dtype for column in table.columns] == [np.dtype(dtype) for dtype in DTYPES]


# ---------------------------------------------------------------------------------------- connections


@needs_compiled
@given(keys=st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=300), dropped=st.integers(0, 7), data=st.data())
def test_find_keys(keys, dropped, data):
    """Keys that crowd, some dropped, some never there."""
    table = keytable.KeyTable()
    known = np.array(keys, np.uint64) & np.uint64(data.draw(st.sampled_from([0xFF, 0x3FF, 2**64 - 1])))
    numbers = table.numbers(known)
    table.drop(np.unique(numbers)[:: dropped + 1])
    asked = np.concatenate([known, known + np.uint64(256), known ^ np.uint64(1)])
    found = [way.find_keys(asked, table._keys, table._numbers) for way in (compiled, plain)]
    same(*found)
    assert (found[0] >= 0).any() or len(np.unique(numbers)) == len(np.unique(numbers)[:: dropped + 1])


@needs_compiled
@given(numbers=st.lists(st.integers(0, 99), max_size=200), spare=st.sampled_from([1, 100, 10_000]))
def test_sort_numbers(numbers, spare):
    numbers = np.array(numbers, np.int64)
    below = int(numbers.max(initial=0)) + spare
    same(compiled.sort_numbers(numbers, below), plain.sort_numbers(numbers, below))


ends = st.sampled_from([(1, 2, 3, 4), (2, 1, 4, 3), (1, 2, 5, 4), (2, 1, 4, 5), (7, 7, 9, 9)])
numbers32 = st.one_of(st.integers(0, 3000), st.sampled_from([2**31, 2**31 - 1, 2**32 - 1, 2**32 - 700]))
flags = st.sampled_from([0x02, 0x12, 0x10, 0x10, 0x18, 0x18, 0x18, 0x11, 0x14, 0x04, 0x00, 0x03])
lengths = st.sampled_from([0, 0, 1, 100, 1448, 2896, 65000])
packet = st.tuples(
    ends, numbers32, numbers32, flags, lengths, st.sampled_from([0, 1, 90_000, 45_000_000, -12_000_000])
)
captures = st.lists(packet, min_size=1, max_size=80)


def table_of(rows) -> Packets:
    """A packet table whose numbers are those drawn."""
    n = len(rows)
    table = Packets.empty(n)
    for column in table.columns:
        column[:] = 0
    sources, seq, ack, flags, length, step = zip(*rows, strict=True)
    table.src_lo[:], table.dst_lo[:], table.sport[:], table.dport[:] = np.array(sources).T
    table.seq[:], table.ack[:], table.flags[:], table.length[:] = seq, ack, flags, length
    table.frame[:], table.ts[:] = np.arange(1, n + 1), 10**18 + np.cumsum(step)
    table.window[:], table.wire[:] = np.arange(n) % 5 * 1000, table.length + 66
    table.wscale[:] = np.where(np.array(flags) & columns.SYN, np.arange(n) % 17 - 1, -1)
    table.mss[:] = np.where(np.array(flags) & columns.SYN, 1460, 0)
    table.stretch[:] = np.arange(n) // 30
    return table


def followed(table: Packets, cuts: list[int], way) -> tuple[list[timeline.Timeline], connections.Connections]:
    """The timelines of the windows that the cuts make, and what is known of the connections after them."""
    known, rows = connections.Connections(), []
    with pytest.MonkeyPatch.context() as patched:
        for module in (connections, keytable):
            for name in ("by_pair", "lower", "sort_numbers", "unwrap", "find_keys"):
                if hasattr(module, name):
                    patched.setattr(module, name, getattr(way, name))
        patched.setattr("nagle_lab.tcp.loops.latest", way.latest)
        patched.setattr("nagle_lab.tcp.loops.notice", way.notice)
        for begin, end in pairwise([0, *sorted(cuts), len(table)]):
            if begin < end:
                window = table.take(np.arange(begin, end))
                rows.append(known.follow(window, way.hash_pairs(window)))
                known.free(known.finish(rows[-1]))
    return rows, known


@needs_compiled
@settings(max_examples=200)
@given(rows=captures, cuts=st.lists(st.integers(0, 80), max_size=3))
def test_unwrap_and_what_a_timeline_is_asked(rows, cuts):
    """Sequence numbers that jump and wrap, sizes of every kind, time that goes back, windows cut anywhere."""
    table = table_of(rows)
    cuts = [min(cut, len(table)) for cut in cuts]
    (ours, known), (theirs, expected) = (followed(table, cuts, way) for way in (compiled, plain))
    reaction = {way: np.full((known.places, 2), 10**12) for way in (compiled, plain)}
    for one, other in zip(ours, theirs, strict=True):
        same(tuple(one.columns), tuple(other.columns))
        for kind in KINDS:
            of_kind = getattr(one, f"is_{kind}")
            same(*(way.latest(one.conn, one.side, of_kind) for way in (compiled, plain)))
        for least in (0, 40_000, timeline.LONG):
            same(*(way.notice(one, least) for way in (compiled, plain)))
        for way in (compiled, plain):
            way.lower(one, *one.noticed.answers[::2], reaction[way])
    same(*reaction.values())
    for name in known.facts.__dataclass_fields__:
        same(getattr(known.facts, name), getattr(expected.facts, name))


@needs_compiled
@settings(max_examples=200)
@given(rows=captures, cuts=st.lists(st.integers(0, 80), max_size=3), clients=st.lists(st.booleans(), min_size=80))
def test_exchanges(rows, cuts, clients):
    """Whoever asks, even where the two change their roles between windows."""
    both = []
    for way in (compiled, plain):
        table = table_of(rows)
        timelines, known = followed(table, [min(cut, len(table)) for cut in cuts], way)
        now = exchanges.nothing(known.places)
        said = []
        for one in timelines:
            client = np.array(clients, np.int8)[: len(one.starts)]
            said.append((way.exchanges(one, client, now), one.exchange, tuple(column.copy() for column in now)))
        both.append(said)
    for ours, theirs in zip(*both, strict=True):
        same(ours, theirs)


@needs_compiled
@pytest.mark.parametrize("number", [-1, 3, 2**40])
def test_numbers_out_of_range_are_refused(number):
    with pytest.raises(IndexError, match="not below 3"):
        compiled.sort_numbers(np.array([0, number, 2]), 3)


@needs_compiled
def test_a_column_with_gaps_is_refused():
    with pytest.raises(ValueError, match="gaps"):
        compiled.sort_numbers(np.arange(10)[::2], 10)
