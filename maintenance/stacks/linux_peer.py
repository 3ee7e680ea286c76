"""The Linux end of a recorded case: `linux_peer.py server|client nagle|nodelay - CONNECTIONS EXCHANGES STEP…`.

It takes the same arguments as the programs of the other stacks (stack_cases.py has the steps), and prints the same
JSON: for each connection the client's port and the rows [end, bytes, send] of its writes. `end` is counted from the
connection's first byte, `send` is CLOCK_REALTIME in ns just before send().
"""

import json
import socket
import sys
import time

ADDRESS, PORT = "10.78.0.1", 7000
OTHER = "10.78.0.2"

Row = tuple[int, int, int]


def converse(sock: socket.socket, exchanges: int, steps: list[tuple[str, int]]) -> list[Row]:
    """All exchanges of one connection; returns its writes."""
    writes: list[Row] = []
    sent = 0
    for kind, size in steps * exchanges:
        if kind == "w":
            data = b"x" * size
            sent += size
            writes.append((sent, size, time.time_ns()))
            sock.sendall(data)
        elif kind == "r":
            read(sock, size)
        else:
            time.sleep(size / 1000)
    return writes


def read(sock: socket.socket, size: int) -> None:
    """Read so many bytes."""
    while size:
        got = len(sock.recv(size))
        if not got:
            raise ConnectionError("the other program has gone")
        size -= got


def main(role: str, nagle: str, connections: int, exchanges: int, steps: list[tuple[str, int]]) -> None:
    """Serve or ask, one connection after the other; the client closes first."""
    logs: list[object] = []
    listener = socket.create_server((ADDRESS, PORT)) if role == "server" else None
    print("ready", flush=True)
    for _ in range(connections):
        sock = listener.accept()[0] if listener else socket.create_connection((OTHER, PORT))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, nagle == "nodelay")
        port = (sock.getpeername() if listener else sock.getsockname())[1]
        writes = converse(sock, exchanges, steps)
        if listener:
            while sock.recv(4096):
                pass
        sock.close()
        logs.append({"port": port, "writes": writes})
    print(json.dumps(logs), flush=True)


if __name__ == "__main__":
    role_, nagle_, _, connections_, exchanges_, *steps_ = sys.argv[1:]
    main(role_, nagle_, int(connections_), int(exchanges_), [(step[0], int(step[1:])) for step in steps_])
