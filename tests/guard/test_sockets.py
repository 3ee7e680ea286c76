"""The inventory of sockets, of programs that run in real network namespaces."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from support.command import in_process
from support.living import NOBODY, PORT, nagle_lab, stalling
from support.namespaces import OWN_NETWORK
from support.rights import must_look_elsewhere
from support.waiting import within


@pytest.fixture(autouse=True)
def as_root():
    must_look_elsewhere()


def listed(*options: object) -> list[dict]:
    code, out, err = in_process("sockets", "--json", *options)
    assert code == 0, err
    content = json.loads(out)
    assert content["schema"] == "nagle-lab-sockets/1"
    return content["sockets"]


def held(pid: int) -> list[dict]:
    """Listed again until data is held: it is most of the time, but not at every moment."""
    seen: list[list[dict]] = []
    assert within(30, lambda: seen.append(listed("--pid", pid)) or seen[-1][0]["waits"]), seen[-1]
    return seen[-1]


@pytest.mark.parametrize("how", [[], ["mapped"], ["ipv6"]], ids=["ipv4", "mapped", "ipv6"])
def test_what_is_held_now_comes_first(how):
    with stalling(*how) as program:
        first, *others = held(program.pid)
    address = "::1" if how == ["ipv6"] else "127.0.0.1"
    assert first["waits"] == "held now"
    assert first["local"] == {"ip": address, "port": PORT}
    assert first["remote"]["ip"] == address
    assert (first["unacknowledged_bytes"], first["unsent_bytes"], first["in_flight"]) == (200, 300, 1)
    assert (first["nodelay"], first["cork"], first["state"]) == (False, False, "ESTABLISHED")
    assert [one["pid"] for one in first["processes"]] == [program.pid]
    (client,) = (one for one in others if one["remote"] == first["local"])
    assert (client["local"], client["waits"]) == (first["remote"], None)
    (listener,) = (one for one in others if one["state"] == "LISTEN")
    assert (listener["remote"], listener["delays_acks"], listener["unsent_bytes"]) == (None, None, 0)


def test_the_end_that_delays_acks_is_interactive():
    """From its request on; Linux takes it for no longer interactive when the ACK's timer has fired."""
    with stalling() as program:
        seen = set()

        def is_seen_to_delay() -> bool:
            seen.update(one["delays_acks"] for one in listed("--pid", program.pid) if one["local"]["port"] != PORT)
            return True in seen

        assert within(30, is_seen_to_delay)
    assert seen <= {True, False}


def test_all_namespaces_are_listed_and_ports_choose():
    with stalling() as program:
        assert {one["namespace"] for one in of(program.pid, listed())} == {
            Path(f"/proc/{program.pid}/ns/net").stat().st_ino
        }
        assert len(of(program.pid, listed("--port", PORT))) == 3
        assert listed("--pid", program.pid, "--port", PORT + 1) == []


def of(pid: int, sockets: list[dict]) -> list[dict]:
    """Those of a process; others come and go meanwhile, and may have no process any more."""
    return [one for one in sockets if pid in [process["pid"] for process in one["processes"]]]


def test_nodelay_and_cork_are_read():
    program = (
        "import socket, sys; a = socket.create_server(('127.0.0.1', 0))\n"
        "b = socket.create_connection(a.getsockname()); b.setsockopt(6, socket.TCP_NODELAY, 1)\n"
        "c, _ = a.accept(); c.setsockopt(6, socket.TCP_CORK, 1); c.send(b'x')\n"
        "print(c.getsockname()[1], flush=True); sys.stdin.read()"
    )
    command = [*OWN_NETWORK, sys.executable, "-c", program]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        port = int(process.stdout.readline())
        sockets = {(one["state"], one["local"]["port"] == port): one for one in listed("--pid", process.pid)}
        process.stdin.close()
    assert (sockets["ESTABLISHED", False]["nodelay"], sockets["ESTABLISHED", False]["cork"]) == (True, False)
    assert (sockets["ESTABLISHED", True]["nodelay"], sockets["ESTABLISHED", True]["cork"]) == (False, True)


def test_a_socket_that_two_processes_have_is_listed_once():
    program = (
        "import os, socket, sys; a = socket.create_server(('127.0.0.1', 0)); u = socket.socket(socket.AF_UNIX)\n"
        "d = socket.socket(type=socket.SOCK_DGRAM); d.bind(('127.0.0.1', 0)); child = os.fork()\n"
        "print(child, flush=True) if child else None; sys.stdin.read()"
    )
    command = [*OWN_NETWORK, sys.executable, "-c", program]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        child = int(process.stdout.readline())
        (one,) = listed("--pid", process.pid)  # neither that of UNIX nor of UDP
        assert sorted(each["pid"] for each in one["processes"]) == sorted([process.pid, child])
        process.stdin.close()


def test_without_rights_one_line_says_what_is_missing():
    with stalling() as program:
        code, out, err = nagle_lab("sockets", before=NOBODY)
        assert (code, str(program.pid) in out) == (0, False)
        (line,) = err.splitlines()
        others = r"(; \d+ other network namespaces? \(needs CAP_SYS_ADMIN\))?"  # of whatever else runs
        sockets = r"the sockets of \d+ processes \(needs CAP_SYS_PTRACE\)"
        said = rf"nagle-lab: not shown: {sockets}{others}: run this as root"
        assert re.fullmatch(said, line), line
        code, out, err = nagle_lab("sockets", "--pid", program.pid, before=NOBODY)
        expected = f"nagle-lab: process {program.pid} cannot be inspected (needs CAP_SYS_PTRACE): run this as root\n"
        assert (code, out, err) == (2, "", expected)


def test_root_without_a_capability_is_told_which():
    with stalling() as program:
        drop = ["setpriv", "--bounding-set=-sys_admin"]
        code, _, err = nagle_lab("sockets", "--pid", program.pid, before=drop)
        assert (code, "is in another network namespace (needs CAP_SYS_ADMIN)" in err) == (2, True), err


def test_processes_that_are_not_there():
    assert in_process("sockets", "--pid", 2**22 + 1).err.startswith("nagle-lab: there is no process 4194305: ")
    assert "exclude each other" in in_process("sockets", "--pid", 1, "--container", "web").err


@pytest.mark.parametrize("columns", [80, 100, 130])
def test_the_table_fits_the_terminal(columns):
    """All of what is held is in one row, whatever the width."""
    with stalling() as program:
        command = f"stty cols {columns}; exec {shlex.quote(sys.executable)} -m nagle_lab sockets --pid {program.pid}"
        for _ in range(40):
            whole = ["script", "-qec", command, "/dev/null"]
            done = subprocess.run(whole, capture_output=True, text=True, timeout=60, check=True)
            lines = re.sub(r"\x1b\[[0-9;]*m|\r", "", done.stdout).splitlines()
            if any("held now" in line and "200 B" in line for line in lines):
                break
    assert max(map(len, lines)) <= columns
    (row,) = (line for line in lines if "held now" in line and "200 B" in line)
    assert f"127.0.0.1:{PORT}" in row and "300 B" in row and " off " in row
