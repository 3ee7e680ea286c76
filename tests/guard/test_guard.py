"""nagle-lab guard on real programs in real namespaces: verdicts, exit codes, and all that can go wrong."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from nagle_lab.diagnosis.analysis import analyze
from nagle_lab.experiments.software.guarded import Selection, allowed_end, judge_recording
from support.command import in_process
from support.guarded import GUARD, GuardEnded, guard, server
from support.rights import AS_ROOT, NOBODY, mount_refused, open_folder, reachable, with_room
from support.waiting import within

pytestmark = pytest.mark.long


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch):
    """What the guard keeps goes where pytest cleans up."""
    folder = tmp_path / "kept"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


@pytest.mark.parametrize(
    ("how", "code", "verdict", "reason"),
    [
        ("two-writes ipv6", 1, "STALL", " of 30 exchanges waited for a delayed ACK: the server"),
        ("one-write", 3, "INCONCLUSIVE", "each reply left in one write"),
        ("no-keepalive", 3, "INCONCLUSIVE", "no connection had two exchanges"),
    ],
)
def test_the_verdict_on_a_program(tmp_path, temporary, how, code, verdict, reason):
    ended = guard(tmp_path, command=server(how))
    assert (ended.code, ended.report["verdict"]) == (code, verdict), ended.err
    assert reason in ended.report["reason"]
    assert ended.out == "done\n"
    # Most of them; a busy machine spares the stall whom it delays by as much as the ACK's timer.
    assert (ended.report["result"]["summary"]["stalled_exchanges"] >= 10) is (verdict == "STALL")
    recorded = ended.report["recorded"]
    assert recorded["captured"] == recorded["sent_by_kernel"] > 30
    assert recorded["dropped"] == 0
    assert list(temporary.iterdir()), "the evidence of what is not as expected is kept"
    assert ("held by" in ended.err) is (verdict == "STALL")


@pytest.mark.parametrize(
    ("how", "protection", "verdict"),
    [
        ("one-write", "one_write", "CLEAN"),
        ("no-keepalive nodelay", "nothing_needed", "INCONCLUSIVE"),
    ],
)
def test_what_protects_a_clean_program(tmp_path, how, protection, verdict):
    page = tmp_path / "page.md"
    ended = guard(tmp_path, "--both-sides", f"--markdown={page}", command=server(how))
    assert_protected(ended, protection, verdict)
    assert ended.report["both_sides"]["sentence"] in page.read_text().replace("\\", "")


def assert_protected(ended: GuardEnded, protection: str, verdict: str) -> None:
    assert ended.report["both_sides"]["protection"] == protection
    assert ended.report["verdict"] == verdict
    assert ended.report["reason"] == ended.report["both_sides"]["sentence"]
    assert ended.report["reason"].count("could have stalled") <= 1, "nothing is said twice"


def test_a_program_that_stalls_is_not_run_again(tmp_path):
    ended = guard(tmp_path, "--both-sides", command=server("two-writes"))
    assert (ended.code, ended.out, ended.report["both_sides"]) == (1, "done\n", None)

    assert "--both-sides: there was no second run, because the command stalls" in ended.err


def test_an_interrupted_command_says_so_before_what_is_missing(tmp_path):
    ended = guard(tmp_path, command=["sh", "-c", "kill -INT $$"])
    assert ended.code == 130 and ended.report["reason"].startswith("the command was interrupted; no TCP segment")
    assert "--network" not in ended.err


def test_an_ordinary_user_needs_no_root():
    """As nobody: in a user namespace, where it still is who it was, and may listen on any port."""
    if refused := mount_refused():
        pytest.skip(refused)
    with open_folder() as folder:
        done = _as_nobody(folder)
    assert (done.returncode, done.stdout) == (1, f"{NOBODY}\ndone\n"), done.stderr
    assert "a user namespace, without root" in done.stderr


def _as_nobody(folder: Path) -> "subprocess.CompletedProcess[str]":
    program = "import os, socket; socket.create_server(('127.0.0.1', 80)); print(os.getuid())"
    script = "; ".join(
        [
            *reachable(),
            shlex.join(
                ["exec", "setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "env",
                 "HOME=/nowhere", f"TMPDIR={folder}", *GUARD, "--", "sh", "-c",
                 shlex.join([sys.executable, "-c", program]) + "; exec " + shlex.join(server("two-writes"))]
            ),
        ]
    )  # fmt: skip
    return subprocess.run(
        [*AS_ROOT, "unshare", "--mount", "sh", "-ec", script],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


MANY_CONNECTIONS = """
import socket, struct, sys, threading
listener = socket.create_server(("127.0.0.1", 0), backlog=1000)

