"""The live view: what is kept of a stream, what is said of its last packets, and that it stays bounded."""

import io
import json
import os
import re
import shlex
import shutil
import socket
import struct
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from urllib.request import urlopen

import msgspec
import pytest
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard
from prometheus_client.parser import text_string_to_metric_families
from rich.console import Console

from nagle_lab.capture.capture import open_capture
from nagle_lab.capture.kernel_answers import KernelAnswer
from nagle_lab.capture.records import Interface
from nagle_lab.capture.take import records
from nagle_lab.capture.writer import Pcapng
from nagle_lab.cli.live.live_screen import Terminal
from nagle_lab.cli.live.watch import WatchOptions, nearer
from nagle_lab.diagnosis.analysis import Analysis, analyze
from nagle_lab.diagnosis.result.result import Endpoint, Result
from nagle_lab.diagnosis.result.verdict import Verdict
from nagle_lab.errors import NagleLabError
from nagle_lab.guard.recording import inside_stream
from nagle_lab.guard.recording.job import Target
from nagle_lab.guard.recording.recorder import RingPacket
from nagle_lab.host.namespace import namespace_of
from nagle_lab.live.sockets.owners import Owners
from nagle_lab.live.sockets.processes import Process
from nagle_lab.live.watch.live_findings import LiveFindings
from nagle_lab.live.watch.metrics import Metrics
from nagle_lab.live.watch.periods import LISTED, Periods, PeriodSums
from nagle_lab.live.watch.program_names import ProgramNames
from nagle_lab.live.watch.ring import PacketRing, Snapshot
from nagle_lab.live.watch.view import OTHERS, View, judge_snapshot, write_packets
from nagle_lab.live.watch.watching import Spectator, Watcher
from nagle_lab.reports.screens.watch import Screen, identity, render
from support.crowd import crowd
from support.recorded import headers, prompt_release, recorded, slow_release, told
from support.repository import CAPTURES, REFERENCE, REPOSITORY, STALLED
from support.schemas import check
from support.stories import nodelay, of_a_pool, server_held, talk
from support.synthetic import MS, SECOND, US, Conversation, Segment, merge, pcap_bytes, pcapng_bytes

LIVE = REPOSITORY / "docs" / "watch"
WATCH = [sys.executable, "-m", "nagle_lab", "watch", "-"]


def two_servers():
    """A server that stalls and one that does not."""
    return merge(
        talk(server_held).segments, talk(nodelay, client=("10.0.0.9", 50000), server=("10.0.0.3", 81)).segments
    )


def kept(path: Path, room: int = 1 << 26) -> PacketRing:
    ring = PacketRing(60, room)
    for _ in Analysis(path, onlooker=ring):
        pass
    return ring


def seen(path: Path, lost: int = 0, exchanges: bool = False) -> View:
    view = judge_snapshot(kept(path).snapshot(), ProgramNames(), lost, lambda _: True, exchanges=exchanges)
    assert view
    return view


def drawn(screen: Screen, width: int, height: int) -> str:
    console = Console(width=width, height=height, file=io.StringIO())
    console.print(render(screen, width, height))
    return console.file.getvalue()


def said_in(path: Path) -> list[KernelAnswer]:
    """What the kernel said, in a capture that is in order."""
    with open_capture(path) as capture:
        for _ in records(capture):
            pass
        assert capture.trouble == []
        return capture.facts.kernel_answers


@pytest.fixture
def capture(tmp_path) -> Path:
    path = tmp_path / "x.pcap"
    path.write_bytes(pcap_bytes(two_servers()))
    return path


def test_nothing_passed_on_any_interface():
    none = dict.fromkeys((field.name for field in fields(WatchOptions)), None)
    asked = WatchOptions(**{**none, "ports": [9], "interface": "", "container": "", "service": ""})
    assert asked.nothing_passed.startswith("no TCP packet with port 9 was seen on any interface; watch for longer")


@pytest.mark.parametrize("written", [pcap_bytes, pcapng_bytes], ids=["pcap", "pcapng"])
@pytest.mark.parametrize("order", ["<", ">"])
def test_a_snapshot_shows_what_the_capture_shows(tmp_path, written, order):
    path = tmp_path / "x"
    path.write_bytes(written(two_servers(), byte_order=order))
    with kept(path).snapshot() as snapshot:
        again, whole = analyze(snapshot.path), analyze(path)
    assert whole.verdict is Verdict.STALL
    assert (again.summary, list(again.stalls)) == (whole.summary, list(whole.stalls))


def test_a_crowd_is_what_it_says(tmp_path):
    """Connections that differ in nothing but an address would be taken for one, seen before and after a NAT."""
    path = tmp_path / "x.pcap"
    path.write_bytes(b"".join(crowd(1_000)))
    result = analyze(path)
    assert (result.summary.connections, result.quality.handshakes, result.summary.exchanges) == (1_000, 1_000, 1_000)


@pytest.mark.parametrize(
    ("target", "says"), [(Target(), True), (Target(interface="eth0"), True), (Target(container="web"), False)]
)
def test_what_cannot_be_told_from_outside_a_container_names_the_way_in(target, says):
    unsure = analyze(CAPTURES / "families" / "wait-drained-rtt-10" / "server.pcap.gz")
    assert unsure.verdict is Verdict.INCONCLUSIVE
    assert ("watch --container NAME" in nearer(unsure, target)) is says
    assert nearer(analyze(STALLED), target) == ""
    clean = nearer(analyze(REFERENCE / "nginx-static-nodelay-on" / "server.pcap"), target)
    assert ("nothing stalled in these 0 s" in clean and "nagle-lab sockets looks into" in clean) is says


def test_a_ring_forgets_whole_pieces_and_knows_which_frame_is_its_first(tmp_path):
    path = tmp_path / "x.pcap"
    path.write_bytes(b"".join(crowd(20_000)))
    ring = kept(path, room=4 << 20)
    assert ring.frames > 100_000 and ring.size <= 4 << 20
    with ring.snapshot() as snapshot, open_capture(snapshot.path, sha256=False) as opened:
        frames = sum(1 for _ in records(opened))
        assert snapshot.first > 1 and snapshot.first + frames - 1 <= ring.frames


