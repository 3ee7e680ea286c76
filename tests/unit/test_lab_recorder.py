"""The recorder and the sidecar's record together; a stand-in for tcpdump keeps its last block as the kernel does."""

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from nagle_lab.errors import NagleLabError
from nagle_lab.lab.recorder import Recorder
from nagle_lab.lab.witnesses import parse_counters
from nagle_lab.runs.witnesses import CaptureNumbers
from support.repository import REPOSITORY
from support.waiting import within

# First asked for its counts it has seen nothing. Then come 100 packets of one byte; the last 40 arrive only 0.4 s
# later, or never if it is stopped before.
TCPDUMP = """#!/usr/bin/env python3
import signal, sys, time
if "--version" in sys.argv:
    sys.exit(print("tcpdump version 4.99.5\\nlibpcap version 1.10.5"))
started, first, more = 0, 0, 0
late = 40
def counts(end):
    captured, received = (100 - late, 100 + more) if started else (0, first)
    return end.join([f"{captured} packets captured", f"{received} packets received by filter",
                     "0 packets dropped by kernel"]) + "\\n"
def count(*_):
    global started
    said = counts(", ")
    if not started:
        started = time.monotonic()
        sys.stdout.buffer.write(bytes(60)); sys.stdout.flush()
    sys.stderr.write(said); sys.stderr.flush()
def stop(*_):
    sys.stderr.write(counts("\\n"))
    sys.exit()
signal.signal(signal.SIGUSR1, count)
signal.signal(signal.SIGTERM, stop)
print("tcpdump: listening on eth0, link-type EN10MB", file=sys.stderr, flush=True)
while True:
    time.sleep(0.05)
    if started and late and time.monotonic() - started > 0.4:
        sys.stdout.buffer.write(bytes(late)); sys.stdout.flush()
        late = 0
"""