def serve():
    while True:
        peer, _ = listener.accept()
        with peer:
            try:
                while peer.recv(100):
                    peer.sendall(b"h" * 57)
                    peer.sendall(b"b" * 40)
            except ConnectionResetError:
                pass

threading.Thread(target=serve, daemon=True).start()
for number in range(1_000):
    with socket.create_connection(listener.getsockname()) as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # else the ports run out
        for _ in range(1 + (number % 100 == 0)):
            s.sendall(b"q" * 20)
            got = 0
            while got < 97:
                got += len(s.recv(100))
"""


def test_the_few_stalls_of_a_thousand_connections_are_found(tmp_path):
    """Only the second exchange of a connection stalls, and ten have one; a busy machine may acknowledge one early."""
    ended = guard(tmp_path, command=[sys.executable, "-c", MANY_CONNECTIONS])
    summary, recorded = ended.report["result"]["summary"], ended.report["recorded"]
    assert (summary["connections"], summary["exchanges"]) == (1_000, 1_010)
    assert ended.code == 1
    assert 8 <= summary["stalled_exchanges"] <= 10, ended.err
    assert (recorded["captured"], recorded["dropped"]) == (recorded["sent_by_kernel"], 0)


def test_which_connections_are_judged(tmp_path):
    """Two servers in one namespace; one of them stalls, and is allowed to, or is on another port."""
    script = """
        import socket, threading
        def serve(listener, nodelay):
            peer, _ = listener.accept()
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, nodelay)
            while peer.recv(4096):
                peer.sendall(bytes(200)); peer.sendall(bytes(600))
        def ask(port):
            with socket.create_connection(("127.0.0.1", port)) as s:
                for _ in range(20):
                    s.sendall(bytes(100)); got = 0
                    while got < 800: got += len(s.recv(4096))
        for port, nodelay in ((8001, 0), (8002, 1)):
            listener = socket.create_server(("127.0.0.1", port))
            threading.Thread(target=serve, args=(listener, nodelay), daemon=True).start()
            ask(port)
    """
    command = [sys.executable, "-c", "if 1:\n" + script]
    allowing = guard(tmp_path, "--allow=:8001", "--port=8001", "--port=8002", command=command)
    assert (allowing.code, allowing.report["verdict"]) == (0, "CLEAN")
    of_one_port = guard(tmp_path, "--port=8002", "--expect=stall", f"--keep={tmp_path / 'recorded'}", command=command)
    assert (of_one_port.code, of_one_port.report["verdict"]) == (1, "CLEAN")
    of_another = guard(tmp_path, "--port=9", command=command)
    assert "\njudged        0 of 2 connections; the servers have 8001, 8002\n" in of_another.err
    expected = [
        ([], [], "STALL"),
        ([8001], [], "STALL"),
        ([8002], [], "CLEAN"),
        ([8001, 8002], [], "STALL"),
        ([], ["127.0.0.1:8001"], "CLEAN"),
        ([], [":8001"], "CLEAN"),
        ([], ["127.0.0.2:8001"], "STALL"),
        ([], [":8001", ":8002"], "INCONCLUSIVE"),
    ]
    for ports, allowed, verdict in expected:
        selection = Selection(frozenset(ports), frozenset(map(allowed_end, allowed)))
        found = judge_recording(tmp_path / "recorded" / "capture.pcapng", "", selection)
        assert found.verdict == verdict, (ports, allowed)


@pytest.mark.parametrize(
    ("command", "code", "says", "reason"),
    [
        (["no-such-command"], 127, "no-such-command: No such file or directory: check the command's name or", ""),
        ([__file__], 126, f"{__file__}: Permission denied: make it executable (chmod +x)", ""),
        ([""], 127, "No such file or directory: check the command's name or path", ""),
        (["true --fast"], 127, "true --fast: No such file or directory: in quotation marks it is one word", ""),
        (["sh", "-c", "exit 7"], 7, "the exit code is the command's own, 7; the verdict is INCONCLUSIVE",
         "the command failed with exit code 7; no TCP segment passed"),
        (["sh", "-c", "kill -9 $$"], 137, "the exit code is the command's own, 137",
         "the command failed with exit code 137; no TCP segment passed"),
        (["true"], 3, "", "no TCP segment passed"),
    ],
)  # fmt: skip
def test_how_the_command_ends(tmp_path, command, code, says, reason):
    ended = guard(tmp_path, command=command)
    assert ended.code == code
    assert ended.report.get("reason", "").startswith(reason)
    assert says in ended.err
    assert "Traceback" not in ended.err
    ours = [line for line in ended.err.splitlines() if line.startswith("nagle-lab:")]
    assert len(ours) == bool(says)


def test_a_command_that_cannot_start_is_an_error_in_its_reports(tmp_path):
    files = [f"--{name}={tmp_path / name}" for name in ("junit", "markdown", "html")]
    subprocess.run([*GUARD, *files, "--", "no-such-command"], capture_output=True, check=False)
    for name in ("junit", "markdown", "html"):
        assert "no-such-command: No such file or directory" in (tmp_path / name).read_text()
    assert 'errors="1"' in (tmp_path / "junit").read_text()


def test_a_failing_command_that_stalls_says_both(tmp_path):
    ended = guard(tmp_path, command=["sh", "-c", shlex.join(server("two-writes")) + "; exit 9"])
    assert (ended.code, ended.report["verdict"], ended.report["status"]) == (9, "STALL", 9)
    assert "the exit code is the command's own, 9; the verdict is STALL" in ended.err


def test_output_passes_through_untouched(tmp_path):
    """Bytes that are no text, on both streams, and input."""
    whole = [*GUARD, "--", "sh", "-c", r"printf '\377\000\376' >&2; cat"]
    done = subprocess.run(whole, capture_output=True, input=b"\xfe\x00in", timeout=60, check=False)
    assert done.stdout == b"\xfe\x00in"
    assert done.stderr.startswith(b"\xff\x00\xfe")


def test_a_time_limit(tmp_path):
    """What ignores SIGTERM is killed; the verdict is still said."""
    started = time.monotonic()
    ended = guard(tmp_path, "--time-limit=1s", command=["sh", "-c", "trap '' TERM; while :; do sleep 1; done"])
    assert (ended.code, ended.report["timed_out"]) == (124, True)
    assert "the command ran longer than --time-limit" in ended.err
    assert time.monotonic() - started < 60


def is_running(marker: str) -> bool:
    """Whether a process with that in its command line lives."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it ends while we look
            if path.parent.name != str(os.getpid()) and marker.encode() in path.read_bytes():
                return True
    return False


