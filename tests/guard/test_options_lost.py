"""TCP_NODELAY that was asked for and lost, in real programs: the line on the screen tells how."""

import re
import sys
from types import SimpleNamespace

import pytest

from nagle_lab.diagnosis.result.remedy import remedy
from nagle_lab.diagnosis.result.result import Range
from nagle_lab.experiments.writes.stall_writes import Writes
from nagle_lab.guard.tracing import strace_command
from support import traced
from support.traced import program, writes_of

pytestmark = [pytest.mark.skipif(bool(why := strace_command.why_no_command()), reason=why), pytest.mark.long]

# A server and its client are two processes, so that what one sets is not the other's.
PROGRAM = """
import os, socket
from socket import IPPROTO_TCP, SOL_SOCKET, TCP_NODELAY

listener = socket.create_server(("127.0.0.1", 0))
#LISTENING
if os.fork() == 0:
    with socket.create_connection(listener.getsockname()) as s:
        #CLIENT
        for _ in range(30):
            s.sendall(bytes(100))
            got = 0
            while got < 800:
                got += len(s.recv(4096))
    os._exit(0)
#FORKED
peer, _ = listener.accept()
#ACCEPTED
while peer.recv(4096):
    peer.sendall(bytes(200))
    peer.sendall(bytes(600))
"""


def writes(
    folder,
    *,
    listening: str = "",
    forked: str = "",
    client: str = "pass",
    accepted: str = "",
    recv: str = "peer.recv",
) -> Writes:
    text = PROGRAM.replace("#LISTENING", listening).replace("#FORKED", forked).replace("#ACCEPTED", accepted)
    text = text.replace("#CLIENT", client)
    path = program(folder, "server.py", text.replace("while peer.recv", f"while {recv}"))
    return writes_of(folder, [sys.executable, str(path)])


def line(folder, text: str) -> int:
    return traced.line(folder / "server.py", text)


HELD = SimpleNamespace(
    hold_ms=Range(0.0, 40.0),
    stalls=1,
    behind_full=0,
    who_held="the server",
    who_delayed="the client",
    is_mutual=False,
    grounds={},
    ack_timer_ms=40.0,
)
SO_DEBUG = "peer.setsockopt(SOL_SOCKET, TCP_NODELAY, 1)"


def test_never(tmp_path):
    assert writes(tmp_path).nodelay == "never set on the socket that held"


def test_at_the_wrong_level(tmp_path):
    """Where the program may not set SO_DEBUG, it is refused, too."""
    found = writes(tmp_path, accepted=f"try: {SO_DEBUG}\nexcept PermissionError: pass")
    assert found.nodelay.startswith("never set: asked for at ")
    place = f"server.py:{line(tmp_path, SO_DEBUG)} <module>"
    assert f"{place}, but at the wrong level: SOL_SOCKET made it SO_DEBUG" in found.nodelay
    assert found.nodelay.endswith("; use IPPROTO_TCP")
    assert [(one.option, one.on) for one in found.options] == [("SO_DEBUG", "socket")]


def test_refused(tmp_path):
    """One byte, as a bool of C++ is."""
    wrong = "peer.setsockopt(IPPROTO_TCP, TCP_NODELAY, b'1')"
    found = writes(tmp_path, accepted=f"try: {wrong}\nexcept OSError: pass")
    assert found.nodelay == (
        f"never set: asked for at {tmp_path.name}/server.py:{line(tmp_path, wrong)} <module>, "
        "and refused (EINVAL): its value is an int of 4 bytes"
    )
    assert [one.error for one in found.options] == ["EINVAL"]


def test_set_and_then_cleared(tmp_path):
    found = writes(tmp_path, accepted="\n".join(f"peer.setsockopt(IPPROTO_TCP, TCP_NODELAY, {n})" for n in (1, 0)))
    first, then = found.nodelay.split(", and ")
    assert first.startswith("set at ") and then.startswith("cleared at ")
    place = f"server.py:{line(tmp_path, 'NODELAY, 0')}"
    assert f"{place} <module>" in then
    said = remedy(HELD, found) or ""
    assert f", or remove {tmp_path.name}/{place}, which clears TCP_NODELAY. Or on " in said
    assert "set TCP_NODELAY" not in said
    assert [(one.option, one.value, one.on) for one in found.options] == [
        ("TCP_NODELAY", True, "socket"), ("TCP_NODELAY", False, "socket"),
    ]  # fmt: skip


def test_cleared_before_every_reply(tmp_path):
    """What is done again and again is told once, and how often."""
    clear = "peer.setsockopt(IPPROTO_TCP, TCP_NODELAY, 0)"
    cleared = f"recv = peer.recv\ndef cleared(size):\n {clear}\n return recv(size)"
    found = writes(tmp_path, accepted=cleared, recv="cleared")
    story, said = found.nodelay, remedy(HELD, found) or ""
    place = f"{tmp_path.name}/server.py:{line(tmp_path, clear)}"
    assert f", or set TCP_NODELAY at {place}, which clears it. Or on" in said
    time = r"[\d.]+ ms after connecting"
    assert re.fullmatch(rf"never set, only cleared at \S+ cleared( \(.*\))?, {time}, and \d+ more times", story)


