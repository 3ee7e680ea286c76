#!/usr/bin/env python3
"""The SDK on plain sockets: publish messages one after the other, each confirmed before the next.

sdk configuration            open a connection with the settings below and print what the kernel says about it
sdk load HOST PORT N C       publish N messages over C connections; the last line is the report, as JSON

TCP_NODELAY=off|on           Nagle's algorithm left on, as a socket has it from birth, or switched off
CONFIRM=alone|glued          each confirm written by itself, or together with the next message
BODY_BYTES=18                body of a message; its header has 12 bytes more
"""

import json
import math
import os
import platform
import socket
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from frames import CONFIRM, MESSAGE, SUCCESS, frame, frames

NODELAY = {"off": 0, "on": 1}[os.environ.get("TCP_NODELAY", "off")]
GLUED = {"alone": False, "glued": True}[os.environ.get("CONFIRM", "alone")]
BODY = b"m" * int(os.environ.get("BODY_BYTES", "18"))


def connect(address: tuple[str, int]) -> socket.socket:
    """Open a connection with the settings, and print what the kernel says about it."""
    connection = socket.create_connection(address)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, NODELAY)
    nodelay = 1 if connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) else 0
    print(f"connection TCP_NODELAY={nodelay} CONFIRM={'glued' if GLUED else 'alone'}")
    return connection


def configuration() -> None:
    """Connect to ourselves, so that no capture of the lab's network sees it."""
    with socket.create_server(("127.0.0.1", 0)) as listener, connect(listener.getsockname()):
        pass


def publish(connection: socket.socket, messages: int) -> list[float]:
    """Publish ``messages`` and return the milliseconds from each message to its SUCCESS."""
    answers = frames(connection)
    took_ms = []
    glued = b""
    for left in reversed(range(messages)):
        started = time.perf_counter()
        connection.sendall(glued + frame(MESSAGE, BODY))
        kind, _ = next(answers)
        if kind != SUCCESS:
            raise ConnectionError(f"the broker answered with a frame of kind {kind}")
        took_ms.append((time.perf_counter() - started) * 1000)
        if GLUED and left:
            glued = frame(CONFIRM)
        else:
            connection.sendall(frame(CONFIRM))
    return took_ms


def nearest_rank(ascending: list[float], percent: int) -> float:
    """Return the value at or below which ``percent`` of them lie."""
    return ascending[math.ceil(len(ascending) * percent / 100) - 1]


def load(address: tuple[str, int], messages: int, connections: int) -> None:
    """Publish over all connections at once and print the report."""
    shares = [messages // connections + (i < messages % connections) for i in range(connections)]
    opened = [connect(address) for _ in shares]
    started = time.perf_counter()
    with ThreadPoolExecutor(connections) as pool:
        took_ms = sorted(ms for of_one in pool.map(publish, opened, shares) for ms in of_one)
    duration_s = time.perf_counter() - started
    for connection in opened:
        connection.close()
    report = {
        "version": f"sockets SDK on Python {platform.python_version()}",
        "requests": messages,
        "complete": len(took_ms),
        "failed": messages - len(took_ms),
        "requests_per_s": round(len(took_ms) / duration_s, 1),
        "mean_ms": round(sum(took_ms) / len(took_ms), 3),
        "duration_s": round(duration_s, 6),
        "percentiles_ms": {str(p): round(nearest_rank(took_ms, p), 3) for p in (50, 90, 99, 100)},
    }
    print(json.dumps(report))


if sys.argv[1] == "configuration":
    configuration()
else:
    load((sys.argv[2], int(sys.argv[3])), int(sys.argv[4]), int(sys.argv[5]))