def test_nothing_is_left_behind(tmp_path):
    """Servers in the background, daemons with a session of their own: ended with the command, and named."""
    long = f"4711.{os.getpid()}"
    script = f"sleep {long}1 & setsid sleep {long}2 & (sleep {long}3 &) ; exit 0"
    ended = guard(tmp_path, command=["sh", "-c", script])
    assert ended.code == 3
    assert re.search(r"ended with it  \w+, \w+, \w+ *\n", ended.err), (
        "by name; on a busy machine still that of a shell"
    )
    assert not is_running(f"sleep\0{long}")


@pytest.mark.parametrize("send", [os.kill, os.killpg])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_reaches_the_command_once(tmp_path, number, send):
    """Also one to the process group, as from timeout(1). It ends as it likes, and what was recorded is judged."""
    script = tmp_path / "program.py"
    script.write_text(
        "import pathlib, signal, sys, time\n"
        "got = []\n"
        f"signal.signal({int(number)}, lambda *_: got.append(1))\n"
        f"pathlib.Path({str(tmp_path / 'ready')!r}).touch()\n"
        "while not got: time.sleep(0.05)\n"
        "time.sleep(0.3); print(len(got)); sys.exit(5)\n"
    )
    command = [*GUARD, "--", sys.executable, str(script)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, process_group=0)
    assert within(30, (tmp_path / "ready").exists)
    send(process.pid, number)
    out, _ = process.communicate(timeout=60)
    assert (process.returncode, out) == (5, "1\n")


