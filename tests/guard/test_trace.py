"""nagle-lab guard --trace on real programs: the two writes, in Python, Node.js and native code, and bad cases."""

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from statistics import median

import pytest

from nagle_lab.diagnosis.analysis import analyze
from nagle_lab.guard.tracing import strace_command
from nagle_lab.guard.tracing.strace_output import read_trace
from support.guarded import GUARD, SERVER, GuardEnded
from support.guarded import guard as guard_command
from support.traced import NODE_ASKS, C, line, lines, program, traced, writes_of
from support.vfork import waits_for_its_child
from support.waiting import within

pytestmark = [pytest.mark.skipif(bool(why := strace_command.why_no_command()), reason=why), pytest.mark.long]

# What asks: the answers of a server in another language.
NODE = """
const net = require("node:net");
const how = process.argv[2];

function reply(socket) {
  socket.write(Buffer.alloc(200));
  socket.write(Buffer.alloc(600));
}

const server = net.createServer({ noDelay: false }, (socket) => {
  if (how === "lost") { socket.setNoDelay(true); socket.setNoDelay(false); }
  socket.on("data", () => reply(socket));
});
"""
# A parent that accepts, and a child that answers: the header by one thread, the body by another.
FORKED = """
import os, socket, threading
listener = socket.create_server(("127.0.0.1", 0))
if os.fork() == 0:
    peer, _ = listener.accept()
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if os.fork():
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 0)
        os.wait()
        os._exit(0)
    go, done = threading.Semaphore(0), threading.Semaphore(0)
    def body():
        while go.acquire():
            peer.sendall(b"b" * 600)
            done.release()
    threading.Thread(target=body, daemon=True).start()
    import time
    time.sleep(0.2)
    while peer.recv(4096):
        peer.sendall(b"h" * 200)
        go.release()
        done.acquire()
    os._exit(0)
with socket.create_connection(listener.getsockname()) as s:
    for _ in range(30):
        s.sendall(b"q" * 100)
        got = 0
        while got < 800:
            got += len(s.recv(4096))
"""


def compiled(folder: Path, *options: str) -> list[str]:
    if not shutil.which("cc"):
        pytest.skip("there is no C compiler")
    source = program(folder, "server.c", C)
    subprocess.run(["cc", *options, "-pthread", "-w", "-o", folder / "server", source], check=True)
    return [str(folder / "server")]


def test_the_two_lines_of_a_python_program(tmp_path):
    path = program(tmp_path, "server.py", SERVER)
    run = traced(tmp_path, [sys.executable, str(path), "two-writes"])
    writes = run.writes
    assert writes and writes.problem == ""
    assert lines(writes) == [
        (line(path, 'sendall(b"h" * 200)'), "serve", "sendall", 200),
        (line(path, 'sendall(b"b" * 600)'), "serve", "sendall", 600),
    ]
    group = writes.groups[0]
    assert group.trigger.program and group.trigger.program.file == str(path)
    assert group.stalls == writes.named == writes.stalls == writes.stalled_exchanges >= 15
    assert group.trigger.process != group.trigger.thread == group.held.thread, "it is the thread that serves"
    assert group.trigger.command.startswith("python") and not group.one_write
    assert writes.nodelay == "never set on the socket that held"
    assert writes.untraced_stalled_exchanges >= 10
    waits = {(stall.connection, stall.exchange): stall.wait_ms for stall in run.result.stalls}
    assert 0.5 < median(pair.true_hold_ms for pair in writes.pairs) / median(waits.values()) < 1.5
    assert all(pair.between_ms > 0 and pair.true_hold_ms > 0 for pair in writes.pairs)
    between, held = (median(getattr(pair, name) for pair in writes.pairs) for name in ("between_ms", "true_hold_ms"))
    assert between < held, "a busy machine may pause between two writes, but not between most"


