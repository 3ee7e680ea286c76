"""Which process has a connection, in real network namespaces."""

import subprocess
import sys
import textwrap

import pytest

from nagle_lab.live.sockets import processes
from nagle_lab.live.sockets.owners import owners
from support.guarded import server
from support.namespaces import OWN_NETWORK
from support.rights import must_look_elsewhere

PAIR = textwrap.dedent("""
    import os, socket, sys
    listener = socket.create_server(("::", 18083), family=socket.AF_INET6, dualstack_ipv6=True)
    clients = [socket.create_connection((address, 18083)) for address in ("127.0.0.1", "::1")]
    peers = [listener.accept()[0] for _ in clients]
    child = os.fork()
    if child:
        print(child, *(client.getsockname()[1] for client in clients), flush=True)
    sys.stdin.read()
""")


@pytest.fixture
def pair():
    """A process and a fork of it in a namespace of their own, with connections; their numbers and clients' ports."""
    must_look_elsewhere()
    command = [*OWN_NETWORK, sys.executable, "-c", PAIR]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process.pid, *map(int, process.stdout.readline().split())
        process.stdin.close()


def test_both_ends_by_their_process(pair):
    """IPv4 of a socket of IPv6 is as in packets; of two processes that share it, the first counts."""
    pid, _child, ipv4, ipv6 = pair
    found = owners(pid).by_ends
    assert {process.pid for process in found.values()} == {pid}
    assert set(found) == {
        (("::", 18083), ("", 0)),
        (("127.0.0.1", 18083), ("127.0.0.1", ipv4)),
        (("127.0.0.1", ipv4), ("127.0.0.1", 18083)),
        (("::1", 18083), ("::1", ipv6)),
        (("::1", ipv6), ("::1", 18083)),
    }


def test_the_first_of_two_that_share_it_is_the_one_that_began_first(pair, monkeypatch):
    """PIDs begin anew at the largest, so a child's may be smaller."""
    pid, child, *_ = pair
    monkeypatch.setattr(processes, "started_at", lambda one: {pid: 7, child: 5}.get(one, 6))
    assert {process.pid for process in owners(pid).by_ends.values()} == {child}


def test_all_namespaces_at_once(pair):
    pid, *_ = pair
    assert pid in {process.pid for process in owners().by_ends.values()}


@pytest.mark.parametrize(("how", "is_held"), [("two-writes", True), ("nodelay", False)])
def test_what_holds_data_on_a_loopback_elsewhere(how, is_held):
    """One that stalls holds data most of the time; one with TCP_NODELAY, at no look while it runs."""
    must_look_elsewhere()
    exchanges = "400" if is_held else "50000"  # a few seconds
    seen, looks = False, 0
    with subprocess.Popen([*OWN_NETWORK, *server(how, exchanges)], stdout=subprocess.DEVNULL) as process:
        while process.poll() is None and not seen:
            looks += 1
            seen = process.pid in {one.pid for one in owners().held_elsewhere}
        process.kill()
    assert seen is is_held and (seen or looks > 3)
