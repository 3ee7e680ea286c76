#!/usr/bin/python3
"""Post bodies to the proxy over connections kept alive, whole or in pieces, and print one line of JSON about it."""

import argparse
import contextlib
import http.client
import json
import platform
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor


def writes(request: bytes, first: int, piece_bytes: int) -> Iterator[bytes]:
    """Yield the bytes of each write: head (``first`` bytes) and first piece together, then piece by piece."""
    end = first + piece_bytes if piece_bytes else len(request)
    yield request[:end]
    for start in range(end, len(request), piece_bytes or 1):
        yield request[start : start + piece_bytes]


def post(connection: socket.socket, asked: argparse.Namespace) -> float | None:
    """Send one request and read its answer; return how many seconds that took, or None if the answer is not 200."""
    head = f"POST / HTTP/1.1\r\nHost: {asked.host}\r\nContent-Length: {asked.body_bytes}\r\n\r\n".encode()
    begun = time.perf_counter()
    for number, part in enumerate(writes(head + bytes(asked.body_bytes), len(head), asked.piece_bytes)):
        if number:
            time.sleep(asked.interval_us / 1e6)
        connection.sendall(part)
    answer = http.client.HTTPResponse(connection, method="POST")
    answer.begin()
    answer.read()
    return time.perf_counter() - begun if answer.status == http.HTTPStatus.OK else None


def one_connection(asked: argparse.Namespace, together: threading.Barrier) -> list[float | None]:
    """Post this connection's share of the requests, one after the other; those after a failure count as failed."""
    share = asked.requests // asked.concurrency
    times: list[float | None] = []
    together.wait()
    with (
        contextlib.suppress(OSError, http.client.HTTPException),
        socket.create_connection((asked.host, asked.port), timeout=30) as connection,
    ):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # the client's own pieces are not held
        times += (post(connection, asked) for _ in range(share))
    return times + [None] * (share - len(times))


def report(times: list[float | None], duration_s: float) -> dict[str, object]:
    """Return the figures of a load: ``times`` in seconds, None for a request that failed."""
    good = sorted(seconds * 1000 for seconds in times if seconds is not None)
    return {
        "version": f"upload.py (Python {platform.python_version()})",
        "requests": len(times),
        "complete": len(good),
        "failed": len(times) - len(good),
        "requests_per_s": round(len(good) / duration_s, 2),
        "mean_ms": round(sum(good) / len(good), 3) if good else 0.0,
        "duration_s": round(duration_s, 3),
        "percentiles_ms": {str(p): round(good[(len(good) - 1) * p // 100], 3) for p in (50, 90, 99, 100) if good},
    }


def main() -> None:
    """Run the load that the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("host")
    parser.add_argument("port", type=int)
    parser.add_argument("--requests", type=int, default=60, help="in all; a multiple of --concurrency")
    parser.add_argument("--concurrency", type=int, default=1, help="connections at once")
    parser.add_argument("--body-bytes", type=int, default=65536)
    parser.add_argument("--piece-bytes", type=int, default=0, help="0: the body in one write")
    parser.add_argument("--interval-us", type=int, default=0, help="between pieces")
    asked = parser.parse_args()
    if asked.requests % asked.concurrency:
        parser.error(f"--requests {asked.requests} is not a multiple of --concurrency {asked.concurrency}")
    together = threading.Barrier(asked.concurrency + 1)
    with ThreadPoolExecutor(asked.concurrency) as connections:
        loads = [connections.submit(one_connection, asked, together) for _ in range(asked.concurrency)]
        together.wait()
        begun = time.perf_counter()
        times = [seconds for load in loads for seconds in load.result()]
        duration_s = time.perf_counter() - begun
    print(json.dumps(report(times, duration_s)))


if __name__ == "__main__":
    main()