def test_a_socket_that_is_passed_to_a_child_with_threads(tmp_path):
    path = program(tmp_path, "server.py", FORKED)
    writes = writes_of(tmp_path, [sys.executable, str(path)])
    assert [(at, by, size) for at, _, by, size in lines(writes)] == [
        (line(path, 'b"h" * 200'), "sendall", 200), (line(path, 'b"b" * 600'), "sendall", 600),
    ]  # fmt: skip
    group = writes.groups[0]
    assert group.trigger.process == group.held.process and group.trigger.thread != group.held.thread
    set_by, cleared_by = (one.write.process for one in writes.options)
    assert set_by == cleared_by != group.held.process, "another process had it lost"


def test_a_python_that_takes_no_hook(tmp_path):
    path = program(tmp_path, "server.py", SERVER)
    writes = writes_of(tmp_path, [sys.executable, "-I", str(path), "two-writes"])
    group = writes.groups[0]
    assert (group.trigger.call, group.trigger.bytes, group.held.bytes) == ("sendto", 200, 600)
    assert group.trigger.program is None and "loaded none (python -I, -E or -S)" in group.trigger.why_no_line


def test_ctrl_c_while_it_is_traced_is_the_end_of_it(tmp_path):
    """No third run begins, and what the first run has shown is said."""
    runs, served = tmp_path / "runs", tmp_path / "served"
    one = shlex.join([sys.executable, "-I", str(program(tmp_path, "server.py", SERVER)), "two-writes"])
    script = f"echo >> {runs}; {one}; echo >> {served}; [ $(wc -l < {runs}) = 1 ] || sleep 60"
    command = [*GUARD, "--trace", "--", "sh", "-c", script]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, process_group=0) as running:
        assert within(60, lambda: served.exists() and served.read_text() == "\n\n")
        os.killpg(running.pid, signal.SIGINT)
        _, err = running.communicate(timeout=50)
    assert runs.read_text() == "\n\n"
    assert running.returncode == 1 and "STALL" in err and "the traced run was interrupted" in err, err


def test_ctrl_c_before_it_is_traced_is_the_end_of_it(tmp_path):
    """The command does not run again; what it has shown is said."""
    runs, served = tmp_path / "runs", tmp_path / "served"
    one = shlex.join([sys.executable, "-I", str(program(tmp_path, "server.py", SERVER)), "two-writes"])
    command = [*GUARD, "--trace", "--", "sh", "-c", f"echo >> {runs}; {one}; echo >> {served}; sleep 60"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, process_group=0) as running:
        assert within(60, served.exists)
        os.killpg(running.pid, signal.SIGINT)
        _, err = running.communicate(timeout=50)
    assert runs.read_text() == "\n"
    assert running.returncode == 130 and "STALL" in err and "interrupted, so it did not run again" in err, err


def test_a_program_that_waits_for_its_child_of_vfork_is_ended_too(tmp_path):
    """It does not stop for strace, which would wait for that without end, while standard input stays open."""
    runs, waits = tmp_path / "runs", tmp_path / "waits.txt"
    one = shlex.join([sys.executable, "-I", str(program(tmp_path, "server.py", SERVER)), "two-writes"])
    other = waits_for_its_child(tmp_path)
    script = f"echo >> {runs}; [ $(wc -l < {runs}) = 1 ] && exec {one}; exec {other} > {waits}"
    command = [*GUARD, "--trace", "--", "sh", "-c", script]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        assert within(60, lambda: waits.exists() and waits.read_text() == ".")
        running.send_signal(signal.SIGTERM)
        assert within(50, lambda: running.poll() is not None)
        err = running.stderr.read() if running.stderr else ""
    assert running.returncode == 1 and "STALL" in err, err


def test_the_sitecustomize_that_a_program_has_is_loaded(tmp_path):
    (tmp_path / "own").mkdir()
    program(tmp_path / "own", "sitecustomize.py", "import builtins\nbuiltins.mine = 1")
    path = program(
        tmp_path, "server.py", "assert mine\nimport sys\nassert not any('hooks' in p for p in sys.path)\n" + SERVER
    )
    writes_of(tmp_path, [sys.executable, str(path), "two-writes"], environment={"PYTHONPATH": str(tmp_path / "own")})


