"""nagle-lab guard --pid N --trace: strace attached to what runs, and detached again without harm."""

import os
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from nagle_lab.guard.tracing import hooking, strace_attached, strace_command
from nagle_lab.host import privileges
from support.command import in_process
from support.guarded import GUARD
from support.namespaces import OWN_NETWORK, is_recorded
from support.rights import mount_refused
from support.vfork import waits_for_its_child
from support.waiting import within

WHY_NOT = strace_command.why_no_command() or mount_refused() or ""
pytestmark = [pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT), pytest.mark.long]

# Prints a dot for each 20 answers, so that one can see whether it goes on.
PYTHON = """
    import os, socket, sys, threading
    listener = socket.create_server(("127.0.0.1", 0))

    def serve():
        while True:
            peer, _ = listener.accept()
            while peer.recv(4096):
                if "clean" in sys.argv:
                    peer.sendall(bytes(800))
                    continue
                peer.sendall(bytes(200))
                peer.sendall(bytes(600))

    if "forks" in sys.argv and os.fork() == 0:
        serve()
    if "forks" not in sys.argv:
        threading.Thread(target=serve, daemon=True).start()
    with socket.create_connection(listener.getsockname()) as s:
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while True:
            for _ in range(20):
                s.sendall(bytes(100))
                got = 0
                while got < 800:
                    got += len(s.recv(4096))
            print(end=".", flush=True)
"""
C = """
    #include <arpa/inet.h>
    #include <pthread.h>
    #include <sys/socket.h>
    #include <unistd.h>

    static char buffer[4096];

    static void header(int peer) { send(peer, buffer, 200, 0); }
    static void body(int peer) { write(peer, buffer, 600); }

    static void *serve(void *listener) {
        for (;;) {
            int peer = accept(*(int *)listener, 0, 0);
            while (read(peer, buffer, sizeof buffer) > 0) {
                header(peer);
                body(peer);
            }
            close(peer);
        }
    }

    int main(void) {
        struct sockaddr_in at = {AF_INET};
        socklen_t size = sizeof at;
        at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        int listener = socket(AF_INET, SOCK_STREAM, 0);
        bind(listener, (void *)&at, size);
        listen(listener, 5);
        getsockname(listener, (void *)&at, &size);
        pthread_t thread;
        pthread_create(&thread, 0, serve, &listener);
        for (;;) {
            int c = socket(AF_INET, SOCK_STREAM, 0);
            connect(c, (void *)&at, size);
            for (int i = 0; i < 20; i++) {
                write(c, buffer + 2048, 100);
                for (int n = 0; n < 800;)
                    n += read(c, buffer + 2048, 2048);
            }
            close(c);
            write(1, ".", 1);
        }
    }
"""


def started(*command: str) -> subprocess.Popen[bytes]:
    """In a network namespace of its own, and asking itself already."""
    process = subprocess.Popen([*OWN_NETWORK, *command], stdout=subprocess.PIPE, process_group=0)
    assert process.stdout and process.stdout.read(1) == b"."
    return process


@contextmanager
def running(*command: str) -> Iterator[subprocess.Popen[bytes]]:
    """The same; it goes on to the end, and its descendants end with it."""
    with started(*command) as process:
        try:
            yield process
            goes_on(process)
        finally:
            os.killpg(process.pid, signal.SIGKILL)


def goes_on(process: subprocess.Popen[bytes]) -> None:
    """It is not traced, not stopped, and answers still."""
    assert process.stdout
    os.set_blocking(process.stdout.fileno(), False)
    while process.stdout.read(1 << 16):
        pass
    os.set_blocking(process.stdout.fileno(), True)
    assert process.stdout.read(1) == b"."
    for status in Path(f"/proc/{process.pid}/task").glob("*/status"):
        assert "TracerPid:\t0\n" in status.read_text()


def interrupted(guard: subprocess.Popen[str]) -> None:
    """By Ctrl-C."""
    guard.send_signal(signal.SIGINT)


def python(folder: Path, *arguments: str) -> list[str]:
    path = folder / "server.py"
    path.write_text(textwrap.dedent(PYTHON))
    return [sys.executable, str(path), *arguments]


def recorded(
    pid: int, report: Path, *options: str, then: Callable[[subprocess.Popen[str]], None] | None = None
) -> tuple[int, str, dict]:
    """``then`` is called when strace has seen some hundred calls, the last of them without stacks."""
    kept = report.with_name("kept")
    command = [*GUARD, f"--pid={pid}", "--trace", f"--keep={kept}", f"--json={report}", *options]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        calls = kept / strace_command.CALLS
        if then:
            assert within(
                60, lambda: process.poll() is not None or (calls.exists() and calls.stat().st_size > 30_000)
            )
            then(process)
        _, err = process.communicate(timeout=90)
    return process.returncode, " ".join(err.split()), msgspec.json.decode(report.read_bytes())