def test_nothing_is_left_when_the_guard_is_killed(tmp_path):
    long = f"4712.{os.getpid()}"
    process = subprocess.Popen([*GUARD, "--", "sh", "-c", f"sleep {long}1 & sleep {long}2"])
    assert within(30, lambda: is_running(f"sleep\0{long}2"))
    process.kill()
    process.wait(30)
    assert within(30, lambda: not is_running(f"sleep\0{long}"))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGRTMIN + 1])
def test_a_recorder_that_is_killed_is_one_line(tmp_path, number):
    """Whatever the signal: most of the real-time ones have no name."""
    name = "SIGKILL" if number == signal.SIGKILL else f"signal {number}"
    ended = guard(tmp_path, command=["sh", "-c", f"kill -{int(number)} $PPID; sleep 1"])
    assert (ended.code, ended.err) == (2, f"nagle-lab: the recording was ended by {name}: run it again\n")


def test_two_guards_at_once(tmp_path):
    """The same port in both: each has its own."""
    script = "import socket, time; s = socket.create_server(('127.0.0.1', 8080)); time.sleep(1)"
    both = [subprocess.Popen([*GUARD, "--", sys.executable, "-c", script], stderr=subprocess.PIPE) for _ in range(2)]
    assert [process.wait(60) for process in both] == [3, 3]
    for process in both:
        process.stderr.close()


def test_a_guard_in_a_guard(tmp_path):
    """The inner one sees the traffic; the outer one passes its code on, and has seen none."""
    ended = guard(tmp_path, command=[*GUARD, "--", *server("two-writes")])
    assert (ended.code, ended.report["verdict"]) == (1, "INCONCLUSIVE")
    assert "STALL" in ended.err and "no TCP segment passed" in ended.err


def test_lost_segments_are_invalid(tmp_path):
    """A recorder that is stopped while more passes than its ring holds: never CLEAN, and it says how many."""
    script = (
        "import os, signal, subprocess, sys\n"
        "os.kill(os.getppid(), signal.SIGSTOP)\n"
        "try: subprocess.run(sys.argv[1:], check=True)\n"
        "finally: os.kill(os.getppid(), signal.SIGCONT)\n"
    )
    ended = guard(tmp_path, command=[sys.executable, "-c", script, *server("nodelay", "75000")])
    assert (ended.code, ended.report["verdict"]) == (2, "INVALID"), ended.err
    assert ended.report["recorded"]["dropped"] > 0
    assert "TCP segments were lost while recording" in ended.report["reason"]


def test_segments_over_an_interface_that_the_command_made_are_missed(tmp_path):
    """They are counted by the kernel, so it is never CLEAN, and the reason names what is not recorded."""
    if refused := mount_refused():
        pytest.skip(refused)
    if AS_ROOT:
        pytest.skip("making a namespace without a user namespace takes root")
    script = f"""
        ip link add to-there type veth peer name there
        unshare --net sleep 30 & other=$!
        while [ "$(readlink /proc/$other/ns/net)" = "$(readlink /proc/self/ns/net)" ]; do sleep 0.05; done
        ip link set there netns $other
        ip address add 10.1.1.1/24 dev to-there && ip link set to-there up
        nsenter --target $other --net sh -c 'ip address add 10.1.1.2/24 dev there; ip link set there up'
        {shlex.quote(sys.executable)} -c 'import socket; socket.create_connection(("10.1.1.2", 9), 5)'
        exec {shlex.join(server("nodelay"))}
    """
    report = guard(tmp_path, command=["sh", "-c", script]).report
    assert report["verdict"] == "INVALID"
    assert report["reason"].endswith("what passes an interface that the command itself makes is not recorded")