def in_two_periods(folder: Path, first: list[Segment], second: list[Segment]) -> tuple[list[Path], list[Result]]:
    """The files of a stream, and what each of its two periods shows, of which the first ends with the first file."""
    paths = [folder / name for name in ("1", "2")]
    for path, segments in zip(paths, (first, second), strict=True):
        path.write_bytes(pcap_bytes(segments))
    analysis, results = Analysis(paths, sha256=False), []
    for frames in analysis:
        if frames == len(first) and not results:
            results.append(analysis.end_period())
    return paths, [*results, analysis.result()]


def test_periods_show_what_their_packets_show(tmp_path, engine, monkeypatch):
    """Two periods of a stream: each as if it began there; frames are counted on, connections begin anew."""
    monkeypatch.setattr("nagle_lab.diagnosis.analysis.make_engine", engine)
    first, second = talk(server_held, 30).segments, talk(nodelay, 30, client=("10.0.0.9", 50000)).segments
    paths, results = in_two_periods(tmp_path, first, second)
    alone = [analyze(path) for path in paths]
    assert [result.verdict for result in results] == [Verdict.STALL, Verdict.CLEAN]
    assert [result.summary for result in results] == [result.summary for result in alone]
    assert [result.source.packets for result in results] == [len(first), len(second)]
    assert results[1].connections[0].first_frame == len(first) + 1


def test_how_far_apart_hosts_are_is_remembered_from_one_period_to_the_next(tmp_path):
    """Connections of a pool whose client thinks for longer than its ACK timer: one handshake tells, of any."""
    other = Conversation(client=("10.0.0.1", 50_000), t0_ns=1000 * SECOND)
    other.handshake()
    paths, results = in_two_periods(tmp_path, other.segments, of_a_pool(60, 0))
    assert [result.verdict for result in (*results, analyze(paths[1]))] == ["INCONCLUSIVE", "STALL", "INCONCLUSIVE"]


def test_what_a_recorder_dropped_is_of_the_period_in_which_it_says_so(tmp_path):
    out = io.BytesIO()
    writer = Pcapng(out)
    writer.add_interface("eth0")
    writer.add_dropped(0, 5)
    writer.add_dropped(0, 12)
    path = tmp_path / "x.pcapng"
    path.write_bytes(out.getvalue())
    analysis = Analysis(path, sha256=False)
    for _ in analysis:
        pass
    assert analysis.dropped == 12
    assert "12 packets were dropped" in analysis.end_period().quality.damage[0]
    assert analysis.result().quality.damage == []


def test_programs_and_connections_each_have_their_own_verdict(capture):
    view = seen(capture)
    assert [(row.server, row.verdict, row.sure) for row in view.rows] == [
        ("10.0.0.2:80", Verdict.STALL, "certain"),
        ("10.0.0.3:81", Verdict.CLEAN, ""),
    ]
    whole = analyze(capture)
    assert [row.stalls for row in view.connections] == [whole.summary.stalls, 0]
    assert view.rows[0].lost_ms == pytest.approx(whole.summary.lost_ms_total, abs=0.01)
    assert view.latest and view.latest.stall == whole.stalls[-1]


def test_a_program_beside_another_has_the_verdict_that_it_has_alone(tmp_path):
    """A stream without answers: a stall would have shown in what followed its ACKs."""
    stream = Conversation(client=("10.0.0.9", 50000), server=("10.0.0.3", 81))
    stream.handshake()
    for _ in range(60):
        stream.server_sends(60, after_ns=7 * MS)
        stream.client_acks(after_ns=30 * US)
    (alone,) = seen(recorded(tmp_path / "alone", stream.segments, [])).rows
    beside = merge(talk(server_held).segments, stream.segments)
    _, row = seen(recorded(tmp_path / "beside", beside, [])).rows
    assert (alone.verdict, row.verdict) == (Verdict.CLEAN, Verdict.CLEAN)
    assert alone.reason == analyze(tmp_path / "alone").reason


def busy_host(tmp_path: Path, waiting: list[KernelAnswer]) -> Path:
    """A server whose held data leaves late, and one that waits for the ACK itself and is as quick as a kernel."""
    others = talk(prompt_release, client=("10.0.0.9", 50000), server=("10.0.0.3", 81)).segments
    path = recorded(tmp_path / "busy.pcapng", merge(talk(slow_release).segments, others), waiting)
    assert [row.verdict for row in seen(recorded(tmp_path / "x", others, [])).rows] == [Verdict.STALL]
    return path


def what_the_kernel_said() -> list[KernelAnswer]:
    others = talk(prompt_release, client=("10.0.0.9", 50000), server=("10.0.0.3", 81)).segments
    held = told(talk(slow_release).segments, lambda _: 20 * MS)
    return held + told(others, lambda number: (6 + 2 * number) * MS, unsent=0)


def test_the_last_packets_are_judged_by_what_the_kernel_said(tmp_path):
    """And so are the packets behind a finding, in a file: one server was kept waiting, the other waits itself."""
    view = seen(busy_host(tmp_path, what_the_kernel_said()))
    by_server = {row.server: row for row in view.rows}
    held, waits = by_server["10.0.0.2:80"], by_server["10.0.0.3:81"]
    assert (held.verdict, held.sure, held.stalls) == (Verdict.STALL, "certain", 19)
    assert (waits.verdict, waits.stalls) == (Verdict.CLEAN, 0)
    for row, grounds in ((held, {"seen_waiting": 19}), (waits, {})):
        out = tmp_path / f"{row.process}{row.server}.pcapng"
        assert write_packets(view.snapshot.path, view.connections_of(row), out) == row.packets
        again = analyze(out)
        assert (again.verdict, again.summary.grounds) == (row.verdict, grounds)
        assert len(said_in(out)) == 19, "and what it said of others is not in it"