def most_are_named(writes: dict) -> None:
    """All but those while strace attached, and while it began anew without stacks: a busy machine takes a second."""
    assert writes["stalls"] >= 20 and writes["named"] >= 0.6 * writes["stalls"], writes["problem"]
    group = writes["groups"][0]
    assert (group["trigger"]["bytes"], group["held"]["bytes"]) == (200, 600)
    assert all(0 < pair["between_ms"] + pair["true_hold_ms"] < 300 for pair in writes["pairs"])
    assert len(writes["groups"]) == 1


def test_a_python_program_that_runs_and_goes_on(tmp_path):
    with running(*python(tmp_path)) as process:
        code, err, report = recorded(process.pid, tmp_path / "report.json", "--seconds=5")
    assert (code, report["verdict"]) == (1, "STALL")
    writes = report["writes"]
    most_are_named(writes)
    group = writes["groups"][0]
    assert group["trigger"]["process"] == process.pid != group["trigger"]["thread"] == group["held"]["thread"]
    assert f"no line {group['held']['command']} (process {process.pid}) was running before it was traced, and" in err
    assert "TCP_NODELAY in Python, which wrote what was held" in err and "Which software it is" not in err
    assert "loads what names its lines only when it starts: for its lines run it by nagle-lab guard --trace" in err
    assert "TCP_NODELAY not set while it was traced; the connection began before that" in err
    assert writes["untraced_exchanges"] >= 10 and writes["untraced_stalled_exchanges"] >= 9, "1.25 s without strace"
    without = f"{writes['untraced_stalled_exchanges']} of {writes['untraced_exchanges']} without tracing ("
    assert without in err and "for 5 s, the first 1.25 s without strace" in err


def test_the_lines_of_a_python_program_that_was_started_with_the_hook(tmp_path):
    command = python(tmp_path)
    with running("env", f"PYTHONPATH={hooking.loadable() / 'python'}", *command) as process:
        code, _, report = recorded(process.pid, tmp_path / "report.json", "--seconds=5")
    writes = report["writes"]
    most_are_named(writes)
    lines = Path(command[1]).read_text().splitlines()
    said = [writes["groups"][0][one]["program"] for one in ("trigger", "held")]
    assert code == 1 and [one["function"] for one in said] == ["serve", "serve"]
    assert [lines[one["line"] - 1].strip() for one in said] == [f"peer.sendall(bytes({n}))" for n in (200, 600)]


def test_the_lines_of_a_c_program_that_runs(tmp_path):
    if not shutil.which("cc") or not strace_command.has_stacks():
        pytest.skip("there is no C compiler, or this strace prints no stacks")
    source = tmp_path / "server.c"
    source.write_text(textwrap.dedent(C))
    subprocess.run(["cc", "-g", "-O0", "-pthread", "-w", "-o", tmp_path / "server", source], check=True)
    with running(str(tmp_path / "server")) as process:
        code, err, report = recorded(process.pid, tmp_path / "report.json", "--seconds=6")
    most_are_named(report["writes"])
    functions = [report["writes"]["groups"][0][one]["program"]["function"] for one in ("trigger", "held")]
    assert (code, functions) == (1, ["header", "body"])
    lines = source.read_text().splitlines()
    for one, text in (("trigger", "void header"), ("held", "void body")):
        place = report["writes"]["groups"][0][one]["program"]
        assert text in lines[place["line"] - 1]
    assert "never set on the socket that held" in err, "of connections that were accepted meanwhile it is known"


def test_a_child_that_was_there_already_and_ctrl_c(tmp_path):
    with running(*python(tmp_path, "forks")) as process:
        code, _, report = recorded(process.pid, tmp_path / "report.json", then=interrupted)
    most_are_named(report["writes"])
    assert code == 1 and report["writes"]["groups"][0]["held"]["process"] != process.pid


def test_what_writes_once_is_not_called_clean(tmp_path):
    with running(*python(tmp_path, "clean")) as process:
        code, err, report = recorded(process.pid, tmp_path / "report.json", "--seconds=4")
    assert (code, report["verdict"]) == (3, "INCONCLUSIVE")
    assert not report["writes"]["groups"] and "STALL" not in err
    assert report["writes"]["untraced_exchanges"] >= 10


def test_what_ends_before_strace_is_attached(tmp_path):
    with (
        running(*python(tmp_path)) as process,
        subprocess.Popen([*GUARD, f"--pid={process.pid}", "--trace"], stderr=subprocess.PIPE) as guard,
    ):
        assert guard.stderr and b"the first 5 s without strace" in guard.stderr.readline()
        assert within(30, lambda: is_recorded(process.pid))
        guard.send_signal(signal.SIGINT)
        err = guard.stderr.read().decode()
    assert (guard.returncode, err) == (2, "nagle-lab: it was ended in the first 5 s, which are without strace: "
                                       "let it run longer\n")  # fmt: skip


