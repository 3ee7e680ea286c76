"""Hostile and damaged input: a one-line error or a correct beginning that says what it is; never anything else."""

import gzip
import random
import struct
import time
import tracemalloc
import zlib

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from nagle_lab.capture.capture import open_capture
from nagle_lab.capture.clock import MOST_INTERFACES
from nagle_lab.capture.records import Trouble, TroubleKind
from nagle_lab.capture.stored import Stored
from nagle_lab.capture.take import Taker
from nagle_lab.diagnosis import analysis
from nagle_lab.errors import Exit, NagleLabError
from nagle_lab.tcp.plain import PlainEngine
from support.engines import ENGINES, followed
from support.files import rewrite
from support.rows import our_rows, read, segment_row, truth
from support.synthetic import Conversation, Interface, acked_late, pcap_bytes, pcapng_block, pcapng_bytes


def talk() -> Conversation:
    t = acked_late()
    t.server_sends(615)
    return t


TALK = talk().segments
TRUTH = truth(TALK)
PCAP, PCAPNG = pcap_bytes(TALK), pcapng_bytes(TALK, byte_order=">")
# In several members and frames, so that there is something to be had before a cut.
MEMBERS = [gzip.compress(PCAP[i : i + 400], mtime=0) for i in range(0, len(PCAP), 400)]
FRAMES = [zstandard.compress(PCAPNG[i : i + 400]) for i in range(0, len(PCAPNG), 400)]
STORED = {"pcap": PCAP, "pcapng": PCAPNG, "gzip": b"".join(MEMBERS), "zstd": b"".join(FRAMES)}


def attempt(path, **options):
    """Rows and trouble of a capture; None and the error if nothing of it is usable."""
    rows = []
    try:
        with open_capture(path, **options) as capture:
            rows += [segment_row(segment) for segment in read(capture) if not isinstance(segment, int)]
            return rows, capture.trouble
    except NagleLabError as error:
        assert not rows
        assert str(error).startswith(str(path))
        assert "\n" not in str(error)
        assert error.exit_code is Exit.UNUSABLE
        return None, error


@pytest.mark.parametrize("form", STORED)
def test_cut_at_every_byte(tmp_path, form):
    """What is left is a prefix, and is called one; how far it reaches only grows; windows do not show."""
    content, path, reach = STORED[form], tmp_path / "cut", 0
    invisible = invisible_cuts(form)
    for size in range(len(content)):
        rewrite(path, content[:size])
        rows, trouble = attempt(path)
        assert size % 5 or attempt(path, window_bytes=100)[0] == rows
        if rows is None:
            assert reach == 0
            continue
        assert rows == TRUTH[: len(rows)]
        assert len(rows) >= reach
        reach = len(rows)
        assert [t.kind for t in trouble] == ([] if size in invisible else [TroubleKind.TRUNCATED])
        counted = "1 packet before" if len(rows) == 1 else f"{len(rows)} packets before"
        assert not trouble or f"kept the {counted}" in trouble[0]
    assert reach >= len(TRUTH) - (1 if form in ("pcap", "pcapng") else 4)


def invisible_cuts(form: str) -> set[int]:
    """Sizes at which a cut cannot show: exactly between two records, and between two members or frames."""
    records = {
        "pcap": {len(pcap_bytes(TALK[:n])) for n in range(len(TALK))},
        "pcapng": {28} | {len(pcapng_bytes(TALK[:n], byte_order=">")) for n in range(len(TALK))},
    }
    if form in records:
        return records[form]
    plain, parts = ("pcap", MEMBERS) if form == "gzip" else ("pcapng", FRAMES)
    return {len(b"".join(parts[:n])) for n in range(len(parts)) if 400 * n in records[plain]}


