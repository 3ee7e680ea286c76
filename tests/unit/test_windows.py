"""A capture that arrives in pieces gives what it gives whole."""

import struct
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.engines import contents_of, followed, found_in, plainly
from support.stories import CLEAN, STALLED, of_every_kind, one_after_the_other, talk
from support.synthetic import MS, SECOND, US, Conversation, Packet, merge, pcap_bytes, pcapng_bytes


@pytest.fixture(scope="module")
def packets() -> list[Packet]:
    """Fifteen conversations of every kind, interleaved."""
    again = {"exchanges": 3, "client": ("10.0.0.7", 50_000)}
    reused = [talk(STALLED[0], client_isn=7 + i, t0_ns=10**18 + i * SECOND, **again) for i in range(3)]
    return merge(*(t.seen_at("middle") for t in [*reused, *of_every_kind(6)]))


@pytest.fixture(scope="module", params=[pcap_bytes, pcapng_bytes], ids=["pcap", "pcapng"])
def capture(request, packets) -> bytes:
    """A file of them."""
    return request.param(packets)


def test_the_whole_has_stalls_and_clean_connections(engine, capture):
    said = followed(engine, capture)
    whole = found_in(said)
    assert len(whole["stalls"]) == 5 * 5 + 3 * 2  # three_writes stalls twice
    assert whole["sums"][0]["exchanges"] == 6 * len(STALLED + CLEAN) + 3 * 3
    assert len(said["exchange"]) == whole["sums"][0]["exchanges"]
    assert found_in(followed(engine, capture, exchanges=False)) == whole


def test_one_packet_at_a_time(engine, capture):
    """And a few bytes at a time, through the smallest window."""
    whole = plainly(capture)
    assert followed(engine, capture, ends_of_records(capture)) == whole
    assert followed(engine, capture, range(0, len(capture), 7), window_bytes=64) == whole


def ends_of_records(capture: bytes) -> list[int]:
    ends, at, is_pcap = [], 24, capture.startswith(b"\x4d\x3c")
    at = 24 if is_pcap else 0
    while at < len(capture):
        (length,) = struct.unpack_from("<I", capture, at + (8 if is_pcap else 4))
        at += length + 16 if is_pcap else length
        ends.append(at)
    return ends


@settings(max_examples=30)
@given(data=st.data())
def test_any_cuts(engine, capture, data):
    cuts = data.draw(st.lists(st.integers(1, len(capture) - 1), max_size=12, unique=True))
    size = data.draw(st.sampled_from([64, 300, 4096, 1 << 20]))
    said = followed(engine, capture, cuts, window_bytes=size)
    assert said == plainly(capture)


DELAYS = st.sampled_from([0, 5 * MS, 19 * MS, 20 * MS, 25 * MS, 30 * MS, 45 * MS, 210 * MS, 480 * MS, 510 * MS])


@settings(max_examples=60)
@given(
    delays=st.lists(st.tuples(DELAYS, DELAYS, DELAYS), min_size=1, max_size=12),
    jitter=st.integers(-3, 3),
    begins=st.sampled_from(["handshake", "data", "late"]),
    size=st.sampled_from([64, 300, 100_000]),
)
def test_delays_of_all_kinds_in_windows_of_any_size(engine, delays, jitter, begins, size):
    """However late an end shows how fast it reacts, and whoever turns out to be the client."""
    talk = Conversation()
    talk.handshake()
    for think, ack, pause in delays:
        talk.client_sends(100)
        talk.server_sends(200, after_ns=think + jitter)
        talk.client_acks(after_ns=ack + jitter + 3)
        talk.server_sends(300, after_ns=pause + 10)
        talk.client_acks(after_ns=pause + jitter + 3)
    segments = talk.segments if begins == "handshake" else talk.segments[3:]
    if begins == "late":  # the server seems to be the client, for it spoke last: until its SYN-ACK comes after all
        syn_ack, at = talk.segments[1], segments[-1].ts_ns
        nothing = replace(syn_ack, flags="A", seq=syn_ack.seq + 1, ts_ns=segments[0].ts_ns - US)
        segments = [nothing, *segments, replace(syn_ack, ts_ns=at + US)]
    content = pcap_bytes(segments)
    said = followed(engine, content, window_bytes=size)
    assert said == plainly(content)
    (row,) = contents_of(said, "connection")
    client = row["address"][16 * row["client"] :][12:16]
    assert client == bytes((10, 0, 0, 2 if begins == "late" else 1))


def test_many_connections_in_many_windows(engine):
    """What is known of each stays its own."""
    talks = one_after_the_other()
    content = pcap_bytes(merge(*(t.seen_at("server") for t in talks)))
    whole = plainly(content)
    assert found_in(whole)["sums"][0]["exchanges"] == 3 * len(talks)
    assert followed(engine, content, window_bytes=4096) == whole
    alone = [plainly(pcap_bytes(t.seen_at("server"))) for t in talks[:12]]
    assert [len(contents_of(said, "candidate")) for said in alone] == [
        sum(row["connection"] == number for row in contents_of(whole, "candidate")) for number in range(12)
    ]