def test_a_guard_that_is_killed_leaves_the_program_unharmed(tmp_path):
    with running(*python(tmp_path)) as process:
        with subprocess.Popen([*GUARD, f"--pid={process.pid}", "--trace"], stderr=subprocess.PIPE) as guard:
            assert within(30, lambda: strace_attached.why_traced_already(process.pid))
            guard.kill()
        assert within(30, lambda: not strace_attached.why_traced_already(process.pid))


def refused(pid: int) -> str:
    done = in_process("guard", f"--pid={pid}", "--trace", "--seconds=1")
    assert done.code == 2
    return done.err.splitlines()[-1]


def test_a_process_that_is_traced_already(tmp_path):
    with running(*python(tmp_path)) as process:
        strace = ["strace", "-f", "-o", "/dev/null", "-e", "trace=none", "-p", str(process.pid)]
        with subprocess.Popen(strace, stderr=subprocess.DEVNULL) as other:
            assert within(30, lambda: strace_attached.why_traced_already(process.pid))
            says = refused(process.pid)
            other.terminate()
    assert says == (
        f"nagle-lab: process {process.pid} is already traced by strace, process {other.pid}: end that first"
    )


def test_a_process_that_is_not_there():
    assert "there is no process 4194300" in refused(4_194_300)


def test_a_process_that_ends_meanwhile(tmp_path):
    """What was recorded until then is judged."""

    def ended(guard: subprocess.Popen[str]) -> None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        interrupted(guard)

    with started(*python(tmp_path)) as process:
        code, _, report = recorded(process.pid, tmp_path / "report.json", then=ended)
    assert code == 1
    most_are_named(report["writes"])


def test_tracing_an_interface_is_refused():
    done = in_process("guard", "--interface=lo", "--trace")
    assert done.code == 2 and "--interface has none: use --pid or --container" in done.err


NOT_PERMITTED = ["attach: ptrace(PTRACE_SEIZE, 7): Operation not permitted"]


@pytest.mark.parametrize(
    ("capabilities", "owner", "scope", "todo"),
    [
        (0, os.geteuid(), "1", "kernel.yama.ptrace_scope is 1: run this as root, or sudo sysctl"),
        (0, os.geteuid(), None, "run this as root, in a container with --cap-add SYS_PTRACE"),
        (0, os.geteuid() + 1, "1", f"it belongs to user {os.geteuid() + 1}: run this as root"),
        (1 << 19, os.geteuid() + 1, "1", "a security policy forbids it (AppArmor, SELinux, seccomp)"),
    ],
)
def test_rights_that_are_missing(tmp_path, monkeypatch, capabilities, owner, scope, todo):
    yama = tmp_path / "ptrace_scope"
    if scope is not None:
        yama.write_text(f"{scope}\n")
    monkeypatch.setattr(privileges, "YAMA", yama)
    monkeypatch.setattr(strace_attached, "has_capability", lambda number: bool(capabilities >> number & 1))
    status = {"Uid": f"{owner}\t{owner}", "State": "S (sleeping)"}
    monkeypatch.setattr(strace_attached, "status_of", lambda _: status)
    why = strace_attached.why_not_attached([7], NOT_PERMITTED)
    assert why.startswith(f"strace cannot attach to process 7 ({NOT_PERMITTED[0]}): {todo}")
    assert "\n" not in why


def test_a_machine_that_forbids_all_tracing(tmp_path, monkeypatch):
    (tmp_path / "ptrace_scope").write_text("3\n")
    monkeypatch.setattr(privileges, "YAMA", tmp_path / "ptrace_scope")
    assert strace_command.why_no_tracing() == "kernel.yama.ptrace_scope = 3 forbids tracing until the next boot"


def test_a_process_that_ended_while_strace_attached():
    assert strace_attached.why_not_attached([4_194_300], []).startswith("process 4194300 has ended: ")


def test_a_process_that_waits_for_its_child_of_vfork_goes_on(tmp_path, monkeypatch):
    """It does not stop for strace, which would wait for that without end, while the child is stopped."""
    monkeypatch.setattr(strace_attached, "_DETACHED_S", 0.5)
    with subprocess.Popen([waits_for_its_child(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdin and process.stdout and process.stdout.read(1) == b"."
            process.stdin.write(b"!" * 3)
            process.stdin.flush()
            assert process.stdout.read(3) == b"..."
            tracer = strace_attached.Tracer(lambda: [process.pid], tmp_path)
            tracer.start(stacks=False)
            tracer.stop()
            process.stdin.write(b"!" * 3)
            process.stdin.flush()
            assert process.stdout.read(3) == b"..."
        finally:
            process.kill()
