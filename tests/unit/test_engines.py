"""The engines give the same, to the last bit, on anything; and on every committed capture the same verdicts."""

import itertools
import os
import random
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nagle_lab.diagnosis import analysis
from nagle_lab.tcp import compiled
from nagle_lab.tcp import make_engine as engine_here
from nagle_lab.tcp.durations import MOST
from nagle_lab.tcp.events import MOST_SAMPLES, EndedBy
from nagle_lab.tcp.layout import LAYOUTS
from nagle_lab.tcp.learned import COPY, SAMPLES
from nagle_lab.tcp.machine import ASKING
from nagle_lab.tcp.waited import FULL_WAIT, SHORT
from support.engines import ENGINES, contents_of, followed, needs_compiled, plainly
from support.stories import CLEAN, STALLED, talk
from support.synthetic import (
    ETHERNET,
    MS,
    RAW,
    SECOND,
    US,
    Conversation,
    Frame,
    Interface,
    Segment,
    ip_bytes,
    merge,
    pcap_bytes,
    pcapng_bytes,
    redirected,
)
from support.truth import lookalikes, references

CAPTURES = [capture.path for capture in references() + lookalikes()]

CC = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()

# ----------------------------------------------------------------------------------------------- set-up


def test_set_up_compiled_the_engine_where_there_is_a_compiler():
    if shutil.which(CC[0]) is None or os.environ.get(compiled.COMPILED) == "0":
        pytest.skip(f"there is no {CC[0]}, or {compiled.COMPILED}=0")
    assert compiled.LIBRARY is not None
    assert type(engine_here()).__name__ == "CompiledEngine"


@needs_compiled
def test_a_library_of_other_sources_is_not_used(tmp_path, monkeypatch):
    """Whoever pulls a changed machine.c and does not set up again goes on with plain Python."""

    def made(*options: str) -> Path:
        """A folder with the library; each has its own, for what is loaded once is not read again."""
        folder = Path(tempfile.mkdtemp(dir=tmp_path))
        sources = [source for source in compiled.SOURCES if source.suffix == ".c"]
        name = folder / f"_engine{sysconfig.get_config_var('EXT_SUFFIX')}"
        subprocess.run([*CC, "-std=c99", "-shared", "-fPIC", *options, "-o", name, *sources], check=True)
        return folder

    assert compiled.LIBRARY.nagle_lab_source() == compiled.checksum()  # by set-up
    of_these, by_hand = made(f"-DSOURCE={compiled.checksum()}"), made(f"-DSOURCE={compiled.checksum() ^ 1}")
    assert compiled.load(of_these)
    assert compiled.load(by_hand) is None
    assert compiled.load(tmp_path) is None
    monkeypatch.setattr(compiled, "checksum", lambda: 1)
    assert compiled.load(of_these) is None
    monkeypatch.setattr(compiled, "SOURCES", (tmp_path / "absent.c",))
    assert compiled.load(of_these)  # a wheel brings the library alone
    monkeypatch.setenv(compiled.COMPILED, "0")
    assert compiled.load(of_these) is None


def test_what_was_made_for_another_machine_is_left_alone(tmp_path):
    (tmp_path / f"_engine{sysconfig.get_config_var('EXT_SUFFIX')}").write_bytes(b"\x7fELF of something else")
    assert compiled.load(tmp_path) is None


@needs_compiled
def test_plain_python_is_had_for_the_asking():
    program = "from nagle_lab.tcp import make_engine; print(type(make_engine()).__name__)"
    for wanted, name in (("0", "PlainEngine"), ("1", "CompiledEngine")):
        said = subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, compiled.COMPILED: wanted},
            check=True,
            capture_output=True,
        )
        assert said.stdout.decode().strip() == name


# ------------------------------------------------------------------------------------- random segments

