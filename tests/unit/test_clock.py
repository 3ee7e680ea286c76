"""The clock is set in the middle of a capture: the kernel's stamps jump, and no verdict may come of that."""

import gzip
import shutil
import struct
from dataclasses import replace
from functools import cache, partial
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nagle_lab.capture.capture import open_capture
from nagle_lab.capture.clock import DISORDER, MOST_INTERFACES, Clock
from nagle_lab.capture.window import WINDOW_BYTES
from nagle_lab.diagnosis import analysis
from nagle_lab.diagnosis.analysis import analyze
from nagle_lab.errors import Exit
from nagle_lab.runs.run import judge_run
from support.engines import followed, plainly
from support.files import rewrite
from support.repository import CAPTURES, REFERENCE
from support.rows import read as read_all
from support.run_folders import reseal
from support.stories import nodelay, prompt, server_held, talk
from support.synthetic import MS, SECOND, Frame, Interface, Segment, pcap_bytes, pcapng_bytes


class Record(NamedTuple):
    """One of a pcap."""

    at: int  # byte of the file
    time: int  # ns since 1970
    content: bytes  # with its header


@cache
def in_records(capture: bytes) -> list[Record]:
    """Those of a pcap of ours (nanoseconds, little endian)."""
    assert capture[:4] == b"\x4d\x3c\xb2\xa1"
    found, at = [], 24
    while at < len(capture):
        seconds, ns, length = struct.unpack_from("<III", capture, at)
        found.append(Record(at, seconds * SECOND + ns, capture[at : at + 16 + length]))
        at += 16 + length
    return found


def times(capture: bytes) -> list[int]:
    return [record.time for record in in_records(capture)]


def stepped(capture: bytes, by_ns: int, at_ns: int) -> bytes:
    """Such a pcap with every stamp from the time ``at_ns`` on moved ``by_ns``."""
    changed = bytearray(capture)
    for record in in_records(capture):
        if record.time >= at_ns:
            struct.pack_into("<II", changed, record.at, *divmod(record.time + by_ns, SECOND))
    return bytes(changed)


def stored(name: str) -> bytes:
    raw = (CAPTURES / name).read_bytes()
    return gzip.decompress(raw) if name.endswith(".gz") else raw


@pytest.mark.parametrize("step_s", [3600, 2, 0.6])
@pytest.mark.parametrize("name", ["nginx-static-no-keepalive/client", "nginx-static-nodelay-off/server"])
def test_a_step_forward_makes_and_unmakes_no_stall(tmp_path: Path, name: str, step_s: float):
    """Before each of a stretch of frames, so also between a segment and its ACK: half a second is no ACK timer."""
    capture = stored(f"reference/{name}.pcap")
    file = tmp_path / "some.pcap"
    file.write_bytes(capture)
    before = analyze(file)
    for time in times(capture)[70:90]:
        rewrite(file, stepped(capture, int(step_s * SECOND), time))
        after = analyze(file)
        assert after.verdict == before.verdict
        waiting = before.summary.connections  # no more can wait at one time
        assert 0 <= before.summary.stalls - after.summary.stalls <= waiting


@pytest.mark.parametrize(("step_ms", "is_there"), [(25, False), (45, True), (450, True)])
@pytest.mark.parametrize("name", ["nginx-static-no-keepalive/client", "nginx-static-no-keepalive/server"])
def test_a_step_forward_like_an_ack_timer_is_a_limit(tmp_path: Path, name: str, step_ms: int, is_there: bool):
    """One triple across it is what a true stall is (docs/faults.md): only what waits at that moment is affected."""
    capture = stored(f"reference/{name}.pcap")
    file = tmp_path / "some.pcap"
    found = set()
    for frame, time in list(enumerate(times(capture), 1))[::9]:
        rewrite(file, stepped(capture, step_ms * MS, time))
        result = analyze(file)
        found.add(result.verdict)
        across = [s for s in result.stalls if s.trigger_frame < frame <= s.ack_frame]
        assert len(across) == result.summary.stalls
        assert len({s.connection for s in across}) == len(across)
    assert found == ({"CLEAN", "STALL"} if is_there else {"CLEAN"})


