"""A recorder of TCP segments that needs no other program: a ring of packets shared with the kernel, → pcapng.

packet(7), and Documentation/networking/packet_mmap.rst of Linux, TPACKET_V2. The ring is emptied at intervals instead
of at every packet, so that recording does not disturb the traffic.
"""

import ctypes
import errno
import fcntl
import mmap
import os
import socket
import sys
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from io import BufferedWriter
from itertools import chain
from pathlib import Path
from random import uniform
from struct import Struct, pack, unpack
from typing import NamedTuple

from nagle_lab.capture.writer import Pcapng
from nagle_lab.guard.recording.job import no_room
from nagle_lab.guard.recording.socket_poller import SocketPoller
from nagle_lab.host import bpf

SNAPLEN = 128  # bytes: Ethernet, IPv6 and TCP with all its options
EVERY_S = 0.02  # how often the ring is emptied
FRAME_BYTES = 256
BLOCK_BYTES = 1 << 16
RING_BYTES = 64 << 20  # 262,144 packets
RINGS_BYTES, LEAST_RING_BYTES = 256 << 20, 2 << 20  # of many interfaces: of all their rings, and of each
PACKETS_AT_ONCE = 1 << 14
FULL = PACKETS_AT_ONCE * FRAME_BYTES
MOST_UNWRITTEN_BYTES = 1 << 30  # of frames that wait to be written

_SOL_PACKET, _PACKET_RX_RING, _PACKET_STATISTICS, _PACKET_VERSION = 263, 5, 6, 10
_TPACKET_V2 = 1
_ETH_P_ALL = 3
_SO_ATTACH_FILTER = 26
_FRAME = Struct("=IIIHHII")  # struct tpacket2_hdr: status, length, snapped length, where MAC and IP begin, s, ns
_INTERFACE_AT = 36  # in a frame: sll_ifindex of the struct sockaddr_ll behind that header
_INDEX = Struct("=I")
_STEP = FRAME_BYTES // 4  # from one status to the next, in words
_LOOK = 64  # statuses at once
_TO_USER, _TO_KERNEL = 1, memoryview(bytes(4 * PACKETS_AT_ONCE)).cast("I")

_SIOCGIFHWADDR, _ARPHRD_ETHER, _ARPHRD_LOOPBACK = 0x8927, 1, 772
_PACKET_OUTGOING = 4
_KNOWN = 0xFFFFF000  # SKF_AD_OFF: what the kernel knows about a packet besides its bytes
_TYPE, _HARDWARE = _KNOWN + 4, _KNOWN + 28  # SKF_AD_PKTTYPE, SKF_AD_HATYPE
_IPV4, _IPV6, _TCP = 0x0800, 0x86DD, 6


def _filter(ports: Sequence[int]) -> bytes:
    """A filter for TCP over IPv4 and IPv6, from or to one of the ports, or for all TCP.

    On loopback each packet passes twice, outgoing and incoming: the filter takes only the incoming one. Interfaces
    without an Ethernet header (tun, WireGuard) are left out.
    """
    any_port = [] if ports else bpf.jump("take")
    is_wanted = [step for port in ports for step in bpf.if_equal(port, "take")]
    return bpf.assembled(
        bpf.load_word(_HARDWARE), bpf.unless_equal(_ARPHRD_LOOPBACK, "no loopback"),
        bpf.load_word(_TYPE), bpf.if_equal(_PACKET_OUTGOING, "leave"), bpf.jump("Ethernet"),
        "no loopback", bpf.unless_equal(_ARPHRD_ETHER, "leave"),
        "Ethernet", bpf.load_half(12), bpf.unless_equal(_IPV6, "no IPv6"),
        bpf.load_byte(20), bpf.unless_equal(_TCP, "leave"), any_port,
        bpf.load_half(54), is_wanted, bpf.load_half(56), is_wanted, bpf.jump("leave"),
        "no IPv6", bpf.unless_equal(_IPV4, "leave"),
        bpf.load_byte(23), bpf.unless_equal(_TCP, "leave"), any_port,
        bpf.load_half_behind_ipv4(14, 0), is_wanted, bpf.load_half_behind_ipv4(14, 2), is_wanted,
        "leave", bpf.result(0),
        "take", bpf.result(SNAPLEN),
    )  # fmt: skip


class RingPacket(NamedTuple):
    """A packet of the ring."""

    ts: int  # ns since 1970
    interface: int  # the kernel's index of the interface
    length: int  # on the wire, bytes
    kept: bytes