ENDS = st.sampled_from([
    ("10.0.0.1", 1000, "10.0.0.2", 80), ("10.0.0.2", 80, "10.0.0.1", 1000), ("10.0.0.1", 1001, "10.0.0.2", 80),
    ("10.0.0.2", 80, "10.0.0.1", 1001), ("10.0.0.7", 9, "10.0.0.7", 9), ("fd00::1", 5, "fd00::2", 6),
])  # fmt: skip
SEQUENCE = st.one_of(st.integers(0, 3000), st.sampled_from([2**31, 2**31 - 1, 2**32 - 1, 2**32 - 700]))
FLAGS = st.sampled_from(["S", "SA", "A", "A", "PA", "PA", "PA", "FA", "RA", "R", "", "FS"])
LENGTH = st.sampled_from([0, 0, 1, 100, 536, 1448, 2896, 65000])
STEP = st.sampled_from([0, 1, 90_000, 5 * MS, 45 * MS, 45 * MS + 7, 250 * MS, -12 * MS, 61_000 * MS])  # ns
PACKET = st.tuples(
    ENDS, SEQUENCE, SEQUENCE, FLAGS, LENGTH, STEP, st.sampled_from([0, 1, 500, 65_535]), st.integers(0, 3),
    st.sampled_from([0, 0, 0, 1, 2]),
)  # fmt: skip


def frames_of(rows) -> list[Frame]:
    """Packets whose numbers are those drawn; some are the same as the one before, captured once more."""
    frames, ts = [], 10**18
    for number, (ends, seq, ack, flags, length, step, window, identity, interface) in enumerate(rows):
        ts += step
        is_syn = "S" in flags
        segment = Segment(
            ts, *ends, seq, ack, flags, length, window, mss=1460 if is_syn and number % 3 else None,
            wscale=number % 17 if is_syn and number % 2 else None, timestamps=(1, 1) if number % 5 else None,
            ttl=63 + number % 7 // 5,
        )  # fmt: skip
        data = bytearray(ip_bytes(segment))
        if ":" not in segment.src:
            data[4:6] = identity.to_bytes(2, "big")
        frames.append(Frame(ts, bytes(data), interface=interface))
        if identity == 3:
            frames.append(Frame(ts + 1000, bytes(data), interface=interface))
    return frames


@settings(max_examples=200)
@given(
    rows=st.lists(PACKET, min_size=1, max_size=80),
    cuts=st.lists(st.integers(0, 10_000), max_size=5),
    size=st.sampled_from([64, 300, 1 << 20]),
    exchanges=st.booleans(),
)
def test_random_segments(engine, rows, cuts, size, exchanges):
    """Sequence numbers that jump and wrap, sizes of every kind, time that goes back, windows cut anywhere."""
    content = pcapng_bytes(frames_of(rows), interfaces=[Interface(RAW)] * 3)
    said = followed(engine, content, cuts, window_bytes=size, exchanges=exchanges)
    assert said == plainly(content, exchanges=exchanges)
    of_each = said["counts"][2] - said["counts"][3]
    assert sum(row["packets", 0] + row["packets", 1] for row in contents_of(said, "connection")) == of_each


def test_another_interface_that_is_seconds_ahead(engine):
    """As where captures of two hosts are merged: nothing can have come after the release, and yet before it."""
    packets = []
    for segment in talk(STALLED[0]).segments:
        packets.append(segment)
        if segment.flags == "A" and segment.length == 0:
            packets.append(
                replace(segment, ts_ns=segment.ts_ns + 10_000 * MS, src=segment.dst, sport=9, dst="10.0.0.9", dport=9,
                        flags="PA", length=9, interface=1)
            )  # fmt: skip
    candidates = contents_of(followed(engine, pcapng_bytes(packets, interfaces=[Interface()] * 2)), "candidate")
    alone = [row["since_host_busy"] for row in candidates if row["ack_to_release"] < MS]
    assert 0 in alone and min(alone) == 0


