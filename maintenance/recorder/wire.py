"""A path with a precise delay: `wire.py '{"delay_us": 2500}'`, in its middle's namespace; `Wire` says what else.

Makes four TAP devices there: c0 and s0, to be moved into the namespaces of client and server, and m0 and m1, to be
bridged where they are. Frames go c0 ↔ m0 and m1 ↔ s0, in order.
"""

import ctypes
import fcntl
import heapq
import json
import os
import random
import select
import struct
import sys
import time
from dataclasses import dataclass

TUNSETIFF, IFF_TAP, IFF_NO_PI = 0x400454CA, 0x0002, 0x1000
PR_SET_TIMERSLACK = 29
ETHERNET, IPV4, IPV6, TCP = 14, b"\x08\x00", b"\x86\xdd", 6
IPV6_HEADER = 40


@dataclass
class Wire:
    """What the path does to frames.

    Attributes
    ----------
    delay_us, jitter_us : each frame comes so much later, plus a random time up to the jitter
    lost_every, lost_first : new data segments towards the client are counted from 0, and of these ``lost_first``,
        ``lost_first`` + ``lost_every`` … are lost between the middle and the client; 0: none is
    later_us : the delay from the 20th frame on; 0: as before
    queue_us : the most that a queue adds, which fills and empties every 1.7 s
    still_us, period_us : nothing moves for so long at the beginning of each period
    kbit_s : the rate of the link between client and middle each way; frames that come meanwhile wait; 0: no limit
    far_us : additional delay of connections with an odd client port (the server's port is even)
    again_us, again_share : this share of the frames takes so much longer, as on a link that repeats lost frames; the
    frames behind them wait
    """

    delay_us: int
    jitter_us: int = 0
    lost_every: int = 0
    lost_first: int = 0
    later_us: int = 0
    queue_us: int = 0
    still_us: int = 0
    period_us: int = 55_000
    kbit_s: int = 0
    far_us: int = 0
    again_us: int = 0
    again_share: float = 0.0


def tap(name: str) -> int:
    """A new TAP device; it lives as long as this process."""
    fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(fd, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TAP | IFF_NO_PI))
    return fd


class Losses:
    """Which frames are lost."""

    def __init__(self, every: int, first: int) -> None:
        self._every, self._first = every, first
        self._seen: set[tuple[bytes, bytes]] = set()  # port and sequence number: a repeated pair is a retransmission

    def lose(self, frame: bytes) -> bool:
        """Count this frame, and return whether it is lost."""
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


QUEUE_PERIOD = 1_700_000_000  # ns
FIRST_FRAMES = 20 * 2  # each passes twice


def queue(longest_ns: int) -> int:
    """The delay that the queue adds now."""
    phase = time.monotonic_ns() % QUEUE_PERIOD / QUEUE_PERIOD
    return round(longest_ns * (1 - abs(2 * phase - 1)))


def after_still(due: int, still_ns: int, period_ns: int) -> int:
    """The arrival of a frame due at ``due``, if nothing moves at the beginning of each period."""
    phase = due % period_ns
    return due - phase + max(phase, still_ns)


def is_far(frame: bytes) -> bool:
    """Whether it is of a connection with an odd client port."""
    length = (frame[ETHERNET] & 15) * 4 if frame[12:14] == IPV4 else IPV6_HEADER if frame[12:14] == IPV6 else 0
    ports = frame[ETHERNET + length : ETHERNET + length + 4]
    return length > 0 and len(ports) == 4 and (ports[1] ^ ports[3]) & 1 == 1


def relay(path: Wire) -> None:
    """Carry frames until killed."""
    c0, m0, m1, s0 = (tap(name) for name in ("c0", "m0", "m1", "s0"))
    ns_per_byte = dict.fromkeys((c0, m0), 8_000_000 // path.kbit_s if path.kbit_s else 0)
    towards = {c0: m0, m0: c0, m1: s0, s0: m1}
    losses = Losses(path.lost_every, path.lost_first)
    ctypes.CDLL(None).prctl(PR_SET_TIMERSLACK, 1)  # wake at the time asked for, not 50 µs later
    print("ready", flush=True)
    under_way: list[tuple[int, int, int, bytes]] = []
    latest: dict[tuple[int, bool], int] = {}  # when the last frame under way to each device is due
    count = 0
    while True:
        wait = max(0, under_way[0][0] - time.monotonic_ns()) / 1e9 if under_way else None
        for device in select.select(list(towards), [], [], wait)[0]:
            frame = os.read(device, 65536)
            if device == m0 and losses.lose(frame):
                continue
            count += 1
            far = path.far_us > 0 and is_far(frame)
            delay_us = path.later_us if path.later_us and count > FIRST_FRAMES else path.delay_us
            delay_us += random.randint(0, path.jitter_us) + far * path.far_us
            delay_us += path.again_us * (random.random() < path.again_share)
            out, due = towards[device], time.monotonic_ns() + delay_us * 1000 + queue(path.queue_us * 1000)
            due = max(latest.get((out, far), 0), due) + len(frame) * ns_per_byte.get(out, 0)
            due = latest[out, far] = after_still(due, path.still_us * 1000, path.period_us * 1000)
            heapq.heappush(under_way, (due, count, out, frame))
        while under_way and under_way[0][0] <= time.monotonic_ns():
            _, _, device, frame = heapq.heappop(under_way)
            try:
                os.write(device, frame)
            except OSError:
                continue  # not up yet


if __name__ == "__main__":
    relay(Wire(**json.loads(sys.argv[1])))