def test_a_capture_is_kept_where_it_is_asked_for(tmp_path):
    keep = tmp_path / "a" / "new one"
    for _ in range(2):  # the second time over the first
        ended = guard(tmp_path, f"--keep={keep}", command=server("nodelay"))
        assert ended.code == 0
        assert sorted(path.name for path in keep.iterdir()) == ["capture.pcapng", "guard.json", "outcome.json"]
    (keep / "mine.txt").touch()
    assert guard(tmp_path, f"--keep={keep}", command=["true"]).code == 2


def test_an_earlier_recording_stays_until_there_is_a_new_one(tmp_path):
    """Though the command does not exist, or nothing can be recorded; not by what a run left that was killed."""
    keep = tmp_path / "kept"
    assert guard(tmp_path, f"--keep={keep}", command=server("nodelay")).code == 0
    earlier = {path.name: path.read_bytes() for path in keep.iterdir()}
    for name in ("job.json", "job.part", "request.json", "reserve"):
        (keep / name).touch()
    for options, code in ((["--", "no-such-command"], 127), (["--interface=no-such", "--seconds=1"], 2)):
        done = subprocess.run([*GUARD, f"--keep={keep}", *options], capture_output=True, timeout=60, check=False)
        assert done.returncode == code
        assert {path.name: path.read_bytes() for path in keep.iterdir()} == earlier
    assert guard(tmp_path, f"--keep={keep}", command=server("two-writes")).code == 1
    assert {path.name for path in keep.iterdir()} == earlier.keys()
    assert (keep / "capture.pcapng").read_bytes() != earlier["capture.pcapng"]


def test_what_was_recorded_until_the_recorder_was_killed_stays(tmp_path):
    keep = tmp_path / "kept"
    script = f"{shlex.join(server('two-writes'))}; sleep 0.5; kill -9 $PPID"
    for _ in range(2):  # the second time over what the first left
        ended = subprocess.run(
            [*GUARD, f"--keep={keep}", "--", "sh", "-c", script],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert ended.returncode == 2 and f"what was recorded until then is {keep / 'capture.pcapng'}" in ended.stderr
        assert analyze(keep / "capture.pcapng").verdict == "STALL"


def test_a_stall_stays_though_its_reader_goes_away(tmp_path, temporary):
    line = f"{shlex.join([*GUARD, '--', *server('two-writes')])} 2>&1 | true; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", line], timeout=60, check=False)
    (capture,) = temporary.glob("nagle-lab-guard-*/capture.pcapng")
    assert done.returncode != 0 and capture.stat().st_size > 1000


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ([], "guard needs a command"),
        (["--pid", "1", "true"], "--pid records what is already running"),
        (["--pid", "1", "--container", "x"], "use one of them"),
        (["--time-limit", "soon", "true"], "--time-limit soon is not a duration"),
        (["--allow", "here", "true"], "--allow 'here' is not an address and a port"),
        (["--seconds", "1", "true"], "for a command use --time-limit"),
        (["--interface", "lo", "--seconds", "nan"], "nan is not a number of seconds"),
        (["--time-limit", "99999999999h", "true"], "is longer than a year"),
        (["--allow", "localhost:80", "true"], "localhost is not an IP address; use :80 for that port on any address"),
        (["--allow", "0.0.0.0:80", "true"], "no connection goes to 0.0.0.0"),
        (["python", "-m", "pytest", "-q", "--nagle"], "run pytest --nagle without guard, or leave out --nagle"),
        (["--pid", "1", "--network"], "--network needs a command"),
        (["--pid", "99999999"], "there is no process 99999999"),
        (["--json", "/no/such/folder/x.json", "true"], "cannot be written"),
    ],
)
def test_wrong_usage_is_one_line(options, says):
    done = in_process("guard", *options)
    assert done.code == 2
    (line,) = [line for line in done.err.splitlines() if not line.startswith("nagle-lab: recording")]
    assert line.startswith("nagle-lab: ") and says in line


