"""TCP_NODELAY set on what runs, in real network namespaces: the stall goes, and comes back."""

import json
import os
import pty
import re
import shutil
import signal
import socket
import subprocess
import tempfile

import pytest

from nagle_lab.host.privileges import ptrace_scope
from nagle_lab.live.sockets.inventory import inventory
from support.command import in_process
from support.living import NAGLE_LAB, NOBODY, PORT, nagle_lab, one_more, stalling, switched
from support.namespaces import is_recorded
from support.rights import must_look_elsewhere
from support.schemas import check
from support.waiting import within

pytestmark = pytest.mark.long


@pytest.fixture(autouse=True)
def as_root(tmp_path, monkeypatch):
    must_look_elsewhere()
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)  # what this process has found is another one's


@pytest.fixture
def program():
    with stalling() as process:
        yield process


def options(pid: int) -> dict[tuple, bool]:
    """TCP_NODELAY of each socket of a process, by its ends."""
    return {(one.listed.local, one.listed.remote): one.options.nodelay for one in inventory([pid]).sockets}


def switch(pid: int, state: str, *more: object, before: list[str] | None = None) -> tuple[int, str, str]:
    """Without a recording that is called here; ``before`` is what starts it in a process of its own."""
    arguments = ("nodelay", "--pid", pid, state, *more)
    return in_process(*arguments) if "--seconds=0" in more and not before else nagle_lab(*arguments, before=before)


def test_the_stall_goes_and_comes_back(program):
    code, out, err = switched("on", f"--pid={program.pid}", "--seconds=2")
    assert code == 0, out + err
    assert re.search(r"The stall is gone: \d+ of \d+ exchanges stalled before, none of [\d,]+ after", out)
    assert " STALL   before" in out and " CLEAN   after" in out
    assert "on for 0 of 3 sockets" in out and "on for 3 of 3 sockets" in out
    assert f"TCP_NODELAY set: python {program.pid}: 127.0.0.1:{PORT} listens" in re.sub(r"python\S*", "python", err)
    assert set(options(program.pid).values()) == {True}
    assert one_more(program) is True  # accepted sockets have it from their listener
    code, out, err = switched("off", f"--pid={program.pid}", "--seconds=2")
    assert code == 0, out + err
    assert re.search(r"The stall is back: none of [\d,]+ exchanges stalled before, \d+ of \d+ after", out)
    assert not any(on for (_, remote), on in options(program.pid).items())
    assert one_more(program) is False
    code, _, err = switch(program.pid, "off", "--yes")
    assert (code, "nothing to take back" in err) == (2, True)


def test_for_some_time_and_no_longer(program):
    code, out, err = switched("on", f"--pid={program.pid}", "--seconds=1.5", "--for=2s", f"--port={PORT}")
    assert (code, "The stall is gone" in out) == (0, True), out + err
    assert set(options(program.pid).values()) == {False}
    assert err.count("TCP_NODELAY taken back: ") == 3


def test_as_json_when_all_is_over(program):
    options_ = ("--seconds=1.5", "--for=2s", f"--port={PORT}", "--yes", "--json")
    code, out, _ = switch(program.pid, "on", *options_)
    report = json.loads(out)
    check("nodelay", report)
    assert (code, report["exit_code"], report["state"]) == (0, 0, "on")
    assert (report["before"]["verdict"], report["after"]["verdict"]) == ("STALL", "CLEAN")
    assert report["conclusion"].startswith("the stall is gone: ")
    for changed in (report["set"], report["taken_back"]):
        assert [one["remote"] is None for one in changed].count(True) == 1
        assert {one["processes"][0]["pid"] for one in changed} == {program.pid} and len(changed) == 3
    code, out, _ = switch(program.pid, "on", "--seconds=0", "--yes", "--json")
    report = json.loads(out)
    assert (code, report["before"], report["after"], report["conclusion"]) == (0, None, None, "")
    assert len(report["set"]) == 3 and report["taken_back"] == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("option", [["--for=60s"], []], ids=["for", "while it records"])
def test_a_signal_takes_it_back(program, number, option):
    command = [*NAGLE_LAB, "nodelay", f"--pid={program.pid}", "on", "--yes", "--seconds=60", *option]
    if option:
        command[-2] = "--seconds=0"
    else:
        command += ["--seconds=4"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True) as process:
        while True:
            line = process.stderr.readline()
            assert line, "it ended"
            if "TCP_NODELAY set" in line and "listens" in line:
                break
        assert within(5, lambda: set(options(program.pid).values()) == {True})
        assert option or within(30, lambda: is_recorded(program.pid))
        process.send_signal(number)
        _, err = process.communicate(timeout=60)
    assert process.returncode in (130, 128 + number), err
    assert set(options(program.pid).values()) == {False}
    assert "TCP_NODELAY taken back: " in err


def test_killed_outright_off_still_takes_it_back(program):
    command = [*NAGLE_LAB, "nodelay", f"--pid={program.pid}", "on", "--yes", "--seconds=0", "--for=60s"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True) as process:
        assert "TCP_NODELAY set" in process.stderr.readline()
        process.kill()
    assert set(options(program.pid).values()) == {True}
    assert switch(program.pid, "off", "--yes", "--seconds=0")[0] == 0
    assert set(options(program.pid).values()) == {False}


