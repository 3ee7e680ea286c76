"""A capture that arrives in pieces gives what it gives whole."""

import tempfile
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nagle_lab.capture import open_capture
from nagle_lab.diagnosis.analysis import Analysis
from nagle_lab.diagnosis.stalls import is_before_timer, is_late, is_settled
from nagle_lab.packet import Packets, Tally, decode
from nagle_lab.tcp import connections
from nagle_lab.tcp.loops import hash_pairs
from support.stories import CLEAN, STALLED, talk
from support.synthetic import MS, SECOND, US, Conversation, merge, pcap_bytes


@pytest.fixture(scope="module")
def packets(tmp_path_factory) -> Packets:
    """Twelve conversations of every kind, interleaved."""
    path = tmp_path_factory.mktemp("whole") / "all.pcap"
    again = {"exchanges": 3, "client": ("10.0.0.7", 50_000)}
    reused = [talk(STALLED[0], client_isn=7 + i, t0_ns=10**18 + i * SECOND, **again) for i in range(3)]
    talks = reused + [
        talk(story, exchanges=6, client=("10.0.0.1", 40_000 + i), t0_ns=10**18 + i * 777 * US, rtt_ns=i % 3 * 10 * MS)
        for i, story in enumerate(STALLED + CLEAN)
    ]
    path.write_bytes(pcap_bytes(merge(*(t.seen_at("middle") for t in talks))))
    with open_capture(path) as capture:
        (whole,) = (decode(records, Tally()) for records in capture)
    return whole


def found(packets: Packets, cuts: list[int]):
    analysis = Analysis()
    edges = [0, *sorted(cuts), len(packets)]
    live = []
    for begin, end in pairwise(edges):
        window = packets.take(np.arange(begin, end))
        analysis.follow(window, hash_pairs(window))
        live.append(len(analysis.connections.live()))
    findings = analysis.findings()
    return {
        "stalls": findings.stalls.take(np.arange(len(findings.stalls))).tolist(),
        "connections": findings.ledger.take(np.arange(len(findings.ledger))).tobytes(),
        "gaps": [
            listed(gaps.percentiles([1, 25, 50, 75, 99, 100]))
            for gaps in (findings.exchanges.to_ack, findings.exchanges.to_response, findings.exchanges.total)
        ],
        "totals": (findings.totals.whole, findings.totals.by_role),
        "round trips": [listed(of.percentiles([50, 100])) for of in findings.totals.round_trip.values()],
        "silences": findings.silences,
        "rejected": findings.rejected,
        "most live": max(live),
    }


def listed(percentiles: np.ndarray | None) -> list[int] | None:
    return None if percentiles is None else percentiles.tolist()


def test_the_whole_has_stalls_and_clean_connections(packets):
    whole = found(packets, [])
    assert len(whole["stalls"]) == 5 * 5 + 3 * 2  # three_writes stalls twice
    assert whole["totals"][0]["answered"] == 6 * len(STALLED + CLEAN) + 3 * 3


def test_one_packet_at_a_time(packets):
    assert found(packets, list(range(1, len(packets)))) == found(packets, [])


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_any_cuts(packets, data):
    cuts = data.draw(st.lists(st.integers(1, len(packets) - 1), max_size=12, unique=True))
    assert found(packets, cuts) == found(packets, [])


DELAYS = st.sampled_from([0, 5 * MS, 19 * MS, 20 * MS, 25 * MS, 30 * MS, 45 * MS, 210 * MS, 480 * MS, 510 * MS])


@settings(max_examples=100)
@given(
    delays=st.lists(st.tuples(DELAYS, DELAYS, DELAYS), min_size=1, max_size=12),
    jitter=st.integers(-3, 3),
    begins=st.sampled_from(["handshake", "data", "late"]),
    size=st.sampled_from([1, 3, 1_000]),
)
def test_what_is_counted_at_once_is_what_the_end_of_the_capture_says(delays, jitter, begins, size):
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
    with tempfile.NamedTemporaryFile() as file:
        Path(file.name).write_bytes(pcap_bytes(segments))
        with open_capture(file.name) as capture:
            (packets,) = (decode(records, Tally()) for records in capture)
    cuts = list(range(size, len(packets), size))
    at_once = found(packets, cuts)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(
            "nagle_lab.diagnosis.findings.is_settled", lambda wait, reaction: np.zeros(len(wait), np.bool_)
        )
        assert found(packets, cuts) == at_once


def test_what_is_settled_stays_so():
    """Of every wait up to 600 ms, whatever its end's reaction was until then and is at last."""
    waits, before, at_last = (column.ravel() for column in np.mgrid[0:600:7, 0:600:7, 0:600:7] * MS)
    settled = is_settled(waits, before) & (at_last <= before)
    assert settled.any()
    for judged in (is_late, is_before_timer):
        assert (judged(waits, before) == judged(waits, at_last))[settled].all()


@pytest.fixture(scope="module")
def many(tmp_path_factory) -> Packets:
    """A hundred and more connections, begun one after the other."""
    path = tmp_path_factory.mktemp("many") / "many.pcap"
    talks = [
        talk(story, exchanges=3, client=("10.0.0.1", 20_000 + i), t0_ns=10**18 + i * 3 * MS)
        for i, story in enumerate(MANY_STORIES)
    ]
    path.write_bytes(pcap_bytes(merge(*(t.seen_at("server") for t in talks))))
    with open_capture(path) as capture:
        (packets,) = (decode(records, Tally()) for records in capture)
    return packets


MANY_STORIES = (STALLED + CLEAN) * 15


def test_many_connections_in_many_windows(many):
    """Tables that grow with the connections keep what was in them."""
    whole = found(many, [])
    assert whole["totals"][0]["answered"] == 3 * len(MANY_STORIES)
    assert found(many, list(range(40, len(many), 40))) == whole


def test_under_pressure_only_what_is_over_is_put_away_early(many, monkeypatch):
    """With more live connections than are kept, closed ones go first: no stall and no exchange is lost."""
    whole = found(many, [])
    monkeypatch.setattr(connections, "MANY", 60)
    pressed = found(many, list(range(40, len(many), 40)))
    assert pressed["stalls"] and [stall[3:] for stall in pressed["stalls"]] == [
        stall[3:] for stall in whole["stalls"]
    ]
    assert pressed["totals"][0]["answered"] == whole["totals"][0]["answered"]
    assert pressed["silences"] == whole["silences"]


def test_a_flood_of_syns_is_forgotten_as_it_goes(tmp_path, monkeypatch):
    """However many connections nobody answers, so many are remembered at a time; all are counted."""
    monkeypatch.setattr(connections, "MANY", 64)
    syns = [Conversation(client=("10.0.0.1", 1_000 + i), t0_ns=10**18 + i * US) for i in range(4_000)]
    for syn in syns:
        syn.handshake()
    path = tmp_path / "flood.pcap"
    path.write_bytes(pcap_bytes([syn.segments[0] for syn in syns]))
    with open_capture(path) as capture:
        (flood,) = (decode(records, Tally()) for records in capture)
    analysis, most = Analysis(), 0
    for begin in range(0, len(flood), 50):
        window = flood.take(np.arange(begin, begin + 50))
        analysis.follow(window, hash_pairs(window))
        most = max(most, len(analysis.connections.live()))
    assert most <= 64
    assert len(analysis.findings().ledger) == len(syns)