# Lengths, pauses and windows at which something begins to count as small, late, idle, full.
LENGTHS = st.sampled_from([1, 100, 237, 238, 399, 400, 499, 500, 535, 536, 1447, 1448, 1449, 2896, 3000])
LATER = st.sampled_from([
    0, 1, 1000, 49_999, 50_000, SHORT - 1, SHORT, SHORT + 1, FULL_WAIT, COPY + 1,
    20 * MS - 1, 20 * MS, 20 * MS + 1, 45 * MS, 45 * MS, 45 * MS, 200 * MS - 1, 200 * MS,
    230 * MS, -12 * MS, 60_000 * MS, 60_000 * MS + 1,
])  # fmt: skip
WINDOWS = st.sampled_from([None, None, None, 0, 1, 3, 5, 100, 238, 638, 639, 65_535])
HELD = ("held by server", "held by client", "held astray by server", "held behind full ones by server")
MOVES = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["client_sends", "server_sends"]), LENGTHS, LATER, WINDOWS),
        st.tuples(st.sampled_from(["client_acks", "server_acks"]), st.just(0), LATER, WINDOWS),
        st.tuples(st.sampled_from(["client_acks_less", "server_acks_less"]), st.just(100), LATER, WINDOWS),
        st.tuples(st.sampled_from(["client_retransmits", "server_retransmits"]), st.just(0), LATER, st.none()),
        st.tuples(st.sampled_from(HELD), LENGTHS, LATER, WINDOWS),
        st.tuples(st.sampled_from(["client_fin", "server_fin", "client_reset"]), st.just(0), LATER, WINDOWS),
    ),
    max_size=40,
)
HANDSHAKES = st.tuples(
    st.sampled_from([536, 1460, 65_495]),  # MSS
    st.tuples(*[st.sampled_from([None, 0, 1, 7, 14, 15])] * 2),  # window scale of each side
    st.tuples(*[st.sampled_from([64_240, 800, 537, 536, 535])] * 2),  # window of each side's SYN
    st.booleans(),  # timestamps
    st.sampled_from(["S SA A", "S SA A", "S SA A", "SA A", "A", "S S SA A", ""]),  # what of it was captured
)


def held_behind_full_ones(talked: Conversation, small: Segment, after: int, fields: dict[str, int]) -> None:
    """Full segments behind the small one of the server, and a tail.

    The ACK comes after these, or before some, and may acknowledge the first of them.
    """
    begin_ns, many, before_ack = small.ts_ns + after, 1 + small.length % 9, small.length % 7
    ack = (small.seq + small.length + small.length % 2 * talked.full_segment) % 2**32
    for place in range(max(many, before_ack + 1)):
        at_ns = begin_ns + place * MS // 2
        if place == before_ack:
            talked.client_acks(at_ns=at_ns, ack=ack, **fields)
        if place < many:
            talked.server_sends(talked.full_segment, at_ns=at_ns)
    if small.length % 3 == 0:
        talked.client_sends(1, at_ns=begin_ns + 6 * MS)
    talked.server_sends(400, at_ns=begin_ns + 8 * MS)


def move(talked: Conversation, what: str, length: int, after: int, window: int | None) -> None:
    fields = {} if window is None else {"window": window}
    if what.startswith("held"):  # two small segments, a late ACK between them
        who, other = ("client", "server") if what.endswith("client") else ("server", "client")
        small = getattr(talked, f"{who}_sends")(length)
        if "full" in what:
            held_behind_full_ones(talked, small, after, fields)
            return
        if "astray" in what:  # a break of time
            getattr(talked, f"{other}_acks")(after_ns=-30 * MS, ack=1)
            after += 30 * MS
        getattr(talked, f"{other}_acks")(after_ns=after, **fields)
        getattr(talked, f"{who}_sends")(400, after_ns=1000)
    elif what.endswith("less"):  # than it has acknowledged before
        end = talked.client if what.startswith("client") else talked.server
        getattr(talked, what.removesuffix("_less"))(after_ns=after, ack=(end.can_ack - length) % 2**32, **fields)
    elif what.endswith("retransmits"):
        end = talked.client if what.startswith("client") else talked.server
        if end.last_data:
            getattr(talked, what)(after_ns=after)
    elif what.endswith(("fin", "reset")):
        who, kind = what.split("_")
        getattr(talked, f"{who}_sends")(0, after_ns=after, flags="FA" if kind == "fin" else "RA", **fields)
    elif length:
        getattr(talked, what)(length, after_ns=after, **fields)
    else:
        getattr(talked, what)(after_ns=after, **fields)


@settings(max_examples=500)
@given(
    moves=MOVES,
    handshake=HANDSHAKES,
    near=st.sampled_from([1_000_000, 2**32 - 500]),
    size=st.sampled_from([64, 1 << 20]),
)
def test_random_conversations(engine, moves, handshake, near, size):
    """Numbers that fit together, so that there is something to find; every threshold met, and missed by one."""
    mss, scales, windows, timestamps, captured = handshake
    talked = Conversation(mss=mss, timestamps=timestamps, client_isn=near, server_isn=near)
    talked.handshake()
    for what in moves:
        move(talked, *what)
    syn, syn_ack, ack, *rest = (flight.segment for flight in talked._flights)  # as sent, also where time goes back
    syn, syn_ack = (
        replace(segment, wscale=scale, window=window)
        for segment, scale, window in zip((syn, syn_ack), scales, windows, strict=True)
    )
    said_first = {"S": syn, "SA": syn_ack, "A": ack}
    content = pcap_bytes([*(said_first[flags] for flags in captured.split()), *rest])
    assert followed(engine, content, window_bytes=size) == plainly(content)