@given(
    seed=st.integers(0, 2**32), form=st.sampled_from(list(STORED)), window_bytes=st.sampled_from([64, 500, 1 << 22])
)
def test_random_damage(tmp_path_factory, seed, form, window_bytes):
    """Overwritten, removed and inserted bytes raise nothing but NagleLabError, whatever the window the same."""
    rng, content = random.Random(seed), bytearray(STORED[form])
    for _ in range(rng.randrange(1, 6)):
        at = rng.randrange(len(content))
        match rng.randrange(3):
            case 0:
                content[at : at + rng.randrange(1, 9)] = rng.randbytes(rng.randrange(1, 9))
            case 1:
                content[at] = rng.choice([0, 1, 0x7F, 0x80, 0xFF])
            case _:
                del content[at : at + rng.randrange(1, 40)]
    path = tmp_path_factory.getbasetemp() / "damaged"
    rewrite(path, content)
    rows, trouble = attempt(path, window_bytes=window_bytes)
    again, same_trouble = attempt(path)
    assert rows == again
    assert str(trouble) == str(same_trouble)


def outcome(make, content: bytes, **options):
    """Everything an engine finds out; the error if nothing is usable."""
    try:
        return followed(make, content, **options)
    except NagleLabError as error:
        return str(error)


@pytest.mark.parametrize("form", ["pcap", "pcapng"])
@pytest.mark.parametrize("change", [lambda byte: byte ^ 0x55, lambda _: 0, lambda _: 0xFF], ids=["other", "0", "255"])
def test_damage_at_every_byte(form, change):
    """Nothing but NagleLabError; and each engine finds in it what the plain one does, whatever the window."""
    content = STORED[form]
    for at in range(len(content)):
        damaged = content[:at] + bytes([change(content[at])]) + content[at + 1 :]
        whole = outcome(PlainEngine, damaged)
        for name, engine in ENGINES.items():
            assert outcome(engine, damaged, window_bytes=64) == whole, (name, at)


@pytest.mark.parametrize("form", ["pcap", "pcapng"])
def test_damage_changes_no_engine_s_verdict(form, tmp_path, monkeypatch):
    """From the file to the JSON; or the same line of error."""
    content, path = STORED[form], tmp_path / "damaged"

    def said(make) -> str:
        monkeypatch.setattr(analysis, "make_engine", make)
        try:
            return analysis.analyze(path).to_json()
        except NagleLabError as error:
            return str(error)

    for at in range(0, len(content), 3):
        rewrite(path, content[:at] + bytes([content[at] ^ 0x2A]) + content[at + 1 :])
        assert len({said(engine) for engine in ENGINES.values()}) == 1, at


def test_random_bytes_behind_each_magic(tmp_path):
    rng, path = random.Random(5), tmp_path / "noise"
    heads = [content[:size] for content in STORED.values() for size in (4, 12, 24, 28, 60)]
    for head in heads * 5:
        rewrite(path, head + rng.randbytes(rng.randrange(3000)))
        rows, _ = attempt(path)
        assert rows is None or rows == TRUTH[: len(rows)]


# ------------------------------------------------------------------------------- what a person is told


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "empty: nothing was recorded"),
        (PCAP[:23], "ends within the file header"),
        (PCAPNG[:27], "ends within the file header"),
        (PCAPNG[:8] + bytes(4) + PCAPNG[12:], "no byte-order magic"),
        (PCAPNG[:12] + b"\0\2" + PCAPNG[14:], "pcapng version 2.0 is not 1.x: convert it with editcap"),
        (PCAP[:6] + b"\x03\0" + PCAP[8:], "pcap version 2.3 is not 2.4: convert it with editcap"),
        (b"hello, world\0", ": not a capture: give a pcap or pcapng file"),
        ("18:30:01.1 IP café.80 > 10.0.0.2.5: Flags [.]\n".encode(), "not a capture, but text: record one"),
        (b"s.pcap".ljust(257, b"\0") + b"ustar  \0".ljust(255, b"\0"), "a tar archive: unpack it first"),
        (b"tcpdump: listening on eth0\r\n" + PCAP, "text stands before the capture: record it again, without ssh -t"),
        (b"\0 no text" + PCAP, ": not a capture: give a pcap or pcapng file"),
        (PCAPNG.replace(b"\n", b"\r\n"), "a pcapng file, but line ends were changed on the way: use ssh without -t"),
        (PCAPNG.replace(b"\r\n", b"\n"), "a pcapng file, but line ends were changed on the way: use ssh without -t"),
        (bytes(1000), "not a capture"),
        (b"\xfd7zXZ\0 and so on", "compressed with xz: decompress it first"),
        (b"snoop\0\0\0 and so on", "a snoop file: convert it with editcap"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:", "a pointer of Git LFS, not the file itself"),
        (gzip.compress(PCAP, mtime=0)[:15], "its compressed data ends early, before any packet"),
        (gzip.compress(PCAP, mtime=0)[:10] + b"\xff" * 20, "its compressed data is damaged, before any packet"),
        (zstandard.compress(PCAP)[:-1], "its compressed data ends early, before any packet"),
        (gzip.compress(b"", mtime=0), "empty: nothing was recorded"),
        (gzip.compress(gzip.compress(PCAP, mtime=0), mtime=0), "not a capture"),
    ],
)
def test_nothing_usable(tmp_path, content, says):
    path = tmp_path / "useless"
    path.write_bytes(content)
    rows, error = attempt(path)
    assert rows is None
    assert says in str(error)


