#!/usr/bin/python3
"""Redis commands over keep-alive connections, one at a time on each, timed to the last byte of every reply.

redis-benchmark stops its clock at the first bytes of a reply, so it does not see a GET whose second half is late. The
sockets here have TCP_NODELAY and each command is one write, so no wait is caused by this client. The last line on
stdout is the report, as JSON; times in it are milliseconds unless their name says otherwise.
"""

import argparse
import json
import platform
import socket
import statistics
import sys
import threading
import time
from dataclasses import dataclass, field

KEY = b"nagle-lab"
TIMEOUT_S = 20.0


def command(*words: bytes) -> bytes:
    """Return the words as one RESP command."""
    return b"".join([b"*%d\r\n" % len(words), *(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)])


class Redis:
    """One connection; every call raises OSError when the connection fails or the reply does not come in time."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._socket = socket.create_connection(address, TIMEOUT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(self, request: bytes) -> bytes:
        """Send ``request`` in one write and return the whole reply, without its ends of line."""
        self._socket.sendall(request)
        received = self._more(b"")
        while b"\r\n" not in received:
            received += self._more(received)
        line, _, rest = received.partition(b"\r\n")
        if not line.startswith(b"$") or line == b"$-1":
            return line
        length = int(line[1:])
        while len(rest) < length + 2:
            rest += self._more(rest)
        return rest[:length]

    def _more(self, received: bytes) -> bytes:
        if not (block := self._socket.recv(1 << 20)):
            raise OSError(f"the connection was closed after {len(received)} bytes of a reply")
        return block

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()


@dataclass
class Load:
    """One connection's share of the load, and its results."""

    connection: Redis
    requests: int
    request: bytes
    expected: bytes
    latencies_ms: list[float] = field(default_factory=list)
    failed: int = 0
    complaint: str | None = None

    def run(self) -> None:
        """Ask one request after the other; stop at the first that fails for good."""
        for done in range(self.requests):
            started = time.perf_counter()
            try:
                reply = self.connection.ask(self.request)
            except OSError as error:
                self.failed += self.requests - done
                self.complaint = str(error)
                return
            self.latencies_ms.append((time.perf_counter() - started) * 1000)
            if reply != self.expected:
                self.failed += 1
                self.complaint = f"redis replied {reply[:60]!r}"


def loads(options: argparse.Namespace) -> list[Load]:
    """Return the connected shares of the load; they differ by at most one request."""
    value = bytes(options.bytes)
    request, expected = {"set": (command(b"SET", KEY, value), b"+OK"), "get": (command(b"GET", KEY), value)}[
        options.command
    ]
    if options.command == "get":
        # The value exists before the clock starts; SETRANGE creates it in one command of a few dozen bytes.
        first = Redis(options.target)
        first.ask(command(b"SETRANGE", KEY, b"%d" % (options.bytes - 1), b"\0"))
        first.close()
    share, rest = divmod(options.requests, options.connections)
    return [
        Load(Redis(options.target), share + (number < rest), request, expected)
        for number in range(options.connections)
    ]


def report(shares: list[Load], duration_s: float) -> dict[str, object]:
    """Return the report of a load; failed requests count in no latency, except those with a wrong reply."""
    latencies = sorted(latency for share in shares for latency in share.latencies_ms)
    cuts = statistics.quantiles(latencies, n=100, method="inclusive") if len(latencies) > 1 else latencies * 99
    return {
        "version": f"redis-load, Python {platform.python_version()}",
        "requests": sum(share.requests for share in shares),
        "complete": len(latencies),
        "failed": sum(share.failed for share in shares),
        "requests_per_s": round(len(latencies) / duration_s, 1),
        "mean_ms": round(statistics.fmean(latencies), 3),
        "duration_s": round(duration_s, 6),
        "percentiles_ms": {str(percent): round(cuts[percent - 1], 3) for percent in (50, 90, 95, 99)},
    }


def address(text: str) -> tuple[str, int]:
    """Return HOST:PORT as a socket address."""
    host, _, port = text.rpartition(":")
    return host, int(port)


def main() -> int:
    """Run the load and print its report; 1 when not a single request was answered."""
    parser = argparse.ArgumentParser(prog="redis-load", description="Redis commands over keep-alive connections.")
    parser.add_argument("--requests", type=int, required=True, help="requests in all")
    parser.add_argument("--connections", type=int, required=True, help="connections at once")
    parser.add_argument("--bytes", type=int, required=True, help="size of the value")
    parser.add_argument("command", choices=["set", "get"])
    parser.add_argument("target", type=address, help="HOST:PORT")
    options = parser.parse_args()
    try:
        shares = loads(options)
    except OSError as error:
        print(f"redis-load: cannot reach {':'.join(map(str, options.target))}: {error}", file=sys.stderr)
        return 1
    threads = [threading.Thread(target=share.run) for share in shares]
    started = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    duration_s = time.perf_counter() - started
    for share in shares:
        share.connection.close()
    complaint = next((share.complaint for share in shares if share.complaint), None)
    if not any(share.latencies_ms for share in shares):
        print(f"redis-load: no request was answered: {complaint}", file=sys.stderr)
        return 1
    if complaint:
        print(f"redis-load: {complaint}", file=sys.stderr)
    print(json.dumps(report(shares, duration_s)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