@pytest.mark.skipif(not shutil.which("node"), reason="there is no Node.js")
@pytest.mark.parametrize("how", ["never", "lost"])
def test_the_two_lines_of_a_node_program(tmp_path, how):
    path = program(tmp_path, "server.js", NODE + NODE_ASKS)
    writes = writes_of(tmp_path, ["node", str(path), how])
    assert lines(writes) == [
        (line(path, "alloc(200)"), "reply", "write", 200), (line(path, "alloc(600)"), "reply", "write", 600),
    ]  # fmt: skip
    at = f"server.js:{line(path, 'setNoDelay(true)')}"
    assert writes.nodelay.count(at) == (2 if how == "lost" else 0), writes.nodelay
    assert ("never set" in writes.nodelay) is (how == "never")


@pytest.mark.parametrize("second", ["write", "sendfile"])
def test_the_two_lines_of_a_c_program(tmp_path, second):
    if not strace_command.has_stacks():
        pytest.skip("this strace prints no stacks")
    command = compiled(tmp_path, "-g", "-O2", *(["-DSENDFILE"] if second == "sendfile" else []))
    path = tmp_path / "server.c"
    writes = writes_of(tmp_path, command)
    at = {"write": "write(peer", "sendfile": "sendfile(peer"}[second]
    assert lines(writes) == [
        (line(path, "send(peer"), "reply", "sendto", 200), (line(path, at), "reply", second, 600),
    ]  # fmt: skip
    assert writes.nodelay.startswith("never set on the socket that held; the other end set it on its own, at ")
    assert f"server.c:{line(path, 'setsockopt(c')} main" in writes.nodelay


def test_a_c_program_without_debug_information(tmp_path):
    if not strace_command.has_stacks():
        pytest.skip("this strace prints no stacks")
    writes = writes_of(tmp_path, compiled(tmp_path, "-O0"))
    held = writes.groups[0].held
    assert held.program and (held.program.function, held.program.line) == ("reply", 0)
    assert held.why_no_line.startswith("server has no debug information")


def test_a_stripped_c_program_whose_debug_information_is_in_another_file(tmp_path):
    if not strace_command.has_stacks():
        pytest.skip("this strace prints no stacks")
    command = compiled(tmp_path, "-g", "-O2")
    debug, path = tmp_path / "server.debug", tmp_path / "server.c"
    for tool in (["objcopy", "--only-keep-debug", *command, debug], ["strip", *command],
                 ["objcopy", f"--add-gnu-debuglink={debug}", *command]):  # fmt: skip
        subprocess.run(tool, check=True)
    writes = writes_of(tmp_path, command)
    assert lines(writes) == [
        (line(path, "send(peer"), "reply", "sendto", 200), (line(path, "write(peer"), "reply", "write", 600),
    ]  # fmt: skip
    assert writes.groups[0].held.why_no_line == ""


@pytest.fixture(scope="module")
def guarded(tmp_path_factory) -> tuple[GuardEnded, Path]:
    """How the guard of server.py ended, and the folder of that, of page.html and of what was kept."""
    folder = tmp_path_factory.mktemp("guarded")
    command = [sys.executable, str(program(folder, "server.py", SERVER)), "two-writes"]
    options = ("--trace", "--expect=stall", f"--html={folder / 'page.html'}", f"--keep={folder / 'kept'}")
    return guard_command(folder, *options, command=command, cwd=folder), folder