@pytest.mark.parametrize(
    ("name", "says"),
    [("trace.ETL", "convert it with etl2pcapng"), ("card.erf", "editcap"), ("x.cap", "give a pcap or pcapng file")],
)
def test_what_only_its_name_tells(tmp_path, name, says):
    path = tmp_path / name
    path.write_bytes(bytes(1000))
    assert says in str(attempt(path)[1])


def test_line_ends_that_were_changed_are_told_from_other_damage(tmp_path):
    packet = struct.pack("<IIII", 1_700_000_000, 0, 60, 60) + b"some lines\r\nand\n".ljust(60, b"\n")
    whole = PCAP[:24] + packet * 20
    for content, says in [
        (whole.replace(b"\n", b"\r\n"), "records are out of place (line ends were changed on the way: use ssh"),
        (whole[:200] + whole[210:], "there is something else than a record"),
        (whole[:-1], "the file ends in the middle of the record: kept the 19 packets before it"),
        (whole[:120], "the file ends in the middle of the record: kept the 1 packet before it"),
    ]:
        path = tmp_path / "changed"
        path.write_bytes(content)
        _, (trouble, *more) = attempt(path)
        assert says in trouble and not more


def test_no_file_to_read(tmp_path):
    for path, says in [
        (tmp_path / "absent", "no such file"),
        (tmp_path, "is a directory"),
        ("a\0b", "cannot be opened"),
    ]:
        with pytest.raises(NagleLabError, match=says):
            open_capture(path)
    with pytest.raises(NagleLabError, match="no capture file given"):
        open_capture([])


def header(captured: int) -> bytes:
    return struct.pack("<IIII", 1_700_000_000, 0, captured, 0)


def epb(interface: int = 0, captured: int = 0) -> bytes:
    return pcapng_block(6, struct.pack(">IIIII", interface, 0, 0, captured, captured), ">")


