"""The options of another process's open socket, and whether data waits in it.

Its descriptor is duplicated into ours by pidfd_getfd(2), and nothing is stopped or restarted. Linux 5.6 or newer, and
the right to trace the process (ptrace(2), Ptrace access mode checking): its user without Yama's restriction, or
CAP_SYS_PTRACE.
"""

import ctypes
import errno
import os
import socket
import sys
from collections.abc import Sequence
from enum import StrEnum

import msgspec

from nagle_lab.host.libc import LIBC, last_error
from nagle_lab.host.sock_diag import ListedSocket

TCP = socket.IPPROTO_TCP
_PIDFD_GETFD = 438  # the number of the system call, the same on every common processor; not on Alpha and MIPS
_SO_COOKIE = 57
_SYSCALL = LIBC.syscall
_SYSCALL.restype = ctypes.c_long


class Options(msgspec.Struct, frozen=True):
    """The options that decide whether small segments and ACKs leave at once."""

    nodelay: bool
    cork: bool
    interactive: bool  # ACKs are delayed ("pingpong" mode), as TCP_QUICKACK reads 0


class GoneError(Exception):
    """The process or its descriptor no longer exists."""


def borrow(holders: Sequence[tuple[int, int]], inode: int) -> socket.socket:
    """A copy of a socket, which the caller closes, from the first of its holders (process, descriptor) that still has
    it.

    The socket's family does not matter for what is done with a copy here. Raises PermissionError without the right,
    OSError (ENOSYS) if the kernel is too old, and GoneError.
    """
    for pid, fd in holders:
        copy = _duplicate(pid, fd)
        if copy is not None and os.fstat(copy).st_ino == inode:
            return socket.socket(socket.AF_INET, socket.SOCK_STREAM, TCP, fileno=copy)
        if copy is not None:
            os.close(copy)
    raise GoneError


def _duplicate(pid: int, fd: int) -> int | None:
    """A copy of a descriptor; None if there is none. The process is not kept open: there may be thousands."""
    try:
        process = os.pidfd_open(pid)
        try:
            copy: int = _SYSCALL(_PIDFD_GETFD, process, fd, 0)
            if copy < 0:
                raise last_error()
        finally:
            os.close(process)
    except OSError as error:
        if error.errno in (errno.ESRCH, errno.EBADF):
            return None
        raise
    return copy


def read(borrowed: socket.socket) -> Options:
    """The options of a TCP socket. Raises OSError."""
    return Options(
        nodelay=bool(borrowed.getsockopt(TCP, socket.TCP_NODELAY)),
        cork=bool(borrowed.getsockopt(TCP, socket.TCP_CORK)),
        interactive=not borrowed.getsockopt(TCP, socket.TCP_QUICKACK),
    )


def cookie(borrowed: socket.socket) -> int:
    """The number that no other socket has until the next boot, as in sock_diag(7)."""
    return int.from_bytes(borrowed.getsockopt(socket.SOL_SOCKET, _SO_COOKIE, 8), sys.byteorder)


class Waits(StrEnum):
    """Why a small segment waits in a socket at this moment."""

    HELD = "held now"  # by Nagle's algorithm, behind a small segment that is not acknowledged
    MAYBE_HELD = "held?"  # the same, but there is no right to read TCP_NODELAY
    CORKED = "corked"  # TCP_CORK


def waits(listed: ListedSocket, options: Options | None) -> Waits | None:
    """Why less than a full segment waits in it, if it does, as Linux decides it (ListedSocket.held).

    If the congestion window or the other end's window is full, data waits for that, and is not held.
    """
    info = listed.info
    is_small_waiting = info is not None and 0 < info.unsent < info.mss
    bypasses_nagle = options is not None and options.nodelay and not options.cork
    if not is_small_waiting or bypasses_nagle:
        return None
    if options and options.cork:
        return Waits.CORKED
    if not listed.held:
        return None
    return Waits.HELD if options else Waits.MAYBE_HELD