def test_a_row_is_not_sent_to_ask_the_kernel_that_was_asked(tmp_path):
    segments = talk(slow_release, 60).segments
    answers = told(segments, lambda _: 6 * MS, unsent=0)[:5]
    for said, was_asked in (([], False), (answers, True)):
        (row,) = seen(recorded(tmp_path / f"{was_asked}", segments, said)).rows
        assert (row.verdict, "with `nagle-lab watch`" in row.reason) == (Verdict.INCONCLUSIVE, not was_asked)


def in_two(tmp_path: Path, segments: list[Segment]) -> list[Path]:
    """Sections of a stream, each with what the kernel said of its packets."""
    half = headers(segments)[9].ts_ns
    waiting = told(segments, lambda _: 20 * MS)
    parts = [one for one in segments if one.ts_ns < half], [one for one in segments if one.ts_ns >= half]
    of_each = [one for one in waiting if one.at < half], [one for one in waiting if one.at >= half]
    return [
        recorded(tmp_path / str(number), part, said)
        for number, (part, said) in enumerate(zip(parts, of_each, strict=True))
    ]


def test_the_end_of_a_period_and_of_a_section_leaves_the_last_packets_what_was_said_of_them(tmp_path):
    """Each period is judged by what was said in it; the ring has both."""
    paths = in_two(tmp_path, talk(slow_release).segments)
    ring, results, counts = PacketRing(60), [], []
    analysis = Analysis(paths, sha256=False, onlooker=ring)
    for _ in analysis:
        counts.append(analysis.kernel_answer_count)
        if len(counts) == 2:
            results.append(analysis.end_period())
    results.append(analysis.result())
    assert (counts[1], counts[2], counts[-1]) == (9, 0, 10), "the first period forgot its own"
    assert [result.summary.grounds for result in results] == [{"seen_waiting": 9}, {"seen_waiting": 10}]
    with ring.snapshot() as snapshot:
        assert analyze(snapshot.path).summary.grounds == {"seen_waiting": 19}


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("resolution", [6, 9, 0x80 | 30, 127])
@pytest.mark.parametrize("offset_s", [0, 3, -(1 << 31)])
def test_what_was_said_is_kept_in_the_stream_s_own_byte_order_and_time(tmp_path, order, resolution, offset_s):
    """To the microsecond, where its time stamps can have it; others do no harm."""
    one = KernelAnswer(1_700_000_000_123_456_000, ("10.0.0.1", 40000), ("fe80::1", 80), 57)
    ring, interfaces = PacketRing(60), [Interface(0, offset_s * 10**9, 1, resolution)]
    packet = struct.pack(order + "IIIIIIII", 6, 32, 0, 0, 0, 0, 0, 32)
    ring.pcapng(memoryview(packet), 1, 1, order, interfaces)
    ring.kernel_answers([one])
    with ring.snapshot() as snapshot:
        (told,) = said_in(snapshot.path)
    assert told[1:] == one[1:]
    assert resolution == 127 or 0 <= one.at - told.at < 1_000


def test_a_ring_forgets_what_was_said_with_the_packets_of_which_it_was_said(tmp_path):
    path = recorded(tmp_path / "x", talk(slow_release).segments, told(talk(slow_release).segments, lambda _: 20 * MS))
    whole = kept(path)
    ring = kept(path, room=whole.size - 1)
    with ring.snapshot() as snapshot:
        assert (ring.size, snapshot.path.stat().st_size) == (0, 0)
    ring.kernel_answers(what_the_kernel_said())
    assert ring.size == 0


def test_a_period_ends_before_there_is_no_room_for_what_the_kernel_says(tmp_path, monkeypatch):
    monkeypatch.setattr("nagle_lab.live.watch.periods.ENOUGH_ANSWERS", 8)
    paths = in_two(tmp_path, talk(slow_release).segments)
    analysis, periods = Analysis(paths, sha256=False), Periods()
    assert [periods.end_if_due(analysis) for _ in analysis].count(True) == 2
    assert [period.verdict for period in periods.sums.listed] == [Verdict.STALL] * 2


class _Frames:
    """A ring that has a packet the first two times."""

    def __init__(self) -> None:
        self._left = 2

    def take(self) -> bytes:
        self._left -= 1
        return b"one" if self._left >= 0 else b""

    def packets(self, frames: bytes) -> Iterator[RingPacket]:
        if frames:
            yield RingPacket(10**18, 1, 60, bytes(54))

    def dropped(self) -> int:
        return 0


