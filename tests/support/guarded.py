"""Programs to put under the guard, and the guard."""

import json
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

GUARD = [sys.executable, "-m", "nagle_lab", "guard"]

# A server that answers in two writes, or one, and a client that asks in one; both in one process.
SERVER = textwrap.dedent("""
    import socket, sys, threading
    how, count = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 30
    family, address = (socket.AF_INET6, "::1") if "ipv6" in how else (socket.AF_INET, "127.0.0.1")
    listener = socket.create_server((address, 0), family=family)

    def serve():
        while True:
            peer, _ = listener.accept()
            if "nodelay" in how:
                peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while peer.recv(4096):
                if "one-write" in how:
                    peer.sendall(b"h" * 200 + b"b" * 600)
                else:
                    peer.sendall(b"h" * 200)
                    peer.sendall(b"b" * 600)
            peer.close()

    def ask(times):
        with socket.create_connection(listener.getsockname()[:2]) as s:
            for _ in range(times):
                s.sendall(b"q" * 100)
                got = 0
                while got < 800:
                    got += len(s.recv(4096))

    threading.Thread(target=serve, daemon=True).start()
    if "no-keepalive" in how:
        for _ in range(count):
            ask(1)
    else:
        ask(count)
    print("done")
""")


@dataclass(frozen=True)
class GuardEnded:
    """How the guard ended."""

    code: int
    out: str
    err: str
    report: dict[str, Any]


def guard(
    tmp_path: Path, *options: str, command: list[str], before: tuple[str, ...] = (), **more: Any
) -> GuardEnded:  # fmt: skip
    """Guard a command; ``before`` is the command that starts the guard."""
    report = tmp_path / "report.json"
    whole = [*before, *GUARD, f"--json={report}", *options, "--", *command]
    done = subprocess.run(
        whole, capture_output=True, text=True, errors="surrogateescape", timeout=120, check=False, **more
    )
    return GuardEnded(
        done.returncode, done.stdout, done.stderr, json.loads(report.read_text()) if report.exists() else {}
    )


def server(how: str, *arguments: str) -> list[str]:
    """The command of a server that gets 30 requests: "two-writes", "nodelay", "one-write", "no-keepalive"."""
    return [sys.executable, "-c", SERVER, how, *arguments]
