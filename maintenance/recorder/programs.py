"""The programs of a case: `programs.py server|client|origin CASE ADDRESS PORT [INDEX]`.

Each prints on standard output, as JSON, what it wrote and when: for each connection its ports, the time t0 (of
CLOCK_REALTIME, ns) and the rows [end, bytes, send, sched, again, ack, free]. `end` is counted from the connection's
first byte; the times are ns after t0:

    send    just before send()
    sched   the kernel let the write's last byte leave TCP for the queue of the interface (SO_TIMESTAMPING, TX_SCHED)
    again   the same for the last transmission: later than sched if the segment was retransmitted
    ack     that byte was acknowledged (TX_ACK)
    free    1 when Nagle's algorithm could not hold the write: TCP_NODELAY, or a window that had no room for it

sched - send is how long TCP held the write. sched, again and ack are null for a write that left together with the
next one. (The look-alikes were recorded without `free`, and their times are not counted from t0.)
"""

import ctypes
import fcntl
import json
import random
import select
import socket
import struct
import sys
import threading
import time
from contextlib import ExitStack, suppress

from cases import (
    ADDRESSES,
    CREDIT_PORT,
    Case,
    Chat,
    Cork,
    Credit,
    Drained,
    NoDelay,
    Pause,
    Poll,
    Read,
    Step,
    Ticks,
    Timeout,
    Upstream,
    Write,
)
from families import ALL

SO_TIMESTAMPING, SCM_TIMESTAMPING, MSG_ERRQUEUE = 37, 37, 0x2000
SOFTWARE, OPT_ID, TX_SCHED, TX_ACK, OPT_TSONLY = 1 << 4, 1 << 7, 1 << 8, 1 << 9, 1 << 11  # linux/net_tstamp.h
SCHED, ACKED, AGAIN = 1, 2, -1  # SCM_TSTAMP_* (linux/errqueue.h), and our own
PR_SET_TIMERSLACK = 29
PEERS = {"client": "server", "server": "client"}
RECVERR = ((socket.IPPROTO_IP, 11), (socket.IPPROTO_IPV6, 25))
SIOCOUTQ, TCP_MD5SIG = 0x5411, 14

Log = dict[str, object]