def test_the_kernel_is_asked_while_packets_come(tmp_path, monkeypatch):
    """And its answers are in the stream; before there is an interface, nothing is."""
    clock, one = [100.0], what_the_kernel_said()[0]
    monkeypatch.setattr(inside_stream.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(inside_stream.SocketPoller, "answers", lambda self: [one])
    with (tmp_path / "x").open("wb") as out:
        stream = inside_stream._Streamed(_Frames(), out, [])  # type: ignore[arg-type]
        stream.tell_answers()
        for _ in range(10):
            stream.pass_on()
            stream.tell_answers()
            clock[0] += inside_stream.QUIET_S / 4
    assert said_in(tmp_path / "x") == [one] * 5


@pytest.mark.parametrize(("lost", "verdict"), [(0, Verdict.CLEAN), (1000, Verdict.INCONCLUSIVE)])
def test_nothing_is_clean_where_packets_were_lost(capture, lost, verdict):
    assert [row.verdict for row in seen(capture, lost).rows] == [Verdict.STALL, verdict]


def test_a_stall_that_is_seen_again_counts_once(capture):
    findings, first = LiveFindings(), seen(capture)
    said = findings.take(first)
    assert [one.state for one in said] == ["begins"]
    assert (said[0].stalls, findings.stalls) == (first.result.summary.stalls,) * 2
    assert findings.take(seen(capture)) == []
    assert findings.stalls == first.result.summary.stalls


def test_a_finding_ends_when_it_is_seen_no_more(capture, tmp_path):
    quiet = tmp_path / "quiet.pcap"
    quiet.write_bytes(pcap_bytes(talk(nodelay, client=("10.0.0.9", 50000)).segments))
    findings = LiveFindings()
    findings.take(seen(capture))
    assert [one.state for one in findings.take(seen(quiet))] == ["ended"]


class Shown(Spectator):
    """Keeps the states of the findings that it was shown."""

    def __init__(self) -> None:
        self.states: list[str] = []

    def show(self, view, said, watcher):
        self.states += [one.state for one in said]
        if view:
            view.snapshot.close()

    def note(self, text):
        pass


def test_a_finding_ends_when_nothing_comes_any_more(monkeypatch):
    """The window is empty then, and the stream goes on."""
    monkeypatch.setattr("nagle_lab.live.watch.watching.EVERY_S", 0.1)
    shown, (fd, into) = Shown(), os.pipe()
    watcher = Watcher(
        fd, "pipe", shown, ProgramNames(), window_s=1.0, seconds=None, only=None, period_s=60.0, metrics=None
    )

    def end() -> None:
        for _ in range(100):
            if "ended" in shown.states:
                break
            time.sleep(0.1)
        os.close(into)

    os.write(into, pcap_bytes(talk(server_held).segments))
    threading.Thread(target=end).start()
    watcher.run()
    os.close(fd)
    assert shown.states == ["begins", "ended"]
    assert (watcher.findings.end_all(), watcher.findings.new) == ([], {})


def test_exchanges_before_a_silence_are_counted(monkeypatch, metrics):
    """All of a burst, before it leaves the window."""
    monkeypatch.setattr("nagle_lab.live.watch.watching.EVERY_S", 0.1)
    (made, address), (fd, into) = metrics, os.pipe()
    burst = talk(server_held, 10).segments
    watcher = Watcher(
        fd, "pipe", Shown(), ProgramNames(), window_s=4.0, seconds=None, only=None, period_s=60.0, metrics=made
    )
    counted: list[float] = []

    def end() -> None:
        for _ in range(100):
            counted[:] = [served(address).get(("nagle_lab_exchanges_total", "80", "", "server"), 0)]
            if counted == [10]:
                break
            time.sleep(0.1)
        os.close(into)

    os.write(into, pcap_bytes(burst))
    threading.Thread(target=end).start()
    watcher.run()
    os.close(fd)
    assert counted == [10]


@pytest.fixture
def set_back(tmp_path) -> Path:
    """Two servers; in the middle the clock is set back by 1000 s."""
    path, packets = tmp_path / "set-back.pcap", two_servers()
    half = len(packets) // 2
    later = [replace(one, ts_ns=one.ts_ns - 1000 * SECOND) for one in packets[half:]]
    path.write_bytes(pcap_bytes([*packets[:half], *later]))
    return path


def test_nothing_counts_where_the_clock_was_set_back(capture, set_back, metrics):
    view, findings, (made, address) = seen(set_back, exchanges=True), LiveFindings(), metrics
    assert view.result.stalls and view.result.verdict is Verdict.INVALID
    for row in (*view.rows, *view.connections):
        assert (row.verdict, row.reason) == (Verdict.INVALID, view.result.reason)
        assert (row.stalls, row.sure, view.stalls_of(row)) == (0, "", [])
    assert (findings.take(view), findings.stalls, view.latest) == ([], 0, None)
    made.take(view, findings.new, ProgramNames(), 0.0)
    assert not any(name[0] == "nagle_lab_exchanges_total" for name in served(address))
    assert [one.state for one in findings.take(seen(capture))] == ["begins"]
    assert findings.take(view) == [], "it has not ended either"
    assert (findings.take(seen(capture)), findings.new) == ([], {})


def test_exchanges_are_counted_again_after_the_clock_was_set_back(capture, tmp_path, metrics):
    made, address = metrics
    earlier = tmp_path / "earlier.pcap"
    earlier.write_bytes(pcap_bytes([replace(one, ts_ns=one.ts_ns - 1000 * SECOND) for one in two_servers()]))
    for path in (capture, earlier):
        made.take(seen(path, exchanges=True), {}, ProgramNames(), 0.0)
    got, counted = served(address), analyze(capture).summary.exchanges
    assert sum(got["nagle_lab_exchanges_total", port, "", "server"] for port in ("80", "81")) == 2 * counted


def test_the_packets_behind_a_finding_show_it_again(capture, tmp_path):
    view, out = seen(capture), tmp_path / "out.pcapng"
    row = view.rows[0]
    assert write_packets(view.snapshot.path, view.connections_of(row), out) == row.packets
    again = analyze(out)
    assert (again.verdict, again.summary.stalls, again.source.packets) == (Verdict.STALL, row.stalls, row.packets)
    with pytest.raises(FileExistsError):
        write_packets(view.snapshot.path, view.connections_of(row), out)


SIZES = [(80, 24), (100, 40), (120, 12), (30, 6), (80, 5), (80, 4), (80, 3), (20, 1)]


@pytest.mark.parametrize(("width", "height"), SIZES)
@pytest.mark.parametrize("how", ["overview", "connections", "opened", "empty"])
def test_the_screen_fits_the_terminal(capture, width, height, how):
    screen = Screen("all interfaces", 30.0)
    if how != "empty":
        screen.view = seen(capture)
    screen.single = how == "connections"
    row = screen.row()
    screen.opened = identity(row) if row and how == "opened" else None
    shown = drawn(screen, width, height)
    lines = shown.rstrip("\n").split("\n")
    assert len(lines) <= height and max(map(len, lines)) <= width
    assert " LIVE " in lines[0] or height == 1
    if (width, how) == (100, "overview"):
        assert "STALL" in shown and "late ACK" in shown


@pytest.mark.parametrize("width", [80, 100, 120, 140])
@pytest.mark.parametrize("single", [False, True])
def test_programs_and_ports_are_never_cut(capture, width, single):
    """Whatever is cut, it is the container's name, in its middle; of an address the port stays."""
    screen = Screen("all interfaces", 30.0, view=seen(capture), single=single)
    first, second = screen.rows()
    first.process, first.clients = "nagle-lab-8d6b5d7c9f-static-server-1/containerd-shim", "0b679c1d8ac2/ab"
    second.server, second.clients = "[2001:db8:1111:2222:3333:4444:5555:6666]:65535", ""
    lines = drawn(screen, width, 30).splitlines()
    named = next(line for line in lines if line.startswith("containerd-shim :80 "))
    assert (" in nag" in named and "r-1 " in named) or single or width == 80
    assert " ab" in named and (not single or "ab 10.0.0.1:40000" in named)
    assert any("6666]:65535 " in line for line in lines)
    assert all(len(line.rstrip()) <= width for line in lines)


def test_a_narrow_terminal_has_the_port_whole_and_says_what_is_counted(capture):
    screen = Screen("all interfaces", 30.0, view=seen(capture))
    for row in screen.rows():
        row.process, row.where = "python3", "3 addresses"
    for width, heads in ((60, "lost ms/s wait ms share"), (120, "lost ms/s stalls/s wait ms share")):
        shown = drawn(screen, width, 20)
        assert "python3 :80 " in shown and heads in shown


@pytest.mark.parametrize("width", [40, 60])
def test_a_narrow_terminal_says_how_to_leave_and_has_the_port(capture, width):
    screen = Screen("all interfaces", 30.0, view=seen(capture))
    shown = drawn(screen, width, 24).splitlines()
    assert shown[-1].startswith("q report  s sort ") and any(":80" in line and "STALL" in line for line in shown)
    assert all(len(line.rstrip()) <= width for line in shown)


@pytest.fixture
def terminal(monkeypatch) -> Terminal:
    monkeypatch.setattr("os.get_terminal_size", lambda _: os.terminal_size((0, 0)))
    return Terminal(Screen("all interfaces", 30.0), Console(file=io.StringIO(), force_terminal=True))


def test_a_terminal_that_does_not_say_its_size_is_drawn_at_the_usual_one(terminal, capture):
    terminal._screen.view = seen(capture)
    terminal.redraw()
    assert terminal._console.size == (80, 24)


def test_nothing_is_frozen_before_there_is_something_to_show(terminal, capture):
    terminal._do(b"f", None)
    assert (terminal._screen.frozen, terminal._screen.message) == (False, "there is nothing to freeze yet")
    terminal._screen.view = seen(capture)
    terminal._do(b"f", None)
    assert terminal._screen.frozen


FEW = talk(nodelay, exchanges=3).segments
TICKS = Conversation()
TICKS.handshake()
for _ in range(60):
    TICKS.server_sends(60, after_ns=7 * MS)
    TICKS.client_acks(after_ns=30 * US)
PERIODS = {
    "STALL": talk(server_held, exchanges=20).segments,
    "CLEAN": talk(nodelay, exchanges=20).segments,
    "CLEAN stream": TICKS.segments,
    "INCONCLUSIVE": FEW,
    "INVALID": [],
}


@pytest.mark.parametrize(
    ("periods", "whole", "says"),
    [
        (["STALL", "CLEAN"], "STALL", "in 1 of 2 periods"),
        (["CLEAN", "CLEAN"], "CLEAN", "40 answered exchanges in 2 periods"),
        (["INVALID", "CLEAN"], "INCONCLUSIVE", "1 of 2 periods cannot be judged: no TCP packet in it"),
        (["INVALID", *["CLEAN"] * (LISTED + 1)], "INCONCLUSIVE", "cannot be judged: no TCP packet in it"),
        (["INVALID"], "INVALID", "no TCP packet in it"),
        (["CLEAN", "INCONCLUSIVE"], "INCONCLUSIVE", "1 of 2 periods are inconclusive: 3 answered exchanges, none"),
        (["CLEAN stream", "CLEAN stream"], "CLEAN", "none of 2 periods has a stall; of the latest: 59 times data"),
        (["CLEAN stream", "INCONCLUSIVE"], "INCONCLUSIVE", "1 of 2 periods are inconclusive: 3 answered"),
    ],
)
def test_nothing_is_clean_of_which_a_period_is_not(diagnose, periods, whole, says):
    results = {name: diagnose(segments) for name, segments in PERIODS.items() if name in periods}
    sums = PeriodSums()
    for name in periods:
        assert results[name].verdict == name.split()[0]
        sums.add(results[name])
    verdict, reason = sums.verdict()
    assert verdict == whole and says in reason


def watched(content: bytes, *options: str) -> tuple[int, str, str]:
    done = subprocess.run([*WATCH, *options], input=content, capture_output=True, timeout=120, check=False)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def test_a_pipe_ends_with_the_report_and_exit_code_of_analyze(run):
    code, out, err = watched(STALLED.read_bytes())
    finding, report = out.split("\n", 1)
    assert "STALL: 172.26.0.3:8080" in finding and "held by the server" in finding
    _, whole, _ = run("analyze", STALLED)
    assert (code, err) == (0, "")
    # All but the name of the file, and the lines to paste that name the software, for which packets are read again.
    for line in whole.splitlines()[2:]:
        if line.startswith("#"):
            break
        assert line in report or "frames of" in line
    assert "\x1b" not in out
    assert watched(STALLED.read_bytes(), "--expect=clean")[0] == 1


def test_a_port_that_nothing_has_is_said_to_have_left_out_all():
    code, out, err = watched(STALLED.read_bytes(), "--port=9")
    assert (code, err) == (3, "")
    assert "the filter left out all" in out and "handshakes captured)" in out
    assert "no handshakes" not in out and "idle gaps" not in out and "\nexchange " not in out


def test_json_is_a_line_for_each_finding_and_the_report(run):
    code, out, err = watched(STALLED.read_bytes(), "--json")
    events = [json.loads(line) for line in out.splitlines()]
    for event in events:
        check("watch", event)
    assert (code, err, [event["event"] for event in events]) == (0, "", ["finding", "report"])
    _, whole, _ = run("analyze", "--json", STALLED)
    whole = json.loads(whole)
    assert (events[1]["verdict"], events[1]["reason"]) == (whole["verdict"], whole["reason"])
    assert events[1]["stalls"] == events[0]["stalls"] == whole["summary"]["stalls"]


@pytest.mark.parametrize(
    ("content", "code", "says"),
    [
        (b"", 2, "standard input: empty"),
        (b"nothing", 2, "standard input: not a capture, but text: record one with tcpdump -w -\n"),
        (pcap_bytes([]), 2, ""),
        (pcapng_bytes([]), 2, ""),
    ],
)
def test_what_is_no_capture_and_what_is_empty(content, code, says):
    got, out, err = watched(content)
    assert got == code
    assert says in err if says else "INVALID" in out


def test_usage(run, tmp_path):
    for arguments, says in (
        (["x.pcap"], "use nagle-lab analyze for a file"),
        (["-", "--pid", "1"], "exclude each other"),
        (["--container", "a", "-i", "eth0"], "exclude each other"),
        (["--pid", "4194304"], "there is no process 4194304"),
        (["--seconds", "nan"], "nan is not a number of seconds"),
        (["--seconds", "inf"], "inf is not a number of seconds"),
        (["-i", "nono"], "interface nono cannot be recorded: there is no interface nono"),
        (["-i", "\udcff"], "interface \\udcff cannot be recorded: there is no interface \\udcff"),
    ):
        code, _, err = run("watch", *arguments)
        assert (code, says in err, err.count("\n")) == (2, True, 1), err
    assert "sudo" not in run("watch", "-i", "nono")[2]


def test_closed_standard_input_is_one_line():
    line = shlex.join(WATCH) + " <&-"
    done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "standard input is closed: pipe a capture in" in done.stderr


def served(address: str) -> dict[tuple[str, ...], float]:
    """What Prometheus would read: by name and values of the labels."""
    with urlopen(f"http://{address}/metrics", timeout=30) as answer:
        families = list(text_string_to_metric_families(answer.read().decode()))
    return {
        (sample.name, *(sample.labels[name] for name in sorted(sample.labels))): sample.value
        for family in families
        for sample in family.samples
        if not sample.name.endswith("_created")
    }


@pytest.fixture
def metrics():
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    made = Metrics(address)
    yield made, address
    made.close()


def test_metrics_count_each_stall_and_exchange_once(capture, tmp_path, metrics):
    """Two views that overlap: the first half of a stream, and all of it."""
    made, address = metrics
    half, findings = tmp_path / "half.pcap", LiveFindings()
    packets = two_servers()
    half.write_bytes(pcap_bytes(packets[: len(packets) // 2]))
    for path, settled_s in ((half, 0.1), (capture, 0.0)):
        view = seen(path, exchanges=True)
        findings.take(view)
        made.take(view, findings.new, ProgramNames(), settled_s)
    made.count(12, 3)
    got, s = served(address), analyze(capture).summary
    assert got["nagle_lab_stalls_total", "80", "", "server"] == s.stalls
    assert got["nagle_lab_lost_seconds_total", "80", "", "server"] == pytest.approx(s.lost_ms_total / 1e3)
    for role in ("client", "server"):
        assert sum(got["nagle_lab_exchanges_total", port, "", role] for port in ("80", "81")) == s.exchanges
    assert (got["nagle_lab_packets_total",], got["nagle_lab_dropped_packets_total",]) == (12, 3)


def test_metrics_have_so_many_labels_and_no_more(capture, metrics, monkeypatch):
    made, address = metrics
    monkeypatch.setattr("nagle_lab.live.watch.metrics.MOST_LABELS", 1)
    view = seen(capture, exchanges=True)
    made.take(view, {}, ProgramNames(), 0.0)
    labels = {key[1:] for key in served(address) if key[0] == "nagle_lab_exchanges_total"}
    assert labels == {("80", "", "server"), ("0", "other", "")}


def test_rules_and_dashboard_name_metrics_that_there_are(metrics, capture):
    made, address = metrics
    findings, view = LiveFindings(), seen(capture, exchanges=True)
    findings.take(view)
    made.take(view, findings.new, ProgramNames(), 0.0)
    there = {key[0] for key in served(address)}
    dashboard = json.loads((LIVE / "grafana.json").read_text())
    shown = " ".join(target["expr"] for panel in dashboard["panels"] for target in panel["targets"])
    for text in (shown, (LIVE / "alerts.yaml").read_text(), (LIVE / "alerts-test.yaml").read_text()):
        named = set(re.findall(r"nagle_lab_\w+", text))
        assert named and named <= there
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(ids) == len(set(ids)) and all(set(panel["gridPos"]) == set("xywh") for panel in dashboard["panels"])


def lost(sent: object, kept: object, at: str = "") -> Iterator[str]:
    """Where in ``sent`` something is that is not, or not so, in ``kept``."""
    if isinstance(sent, dict) and isinstance(kept, dict):
        for name, value in sent.items():
            yield from lost(value, kept[name], f"{at}.{name}") if name in kept else [f"{at}.{name}"]
    elif isinstance(sent, list) and isinstance(kept, list) and len(sent) == len(kept):
        for number, (one, other) in enumerate(zip(sent, kept, strict=True)):
            yield from lost(one, other, f"{at}[{number}]")
    elif sent != kept:
        yield at


def test_grafana_knows_every_field_of_the_dashboard():
    """Read with the types that Grafana's own schemas are made into, then written: what they lack is gone."""
    register_default_plugins()
    sent = json.loads((LIVE / "grafana.json").read_text())

    def unknown() -> list[str]:
        return list(lost(sent, json.loads(json.dumps(Dashboard.from_json(sent), cls=JSONEncoder))))

    assert unknown() == []
    panel = sent["panels"][0]
    panel["targets"][0]["exprr"], panel["options"]["legend"]["calc"], panel["gridPos"]["z"] = "up", [], 1
    assert unknown() == [
        ".panels[0].gridPos.z", ".panels[0].options.legend.calc", ".panels[0].targets[0].exprr"
    ]  # fmt: skip


def test_the_alert_rules_do_as_their_tests_say():
    promtool = shutil.which("promtool", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if not promtool:
        pytest.skip("no promtool: setup/tools.sh fetches it on Debian and Ubuntu")
    done = subprocess.run(
        [promtool, "test", "rules", "alerts-test.yaml"], cwd=LIVE, capture_output=True, text=True, check=False
    )
    assert (done.returncode, "SUCCESS" in done.stdout) == (0, True), done.stdout + done.stderr


@pytest.mark.parametrize("address", ["9809", "localhost:", "127.0.0.1:0", "127.0.0.1:99999"])
def test_an_address_that_is_none(run, address):
    code, _, err = run("watch", "-", "--prometheus", address)
    assert (code, "write an address and a port" in err) == (2, True)


def test_an_address_that_is_taken_is_told_with_what_to_do(run):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        code, _, err = run("watch", "-", "--prometheus", address)
    assert code == 2
    assert err == f"nagle-lab: --prometheus {address}: address already in use: name another address or port\n"


def test_a_container_is_asked_for_once_and_keeps_its_name(monkeypatch):
    """A new one is named at once, one that Docker does not know is not asked for at every look."""
    processes = {(("10.0.0.2", 80), ("10.0.0.1", 5)): Process(1, "nginx", 0, 1, "c0ffee")}
    asked: list[dict[str, str]] = [{}, {"c0ffee": "web"}, {"deed": "other"}]
    monkeypatch.setattr("nagle_lab.live.watch.program_names.owners", lambda pid, most: Owners(processes, []))
    monkeypatch.setattr("nagle_lab.live.watch.program_names.container_names", lambda: asked.pop(0))
    names = ProgramNames()
    names.refresh()
    names.refresh()
    assert len(asked) == 2
    names._next_container_look = 0.0
    names.refresh()
    assert [named.name for named in names._found.values()] == ["web/nginx"] * 2
    processes[("10.0.0.3", 80), ("10.0.0.1", 5)] = Process(2, "redis", 0, 1, "deed")
    names.refresh()
    assert sorted({named.name for named in names._found.values()}) == ["other/redis", "web/nginx"]


def test_what_the_kernel_refuses_once_is_asked_for_again(monkeypatch):
    """The thread that looks for programs goes on: names come later, and no traceback on the screen."""
    refused = [OSError(24, "Too many open files"), NagleLabError("no sockets are listed")]
    answers = [NagleLabError("no tcp_diag"), Owners({}, []), *refused]
    asked_again = threading.Event()

    def owners(pid, most):
        if not answers:
            asked_again.set()
            return Owners({}, [])
        if isinstance(answer := answers.pop(0), Exception):
            raise answer
        return answer

    monkeypatch.setattr("nagle_lab.live.watch.program_names.owners", owners)
    monkeypatch.setattr("nagle_lab.live.watch.program_names.EVERY_S", 0.01)
    with ProgramNames():
        assert asked_again.wait(30)


def test_one_look_is_in_one_namespace_though_another_process_is_followed_meanwhile(monkeypatch):
    names, looked = ProgramNames(1), []

    def owners(pid, most):
        looked.append(pid)
        names.follow(2)
        return Owners({}, [])

    monkeypatch.setattr("nagle_lab.live.watch.program_names.owners", owners)
    monkeypatch.setattr("nagle_lab.live.watch.program_names.namespace_of", looked.append)
    names.refresh()
    assert looked == [1, 1]
    names.refresh()
    assert looked[2:] == [2, 2]


def test_an_opened_row_names_the_processes_as_the_report_does(capture, monkeypatch):
    """The program, its number and the address; nothing where an end is not known."""
    server, client = ("10.0.0.2", 80), ("10.0.0.1", 40000)
    found = {(server, client): Process(19980, "nginx", 0, 1, "c0ffee")}
    monkeypatch.setattr("nagle_lab.live.watch.program_names.owners", lambda pid, most: Owners(found, []))
    monkeypatch.setattr("nagle_lab.live.watch.program_names.container_names", lambda: {"c0ffee": "web"})
    names = ProgramNames()
    names.refresh()
    view = judge_snapshot(kept(capture).snapshot(), names, 0, lambda _: True)
    assert view
    row = next(row for row in view.rows if row.stalls)
    screen = Screen("all interfaces", 30.0, view=view, opened=identity(row))
    (named,) = (one for one in names.processes(view.result.connections) if one.role == "server")
    facts = [" ".join(line.split()) for line in drawn(screen, 120, 40).splitlines()]
    assert f"server {named.command} {named.pid} {row.server}" == "server web/nginx 19980 10.0.0.2:80"
    assert "server web/nginx 19980 10.0.0.2:80" in facts and "client 10.0.0.1" in facts


@pytest.mark.parametrize(("count", "kept"), [(60, range(60, 61)), (190, range(70, 100)), (115, range(101, 116))])
def test_of_too_many_connections_a_view_has_the_last_ones(tmp_path, monkeypatch, count, kept):
    """And the screen says so; what comes after a hundred waits until it is enough to show."""
    monkeypatch.setattr("nagle_lab.live.watch.view.MOST_CONNECTIONS", 100)
    monkeypatch.setattr("nagle_lab.diagnosis.analysis.open_capture", partial(open_capture, window_bytes=4_000))
    path = tmp_path / "x.pcap"
    path.write_bytes(b"".join(crowd(count)))
    with Snapshot(iter([path.read_bytes()]), 1) as snapshot:
        view = judge_snapshot(snapshot, ProgramNames(), 0, lambda _: True)
    assert view and len(view.result.connections) in kept and view.is_cut is (count > 100)
    shown = drawn(Screen("all interfaces", 30.0, view=view), 120, 40)
    assert (f"of too many connections the last {len(view.result.connections)}" in shown) is view.is_cut


def test_of_too_many_servers_the_rest_is_one_row(tmp_path, monkeypatch):
    """Servers that stall have as many rows again; no stall is lost."""
    monkeypatch.setattr("nagle_lab.live.watch.view.MOST_ROWS", 2)
    several = [
        [
            replace(segment, ts_ns=segment.ts_ns + i * 10**9)  # at the same time it would be a copy of another one
            for segment in talk(story, client=("10.0.0.9", 50000 + i), server=("10.0.0.3", 81 + i)).segments
        ]
        for i, story in enumerate([nodelay] * 3 + [server_held] * 4)
    ]
    path = tmp_path / "x.pcap"
    path.write_bytes(pcap_bytes(merge(*several)))
    view = seen(path)
    rest = next(row for row in view.rows if row.server == OTHERS)
    assert len(view.rows) == 4 and len(rest.connections) == 4 and rest.stalls
    assert sum(row.stalls for row in view.rows) == len(view.result.stalls)
    assert sum(len(row.connections) for row in view.rows) == len(view.result.connections) == 7


def test_a_period_ends_as_soon_as_it_has_too_many_connections(tmp_path, monkeypatch):
    """However fast they come: it is looked at after each window of the stream."""
    monkeypatch.setattr("nagle_lab.live.watch.periods.MOST_CONNECTIONS", 100)
    paths = [tmp_path / str(number) for number in range(4)]
    for path in paths:
        path.write_bytes(b"".join(crowd(101)))
    analysis, periods = Analysis(paths, sha256=False), Periods()
    assert [periods.end_if_due(analysis) for _ in analysis].count(True) == 4
    assert periods.sums.worst.summary.connections == 101


def test_what_holds_data_where_nothing_is_seen_is_said_once_at_the_second_look(monkeypatch):
    """In a container, with its name; outside one, with the number of the process."""
    held = [Process(7, "nginx", 0, 1, "c0ffee"), Process(8, "nginx", 0, 1, "c0ffee"), Process(9, "server", 0, 2)]
    looks = [held, [], held[2:], held]
    monkeypatch.setattr("nagle_lab.live.watch.program_names.owners", lambda pid, most: Owners({}, looks.pop(0)))
    monkeypatch.setattr("nagle_lab.live.watch.program_names.container_names", lambda: {"c0ffee": "web"})
    names, said = ProgramNames(), []
    names._containers = {"c0ffee": "web"}
    while looks:
        names.refresh()
        said.append([text.rpartition(": ")[2] for text in names.unseen])
    pid, container = "nagle-lab watch --pid 9", "nagle-lab watch --container web"
    assert said == [[], [], [pid], [pid, container]]
    assert names.unseen[1].startswith("web/nginx 8 holds data again and again on its own loopback")


def test_a_container_that_docker_does_not_know_is_entered_by_its_process(monkeypatch):
    """Of LXC or containerd: its name is shown, but nobody finds it by that."""
    held = [Process(7, "nginx", 0, 1, "web")]
    monkeypatch.setattr("nagle_lab.live.watch.program_names.owners", lambda pid, most: Owners({}, held))
    monkeypatch.setattr("nagle_lab.live.watch.program_names.container_names", dict)
    names = ProgramNames()
    for _ in range(2):
        names.refresh()
    (text,) = names.unseen
    assert text.startswith("web/nginx 7 holds") and text.endswith(": nagle-lab watch --pid 7")


def test_who_watches_one_interface_is_told_of_that_alone(monkeypatch):
    held = [Process(9, "server", 0, 2)]
    monkeypatch.setattr("nagle_lab.live.watch.program_names.owners", lambda pid, most: Owners({}, held))
    names = ProgramNames(looks_elsewhere=False)
    for _ in range(3):
        names.refresh()
    assert not names.unseen


def test_the_systemd_unit_is_one():
    if not shutil.which("systemd-analyze"):
        pytest.skip("systemd-analyze is not installed")
    unit = LIVE / "nagle-lab-watch.service"
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)], capture_output=True, text=True, check=False
    )
    # The program is where the unit's reader installs it, not necessarily here.
    said = [line for line in done.stderr.splitlines() if unit.name in line and "not executable" not in line]
    assert said == []


def test_names_are_of_the_namespace_that_is_watched(capture, monkeypatch):
    """Containers by name; a server by its address and port once seen; loopback elsewhere is another one."""
    here = namespace_of("self")

    def process(name: str, namespace: int | None, container: str = "") -> Process:
        return Process(1, name, 0, namespace, container)

    client, server = ("10.0.0.1", 40000), ("10.0.0.2", 80)
    found = {
        (server, ("10.9.9.9", 1)): process("nginx", here, "c0ffee"),
        (client, server): process("worker", here),
        (("127.0.0.1", 80), ("", 0)): process("ours", here),
        (("127.0.0.1", 81), ("", 0)): process("elsewhere", 1),
        (("0.0.0.0", 82), ("", 0)): process("any", here),
    }
    monkeypatch.setattr("nagle_lab.live.watch.program_names.owners", lambda pid, most: Owners(found, []))
    monkeypatch.setattr("nagle_lab.live.watch.program_names.container_names", lambda: {"c0ffee": "shop-web"})
    names = ProgramNames()
    names.refresh()

    def of(client: tuple[str, int], server: tuple[str, int]) -> tuple[str, str]:
        (one,) = {one.id: one for one in analyze(capture).connections if one.id == 0}.values()
        ends = Endpoint(*client, "client"), Endpoint(*server, "server")
        there, here = names.ends_of(msgspec.structs.replace(one, client=ends[0], server=ends[1]))
        return there.name, here.name

    assert of(client, server) == ("shop-web/nginx", "worker")
    assert of(("10.0.0.1", 40001), server) == ("shop-web/nginx", "")
    assert of(("127.0.0.1", 5), ("127.0.0.1", 80)) == ("ours", "")
    assert of(("127.0.0.1", 5), ("127.0.0.1", 81)) == ("", "")
    assert of(("10.0.0.1", 5), ("10.0.0.2", 82)) == ("", "")


def test_a_view_with_many_stalls_keeps_none_of_them_one_by_one(capture):
    """Two thirds of the memory of `watch` were rows of stalls, each made an object."""
    findings, view = LiveFindings(), seen(capture)
    findings.take(view)
    stalls = analyze(capture).stalls
    by_connection = Counter((stall.connection, stall.held_by.role) for stall in stalls)
    assert {key: new.stalls for key, new in findings.new.items()} == by_connection
    assert findings.stalls == len(stalls) and findings.lost_ms == pytest.approx(sum(one.wait_ms for one in stalls))