def test_what_the_program_set_itself_is_left_alone():
    """Its first connection, and those accepted meanwhile, of which nobody knows whose will it was."""
    with stalling("own-will") as program:
        before = options(program.pid)
        assert sorted(before.values()) == [False, False, False, False, True]
        assert switch(program.pid, "on", "--yes", "--seconds=0")[0] == 0
        assert set(options(program.pid).values()) == {True}
        assert one_more(program) is True
        code, _, err = switch(program.pid, "off", "--yes", "--seconds=0")
        assert (code, "1 socket accepted meanwhile with TCP_NODELAY left alone" in err) == (0, True), err
        after = options(program.pid)
        assert {ends: after[ends] for ends in before} == before


def test_a_second_on_does_not_forget_what_was(program):
    assert switch(program.pid, "on", "--yes", "--seconds=0")[0] == 0
    code, _, err = switch(program.pid, "on", "--yes", "--seconds=0")
    assert (code, "TCP_NODELAY is already set" in err) == (2, True)
    one_more(program)  # its client's socket has none
    assert switch(program.pid, "on", "--yes", "--seconds=0")[0] == 0
    assert switch(program.pid, "off", "--yes", "--seconds=0")[0] == 0
    assert set(options(program.pid).values()) == {False}


def test_nobody_to_ask_and_nothing_is_touched(program):
    code, out, err = switch(program.pid, "on")
    assert (code, out) == (2, "")
    assert err == "nagle-lab: there is no terminal to ask at: use --yes to continue without asking\n"
    assert set(options(program.pid).values()) == {False}
    code, _, err = switch(program.pid, "off")
    assert (code, "nothing to take back" in err) == (2, True), "there is nothing to ask about"


@pytest.mark.parametrize(("answer", "is_set", "code"), [("y", True, 0), ("n", False, 3), ("\n", False, 3)])
def test_it_asks_and_names_each_socket(program, answer, is_set, code):
    shown, terminal = pty.openpty()
    command = [*NAGLE_LAB, "nodelay", f"--pid={program.pid}", "on", "--seconds=0"]
    with subprocess.Popen(command, stdin=terminal, stderr=terminal, stdout=terminal) as process:
        text = b""
        while b"[y/N]" not in text:
            text += os.read(shown, 4096)
        assert set(options(program.pid).values()) == {False}
        os.write(shown, answer.strip().encode() + b"\n")
        assert process.wait(60) == code
    for local, remote in options(program.pid):
        assert (f":{local[1]} listens" if not remote[1] else f":{local[1]} ↔ ") in text.decode()
    assert set(options(program.pid).values()) == {is_set}


def test_the_process_ends_while_it_asks():
    shown, terminal = pty.openpty()
    with stalling() as program:
        command = [*NAGLE_LAB, "nodelay", f"--pid={program.pid}", "on", "--seconds=0"]
        with subprocess.Popen(command, stdin=terminal, stderr=terminal, stdout=terminal) as process:
            text = b""
            while b"[y/N]" not in text:
                text += os.read(shown, 4096)
            program.kill()
            program.wait()
            os.write(shown, b"y\n")
            assert process.wait(60) == 2
            text += os.read(shown, 4096)
    assert b"has ended" in text


def test_of_another_user_it_says_which_right(program):
    code, out, err = switch(program.pid, "on", "--yes", before=NOBODY)
    expected = f"nagle-lab: process {program.pid} cannot be inspected (needs CAP_SYS_PTRACE): run this as root\n"
    assert (code, out, err) == (2, "", expected)


def test_a_user_may_change_his_own_programs():
    """Without any right he may not record, and is told how to do without. What he changed is written down for him."""
    if ptrace_scope():
        pytest.skip("kernel.yama.ptrace_scope keeps users from that here")
    with stalling(before=NOBODY) as program:
        there = ["nsenter", f"--net=/proc/{program.pid}/ns/net", *NOBODY]
        code, _, err = switch(program.pid, "on", "--yes", "--seconds=1", before=there)
        assert (code, "cannot be recorded" in err, "with --seconds 0 nothing is recorded" in err) == (2, True, True)
        code, _, err = switch(program.pid, "on", "--yes", "--seconds=0", before=there)
        assert (code, set(options(program.pid).values())) == (0, {True}), err
        code, _, err = switch(program.pid, "off", "--yes", "--seconds=0", before=there)
        assert (code, set(options(program.pid).values())) == (0, {False}), err
    shutil.rmtree("/tmp/nagle-lab-65534")


def test_a_program_without_sockets_and_wrong_usage():
    with subprocess.Popen(["sleep", "60"]) as process:
        code, _, err = switch(process.pid, "on", "--yes")
        assert (code, "has no TCP socket: nagle-lab sockets lists all" in err) == (2, True)
        process.kill()
    assert "needs --pid or --container" in in_process("nodelay", "on", "--yes").err
    assert "--for works with on only" in in_process("nodelay", "--pid=1", "off", "--yes", "--for=3s").err
    assert "--for soon is not a duration" in in_process("nodelay", "--pid=1", "on", "--yes", "--for=soon").err


def test_too_little_traffic_says_so():
    with stalling() as program:
        program.send_signal(signal.SIGSTOP)
        code, out, err = switch(program.pid, "on", "--yes", "--seconds=1")
        assert (code, "There was no stall to remove" in out) == (3, True), out + err
        assert "no TCP segment passed; record for longer, or" in out and "of a command" not in out + err
        program.send_signal(signal.SIGCONT)


def test_linux_gives_the_option_of_a_listener_to_what_it_accepts():
    """What all of this rests on."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with socket.create_connection(listener.getsockname()), listener.accept()[0] as accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