def test_every_threshold_of_a_candidate(engine):
    """Met, or missed by one: how late the release is, what room the window had, whether time broke in between."""
    waits, windows = (SHORT - 1 - 20 * US, SHORT - 20 * US, SHORT), (637, 638, 639)
    for wait, window, is_astray in itertools.product(waits, windows, (False, True)):
        c = Conversation(timestamps=False)
        c.handshake(wscale=0)
        c.client_sends(84, window=window)
        c.server_sends(238)
        c.client_acks(after_ns=wait, window=window)
        c.server_sends(400)
        *before, release = (flight.segment for flight in c._flights)
        astray = [replace(before[0], sport=9, ts_ns=release.ts_ns - 15 * MS)] if is_astray else []
        content = pcap_bytes([*before, *astray, release])
        said = followed(engine, content)
        assert said == plainly(content)
        assert len(said["candidate"]) == (wait >= SHORT - 20 * US and window >= 638 and not is_astray)


@pytest.mark.parametrize("story", STALLED + CLEAN, ids=lambda story: story.__name__)
@pytest.mark.parametrize("begins", [0, 1, 2, 3])
def test_every_story(engine, story, begins):
    """Whatever of its handshake is in the capture, wherever it was taken."""
    for position in ("client", "middle", "server"):
        content = pcap_bytes(talk(story, 5, rtt_ns=10 * MS).seen_at(position)[begins:])
        assert followed(engine, content, window_bytes=300) == plainly(content)


@pytest.mark.parametrize("ended", [False, True])
def test_the_first_connection_of_a_port_learns_of_the_second_if_it_is_live(engine, ended):
    """Another one may have its place by then: it comes from elsewhere, to a port that shows the server."""
    first = Conversation(("10.0.0.1", 40_000), ("10.0.0.2", 50_051))
    first.handshake()
    server = [first.server_sends(60), first.server_sends(60, after_ns=2 * MS)]
    anew = [
        replace(server[0], ts_ns=server[1].ts_ns + 1, flags="S", length=0, seq=server[0].seq + 99),
        Segment(server[1].ts_ns + 2, "10.0.0.8", 40_008, "10.0.0.2", 80, 1, 1, "PA", 10),
    ]
    second = Segment(server[1].ts_ns + 3, "10.0.0.9", 40_009, "10.0.0.2", 50_051, 1, 1, "PA", 10)
    content = pcap_bytes([*server, *(anew if ended else ()), second])
    said = followed(engine, content)
    assert said == plainly(content)
    one, *_ = contents_of(said, "connection")
    assert one["port", one["client"]] == (50_051 if ended else 40_000)


@needs_compiled
def test_the_first_connection_of_a_port_is_not_searched_for():
    """It takes no longer where many others are live that began before it."""
    others = [
        Segment(10**18, "10.1.{}.{}".format(*divmod(number, 250)), 40_000, "10.0.0.2", 80, 1, 1, "PA", 1)
        for number in range(16_000)
    ]
    ends = [(client, port) for client in ("10.0.0.3", "10.0.0.4") for port in range(33_000, 39_000, 2)]
    pairs = [Segment(10**18, client, port, "10.0.0.2", port + 1, 1, 1, "PA", 1) for client, port in ends]

    def seconds(content: bytes) -> float:
        begin = time.process_time()
        followed(ENGINES["compiled"], content)
        return time.process_time() - begin

    first, last = pcap_bytes(pairs + others), pcap_bytes(others + pairs)
    assert min(seconds(last) for _ in range(3)) < 2 * min(seconds(first) for _ in range(3))


