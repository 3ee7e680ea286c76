"""The two programs of a case: `programs.py server|client CASE ADDRESS PORT`.

Each says on standard output, as JSON, what it wrote and when: for each connection the rows [end, bytes, send,
sched, again, ack]. `end` is counted from the connection's first byte; the times are CLOCK_REALTIME in ns:

    send    just before send()
    sched   the kernel let the write's last byte leave TCP for the queue of the interface (SO_TIMESTAMPING, TX_SCHED)
    again   the same for the last time: later than sched when the segment was sent again
    ack     that byte was acknowledged (TX_ACK)

sched - send is how long TCP held the write. The last three are null for a write that left together with the next one.
"""

import json
import random
import socket
import struct
import sys
import time

from cases import CASES, Case, Cork, Pause, Read, Step, Write

SO_TIMESTAMPING, SCM_TIMESTAMPING, MSG_ERRQUEUE = 37, 37, 0x2000
SOFTWARE, OPT_ID, TX_SCHED, TX_ACK, OPT_TSONLY = 1 << 4, 1 << 7, 1 << 8, 1 << 9, 1 << 11  # linux/net_tstamp.h
SCHED, ACKED, AGAIN = 1, 2, -1  # SCM_TSTAMP_* (linux/errqueue.h), and our own
RECVERR = ((socket.IPPROTO_IP, 11), (socket.IPPROTO_IPV6, 25))


class Stream:
    """One connection of a program, and the log of its writes."""

    def __init__(self, sock: socket.socket, case: Case) -> None:
        self._sock = sock
        self._random = random.Random(case.name)
        self._sent = 0
        self._writes: list[tuple[int, int, int]] = []
        self._times: dict[tuple[int, int], int] = {}  # (end of a write, what happened)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, case.nodelay)
        sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPING, SOFTWARE | OPT_ID | TX_SCHED | TX_ACK | OPT_TSONLY)

    def turn(self, steps: tuple[Step, ...]) -> None:
        """One exchange of this program."""
        for step in steps:
            match step:
                case Write(size):
                    self._write(size)
                case Read(size):
                    self._read(size)
                case Pause(shortest, longest):
                    time.sleep(self._random.uniform(shortest, longest or shortest) / 1000)
                case Cork(on):
                    self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, on)
        self._collect_times()

    def _write(self, size: int) -> None:
        data = b"x" * size
        self._sent += size
        now = time.time_ns()
        self._sock.sendall(data)
        self._writes.append((self._sent, size, now))

    def _read(self, size: int) -> None:
        while size:
            got = len(self._sock.recv(size))
            if not got:
                raise ConnectionError("the other program has gone")
            size -= got

    def _collect_times(self) -> None:
        """Read what the kernel has put into the socket's error queue: the times of the writes."""
        while True:
            try:
                _, parts, _, _ = self._sock.recvmsg(0, 512, MSG_ERRQUEUE | socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            times = {kind: data for level, kind, data in parts if level == socket.SOL_SOCKET}
            seconds, ns = struct.unpack_from("qq", times[SCM_TIMESTAMPING])
            (error,) = (data for level, kind, data in parts if (level, kind) in RECVERR)
            kind, last_byte = struct.unpack_from("II", error, 8)  # sock_extended_err: ee_info, ee_data
            when = seconds * 1_000_000_000 + ns
            self._times.setdefault((last_byte + 1, kind), when)
            if kind == SCHED:
                self._times[last_byte + 1, AGAIN] = when

    def finish(self) -> list[tuple[int | None, ...]]:
        """Wait until the last write is acknowledged, close, and return the log."""
        deadline = time.monotonic() + 2
        while self._writes and (self._sent, ACKED) not in self._times and time.monotonic() < deadline:
            self._collect_times()
            time.sleep(0.005)
        self._sock.close()
        return [(*w, *(self._times.get((w[0], what)) for what in (SCHED, AGAIN, ACKED))) for w in self._writes]


def serve(case: Case, address: tuple[str, int]) -> list[object]:
    """Accept and serve the case's exchanges; says "ready" when it listens."""
    family = socket.AF_INET6 if case.ipv6 else socket.AF_INET
    logs: list[object] = []
    with socket.create_server(address, family=family) as listener:
        print("ready", flush=True)
        for turns in _turns(case):
            sock, (_, client_port, *_) = listener.accept()
            stream = Stream(sock, case)
            for _ in range(turns):
                stream.turn(case.server)
            while sock.recv(4096):
                pass  # until the client closes
            logs.append({"port": client_port, "writes": stream.finish()})
    return logs


def ask(case: Case, address: tuple[str, int]) -> list[object]:
    """Make the case's exchanges."""
    family = socket.AF_INET6 if case.ipv6 else socket.AF_INET
    logs: list[object] = []
    for turns in _turns(case):
        sock = socket.socket(family)
        if case.client_buffer:  # before connecting, so that the SYN's window scale fits it
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, case.client_buffer)
        sock.connect(address)
        port = sock.getsockname()[1]
        stream = Stream(sock, case)
        for _ in range(turns):
            stream.turn(case.client)
        logs.append({"port": port, "writes": stream.finish()})
    return logs


def _turns(case: Case) -> list[int]:
    """Exchanges of each connection."""
    return [case.exchanges] if case.keepalive else [1] * case.exchanges


if __name__ == "__main__":
    role, name, host, port_number = sys.argv[1:]
    program = {"server": serve, "client": ask}[role]
    print(json.dumps(program(CASES[name], (host, int(port_number)))), flush=True)