@pytest.fixture
def recorder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Return a function that starts a recorder; `docker exec` runs `record` here, with the stand-in in PATH."""
    bin_dir = tmp_path / "bin"
    bin_dir.mkdir()
    sidecar = REPOSITORY / "scenarios" / "shared" / "sidecar"
    docker = f'#!/bin/sh\nPATH="{sidecar}:$PATH"\nshift 3\nexec "$@"\n'  # exec --interactive CONTAINER
    started = []

    def start(
        tcpdump: str = TCPDUMP, interface: str = "eth0", file: Path = tmp_path / "run" / "server.pcap"
    ) -> Recorder:
        for name, script in {"docker": docker, "tcpdump": tcpdump}.items():
            (bin_dir / name).write_text(script)
            (bin_dir / name).chmod(0o755)
        monkeypatch.setenv("PATH", str(bin_dir), prepend=":")
        file.parent.mkdir(exist_ok=True)
        started.append(Recorder("server", "container", interface, file))
        return started[-1]

    yield start
    for each in started:
        each.abandon()


def test_settling_waits_for_the_last_block(recorder, tmp_path: Path):
    capture = recorder()
    capture.wait_until_capturing()
    assert capture.numbers() == CaptureNumbers(60, 100, 0, 0)
    capture.settle()
    assert capture.stop() == CaptureNumbers(100, 100, 0, 0)
    assert (tmp_path / "run" / "server.pcap").stat().st_size == 100


def test_stopping_at_once_loses_it_and_the_numbers_say_so(recorder, tmp_path: Path):
    capture = recorder()
    capture.wait_until_capturing()
    assert capture.stop() == CaptureNumbers(60, 100, 0, 0)
    assert (tmp_path / "run" / "server.pcap").stat().st_size == 60


def test_after_stopping_there_is_nothing_to_settle(recorder, monkeypatch: pytest.MonkeyPatch):
    """A load that failed is told of at once, not after waiting for an answer of each capture that is over."""
    capture = recorder()
    capture.wait_until_capturing()
    capture.stop()
    monkeypatch.setattr(capture, "numbers", lambda: pytest.fail("asked a capture that is over"))
    capture.settle(1.5)


def test_settling_gives_up_on_a_capture_that_stays_behind(recorder, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("nagle_lab.lab.recorder._SETTLE_S", 0.3)
    capture = recorder(TCPDUMP.replace("> 0.4", "> 60"))
    capture.wait_until_capturing()
    started = time.monotonic()
    capture.settle()
    assert time.monotonic() - started < 5
    assert capture.stop().captured == 60


def test_packets_before_the_filter_stood_are_told_from_lost_ones(recorder):
    capture = recorder(TCPDUMP.replace("first, more = 0, 0, 0", "first, more = 0, 2, 2"))
    capture.wait_until_capturing()
    capture.settle()
    assert capture.stop() == CaptureNumbers(100, 100, 0, 0, early=2)


def test_more_than_came_early_is_lost(recorder, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("nagle_lab.lab.recorder._SETTLE_S", 0.3)
    capture = recorder(TCPDUMP.replace("first, more = 0, 0, 0", "first, more = 0, 2, 2").replace("> 0.4", "> 60"))
    capture.wait_until_capturing()
    capture.settle()
    assert capture.stop() == CaptureNumbers(60, 100, 0, 0, early=2)


def test_packets_on_their_way_at_the_beginning_are_waited_for_at_the_end(recorder):
    """The 40 that seemed early were not: as many are still to come when the counts first agree."""
    capture = recorder(TCPDUMP.replace("first, more = 0, 0, 0", "first, more = 0, 40, 0").replace("> 0.4", "> 1.0"))
    capture.wait_until_capturing()
    capture.settle()
    assert capture.stop() == CaptureNumbers(100, 100, 0, 0)


def test_loopback_counts_every_packet_once(recorder):
    capture = recorder(interface="lo")
    capture.wait_until_capturing()
    assert capture.stop().received == 50


def host_addresses() -> set[str]:
    return set(subprocess.run(["hostname", "-I"], capture_output=True, text=True, check=True).stdout.split())


def test_the_sidecar_answers_for_its_namespace(recorder):
    capture = recorder(interface="lo")
    capture.wait_until_capturing()
    assert {"Tcp.InSegs", "Tcp.OutSegs", "TcpExt.DelayedACKs"} <= parse_counters(capture.counters()).keys()
    before = host_addresses()
    described = capture.describe()
    after = host_addresses()  # other tests make networks and remove them meanwhile
    assert "tcpdump tcpdump version 4.99.5, libpcap version 1.10.5" in described
    assert any(line.startswith("sysctl net.ipv4.tcp_congestion_control ") for line in described)
    own = {line.removeprefix("address ") for line in described if line.startswith("address ")}
    assert before & after <= own <= before | after
    assert not any("fastopen_key" in line for line in described)
    assert capture.listening(1) is False


def test_a_machine_that_pauses_is_seen_to_be_late(recorder):
    """Everything in the sidecar is stopped for 0.3 s, as by a machine that has no time for it."""
    capture = recorder()
    capture.wait_until_capturing()
    capture.watch_lateness()
    for number, seconds in ((signal.SIGSTOP, 0.3), (signal.SIGCONT, 0.1)):
        os.killpg(capture._process.pid, number)
        time.sleep(seconds)
    late = capture.lateness()
    assert late.max_us > 280_000
    assert 0 <= late.p50_us <= late.p99_us <= late.max_us
    assert (late.interval_us, late.count > 0) == (5000, True)


def test_measuring_lateness_ends_with_the_capture(recorder):
    """Whoever started it is gone without a word."""
    capture = recorder()
    capture.wait_until_capturing()
    capture.watch_lateness()
    assert "lateness" in processes_of(capture)
    capture.abandon()
    assert within(5, lambda: not processes_of(capture)), processes_of(capture)


def processes_of(capture: Recorder) -> str:
    """The commands that still run of what that recorder started."""
    listed = subprocess.run(["ps", "-eo", "pgid=,stat=,args="], capture_output=True, text=True, check=True).stdout
    rows = [line.split(maxsplit=2) for line in listed.splitlines()]
    # A test of the guard may have made this worker the parent of orphans: what has ended stays a zombie then.
    return "\n".join(
        args for group, state, args in rows if group == str(capture._process.pid) and not state.startswith("Z")
    )


def test_tcpdump_that_cannot_start_is_told_in_its_own_words(recorder):
    capture = recorder("#!/bin/sh\necho 'tcpdump: eth0: No such device exists' >&2\nexit 1\n")
    with pytest.raises(NagleLabError, match=r"the capture at the server ended early: .*No such device exists"):
        capture.wait_until_capturing()


def test_tcpdump_that_dies_is_noticed(recorder):
    capture = recorder(TCPDUMP.replace("while True:", "while late:"))  # it ends 0.4 s after its first counts
    capture.wait_until_capturing()
    with pytest.raises(NagleLabError, match="the capture at the server ended early"):
        capture.settle()


def test_a_full_disk_is_told_and_the_capture_can_still_be_stopped(recorder, tmp_path: Path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "client.pcap").symlink_to("/dev/full")
    capture = recorder(file=tmp_path / "run" / "client.pcap")
    with pytest.raises(NagleLabError, match=f"disk full while writing client.pcap: make room in {tmp_path}$"):
        capture.wait_until_capturing()
        within(30, capture.check)
    capture.abandon()
