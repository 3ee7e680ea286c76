"""What runs, watched while it runs: the same report as of its packets, what is lost, what comes and goes, memory."""

import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import textwrap
import time
from fcntl import ioctl
from pathlib import Path

import pytest

from nagle_lab.diagnosis.analysis import analyze
from support.crowd import AT_ONCE, crowd
from support.namespaces import FIN_WAIT_2, OWN_NETWORK, is_recorded, sent, sockets
from support.schemas import check
from support.waiting import within

pytestmark = [pytest.mark.usefixtures("may_record"), pytest.mark.long]
COMMAND = [sys.executable, "-m", "nagle_lab", "watch"]
PORT = 18082
# A server that is asked, by another process, until it is ended; "nodelay" never stalls, and is asked without a pause;
# "polls" waits for the ACK itself before it writes again, and never sleeps.
ASKED = textwrap.dedent("""
    import fcntl, os, socket, sys, termios
    how, port, most = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    listener = socket.create_server(("127.0.0.1", port))
    if os.fork() == 0:
        while True:
            peer, _ = listener.accept()
            if how == "nodelay":
                peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while peer.recv(4096):
                peer.sendall(bytes(200))
                while how == "polls" and any(fcntl.ioctl(peer, termios.TIOCOUTQ, bytes(4))):
                    pass
                peer.sendall(bytes(600))
    print("ready", flush=True)
    input()
    with socket.create_connection(("127.0.0.1", port)) as s:
        for _ in range(most):
            s.sendall(bytes(100))
            got = 0
            while got < 800:
                got += len(s.recv(4096))
    print("done", flush=True)
    input()
""")


class Asked:
    """Server and client in a network namespace of their own; asked from :meth:`go` on."""

    def __init__(self, how: str, most: int = 10**9) -> None:
        command = [*OWN_NETWORK, sys.executable, "-c", ASKED, how, str(PORT), str(most)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, process_group=0)
        self.pid = self._process.pid
        assert self._process.stdout.readline() == b"ready\n"

    def go(self) -> None:
        self._process.stdin.write(b"\n")
        self._process.stdin.flush()

    def wait(self) -> None:
        assert self._process.stdout.readline() == b"done\n"

    def sent(self) -> int:
        """TCP segments that its kernel sent, those sent again included."""
        return sent(Path(f"/proc/{self.pid}/net/snmp").read_text())

    def is_closed(self) -> bool:
        """Whether the client has closed the connection and the server has acknowledged that: nothing more is sent."""
        return sockets(Path(f"/proc/{self.pid}/net/tcp").read_text(), PORT, FIN_WAIT_2) > 0

    def end(self) -> None:
        os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()
        self._process.stdin.close()
        self._process.stdout.close()


@pytest.fixture
def asked():
    """Makes them; all are ended."""
    made: list[Asked] = []

    def make(*arguments) -> Asked:
        made.append(Asked(*arguments))
        return made[-1]

    yield make
    for one in made:
        one.end()


def first_finding(process: subprocess.Popen) -> dict:
    for line in process.stdout:
        event = json.loads(line)
        check("watch", event)
        if event["event"] == "finding":
            return event
    pytest.fail("it ended without a finding")


