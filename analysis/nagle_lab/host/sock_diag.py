"""Every TCP socket of a network namespace, as the kernel lists them: sock_diag(7), linux/inet_diag.h, linux/tcp.h."""

import errno
import os
import socket
import sys
from collections.abc import Iterator
from ipaddress import ip_address
from itertools import chain, islice
from struct import Struct, pack

import msgspec

from nagle_lab.capture.kernel_answers import SocketAddress
from nagle_lab.errors import NagleLabError

STATES = {
    1: "ESTABLISHED", 2: "SYN-SENT", 3: "SYN-RECEIVED", 4: "FIN-WAIT-1", 5: "FIN-WAIT-2", 6: "TIME-WAIT",
    7: "CLOSED", 8: "CLOSE-WAIT", 9: "LAST-ACK", 10: "LISTEN", 11: "CLOSING", 12: "SYN-RECEIVED",
}  # fmt: skip
LISTEN = "LISTEN"

_NETLINK_SOCK_DIAG, _TCPDIAG_GETSOCK, _SOCK_DIAG_BY_FAMILY = 4, 18, 20
_NLM_F_REQUEST, _NLM_F_DUMP = 0x1, 0x300
_NLMSG_ERROR, _NLMSG_DONE = 2, 3
_INET_DIAG_INFO = 2
_EXTENSIONS = 1 << (_INET_DIAG_INFO - 1)
ALL_STATES = 0xFFF << 1
OPEN_STATES = (1 << 1) | (1 << 8)  # ESTABLISHED, CLOSE-WAIT: data may be written
_MESSAGE = Struct("=IHHII")  # struct nlmsghdr: length, type, flags, sequence number, port
_SOCKET = Struct("=BBBB2s2s16s16sIQIIIII")  # struct inet_diag_msg
_QUEUED, _QUEUED_AT = Struct("=I"), 60  # its idiag_wqueue
# Of struct tcp_info: snd_mss, unacked, last_data_sent, snd_cwnd, notsent_bytes.
_TCP_INFO = Struct("=16xI4xI16xI32xI60xI")
_SND_WND, _SND_WND_AT = Struct("=I"), 228
_PORT, _ATTRIBUTE = Struct("!H"), Struct("=HH")
_BYTES_AT_ONCE = 1 << 18  # of an answer read at once


class TcpInfo(msgspec.Struct, frozen=True):
    """What Nagle's algorithm looks at, from struct tcp_info."""

    mss: int  # bytes of a full segment to the other end
    in_flight: int  # segments sent and not acknowledged
    unsent: int  # bytes that wait to be sent
    cwnd: int  # segments
    window: int | None  # bytes, of the other end; None: this kernel does not report it
    silent_ms: int = 0  # since data was sent last, in the kernel's ticks of up to 10 ms


class ListedSocket(msgspec.Struct, frozen=True):
    """A socket as the kernel lists it."""

    state: str  # of RFC 9293
    local: SocketAddress
    remote: SocketAddress
    uid: int
    inode: int  # 0: no process has it
    cookie: int  # unique until the next boot
    queued: int  # bytes not acknowledged, sent or not
    info: TcpInfo | None  # None: there is none in this state

    @property
    def unsent(self) -> int:
        """Bytes that were written and wait to be sent (notsent_bytes)."""
        return self.info.unsent if self.info else 0

    @property
    def unacknowledged(self) -> int:
        """Bytes that were sent and are not acknowledged."""
        return max(self.queued - self.unsent, 0)

    @property
    def is_window_full(self) -> bool:
        """Whether the congestion window or the other end's window has no room for waiting or newly written data."""
        info = self.info
        if info is None:
            return False
        if info.in_flight >= info.cwnd:
            return True
        return info.window is not None and self.unacknowledged + info.unsent > info.window

    @property
    def is_behind_small(self) -> bool:
        """Whether a small segment is not acknowledged, and less than a full segment waits, or no data at all.

        Then Nagle's algorithm holds what is written (Minshall's variant, tcp_nagle_check in tcp_output.c), and so
        does TCP_CORK. Automatic corking (tcp_should_autocork) does, too, but only until the device has sent.
        """
        info = self.info
        return info is not None and info.unsent < info.mss and 0 < self.unacknowledged < info.in_flight * info.mss

    @property
    def held(self) -> int:
        """Bytes that wait behind a small segment, and not for a window."""
        return self.unsent if self.is_behind_small and not self.is_window_full else 0


def tcp_sockets(most: int | None = None) -> list[ListedSocket]:
    """The TCP sockets of the calling thread's network namespace: at most ``most`` of each family, listening ones
    first.

    Raises OSError, NagleLabError.
    """
    found: list[ListedSocket] = []
    for family in (socket.AF_INET, socket.AF_INET6):
        messages = chain.from_iterable(_messages(family, ALL_STATES))
        found += map(read_socket, islice(messages, most))
    return found


