"""The ring that records, in a real network namespace, and what its kernel counted."""

import os
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator, Sequence
from functools import partial

import pytest

from nagle_lab import analyze
from nagle_lab.guard.recording import inside_command, recorder
from nagle_lab.guard.recording.job import CAPTURE, JOB, OUTCOME, Outcome, read_record, write_record
from nagle_lab.guard.recording.recorder import Recorder, Ring, RingPacket
from nagle_lab.guard.recording.run_command import make_job
from nagle_lab.host import namespace
from support.guarded import guard
from support.living import stalling
from support.rights import must_look_elsewhere
from support.waiting import within


def test_a_ring_that_was_ended_takes_no_more():
    """Where packets come faster than they are written, a recording would have no end."""
    must_look_elsewhere()
    with stalling("flood") as program:
        ring = namespace.inside(program.pid, lambda: Ring("lo"))
        for _ in range(2):
            assert within(10, ring.take), "it floods no more"
        ring.end()
        assert any(not ring.take() for _ in range(1000))
        time.sleep(0.2)
        assert ring.take() == b""
        ring.close()


def test_the_rings_of_many_interfaces_take_little_memory():
    """The kernel takes all of it at once, and gives it to nobody else."""
    sizes = [recorder.ring_bytes(count) for count in (1, 4, 5, 200)]
    assert sizes == [64 << 20, 64 << 20, (256 << 20) // 5, 2 << 20]


def test_a_small_ring_takes_packets_again_and_again():
    must_look_elsewhere()
    with stalling("flood") as program:
        ring = namespace.inside(program.pid, lambda: Ring("lo", size=1 << 17))
        taken: list[RingPacket] = []

        def takes_more() -> bool:
            taken.extend(ring.packets(ring.take()))
            return len(taken) > 5 * (1 << 17) // recorder.FRAME_BYTES

        assert within(20, takes_more), "it floods no more"
        ring.close()
    assert all(len(one.kept) >= 54 for one in taken)
    assert [one.ts for one in taken] == sorted(one.ts for one in taken)


def test_an_interface_whose_name_is_no_text_leaves_the_others(monkeypatch):
    """Linux takes any byte but blanks, slashes and colons."""
    there = [(1, "lo"), (2, "d\udcff")]
    monkeypatch.setattr(recorder.socket, "if_nameindex", lambda: there)
    assert recorder.interfaces() == ["lo"]


def test_an_interface_that_is_gone_meanwhile_leaves_the_others(tmp_path, monkeypatch):
    """Those of containers come and go."""
    listed = socket.if_nameindex()
    monkeypatch.setattr(recorder.socket, "if_nameindex", lambda: [*listed, (99, "gone0")])
    assert "lo" in recorder.interfaces() and "gone0" not in recorder.interfaces()
    must_look_elsewhere()
    with stalling("flood") as program:
        make = partial(Recorder, tmp_path / "capture.pcapng", ["gone0", "lo"])
        recording = namespace.inside(program.pid, make)
        recording.start()
        assert within(20, lambda: recording.captured > 2)
        recording.stop()
        with pytest.raises(OSError, match="No such device"):
            namespace.inside(program.pid, partial(Recorder, tmp_path / "other.pcapng", ["gone0"]))
    assert analyze(tmp_path / "capture.pcapng").source.packets == recording.captured


def test_a_recorder_without_memory_says_so(tmp_path, monkeypatch):
    """What it wrote until then must not count as all there was."""

    def none_left(_: object) -> bytes:
        raise MemoryError

    monkeypatch.setattr(_Ceaseless, "take", none_left)
    monkeypatch.setattr(recorder, "Ring", _Ceaseless)
    recording = Recorder(tmp_path / "capture.pcapng", ["lo"])
    recording.start()
    recording.stop()
    assert recording.problem.startswith("the recorder ran out of memory")


class _Ceaseless:
    """A ring in which there is one more packet whenever it is looked at, until it is ended."""

    def __init__(self, interface: str, ports: Sequence[int], size: int) -> None:
        self._has_ended = False

    def take(self) -> bytes:
        return b"" if self._has_ended else b"one"

    def packets(self, frames: bytes) -> Iterator[RingPacket]:
        if frames:
            yield RingPacket(10**18, socket.if_nametoindex("lo"), 60, bytes(54))

    def end(self) -> None:
        self._has_ended = True

    def dropped(self) -> int:
        return 0

    def close(self) -> None:
        pass


def test_a_recorder_writes_and_ends_though_packets_never_cease(tmp_path, monkeypatch):
    monkeypatch.setattr(recorder, "Ring", _Ceaseless)
    monkeypatch.setattr(recorder.SocketPoller, "answers", lambda self: [])
    recording = Recorder(tmp_path / "first.pcapng", ["lo"])
    recording.start()
    assert within(20, lambda: recording.captured > 2)
    for act in (lambda: recording.cut(tmp_path / "second.pcapng"), recording.stop):
        acting = threading.Thread(target=act, daemon=True)
        acting.start()
        acting.join(20)
        assert not acting.is_alive()
    assert not recording.problem
    packets = [analyze(tmp_path / f"{name}.pcapng").source.packets for name in ("first", "second")]
    assert packets[0] > 2 and sum(packets) == recording.captured


def test_no_room_for_its_thread_is_an_outcome(tmp_path, monkeypatch):
    """As below a limit of processes (ulimit -u), which root does not have."""

    def refused(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(inside_command, "_run", refused)
    write_record(make_job(["true"], tmp_path), tmp_path / JOB)
    inside_command.main(str(tmp_path))
    outcome = read_record(Outcome, tmp_path / OUTCOME)
    assert (outcome.status, outcome.try_another_way) == (None, False)
    assert outcome.problem == "the recorder could not start: can't start new thread; see ulimit -u"


AS_ROOT_FOR_NOBODY = """
import os, sys
from pathlib import Path
import msgspec
from nagle_lab.guard.recording import inside_command
from nagle_lab.guard.recording.job import JOB, write_record
from nagle_lab.guard.recording.run_command import make_job
folder = Path(sys.argv[1])
job = msgspec.structs.replace(make_job(["true"], folder, cwd=Path("/")), uid=65534, gid=65534, groups=[])
write_record(job, folder / JOB)
os.umask(0o077)
inside_command.main(str(folder))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
def test_what_sudo_records_belongs_to_who_asked(tmp_path):
    """Below a umask of 077, which sudo keeps, nobody else could read it."""
    subprocess.run([sys.executable, "-c", AS_ROOT_FOR_NOBODY, tmp_path], check=True)
    assert read_record(Outcome, tmp_path / OUTCOME).status == 0
    assert {path.name: path.stat().st_uid for path in tmp_path.iterdir()} == {CAPTURE: 65534, OUTCOME: 65534}


def test_retransmissions_are_segments_that_the_kernel_sent(monkeypatch):
    """OutSegs leaves them out, and every one of them is recorded."""
    counters = "Ip: Forwarding\nIp: 1\nTcp: InSegs OutSegs RetransSegs\nTcp: 128 126 3\n"
    monkeypatch.setattr(namespace.Path, "read_text", lambda _: counters)
    assert namespace.segments_sent() == 129


# Its second write waits until the first is acknowledged, and asks for that without sleeping.
WAITS_FOR_THE_ACK = textwrap.dedent("""
    import fcntl, socket, termios, threading
    listener = socket.create_server(("127.0.0.1", 0))

    def serve():
        peer, _ = listener.accept()
        while peer.recv(4096):
            peer.sendall(b"h" * 200)
            while any(fcntl.ioctl(peer, termios.TIOCOUTQ, bytes(4))):
                pass
            peer.sendall(b"b" * 600)

    threading.Thread(target=serve, daemon=True).start()
    with socket.create_connection(listener.getsockname()) as s:
        for _ in range(60):
            s.sendall(b"q" * 100)
            got = 0
            while got < 800:
                got += len(s.recv(4096))
""")


def test_a_program_that_waits_for_the_ack_itself_is_not_accused_though_it_never_sleeps(tmp_path):
    # It keeps a processor busy; the recorder, which has to ask the kernel in time, comes first.
    ended = guard(tmp_path, command=["nice", "-n", "5", sys.executable, "-c", WAITS_FOR_THE_ACK])
    result = ended.report["result"]
    late, asked = result["summary"]["delayed_acks"], sum(result["quality"]["kernel_asked"].values())
    assert late > 30
    if ended.report["verdict"] == "INCONCLUSIVE":  # it takes long to ask this kernel: then it is asked less often
        assert 0 < asked < late, ended.err
    else:
        assert (ended.report["verdict"], ended.code) == ("CLEAN", 0), ended.err
        assert result["quality"]["rejected"]["later_release"] > 30