def test_a_server_that_stalls_is_named_while_it_runs(asked):
    """Finding and process first, then Ctrl-C: the report."""
    pair = asked("stalls")
    pair.go()
    with subprocess.Popen(
        [*COMMAND, f"--pid={pair.pid}", "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as watch:
        finding = first_finding(watch)
        watch.send_signal(signal.SIGINT)
        out, err = watch.communicate(timeout=60)
    assert (watch.returncode, err) == (0, "")
    assert (finding["server"], finding["held_by"]) == (f"127.0.0.1:{PORT}", ["server"])
    assert finding["process"].startswith("python") and finding["peer"].startswith("python")
    report = json.loads(out.splitlines()[-1])
    assert (report["event"], report["verdict"], report["dropped"]) == ("report", "STALL", 0)
    assert report["stalls"] >= finding["stalls"] > 0


def test_a_program_that_waits_for_the_ack_itself_is_not_shown_as_a_stall(asked):
    """It never sleeps: its data follows as soon as a kernel's, and only the kernel knows when it was written."""
    pair = asked("polls")
    pair.go()
    command = [*COMMAND, f"--pid={pair.pid}", "--seconds=8", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert [event["event"] for event in events] == ["report"], done.stdout
    assert (events[0]["verdict"], events[0]["stalls"]) == ("CLEAN", 0)
    assert events[0]["exchanges"] > 50


def test_the_report_names_the_program_that_holds(asked):
    """Seconds after the screen did: its name and number, its setting, and lines for it on this host."""
    pair = asked("stalls")
    pair.go()
    command = [*COMMAND, f"--pid={pair.pid}", "--seconds=4"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    server, *_ = Path(f"/proc/{pair.pid}/task/{pair.pid}/children").read_text().split()
    name = Path(f"/proc/{server}/comm").read_text().strip()
    assert f"(127.0.0.1:{PORT}) {name} {server}: Nagle's algorithm" in " ".join(done.stdout.split())
    assert f"\nnagle-lab sockets --pid {server}\n" in done.stdout and f"nodelay --pid {server} on" in done.stdout
    assert "TCP_NODELAY in Python" in done.stdout and f"\nnsenter -t {pair.pid} -n ip route" in done.stdout
    assert "captured host" not in done.stdout and "does not show which" not in done.stdout


def stream(pair: Asked, ring_bytes: int, to: int) -> subprocess.Popen:
    """The recorder alone, with a ring of that size."""
    code = f"""
import nagle_lab.guard.recording.recorder as recorder
recorder.RING_BYTES = {ring_bytes}
from nagle_lab.guard.recording.inside_stream import main
main('{{"pid": {pair.pid}}}')
"""
    return subprocess.Popen([sys.executable, "-c", code], stdout=to)


def report_of(process: subprocess.Popen) -> dict:
    out, _ = process.communicate(timeout=120)
    events = [json.loads(line) for line in out.splitlines()]
    for event in events:
        check("watch", event)
    return events[-1] | {"notes": [event["text"] for event in events if event["event"] == "note"]}


def test_the_report_is_that_of_analyze_of_the_same_packets(asked, tmp_path):
    """A copy of what the recorder streams is analysed afterwards."""
    pair, copy = asked("stalls", 40), tmp_path / "copy.pcapng"
    reader, writer = os.pipe()
    with stream(pair, 1 << 24, writer) as recorder:
        os.close(writer)
        with (
            subprocess.Popen(["tee", str(copy)], stdin=reader, stdout=subprocess.PIPE) as tee,
            subprocess.Popen([*COMMAND, "-", "--json"], stdin=tee.stdout, stdout=subprocess.PIPE) as watch,
        ):
            os.close(reader)
            assert within(30, lambda: copy.exists() and copy.stat().st_size)
            pair.go()
            pair.wait()
            recorder.send_signal(signal.SIGTERM)
            report = report_of(watch)
    whole = analyze(copy)
    assert (report["verdict"], report["reason"]) == (whole.verdict, whole.reason) and whole.verdict == "STALL"
    summary = whole.summary
    assert summary.grounds["seen_waiting"] >= 10, "the kernel's answers are among the packets"
    assert [report[name] for name in ("stalls", "exchanges", "stalled_exchanges")] == [
        summary.stalls, summary.exchanges, summary.stalled_exchanges,
    ]  # fmt: skip
    assert (report["lost_ms"], report["remedy"]) == (summary.lost_ms_total, summary.remedy)


def test_what_a_slow_reader_loses_is_counted_and_nothing_is_called_clean(asked):
    """Every segment that the kernel sent is either recorded or said to be lost."""
    pair = asked("nodelay", 20_000)
    reader, writer = os.pipe()
    with stream(pair, 1 << 20, writer) as recorder:
        os.close(writer)
        assert select.select([reader], [], [], 30)[0], "the recorder has begun"
        before = pair.sent()
        pair.go()
        pair.wait()  # while nobody reads
        with subprocess.Popen([*COMMAND, "-", "--json"], stdin=reader, stdout=subprocess.PIPE) as watch:
            os.close(reader)
            assert within(30, pair.is_closed)
            count = pair.sent() - before
            recorder.send_signal(signal.SIGTERM)
            report = report_of(watch)
    assert report["dropped"] > 0
    assert report["packets"] + report["dropped"] == count
    assert report["verdict"] == "INVALID"
    assert any("packets were lost" in note for note in report["notes"])


def test_ctrl_c_takes_all_that_was_recorded_until_then(asked):
    """However much is still on its way: the kernel's count is the recorder's and the report's."""
    pair = asked("nodelay", 15_000)
    begun = pair.sent()
    with subprocess.Popen([*COMMAND, f"--pid={pair.pid}", "--json"], stdout=subprocess.PIPE, text=True) as watch:
        assert within(60, lambda: is_recorded(pair.pid))
        before = pair.sent()
        pair.go()
        pair.wait()
        least = pair.sent() - before
        watch.send_signal(signal.SIGINT)
        report = report_of(watch)
    most = pair.sent() - begun  # a segment or two before and after may be in it
    assert least <= report["packets"] + report["dropped"] <= most


def test_an_interface_that_goes_away_and_comes_back(asked):
    """Its end is told, and its return; the report is of both times."""
    pair = asked("stalls")
    enter = ["nsenter", f"--net=/proc/{pair.pid}/ns/net"]
    ip = [*enter, "ip", "link"]
    subprocess.run([*ip, "add", "veth0", "type", "veth", "peer", "name", "veth1"], check=True)
    with subprocess.Popen(
        [*enter, *COMMAND, "-i", "veth0", "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as watch:
        assert within(60, lambda: is_recorded(pair.pid))
        subprocess.run([*ip, "del", "veth0"], check=True)
        gone = json.loads(watch.stdout.readline())
        subprocess.run([*ip, "add", "veth0", "type", "veth", "peer", "name", "veth1"], check=True)
        back = json.loads(watch.stdout.readline())
        watch.send_signal(signal.SIGINT)
        out, err = watch.communicate(timeout=60)
    assert (gone["text"], back["text"]) == (
        "interface veth0 is gone: waiting until it is back",
        "interface veth0 is back",
    )
    assert (watch.returncode, err, json.loads(out)["verdict"]) == (2, "", "INVALID")


def test_a_process_that_ends_ends_the_watch_with_the_report(asked):
    pair = asked("stalls")
    pair.go()
    with subprocess.Popen([*COMMAND, f"--pid={pair.pid}", "--json"], stdout=subprocess.PIPE, text=True) as watch:
        first_finding(watch)
        os.kill(pair.pid, signal.SIGKILL)
        out, _ = watch.communicate(timeout=60)
    events = [json.loads(line) for line in out.splitlines()]
    assert f"process {pair.pid} has ended" in [event.get("text") for event in events]
    assert (watch.returncode, events[-1]["verdict"]) == (0, "STALL")


def test_all_interfaces_is_what_is_watched_where_none_is_named(asked):
    pair = asked("stalls")
    pair.go()
    whole = ["nsenter", f"--net=/proc/{pair.pid}/ns/net", *COMMAND, "--seconds=4", f"--port={PORT}"]
    done = subprocess.run(whole, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0
    assert "STALL   all interfaces" in done.stdout and " STALL: python" in done.stdout


def test_where_nothing_passes_it_says_what_was_asked_for(asked):
    pair = asked("stalls")
    whole = ["nsenter", f"--net=/proc/{pair.pid}/ns/net", *COMMAND, "--seconds=1", "--interface=lo", "--port=9"]
    done = subprocess.run(whole, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 2
    assert "no TCP packet with port 9 was seen on interface lo; watch for longer, or another port" in done.stdout
    assert "capture       pcapng · 0 packets" in done.stdout


def test_without_rights_the_line_says_which_are_missing(asked):
    pair = asked("stalls")
    bare = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"]
    for options, capability in (([], "CAP_NET_RAW"), ([f"--pid={pair.pid}"], "CAP_SYS_ADMIN and CAP_NET_RAW")):
        done = subprocess.run([*bare, *COMMAND, *options], capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 2
        assert capability in done.stderr and done.stderr.count("\n") == 1, done.stderr


def test_the_screen_its_keys_and_another_size(asked, tmp_path):
    """In a terminal: rows, a filter, one row opened, its packets written, another size; q ends with the report."""
    pair = asked("stalls")
    pair.go()
    pid, fd = pty.fork()
    if pid == 0:
        os.chdir(tmp_path)
        os.environ["TERM"] = "xterm-256color"
        os.execv(COMMAND[0], [*COMMAND, f"--pid={pair.pid}"])
    shown = b""

    def until(words: str) -> None:
        nonlocal shown
        end = time.monotonic() + 60
        while words.encode() not in shown:
            assert time.monotonic() < end, (words, shown[-2000:])
            if select.select([fd], [], [], 0.2)[0]:
                shown += os.read(fd, 1 << 16)

    def press(keys: bytes, words: str) -> None:
        nonlocal shown
        shown = b""
        os.write(fd, keys)
        until(words)

    ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    until("STALL")
    press(b"s", "by stalls")
    press(b"/", "filter: ")
    press(b"nothing like it\r", "nothing to show for this filter")
    press(b"/", "filter: ")
    press(b"\x1b", "STALL")
    press(b"\r", "remedy")
    press(b"w", "packets to nagle-lab-watch-")
    ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    os.kill(pid, signal.SIGWINCH)
    until("how sure")
    until("certain")  # by the stalls to come, where it has seen few
    press(b"f", "FROZEN")
    press(b"\x1b", "enter open")
    press(b"q", " exchanges waited for a delayed ACK")
    while True:
        try:
            if not os.read(fd, 1 << 16):
                break
        except OSError:  # its end is closed
            break
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    os.close(fd)
    (written,) = tmp_path.glob("nagle-lab-watch-*.pcapng")
    assert analyze(written).verdict == "STALL"
    assert analyze(written).summary.grounds["seen_waiting"] > 0


def peaks_kb(connections: int) -> tuple[int, int]:
    """Of a watch that is fed so many connections through its pipe: after half of them, and at its end."""
    program = (
        "import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL); "
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, file=sys.stderr)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, *COMMAND, "-"], stdin=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        with process.stdin as to:
            for number, part in enumerate(crowd(connections)):
                to.write(part)
                if number == connections // AT_ONCE // 2:
                    half = _peak_kb_until_now(process.pid)
        return half, int(process.stderr.read().split()[-1])


def _peak_kb_until_now(parent: int) -> int:
    """Of the only child of a process."""
    child = Path(f"/proc/{parent}/task/{parent}/children").read_text().strip()
    return int(re.search(r"^VmHWM:\s+(\d+) kB$", Path(f"/proc/{child}/status").read_text(), re.MULTILINE)[1])


@pytest.mark.timeout(300)
def test_memory_does_not_grow_with_the_connections():
    """Beyond what fills the ring and a period, a hundred thousand connections more take no more."""
    half, whole = peaks_kb(220_000)
    assert 10_000 < half <= whole < 1.5 * half, "were they kept, it would be more than twice as much"