@pytest.mark.parametrize("begins", [3, 4, 5, 6])
@pytest.mark.parametrize("others", ["", "a handshake before", "a handshake later"])
def test_the_end_that_several_connections_have_is_the_server(engine, begins, others):
    """Both ports may be a client's, and who sends first in the capture says little where that began later."""
    ports = range(40_000, 40_003)
    talks = [
        talk(STALLED[0], 5, client=("10.0.0.1", port), server=("10.0.0.2", 50_051)).segments[begins + port % 2 :]
        for port in (ports if not others else ports[:1])
    ]
    if others:
        later = 5 * SECOND if others.endswith("later") else -5 * SECOND
        other = Conversation(("10.0.0.9", 40_000), ("10.0.0.2", 50_051), t0_ns=talks[0][0].ts_ns + later)
        other.handshake()
        talks.append(other.segments)
    content = pcap_bytes(merge(*talks))
    said = followed(engine, content, window_bytes=300)
    assert said == plainly(content)
    assert all(row["port", 1 - row["client"]] == 50_051 for row in contents_of(said, "connection"))


def test_a_client_may_use_one_port_for_two_servers(engine):
    """Each server of a mesh has one connection here, and two are from the same port; the servers' is that of all."""
    talks = [
        talk(STALLED[0], 5, client=("10.0.0.1", port), server=(f"10.0.1.{n}", 50_051)).segments[3 + n % 2 :]
        for n, port in enumerate((40_000, 40_000, 40_001, 40_002))
    ]
    content = pcap_bytes(merge(*talks))
    said = followed(engine, content, window_bytes=300)
    assert said == plainly(content)
    assert all(row["port", 1 - row["client"]] == 50_051 for row in contents_of(said, "connection"))


# ------------------------------------------------------------------------- a server with translated addresses

POD, SIDECAR, SERVICE = ("10.9.0.2", 40_000), ("127.0.0.1", 15_001), ("10.96.0.10", 80)


def answers(said: dict[str, object]) -> list[tuple[int, int, int]]:
    """Of each connection what its sides sent, and the port that its server answers as."""
    rows = contents_of(said, "connection")
    return [(row["packets", 0], row["packets", 1], row["answers_as_port"]) for row in rows]


def from_pod(after_s: int = 0, **settings) -> list[Segment]:
    settings = {"client": POD, "server": SIDECAR, "t0_ns": (1_700_000_000 + after_s) * SECOND} | settings
    return talk(STALLED[0], 4, **settings).segments


@pytest.mark.parametrize("story", STALLED + CLEAN, ids=lambda story: story.__name__)
def test_a_redirected_connection_is_as_it_would_be_otherwise(engine, story):
    """To the last row, but for what its server answers as."""
    plain = talk(story, 5, client=POD, server=SIDECAR).segments
    content = pcap_bytes(redirected(plain, SERVICE))
    said = followed(engine, content, window_bytes=300)
    assert said == plainly(content)
    (row,) = contents_of(said, "connection")
    assert (row["answers_as"][-4:], row["answers_as_port"]) == (bytes((10, 96, 0, 10)), 80)
    expected = plainly(pcap_bytes(plain))
    places = [LAYOUTS["connection"].columns[name] for name in ("answers_as", "answers_as_port")]
    untranslated = [0 if at in places else value for at, value in enumerate(said["connection"][0])]
    untranslated[places[0]] = bytes(16)
    assert said | {"connection": [tuple(untranslated)]} == expected


OTHER_SERVICE = ("10.96.0.11", 80)
TWICE = from_pod(), from_pod(30, client_isn=77)