def test_set_when_the_first_reply_had_waited(tmp_path):
    late = "peer.setsockopt(IPPROTO_TCP, TCP_NODELAY, 1)"
    count = f"seen = []\ndef late(size):\n seen.append(1)\n if len(seen) == 25: {late}\n return peer.recv(size)"
    found = writes(tmp_path, accepted=count, recv="late")
    place = f"{tmp_path.name}/server.py:{line(tmp_path, late)}"
    assert f"set at {place} late" in found.nodelay and found.nodelay.endswith(", when the first stall was over")
    said = remedy(HELD, found) or ""
    assert f"or set TCP_NODELAY before the first write ({place} sets it too late). Or on " in said


def test_files_below_the_working_directory_are_named_from_there(tmp_path, monkeypatch):
    """As in the remedy and with the writes."""
    monkeypatch.chdir(tmp_path)
    set_it = "peer.setsockopt(IPPROTO_TCP, TCP_NODELAY, 1); peer.setsockopt(IPPROTO_TCP, TCP_NODELAY, 0)"
    assert writes(tmp_path, accepted=set_it).nodelay.startswith(
        f"set at server.py:{line(tmp_path, set_it)} <module>, "
    )


def test_more_changes_than_are_listed_are_counted(tmp_path):
    lines = "\n".join(f"peer.setsockopt(IPPROTO_TCP, TCP_NODELAY, {n % 2})" for n in range(1, 9))
    assert writes(tmp_path, accepted=lines).nodelay.endswith(" after connecting, and 4 more")


def test_cleared_by_a_helper_that_sets_it_too(tmp_path):
    """The helper's line alone would not tell the two calls apart, nor say which one to change."""
    helper = (
        "def nodelay(on): peer.setsockopt(IPPROTO_TCP, TCP_NODELAY, on)\ndef accepted():\n nodelay(1)\n nodelay(0)"
    )
    found = writes(tmp_path, accepted=f"{helper}\naccepted()")
    first, then = found.nodelay.split(", and ")
    at, calls = line(tmp_path, "def nodelay"), [line(tmp_path, f"nodelay({n})") for n in (1, 0)]
    for story, call in zip((first, then), calls, strict=True):
        assert f"server.py:{at} nodelay (called at {tmp_path.name}/server.py:{call} accepted)" in story
    said = remedy(HELD, found) or ""
    assert f"server.py:{at} clears for {tmp_path.name}/server.py:{calls[1]}. Or on " in said


def test_on_a_socket_that_is_not_the_one(tmp_path):
    found = writes(tmp_path, accepted="other = socket.socket()\nother.setsockopt(IPPROTO_TCP, TCP_NODELAY, 1)")
    assert found.nodelay == (
        "never set on the socket that held; set on another socket of that process (not connected then), "
        f"at {tmp_path.name}/server.py:{line(tmp_path, 'other.set')} <module>"
    )
    assert [one.on for one in found.options] == ["another socket"]


def test_on_the_listener_when_it_was_too_late(tmp_path):
    found = writes(tmp_path, accepted="listener.setsockopt(IPPROTO_TCP, TCP_NODELAY, 1)")
    assert found.nodelay == (
        f"never set on the socket that held; set on the listening socket at {tmp_path.name}/server.py:"
        f"{line(tmp_path, 'listener.set')} <module>, after this connection had begun"
    )


def test_on_the_listener_when_the_other_end_set_it_on_its_own(tmp_path):
    late, theirs = (f"{end}.setsockopt(IPPROTO_TCP, TCP_NODELAY, 1)" for end in ("listener", "s"))
    found = writes(tmp_path, client=theirs, accepted=late)
    assert found.nodelay.startswith("never set on the socket that held; set on the listening socket at ")


def test_on_the_listener_between_handshake_and_accept(tmp_path):
    """Linux copies the option when the handshake ends, and not at accept()."""
    late = "import select; select.select([listener], [], [])\nlistener.setsockopt(IPPROTO_TCP, TCP_NODELAY, 1)"
    story = writes(tmp_path, forked=late).nodelay
    assert story == (
        f"set on the listening socket only, at {tmp_path.name}/server.py:{line(tmp_path, 'listener.set')} <module>"
    )


def test_cleared_on_the_listener(tmp_path):
    listening = "\n".join(f"listener.setsockopt(IPPROTO_TCP, TCP_NODELAY, {n})" for n in (1, 0))
    assert writes(tmp_path, listening=listening).nodelay.startswith("cleared on the listening socket only, at ")
