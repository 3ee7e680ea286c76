"""The programs of a conversation: `ends.py client|server|middle|database PLAN ADDRESS [NEXT-ADDRESS]`.

Each prints on standard output, as JSON, what it did to each socket and when: {"HOP END PORT": rows}, where HOP is
"front" or "back", END "client" or "server", and PORT the client's, which identifies the connection. A row has

    before, after    the time of the call, ns (CLOCK_REALTIME, as in the captures)
    end              bytes written so far
    unsent           how many of these the kernel had not sent then (TCP_INFO, tcpi_notsent_bytes)
    unacked, cwnd    segments
    window           that the peer offers, bytes
    mss
    nodelay, cork, more    what was set
"""

import ctypes
import fcntl
import json
import select
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from draw import Plan, Socket, Step, Steps, plan_of

FRONT_PORT, BACK_PORT = 7000, 8000
FROM = {"front": 20000, "back": 30000}  # the client's port of connection 0
PR_SET_TIMERSLACK, SIOCOUTQ, TCP_DELACK_MAX_US = 29, 0x5411, 46
UNACKED, CWND, MSS, UNSENT, WINDOW = 24, 80, 16, 144, 228  # offsets in struct tcp_info, linux/tcp.h
AT_ONCE = 262144

Logs = dict[str, list[list[int]]]


class Stream:
    """One end of one connection."""

    def __init__(self, sock: socket.socket, options: Socket, up: "Stream | None" = None) -> None:
        self._sock, self._up, self._always = sock, up, options.quickack == "always"
        self._end = self._nodelay = self._cork = 0
        self._writing = threading.Lock()
        self.rows: list[list[int]] = []
        if options.nodelay:
            self._do(["nodelay", 1])
        if options.quickack != "no":
            self._do(["quickack", 1])
        if options.delack_us:
            sock.setsockopt(socket.IPPROTO_TCP, TCP_DELACK_MAX_US, options.delack_us)

    def follow(self, steps: Steps) -> None:
        """Follow these steps."""
        for step in steps:
            self._do(step)

    def _do(self, step: Step) -> None:
        match step:
            case ["w", size, more]:
                self.write(bytes(size), more)
            case ["r", size]:
                self._read(size)
            case ["s", us]:
                time.sleep(us / 1e6)
            case ["poll", ms]:
                poll = select.poll()
                poll.register(self._sock, select.POLLIN)
                poll.poll(ms)
            case ["drain", us]:
                while struct.unpack("i", fcntl.ioctl(self._sock, SIOCOUTQ, b"\0\0\0\0"))[0]:
                    time.sleep(us / 1e6)
            case ["up", steps]:
                assert self._up
                self._up.follow(steps)
            case ["quickack", value]:
                self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, value)
            case [name, value]:
                self._set(name, value)

    def _set(self, name: str, value: int) -> None:
        before = time.time_ns()
        if name == "nodelay":
            self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, value)
            self._nodelay = value
        else:
            self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, value)
            self._cork = value
        self._note(before, 0)

    def write(self, data: bytes, more: int = 0) -> None:
        """Write it; the part that does not fit into the buffer follows later, with a row for each part."""
        flags = socket.MSG_DONTWAIT | (socket.MSG_MORE if more else 0)
        with self._writing:
            while data:
                before = time.time_ns()
                try:
                    count = self._sock.send(data, flags)
                except BlockingIOError:
                    poll = select.poll()
                    poll.register(self._sock, select.POLLOUT)
                    poll.poll()
                    continue
                self._end += count
                self._note(before, more)
                data = data[count:]

    def _note(self, before: int, more: int) -> None:
        after = time.time_ns()
        info = self._sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
        unsent, unacked, cwnd, window, mss = (
            struct.unpack_from("I", info, at)[0] for at in (UNSENT, UNACKED, CWND, WINDOW, MSS)
        )
        row = [before, after, self._end, unsent, unacked, cwnd, window, mss, self._nodelay, self._cork, more]
        self.rows.append(row)

    def _read(self, size: int) -> None:
        while size:
            size -= len(self.read(min(size, AT_ONCE)))

    def read(self, most: int) -> bytes:
        """Data that has come; raises ConnectionError at the end."""
        data = self._sock.recv(most)
        if self._always:
            self._do(["quickack", 1])
        if not data:
            raise ConnectionError("the other program has gone")
        return data

    def finish(self) -> None:
        """Everything is written: wait until the peer has closed, too."""
        self._sock.shutdown(socket.SHUT_WR)
        while self._sock.recv(AT_ONCE):
            pass
        self._sock.close()

    def copy(self, other: "Stream", chunk: int) -> None:
        """Write to the other stream what comes here, until the end."""
        try:
            while True:
                other.write(self.read(chunk))
        except ConnectionError:
            other._sock.shutdown(socket.SHUT_WR)