@pytest.mark.parametrize(
    ("packets", "expected"),
    [
        ([*redirected(TWICE[0]), *redirected(TWICE[1])], [80, 80]),
        ([*redirected(TWICE[0]), *redirected(TWICE[1], OTHER_SERVICE)], [80, 80]),
        ([*redirected(TWICE[0]), *redirected(from_pod(30, server=("127.0.0.1", 15_006)))], [80, 80]),
        ([*redirected(TWICE[0]), *from_pod(30, server=SERVICE)], [80, 0]),
        ([*from_pod(server=SERVICE), *redirected(from_pod(90))], [0, 80]),
        ([replace(s, dst=POD[0], dport=POD[1]) if s.dport == 15_001 else s for s in redirected(TWICE[0])], [80]),
        (redirected(TWICE[0], POD), [40_000]),
    ],
    ids=[
        "again", "another service", "another sidecar", "not redirected later", "nor before", "to itself",
        "as its client",
    ],
)  # fmt: skip
def test_redirected_ports_are_used_again(engine, packets, expected):
    content = pcap_bytes(packets)
    said = followed(engine, content, window_bytes=300)
    assert said == plainly(content)
    assert [port for *_, port in answers(said)] == expected
    assert all(one and other for one, other, _ in answers(said))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda syn, answer: [replace(syn, seq=syn.seq + 1), answer], "another number"),
        (lambda syn, answer: [syn, replace(answer, dport=40_001)], "another port"),
        (lambda syn, answer: [syn, replace(answer, dst="10.9.0.3")], "another client"),
        (lambda syn, answer: [answer], "no SYN"),
        (lambda syn, answer: [answer, syn], "the SYN later"),
        (lambda syn, answer: [syn, replace(answer, flags="A")], "no SYN-ACK"),
        (lambda syn, answer: [syn, replace(answer, src="127.0.0.1", sport=15_001), answer], "answered"),
    ],
)
def test_other_segments_are_not_taken_for_the_answer(engine, change, why):
    syn, answer, *later = redirected(from_pod())
    content = pcap_bytes([*change(syn, answer), *later])
    said = followed(engine, content)
    assert said == plainly(content)
    assert not any(port for *_, port in answers(said)), why


@pytest.mark.parametrize(("between", "joined"), [(ASKING - 1, True), (ASKING, False)])
def test_an_answer_is_looked_for_among_the_latest_connections(engine, between, joined):
    syn, *later = redirected(from_pod())
    others = [replace(syn, sport=port, dport=80) for port in range(1000, 1000 + between)]
    content = pcap_bytes([syn, *others, *later])
    said = followed(engine, content)
    assert said == plainly(content)
    assert sum(port == 80 for *_, port in answers(said)) == joined


def test_many_redirected_connections_at_once(engine):
    """More than the table of connections has room for at first; every third is over before others begin."""
    talks = [
        redirected(talk(STALLED[0], 2, client=("10.9.0.2", 33_000 + n), server=SIDECAR,
                        t0_ns=(1_700_000_000 + n % 3 * 100) * SECOND + n * MS).segments, (f"10.96.0.{n % 200}", 80))
        for n in range(900)
    ]  # fmt: skip
    again = [talk(STALLED[0], 2, client=("10.9.0.2", 33_000 + n), server=(f"10.96.0.{n % 200}", 80),
                  t0_ns=1_700_000_500 * SECOND).segments for n in range(0, 900, 7)]  # fmt: skip
    content = pcap_bytes(merge(*talks, *again))
    said = followed(engine, content)
    assert said == plainly(content)
    assert Counter(port for *_, port in answers(said)) == {80: 900, 0: len(again)}


HOSTS = st.sampled_from([("10.0.0.1", 5), ("10.0.0.2", 6), ("10.0.0.3", 7)])


@settings(max_examples=300)
@given(
    st.lists(
        st.tuples(HOSTS, HOSTS, st.integers(0, 1), st.integers(1, 2),
                  st.sampled_from(["S", "SA", "SA", "A", "PA", "FA", "R"]),
                  st.sampled_from([1, 1, 1, 45 * MS, 61_000 * MS])),
        min_size=1, max_size=60,
    )
)  # fmt: skip
def test_random_answers(engine, rows):
    """So few numbers and ends that SYN-ACKs fit everywhere: others are redirected to ends that are in use."""
    packets, ts = [], 10**18
    for number, (one, other, seq, ack, flags, step) in enumerate(rows):
        ts += step
        packets.append(Segment(ts, *one, *other, seq, ack, flags, number % 3 * (flags != "S"), ip_id=number + 1))
    content = pcap_bytes(packets)
    assert followed(engine, content, window_bytes=300) == plainly(content)


