"""A path with a precise delay: `wire.py DELAY_US JITTER_US EVERY FIRST LATER_US QUEUE_US STILL_US [KBIT_S]`, in its
middle's namespace.

Makes four TAP devices there: c0 and s0, to be moved into the namespaces of client and server, and m0 and m1, to be
bridged where they are. Frames go c0 ↔ m0 and m1 ↔ s0, in order, each DELAY_US later and a random time up to
JITTER_US. With EVERY not 0, new data segments towards the client are counted from 0, and of these FIRST,
FIRST + EVERY … are lost between the middle and the client. LATER_US is the delay from the 20th frame on. QUEUE_US is
what a queue adds at most, which fills and empties every 1.7 s. For STILL_US of every 55 ms nothing moves.
With KBIT_S the link between client and middle carries so much each way, and what comes meanwhile waits before it.
"""

import ctypes
import fcntl
import heapq
import os
import random
import select
import struct
import sys
import time

TUNSETIFF, IFF_TAP, IFF_NO_PI = 0x400454CA, 0x0002, 0x1000
PR_SET_TIMERSLACK = 29
ETHERNET, IPV4, TCP = 14, b"\x08\x00", 6


def tap(name: str) -> int:
    """A new TAP device; it lives as long as this process."""
    fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(fd, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TAP | IFF_NO_PI))
    return fd


class Losses:
    """Which frames are lost."""

    def __init__(self, every: int, first: int) -> None:
        self._every, self._first = every, first
        self._seen: set[tuple[bytes, bytes]] = set()  # port and sequence number: a second time is a retransmission

    def lose(self, frame: bytes) -> bool:
        """Count this frame, and say whether it is lost."""
        if not self._every or frame[12:14] != IPV4 or frame[ETHERNET + 9] != TCP:
            return False
        tcp = ETHERNET + (frame[ETHERNET] & 15) * 4
        end = ETHERNET + int.from_bytes(frame[ETHERNET + 2 : ETHERNET + 4], "big")
        segment = (frame[tcp + 2 : tcp + 4], frame[tcp + 4 : tcp + 8])
        if end == tcp + (frame[tcp + 12] >> 4) * 4 or segment in self._seen:
            return False
        number = len(self._seen)
        self._seen.add(segment)
        return number >= self._first and (number - self._first) % self._every == 0


QUEUE_PERIOD, STILL_PERIOD = 1_700_000_000, 55_000_000  # ns
FIRST_FRAMES = 20 * 2  # each passes twice


def queue(longest_ns: int) -> int:
    """What the queue adds now."""
    phase = time.monotonic_ns() % QUEUE_PERIOD / QUEUE_PERIOD
    return round(longest_ns * (1 - abs(2 * phase - 1)))


def after_still(due: int, still_ns: int) -> int:
    """When a frame arrives that would arrive at ``due``, if nothing moves at the beginning of each STILL_PERIOD."""
    phase = due % STILL_PERIOD
    return due - phase + max(phase, still_ns)


def relay(
    delay_ns: int, jitter_ns: int, losses: Losses, later_ns: int, queue_ns: int, still_ns: int, kbit_s: int
) -> None:  # fmt: skip
    """Carry frames until killed."""
    c0, m0, m1, s0 = (tap(name) for name in ("c0", "m0", "m1", "s0"))
    ns_per_byte = dict.fromkeys((c0, m0), 8_000_000 // kbit_s if kbit_s else 0)
    towards = {c0: m0, m0: c0, m1: s0, s0: m1}
    ctypes.CDLL(None).prctl(PR_SET_TIMERSLACK, 1)  # wake at the time asked for, not 50 µs later
    print("ready", flush=True)
    under_way: list[tuple[int, int, int, bytes]] = []
    latest = dict.fromkeys(towards, 0)  # when the last frame on the way to each device is due there
    count = 0
    while True:
        wait = max(0, under_way[0][0] - time.monotonic_ns()) / 1e9 if under_way else None
        for device in select.select(list(towards), [], [], wait)[0]:
            frame = os.read(device, 65536)
            if device == m0 and losses.lose(frame):
                continue
            count += 1
            out = towards[device]
            delay = (delay_ns if count <= FIRST_FRAMES else later_ns) + random.randint(0, jitter_ns) + queue(queue_ns)
            due = max(latest[out], time.monotonic_ns() + delay) + len(frame) * ns_per_byte.get(out, 0)
            latest[out] = after_still(due, still_ns)
            heapq.heappush(under_way, (latest[out], count, out, frame))
        while under_way and under_way[0][0] <= time.monotonic_ns():
            _, _, device, frame = heapq.heappop(under_way)
            try:
                os.write(device, frame)
            except OSError:
                continue  # not up yet


if __name__ == "__main__":
    delay, jitter, every, first, later, longest, still, *rate = (int(argument) for argument in sys.argv[1:])
    relay(delay * 1000, jitter * 1000, Losses(every, first), later * 1000, longest * 1000, still * 1000, *rate or [0])