def together(tasks: list[Callable[[], None]]) -> None:
    """Run each in a thread of its own, the first in this one."""
    threads = [threading.Thread(target=task, daemon=True) for task in tasks[1:]]
    for thread in threads:
        thread.start()
    if tasks:
        tasks[0]()
    for thread in threads:
        thread.join()


def play(stream: Stream, scripts: list[Steps]) -> None:
    """All scripts at the same time."""
    together([lambda script=script: stream.follow(script) for script in scripts])  # type: ignore[misc]


def connect(address: str, port: int, own_port: int, options: Socket) -> socket.socket:
    """A connection from that port."""
    sock = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
    prepare(sock, options)
    sock.bind(("", own_port))
    sock.connect((address, port))
    return sock


def prepare(sock: socket.socket, options: Socket) -> None:
    """Set the options that are set before connecting."""
    for level, name, value in (
        (socket.SOL_SOCKET, socket.SO_SNDBUF, options.sndbuf),
        (socket.SOL_SOCKET, socket.SO_RCVBUF, options.rcvbuf),
        (socket.IPPROTO_TCP, socket.TCP_MAXSEG, options.maxseg),
    ):
        if value:
            sock.setsockopt(level, name, value)
    if options.congestion:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, options.congestion.encode())


def client(plan: Plan, address: str) -> Logs:
    """Run every lane in a thread of its own."""
    logs: Logs = {}

    def lane(numbers: list[int]) -> None:
        for number in numbers:
            connection = plan.connections[number]
            port = FROM["front"] + number
            stream = Stream(connect(address, FRONT_PORT, port, connection.client), connection.client)
            play(stream, connection.asks)
            stream.finish()
            logs[f"front client {port}"] = stream.rows

    together([lambda numbers=numbers: lane(numbers) for numbers in plan.lanes])  # type: ignore[misc]
    return logs


Session = Callable[[socket.socket, int], None]


def serve(plan: Plan, address: str, port: int, sockets: list[Socket], session: Session) -> None:
    """Accept every connection of the plan, each in a thread of its own."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.create_server((address, port), family=family, backlog=64) as listener:
        prepare(listener, sockets[0])
        print("ready", flush=True)
        threads = []
        for _ in plan.connections:
            sock, (_, peer, *_) = listener.accept()
            threads.append(threading.Thread(target=session, args=(sock, peer % 10000), daemon=True))
            threads[-1].start()
        for thread in threads:
            thread.join()


def server(plan: Plan, address: str, hop: str, upstream: str) -> Logs:
    """The server; with ``upstream`` it has a connection to a database for each of its connections."""
    logs: Logs = {}

    def session(sock: socket.socket, number: int) -> None:
        connection = plan.connections[number]
        up = None
        if upstream:
            far = FROM["back"] + number
            up = Stream(connect(upstream, BACK_PORT, far, plan.far), plan.far)
            logs[f"back client {far}"] = up.rows
        stream = Stream(sock, connection.server, up)
        logs[f"{hop} server {FROM[hop] + number}"] = stream.rows
        play(stream, connection.answers)
        stream.finish()
        if up:
            up.finish()

    port = FRONT_PORT if hop == "front" else BACK_PORT
    serve(plan, address, port, [connection.server for connection in plan.connections], session)
    return logs


def database(plan: Plan, address: str) -> Logs:
    """What the server asks."""
    logs: Logs = {}

    def session(sock: socket.socket, number: int) -> None:
        stream = Stream(sock, plan.near)
        logs[f"back server {FROM['back'] + number}"] = stream.rows
        play(stream, plan.connections[number].database)
        stream.finish()

    serve(plan, address, BACK_PORT, [plan.near], session)
    return logs


def middle(plan: Plan, address: str, upstream: str) -> Logs:
    """A relay."""
    logs: Logs = {}

    def session(sock: socket.socket, number: int) -> None:
        near = Stream(sock, plan.near)
        far = Stream(connect(upstream, BACK_PORT, FROM["back"] + number, plan.far), plan.far)
        logs[f"front server {FROM['front'] + number}"] = near.rows
        logs[f"back client {FROM['back'] + number}"] = far.rows
        together([lambda: near.copy(far, plan.chunk), lambda: far.copy(near, plan.chunk)])
        sock.close()

    serve(plan, address, FRONT_PORT, [plan.near], session)
    return logs


def main(role: str, plan: Plan, address: str, upstream: str = "") -> Logs:
    """Run that role; returns its log."""
    match role:
        case "client":
            return client(plan, address)
        case "middle" if plan.middle == "relay":
            return middle(plan, address, upstream)
        case "middle":
            return server(plan, address, "front", upstream)
        case "server" if plan.middle == "chain":
            return database(plan, address)
    return server(plan, address, "back" if plan.middle else "front", "")


if __name__ == "__main__":
    ctypes.CDLL(None).prctl(PR_SET_TIMERSLACK, 1)  # wake at the time asked for, not 50 µs later
    known = plan_of(json.loads(Path(sys.argv[2]).read_text()))
    print(json.dumps(main(sys.argv[1], known, *sys.argv[3:])), flush=True)