@pytest.mark.parametrize("seed", range(5))
def test_packets_lost_repeated_and_out_of_order(engine, seed):
    rng = random.Random(seed)
    segments = [
        s for i, story in enumerate(STALLED + CLEAN) for s in talk(story, 4, client=("10.0.0.1", 999 + i)).segments
    ]
    kept = [segment for segment in segments for _ in range(rng.choice([0, 1, 1, 1, 1, 1, 1, 1, 2]))]
    for _ in range(len(kept) // 20):
        at = rng.randrange(len(kept) - 1)
        kept[at : at + 2] = reversed(kept[at : at + 2])
    content = pcap_bytes(kept, ETHERNET, snaplen=rng.choice([66, 70, 128]))
    assert followed(engine, content, window_bytes=1000) == plainly(content)


@pytest.mark.parametrize("at_once", [2, 3])
@pytest.mark.parametrize("step", [199 * US, 200 * US])
def test_a_coarse_clock_is_seen_by_packets_of_one_time(engine, at_once, step):
    """Three of them, and none a little later: none less than 200 µs."""
    c = Conversation()
    c.handshake(after_ns=step)
    for number in range(12):
        c.client_sends(100, after_ns=0 if number < at_once else 7 * step if number % 2 else step)
    content = pcap_bytes(c.segments)
    said = followed(engine, content)
    assert said == plainly(content)
    assert contents_of(said, "connection")[0]["clock_step"] == (step if at_once == 3 and step == 200 * US else 0)


def test_no_more_reactions_leave_than_are_looked_at(engine):
    """However many connections a program has."""
    talks = [talk(STALLED[0], 2 * SAMPLES + 2, client=("10.0.0.1", 33_000 + i)) for i in range(270)]
    content = pcap_bytes([segment for talked in talks for segment in talked.segments])
    said = followed(engine, content)
    assert said == plainly(content)
    kinds = Counter((row["side"], row["kind"]) for row in contents_of(said, "reaction"))
    assert max(kinds.values()) == MOST_SAMPLES < 270 * 2 * SAMPLES


def test_times_before_1970_are_rounded_down(engine):
    """By an offset of a pcapng interface (if_tsoffset)."""
    c = Conversation(t0_ns=-5 * SECOND + 123_456)
    c.handshake()
    for _ in range(3):
        c.client_sends(100)
        c.server_sends(300)
        c.client_acks(after_ns=41 * MS)
        c.server_sends(200)
    content = pcapng_bytes(c.segments, interfaces=[Interface(offset_s=-100)])
    said = followed(engine, content)
    assert said == plainly(content)
    tsval, ms = c.segments[0].timestamps[0], -5_000  # and 0.123 ms
    assert contents_of(said, "connection")[0]["tsval_clock", 0] == (tsval - ms) % 2**32


@pytest.mark.parametrize("client", ["::ffff:10.0.0.1", "2001:db8::1"])
def test_either_end_may_have_an_address_that_looks_like_ipv4(engine, client):
    """In IPv6: then the identification 0 says nothing about one end only."""
    server = "2001:db8::2" if client.startswith("::ffff") else "::ffff:10.0.0.2"
    c = Conversation(client=(client, 40000), server=(server, 80))
    for _ in range(6):
        c.client_sends(1400)
        c.server_acks()
        c.server_sends(1400, flags="A")
        c.server_sends(1400, after_ns=10 * US)
        c.client_acks(after_ns=41 * MS)
        c.client_sends(100, after_ns=2 * MS)
        c.client_sends(1400, flags="A", after_ns=2 * MS)
        c.client_sends(1400, after_ns=10 * US)
        c.server_acks(after_ns=41 * MS)
    content = pcap_bytes(c.segments)
    said = followed(engine, content)
    assert said == plainly(content)
    ended_by = {(row["side"], row["ended_by"]) for row in contents_of(said, "idle_gap")}
    maybe_bsd = 0 if client.startswith("::ffff") else 1
    assert {(maybe_bsd, EndedBy.ACKNOWLEDGEMENT), (1 - maybe_bsd, EndedBy.READING)} <= ended_by


def test_the_sum_of_durations_has_a_limit(engine):
    """Each of these exchanges took more than two centuries, by a clock that was set to and fro."""
    packets = []
    for port in (40_000, 40_001):
        packets += [
            Segment(-(2**31) * SECOND, "10.0.0.1", port, "10.0.0.2", 80, 1, 1, "PA", 10),
            Segment(2**62, "10.0.0.2", 80, "10.0.0.1", port, 1, 11, "PA", 10, interface=1),
        ]
    content = pcapng_bytes(packets, interfaces=[Interface(offset_s=-(2**31)), Interface()])
    said = followed(engine, content)
    assert said == plainly(content)
    assert said["durations"]["total"][1] == MOST


def test_packets_of_a_gigabyte_in_segments_of_a_byte_are_counted_as_far_as_a_row_holds(engine):
    """By an MSS of 1, and the length on the wire of a packet that was too long for IP to say."""
    c = Conversation(mss=1, timestamps=False)
    c.handshake()
    cut = ip_bytes(replace(c.client_sends(1), length=70_000))[:40]
    packets = [
        Frame(c.segments[-1].ts_ns + number, cut[:4] + cut[4:24] + seq.to_bytes(4, "big") + cut[28:], 40 + (1 << 30))
        for number, seq in enumerate((int.from_bytes(cut[24:28], "big") + (n << 30)) % 2**32 for n in range(4))
    ]
    content = pcap_bytes([Frame(s.ts_ns, ip_bytes(s)) for s in c.segments[:3]] + packets, RAW)
    said = followed(engine, content)
    assert said == plainly(content)
    assert contents_of(said, "connection")[0]["beside_unacked", 0] == 2**31 - 1


# --------------------------------------------------------------------------------------- real captures


def test_every_committed_capture_gives_the_same_bytes(monkeypatch):
    def said(make) -> list[str]:
        monkeypatch.setattr(analysis, "make_engine", make)
        return [analysis.analyze(path).to_json() for path in CAPTURES]

    assert len(CAPTURES) > 80
    plain, *others = map(said, ENGINES.values())
    assert all(other == plain for other in others)


def test_without_exchanges_nothing_else_changes(engine, monkeypatch):
    monkeypatch.setattr(analysis, "make_engine", engine)
    for path in CAPTURES[::9]:
        listed, plain = analysis.analyze(path), analysis.analyze(path, exchanges=False)
        assert plain.exchanges is None
        assert listed.exchanges is not None
        assert len(listed.exchanges) >= listed.summary.exchanges - len(listed.connections)
        assert listed.to_json() == plain.to_json()


def test_rows_are_of_the_form_that_engine_h_declares(engine):
    said = followed(engine, pcap_bytes(talk(STALLED[0]).segments))
    for name in ("candidate", "delayed_ack", "idle_gap", "exchange", "connection"):
        assert said[name], name
        for row in said[name]:
            assert len(row) == len(LAYOUTS[name].columns)
    (connection,) = contents_of(said, "connection")
    filled_in_later = (
        "stalls",
        "stalled_exchanges",
        ("delayed_acks", 0),
        ("delayed_acks", 1),
        ("acks_before_timer", 0),
        ("acks_before_timer", 1),
    )
    assert {connection[name] for name in filled_in_later} == {0}
    assert (connection["first_stalled"], connection["last_stalled"]) == (-1, -1)


@pytest.mark.parametrize(
    ("unit_ms", "life_ms", "step"),
    [
        (0.001, 1_000, 255),
        (0.4, 1_000, 255),
        (0.8, 1_000, 1),
        (1, 1_000, 10),
        (4, 1_000, 3),
        (10, 1_000, 9),
        (100, 1_000, 90),
        (500, 700, 255),
        (500, 90, 0),
        (500, 110, 110),
    ],
)
def test_how_long_a_unit_of_timestamps_takes_is_learned(engine, unit_ms, life_ms, step):
    """Of a connection that is seen for 100 ms and longer; at least, for the first unit may have begun before.

    A segment comes every 10 ms: so much timestamps of 1 ms differ by.
    """
    segments = [
        Segment(10**9 * SECOND + at * MS, "10.0.0.1", 4000, "10.0.0.2", 80, seq=at, flags="PA", length=1,
                timestamps=(7 + int(at / unit_ms), 1))
        for at in range(0, life_ms + 1, 10)
    ]  # fmt: skip
    (row,) = contents_of(followed(engine, pcap_bytes(segments)), "connection")
    assert (row["timestamp_step", 0], row["timestamp_step", 1]) == (step, 0)


def test_a_timestamp_that_comes_out_of_order_counts_no_shorter_units(engine):
    """The last segment is older than the first: that is no clock of less than a millisecond."""
    stamps = [7, 207, 5]
    segments = [
        Segment(10**9 * SECOND + at * 100 * MS, "10.0.0.1", 4000, "10.0.0.2", 80, seq=at, flags="PA", length=1,
                timestamps=(stamp, 1))
        for at, stamp in enumerate(stamps)
    ]  # fmt: skip
    (row,) = contents_of(followed(engine, pcap_bytes(segments)), "connection")
    assert row["timestamp_step", 0] == 2