def test_on_the_screen_and_in_json(guarded):
    ended, folder = guarded
    path = folder / "server.py"
    assert ended.code == 0 and ended.out == "done\n" * 2
    text = " ".join(ended.err.split())
    header, body = line(path, 'sendall(b"h" * 200)'), line(path, 'sendall(b"b" * 600)')
    assert "# In its source or configuration: TCP_NODELAY in Python, the language of server.py:" in text
    assert "run it again with --trace" not in text
    assert f"stalls: server.py:{header} serve sendall 200 B, then server.py:{body} serve sendall 600 B, " in text
    assert f"join server.py:{header} and server.py:{body} in one write" in text
    assert text.index("then server.py") < text.index("A typical stall of the traced run: connection ")
    ladder = text.partition("frames of traced/capture.pcapng")[2]
    order = [
        f"server.py:{header} serve ■ sendall 200 B",
        "trigger",
        f"server.py:{body} serve ■ sendall 600 B",
        "held ",
    ]
    assert [ladder.index(part) for part in order] == sorted(ladder.index(part) for part in order)
    assert "TCP_NODELAY never set on the socket that held" in text
    assert "ms, from the second write to its release" in text
    writes = ended.report["writes"]
    assert f"{writes['stalled_exchanges']} of {writes['exchanges']} exchanges stalled while traced" in text
    assert writes["groups"][0]["held"]["program"] == {"file": str(path), "line": body, "function": "serve"}
    assert len(writes["pairs"]) == writes["named"]


def test_the_page_has_the_source_of_both_and_the_traced_runs_frames(guarded):
    ended, folder = guarded
    text = (folder / "page.html").read_text()
    section = text[text.index("<h2>The two writes</h2>") : text.index("segment by segment")]
    assert "peer.sendall(b&#34;h&#34; * 200)" in section and str(folder / "server.py") in section
    assert "A typical stall of the traced run" in section and "frames of traced/capture.pcapng" in section
    shown = int(re.findall(r'<g class="seg trigger"[^>]*data-frame="(\d+)"', section)[0])
    assert shown in [pair["trigger_frame"] for pair in ended.report["writes"]["pairs"]]
    traced_run = analyze(folder / "kept" / "traced" / "capture.pcapng")
    assert shown in [stall.trigger_frame for stall in traced_run.stalls]


def test_what_does_not_stall_is_not_traced(tmp_path):
    ended = guard_command(tmp_path, "--trace", command=[sys.executable, "-c", SERVER, "nodelay"])
    assert (ended.code, ended.out, ended.report["writes"]) == (0, "done\n", None)
    assert "--trace: there was nothing to trace, because the command did not stall" in ended.err


def test_without_strace_the_verdict_is_still_said(tmp_path):
    tools = tmp_path / "tools"
    tools.mkdir()
    command = [sys.executable, "-c", SERVER, "two-writes"]
    ended = guard_command(tmp_path, "--trace", command=command, env={"PATH": str(tools), "TMPDIR": str(tmp_path)})
    assert (ended.code, ended.report["verdict"], ended.out) == (1, "STALL", "done\n")
    assert ended.report["writes"]["problem"] == "strace is not installed: install the package strace"
    assert "trace strace is not installed: install the package strace" in " ".join(ended.err.split())


@pytest.mark.parametrize(
    ("says", "expected"),
    [
        (
            "strace: some word before\nstrace: ptrace(PTRACE_TRACEME, ...): Operation not permitted\n"
            "strace: detach: waitpid(15): No child processes",
            "ptrace is forbidden here (ptrace(PTRACE_TRACEME, ...): Operation not permitted): ",
        ),
        ("", "ptrace is forbidden here (strace ended with 1)"),
    ],
)
def test_where_ptrace_is_forbidden(tmp_path, monkeypatch, says, expected):
    strace = program(tmp_path, "strace", f'#!/bin/sh\n[ "$1" = -V ] || {{ echo "{says}" >&2; exit 1; }}\n')
    strace.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    why = strace_command.why_no_command()
    assert why.startswith(expected) and "\n" not in why


@pytest.mark.parametrize("version", ["4.26", "5.15"])
def test_a_strace_that_is_too_old(tmp_path, monkeypatch, version):
    program(tmp_path, "strace", f"#!/bin/sh\necho strace -- version {version}\n").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert strace_command.why_no_command() == f"strace {version} is too old: install 5.16 or later"


