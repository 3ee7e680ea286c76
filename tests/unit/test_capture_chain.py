"""The lock-step walk is the serial walk, whatever the bytes and wherever the lanes start."""

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nagle_lab.capture.chain import LANE_BYTES, MIN_LANES, Framing, walk, walk_lockstep, walk_serial
from nagle_lab.capture.records import PADDING

PCAP = Framing("<", length_at=8, uncounted=16, shortest=16, longest=16 + 2000)
PCAP_BIG_ENDIAN = Framing(">", length_at=8, uncounted=16, shortest=16, longest=16 + 2000)
PCAPNG = Framing("<", length_at=4, uncounted=0, shortest=12, longest=2000)
FRAMINGS = [PCAP, PCAP_BIG_ENDIAN, PCAPNG]


def padded(content: bytes) -> np.ndarray:
    return np.frombuffer(content + bytes(PADDING), np.uint8)


def record(framing: Framing, body: int, fill: int = 0) -> bytes:
    content = bytearray([fill]) * (framing.shortest + body)
    counted = len(content) - framing.uncounted
    struct.pack_into(framing.byte_order + "I", content, framing.length_at, counted)
    return bytes(content)


def agree(buffer: np.ndarray, starts: list[int], end: int, framing: Framing) -> None:
    offsets, follows = walk_serial(buffer, starts[0], end, framing)
    lanes = np.array(sorted({*starts, end}), np.int64)
    lockstep_offsets, lockstep_follows = walk_lockstep(buffer, lanes, end, framing)
    assert lockstep_offsets.tolist() == offsets.tolist()
    assert lockstep_follows == follows


sizes = st.lists(st.integers(0, 90), min_size=1, max_size=60)


@given(framing=st.sampled_from(FRAMINGS), sizes=sizes, data=st.data(), cut=st.integers(0, 40))
def test_true_and_false_starts(framing, sizes, data, cut):
    """Some lanes begin on records, some in between; the last record may be cut off."""
    content = b"".join(record(framing, size) for size in sizes)
    end = max(1, len(content) - cut)
    edges = np.cumsum([0] + [framing.shortest + size for size in sizes]).tolist()
    guesses = data.draw(st.lists(st.one_of(st.sampled_from(edges), st.integers(0, len(content))), max_size=12))
    agree(padded(content), [0, *(guess for guess in guesses if guess < end)], end, framing)


@given(framing=st.sampled_from(FRAMINGS), content=st.binary(min_size=1, max_size=800), data=st.data())
def test_random_bytes(framing, content, data):
    starts = data.draw(st.lists(st.integers(0, max(0, len(content) - 1)), max_size=8))
    agree(padded(content), [0, *starts], len(content), framing)


@given(
    framing=st.sampled_from(FRAMINGS),
    sizes=sizes,
    data=st.data(),
    length=st.sampled_from([0, 1, 4, 11, 12, 2000, 2017, 2**31, 2**32 - 1, 2**32 - 16]),
)
def test_a_damaged_length(framing, sizes, data, length):
    """Cyclic, backward-looking, tiny and absurd lengths in the middle of the chain."""
    content = bytearray(b"".join(record(framing, size) for size in sizes))
    edges = np.cumsum([0] + [framing.shortest + size for size in sizes[:-1]]).tolist()
    damaged = data.draw(st.sampled_from(edges))
    struct.pack_into(framing.byte_order + "I", content, damaged + framing.length_at, length)
    agree(
        padded(bytes(content)), [0, *data.draw(st.lists(st.sampled_from(edges), max_size=8))], len(content), framing
    )


def test_a_chain_of_lies():
    """Payloads full of plausible records: most lanes start on one, and none of them counts."""
    inner = b"".join(record(PCAP, 20) for _ in range(30))
    content = b"".join(record(PCAP, 0)[:-4] + struct.pack("<I", 7) for _ in range(3))
    for _ in range(40):
        outer = bytearray(16) + inner
        struct.pack_into("<I", outer, 8, len(inner))
        content += bytes(outer)
    agree(padded(content), list(range(0, len(content), 501)), len(content), PCAP)


@pytest.mark.parametrize("framing", FRAMINGS, ids=["pcap", "pcap big-endian", "pcapng"])
def test_walk_takes_lanes_on_a_large_buffer(framing, monkeypatch):
    """The public entry: many lanes, honest and dishonest guesses, no guess; one answer."""
    rng = np.random.default_rng(7)
    sizes = rng.integers(0, 200, 2 * MIN_LANES * LANE_BYTES // 100)
    content = b"".join(record(framing, int(size)) for size in sizes)
    edges = np.cumsum([0, *(framing.shortest + sizes)])
    buffer, end = padded(content), len(content)

    def honest(at: int, before: int) -> int:
        edge = int(edges[np.searchsorted(edges, at)])
        return edge if edge < before else -1

    lanes = []
    monkeypatch.setattr(
        "nagle_lab.capture.chain.walk_lockstep", lambda *args: lanes.append(len(args[1])) or walk_lockstep(*args)
    )
    expected = edges[:-1].tolist()
    for guess in (honest, lambda at, before: at, lambda at, before: -1, None):
        offsets, follows = walk(buffer, 0, end, framing, guess)
        assert offsets.tolist() == expected
        assert follows == end
    assert len(lanes) == 2
    assert min(lanes) > MIN_LANES
