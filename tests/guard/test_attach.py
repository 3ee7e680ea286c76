"""What already runs, recorded and judged: a process, an interface, a pipe; until Ctrl-C, which reports."""

import os
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from nagle_lab.errors import NagleLabError
from nagle_lab.guard.recording import record_running
from nagle_lab.guard.recording.job import Target
from support.command import in_process
from support.guarded import GUARD
from support.living import PORT, stalling
from support.namespaces import is_recorded, sent
from support.repository import STALLED
from support.rights import mount_refused, with_room
from support.waiting import unread, within

pytestmark = pytest.mark.usefixtures("may_record")


@pytest.fixture
def elsewhere():
    """A stalling pair in a network namespace of its own; the process's number."""
    with stalling() as process:
        yield process.pid


def recorded(*options: str) -> tuple[int, str]:
    done = subprocess.run([*GUARD, *options], stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    return done.returncode, done.stderr


def test_a_process_for_some_seconds(elsewhere):
    code, err = recorded(f"--pid={elsewhere}", "--seconds=2")
    assert code == 1
    assert f" STALL   process {elsewhere} " in err
    assert f" exchanges waited for a delayed ACK: the server (127.0.0.1:{PORT})" in err
    enter = f"nsenter -t {elsewhere} -n "  # on this host the same address is another loopback
    assert "In a shell on this host, as root, to see which program holds" in err and "captured host" not in err
    assert f"\n{enter}ss -tlnp 'sport = :{PORT}'" in err
    (route,) = (line for line in err.splitlines() if line.endswith(" quickack 1"))
    assert route.startswith(f"{enter}ip route replace table local $({enter}ip route show table local match 127.0.0.1")
    assert f"# to undo it: {enter}ip route replace table local $({enter}ip route show" in err


def test_ctrl_c_ends_the_recording_and_reports(elsewhere):
    counts = Path(f"/proc/{elsewhere}/net/snmp")
    with (
        subprocess.Popen([*GUARD, f"--pid={elsewhere}"], stderr=subprocess.PIPE, text=True) as process,
        ExitStack() as at_last,
    ):
        at_last.callback(process.kill)
        assert within(60, lambda: is_recorded(elsewhere))
        (recorder,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        where = os.getpgid(int(recorder)) == int(recorder), os.getsid(int(recorder))
        before = sent(counts.read_text())
        assert within(60, lambda: sent(counts.read_text()) > before + 300)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert where == (True, os.getsid(0)), "the scheduler lets a session of its own wait for seconds"
    assert process.returncode == 1
    assert "recording pid" in err and "until Ctrl-C" in err
    assert " exchanges waited for a delayed ACK" in err


def test_an_interface_and_one_port_of_it(elsewhere):
    """Only the port is recorded."""
    enter = ["nsenter", f"--net=/proc/{elsewhere}/ns/net"]
    for port, code, says in ((PORT, 1, "STALL"), (PORT + 1, 3, "no TCP segment passed; record for longer")):
        whole = [*enter, *GUARD, "--interface=lo", f"--port={port}", "--seconds=1.5"]
        done = subprocess.run(whole, capture_output=True, text=True, timeout=60, check=False)
        assert (done.returncode, says in done.stderr) == (code, True), done.stderr


@pytest.mark.parametrize(("name", "shown"), [("nowhere0", "nowhere0"), ("\udcff", "\\udcff")])
def test_an_interface_that_is_not_there(name, shown):
    code, _, err = in_process("guard", f"--interface={name}", "--seconds=1")
    assert code == 2
    assert f"interface {shown} cannot be recorded (there is no interface {shown}; there are lo" in err


@pytest.mark.parametrize("writer", ["ends", "goes on"])
def test_ctrl_c_on_a_pipe_still_reports(tmp_path, writer):
    """`tcpdump -w - | nagle-lab analyze -`: the terminal interrupts both, and one of them may not care."""
    # All but the end of the last packet, and then it waits: what a reader sees of a recorder that is cut off.
    program = "import sys, time; sys.stdout.buffer.write(open(sys.argv[1], 'rb').read()[:-9]); sys.stdout.flush()\n"
    program += "try: print('written', file=sys.stderr, flush=True); time.sleep(30)\nexcept KeyboardInterrupt: pass\n"
    if writer == "goes on":
        program = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\n" + program
    with (
        subprocess.Popen(
            [sys.executable, "-c", program, str(STALLED)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            process_group=0,
        ) as recorder,
        subprocess.Popen(
            [sys.executable, "-m", "nagle_lab", "analyze", "-"], stdin=recorder.stdout, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, process_group=recorder.pid,
        ) as analyzer,
    ):  # fmt: skip
        assert recorder.stderr.readline() == b"written\n"
        assert within(30, lambda: not unread(recorder.stdout))
        recorder.stdout.close()
        # Both at once, as a terminal does: signalled one after the other, the first could end the pipe before.
        os.killpg(recorder.pid, signal.SIGINT)
        out, err = analyzer.communicate(timeout=20)
        recorder.kill()
    assert (analyzer.returncode, err) == (0, "")
    assert " of 100 exchanges waited for a delayed ACK" in out
    assert "damage" not in out


LOSES_THE_FIRST = """
trap '' TERM
echo begun
sleep 1
trap 'exit 5' TERM
while :; do sleep 0.05; done
"""
WAITS = """
import os, sys
from nagle_lab.host.children import Child, leave_terminal
child = Child(["sh", "-c", sys.argv[1]], os.environ, "/", leave_terminal)
child.start()
sys.exit(child.wait_or_end().status)
"""


def test_a_recorder_is_out_of_the_reach_of_the_terminal_but_in_its_session():
    """The scheduler lets a session of its own wait for seconds."""
    where = "import os; print(os.getpgrp(), os.getsid(0), os.readlink('/proc/self/fd/0'))"
    done = subprocess.run(
        [sys.executable, "-c", WAITS, f'"{sys.executable}" -c "{where}"'], stdin=subprocess.PIPE, capture_output=True,
        text=True, check=True, timeout=30,
    )  # fmt: skip
    group, session, stdin = done.stdout.split()
    assert (group != str(os.getpgrp()), session, stdin) == (True, str(os.getsid(0)), "/dev/null")


def test_a_signal_that_is_lost_is_sent_again():
    """docker's client loses one that comes before its container runs, and then records for ever."""
    command = [sys.executable, "-c", WAITS, LOSES_THE_FIRST]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout and process.stdout.readline() == "begun\n"
        process.send_signal(signal.SIGINT)
        try:
            assert process.wait(30) == 5
        finally:
            process.kill()


def test_a_recorder_that_cannot_be_started_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(record_running, "program", lambda *_: ["/no/such/program"])
    with pytest.raises(NagleLabError, match="/no/such/program: "):
        record_running.record_running(tmp_path, Target(interface="lo"))


def test_a_recorder_that_a_signal_ended_before_it_began_was_interrupted(tmp_path, monkeypatch):
    """Ctrl-C at once: the recorder takes no SIGTERM yet."""
    monkeypatch.setattr(record_running, "program", lambda *_: ["sh", "-c", "kill -TERM $$"])
    with pytest.raises(KeyboardInterrupt):
        record_running.record_running(tmp_path, Target(interface="lo"))


@pytest.mark.parametrize("what", [["--interface=lo", "--port=18080"], [f"--pid={os.getpid()}"]])
@pytest.mark.parametrize(("room", "unwritten"), [(0, "the recording"), (4, "the recording"), (8, "capture.pcapng")])
def test_a_disk_without_room_for_the_recording_is_one_line(tmp_path, what, room, unwritten):
    if refused := mount_refused():
        pytest.skip(refused)
    small = tmp_path / "small"
    small.mkdir()
    command = [*with_room(small, room), *GUARD, *what, "--seconds=0.2", f"--keep={small / 'kept'}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    lines = [line for line in done.stderr.splitlines() if not line.startswith("nagle-lab: recording ")]
    said = f"nagle-lab: disk full while writing {unwritten}: make room in {small / 'kept'}"
    assert (done.returncode, lines) == (2, [said])


def test_what_is_not_recorded_is_not_said_to_be(run, tmp_path, monkeypatch):
    (tmp_path / "docker").write_text("#!/bin/sh\necho no such container: foo >&2\nexit 1\n")
    (tmp_path / "docker").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    said = "nagle-lab: no such container: foo: docker ps lists the running containers\n"
    assert run("guard", "--container=foo") == (2, "", said)