@pytest.mark.parametrize("most_bytes", [1, 5000, 10_000_000])
def test_a_trace_has_a_bound(tmp_path, most_bytes):
    """What is behind it is dropped, and neither strace nor the program waits, fails, or is ended for it."""
    file = tmp_path / "a trace"
    text = "import os\nfor _ in range(2000): os.close(os.dup(0))\nprint('done')"
    to = strace_command.bounded(file, most_bytes)
    command = ["strace", "-e", "trace=dup,close", "-o", to, sys.executable, "-c", text]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
    size = file.stat().st_size
    assert size == most_bytes + 1 if most_bytes < 10_000 else 10_000 < size < most_bytes
    assert read_trace(file, most_bytes=most_bytes).cut is (most_bytes < 10_000)


def test_what_is_not_kept_of_a_trace_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(strace_command.bounded, "__defaults__", (20_000,))
    monkeypatch.setitem(read_trace.__kwdefaults__, "most_bytes", 20_000)
    path = program(tmp_path, "server.py", SERVER)
    writes = traced(tmp_path, [sys.executable, str(path), "two-writes"]).writes
    assert writes and 5 < writes.named < writes.stalls and writes.groups
    assert any("MB of the trace were kept, or its last line is cut" in note for note in writes.notes)
    assert "they were made before the trace began, or after it ended" in writes.problem
    assert (tmp_path / "recorded" / "traced" / "strace.txt").stat().st_size == 20_001


def test_a_traced_run_that_does_not_stall(tmp_path):
    """The program sees the hook, and writes at once: the verdict stays that of the run that was not traced."""
    program_text = (
        "import os, sys\nif 'hooks' in os.environ.get('PYTHONPATH', ''): sys.argv[1] = 'one-write'\n" + SERVER
    )
    path = program(tmp_path, "server.py", program_text)
    run = traced(tmp_path, [sys.executable, str(path), "two-writes"])
    assert run.result.verdict == "STALL"
    assert run.writes and not run.writes.groups
    assert run.writes.problem.startswith("the traced run did not stall: tracing slows")
    fewer = re.compile(r"changed the share of stalled exchanges by -[5-9]\d ")  # a busy machine has fewer itself
    assert any(fewer.search(note) for note in run.writes.notes), run.writes.notes
    assert not any("lines hold" in note for note in run.writes.notes), "there are none"


# A server that goes on when the command has ended: a daemon, which may ignore that it is asked to end.
DAEMON = """
import os, signal, socket, sys
listener = socket.create_server(("127.0.0.1", 0))
if os.fork() == 0:
    os.setsid()
    if sys.argv[1] == "ignores": signal.signal(signal.SIGTERM, signal.SIG_IGN)
    peer, _ = listener.accept()
    while peer.recv(4096):
        peer.sendall(b"h" * 200)
        peer.sendall(b"b" * 600)
    while True: signal.pause()
with socket.create_connection(listener.getsockname()) as s:
    for _ in range(30):
        s.sendall(b"q" * 100)
        got = 0
        while got < 800:
            got += len(s.recv(4096))
sys.exit(int(sys.argv[2]))
"""


@pytest.mark.parametrize(("how", "status"), [("ends", 0), ("ignores", 7)])
def test_what_a_traced_command_leaves_running_is_ended_with_it(tmp_path, how, status):
    """strace waits for all that it traces: the traced run took a minute, until its limit ended it."""
    path = program(tmp_path, "server.py", DAEMON)
    run = traced(tmp_path, [sys.executable, str(path), how, str(status)])
    assert run.guarded.outcome.ended_by_us and run.guarded.outcome.status == status
    assert run.writes and run.traced and run.traced.took_s < 40
    assert not any("ended" in note for note in run.writes.notes), "neither by us, nor otherwise than untraced"
    assert lines(run.writes)[1] == (line(path, 'b"b" * 600'), "<module>", "sendall", 600)
    assert run.writes.named == run.writes.stalls >= 15


def test_a_traced_run_that_fails(tmp_path):
    text = "import os, sys\nif 'hooks' in os.environ.get('PYTHONPATH', ''): sys.exit(9)\n" + SERVER
    run = traced(tmp_path, [sys.executable, str(program(tmp_path, "server.py", text)), "two-writes"])
    assert run.result.verdict == "STALL" and run.writes and not run.writes.groups
    assert "the command ended with 9 when traced, with 0 without" in run.writes.notes
