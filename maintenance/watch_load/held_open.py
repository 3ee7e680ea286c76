"""The peak memory of `nagle-lab watch` on a host with very many open connections, and how long a look at them takes.

    .venv/bin/python maintenance/watch_load/held_open.py COUNT [SECONDS]      # as root; for 100,000: 1 GB of memory

They are real connections on loopback in a network namespace of their own, open all the time; requests use them in
turn, and every tenth stalls.
"""

import json
import resource
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from itertools import cycle

from memory import NAGLE_LAB, in_files, resident

EACH = 9_000  # connections of a process, which has both ends
PAUSE_S = 0.05  # pause of a process between two connections


def serve(listener: socket.socket) -> None:
    """Answer in two writes; TCP_NODELAY is off on every tenth connection."""
    with selectors.EpollSelector() as selector:
        selector.register(listener, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                one = key.fileobj
                assert isinstance(one, socket.socket)
                if one is listener:
                    peer, address = one.accept()
                    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, int(address[1] % 10 > 0))
                    selector.register(peer, selectors.EVENT_READ)
                elif one.recv(4096):
                    one.sendall(b"h" * 200)
                    one.sendall(b"b" * 600)


def load(address: str, count: int) -> None:
    """Open the connections, say so, and send a request on one after the other, until this process is ended."""
    listener = socket.create_server((address, 8000), backlog=4096)
    threading.Thread(target=serve, args=[listener], daemon=True).start()
    connections = [socket.create_connection((address, 8000)) for _ in range(count)]
    print("open", flush=True)
    for one in cycle(connections):
        for _ in range(4):
            one.sendall(b"q" * 100)
            got = 0
            while got < 800:
                got += len(one.recv(4096))
        time.sleep(PAUSE_S)


def loads(count: int) -> None:
    """As many processes as needed, because each may open only so many files."""
    inside = [sys.executable, __file__, "--load"]
    parts = [min(EACH, count - first) for first in range(0, count, EACH)]
    for number, part in enumerate(parts):
        with_it = [*inside, f"127.0.1.{number + 1}", str(part)]
        child = subprocess.Popen(with_it, stdout=subprocess.PIPE)
        assert child.stdout and child.stdout.readline() == b"open\n", "the connections could not be opened"
    print("open", flush=True)
    signal.pause()


def main(count: str, seconds: str = "40") -> None:
    """Print the figures."""
    # Also in a process namespace of their own, whose first process ends all others with it.
    inside = ["unshare", "--net", "--pid", "--fork", "--kill-child"]
    inside += ["sh", "-c", 'ip link set lo up && exec "$@"', "sh"]
    with subprocess.Popen([*inside, sys.executable, __file__, "--loads", count], stdout=subprocess.PIPE) as busy:
        try:
            assert busy.stdout
            assert busy.stdout.readline() == b"open\n", "the connections could not be opened"
            command = [NAGLE_LAB, "watch", "--pid", str(busy.pid), "--seconds", seconds, "--json"]
            watching = subprocess.Popen(command, stdout=subprocess.PIPE)
            most = (0, 0)
            while watching.poll() is None:
                with suppress(OSError):
                    most = max(most[0], resident(watching.pid)), max(most[1], in_files(watching.pid))
                time.sleep(0.05)
            used = resource.getrusage(resource.RUSAGE_CHILDREN)
            said = [json.loads(line) for line in watching.stdout or ()]
            named = next((one["process"] for one in said if one["event"] == "finding"), "nothing")
            print(
                f"{int(count):,} connections: {most[0]} MB, copies of the ring {most[1]} MB; "
                f"CPU {used.ru_utime + used.ru_stime:.0f} s in {seconds} s; named {named}; {said[-1]}"
            )
        finally:
            busy.kill()


if __name__ == "__main__":
    if sys.argv[1] == "--loads":
        loads(int(sys.argv[2]))
    elif sys.argv[1] == "--load":
        load(sys.argv[2], int(sys.argv[3]))
    else:
        main(*sys.argv[1:])