def test_both_runs_are_kept_over_those_before(tmp_path):
    keep = tmp_path / "kept runs"
    for _ in range(2):
        assert guard(tmp_path, f"--keep={keep}", "--both-sides", command=server("nodelay")).code == 0
    assert sorted(path.name for path in (keep / "without-nodelay").iterdir()) == ["capture.pcapng", "outcome.json"]


def test_bytes_that_are_no_text_reach_the_command(tmp_path):
    """In its environment and its arguments."""
    environment = {**os.environb, b"NAME": b"caf\xe9"}
    command = [*GUARD, f"--json={tmp_path / 'report.json'}", "--", "sh", "-c", 'printf "$NAME$1"', "sh", b"t\xe9"]
    done = subprocess.run(command, capture_output=True, env=environment, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (3, b"caf\xe9t\xe9"), done.stderr
    assert json.loads((tmp_path / "report.json").read_text())["command"][-1] == r"t\udce9"


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_streams_that_are_closed_change_no_verdict(tmp_path, closed):
    line = shlex.join([*GUARD, "--", *server("nodelay")])
    done = subprocess.run(["sh", "-c", f"{line} {closed}"], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


def test_signals_that_are_ignored_stay_ignored(tmp_path):
    """As in the background of a script, and under nohup."""
    command = ["grep", "SigIgn", "/proc/self/status"]
    before = ("sh", "-c", "trap '' INT HUP; exec \"$@\"", "sh")
    plain = subprocess.run([*before, *command], capture_output=True, text=True, check=True)
    assert guard(tmp_path, command=command, before=before).out == plain.stdout
    assert int(plain.stdout.split()[1], 16) & 3 == 3


def test_files_are_written_though_nobody_reads_the_screen(tmp_path):
    """As in ``guard … 2>&1 >/dev/null | true``."""
    reader, writer = os.pipe()
    os.close(reader)
    report, junit = tmp_path / "report.json", tmp_path / "junit.xml"
    command = [*GUARD, f"--json={report}", f"--junit={junit}", "--", *server("two-writes")]
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=writer, timeout=60, check=False)
    os.close(writer)
    assert (done.returncode, json.loads(report.read_text())["verdict"], junit.exists()) == (141, "STALL", True)


@pytest.mark.parametrize(("own", "code"), [(0, 2), (5, 5)])
def test_a_file_that_cannot_be_written_costs_neither_screen_nor_capture(tmp_path, own, code):
    command = ["sh", "-c", f"{shlex.join(server('two-writes'))}; exit {own}"]
    ended = guard(tmp_path, "--junit=/dev/full", command=command)
    assert (ended.code, ended.report["verdict"]) == (code, "STALL"), ended.err
    assert "│  STALL" in ended.err and "disk full" in ended.err
    assert Path(re.search(r"the capture is (\S+);", ended.err)[1]).stat().st_size


def test_the_environment_is_not_in_a_file_while_the_command_runs(tmp_path):
    """It may hold secrets, and a guard that is killed removes nothing."""
    folder = tmp_path / "recorded"
    assert guard(tmp_path, f"--keep={folder}", command=["ls", str(folder)]).out == "capture.pcapng\nreserve\n"


def test_a_folder_removed_by_the_command_is_said(temporary):
    command = [*GUARD, "--", "sh", "-c", f"rm -rf {shlex.quote(str(temporary))}/nagle*"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    (line,) = done.stderr.splitlines()
    assert done.returncode == 2 and "was removed during the recording" in line


def test_two_guards_at_once_do_not_share_a_kept_folder(tmp_path):
    keep = tmp_path / "kept"
    ended = guard(tmp_path, f"--keep={keep}", command=[*GUARD, f"--keep={keep}", "--", "true"])
    assert ended.code == 2 and f"--keep {keep}: another guard is recording there" in ended.err
    assert guard(tmp_path, f"--keep={keep}", command=["true"]).code == 3, "and it is free again"


def test_a_recording_that_breaks_off_keeps_the_commands_code(tmp_path):
    """No room for more than 10 kB in a file."""
    line = shlex.join([*GUARD, "--", "sh", "-c", shlex.join(server("two-writes", "100")) + "; exit 3"])
    done = subprocess.run(
        ["bash", "-c", f"ulimit -f 10; {line}"], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (3, "done\n"), done.stderr
    assert "own, 3; the verdict is" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("keep", "room", "what"), [(True, 0, "the recording"), (True, 4, "capture.pcapng"), (False, 4, "capture.pcapng")]
)
def test_a_disk_without_room_for_the_recording_is_one_line(tmp_path, keep, room, what):
    if refused := mount_refused():
        pytest.skip(refused)
    small = tmp_path / "small"
    small.mkdir()
    home = small / "kept" if keep else small
    where = [f"--keep={home}"] if keep else []
    command = [*with_room(small, room), "env", f"TMPDIR={small}", *GUARD, *where, "--", *server("two-writes")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (2, f"nagle-lab: disk full while writing {what}: make room in {home}\n")


@pytest.mark.parametrize(("how", "verdict", "code"), [("two-writes", "STALL", 1), ("nodelay", "INVALID", 2)])
def test_a_disk_that_fills_up_leaves_what_was_recorded(tmp_path, how, verdict, code):
    if refused := mount_refused():
        pytest.skip(refused)
    small, capture = tmp_path / "small", tmp_path / "cut.pcapng"
    small.mkdir()
    line = shlex.join([*GUARD, f"--json={tmp_path / 'report.json'}", "--", *server(how, "60")])
    kept = f"cp {small}/nagle-lab-guard-*/capture.pcapng {capture}"
    command = [*with_room(small, 12), "env", f"TMPDIR={small}", "sh", "-c", f"{line}; code=$?; {kept}; exit $code"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    report = json.loads((tmp_path / "report.json").read_text())
    assert (report["verdict"], done.returncode) == (verdict, code), done.stderr
    full = f"disk full while writing capture.pcapng: make room in {small}"
    assert full in (" ".join(done.stderr.split()) if verdict == "STALL" else report["reason"])
    assert analyze(capture).source.packets > 20


def test_a_killed_guard_ends_what_ignores_signals():
    long = f"4713.{os.getpid()}"
    ignores = f"trap '' TERM INT HUP; while :; do sleep {long}; done"
    process = subprocess.Popen([*GUARD, "--", "sh", "-c", ignores])
    assert within(30, lambda: is_running(f"sleep\0{long}"))
    process.kill()
    process.wait(30)
    assert within(30, lambda: not is_running(f"sleep {long}") and not is_running(f"sleep\0{long}"))


def test_one_connection_without_the_option_among_many_is_not_clean(tmp_path):
    """What cannot be told of a few connections is not outvoted by the others."""
    script = """
        import socket, threading
        listener = socket.create_server(("127.0.0.1", 0))
        def serve():
            for number in range(100):
                peer, _ = listener.accept()
                peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, number != 50)
                while peer.recv(4096):
                    peer.sendall(bytes(200)); peer.sendall(bytes(600))
        threading.Thread(target=serve, daemon=True).start()
        for _ in range(100):
            with socket.create_connection(listener.getsockname()) as s:
                for _ in range(10):
                    s.sendall(bytes(100)); got = 0
                    while got < 800: got += len(s.recv(4096))
    """
    ended = guard(tmp_path, command=[sys.executable, "-c", "if 1:\n" + script])
    assert ended.code == {"STALL": 1, "INCONCLUSIVE": 3}.get(ended.report["verdict"]), ended.err


def test_quick_acks_are_not_one_write(tmp_path):
    """Two writes without TCP_NODELAY, and a client that acknowledges at once."""
    script = """
        import socket, threading
        listener = socket.create_server(("127.0.0.1", 0))
        def serve():
            peer, _ = listener.accept()
            while peer.recv(4096):
                peer.sendall(bytes(200)); peer.sendall(bytes(600))
        threading.Thread(target=serve, daemon=True).start()
        with socket.create_connection(listener.getsockname()) as s:
            for _ in range(30):
                s.sendall(bytes(100)); got = 0
                while got < 800:
                    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
                    got += len(s.recv(4096))
    """
    ended = guard(tmp_path, "--both-sides", command=[sys.executable, "-c", "if 1:\n" + script])
    both = ended.report["both_sides"]
    # A client that a busy machine stops for 40 ms acknowledges late, and then the program does stall.
    assert both["protection"] != "one_write" if both else ended.report["verdict"] == "STALL", ended.err


@pytest.mark.quiet
@pytest.mark.parametrize("is_cleared", [False, True])
def test_what_tcp_cork_keeps_is_not_one_write(tmp_path, is_cleared):
    """It leaves as one segment after 200 ms, unless the program clears the option behind its last write."""
    script = f"""
        import socket, threading
        listener = socket.create_server(("127.0.0.1", 0))
        def serve():
            peer, _ = listener.accept()
            while peer.recv(4096):
                peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 1)
                peer.sendall(bytes(200)); peer.sendall(bytes(600))
                if {is_cleared}: peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 0)
        threading.Thread(target=serve, daemon=True).start()
        with socket.create_connection(listener.getsockname()) as s:
            for _ in range(15):
                s.sendall(bytes(100)); got = 0
                while got < 800: got += len(s.recv(4096))
    """
    ended = guard(tmp_path, "--both-sides", command=[sys.executable, "-c", "if 1:\n" + script])
    assert_protected(ended, *(("one_write", "CLEAN") if is_cleared else ("cork", "INCONCLUSIVE")))
    sentence = "one write protects it: " if is_cleared else "whether one write protects it cannot be told: "
    assert ended.report["reason"].startswith(sentence)
    assert ("clear it after the last one" in ended.report["reason"]) is not is_cleared


SLOW_TO_JUDGE = """\
import sys, time
from pathlib import Path
from nagle_lab.cli.main import main
from nagle_lab.experiments.software import guarded
def judge_recording(*_, **__):
    Path(sys.argv.pop()).touch()
    time.sleep(60)
guarded.judge_recording = judge_recording
main()
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_ended_while_it_judges_it_leaves_no_folder_behind(tmp_path, temporary, number):
    begun = tmp_path / "begun"
    command = [sys.executable, "-c", SLOW_TO_JUDGE, "guard", "--", "true", begun]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as running:
        assert within(60, begun.exists)
        assert list(temporary.iterdir()), "it records into a temporary folder"
        running.send_signal(number)
        _, err = running.communicate(timeout=30)
    assert running.returncode == 128 + number, err
    assert "Traceback" not in err
    assert not list(temporary.iterdir())


def test_a_working_directory_that_was_deleted_is_one_line(tmp_path):
    gone = tmp_path / "gone"
    gone.mkdir()
    script = f"cd {shlex.quote(str(gone))} && rmdir {shlex.quote(str(gone))} && exec {shlex.join(GUARD)} true"
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines()[-1].startswith("nagle-lab: the working directory was deleted: cd to one that")
    assert done.stderr.count("\n") == 1


def test_the_help_says_that_the_time_limit_is_that_of_each_run():
    done = subprocess.run([*GUARD, "--help"], capture_output=True, text=True, timeout=60, check=True)
    assert "with --both-sides, each of its two runs" in " ".join(done.stdout.split())