class Ring:
    """The packets that one interface of this network namespace, or all of them (""), receive and send.

    That includes interfaces that come later. ``size`` is in bytes, by default RING_BYTES; the kernel takes them at
    once. Raises OSError: CAP_NET_RAW is needed.
    """

    def __init__(self, interface: str, ports: Sequence[int] = (), size: int | None = None) -> None:
        blocks = (size or RING_BYTES) // BLOCK_BYTES
        self._frames = blocks * BLOCK_BYTES // FRAME_BYTES  # how many there are
        # For all interfaces it receives from now on; setting up the ring discards what came before.
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0 if interface else socket.htons(_ETH_P_ALL))
        try:
            self._attach_filter(_filter(ports))
            self._socket.setsockopt(_SOL_PACKET, _PACKET_VERSION, _TPACKET_V2)
            ring = pack("IIII", BLOCK_BYTES, blocks, FRAME_BYTES, self._frames)
            self._socket.setsockopt(_SOL_PACKET, _PACKET_RX_RING, ring)
            self._memory = mmap.mmap(self._socket.fileno(), blocks * BLOCK_BYTES)
            self._words = memoryview(self._memory).cast("I")
            self._at = 0  # number of the next frame
            if interface:
                self._socket.bind((interface, _ETH_P_ALL))
            self.dropped()
        except BaseException:
            self._socket.close()
            raise

    def _attach_filter(self, program: bytes) -> None:
        buffer = ctypes.create_string_buffer(program)
        of = pack("HP", len(program) // 8, ctypes.addressof(buffer))
        self._socket.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, of)

    def take(self) -> bytes:
        """The frames that are there, at most FULL bytes, copied as they are, so that the ring is free at once."""
        frames = self._take(PACKETS_AT_ONCE)
        if frames and self._at == 0:  # the ring continues at its beginning
            frames += self._take(PACKETS_AT_ONCE - len(frames) // FRAME_BYTES)
        return frames

    def _take(self, most: int) -> bytes:
        at = self._at
        end = self._first_empty(at, min(at + most, self._frames))
        frames = self._memory[at * FRAME_BYTES : end * FRAME_BYTES]
        self._words[at * _STEP : end * _STEP : _STEP] = _TO_KERNEL[: end - at]
        self._at = end % self._frames
        return frames

    def _first_empty(self, at: int, end: int) -> int:
        """The number of the first frame from ``at`` on that the kernel has not filled; ``end`` if there is none.

        Usually it is one of the next few. Each status is in a cache line of its own, and the measured programs need
        the cache.
        """
        for begin in range(at, end, _LOOK):
            statuses = self._words[begin * _STEP : min(begin + _LOOK, end) * _STEP : _STEP].tolist()
            for number, status in enumerate(statuses, begin):
                if not status & _TO_USER:
                    return number
        return end

    def packets(self, frames: bytes) -> Iterator[RingPacket]:
        """The packets in frames that were taken."""
        for at in range(0, len(frames), FRAME_BYTES):
            _, length, kept, mac, _, seconds, ns = _FRAME.unpack_from(frames, at)
            (interface,) = _INDEX.unpack_from(frames, at + _INTERFACE_AT)
            yield RingPacket(seconds * 10**9 + ns, interface, length, frames[at + mac : at + mac + kept])

    def end(self) -> None:
        """Let no more packets into the ring; those in it stay until they are taken."""
        self._attach_filter(bpf.assembled(bpf.result(0)))

    def dropped(self) -> int:
        """The number of packets for which the kernel had no room since the last call."""
        counts = self._socket.getsockopt(_SOL_PACKET, _PACKET_STATISTICS, 8)
        _received, lost = unpack("II", counts)
        return int(lost)

    def close(self) -> None:
        """Stop receiving."""
        self._words.release()
        self._memory.close()
        self._socket.close()


def ring_bytes(count: int) -> int:
    """The size of each of ``count`` rings, bytes: a host with containers has hundreds of interfaces."""
    return max(LEAST_RING_BYTES, min(RING_BYTES, RINGS_BYTES // count))


class Recorder(threading.Thread):
    """Writes the packets of the rings until it is stopped, in its own thread.

    ``owner`` is the user and the group to whom the files are given, if others than ours.
    """

    def __init__(
        self, path: Path, names: Sequence[str], ports: Sequence[int] = (), owner: tuple[int, int] | None = None
    ) -> None:
        super().__init__(name="recorder", daemon=True)
        self.captured = self.dropped = 0  # TCP segments written, and lost
        self.problem = ""  # why it stopped early, such as a full disk; empty if it did not
        self._owner = owner
        self._interfaces: list[str] = []
        self._rings: list[Ring] = []
        self._numbers: dict[int, int] = {}  # of the interfaces in the file, by their indices
        self._ending, self._wake = threading.Event(), threading.Event()
        self._cuts: list[tuple[Path, threading.Event]] = []
        self._unwritten: deque[list[bytes]] = deque()  # frames of each ring
        self._poller = SocketPoller(ports)
        try:
            for name in names:
                try:
                    ring = Ring(name, ports, ring_bytes(len(names)))
                except OSError as error:
                    if error.errno == errno.ENODEV and len(names) > 1:
                        continue  # it is gone: those of containers come and go
                    raise
                self._rings.append(ring)
                self._numbers[socket.if_nametoindex(name)] = len(self._interfaces)
                self._interfaces.append(name)
            self._begin_file(path)
        except BaseException:
            self._close_rings()
            raise

    def run(self) -> None:
        """Empty the rings at intervals, and once more at the end."""
        try:
            while not self._ending.is_set():
                if not self._unwritten:
                    self._wake.wait(EVERY_S * uniform(0.5, 1))  # the kernel is to be asked in any part of a wait
                    self._wake.clear()
                self._empty()
                self._write_some()
                for answer in self._poller.answers():
                    self._writer.add_answer(answer)
                while self._cuts:
                    path, done = self._cuts.pop(0)
                    self._write_all()  # packets that came before the cut was requested
                    self._end_file()
                    self._begin_file(path)
                    done.set()
            for ring in self._rings:  # packets may come faster than they can be written
                ring.end()
            self._write_all()
            self._end_file()
        except OSError as error:
            full = no_room(error, self._path.name, self._path.parent)
            self.problem = full or f"the capture could not be written ({error.strerror})"
            self._file.raw.close()  # the buffer's rest cannot be written, which Python 3.13 would report on stderr
        except MemoryError:
            self.problem = "the recorder ran out of memory: run it again with less traffic, or more memory"
        finally:
            self._close_rings()

    def cut(self, path: Path) -> None:
        """End the file, and write later packets to another one; returns when that is done."""
        done = threading.Event()
        self._cuts.append((path, done))
        self._wake.set()
        while self.is_alive() and not done.wait(1):
            pass

    def stop(self) -> None:
        """Stop recording; returns when everything is in the file."""
        self._ending.set()
        self._wake.set()
        self.join()

    def _empty(self) -> bool:
        """Take what the rings contain now; returns whether there was no room for all of it.

        Packets that come meanwhile are left for the next time, because otherwise a steady stream would never be
        written.
        """
        while sum(map(len, (frames for taken in self._unwritten for frames in taken))) < MOST_UNWRITTEN_BYTES:
            taken = [ring.take() for ring in self._rings]
            if any(taken):
                self._unwritten.append(taken)
            if not any(len(frames) == FULL for frames in taken):
                return False
        return True

    def _write_some(self) -> None:
        """Write the oldest frames taken."""
        if not self._unwritten:
            return
        taken = self._unwritten.popleft()
        of_each = [ring.packets(frames) for ring, frames in zip(self._rings, taken, strict=True)]
        for ts, index, length, kept in of_each[0] if len(of_each) == 1 else sorted(chain(*of_each)):
            self._writer.add(ts, self._numbers[index], length, kept)
            self.captured += 1
        self._file.flush()

    def _write_all(self) -> None:
        """Write what was taken, and what the rings contain now."""
        is_more = True
        while is_more:
            is_more = self._empty()
            while self._unwritten:
                self._write_some()

    def _begin_file(self, path: Path) -> None:
        self._path = path
        self._file = BufferedWriter(path.open("wb", buffering=0), 1 << 18)
        if self._owner:
            with suppress(OSError):
                os.fchown(self._file.fileno(), *self._owner)
        self._writer = Pcapng(self._file)
        for name in self._interfaces:
            self._writer.add_interface(name, snaplen=SNAPLEN)

    def _end_file(self) -> None:
        for number, ring in enumerate(self._rings):
            lost = ring.dropped()
            self.dropped += lost
            self._writer.add_dropped(number, lost)
        self._file.close()

    def _close_rings(self) -> None:
        for ring in self._rings:
            ring.close()


def interfaces() -> list[str]:
    """The interfaces of this network namespace that have an Ethernet header and may carry TCP, loopback first.

    One whose name is not UTF-8 is left out: Python binds no socket to it.
    """
    names = sorted((name for _, name in socket.if_nameindex() if _is_text(name)), key=lambda name: name != "lo")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        return [name for name in names if _hardware(any_socket, name) in (_ARPHRD_ETHER, _ARPHRD_LOOPBACK)]


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _hardware(any_socket: socket.socket, name: str) -> int:
    """The kind of its hardware, ARPHRD_…; -1 if it is gone."""
    try:
        answer = fcntl.ioctl(any_socket, _SIOCGIFHWADDR, pack("16s24s", name.encode(), b""))
    except OSError:
        return -1
    return int.from_bytes(answer[16:18], sys.byteorder)