class Stream:
    """One connection of a program, and the log of its writes."""

    def __init__(self, sock: socket.socket, case: Case, end: str, upstream: "Stream | None" = None) -> None:
        self._sock = sock
        self._case = case
        self._end = end
        self._upstream = upstream
        self._credit: socket.socket | None = None
        self._random = random.Random(case.name)
        self._sent = 0
        self._ahead = 0  # bytes already read for the next Read
        self._kind = 0
        self._writes: list[tuple[int, int, int, int]] = []
        self._times: dict[tuple[int, int], int] = {}  # (end of a write, what happened)
        self._set(NoDelay(case.nodelay or end in case.nodelay_at))
        if end == "server" and case.server_send_buffer:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, case.server_send_buffer)
        sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPING, SOFTWARE | OPT_ID | TX_SCHED | TX_ACK | OPT_TSONLY)

    def exchange(self, kind: int | None) -> None:
        """Run one exchange of this program; if its kind is not known, the first byte that comes says it."""
        if kind is None and self._case.kinds:
            kind = self._sock.recv(1)[0]
            self._ahead = 1
        self._kind = kind or 0
        self.turn(self._case.steps(self._kind, self._end))

    def turn(self, steps: tuple[Step, ...]) -> None:
        """Do these steps, and collect their times."""
        self._do(steps)
        for stream in (self, self._upstream):
            if stream:
                stream._collect_times()

    def _do(self, steps: tuple[Step, ...]) -> None:
        for step in steps:
            match step:
                case Write():
                    self._write(step.size, step.more)
                case Read(size):
                    self._read(size)
                case Pause(shortest, longest):
                    time.sleep(self._random.uniform(shortest, longest or shortest) / 1000)
                case Cork(on):
                    self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, on)
                case NoDelay():
                    self._set(step)
                case Upstream(inner):
                    assert self._upstream
                    self._upstream._do(inner)
                case Ticks():
                    self._tick(step)
                case Chat():
                    self._chat(step)
                case _:
                    self._wait(step)

    def use_credit(self, sock: socket.socket) -> None:
        """The other way to or from the peer."""
        self._credit = sock

    def _set(self, nodelay: NoDelay) -> None:
        self._nodelay = nodelay.on
        self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, nodelay.on)

    def _write(self, size: int, more: bool = False) -> None:
        data = bytes([self._kind]) * size
        self._sent += size
        free = self._nodelay or self._case.limited
        now = time.time_ns()
        self._sock.sendall(data, socket.MSG_MORE if more else 0)
        self._writes.append((self._sent, size, now, free))

    def _read(self, size: int) -> None:
        size -= self._ahead
        self._ahead = 0
        while size:
            got = len(self._sock.recv(size))
            if not got:
                raise ConnectionError("the other program has gone")
            size -= got

    def _wait(self, step: Step) -> None:
        """The ways of waiting for something that is not data of this connection."""
        match step:
            case Poll(ms):
                with socket.socket(type=socket.SOCK_DGRAM) as idle:
                    poll = select.poll()
                    poll.register(idle, select.POLLIN)
                    poll.poll(ms)
            case Timeout(ms):
                self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 0, ms * 1000))
                try:
                    raise ConnectionError(f"{len(self._sock.recv(1))} bytes came before their time")
                except BlockingIOError:
                    self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 0, 0))
            case Drained(every):
                while struct.unpack("i", fcntl.ioctl(self._sock, SIOCOUTQ, b"\0\0\0\0"))[0]:
                    time.sleep(every / 1000)
            case Credit(give):
                assert self._credit
                if give:
                    self._credit.send(b"x")
                else:
                    self._credit.recv(1)

    def _tick(self, ticks: Ticks) -> None:
        left, start = ticks.total, time.monotonic()
        for number in range(ticks.count):
            time.sleep(max(0, start + number * ticks.every / 1000 - time.monotonic()))
            with suppress(BlockingIOError):
                left -= len(self._sock.recv(left, socket.MSG_DONTWAIT)) if left else 0
            for size in ticks.sizes:
                self._write(size)
            self._collect_times()
        self._read(left)

    def _chat(self, chat: Chat) -> None:
        """Write each message at its time, and read incoming data at once."""
        own, other = (chat.messages(self._case.name, end) for end in (self._end, PEERS[self._end]))
        left, due = sum(size for _, size in other), time.monotonic()
        poll = select.poll()
        poll.register(self._sock, select.POLLIN)
        for pause, size in own:
            due += pause / 1000
            while left and (wait := due - time.monotonic()) > 0:
                if any(what & select.POLLIN for _, what in poll.poll(wait * 1000)):
                    left -= len(self._sock.recv(left))
                self._collect_times()  # of the writes: poll() returns at once while there are any
            time.sleep(max(0, due - time.monotonic()))
            self._write(size)
            self._collect_times()
        self._read(left)

    def _collect_times(self) -> None:
        """Read the times of the writes from the socket's error queue."""
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

    def finish(self) -> Log:
        """Wait until the last write is acknowledged, close, and return the log."""
        deadline = time.monotonic() + 2
        while self._writes and (self._sent, ACKED) not in self._times and time.monotonic() < deadline:
            self._collect_times()
            time.sleep(0.005)
        ours, theirs = self._sock.getsockname()[1], self._sock.getpeername()[1]
        self._sock.close()
        by_server = self._end in {"server", "origin"}
        t0 = self._writes[0][2] if self._writes else 0
        rows = []
        for end, size, sent, free in self._writes:
            times = (self._times.get((end, what)) for what in (SCHED, AGAIN, ACKED))
            rows.append([end, size, sent - t0, *(when and when - t0 for when in times), int(free)])
        port, server_port = (theirs, ours) if by_server else (ours, theirs)
        return {"port": port, "server_port": server_port, "t0": t0, "writes": rows}


