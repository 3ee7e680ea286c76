"""Running programs for tests of ``live``: a stalling server and its client in a namespace of their own."""

import os
import shlex
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from support.command import Ended
from support.namespaces import OWN_NETWORK
from support.rights import reachable

PORT = 18084
NAGLE_LAB = [sys.executable, "-m", "nagle_lab"]
_DROP = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--bounding-set=-all", "--inh-caps=-all"]
_SCRIPT = "; ".join([*reachable(), f'exec {shlex.join([*_DROP, "env", "HOME=/tmp", "TMPDIR=/tmp"])} "$@"'])
NOBODY = ["unshare", "--mount", "sh", "-ec", _SCRIPT, "sh"]  # what runs a command as nobody, without any right

# Answers in two writes. The client keeps its connection open; each line on standard input opens another one, and
# the value of TCP_NODELAY on the socket accepted for it is printed.
STALLING = textwrap.dedent("""
    import os, socket, sys, threading, time
    family, address = (socket.AF_INET6, "::1") if "ipv6" in sys.argv else (socket.AF_INET, "127.0.0.1")
    ear = ("::", PORT) if "ipv6" in sys.argv or "mapped" in sys.argv else ("127.0.0.1", PORT)
    listener = socket.socket(socket.AF_INET6 if ":" in ear[0] else socket.AF_INET)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(ear)
    listener.listen()

    def serve(peer):
        while peer.recv(4096):
            peer.sendall(bytes(200))
            peer.sendall(bytes(300))

    def ask(client):
        while True:
            client.sendall(bytes(100))
            got = 0
            while got < 500:
                got += len(client.recv(4096))
            if "flood" not in sys.argv:
                time.sleep(0.002)

    def connect():
        client = socket.create_connection((address, PORT))
        peer, _ = listener.accept()
        if "flood" in sys.argv or ("own-will" in sys.argv and not kept):
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        kept.append((client, peer))
        for work, one in ((serve, peer), (ask, client)):
            threading.Thread(target=work, args=(one,), daemon=True).start()
        return peer

    kept = []
    for _ in range(2 if "own-will" in sys.argv else 1):
        connect()
    print("ready", flush=True)
    for line in sys.stdin:
        print(connect().getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY), flush=True)
    os._exit(0)
""").replace("PORT", str(PORT))


@contextmanager
def stalling(*how: str, before: Sequence[str] = ()) -> Iterator[subprocess.Popen[str]]:
    """The program, once it runs; ``before`` is the command that starts it in its namespace.

    "ipv6", "mapped" (IPv4 on a socket of IPv6), "own-will" (the program sets TCP_NODELAY on one of two connections),
    "flood" (all have it, and the client asks as fast as it can).
    """
    command = [*OWN_NETWORK, *before, sys.executable, "-c", STALLING, *how]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin and process.stdout
        assert process.stdout.readline() == "ready\n"
        try:
            yield process
        finally:
            process.kill()


def one_more(process: subprocess.Popen[str]) -> bool:
    """Make it connect once more; returns whether the accepted socket has TCP_NODELAY."""
    assert process.stdin and process.stdout
    print(file=process.stdin, flush=True)
    return process.stdout.readline() == "1\n"


def nagle_lab(*arguments: object, before: list[str] | None = None, **more: object) -> Ended:
    """Run nagle-lab with arguments, in a separate process without a terminal; ``before`` is the command that starts
    it.
    """
    done = subprocess.run(
        [*(before or []), *NAGLE_LAB, *map(str, arguments)], capture_output=True, text=True, timeout=120, check=False,
        stdin=subprocess.DEVNULL, env={**os.environ, "COLUMNS": "100"}, **more,
    )  # fmt: skip
    return Ended(done.returncode, done.stdout, done.stderr)


def switched(state: str, *options: object) -> Ended:
    """Run ``nagle-lab nodelay`` without its question; returns the same as :func:`nagle_lab`.

    On a busy machine a recording may say that it proves nothing. Then the change is taken back and made again, at
    most twice; any other outcome counts.
    """
    ended = nagle_lab("nodelay", *options, state, "--yes")
    for _ in range(2):
        if "a hold on a busy machine" not in ended.out:
            break
        nagle_lab("nodelay", *options, {"on": "off", "off": "on"}[state], "--yes", "--seconds=0")
        ended = nagle_lab("nodelay", *options, state, "--yes")
    return ended