@pytest.mark.parametrize(
    ("content", "kind", "says"),
    [
        (PCAP[:-1], "truncated", "the file ends in the middle of the record: kept the 6 packets"),
        (PCAP[:-1], "truncated", "stop tcpdump (Ctrl-C) before its file is copied, and leave room on its disk"),
        (
            PCAP + bytes(50),
            "damaged",
            f"at byte {len(PCAP):,} there are zeros instead of a record: kept the 7 packets",
        ),
        (
            PCAP + PCAP,
            "damaged",
            "another capture file begins (give joined files one by one, rotated ones with --rotated)",
        ),
        (PCAP + b"\xff" * 20, "damaged", "there is something else than a record"),
        (PCAP + header(2**31), "damaged", "there is something else than a record"),
        (PCAPNG + bytes(50), "damaged", "a block says it is 0 bytes long"),
        (PCAPNG + struct.pack(">II", 6, 4), "damaged", "a block says it is 4 bytes long"),
        (PCAPNG + struct.pack(">II", 99, 2**32 - 4), "damaged", "a block says it is 4,294,967,292 bytes long"),
        (PCAPNG + struct.pack(">III", 99, 12, 16), "damaged", "a block's two lengths differ"),
        (PCAPNG + struct.pack(">IIIBI", 99, 17, 0, 0, 17), "damaged", "a block's two lengths differ"),
        (PCAPNG + pcapng_block(6, bytes(4), ">"), "damaged", "a block is too short for its type"),
        (PCAPNG + epb(captured=1), "damaged", "a packet is longer than its block"),
        (PCAPNG + epb(interface=1), "damaged", "a packet names an interface never described"),
        (PCAPNG + PCAPNG[:28] + epb(), "damaged", "a packet names an interface never described"),
        (PCAPNG + PCAPNG[:12] + b"\0\2" + PCAPNG[14:], "damaged", "a section header is not one of pcapng 1.x"),
        (PCAPNG + PCAPNG[:8] + bytes(20), "damaged", "a block's two lengths differ"),
        (PCAPNG + PCAPNG[:9], "truncated", "the file ends in the middle of a block"),
        (PCAPNG + PCAP, "damaged", "a block says it is"),
        (gzip.compress(PCAP, mtime=0) + b"tail", "damaged", "its compressed data is followed by something else"),
        (zstandard.compress(PCAP) + b"tail", "damaged", "its compressed data is followed by something else"),
        (gzip.compress(PCAP, mtime=0)[:-4], "truncated", "its compressed data ends early"),
        (gzip.compress(PCAP, mtime=0)[:-1] + b"\xff", "damaged", "its compressed data is damaged"),
        (
            gzip.compress(PCAP[:-1], mtime=0),
            "truncated",
            f"at byte {len(pcap_bytes(TALK[:-1])):,} of its decompressed data",
        ),
    ],
)
def test_a_partial_result_says_why(tmp_path, content, kind, says):
    path = tmp_path / "partial"
    path.write_bytes(content)
    rows, trouble = attempt(path)
    whole = TRUTH[: len(rows)]
    assert rows == whole
    assert len(rows) >= len(TRUTH) - 1
    assert [t.kind for t in trouble] == [kind]
    assert isinstance(trouble[0], Trouble)
    assert trouble[0].startswith(f"{path}: ")
    assert says in trouble[0]


def test_padding_after_gzip_is_not_damage(tmp_path):
    path = tmp_path / "padded"
    path.write_bytes(gzip.compress(PCAP, mtime=0) + bytes(512))
    assert attempt(path) == (TRUTH, [])


def test_skippable_zstd_frames(tmp_path):
    path = tmp_path / "skippable"
    path.write_bytes(b"\x53\x2a\x4d\x18\x05\0\0\0hello")
    with pytest.raises(NagleLabError, match="not a capture"):
        open_capture(path)
    path.write_bytes(
        zstandard.compress(PCAP[:500]) + b"\x53\x2a\x4d\x18\x05\0\0\0hello" + zstandard.compress(PCAP[500:])
    )
    assert attempt(path) == (TRUTH, [])


def test_a_flush_point_saves_what_precedes_damage(tmp_path):
    """Damage in the middle of one gzip member: everything that inflates before it is kept."""
    rng, talk_long = random.Random(1), Conversation()
    for _ in range(2000):
        talk_long.client_sends(rng.randrange(1400))
    segments, deflater = talk_long.segments, zlib.compressobj(wbits=31)
    content = pcap_bytes(segments)
    half = len(content) // 2
    stored = deflater.compress(content[:half]) + deflater.flush(zlib.Z_SYNC_FLUSH)
    path = tmp_path / "half"
    path.write_bytes(stored + b"\xff" * 100)
    rows, trouble = attempt(path)
    assert rows == truth(segments)[: len(rows)]
    assert len(rows) >= 998
    assert [t.kind for t in trouble] == [TroubleKind.DAMAGED]