def listen(case: Case, address: tuple[str, int], peer: str) -> socket.socket:
    """A listening socket."""
    sock = socket.create_server(address, family=socket.AF_INET6 if case.ipv6 else socket.AF_INET)
    if case.md5:
        sign(sock, peer)
    return sock


def sign(sock: socket.socket, peer: str) -> None:
    """MD5 signatures to and from the peer."""
    address = struct.pack("HH4s120x", socket.AF_INET, 0, socket.inet_aton(peer))
    sock.setsockopt(socket.IPPROTO_TCP, TCP_MD5SIG, address + struct.pack("BBHi80s", 0, 0, 3, 0, b"key"))


def serve(case: Case, address: tuple[str, int], origin: bool = False) -> dict[str, list[Log]]:
    """Accept and serve the case's exchanges; says "ready" when it listens."""
    connections = [connection for program in case.programs for connection in program]
    end = "origin" if origin else "server"
    logs: dict[str, list[Log]] = {"server": [], "client": []}
    threads = []

    def session(sock: socket.socket, turns: tuple[int, ...], credit: socket.socket | None) -> None:
        up = None
        if case.origin and not origin:
            up = Stream(socket.create_connection(case.origin_address), case, "upstream")
        stream = Stream(sock, case, end, up)
        if credit:
            stream.use_credit(credit)
        for _ in turns:
            if origin:
                stream.turn(case.origin)
            else:
                stream.exchange(None)
        while sock.recv(4096):
            pass  # until the client closes
        logs["server"].append(stream.finish())
        if up:
            logs["client"].append(up.finish())

    with ExitStack() as stack:
        listener = stack.enter_context(listen(case, address, ADDRESSES[case.ipv6]["client"]))
        credits: socket.socket | None = None
        if case.credit and not origin:
            credits = stack.enter_context(_credit_listener(case, address[0]))
        print("ready", flush=True)
        for turns in connections:
            sock, _ = listener.accept()
            credit = credits.accept()[0] if credits and case.credit == "tcp" else credits
            threads.append(threading.Thread(target=session, args=(sock, turns, credit)))
            threads[-1].start()
            if len(case.programs) == 1:
                threads[-1].join()
        for thread in threads:
            thread.join()
    return logs


def _credit_listener(case: Case, host: str) -> socket.socket:
    if case.credit == "tcp":
        return socket.create_server((host, CREDIT_PORT))
    sock = socket.socket(type=socket.SOCK_DGRAM)
    sock.bind((host, CREDIT_PORT))
    return sock


def ask(case: Case, address: tuple[str, int], index: int) -> dict[str, list[Log]]:
    """Make the exchanges of one of the case's client programs."""
    family = socket.AF_INET6 if case.ipv6 else socket.AF_INET
    logs: list[Log] = []
    for kinds in case.programs[index]:
        sock = socket.socket(family)
        if case.client_buffer:  # before connecting, so that the SYN's window scale fits it
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, case.client_buffer)
        if case.md5:
            sign(sock, address[0])
        sock.connect(address)
        stream = Stream(sock, case, "client")
        with ExitStack() as stack:
            if case.credit:
                other = socket.socket(type=socket.SOCK_STREAM if case.credit == "tcp" else socket.SOCK_DGRAM)
                other.connect((address[0], CREDIT_PORT))
                stream.use_credit(stack.enter_context(other))
            for kind in kinds:
                stream.exchange(kind)
            logs.append(stream.finish())
    return {"server": [], "client": logs}


if __name__ == "__main__":
    ctypes.CDLL(None).prctl(PR_SET_TIMERSLACK, 1)  # wake at the time asked for, not 50 µs later
    role, name, host, port_number, *rest = sys.argv[1:]
    where, known = (host, int(port_number)), ALL[name]
    said = ask(known, where, int(rest[0])) if role == "client" else serve(known, where, role == "origin")
    print(json.dumps(said), flush=True)
