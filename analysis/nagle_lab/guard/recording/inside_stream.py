"""The program that records running software as a stream: ``main(request)`` writes pcapng to standard output.

It ends on SIGTERM, or when its target is gone, and says on standard error why it could not begin.
"""

import os
import signal
import socket
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from random import uniform
from typing import BinaryIO

from nagle_lab.capture.writer import Pcapng
from nagle_lab.guard.recording.job import Request, from_text
from nagle_lab.guard.recording.recorder import EVERY_S, FULL, RING_BYTES, SNAPLEN, Ring, interfaces
from nagle_lab.guard.recording.socket_poller import SocketPoller
from nagle_lab.host import children, namespace
from nagle_lab.host.signals import ENDING

NEEDS = "it needs"  # in the line about a missing capability
GONE = 7  # the exit code when the interface is gone
WHOLE = 1 << 20  # bytes
MOST_INTERFACES = 10_000  # of a section: interfaces that come and go get new numbers
DROPS_EVERY_S = 1.0
QUIET_S = 0.6  # after the last packet nothing can wait for a delayed ACK any longer


def main(request: str) -> None:
    """Stream what the request (JSON) names, until its end."""
    asked = from_text(Request, request)
    signal.pthread_sigmask(signal.SIG_BLOCK, children.TAKEN)
    children.end_with_parent(signal.SIGTERM)
    try:
        if asked.pid is not None:
            namespace.join(asked.pid, namespace.OF_PROCESS)
        if asked.interface and asked.interface not in (there := interfaces()):
            sys.exit(f"there is no interface {asked.interface}; there are {', '.join(there)}")
        index = socket.if_nametoindex(asked.interface) if asked.interface else 0
        ring = Ring(asked.interface, asked.ports)
    except PermissionError as error:
        capability = "CAP_NET_RAW" if asked.pid is None else "CAP_SYS_ADMIN and CAP_NET_RAW"
        sys.exit(f"{(error.strerror or str(error)).lower()}: {NEEDS} {capability}")
    except OSError as error:
        sys.exit((error.strerror or str(error)).lower())
    with suppress(BrokenPipeError), os.fdopen(1, "wb", buffering=WHOLE) as out:
        sys.exit(_stream(_Streamed(ring, out, asked.ports), out, asked.interface, index))


def _stream(streamed: "_Streamed", out: BinaryIO, interface: str, index: int) -> int:
    """Stream until a signal comes, or the interface is gone; returns the exit code, 0 or GONE."""
    look_at = 0.0
    out.flush()
    ended = None
    while ended is None:
        is_more = streamed.pass_on()
        streamed.tell_answers()
        wait_s = EVERY_S * uniform(0.5, 1)  # random, so that the kernel is asked in any part of a wait
        ended = signal.sigtimedwait(ENDING, 0 if is_more else wait_s)
        if time.monotonic() >= look_at:
            look_at = time.monotonic() + DROPS_EVERY_S
            streamed.tell_dropped()
            if index and not _is_there(interface, index):
                return GONE
    for _ in range(RING_BYTES // FULL + 2):  # what the ring contains now, and little more
        streamed.pass_on()
    streamed.tell_dropped()
    return 0


def _is_there(interface: str, index: int) -> bool:
    try:
        return socket.if_nametoindex(interface) == index
    except OSError:
        return False


class _Streamed:
    """The packets of a ring as pcapng; an interface is described when its first packet comes."""

    def __init__(self, ring: Ring, out: BinaryIO, ports: Sequence[int]) -> None:
        self._ring, self._out = ring, out
        self._poller, self._quiet_at = SocketPoller(ports), 0.0
        self._numbers: dict[int, int] = {}  # in the section, by the kernel's index
        self._dropped = self._dropped_written = 0  # in the section
        self._writer = Pcapng(out)

    def pass_on(self) -> bool:
        """Write what the ring contains, or part of it; returns whether there is more."""
        frames = self._ring.take()
        for ts, index, length, kept in self._ring.packets(frames):
            number = self._numbers.get(index)
            if number is None:
                number = self._describe(index)
            self._writer.add(ts, number, length, kept)
        if frames:
            self._out.flush()
            self._quiet_at = time.monotonic() + QUIET_S
        return len(frames) == FULL

    def tell_answers(self) -> None:
        """Write what the kernel says about data that waits in sockets, while packets come."""
        if time.monotonic() >= self._quiet_at:
            return
        if answers := self._poller.answers():
            for one in answers:
                self._writer.add_answer(one)
            self._out.flush()

    def tell_dropped(self) -> None:
        """Write for how many packets the kernel had no room; the first interface counts them."""
        self._dropped += self._ring.dropped()
        if self._dropped > self._dropped_written and self._numbers:
            self._dropped_written = self._dropped
            self._writer.add_dropped(0, self._dropped)
            self._out.flush()

    def _describe(self, index: int) -> int:
        if len(self._numbers) == MOST_INTERFACES:  # another section
            self._numbers, self._dropped, self._dropped_written, self._writer = {}, 0, 0, Pcapng(self._out)
        try:
            name = socket.if_indextoname(index)
        except OSError:  # already gone
            name = f"interface {index}"
        self._writer.add_interface(name, snaplen=SNAPLEN)
        return self._numbers.setdefault(index, len(self._numbers))