def test_an_error_while_reading_is_a_partial_result(tmp_path, monkeypatch):
    """A disk that fails in the middle of the file."""
    path = tmp_path / "bad-disk"
    path.write_bytes(PCAP)
    left, real = [300], Stored.readinto

    def fails(self, view):
        if not left[0]:
            self.error = "Input/output error"
            return 0
        count = real(self, view[: left[0]])
        left[0] -= count
        return count

    monkeypatch.setattr(Stored, "readinto", fails)
    rows, trouble = attempt(path)
    assert rows == TRUTH[:3]
    assert "cannot be read from byte 300 on (Input/output error): kept the 3 packets" in trouble[0]


# ------------------------------------------------------------------------------- time and memory


def read_whole(path) -> list[Trouble]:
    with open_capture(path) as capture:
        for _ in capture.read(Taker(lambda *_: None)):
            pass
    return capture.trouble


def least_seconds(path) -> float:
    """Of CPU time, of three times: a busy machine only adds."""
    seconds = []
    for _ in range(3):
        begin = time.process_time()
        read_whole(path)
        seconds.append(time.process_time() - begin)
    return min(seconds)


def peak_bytes(path) -> tuple[int, list[Trouble]]:
    """Of memory, and trouble. To trace memory takes several times as long as reading."""
    tracemalloc.start()
    trouble = read_whole(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak, trouble


def hostile_pcapng(parts: int = 4) -> dict[str, bytes]:
    """Tens to hundreds of kilobytes of what a careless reader takes quadratic time or all memory for; in quarters."""
    little, big = pcapng_bytes([], byte_order="<"), pcapng_bytes([], byte_order=">")
    section, interface = big[:28], big[28:]
    tiny = b"".join(map(epb, range(1250 * parts)))
    return {
        "sections": section * (5_000 * parts),
        "sections with interfaces": big * (2_000 * parts),
        "interfaces": section + interface * (3_250 * parts),
        "sections of alternating byte order": (little + big) * (75 * parts),
        "empty blocks": section + pcapng_block(0x55, b"", ">") * (10_000 * parts),
        "tiny packets on many interfaces": section + interface * (1250 * parts) + tiny,
    }


@pytest.mark.parametrize("case", hostile_pcapng())
def test_hostile_blocks_take_linear_time(tmp_path, case):
    """Four times as much takes four times as long; quadratic would be 16 times."""
    path = tmp_path / "hostile"
    path.write_bytes(hostile_pcapng(1)[case])
    quarter = least_seconds(path)
    path.write_bytes(hostile_pcapng()[case])
    assert least_seconds(path) < 9 * quarter
    peak, trouble = peak_bytes(path)
    assert trouble == []
    assert peak < 60 << 20


def test_limits_that_no_honest_file_reaches(tmp_path):
    path = tmp_path / "limits"
    little, big = pcapng_bytes([], byte_order="<"), pcapng_bytes([], byte_order=">")
    path.write_bytes((little + big) * 600)
    assert "the byte order changes too often" in attempt(path)[1][0]
    path.write_bytes(big[:28] + big[28:] * (MOST_INTERFACES + 1))
    assert "a section has too many interfaces" in attempt(path)[1][0]


def test_a_record_larger_than_the_window(tmp_path):
    """The window grows for it, within limits."""
    path = tmp_path / "jumbo"
    jumbo = pcapng_block(0x55, bytes(12 << 20), ">")
    path.write_bytes(PCAPNG[:28] + jumbo + PCAPNG[28:])
    assert our_rows(path) == TRUTH
    assert peak_bytes(path)[0] < 60 << 20


def test_absurd_times(tmp_path):
    """Time stamps that do not fit into int64 nanoseconds wrap; they do not raise."""
    path = tmp_path / "times"
    content = pcapng_bytes(TALK, interfaces=[Interface(resolution=0, offset_s=7)])
    path.write_bytes(content.replace(struct.pack("<q", 7), struct.pack("<q", 2**62)))
    rows, trouble = attempt(path)
    assert [row._replace(ts_ns=0) for row in rows] == [row._replace(ts_ns=0) for row in TRUTH]
    assert trouble == []