def busy_sockets() -> Iterator[list[ListedSocket]]:
    """The open TCP sockets (OPEN_STATES) with data not acknowledged or not sent, in parts, as the kernel lists them.

    The kernel makes each part, of some hundred sockets, when the previous part has been read.

    Raises OSError, NagleLabError.
    """
    for messages in _messages(socket.AF_UNSPEC, OPEN_STATES):
        yield [read_socket(one) for one in messages if _QUEUED.unpack_from(one, _QUEUED_AT)[0]]


def _messages(family: int, states: int) -> Iterator[list[bytes]]:
    """All sockets of a family, or of both (AF_UNSPEC), in parts, each a struct inet_diag_msg and more.

    Both families take the older request: for it the kernel goes through its table only once, and the table's size is
    most of the cost.
    """
    kind, request = _SOCK_DIAG_BY_FAMILY, pack("=BBBBI48x", family, socket.IPPROTO_TCP, _EXTENSIONS, 0, states)
    if family == socket.AF_UNSPEC:
        kind, request = _TCPDIAG_GETSOCK, pack("=BBBB48xII", family, 0, 0, _EXTENSIONS, states, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG) as kernel:
        flags = _NLM_F_REQUEST | _NLM_F_DUMP
        kernel.send(_MESSAGE.pack(_MESSAGE.size + len(request), kind, flags, 0, 0) + request)
        is_over = False
        while not is_over:
            messages, is_over = _read_part(kernel.recv(_BYTES_AT_ONCE), family)
            yield messages


def _read_part(answer: bytes, family: int) -> tuple[list[bytes], bool]:
    """The sockets in a part of the kernel's answer, and whether it was the last one; a kernel may lack IPv6."""
    found: list[bytes] = []
    at = 0
    while at < len(answer):
        length, kind, *_ = _MESSAGE.unpack_from(answer, at)
        if kind == _NLMSG_DONE:
            return found, True
        if kind == _NLMSG_ERROR:
            number = -int.from_bytes(answer[at + _MESSAGE.size :][:4], sys.byteorder, signed=True)
            if family == socket.AF_INET6 and number in (errno.ENOENT, errno.EAFNOSUPPORT):
                return found, True
            why = os.strerror(number)
            raise NagleLabError(f"the kernel does not list its TCP sockets ({why}): try modprobe tcp_diag")
        found.append(answer[at + _MESSAGE.size : at + length])
        at += (length + 3) & ~3
    return found, False


def read_socket(message: bytes) -> ListedSocket:
    """A socket from the bytes of its struct inet_diag_msg and what follows it."""
    (family, state, _timer, _retransmits, source, destination, local, remote, _interface, cookie, _expires, _received,
     queued, uid, inode) = _SOCKET.unpack_from(message)  # fmt: skip
    name = STATES.get(state, "CLOSED")
    info = None if name == LISTEN else _info(message)
    return ListedSocket(
        name, (address(family, local), *_PORT.unpack(source)), (address(family, remote), *_PORT.unpack(destination)),
        uid, inode, cookie, queued if info else 0, info,
    )  # fmt: skip


def address(family: int, packed: bytes) -> str:
    """An address as in packets: an IPv4 address mapped into IPv6 becomes IPv4."""
    if family == socket.AF_INET:
        return socket.inet_ntop(socket.AF_INET, packed[:4])
    if packed.startswith(b"\0" * 10 + b"\xff\xff"):
        return socket.inet_ntop(socket.AF_INET, packed[12:])
    return str(ip_address(packed))


def _info(message: bytes) -> TcpInfo | None:
    at = _SOCKET.size
    while at + 4 <= len(message):
        length, kind = _ATTRIBUTE.unpack_from(message, at)
        if kind == _INET_DIAG_INFO:
            return read_info(message[at + 4 : at + length])
        at += max((length + 3) & ~3, 4)
    return None


def read_info(tcp_info: bytes) -> TcpInfo | None:
    """Read the bytes of a struct tcp_info; None if the kernel is too old (before Linux 4.6)."""
    if len(tcp_info) < _TCP_INFO.size:
        return None
    mss, in_flight, silent_ms, cwnd, unsent = _TCP_INFO.unpack_from(tcp_info)
    (window,) = _SND_WND.unpack_from(tcp_info, _SND_WND_AT) if len(tcp_info) >= _SND_WND_AT + 4 else (None,)
    return TcpInfo(mss, in_flight, unsent, cwnd, window, silent_ms)