@pytest.mark.parametrize(
    "name",
    [
        "reference/nginx-static-nodelay-on/client.pcap",  # CLEAN
        "lookalikes/nagle-rtt-40/middle.pcap.gz",  # CLEAN
        "reference/nginx-static-rtt-20-nodelay-off/client.pcap",  # STALL
    ],
)
def test_a_step_back_makes_it_invalid_and_is_named(tmp_path: Path, name: str):
    capture = stored(name)
    file = tmp_path / "some.pcap"
    at = times(capture)
    for frame in range(12, len(at) - 12, len(at) // 6):
        rewrite(file, stepped(capture, -5 * SECOND, at[frame]))
        result = analyze(file)
        assert result.verdict == "INVALID"
        assert result.reason == (
            f"some.pcap: time goes back by {(at[frame - 1] - at[frame]) / 1e9 + 5:.9g} s at frame {frame + 1}: "
            "if the clock was set, record again; if packets are only out of order, sort them with reordercap"
        )


@pytest.mark.parametrize("step_ms", [-15, -30])
@pytest.mark.parametrize(
    "name",
    [
        "reference/nginx-static-nodelay-on/client.pcap",  # CLEAN
        "lookalikes/nagle-rtt-40/client.pcap.gz",  # CLEAN
        "reference/nginx-static-rtt-20-nodelay-off/client.pcap",  # STALL
    ],
)
def test_a_short_step_back_that_shows_changes_no_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, step_ms: int
):
    """Between packets that are far apart it may pass for packets out of order; no wait across it is believed."""
    capture = stored(name)
    file = tmp_path / "some.pcap"
    file.write_bytes(capture)
    before, at = analyze(file), times(capture)
    monkeypatch.setattr(analysis, "open_capture", partial(open_capture, window_bytes=2000))
    shows = [k for k in range(1, len(at)) if at[k] + step_ms * MS < at[k - 1] - DISORDER]
    for frame in shows[:: len(shows) // 8]:
        rewrite(file, stepped(capture, step_ms * MS, at[frame]))
        after = analyze(file)
        assert after.verdict in (before.verdict, "INVALID")
        if after.verdict == "STALL":
            assert 0 <= before.summary.stalls - after.summary.stalls <= before.summary.connections


@pytest.mark.parametrize(
    "name", ["lookalikes/nagle-rtt-40/middle.pcap.gz", "reference/nginx-static-nodelay-off/server.pcap"]
)
def test_a_step_too_small_to_tell_changes_no_verdict(tmp_path: Path, name: str):
    capture = stored(name)
    file = tmp_path / "some.pcap"
    file.write_bytes(capture)
    before, at = analyze(file), times(capture)
    for frame in range(6, len(at), len(at) // 12):
        rewrite(file, stepped(capture, -9 * MS, at[frame]))
        assert analyze(file).verdict == before.verdict


def test_disorder_of_capture_queues_and_of_interfaces_is_no_step(tmp_path: Path):
    """Two queues of one interface differ by a few milliseconds; two interfaces by more, each in order."""
    one, other = talk(server_held).segments, talk(server_held, client=("10.0.0.9", 5555)).segments
    file = tmp_path / "some.pcapng"
    for interfaces, behind in ((1, 5 * MS), (2, 30 * MS)):
        late = [replace(segment, interface=interfaces - 1) for segment in other]
        packets = sorted([*one, *late], key=lambda s: s.ts_ns + (behind if s in late else 0))
        assert any(a.ts_ns > b.ts_ns for a, b in pairwise(packets))
        file.write_bytes(pcapng_bytes(packets, interfaces=[Interface() for _ in range(interfaces)]))
        result = analyze(file)
        assert (result.verdict, result.quality.damage) == ("STALL", [])


ARP = bytes(12) + b"\x08\x06" + bytes(46)
OTHER = talk(server_held, client=("10.0.0.9", 5555)).segments[0]
STRAYS = {
    "an ARP stamped early": lambda now: [Frame(now - 15 * MS, ARP)],
    "TCP of another connection, recorded late": lambda now: [replace(OTHER, ts_ns=now - 15 * MS)],
    "time 0": lambda now: [replace(OTHER, ts_ns=0)],
    "an hour ahead": lambda now: [replace(OTHER, ts_ns=now + 3600 * SECOND)],
    "eight in a row": lambda now: [Frame(now - 35 * MS + i, ARP) for i in range(8)],
    "eight in a row, ahead": lambda now: [Frame(now + 35 * MS + i, ARP) for i in range(8)],
}


@pytest.mark.parametrize("stray", STRAYS.values(), ids=STRAYS)
@pytest.mark.parametrize(("story", "stalls"), [(server_held, 39), (nodelay, 0)])
def test_stray_packets_cost_the_waits_they_fall_into(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, story, stalls: int, stray
):
    monkeypatch.setattr(analysis, "open_capture", partial(open_capture, window_bytes=2000))
    segments = talk(story, 40).segments
    file = tmp_path / "some.pcap"
    for at in (0, 1, 80, 81, 82, len(segments)):
        lost = stray(segments[min(at, len(segments) - 1)].ts_ns)
        rewrite(file, pcap_bytes([*segments[:at], *lost, *segments[at:]]))
        result = analyze(file)
        assert (result.verdict, result.quality.damage) == ("STALL" if stalls else "CLEAN", [])
        assert result.summary.stalls in range(max(0, stalls - 2), stalls + 1)


@pytest.mark.parametrize("early_ms", [15, 25, 39])
@pytest.mark.parametrize("point", ["client", "middle", "server"])
def test_a_stray_packet_of_a_judged_connection_makes_no_stall(tmp_path: Path, point: str, early_ms: int):
    """It is recorded after packets it seems to precede. An ACK that seems quick would make all others late."""
    capture = stored(f"lookalikes/nagle-rtt-40/{point}.pcap.gz")
    records, at = [record.content for record in in_records(capture)], times(capture)
    file = tmp_path / "some.pcap"
    for frame in range(1, len(at) - 1, 10):
        stamp = at[frame] - early_ms * MS
        others, ahead = records[:frame] + records[frame + 1 :], at[:frame] + at[frame + 1 :]
        place = next((k for k in range(frame, len(others)) if ahead[k - 1] - DISORDER > stamp), len(others))
        late = struct.pack("<II", *divmod(stamp, SECOND)) + records[frame][8:]
        kept = [*others[:place], late, *others[place:]]
        rewrite(file, capture[:24] + b"".join(kept))
        result = analyze(file)
        assert (result.verdict, result.summary.stalls) == ("CLEAN", 0)


def test_a_segment_stamped_early_makes_no_stall(tmp_path: Path):
    """Its ACK, which came at once, seems late, and the next segment released by it; without the step between."""
    segments = talk(prompt, 40).segments
    file = tmp_path / "some.pcap"
    headers = [i for i, segment in enumerate(segments) if segment.sport == 80 and segment.length == 238]
    for at in headers[1:]:
        stamped = replace(segments[at], ts_ns=segments[at].ts_ns - 35 * MS)
        rewrite(file, pcap_bytes([*segments[:at], stamped, *segments[at + 1 :]]))
        assert analyze(file).verdict == "CLEAN"


def test_many_packets_out_of_order_are_never_clean(tmp_path: Path):
    """Every wait has a break in it: none can be judged."""
    one, other = talk(nodelay).segments, talk(nodelay, client=("10.0.0.9", 5555)).segments
    packets = [
        s for pair in zip(one, other, strict=True) for s in (pair[0], replace(pair[1], ts_ns=pair[1].ts_ns - SECOND))
    ]
    file = tmp_path / "some.pcap"
    file.write_bytes(pcap_bytes(packets))
    result = analyze(file)
    assert result.verdict == "INVALID"
    assert result.reason == (
        f"some.pcap: time goes back and forth {len(packets) - 1} times: sort the packets with reordercap"
    )


@pytest.mark.parametrize("window", [64, 400, 1000])
def test_a_step_back_is_found_wherever_windows_end(tmp_path: Path, window: int):
    """Some packets must follow it before it is known; found by the fuzzer, where they were in the next window."""
    capture, file = stored("reference/nginx-static-nodelay-off/server.pcap"), tmp_path / "some.pcap"
    file.write_bytes(stepped(capture, -5 * SECOND, times(capture)[100]))
    said = []
    for size in (window, WINDOW_BYTES):
        with open_capture(file, window_bytes=size) as read:
            read_all(read)
            said.append([str(trouble) for trouble in read.trouble])
    assert said[0] == said[1]
    assert "time goes back by 4.9" in said[0][0]


@pytest.mark.parametrize("window", [400, WINDOW_BYTES])
def test_each_pcapng_section_has_its_own_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, window: int):
    """`cat a.pcapng b.pcapng` is valid; the second may be older, or as old."""
    monkeypatch.setattr(analysis, "open_capture", partial(open_capture, window_bytes=window))
    file = tmp_path / "some.pcapng"
    one = talk(server_held).segments
    for later_s in (-3600, 0, 0.05):
        again = talk(server_held, t0_ns=one[0].ts_ns + int(later_s * SECOND), client=("10.0.0.9", 5555)).segments
        file.write_bytes(pcapng_bytes(one) + pcapng_bytes(again))
        result = analyze(file)
        assert (result.verdict, result.summary.stalls, result.quality.damage) == ("STALL", 38, [])


def test_a_wait_from_one_section_to_an_older_one_is_not_known(tmp_path: Path):
    """The second goes on with the same connection: an ACK in it that seems to come at once would make others late."""
    capture = stored("lookalikes/nagle-rtt-40/server.pcap.gz")
    (link_type,) = struct.unpack_from("<I", capture, 20)
    frames = [Frame(record.time, record.content[16:]) for record in in_records(capture)]
    file = tmp_path / "some.pcapng"
    for at in range(20, len(frames), 9):
        older = [replace(frame, ts_ns=frame.ts_ns - 60 * MS) for frame in frames[at:]]
        file.write_bytes(b"".join(pcapng_bytes(part, link_type, snaplen=65535) for part in (frames[:at], older)))
        assert analyze(file).verdict == "CLEAN"


def test_files_given_out_of_order_are_told_and_no_step(tmp_path: Path):
    segments = talk(server_held).segments
    files = [tmp_path / "b.pcap", tmp_path / "a.pcap"]
    for file, part in zip(files, (segments[60:], segments[:60]), strict=True):
        file.write_bytes(pcap_bytes(part))
    result = analyze(files)
    assert result.quality.damage == ["a.pcap: begins before b.pcap ends: give files in order"]
    assert result.verdict == "STALL"


STEPS = st.lists(st.sampled_from([1, 1, 1, 1, 1, 1, 1, 1, 1, -5, -15, 20, -60, 60]), min_size=1, max_size=80)


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_windows_of_any_size_show_the_same_epochs(engine, data):
    """Time goes on by 1 ms, is set back and forth, and some packets are astray; on three interfaces."""
    at, segments = 10**18, []
    for number, step in enumerate(data.draw(STEPS)):
        at += step * MS
        interface = data.draw(st.sampled_from([0, 0, 0, 1, 2]))
        ends = ("10.0.0.1", 4000, "10.0.0.2", 80) if number % 2 else ("10.0.0.2", 80, "10.0.0.1", 4000)
        segments.append(Segment(at, *ends, 100 + number, 100 + number, "PA", number % 3, interface=interface))
    content = pcapng_bytes(segments, interfaces=[Interface()] * 3)
    cuts = data.draw(st.lists(st.integers(0, len(content)), max_size=6))
    assert followed(engine, content, cuts, window_bytes=64) == plainly(content)


def epochs(steps: list[int]) -> tuple[list[int], Clock]:
    """The epoch of each packet of one interface whose time goes on by so many ms each."""
    clock, at, found = Clock(), 0, []
    clock.new_file()
    for frame, step in enumerate(steps, 1):
        at += step * MS
        found.append(clock.epoch_of(at, 0, frame))
    return found, clock


def test_an_epoch_begins_where_time_breaks_and_where_a_stray_packet_ends():
    """Nine in a row that are behind are the clock's doing, eight are astray; what is behind by 10 ms is disorder."""
    assert epochs([1] * 9 + [-10] + [1] * 20)[0] == [0] * 30
    assert epochs([1] * 9 + [-60, 61] + [1] * 9)[0] == [0] * 9 + [1] + [2] * 10
    found, clock = epochs([1] * 9 + [-60] + [1] * 7 + [60] + [1] * 9)
    assert found == [0] * 9 + [1] * 8 + [2] * 10
    assert clock.set_back is None
    found, clock = epochs([1] * 9 + [-60] + [1] * 20)
    assert found == [0] * 9 + [1] * 21
    assert clock.set_back == (10, 60 * MS)


def test_interfaces_of_sections_that_are_over_are_forgotten():
    clock = Clock()
    clock.new_file()
    for number in range(MOST_INTERFACES + 100):
        clock.epoch_of(number, number, number)
    assert len(clock._interfaces) <= MOST_INTERFACES


@pytest.mark.parametrize(
    ("variant", "step_s", "verdict", "code"),
    [
        ("nodelay-on", 3600, "CLEAN", Exit.OK),
        ("nodelay-off", 3600, "STALL", Exit.OK),
        ("nodelay-on", -5, "INVALID", Exit.UNUSABLE),
        ("nodelay-off", -5, "INVALID", Exit.UNUSABLE),
    ],
)
def test_a_run_of_the_lab_in_which_the_clock_is_set(
    tmp_path: Path, variant: str, step_s: int, verdict: str, code: Exit
):
    """Both captures see the step, at one time."""
    folder = shutil.copytree(REFERENCE / f"nginx-static-{variant}", tmp_path / "run")
    at = times((folder / "server.pcap").read_bytes())
    for name in ("server.pcap", "client.pcap"):
        changed = stepped((folder / name).read_bytes(), step_s * SECOND, at[len(at) // 2])
        (folder / name).write_bytes(changed)
        reseal(folder, name)
    run = judge_run(folder)
    assert (run.verdict, run.exit_code()) == (verdict, code), run.reason
    if verdict == "INVALID":
        assert run.reason.startswith("server.pcap: time goes back by ")
        assert "client.pcap: time goes back by " in run.reason
